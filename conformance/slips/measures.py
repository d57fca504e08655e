"""Slips of measures that the text of a file shows by itself: two counts or two rates that are one expression, answers
that were given the words before them and are scored as if they had been written, bits that are nats times a number, a
union that counts what is common twice, and a table of counts that is read along its other axis."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from conformance.slips.slip import Found, Slip, assigned, called, calls, functions, named_values

# --- two names of one number ----------------------------------------------------------------------

_PAIRS = (
    (r"(.*_)?(fp|false_?pos(?:itives?)?)(_.*)?", r"(.*_)?(fn|false_?neg(?:atives?)?)(_.*)?"),
    (r"(.*_)?(p|prec(?:ision)?)(_.*)?", r"(.*_)?(r|rec(?:all)?)(_.*)?"),
)
"""Names of what is counted, or divided, in two ways."""


def one_number_twice(tree: ast.AST) -> Found:
    """Where false positives and false negatives, or a precision and a recall, are one expression."""
    for function in functions(tree):
        named = [(to.id, given) for node in ast.walk(function) for to, given in _single(node)]
        for (name, given), (other, also) in combinations(named, 2):
            same = ast.dump(given) == ast.dump(also) and _counts(given)
            if same and any(_are(name, other, pair) or _are(other, name, pair) for pair in _PAIRS):
                yield f"{name} and {other}: {ast.unparse(given)}", also


def _single(node: ast.AST) -> Iterator[tuple[ast.Name, ast.expr]]:
    return ((to, given) for to, given in assigned(node) if isinstance(to, ast.Name))


def _are(name: str, other: str, pair: tuple[str, str]) -> bool:
    """Whether they are called so, and what stands around that is the same: fp_all and fn_all."""
    one, two = (re.fullmatch(pattern, said, re.IGNORECASE) for pattern, said in zip(pair, (name, other), strict=True))
    return bool(one and two and one.group(1, 3) == two.group(1, 3))


def _counts(given: ast.expr) -> bool:
    """Whether it is computed from names, and no first value: ``0``, ``zeros(n)``."""
    computes = any(isinstance(one, ast.BinOp | ast.Compare) for one in ast.walk(given))
    return computes and any(isinstance(one, ast.Name) for one in ast.walk(given))


# --- answers whose beginning was given ------------------------------------------------------------

_OF_WRITING = re.compile(
    r"\w*(bleu|rouge|chrf|meteor|edit_?dist|levenshtein|editops)\w*|(\w+_)?(wer|cer|edits)(_\w+)?", re.I
)
"""Measures of what a model writes, which count words that are not in their place."""
_WRITES = re.compile(r"\w*(greedy|beam|generate|translate|transcribe|summar|sample|write|decode_one|respond)\w*", re.I)
_TARGETS = re.compile(
    r"(\w+[._])?(tgt|trg|target|y|dec|decoder|labels?|summary|out)\w*(\[:, ?:-1\]|_in\w*|_inp\w*)?", re.I
)
_CUT = re.compile(r"\[:, ?:-1\]|\[:-1\]|_in(put)?(_ids|s)?$|_inp$", re.I)
"""A target without its last word: what a decoder reads in training."""


def given_beginnings_scored(tree: ast.AST) -> Found:
    """Where the best words of a decoder that has read the target are scored by a measure of what is written."""
    for function in functions(tree):
        if not any(_OF_WRITING.fullmatch(called(one)) for one in calls(function)):
            continue
        if any(_WRITES.fullmatch(called(one)) for one in calls(function)):
            continue
        pairs = [pair for node in ast.walk(function) for pair in assigned(node)]
        scores = {name for to, given in pairs if _reads_a_target(given) for name in _names(to)[:1]}
        for node in calls(function):
            of = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
            best = called(node) in ("argmax", "topk") or (called(node) == "max" and _has_an_axis(node))
            if best and of is not None and (_reads_a_target(of) or _first(of) in scores):
                yield ast.unparse(node), node


def _names(to: ast.expr) -> list[str]:
    return [one.id for one in ast.walk(to) if isinstance(one, ast.Name)]


def _first(of: ast.expr) -> str:
    """The name that an expression begins with: ``logits`` of ``logits[0].softmax(-1)``."""
    while isinstance(of, ast.Attribute | ast.Subscript | ast.Call):
        of = of.func if isinstance(of, ast.Call) else of.value
    return of.id if isinstance(of, ast.Name) else ""


def _has_an_axis(node: ast.Call) -> bool:
    return any(word.arg in ("dim", "axis") for word in node.keywords) or bool(node.args)


def _reads_a_target(given: ast.expr) -> bool:
    """``model(src, tgt[:, :-1])``, also where more is done with it: a source and a target without its last word."""
    for call in (one for one in ast.walk(given) if isinstance(one, ast.Call)):
        rest = [ast.unparse(one) for one in call.args[1:]]
        rest += [ast.unparse(word.value) for word in call.keywords]
        of_model = re.search(r"model|net|transformer|seq2seq", ast.unparse(call.func), re.IGNORECASE)
        if of_model and any(_TARGETS.fullmatch(one) and _CUT.search(one) for one in rest):
            return True
    return False


# --- ranks ----------------------------------------------------------------------------------------

_OF_RANKS = re.compile(r"(\w+_)?(roc_?)?auc(_score|_roc)?|roc_auc_score|average_precision(_score)?|roc_curve", re.I)


def ranks_of_decisions(tree: ast.AST) -> Found:
    """Where a measure of ranks is given decisions: numbers that are compared with a threshold, or rounded, or the best
    class. scikit-learn's take the labels first, which may be compared."""
    for node in calls(tree):
        name = called(node)
        if not _OF_RANKS.fullmatch(name):
            continue
        for one in node.args[1:2] if name.endswith(("_score", "_curve")) else node.args[:2]:
            while (
                isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and called(one) in (*_MOVES, "astype")
            ):
                one = one.func.value
            decided = isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE)
            if (decided and not _TRUE_ONES.match(ast.unparse(one))) or called(one) in ("argmax", "round"):
                yield ast.unparse(node), node


_TRUE_ONES = re.compile(r"\(?(\w+[._])?(y|labels?|targets?|truth|gold|true)\b", re.IGNORECASE)

# --- bits -----------------------------------------------------------------------------------------

_BITS = re.compile(r"(\w+[._])?(bits(_per_\w+)?|bp[bcdt])(_\w+)?", re.IGNORECASE)
_OF_TWO = re.compile(r"(math|np|numpy|torch)?\.?log\((2|2\.0|torch\.tensor\(2\.0?\))\)|0\.693\d*|LN_?2", re.IGNORECASE)


def bits_multiplied(tree: ast.AST) -> Found:
    """Where nats become bits by a product with the logarithm of 2."""
    for name, value in named_values(tree):
        if not _BITS.fullmatch(name):
            continue
        for node in ast.walk(value):
            is_product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
            if is_product and any(_OF_TWO.fullmatch(ast.unparse(side)) for side in (node.left, node.right)):  # type: ignore[attr-defined]
                yield f"{name}: {ast.unparse(node)}", node


# --- unions ---------------------------------------------------------------------------------------

_COMMON = r"inter\w*|both|overlap\w*|common"


def unions_with_all_twice(tree: ast.AST) -> Found:
    """Where a union is the sum of two sizes, and what is common to both is taken off nowhere."""
    for function in functions(tree):
        text = ast.unparse(function)
        if not re.search(rf"\b({_COMMON})\b", text) or re.search(
            rf"union\w*(\[[^]]*\])? -|- \(?(2 \* )?({_COMMON})", text
        ):
            continue
        for node in ast.walk(function):
            named = [*assigned(node)]
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                named.append((node.target, node.value))
            for to, given in named:
                if re.fullmatch(r"(\w+_)?unions?", ast.unparse(to)) and _is_a_sum(given):
                    yield ast.unparse(node), node


def _is_a_sum(given: ast.expr) -> bool:
    """Whether two numbers are added, and nothing is taken off, compared or chosen."""
    while isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and called(given) in _MOVES:
        given = given.func.value
    others = ast.Sub, ast.BitOr, ast.BitAnd
    mixed = any(isinstance(one, ast.Compare | ast.BoolOp | ast.IfExp | ast.BitOr) for one in ast.walk(given))
    taken = any(isinstance(one, ast.BinOp) and isinstance(one.op, others) for one in ast.walk(given))
    return isinstance(given, ast.BinOp) and isinstance(given.op, ast.Add) and not mixed and not taken


_MOVES = ("cpu", "float", "double", "item", "clamp", "numpy", "tolist", "long", "clamp_min")

# --- tables of counts -----------------------------------------------------------------------------

_GUESSED = re.compile(r".*(pred|guess|hat|argmax|output).*", re.IGNORECASE)
_TRUE = re.compile(r"(\w+_)?(truth|true|gold|support|actual)(_\w+)?|(\w+_)?labels?", re.IGNORECASE)


def tables_read_along_the_other_axis(tree: ast.AST) -> Found:
    """Where predictions are the rows of a table of counts, and the truth is read off its rows, or the other way
    round."""
    for function in functions(tree):
        rows = {is_guess for node in ast.walk(function) for is_guess in _rows_are_guesses(node)}
        if len(rows) != 1:
            continue
        for to, given in (pair for node in ast.walk(function) for pair in assigned(node)):
            pairs = [(to, given)]
            if isinstance(to, ast.Tuple) and isinstance(given, ast.Tuple):
                pairs = [*zip(to.elts, given.elts, strict=False)]
            for name, value in pairs:
                axis, said = _summed_axis(value), ast.unparse(name)
                if axis is None or not (_TRUE.fullmatch(said) or _GUESSED.fullmatch(said)):
                    continue
                read_as_guess = _GUESSED.fullmatch(said) is not None
                if (axis == 1) == (read_as_guess != next(iter(rows))):
                    yield f"{said} = {ast.unparse(value)}", value


def _rows_are_guesses(node: ast.AST) -> Iterator[bool]:
    """Whether predictions are the rows where a table is filled: by ``bincount(label * n + pred)``, or by
    ``table[label, pred] += 1``."""
    if called(node) == "bincount" and isinstance(node, ast.Call) and node.args:
        key = node.args[0]
        first = key.left if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Add) else None
        if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mult):
            yield from _which(ast.unparse(first.left), ast.unparse(key.right))  # type: ignore[attr-defined]
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        index = node.target.slice
        if isinstance(index, ast.Tuple) and len(index.elts) == 2:
            yield from _which(*map(ast.unparse, index.elts))


def _which(first: str, second: str) -> Iterator[bool]:
    if (_GUESSED.fullmatch(first) is None) != (_GUESSED.fullmatch(second) is None):
        yield _GUESSED.fullmatch(first) is not None


def _summed_axis(value: ast.expr) -> int | None:
    """Over which axis a table is summed: 1 of ``table.sum(1)``, of ``table.sum(dim=1).double()``; None for none."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and called(value) in _MOVES:
        value = value.func.value
    if called(value) != "sum" or not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    given = [*value.args, *(word.value for word in value.keywords if word.arg in ("dim", "axis"))]
    one = given[0].value if len(given) == 1 and isinstance(given[0], ast.Constant) else None
    return one if one in (0, 1) and type(one) is int else None


TWICE = Slip(
    rule=one_number_twice,
    asked="two counts, or two rates, that differ",
    expected="two expressions",
    got="one expression under two names",
    sentence="Both are one expression: what is missed and what is found wrongly count as the same.",
    mend="fp = ((pred == c) & (gold != c)).sum(), fn = ((pred != c) & (gold == c)).sum()",
    nothing="no two counts of mistakes were seen that are one expression",
)
BEGINNINGS = Slip(
    rule=given_beginnings_scored,
    asked="what a measure of writing is given",
    expected="what the model writes by itself",
    got="its best words behind the words of the target",
    sentence="The decoder has read the target: behind a wrong word it is put right again, and the measure is far too "
    "good.",
    mend="score model.generate(source), which goes on from its own words",
    nothing="no measure of writing was seen that is given answers behind the words of the target",
)
BITS = Slip(
    rule=bits_multiplied,
    asked="how nats become bits",
    expected="divided by the logarithm of 2",
    got="multiplied by it",
    sentence="Nats are multiplied by the logarithm of 2: the bits are less than half of what they are.",
    mend="bits = nats / math.log(2)",
    nothing="no bits were seen that are a product with the logarithm of 2",
)
UNIONS = Slip(
    rule=unions_with_all_twice,
    asked="the union of two sets",
    expected="their sizes, less what is common",
    got="the sum of their sizes",
    sentence="The union is the sum of both sizes: what is common counts twice, and a perfect answer gets one half.",
    mend="union = a.sum() + b.sum() - both",
    nothing="no union was seen that is the sum of two sizes",
)
TABLES = Slip(
    rule=tables_read_along_the_other_axis,
    asked="along which axis a table of counts is read",
    expected="as it is filled",
    got="along the other one",
    sentence="The table is filled with predictions and truths the other way round than it is read: precision and "
    "recall change places.",
    mend="table += torch.bincount(truth * n + predicted, minlength=n * n).view(n, n); truth: table.sum(1)",
    nothing="no table of counts was seen that is read along the other axis",
)
RANKS = Slip(
    rule=ranks_of_decisions,
    asked="what a measure of ranks is given",
    expected="scores",
    got="decisions",
    sentence="A measure of ranks is given decisions: all that were decided alike are of one rank.",
    mend="hand it the scores, or the probabilities",
    nothing="no measure of ranks was seen that is given decisions",
)

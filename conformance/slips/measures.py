"""Slips of measures that the text of a file shows by itself: two counts or two rates that are one expression, answers
that were given the words before them and are scored as if they had been written, ranks of decisions and from the worst,
rows that find themselves, what is too short and gains by that, a union that counts what is common twice, a table of
counts that is read along its other axis, and an accuracy of a class over what was answered with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations

from conformance.slips.slip import Found, Slip, assigned, called, calls, functions, unparse, walk

_MOVES = ("cpu", "float", "double", "item", "clamp", "clamp_min", "numpy", "tolist", "long", "astype")
"""Methods that change the form of a number, and not what it is."""


def _moved(value: ast.expr) -> ast.expr:
    """What a number was before it got another form: ``table.sum(1)`` of ``table.sum(1).double()``."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and called(value) in _MOVES:
        value = value.func.value
    return value


# --- two names of one number ----------------------------------------------------------------------

_PAIRS = (
    (r"(.*_)?(fp|false_?pos(?:itives?)?)(_.*)?", r"(.*_)?(fn|false_?neg(?:atives?)?)(_.*)?"),
    (r"(.*_)?(p|prec(?:ision)?)(_.*)?", r"(.*_)?(r|rec(?:all)?)(_.*)?"),
)
"""Names of what is counted, or divided, in two ways."""


def one_number_twice(tree: ast.AST) -> Found:
    """Where false positives and false negatives, or a precision and a recall, are one expression."""
    for function in functions(tree):
        named = [(to.id, given) for node in walk(function) for to, given in _single(node)]
        for (name, given), (other, also) in combinations(named, 2):
            same = ast.dump(given) == ast.dump(also) and _counts(given)
            if same and any(_are(name, other, pair) or _are(other, name, pair) for pair in _PAIRS):
                yield f"{name} and {other}: {unparse(given)}", also


def _single(node: ast.AST) -> Iterator[tuple[ast.Name, ast.expr]]:
    return ((to, given) for to, given in assigned(node) if isinstance(to, ast.Name))


def _are(name: str, other: str, pair: tuple[str, str]) -> bool:
    """Whether they are called so, and what stands around that is the same: fp_all and fn_all."""
    one, two = (re.fullmatch(pattern, said, re.IGNORECASE) for pattern, said in zip(pair, (name, other), strict=True))
    return bool(one and two and one.group(1, 3) == two.group(1, 3))


def _counts(given: ast.expr) -> bool:
    """Whether it is computed from names, and no first value: ``0``, ``zeros(n)``."""
    computes = any(isinstance(one, ast.BinOp | ast.Compare) for one in walk(given))
    return computes and any(isinstance(one, ast.Name) for one in walk(given))


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
        pairs = [pair for node in walk(function) for pair in assigned(node)]
        scores = {name for to, given in pairs if _reads_a_target(given) for name in _names(to)[:1]}
        for node in calls(function):
            of = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
            best = called(node) in ("argmax", "topk") or (called(node) == "max" and _has_an_axis(node))
            if best and of is not None and (_reads_a_target(of) or _first(of) in scores):
                yield unparse(node), node


def _names(to: ast.expr) -> list[str]:
    return [one.id for one in walk(to) if isinstance(one, ast.Name)]


def _first(of: ast.expr) -> str:
    """The name that an expression begins with: ``logits`` of ``logits[0].softmax(-1)``."""
    while isinstance(of, ast.Attribute | ast.Subscript | ast.Call):
        of = of.func if isinstance(of, ast.Call) else of.value
    return of.id if isinstance(of, ast.Name) else ""


def _has_an_axis(node: ast.Call) -> bool:
    return any(word.arg in ("dim", "axis") for word in node.keywords) or bool(node.args)


def _reads_a_target(given: ast.expr) -> bool:
    """``model(src, tgt[:, :-1])``, also where more is done with it: a source and a target without its last word."""
    for call in (one for one in walk(given) if isinstance(one, ast.Call)):
        rest = [unparse(one) for one in call.args[1:]]
        rest += [unparse(word.value) for word in call.keywords]
        of_model = re.search(r"model|net|transformer|seq2seq", unparse(call.func), re.IGNORECASE)
        if of_model and any(_TARGETS.fullmatch(one) and _CUT.search(one) for one in rest):
            return True
    return False


# --- ranks ----------------------------------------------------------------------------------------

_OF_THE_BEST = re.compile(
    r"(\w+_)?(average_precision|mean_average_precision|n?dcg|hits?(_rate)?|recall|precision|mrr|map)(_(score|at|k|\d+))*",
    re.IGNORECASE,
)


_SCORED = re.compile(
    r"(\w+[._])?(scores?|probs?|logits?|sims?|similarit(y|ies)|conf(idences?)?|preds?)\b[\w.\[\]:, ]*", re.I
)


_TURNED = re.compile(r"\[::-1\]|flip|\[-|, -\w+:|reverse|-1 -")


def worst_first(tree: ast.AST) -> Found:
    """Where a measure of what stands first takes scores in rising order: the worst is its first."""
    for function in functions(tree):
        if not _OF_THE_BEST.fullmatch(function.name) or _TURNED.search(unparse(function)):
            continue
        for node in calls(function):
            if called(node) not in ("argsort", "sort") or "argsort" in unparse(node.func).rpartition(".")[0]:
                continue
            of_library = unparse(node.func).rpartition(".")[0] in ("np", "torch", "numpy")
            of = (
                node.args[0]
                if of_library and node.args
                else node.func.value
                if isinstance(node.func, ast.Attribute)
                else None
            )
            falls = any(word.arg in ("descending", "reverse", "key") for word in node.keywords) or "True" in map(
                unparse, node.args
            )
            if of is not None and not falls and _SCORED.fullmatch(unparse(of)):
                yield unparse(node), node


_DIAGONAL = re.compile(
    r"diag|\beye\(|triu|tril|!=|self_mask|inf\b|itself|scatter|\[(:|\.\.\.), 1:|\+ 1\b", re.IGNORECASE
)


def found_by_itself(tree: ast.AST) -> Found:
    """Where rows are compared with the same rows, and with which of them they belong together, and nothing takes out
    that each is the nearest to itself."""
    for function in functions(tree):
        if _DIAGONAL.search(unparse(ast.Module(body=function.body, type_ignores=[]))):
            continue
        pairs = [node for node in walk(function) if isinstance(node, ast.Compare) and _is_of_pairs(node)]
        for node in walk(function) if pairs else ():
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                left, right = (
                    re.sub(r"\.(t\(\)|T|mT|transpose\([^)]*\))$", "", unparse(one)) for one in (node.left, node.right)
                )
                same = left == right or _given_alone(left) == _given_alone(right) != ""
                if same and unparse(node.right) != right:
                    yield unparse(node), node


def _is_of_pairs(node: ast.Compare) -> bool:
    """``labels[:, None] == labels[None, :]``."""
    sides = [unparse(one) for one in (node.left, *node.comparators)]
    bases = {side.partition("[")[0] for side in sides}
    return (
        len(bases) == 1
        and isinstance(node.ops[0], ast.Eq)
        and {"[:, None]", "[None, :]"}
        <= {side.removeprefix(side.partition("[")[0]).replace("[None]", "[None, :]") for side in sides}
    )


def _given_alone(text: str) -> str:
    """The one name that a call is given: ``ids`` of ``model.query(ids)``."""
    found = re.fullmatch(r"[\w.]+\((\w+)\)", text)
    return found[1] if found else ""


_OF_RANKS = re.compile(r"(\w+_)?(roc_?)?auc(_score|_roc)?|roc_auc_score|average_precision(_score)?|roc_curve", re.I)


_TRUE_ONES = re.compile(r"\(?(\w+[._])?(y|labels?|targets?|truth|gold|true)\b", re.IGNORECASE)
"""How an expression of labels begins."""


def ranks_of_decisions(tree: ast.AST) -> Found:
    """Where a measure of ranks is given decisions: numbers that are compared with a threshold, or rounded, or the best
    class. scikit-learn's take the labels first, which may be compared."""
    for node in calls(tree):
        name = called(node)
        if not _OF_RANKS.fullmatch(name):
            continue
        for one in node.args[1:2] if name.endswith(("_score", "_curve")) else node.args[:2]:
            given = _moved(one)
            decided = isinstance(given, ast.Compare) and isinstance(given.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE)
            if (decided and not _TRUE_ONES.match(unparse(given))) or called(given) in ("argmax", "round"):
                yield unparse(node), node


# --- brevity --------------------------------------------------------------------------------------

_WRITTEN = re.compile(r"(len\()?(\w+_)?(hyp\w*|cand\w*|pred\w*|gen\w*|sys\w*|c)(_?len\w*)?\)?", re.IGNORECASE)


_GIVEN = re.compile(r"(len\()?(\w+_)?(refs?\w*|gold\w*|r)(_?len\w*)?\)?", re.IGNORECASE)


def brevity_turned_round(tree: ast.AST) -> Found:
    """Where what is too short is weighed by ``exp(1 - written / reference)``: more than one, and most for the
    shortest."""
    for function in functions(tree):
        if not re.search(r"bleu|brevity|\bbp\b", unparse(function), re.IGNORECASE):
            continue
        for node in calls(function):
            given = node.args[0] if called(node) == "exp" and node.args else None
            if (
                not isinstance(given, ast.BinOp)
                or not isinstance(given.op, ast.Sub)
                or unparse(given.left) not in ("1", "1.0")
            ):
                continue
            share = given.right
            if isinstance(share, ast.BinOp) and isinstance(share.op, ast.Div):
                sides = unparse(share.left), unparse(share.right)
                above, below = (re.sub(r"max\((\w+), 1(\.0)?\)|max\(1(?:\.0)?, (\w+)\)", r"\1\3", one) for one in sides)
                if _WRITTEN.fullmatch(above) and _GIVEN.fullmatch(below):
                    yield unparse(node), node


# --- unions ---------------------------------------------------------------------------------------

_COMMON = r"inter\w*|both|overlap\w*|common"


_TAKEN_OFF = rf"union\w*(\[[^]]*\])? -|- \(?(2 \* )?({_COMMON})"


def unions_with_all_twice(tree: ast.AST) -> Found:
    """Where a union is the sum of two sizes, and what is common to both is taken off nowhere."""
    for function in functions(tree):
        text = unparse(function)
        if not re.search(rf"\b({_COMMON})\b", text) or re.search(_TAKEN_OFF, text):
            continue
        for node in walk(function):
            named = assigned(node)
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                named = [(node.target, node.value)]
            for to, given in named:
                if re.fullmatch(r"(\w+_)?unions?", unparse(to)) and _is_a_sum(_moved(given)):
                    yield unparse(node), node


def _is_a_sum(given: ast.expr) -> bool:
    """Whether two numbers are added, and nothing is taken off, compared or chosen."""
    other = ast.Compare | ast.BoolOp | ast.IfExp | ast.Sub | ast.BitOr | ast.BitAnd
    return (
        isinstance(given, ast.BinOp)
        and isinstance(given.op, ast.Add)
        and not any(isinstance(one, other) for one in walk(given))
    )


# --- tables of counts -----------------------------------------------------------------------------

_GUESSED = re.compile(r".*(pred|guess|hat|argmax|output).*", re.IGNORECASE)


_TRUE = re.compile(r"(\w+_)?(truth|true|gold|support|actual)(_\w+)?|(\w+_)?labels?", re.IGNORECASE)


def tables_read_along_the_other_axis(tree: ast.AST) -> Found:
    """Where predictions are the rows of a table of counts, and the truth is read off its rows, or the other way
    round."""
    of_all = {is_guess for node in walk(tree) for is_guess in _rows_are_guesses(node)}
    for function in functions(tree):
        rows = {is_guess for node in walk(function) for is_guess in _rows_are_guesses(node)} or of_all
        if len(rows) != 1:
            continue
        for name, value in (pair for node in walk(function) for pair in assigned(node)):
            said = unparse(name)
            by = value.right if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) else None
            axis = _summed_axis(by if by is not None else value)
            is_guess = (
                re.fullmatch(r"prec(ision)?s?", said) is not None if by is not None else bool(_GUESSED.fullmatch(said))
            )
            is_true = re.fullmatch(r"rec(all)?s?", said) is not None if by is not None else bool(_TRUE.fullmatch(said))
            if axis is None or not (is_guess or is_true):
                continue
            of_rows = axis == 1
            if of_rows != (is_guess in rows):
                yield f"{said} = {unparse(value)}", value


def _rows_are_guesses(node: ast.AST) -> Iterator[bool]:
    """Whether predictions are the rows where a table is filled: by ``bincount(label * n + pred)``, or by
    ``table[label, pred] += 1``."""
    if called(node) == "bincount" and isinstance(node, ast.Call) and node.args:
        key = node.args[0]
        first = key.left if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Add) else None
        if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mult):
            yield from _which(unparse(first.left), unparse(key.right))  # type: ignore[attr-defined]
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
        index = node.target.slice
        if isinstance(index, ast.Tuple) and len(index.elts) == 2:
            yield from _which(*map(unparse, index.elts))


def _which(first: str, second: str) -> Iterator[bool]:
    if (_GUESSED.fullmatch(first) is None) != (_GUESSED.fullmatch(second) is None):
        yield _GUESSED.fullmatch(first) is not None


def _summed_axis(value: ast.expr) -> int | None:
    """Over which axis a table is summed: 1 of ``table.sum(1)``, of ``table.sum(dim=1).double()``; None for none."""
    value = _moved(value)
    if called(value) != "sum" or not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    given = [*value.args, *(word.value for word in value.keywords if word.arg in ("dim", "axis"))]
    one = given[0].value if len(given) == 1 and isinstance(given[0], ast.Constant) else None
    return one if one in (0, 1) and type(one) is int else None


_OF_EACH_CLASS = re.compile(r"\w*(class_acc\w*|acc\w*_(by|per|of)_class\w*|per_class_(acc|recall)\w*|class_recalls?)")


_GUESS = r"(y_?)?(pred\w*|hat|guess\w*|answers?)"


def accuracies_of_what_was_answered(tree: ast.AST) -> Found:
    """Where a function that is called after the accuracy of each class takes the rows that were answered with it."""
    for function in functions(tree):
        if not _OF_EACH_CLASS.fullmatch(function.name):
            continue
        for node in walk(function):
            for to, given in assigned(node):
                chosen = re.fullmatch(rf"\(?{_GUESS} == (\w+)\)?", unparse(given))
                if chosen and re.search(rf"\[{re.escape(unparse(to))}\] == {chosen[3]}\b", unparse(function)):
                    yield unparse(node), node


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
UNIONS = Slip(
    rule=unions_with_all_twice,
    asked="the union of two sets",
    expected="their sizes, less what is common",
    got="the sum of their sizes",
    sentence="The union is the sum of both sizes: what is common counts twice, and a perfect answer gets one half.",
    mend="union = a.sum() + b.sum() - both",
    nothing="no union was seen that is the sum of two sizes",
)
OF_CLASSES = Slip(
    rule=accuracies_of_what_was_answered,
    asked="the rows over which the accuracy of a class is a mean",
    expected="those of the class",
    got="those that were answered with it",
    sentence="The accuracy of a class is a mean over the rows that were answered with it: that is its precision.",
    mend="(predicted[labels == k] == k).float().mean()",
    nothing="no accuracy of classes was seen that is a mean over what was answered",
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
FIRST = Slip(
    rule=worst_first,
    asked="what stands first in a measure of ranks",
    expected="the best score",
    got="the worst one",
    sentence="Scores are sorted in rising order, and the first ones count: the measure asks about the worst answers.",
    mend="scores.argsort(descending=True)",
    nothing="no measure of what stands first was seen that sorts scores in rising order",
)
BREVITY = Slip(
    rule=brevity_turned_round,
    asked="the weight of what is too short",
    expected="exp(1 - reference / written), less than one",
    got="exp(1 - written / reference), more than one",
    sentence="The lengths change places: what is too short is rewarded, and the more the shorter it is.",
    mend="math.exp(1 - reference / written) where less is written than the reference has",
    nothing="no weight of what is too short was seen whose lengths change places",
)
ITSELF = Slip(
    rule=found_by_itself,
    asked="the rows among which each row looks for those that belong to it",
    expected="all others",
    got="itself among them",
    sentence="Rows are compared with themselves, too: each finds itself first, and the figure flatters.",
    mend='scores.fill_diagonal_(float("-inf"))',
    nothing="no rows were seen that are looked for among themselves",
)

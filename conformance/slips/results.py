"""Slips of what is made of answers, that the text of a file shows by itself: results that are thrown away, counts of
pairs that count once, gains of another logarithm, answers that stay sorted, a temperature that sharpens, a warm-up of
another power, spans that fall together or are left open, days that are left out, scores that are hidden by nought,
blanks that are dropped first, terms of one score of which one is scaled."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence

from conformance.slips.slip import (
    Found,
    Slip,
    assigned,
    blocks,
    called,
    calls,
    functions,
    unparse,
    walk,
)

# --- results that are thrown away -----------------------------------------------------------------

_OF_TENSORS = (
    *("masked_fill", "masked_scatter", "index_fill", "scatter_add", "softmax", "log_softmax", "transpose", "permute"),
    *("unsqueeze", "squeeze", "contiguous", "reshape", "clamp", "nan_to_num", "masked_select", "index_select"),
)
"""Methods that only tensors and arrays have, and that change nothing in place."""


def results_thrown_away(tree: ast.AST) -> Found:
    """Where a statement asks a tensor for another one by a method, and nothing is done with it."""
    for node in walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            continue
        if called(value) in _OF_TENSORS and not any(word.arg in ("inplace", "out") for word in value.keywords):
            yield unparse(value), value


# --- counts of pairs ------------------------------------------------------------------------------

_OF_ROWS = re.compile(
    r"(y_?)?(true|pred|hat)\w*|\w*(labels|targets|predictions|preds|golds?|truths?|answers)", re.IGNORECASE
)


def pairs_counted_once(tree: ast.AST) -> Found:
    """Where one is added at the places of many labels and predictions at once, as pairs or as their numbers in a table
    of one axis, ``labels * n + predictions``: a pair that is there twice counts once."""
    for function in functions(tree):
        loops = [one for one in walk(function) if isinstance(one, ast.For | ast.comprehension)]
        single = {name.id for one in loops for name in walk(one.target) if isinstance(name, ast.Name)}
        numbers = {
            to.id
            for node in walk(function)
            for to, value in assigned(node)
            if isinstance(to, ast.Name) and _are_of_rows(_numbered(value), single)
        }
        for node in walk(function):
            if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
                continue
            if not (isinstance(node.target, ast.Subscript) and unparse(node.value) == "1"):
                continue
            at = node.target.slice
            pair = at.elts if isinstance(at, ast.Tuple) else _numbered(at)
            if _are_of_rows(pair, single) or (isinstance(at, ast.Name) and at.id in numbers):
                yield unparse(node), node


def _numbered(value: ast.expr) -> list[ast.expr]:
    """The two of whose numbers one is made: a and b of ``a * n + b``."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return []
    first = value.left
    return [first.left, value.right] if isinstance(first, ast.BinOp) and isinstance(first.op, ast.Mult) else []


def _are_of_rows(pair: list[ast.expr], single: set[str]) -> bool:
    """Whether they are two names of labels or predictions of many rows, and of no single one."""
    names = [_rows_of(one) for one in pair]
    return len(names) == 2 and all(_OF_ROWS.fullmatch(one) and one not in single for one in names)


def _rows_of(node: ast.expr) -> str:
    """The name of what is indexed with, also where it is moved first: `labels.cpu()`; "" for single numbers."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr != "item":
        node = node.func.value
    return node.id if isinstance(node, ast.Name) else ""


# --- gains ----------------------------------------------------------------------------------------

_GAIN = re.compile(r"(\w+[._])?n?dcg(_\w+)?(@\w+)?", re.IGNORECASE)


def gains_of_natural_logarithms(tree: ast.AST) -> Found:
    """Where an NDCG divides by a natural logarithm of a rank, and no ideal gain of the same logarithm stands below."""
    for function in functions(tree):
        text = unparse(function)
        if re.search(r"idcg|ideal|log2|log\(2|/ ?dcg|max_dcg|best_dcg", text, re.IGNORECASE):
            continue
        for node in walk(function):
            named = [(to, given) for to, given in assigned(node)]
            if isinstance(node, ast.AugAssign):
                named.append((node.target, node.value))
            for to, given in named:
                if _GAIN.fullmatch(unparse(to)) and any(_by_logarithm(one) for one in walk(given)):
                    yield unparse(node), node


def _by_logarithm(node: ast.AST) -> bool:
    """``hits / log(rank + 2)``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or called(node.right) != "log":
        return False
    return re.search(r"rank|pos|place|index|\bi\b|arange", unparse(node.right)) is not None


# --- answers that stay sorted ---------------------------------------------------------------------

_UNDONE = r"argsort\(order\)|order\)?\.argsort|\[order\[|\[order\] =|enumerate\(order\)"
"""How the inverse of an order is taken, or results are written where their rows stood."""


def left_in_their_order(tree: ast.AST) -> Found:
    """Where rows are taken in an order, and what is made of them is taken in that order once more: it has to be
    undone, by the order's own argsort."""
    for function in functions(tree):
        orders = [
            to.id
            for node in walk(function)
            for to, given in assigned(node)
            if isinstance(to, ast.Name) and _is_order(given)
        ]
        for order in orders:
            taken = [(of, node) for node in walk(function) for of in _taken_by(node, order)]
            undone = re.search(_UNDONE.replace("order", order), unparse(function))
            given = {one.arg for one in function.args.args}
            first = [of for of, _ in taken if of in given]
            made = {name for name in _filled(function) if name not in given}
            if first and not undone:
                yield from ((unparse(node), node) for of, node in taken if of in made)


def _is_order(given: ast.expr) -> bool:
    """``sorted(range(len(x)), key=...)``, ``np.argsort(lengths)``."""
    if called(given) == "sorted" and isinstance(given, ast.Call) and given.args:
        return called(given.args[0]) == "range"
    return called(given) == "argsort"


def _taken_by(node: ast.AST, order: str) -> Iterator[str]:
    """Of what a comprehension takes the rows in an order: ``[x[i] for i in order]``, also of a piece of it."""
    if isinstance(node, ast.ListComp) and len(node.generators) == 1 and isinstance(node.elt, ast.Subscript):
        over = node.generators[0].iter
        over = over.value if isinstance(over, ast.Subscript) else over
        same = unparse(node.elt.slice) == unparse(node.generators[0].target)
        if unparse(over) == order and same and isinstance(node.elt.value, ast.Name):
            yield node.elt.value.id


def _filled(function: ast.FunctionDef) -> set[str]:
    """The lists that a function fills in a loop."""
    added = [node.target for node in walk(function) if isinstance(node, ast.AugAssign)]
    put = [node.func.value for node in calls(function) if isinstance(node.func, ast.Attribute)
           and node.func.attr in ("append", "extend")]  # fmt: skip
    return {one.id for one in [*added, *put] if isinstance(one, ast.Name)}


# --- temperatures ---------------------------------------------------------------------------------

_DRAWS = ("multinomial", "Categorical", "choices", "choice")


_TEMPERATURE = re.compile(r"((self|args|cfg|config|opt)\.)?(temperature|temp|tau)", re.IGNORECASE)


_OF_WORDS = re.compile(r"logits?|scores?|\b(model|net|self|decoder|forward)\(", re.IGNORECASE)


def temperatures_multiplied(tree: ast.AST) -> Found:
    """Where a word is drawn by logits that are multiplied by a temperature."""
    for function in functions(tree):
        if not any(called(one) in _DRAWS for one in calls(function)):
            continue
        for node in walk(function):
            sides: tuple[ast.expr, ...] = ()
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mult):
                sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            for one, other in (sides, sides[::-1]) if sides else ():
                if _TEMPERATURE.fullmatch(unparse(one)) and _OF_WORDS.search(unparse(other)):
                    yield unparse(node), node


# --- warm-ups -------------------------------------------------------------------------------------


def warm_ups_of_another_power(tree: ast.AST) -> Found:
    """Where the schedule of Vaswani et al. is the smaller of ``step ** -0.5`` and ``step * warmup ** p``, and p is not
    -1.5: the two do not meet at the end of the warm-up."""
    for node in calls(tree):
        if called(node) not in ("min", "minimum") or len(node.args) != 2:
            continue
        for falls, rises in (node.args, node.args[::-1]):
            step, power = _power(falls)
            if power == -0.5 and isinstance(rises, ast.BinOp) and isinstance(rises.op, ast.Mult):
                for factor, other in ((rises.left, rises.right), (rises.right, rises.left)):
                    _, its = _power(other)
                    if unparse(factor) == step and its is not None and its != -1.5:
                        yield unparse(node), node


def _power(node: ast.expr) -> tuple[str, float | None]:
    """What is raised to which number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        try:
            return unparse(node.left), float(ast.literal_eval(node.right))
        except (ValueError, TypeError):
            return "", None
    return "", None


# --- spans ----------------------------------------------------------------------------------------

_OF_SPANS = re.compile(r"\w*(span|entit|chunk)\w*", re.IGNORECASE)


def spans_in_one_set(tree: ast.AST) -> Found:
    """Where the spans of each sentence of a loop go into one set as they are: equal spans of two sentences are one."""
    for function in functions(tree):
        sets = {unparse(to) for node in walk(function) for to, given in assigned(node) if _is_set(given)}
        for loop in (one for one in walk(function) if isinstance(one, ast.For)):
            numbers = {one.id for one in walk(loop.target) if isinstance(one, ast.Name)}
            for node in walk(loop):
                to, added = _put_into(node)
                if to not in sets or not isinstance(added, ast.Call) or not _OF_SPANS.fullmatch(called(added)):
                    continue
                if not any(isinstance(one, ast.Name) and one.id in numbers for one in added.args[1:]):
                    yield unparse(node), node


def _put_into(node: ast.AST) -> tuple[str, ast.expr | None]:
    """Into which set what is put: ``spans |= more``, ``spans.update(more)``."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr):
        return unparse(node.target), node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        return unparse(node.func.value), node.args[0] if len(node.args) == 1 else None
    return "", None


def _is_set(given: ast.expr) -> bool:
    return called(given) == "set" or isinstance(given, ast.Set)


def spans_left_open(tree: ast.AST) -> Found:
    """Where a loop over tags puts a span down when the next tag ends it, and nothing closes the one that goes on to
    the last tag."""
    for function in functions(tree):
        if not re.search(r"['\"](B|I|B-|I-|O)['\"]", unparse(function)):
            continue
        for at, loop in enumerate(function.body):
            if not isinstance(loop, ast.For) or re.search(r"\+|chain|range|['\"]O['\"]", unparse(loop.iter)):
                continue
            begun = {unparse(to) for to, given in _assigned_in([loop]) if not isinstance(given, ast.Constant)}
            empty = {
                unparse(to)
                for to, given in _assigned_in(function.body[:at])
                if isinstance(given, ast.Constant) and given.value is None
            }
            later = _names_in(function.body[at + 1 :])
            for node in (one for one in walk(loop) if isinstance(one, ast.Call) and one.args):
                carried = _names_in(node.args[:1]) & begun & empty
                is_span = called(node) in ("append", "add") and isinstance(node.args[0], ast.Tuple)
                if is_span and carried and not carried & later:
                    yield unparse(node), node


def _assigned_in(statements: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for statement in statements:
        for node in walk(statement):
            yield from assigned(node)


def _names_in(nodes: Sequence[ast.AST]) -> set[str]:
    return {one.id for node in nodes for one in walk(node) if isinstance(one, ast.Name)}


# --- days -----------------------------------------------------------------------------------------


def days_left_out(tree: ast.AST) -> Found:
    """Where the seconds of a difference of dates are divided by those of a day: whole days are not among them."""
    for node in walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
            by = unparse(node.right).replace(" ", "")
            is_a_day = re.fullmatch(r"[\d.*()]+", by) and math.prod(map(float, re.findall(r"[\d.]+", by))) == 86400
            if isinstance(node.left, ast.Attribute) and node.left.attr == "seconds" and is_a_day:
                yield unparse(node), node


# --- hidden scores --------------------------------------------------------------------------------


def hidden_by_nought(tree: ast.AST) -> Found:
    """Where scores that are hidden are set to nought, and a softmax of them follows: nought is a score like others."""
    for function in functions(tree):
        for block in blocks(function):
            filled: dict[str, ast.expr] = {}
            hidden: set[str] = set()
            for statement in block:
                for node in walk(statement):
                    taken = _softmax_of(node)
                    if taken is not None and unparse(taken) in filled:
                        yield unparse(filled[unparse(taken)]), filled[unparse(taken)]
                    elif taken is not None and _fills_nought(taken) and _owner(taken) not in hidden:
                        yield unparse(taken), taken
                given_here = [statement, *(statement.body if isinstance(statement, ast.If) else ())]
                for to, given in (pair for one in given_here for pair in assigned(one)):
                    name = unparse(to)
                    filled.pop(name, None)
                    if _fills_nought(given) and _SCORES.fullmatch(name) and name not in hidden:
                        filled[name] = given
                    elif re.search(r"inf|finfo|\de\d|mask", unparse(given)):
                        hidden.add(name)  # rows of which nothing is left may become nought after that


_SCORES = re.compile(r"(\w+_)?(scores?|logits?|sims?|att(n|ention)?|energy|dots?|weights?)")


def _softmax_of(node: ast.AST) -> ast.expr | None:
    if called(node) != "softmax":
        return None
    assert isinstance(node, ast.Call)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    named = owner is None or unparse(owner) in ("F", "torch", "nn.functional")
    return (node.args[0] if node.args else None) if named else owner


def _owner(node: ast.expr) -> str:
    """What a method is called on."""
    return unparse(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


_TINY = 1e-3
"""What is written for -1e9 and is short of its sign: 1e-9."""


def _fills_nought(node: ast.AST) -> bool:
    last = (
        node.args[1] if called(node) == "masked_fill" and isinstance(node, ast.Call) and len(node.args) == 2 else None
    )
    number = last.value if isinstance(last, ast.Constant) else None
    return isinstance(number, int | float) and number is not False and 0 <= number < _TINY


# --- blanks ---------------------------------------------------------------------------------------


def blanks_dropped_first(tree: ast.AST) -> Found:
    """Where blanks are taken out of a path before its repeats are merged, or a letter is left out that is the last one
    that was kept: letters that stand there twice become one."""
    for function in functions(tree):
        yield from _kept_before(function)
        kept = {
            to.id
            for node in walk(function)
            for to, given in assigned(node)
            if isinstance(to, ast.Name) and re.search(r"!= (\w+\.)*blank", unparse(given), re.IGNORECASE)
        }
        for node in calls(function):
            if called(node) in ("unique_consecutive", "groupby") and node.args:
                given = unparse(node.args[0])
                if given in kept or re.search(r"!= (\w+\.)*blank", given, re.IGNORECASE):
                    yield unparse(node), node


def _kept_before(function: ast.FunctionDef) -> Found:
    """Where a letter that is no blank is kept if it is another one than the last that was kept."""
    for node in walk(function):
        if not isinstance(node, ast.If) or not re.search(r"!= (\w+\.)*blank", unparse(node.test), re.IGNORECASE):
            continue
        for call in (one for statement in node.body for one in calls(statement) if called(one) == "append"):
            kept, letter = unparse(call.func).rpartition(".")[0], unparse(call.args[0]) if call.args else ""
            sides = {f"{letter} != {kept}[-1]", f"{kept}[-1] != {letter}"}
            if any(unparse(one) in sides for one in walk(node.test) if isinstance(one, ast.Compare)):
                yield unparse(node.test), node


def gains_off_by_one(tree: ast.AST) -> Found:
    """Where a function counts ranks from one, and a gain divides by the logarithm of such a rank plus two."""
    from_one = [one for one in functions(tree) if "rank" in one.name.lower() and _counts_from_one(one)]
    if not from_one or any(re.search(r"- 1\b", unparse(one)) for one in functions(tree) if "rank" in one.name.lower()):
        return
    for function in functions(tree):
        for node in calls(function):
            text = unparse(node.args[0]) if called(node) == "log2" and node.args else ""
            if re.fullmatch(r"(\w+\.)?ranks?(\.\w+\(\))? \+ 2(\.0)?", text) and not re.search(
                r"ranks? -=? 1", unparse(function)
            ):
                yield unparse(node), node


def _counts_from_one(function: ast.FunctionDef) -> bool:
    """Whether all that it returns is a count plus one: ``(scores > own).sum(1) + 1``."""
    returned = [one.value for one in walk(function) if isinstance(one, ast.Return) and one.value is not None]
    return bool(returned) and all(
        isinstance(one, ast.BinOp)
        and isinstance(one.op, ast.Add)
        and "1" in (unparse(one.left), unparse(one.right))
        and re.search(r"\.sum\(", unparse(one))
        for one in returned
    )


_PRODUCTS = ("einsum", "matmul", "bmm")


_SCALE = re.compile(
    r"(\w+\.)*(scale|scaling|inv_sqrt\w*|scale_factor)|(math|np|torch)\.sqrt\(.*\)|.*\*\* -?0?\.5", re.IGNORECASE
)


def terms_scaled_apart(tree: ast.AST) -> Found:
    """Where the scores of an attention are a sum of two products, by contents and by distances, and one is scaled."""
    for function in functions(tree):
        products = {
            to.id
            for node in walk(function)
            for to, given in assigned(node)
            if isinstance(to, ast.Name) and _is_product(given)
        }
        for node in walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                one, other = (_scaled(side) for side in (node.left, node.right))
                both = [_products_in(part, products) for part, _ in (one, other)]
                if all(both) and one[1] != other[1] and not _scales_queries(function):
                    yield unparse(node), node


def _is_product(value: ast.expr) -> bool:
    return called(value) in _PRODUCTS or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.MatMult))


def _scaled(value: ast.expr) -> tuple[ast.expr, bool]:
    """A term without its scale, and whether it has one."""
    if (
        isinstance(value, ast.BinOp)
        and isinstance(value.op, ast.Mult | ast.Div)
        and _SCALE.fullmatch(unparse(value.right))
    ):
        return value.left, True
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and _SCALE.fullmatch(unparse(value.left)):
        return value.right, True
    return value, False


def _products_in(value: ast.expr, products: set[str]) -> bool:
    """Whether a term is one of these products, or such a product moved: ``shift(bd)``."""
    if _is_product(value) or (isinstance(value, ast.Name) and value.id in products):
        return True
    inner = value.args[:1] if isinstance(value, ast.Call) else []
    return len(inner) == 1 and _products_in(inner[0], products)


def _scales_queries(function: ast.FunctionDef) -> bool:
    """Whether queries are scaled before their products: then what is scaled here is another matter."""
    return bool(re.search(r"\bq(uery|ueries)? (\*|/)=? |\bq(uery|ueries)? = .*(scale|sqrt)", unparse(function)))


THROWN = Slip(
    rule=results_thrown_away,
    asked="what a method gives",
    expected="used",
    got="thrown away",
    sentence="What the method gives is thrown away: it is a new tensor, and the old one stays as it was.",
    mend="x = x.masked_fill(...), or x.masked_fill_(...)",
    nothing="no result of a tensor's method was seen that a statement throws away",
)
FIRST_GAINS = Slip(
    rule=gains_off_by_one,
    asked="the gain of the first rank",
    expected="1",
    got="0.63",
    sentence="Ranks count from one, and the gain divides by log2(rank + 2): the best answer has a gain of 0.63.",
    mend="hits / log2(rank + 1), for a rank that counts from 1",
    nothing="no gain was seen that takes ranks from one for ranks from nought",
)
PAIRS = Slip(
    rule=pairs_counted_once,
    asked="how often a label and a prediction meet",
    expected="each time",
    got="once a batch",
    sentence="One is added at many places at once: a label and a prediction that meet twice in a batch count once.",
    mend="table += torch.bincount(labels * n + predictions, minlength=n * n).view(n, n)",
    nothing="no table was seen to which the pairs of a batch are added at once",
)
GAINS = Slip(
    rule=gains_of_natural_logarithms,
    asked="by what a gain is divided",
    expected="log2(rank + 1), counted from 1",
    got="a natural logarithm",
    sentence="The gain is divided by a natural logarithm: the first rank gets 1.44, and not 1.",
    mend="hits / log2(rank + 2), for a rank that counts from 0",
    nothing="no gain was seen that is divided by a natural logarithm",
)
SORTED = Slip(
    rule=left_in_their_order,
    asked="what is made of rows that were sorted",
    expected="put back, each to its row",
    got="taken in the sorted order once more",
    sentence="Rows are taken in an order, and their results in the same order again: they belong to other rows.",
    mend="take them in the order's own argsort: back = np.argsort(order)",
    nothing="no results were seen that are taken in the order of their rows again",
)
WARM_UPS = Slip(
    rule=warm_ups_of_another_power,
    asked="by which power of the warm-up the rate rises",
    expected="-1.5",
    got="another one",
    sentence="The rate rises by another power than -1.5 of the warm-up: both branches do not meet where it ends.",
    mend="min(step ** -0.5, step * warmup ** -1.5)",
    nothing="no schedule was seen that rises by another power of its warm-up",
)
SPANS = Slip(
    rule=spans_in_one_set,
    asked="equal spans of two sentences",
    expected="two",
    got="one",
    sentence="The spans of all sentences go into one set without the number of their sentence: equal ones are one, and "
    "match each other's sentence.",
    mend="spans |= {(number, *span) for span in spans_of(tags)}",
    nothing="no set was seen into which the spans of all sentences go",
)
OPEN = Slip(
    rule=spans_left_open,
    asked="a span that goes on to the last tag",
    expected="put down",
    got="left open",
    sentence="A span is put down when the next tag ends it: one that goes on to the last tag is lost.",
    mend='for i, tag in enumerate([*tags, "O"]):',
    nothing="no loop over tags was seen that leaves its last span open",
)
DAYS = Slip(
    rule=days_left_out,
    asked="how many days a difference of dates has",
    expected="with its whole days",
    got="the seconds of its last one",
    sentence="The seconds of a difference of dates are those beside its whole days: the quotient is always below one.",
    mend="difference.total_seconds() / 86400, or difference.days",
    nothing="no seconds of a difference of dates were seen that are divided by a day",
)
TEMPERATURES = Slip(
    rule=temperatures_multiplied,
    asked="what a temperature does to logits",
    expected="divides them",
    got="multiplies them",
    sentence="Logits are multiplied by the temperature: a high one makes the draw sure, and a low one makes it random.",
    mend="logits / temperature",
    nothing="no draw was seen whose logits are multiplied by a temperature",
)
NOUGHT = Slip(
    rule=hidden_by_nought,
    asked="the scores of what is hidden, before a softmax",
    expected="minus infinity",
    got="0",
    sentence="Hidden scores are 0 before the softmax, or nearly so: what is hidden gets a share all the same.",
    mend="scores.masked_fill(hidden, float('-inf'))",
    nothing="no hidden scores were seen that are nought before a softmax",
)
BLANKS = Slip(
    rule=blanks_dropped_first,
    asked="the order in which a path of CTC becomes a text",
    expected="repeats are merged, then blanks are dropped",
    got="blanks are dropped first",
    sentence="Blanks are dropped before repeats are merged: a letter that stands there twice becomes one.",
    mend="merge repeats first: [c for c, _ in groupby(path) if c != blank]",
    nothing="no path was seen whose blanks are dropped first",
)
TERMS = Slip(
    rule=terms_scaled_apart,
    asked="the terms of a score, by contents and by distance",
    expected="of one scale",
    got="one of them scaled",
    sentence="Of the two products that make a score one is divided by the root of the width: the other outweighs it.",
    mend="(content + position) * scale",
    nothing="no scores were seen one of whose terms is scaled",
)

"""Slips on the way of rows into batches, that the text of a script shows by itself: what is changed for training and
reaches what judges, pictures that are flipped over their colours, orders that leave rows out, labels that each part
numbers by itself, test data that a trainer chooses by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import JUDGES, VALIDATES, Found, Slip, assigned, called, calls, functions, unparse, walk

_JUDGES = re.compile(rf"(?<![A-Za-z])(?i:{JUDGES}|eval)(?![a-z])")
_TRAINS = re.compile(r"(?<![A-Za-z])(?i:train|training|trn)(?![a-z])")

# --- what is changed for training -----------------------------------------------------------------

_CHANGES = re.compile(r"augment\w*|corrupt|noise|jitter", re.IGNORECASE)
_TRAINING = re.compile(r"(is_)?train(ing)?", re.IGNORECASE)
_DRAWS = re.compile(r"rand|choice|bernoulli|augment|noise|jitter", re.IGNORECASE)


def changed_where_judged(tree: ast.AST) -> Found:
    """Where what makes batches changes rows unless it is told otherwise, and a loader of what judges takes it as it
    is; or where a dataset that does is made of what judges."""
    for name, option in _changing(tree):
        for call in calls(tree):
            named = {word.arg: word.value for word in call.keywords}
            if "collate_fn" in named and unparse(named["collate_fn"]) == name:
                of = unparse(call.args[0]) if call.args else ""
                if _JUDGES.search(of) and not _TRAINS.search(of):
                    yield f"{unparse(call)}, where {option}=True", call
            elif called(call) == name and name[:1].isupper() and option not in named and None not in named:
                own, given = _named_by(tree, call), " ".join(map(unparse, call.args[:2]))
                is_of_judging = _JUDGES.search(own) or (_JUDGES.search(given) and not _TRAINS.search(given))
                if is_of_judging and not _TRAINS.search(own) and len(call.args) <= _place_of(tree, name, option):
                    yield f"{unparse(call)}, where {option}=True", call


def _changing(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The functions and classes that change rows by default, with the option that says so."""
    for node in walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from ((node.name, option) for option in _on_by_default(node, node) if "collate" in node.name)
        elif isinstance(node, ast.ClassDef) and any("Dataset" in unparse(base) for base in node.bases):
            made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
            yield from ((node.name, option) for option in (_on_by_default(made, node) if made else ()))


def _on_by_default(function: ast.FunctionDef, holder: ast.AST) -> Iterator[str]:
    """The options of a function that are on and say that rows are changed; one that only says that it is for training
    must decide whether something is drawn in what holds the function."""
    plain = [*function.args.posonlyargs, *function.args.args]
    pairs = [*zip(plain[::-1], function.args.defaults[::-1], strict=False)]
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    pairs += [(one, value) for one, value in keywords if value is not None]
    for one, value in pairs:
        is_on = isinstance(value, ast.Constant) and value.value is True
        decides = _TRAINING.fullmatch(one.arg) and any(
            isinstance(node, ast.If) and re.search(rf"\b{one.arg}\b", unparse(node.test))
            and _DRAWS.search(" ".join(map(unparse, node.body)))
            for node in walk(holder)
        )  # fmt: skip
        if is_on and (_CHANGES.fullmatch(one.arg) or decides):
            yield one.arg


def _place_of(tree: ast.AST, name: str, option: str) -> int:
    """How many arguments without a name stand before an option of a class."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                    names = [argument.arg for argument in one.args.args][1:]
                    return names.index(option) if option in names else len(names)
    return 0


def _named_by(tree: ast.AST, call: ast.Call) -> str:
    """The name that a call's result gets; "" where it gets none."""
    for node in walk(tree):
        for to, given in assigned(node):
            if given is call:
                return unparse(to)
    return ""


# --- pictures -------------------------------------------------------------------------------------


_COLOURS_FIRST = re.compile(
    r"(view|reshape)\((-?\w+, 1, 1|\(-?\w+, 1, 1\))\)|\[:, None, None\]|(permute|transpose)\(\(?2, 0, 1\)"
)
"""How a file scales each colour of a picture, or puts its colours in front: the first axis is theirs."""


def colours_flipped(tree: ast.AST) -> Found:
    """Where a function flips a picture over its last axes, as one does by chance, and over its first one, and the file
    shows that this is the axis of its colours."""
    if not _COLOURS_FIRST.search(unparse(tree)):
        return
    for function in functions(tree):
        if "rand" not in unparse(function):
            continue
        flips: dict[str, list[tuple[int, ast.Call]]] = {}
        for call in calls(function):
            of, axis = _flipped(call)
            if of and axis is not None:
                flips.setdefault(of, []).append((axis, call))
        for found in flips.values():
            if any(axis in (-1, -2, 2) for axis, _ in found):
                yield from ((unparse(call), call) for axis, call in found if axis in (0, -3))


def _flipped(call: ast.Call) -> tuple[str, int | None]:
    """What is flipped over which single axis: ``x.flip(-1)``, ``torch.flip(x, [2])``, ``x.flip(dims=(1,))``."""
    if called(call) != "flip" or not isinstance(call.func, ast.Attribute):
        return "", None
    of_library = unparse(call.func.value) in ("torch", "np")
    rest = call.args[1:] if of_library else call.args
    rest = [*rest, *(word.value for word in call.keywords if word.arg in ("dims", "dim", "axis"))]
    of = call.args[0] if of_library and call.args else call.func.value
    if len(rest) != 1:
        return "", None
    try:
        axes = ast.literal_eval(rest[0])
    except (ValueError, TypeError):
        return "", None
    axes = [axes] if isinstance(axes, int) else list(axes)
    return (unparse(of), axes[0]) if len(axes) == 1 and isinstance(axes[0], int) else ("", None)


# --- orders ---------------------------------------------------------------------------------------

_ORDERS = re.compile(r"(\w+_)?(shuffled|perm(utation)?|order)", re.IGNORECASE)


def order_with_repeats(tree: ast.AST) -> Found:
    """Where what is called an order of all rows is drawn with replacement: some rows stand there twice, others not."""
    for node in walk(tree):
        for to, given in assigned(node):
            if not isinstance(given, ast.Call) or not _ORDERS.fullmatch(unparse(to)):
                continue
            counts = [unparse(one) for one in walk(given) if called(one) == "len"]
            if called(given) == "choices" and len(counts) == 2 and len(set(counts)) == 1:
                yield unparse(node), node


# --- labels ---------------------------------------------------------------------------------------

_NUMBERS_LABELS = re.compile(
    r"(\w*(label|class|topic|tag|cat)\w*)?(2|_to_)(id|idx|index|i|num)|\w*(label|class)_(ids|map)", re.I
)


def labels_by_each_part(tree: ast.AST) -> Found:
    """Where a function that is called for training data and for what judges numbers the labels of what it is given, in
    the order in which they come."""
    owners: list[tuple[str, ast.FunctionDef]] = [(one.name, one) for one in functions(tree) if one.name != "__init__"]
    owners += [
        (cls.name, one)
        for cls in walk(tree)
        if isinstance(cls, ast.ClassDef)
        for one in cls.body
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    ]
    given_to: dict[str, list[str]] = {}
    for call in calls(tree):
        given_to.setdefault(called(call), []).extend(map(unparse, call.args[:1]))
    for name, function in owners:
        given = given_to.get(name, [])
        if not any(_TRAINS.search(one) for one in given) or not any(_JUDGES.search(one) for one in given):
            continue
        rows = {argument.arg for argument in function.args.args} - {"self"}
        for node in walk(function):
            for to, value in assigned(node):
                if isinstance(value, ast.DictComp) and _NUMBERS_LABELS.fullmatch(unparse(to).rpartition(".")[2]):
                    over = unparse(value.generators[0].iter)
                    reads = {one.id for one in walk(value) if isinstance(one, ast.Name)}
                    if over.startswith("enumerate(") and rows & reads and "sorted" not in over:
                        yield unparse(node), node


# --- trainers -------------------------------------------------------------------------------------

_CHOOSES = re.compile(r"load_best_model_at_end=True|EarlyStoppingCallback")


def trainer_judged_by_the_test(tree: ast.AST) -> Found:
    """Where a trainer that keeps its best model, or stops early, evaluates on the test data, and the script has data to
    validate with."""
    text = unparse(tree)
    if not _CHOOSES.search(text) or not re.search(rf"\b({VALIDATES})(_\w+)?\b", text):
        return
    for call in (one for one in calls(tree) if called(one).endswith("Trainer")):
        for word in call.keywords:
            if word.arg == "eval_dataset" and re.search(r"(^|_|\W)test", unparse(word.value)):
                yield f"eval_dataset={unparse(word.value)}", call


CHANGED = Slip(
    rule=changed_where_judged,
    asked="the rows of what judges",
    expected="as they are",
    got="changed as those of training",
    sentence="What makes batches changes rows at random unless it is told otherwise, and what judges does not tell it: "
    "the figures are of other rows each time.",
    mend="partial(collate, augment=False), or augment=False by default",
    nothing="nothing was seen that changes rows by default and is handed what judges",
)
COLOURS = Slip(
    rule=colours_flipped,
    asked="the axes over which a picture is flipped",
    expected="its rows and columns",
    got="its colours",
    sentence="The first axis of a picture is that of its colours: the flip turns red into blue.",
    mend="img.flip(-2) for rows, img.flip(-1) for columns",
    nothing="no picture was seen that is flipped over its first axis, too",
)
REPEATS = Slip(
    rule=order_with_repeats,
    asked="an order of all rows",
    expected="each once",
    got="drawn with replacement",
    sentence="The order is drawn with replacement: some rows come twice in an epoch, and others never.",
    mend="rng.sample(range(n), n)",
    nothing="no order was seen that is drawn with replacement",
)
NUMBERED = Slip(
    rule=labels_by_each_part,
    asked="the numbers of labels",
    expected="one table for all parts",
    got="one for each part",
    sentence="Each part numbers its labels in the order in which they come: a number means another label in each.",
    mend="make the table of the training data, and hand it to all parts",
    nothing="no labels were seen that each part numbers by itself",
)
TRAINERS = Slip(
    rule=trainer_judged_by_the_test,
    asked="what a trainer keeps its best model by",
    expected="the validation",
    got="the test data",
    sentence="The trainer chooses its model by the test data: their figure flatters.",
    mend="eval_dataset=valid_set",
    nothing="no trainer was seen that chooses by the test data",
)

"""Slips of what judges or chooses a model, that the text of a file shows by itself: logits that are held to a level of
probabilities, measures whose better end is turned round, models that go on from fold to fold, states that the test
chooses, parts that hold each other, counts of a whole mask, returns that stay, figures that are kept by their worse
end, and calibrations with rows that were learned from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import (
    FALLS,
    LEARNED,
    RISES,
    VALIDATES,
    Found,
    Slip,
    all_given,
    assigned,
    blocks,
    called,
    calls,
    functions,
    last_given,
    unparse,
    walk,
)

# --- levels ---------------------------------------------------------------------------------------


def logits_for_shares(tree: ast.AST) -> Found:
    """Where logits, of which no sigmoid is taken, are compared with a half."""
    for function in [tree, *functions(tree)]:
        shares = {
            unparse(to)
            for block in blocks(function)
            for one in block
            for to, given in assigned(one)
            if re.search(r"sigmoid|softmax|expit|exp\(", unparse(given))
        }
        for node in (one for block in blocks(function) for line in block for one in _own(line)):
            if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Gt | ast.GtE):
                continue
            name, level = unparse(node.left), node.comparators[0]
            if not re.fullmatch(r"(\w+[._])?logits?", name) or not isinstance(level, ast.Constant) or name in shares:
                continue
            either = re.search(rf"(sigmoid|expit)(\(\))?\({re.escape(name)}\)", unparse(function), re.IGNORECASE)
            if level.value == 0.5 and not either:
                yield unparse(node), node


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and all in it, but the statements that it holds."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from _own(child)


# --- which end is the better one ------------------------------------------------------------------


def better_turned_round(tree: ast.AST) -> Found:
    """Where a trainer is told that less of an accuracy, or more of a loss, is better."""
    for node in calls(tree):
        words = {word.arg: word.value for word in node.keywords}
        metric, greater = words.get("metric_for_best_model"), words.get("greater_is_better")
        if not isinstance(metric, ast.Constant) or not isinstance(greater, ast.Constant):
            continue
        name = str(metric.value)
        rises, falls = RISES.search(name) is not None, FALLS.search(name) is not None
        if rises != falls and greater.value is not rises:
            yield f"greater_is_better={unparse(greater)} for {name}", greater


def stopped_by_the_worse_end(tree: ast.AST) -> Found:
    """Where what keeps the largest figure is handed a loss, or what keeps the smallest an accuracy."""
    keeps: dict[str, set[bool]] = {}
    for cls in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        for method in functions(cls):
            given = [one.arg for one in method.args.args[1:2]]
            for node in (one for one in walk(method) if isinstance(one, ast.If) and given):
                found = re.fullmatch(rf"{given[0]} ([<>])=? self\.best\w*", unparse(node.test))
                if found and _KEEPS.search("\n".join(map(unparse, node.body))):
                    keeps.setdefault(method.name, set()).add(found[1] == ">")
    for call in calls(tree):
        grows = keeps.get(called(call), set())
        figure = unparse(call.args[0]) if call.args else ""
        rises, falls = RISES.search(figure) is not None, FALLS.search(figure) is not None
        is_turned = re.match(r"-|1(\.0)? - ", figure) is not None
        if len(grows) == 1 and rises != falls and (rises != is_turned) not in grows:
            yield unparse(call), call


# --- folds ----------------------------------------------------------------------------------------

_MODEL = re.compile(r"(\w+_)?(model|net|network|clf|classifier)\d*")
_MADE_ANEW = re.compile(r"load_state_dict|deepcopy|reset|clone\(|\.apply\(|reinit|init_")
_FOLDS = re.compile(r"(?<![a-z])(k_?)?folds?(?![a-z])|\b[a-z]?kf\b", re.IGNORECASE)
_TRAINS = re.compile(r"fit\w*|\w*train\w*|run_epoch\w*|learn\w*")


def models_of_all_folds(tree: ast.AST) -> Found:
    """Where a model is made before the loop over the folds, is trained in it, and nothing puts it back."""
    for function in [tree, *functions(tree)]:
        for block in blocks(function):
            for at, loop in enumerate(block):
                if not isinstance(loop, ast.For) or not _is_over_folds(loop):
                    continue
                text = "\n".join(map(unparse, loop.body))
                anew = {unparse(to) for node in walk(loop) for to, _ in assigned(node)}
                for statement, name, given in _made_before(block[:at]):
                    is_kept = name not in anew and not _MADE_ANEW.search(text)
                    if is_kept and any(_is_trained(call, name) for call in calls(loop)):
                        yield f"{name} = {unparse(given)}", statement


def _made_before(block: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str, ast.expr]]:
    """The models that a block makes: the statement, the name, and how."""
    for statement in block:
        for to, given in assigned(statement):
            makes = isinstance(given, ast.Call) and re.search(r"[A-Z]|build|make|create|pretrained", called(given))
            if makes and _MODEL.fullmatch(unparse(to)):
                yield statement, unparse(to), given


def _is_over_folds(loop: ast.For) -> bool:
    return _FOLDS.search(f"{unparse(loop.target)} {unparse(loop.iter)}") is not None


def _is_trained(call: ast.Call, name: str) -> bool:
    handed = any(unparse(one) == name for one in call.args)
    return (handed and _TRAINS.fullmatch(called(call)) is not None) or unparse(call.func) == f"{name}.train"


# --- what the test chooses ------------------------------------------------------------------------

_TEST = re.compile(r"(\w+[._])?test(_\w+)?", re.IGNORECASE)
_KEEPS = re.compile(r"deepcopy|state_dict|torch\.save|\.clone\(|save_")
_HAS_VALIDATION = re.compile(
    r"\b(val(id(ation)?)?_(?!loss|acc|score|f1|ppl|metric|auc|best|every|freq|step|interval|mode)"
    r"|dev_(set|data|rows|texts|loader|examples|pairs))\w*"
    r"|\btrain\w*, (val|valid|validation|dev)(_(rows|set|data|part))?, test\w*"
)
"""Names of data to choose by: "val" alone may be a value, and "dev" a device."""


def states_of_the_test(tree: ast.AST) -> Found:
    """Where a state is kept when the figure of the test is the best so far, and the script has a validation part."""
    if not _HAS_VALIDATION.search(unparse(tree)):
        return
    for loop in (node for node in walk(tree) if isinstance(node, ast.For | ast.While)):
        figures = {
            one.id: given
            for node in walk(loop)
            for to, given in assigned(node)
            if isinstance(given, ast.Call) and any(_TEST.fullmatch(unparse(x)) for x in given.args)
            and not re.search(rf"\b({VALIDATES})(_\w+)?\b", unparse(given))
            for one in walk(to)
            if isinstance(one, ast.Name)
        }  # fmt: skip
        later = [(to.id, given) for node in walk(loop) for to, given in assigned(node) if isinstance(to, ast.Name)]
        for name, given in later:  # what is made of such a figure
            read = [one.id for one in walk(given) if isinstance(one, ast.Name) and one.id in figures]
            if read and name not in figures and not re.search(rf"\b({VALIDATES})(_\w+)?\b", unparse(given)):
                figures[name] = figures[read[0]]
        for node in (one for one in walk(loop) if isinstance(one, ast.If) and figures):
            compared = unparse(node.test)
            used = [name for name in figures if re.search(rf"\b{name}\b", compared)]
            keeps = _KEEPS.search("\n".join(map(unparse, node.body)))
            if used and keeps and isinstance(node.test, ast.Compare) and "best" in compared.lower():
                yield f"{unparse(figures[used[0]])}, {compared}", figures[used[0]]


_CALIBRATES = re.compile(r"(fit_|calibrate_?|tune_|find_)?(platt|temperature|calibrat\w*|isotonic)(_\w+)?")


def calibrated_on_what_was_learned(tree: ast.AST) -> Found:
    """Where probabilities are calibrated with the answers to the training part, and the script has a validation."""
    if not re.search(rf"\b({VALIDATES})_?(loader|set|data|rows|texts|x|dl)\b", unparse(tree)):
        return
    for function in [tree, *functions(tree)]:
        given_at = all_given(function)
        for line, _, given in given_at:
            if not (isinstance(given, ast.Call) and _CALIBRATES.fullmatch(called(given))):
                continue
            for name in map(unparse, given.args):
                made = last_given(name, line, given_at)
                if isinstance(made, ast.Call) and any(LEARNED.fullmatch(unparse(x)) for x in made.args):
                    yield f"{unparse(given)}, of {unparse(made)}", given
                    break


# --- parts that hold each other -------------------------------------------------------------------

_OF_VALIDATION = re.compile(rf"(\w+_)?({VALIDATES})(_\w+)?", re.IGNORECASE)


def parts_without_an_end(tree: ast.AST) -> Found:
    """Where the validation is all from one place on, and the test all from another one on: the one holds the other."""
    for function in [tree, *functions(tree)]:
        begins: dict[str, tuple[str, str, ast.expr]] = {}
        for block in blocks(function):
            for to, given in (pair for one in block for pair in assigned(one)):
                named = unparse(to)
                part = "test" if _TEST.fullmatch(named) else "validation" if _OF_VALIDATION.fullmatch(named) else ""
                chosen = _chosen_by(given)
                if (
                    part
                    and len(chosen) == 1
                    and len(chosen[0].ops) == 1
                    and isinstance(chosen[0].ops[0], ast.Gt | ast.GtE)
                ):
                    begins[part] = unparse(chosen[0].left), unparse(chosen[0].comparators[0]), chosen[0]
        if len(begins) == 2:
            (of, first, place), (other, second, _) = begins["validation"], begins["test"]
            if of == other and first != second:
                yield f"{unparse(place)}, beside {other} from {second} on", place


def _chosen_by(given: ast.expr) -> list[ast.Compare]:
    """The comparisons by which rows are chosen: ``[r for r in rows if ...]``, ``rows[...]``."""
    loops = [loop for node in walk(given) for loop in getattr(node, "generators", ())]
    choosing = [test for loop in loops for test in loop.ifs]
    choosing += [node.slice for node in walk(given) if isinstance(node, ast.Subscript)]
    return [one for part in choosing for one in walk(part) if isinstance(one, ast.Compare)]


# --- counts ---------------------------------------------------------------------------------------

_MASK = re.compile(r"(\w+_)?(mask|ahead|keep|valid|real|observed|counted)(_\w+)?")


def whole_masks_counted(tree: ast.AST) -> Found:
    """Where what a mask takes is summed, and divided by the size of the whole mask."""
    for function in functions(tree):
        text = unparse(function)
        masks = {
            unparse(to)
            for node in walk(function)
            for to, given in assigned(node)
            if re.search(r"(?<![a-z])(mask|obs|observed|valid)(?![a-z])", unparse(given))
            and "sum(" not in unparse(given)
        }
        counted = [node.value for node in walk(function) if isinstance(node, ast.AugAssign)]
        counted += [
            node.right for node in walk(function) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        ]
        for value in counted:
            size = value if isinstance(value, ast.Call) and called(value) == "numel" else None
            owner = size.func.value if size is not None and isinstance(size.func, ast.Attribute) else None
            if not isinstance(owner, ast.Name) or not (_MASK.fullmatch(owner.id) or owner.id in masks):
                continue
            takes = re.search(rf"\[{owner.id}\]|\* {owner.id}\b|\b{owner.id} \*", text)
            if takes and not re.search(
                rf"\b{owner.id}\.(\w+\(\)\.)?(sum|count_nonzero)\(|(sum|nonzero)\({owner.id}\b", text
            ):
                yield unparse(value), value


# --- returns that stay ----------------------------------------------------------------------------

_RETURNS = re.compile(r".*(rtg|returns?_?to_?go|desired_returns?|target_returns?).*")


def returns_that_stay(tree: ast.AST) -> Found:
    """Where a roll-out puts the same return behind those so far in each step, though a step gives a reward."""
    told: set[ast.AST] = set()
    for loop in (node for node in walk(tree) if isinstance(node, ast.For | ast.While)):
        written = {one.id for one in walk(loop) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        if not written & {"r", "rew", "reward", "rewards"}:
            continue
        for call in calls(loop):
            owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "append" else None
            if owner is None or not _RETURNS.fullmatch(unparse(owner)):
                continue
            stays = len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id not in written
            if stays and call not in told:
                told.add(call)  # of the inner one of two loops, too
                yield unparse(call), call


LEVELS = Slip(
    rule=logits_for_shares,
    asked="the level that logits are compared with",
    expected="0, or 0.5 for their sigmoid",
    got="0.5 for the logits",
    sentence="Logits are compared with 0.5: that is a probability of 0.62, and not of a half.",
    mend="torch.sigmoid(logits) >= 0.5, or logits >= 0",
    nothing="no logits were seen that are compared with a half",
)
BETTER = Slip(
    rule=better_turned_round,
    asked="which end of the measure is the better one",
    expected="more of an accuracy, less of a loss",
    got="the other one",
    sentence="The trainer is told the wrong end of its measure: it keeps the worst state as the best.",
    mend="greater_is_better=True for an accuracy or F1, False for a loss",
    nothing="no measure was seen whose better end is turned round",
)
STOPPED = Slip(
    rule=stopped_by_the_worse_end,
    asked="the figure by which a state is kept",
    expected="one whose better end is kept",
    got="one whose worse end is",
    sentence="What keeps the largest figure is handed a loss, or what keeps the smallest an accuracy: the worst state "
    "counts as the best.",
    mend="hand it the other figure, or turn the comparison round",
    nothing="no state was seen that is kept by the worse end of a figure",
)
FOLDS = Slip(
    rule=models_of_all_folds,
    asked="the model that a fold is held out from",
    expected="made for this fold",
    got="made before the folds",
    sentence="One model goes on from fold to fold: it has learned from what the later folds hold out.",
    mend="make the model in the loop over the folds",
    nothing="no model was seen that goes on from fold to fold",
)
CHOSEN = Slip(
    rule=states_of_the_test,
    asked="the part by which a state is kept",
    expected="the validation",
    got="the test",
    sentence="The state is kept by the figure of the test, which is reported then: it flatters.",
    mend="keep the state by the figure of the validation",
    nothing="no state was seen that the test chooses",
)
CALIBRATED = Slip(
    rule=calibrated_on_what_was_learned,
    asked="the rows with which probabilities are calibrated",
    expected="of the validation",
    got="those that were learned from",
    sentence="Probabilities are calibrated with the rows that were learned from: what fits there is wrong elsewhere.",
    mend="fit_temperature(*answers(model, valid_loader))",
    nothing="no calibration was seen with the rows that were learned from",
)
ENDLESS = Slip(
    rule=parts_without_an_end,
    asked="where the validation ends",
    expected="where the test begins",
    got="nowhere",
    sentence="The validation has no end: it holds all of the test.",
    mend="first <= day < second for the validation",
    nothing="no validation was seen that holds the test",
)
SIZES = Slip(
    rule=whole_masks_counted,
    asked="the number that a sum over a mask is divided by",
    expected="how many it takes",
    got="how many it has",
    sentence="What a mask takes is summed, and divided by the size of the whole mask: the figure is too small.",
    mend="divide by mask.sum()",
    nothing="no sum was seen that is divided by the size of its mask",
)
RETURNS = Slip(
    rule=returns_that_stay,
    asked="the return that is still to come, after a reward",
    expected="less by the reward",
    got="the same",
    sentence="A roll-out asks for the same return in each step, where training asks for what is still to come.",
    mend="returns.append(returns[-1] - reward)",
    nothing="no return was seen that stays after a reward",
)

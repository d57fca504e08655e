"""Slips of the weights of a model that the text of a file shows by itself: a saved model of which only the config is
loaded, factors that are merged into a weight without their scale, a slow average that is moved once an epoch, an
average that gets other weights back, statistics of data that no saved model has, and scales that nothing learns."""

from __future__ import annotations

import ast
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
    inside,
    over_epochs,
    unparse,
    walk,
)


def rebuilt_from_config(tree: ast.AST) -> Found:
    """Where a function makes a model of the config in a folder, weights are saved by the file, and the function loads
    none."""
    if ".save_pretrained(" not in unparse(tree):
        return
    for function in functions(tree):
        if "load_state_dict" in unparse(function):
            continue
        for node in calls(function):
            inner = node.args[0] if len(node.args) == 1 else None
            of_config = isinstance(inner, ast.Call) and re.fullmatch(r"\w*Config\.from_pretrained", unparse(inner.func))
            if of_config and re.match(r"[A-Z]\w+|AutoModel\w*\.from_config", unparse(node.func)):
                yield unparse(node), node


_LOW_RANK = re.compile(r"(\w+_)?(lora_?)?(a|b|down|up)(_\w+)?", re.IGNORECASE)
_SCALES = re.compile(r"scal|alpha|\brank\b|/ self\.r\b", re.IGNORECASE)


def merged_without_scale(tree: ast.AST) -> Found:
    """Where forward scales what two low-rank factors give, and what adds their product to a weight does not."""
    for cls in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        methods = {one.name: one for one in cls.body if isinstance(one, ast.FunctionDef)}
        forward = unparse(methods["forward"]) if "forward" in methods else ""
        if not _SCALES.search(forward):
            continue
        for name, method in methods.items():
            adds = re.search(r"weight\b.*(\+=|\+|add_)|copy_", unparse(method))
            if name in ("forward", "__init__") or not adds or _SCALES.search(unparse(method)):
                continue
            for node in walk(method):
                factors = _factors(node)
                if factors and all(re.search(rf"self\.{one}\b", forward) for one in factors):
                    yield unparse(node), node


def _factors(node: ast.AST) -> list[str]:
    """The two low-rank factors of the module itself that a node multiplies: ``self.lora_b @ self.lora_a``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.MatMult):
        return []
    named = [re.match(r"self\.(\w+)", unparse(side)) for side in (node.left, node.right)]
    names = [one[1] for one in named if one]
    return names if len(set(names)) == 2 and all(map(_LOW_RANK.fullmatch, names)) else []


_AVERAGE = re.compile(
    r"(self\.|\w+\.)*\w*(ema|moving_av\w*|shadow|polyak|(?<!running_)average(?!d?_(loss|acc|precision)))\w*", re.I
)
_KEEPS = re.compile(r"\w*(ema|average|avg|shadow|polyak)\w*|decay|keep", re.IGNORECASE)
_SLOW = 0.99
"""An average that keeps so much of itself, or more, follows in hundreds of steps."""


def averaged_once_an_epoch(tree: ast.AST) -> Found:
    """Where an average of the weights that keeps 0.99 of itself, or more, is moved once an epoch, and not with each
    step."""
    named = [(to, given) for node in walk(tree) for to, given in _given(node)]
    keeps = [given.value for to, given in named if _KEEPS.fullmatch(to) and isinstance(given, ast.Constant)]
    counted = [given for to, given in named if re.fullmatch(r"(n_|num_|max_)?epochs", to, re.IGNORECASE)]
    epochs = [one.value for one in counted if isinstance(one, ast.Constant)]
    if not any(isinstance(one, float) and (_SLOW <= one < 1 or _stays(one, epochs)) for one in keeps):
        return
    for loop in (one for one in walk(tree) if isinstance(one, ast.For) and over_epochs(one)):
        inner = [one for one in inside(loop) if one is not loop and isinstance(one, ast.For | ast.While)]
        in_batches = {id(node) for one in inner for node in walk(one)}
        moved = [one for one in inside(loop) if isinstance(one, ast.Call) and _moves_average(one)]
        asked = {called(one) for one in calls(loop)}
        elsewhere = [one for function in functions(tree) if function.name in asked for one in calls(function)]
        learns = any(called(one) == "backward" for one in [*calls(loop), *elsewhere])
        if learns and not any(id(one) in in_batches for one in moved) and not any(map(_moves_average, elsewhere)):
            yield from ((unparse(one), one) for one in moved)


def _stays(kept: float, epochs: Sequence[object]) -> bool:
    """Whether an average that is moved once an epoch still has a third of where it began when all epochs are over."""
    return 0.5 < kept < 1 and any(isinstance(one, int) and kept**one > 1 / 3 for one in epochs)


def averages_given_other_weights(tree: ast.AST) -> Found:
    """Where an average gets the state back that was kept of another model, which is not the one that was measured."""
    for function in [tree, *functions(tree)]:
        kept: dict[str, set[str]] = {}
        own = [one for block in blocks(function) for one in block]
        for node in own:
            for to, given in assigned(node):
                found = re.search(r"([\w.]+)\.state_dict\(\)", unparse(given))
                if found and re.search(r"best|kept|keep|snapshot", unparse(to), re.IGNORECASE):
                    kept.setdefault(unparse(to), set()).add(found[1])
        for call in (one.value for one in own if isinstance(one, ast.Expr)):
            if (
                not isinstance(call, ast.Call)
                or called(call) != "load_state_dict"
                or len(call.args) != 1
                or not isinstance(call.func, ast.Attribute)
            ):
                continue
            owner, sources = unparse(call.func.value), kept.get(unparse(call.args[0]), set())
            is_average = re.search(r"(?<![a-z])(ema|averaged?|avg|swa)", owner)
            of_average = any(re.search(r"ema|average|avg|swa|shadow", one) for one in sources)
            if is_average and len(sources) == 1 and owner not in sources and not of_average:
                yield f"{unparse(call)}, kept of {min(sources)}", call


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What names, parameters and keywords are given."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        for to in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield unparse(to).rpartition(".")[2], node.value
    elif isinstance(node, ast.arguments):
        plain = [*node.posonlyargs, *node.args]
        yield from ((one.arg, value) for one, value in zip(plain[::-1], node.defaults[::-1], strict=False))
        yield from ((one.arg, value) for one, value in zip(node.kwonlyargs, node.kw_defaults, strict=True) if value)
    elif isinstance(node, ast.Call):
        yield from ((word.arg or "", word.value) for word in node.keywords)


def _moves_average(call: ast.Call) -> bool:
    """``ema.update(model)``, ``update_ema(ema, model)``: an average and what moves it."""
    of = unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    is_update = re.fullmatch(r"update\w*|step", called(call)) is not None
    if of:
        return is_update and _AVERAGE.fullmatch(of) is not None
    return (
        re.fullmatch(r"\w*(update|step)\w*", called(call)) is not None and _AVERAGE.fullmatch(called(call)) is not None
    )


# --- statistics that are not saved ----------------------------------------------------------------

_STATISTICS = re.compile(r"(\w+_)?(means?|stds?|vars?|locs?|scales?|cent(er|re)s?|mins?|max|medians?|mu|sigma)(_\w+)?")
_FITS = re.compile(r"_?(fit|calibrat|estimate|standardi)\w*")


def statistics_not_saved(tree: ast.AST) -> Found:
    """Where a module keeps statistics that a method fits in a buffer that is no part of its state."""
    for cls in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        fitting = [unparse(one) for one in cls.body if isinstance(one, ast.FunctionDef) and _FITS.fullmatch(one.name)]
        for node in calls(cls):
            if unparse(node.func) != "self.register_buffer" or not _is_left_out(node):
                continue
            name = str(node.args[0].value) if node.args and isinstance(node.args[0], ast.Constant) else ""
            written = rf"self\.{name}(\.data)?(\[[^\]]*\])?(\.(copy_|fill_)\(| = )"
            if _STATISTICS.fullmatch(name) and any(re.search(written, text) for text in fitting):
                yield unparse(node), node


def _is_left_out(node: ast.Call) -> bool:
    given = [word.value for word in node.keywords if word.arg == "persistent"] or node.args[2:3]
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value is False


# --- scales that nothing learns -------------------------------------------------------------------

_SCALE = re.compile(r"gamma|beta|(layer_?)?scales?|ls_?\d?|gain|weight|bias|temperature|logit_scale", re.IGNORECASE)
_FILLED = re.compile(r"(torch\.)?(ones|zeros|full|tensor)\(")


def scales_not_learned(tree: ast.AST) -> Found:
    """Where a module keeps a tensor of a name that learned scales have, filled with one value, as a plain attribute,
    and computes with it, and nothing else in the file gives it a value or registers it."""
    for cls in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        if not any("Module" in unparse(base) for base in cls.bases):
            continue
        inits = [one for one in functions(cls) if one.name == "__init__"]
        forwards = "\n".join(unparse(one) for one in functions(cls) if one.name != "__init__")
        given_at = [(one, *pair) for init in inits for one in walk(init) for pair in assigned(one)]
        for node, to, given in given_at:
            name = to.attr if isinstance(to, ast.Attribute) and unparse(to.value) == "self" else ""
            if not _SCALE.fullmatch(name) or not _FILLED.match(unparse(given)) or "requires_grad" in unparse(given):
                continue
            used = re.search(rf"[*+/] self\.{name}\b(?!\()|\bself\.{name} [*+]|, self\.{name}[,)]", forwards)
            if used and len(re.findall(rf"\.{name}(\.data)? [-+*/]?= ", unparse(tree))) == 1:
                yield unparse(node), node


UNLEARNED = Slip(
    rule=scales_not_learned,
    asked="a scale that a module computes with",
    expected="a parameter, or a buffer where it is fixed",
    got="a plain tensor",
    sentence="A scale is a plain tensor: nothing trains it, no state holds it, and it stays where it was made.",
    mend="nn.Parameter(...)",
    nothing="no scale was seen that is a plain tensor",
)
UNSAVED = Slip(
    rule=statistics_not_saved,
    asked="statistics of the data that a module keeps",
    expected="part of its state",
    got="in a buffer with persistent=False",
    sentence="Statistics that are fitted to the data are no part of the state: a model that is loaded has others.",
    mend="self.register_buffer(name, value)",
    nothing="no statistics were seen that a saved model lacks",
)
REBUILT = Slip(
    rule=rebuilt_from_config,
    asked="what is loaded of a model that was saved",
    expected="its weights",
    got="its config alone",
    sentence="Only the config of the saved model is loaded: its weights begin at random again.",
    mend="model = Model.from_pretrained(folder)",
    nothing="no model was seen that is made of the config beside its saved weights",
)
MERGED = Slip(
    rule=merged_without_scale,
    asked="what is added to a weight for its low-rank factors",
    expected="their product, scaled as forward does",
    got="their product as it is",
    sentence="Forward scales what the low-rank factors give, and what is added to the weight is not scaled: the merged "
    "model is another one.",
    mend="weight += scale * (lora_b @ lora_a)",
    nothing="no product of low-rank factors was seen that is added to a weight without their scale",
)
AVERAGED = Slip(
    rule=averaged_once_an_epoch,
    asked="when a slow average of the weights is moved",
    expected="with each step",
    got="once an epoch",
    sentence="The average keeps nearly all of itself each time and is moved once an epoch: it stays near the first "
    "weights.",
    mend="ema.update(model) behind optimizer.step()",
    nothing="no slow average of the weights was seen that is moved once an epoch",
)
OTHERS = Slip(
    rule=averages_given_other_weights,
    asked="the state that an average of weights gets back",
    expected="its own best one",
    got="one of the model that it averages",
    sentence="The average is measured, and the weights of the model are kept: what is reported then is another model.",
    mend="best = copy.deepcopy(average.state_dict())",
    nothing="no average was seen that gets the state of another model back",
)

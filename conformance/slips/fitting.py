"""Slips of what is fitted or counted with more than the training part, that the text of a file shows by itself:
scalers, means and spreads, and how often something occurs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import (
    JUDGING,
    LEARNED,
    SPLITS,
    TRAINS,
    Found,
    Slip,
    assigned,
    blocks,
    called,
    calls,
    functions,
    reads,
    unparse,
    walk,
)

# --- numbers that are fitted ----------------------------------------------------------------------

_LAST_OF_TRAINING = re.compile(
    r"(n_?)?train(ing)?_?(end|stop|until|len|size|days|hours|steps|cut)|(val|valid|validation|test)_?(start|begin|from)"
    r"|split(_?(at|idx|index|point))?|cut_?off|n_?train",
    re.IGNORECASE,
)


_SCALES = re.compile(r"scale|normali[sz]|standardi[sz]", re.IGNORECASE)


_MEAN = re.compile(r"(nan)?mean|(nan)?median")


_SPREAD = re.compile(r"(nan)?std|(nan)?var")


def fitted_to_all(tree: ast.AST) -> Found:
    """Where a class that knows where training ends keeps the mean and the spread of the whole of what it holds, or a
    scaler is fitted to the whole of what something holds that knows it."""
    for cls in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        borders = [
            to.attr
            for node in walk(cls)
            for to, _ in assigned(node)
            if isinstance(to, ast.Attribute) and _LAST_OF_TRAINING.fullmatch(to.attr)
        ]
        if not borders:
            continue
        for method in functions(cls):
            given = {unparse(to): value for node in walk(method) for to, value in assigned(node)}
            kept = {to: value for to, value in given.items() if to.startswith("self.")}
            means, spreads = ([of for value in kept.values() for of in _of(value, how)] for how in (_MEAN, _SPREAD))
            for of, place in means:
                if any(of == other for other, _ in spreads) and _whole(of, given):
                    yield f"{unparse(place)}, though training ends at self.{borders[0]}", place
    yield from _fitted_to_all_rows(tree)
    yield from _fitted_before_the_cut(tree)
    yield from _made_of_all_parts(tree)
    yield from _told_all_parts(tree)
    yield from _counted_in_all_parts(tree)
    yield from _one_cut_and_one_whole(tree)
    yield from _fitted_beside_a_cut(tree)
    yield from _fitted_past_a_border(tree)
    yield from _fitted_behind_the_split(tree)
    ends = {unparse(node): node for node in walk(tree) if isinstance(node, ast.Attribute)}
    for call in calls(tree):
        held = call.args[0] if called(call) in ("fit", "fit_transform") and len(call.args) == 1 else None
        if isinstance(held, ast.Attribute) and _SCALES.search(unparse(call.func)):
            holder = unparse(held.value)
            others = {unparse(to) for node in walk(tree) for to, of in assigned(node) if unparse(of) == holder}
            border = next((end for end, node in ends.items() if _ends_training(node, {holder, *others})), "")
            if border and "train" not in unparse(held):
                yield f"{unparse(call)}, though training ends at {border}", call


def _fitted_before_the_cut(tree: ast.AST) -> Found:
    """Where a scaler is fitted to the whole of a series of which the beginning, ``series[:end]``, is trained on."""
    for function in functions(tree):
        pairs = [pair for node in walk(function) for pair in assigned(node)]
        for call in calls(function):
            name = call.args[0].id if len(call.args) == 1 and isinstance(call.args[0], ast.Name) else ""
            if called(call) not in ("fit", "fit_transform") or not _SCALES.search(unparse(call.func)) or not name:
                continue
            moved = {unparse(to) for to, given in pairs if called(given).endswith("transform") and reads(given, name)}
            cuts = [rf"\b{re.escape(one)}\[:\w+\]" for one in {name, *moved}]
            for to, given in pairs:
                if TRAINS.fullmatch(unparse(to)) and any(re.search(cut, unparse(given)) for cut in cuts):
                    yield f"{unparse(call)}, though {unparse(to)} is cut from it", call
                    break


_SCALER = re.compile(
    r"\w*(scaler|normali[sz]er|standardi[sz]er)|fit_(\w+_)?(scaling|normali[sz]ation|stat(istic)?s)", re.IGNORECASE
)


def _told_all_parts(tree: ast.AST) -> Found:
    """Where something is fitted to the rows of the training part and of those that judge, ``train | valid | test``."""
    for call in calls(tree):
        given = [one for one in call.args if isinstance(one, ast.BinOp) and isinstance(one.op, ast.BitOr | ast.Add)]
        for one in given if called(call) in ("fit", "fit_transform") else ():
            names = [unparse(x) for x in walk(one) if isinstance(x, ast.Name | ast.Attribute)]
            if any(map(LEARNED.fullmatch, names)) and any(map(JUDGING.fullmatch, names)):
                yield unparse(call), call


_COUNTS = re.compile(r"(\w+_)?(counts?|popularity|freqs?|frequenc(y|ies)|occurrences|clicks|weights)(_\w+)?")


def _counted_in_all_parts(tree: ast.AST) -> Found:
    """Where the rows of the training part and of those that judge are counted together: how often an item occurs, by
    which it is drawn or recommended. Words may be numbered so."""
    for loop in (one for one in walk(tree) if isinstance(one, ast.For) and isinstance(one.iter, ast.BinOp)):
        names = [unparse(one) for one in walk(loop.iter) if isinstance(one, ast.Name)]
        adds = [one for one in walk(loop) if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add)]
        counted = [one.target for one in adds if isinstance(one.target, ast.Subscript) and unparse(one.value) == "1"]
        is_count = any(_COUNTS.fullmatch(unparse(one.value)) for one in counted)
        if is_count and any(map(LEARNED.fullmatch, names)) and any(map(JUDGING.fullmatch, names)):
            yield unparse(loop.iter), loop


def _one_cut_and_one_whole(tree: ast.AST) -> Found:
    """Where a scaler is told where training ends, cuts one series there, and takes mean and spread of another whole."""
    for cls in (one for one in walk(tree) if isinstance(one, ast.ClassDef) and _SCALER.fullmatch(one.name)):
        for method in functions(cls):
            given = [one.arg for one in method.args.args[1:]]
            ends = [name for name in given if _LAST_OF_TRAINING.fullmatch(name)]
            text = unparse(method)
            whole = {unparse(to): unparse(of) for node in walk(method) for to, of in assigned(node)}
            series = [name for name in given if name not in ends]
            cut = [name for name in series for end in ends if re.search(rf"\b{name}\[.*:{end}\]", text)]
            for name in series if cut else ():
                names = [name, *(to for to, of in whole.items() if of == name)]
                taken = [one for one in calls(method) if re.fullmatch(r"(nan)?(mean|std)", called(one))]
                uses = [
                    one
                    for one in taken
                    if any(re.search(rf"\b{re.escape(x)}(,|\)|\.(mean|std))", unparse(one)) for x in names)
                ]
                if name not in cut and len({called(one)[-4:] for one in uses}) == 2:
                    yield unparse(uses[0]), uses[0]


def _fitted_beside_a_cut(tree: ast.AST) -> Found:
    """Where one scaler is fitted to a beginning, ``Scaler().fit(x[:, :end])``, and another of its kind to the whole."""
    for function in functions(tree):
        fitted: dict[str, list[ast.Call]] = {}
        for call in calls(function):
            if called(call) == "fit" and len(call.args) == 1 and isinstance(call.func, ast.Attribute):
                fitted.setdefault(unparse(call.func.value), []).append(call)
        for maker, found in fitted.items():
            cut = [one for one in found if re.search(r"\[(.*, )?:\w+\]$", unparse(one.args[0]))]
            whole = [one for one in found if isinstance(one.args[0], ast.Name)]
            if maker.endswith("()") and _SCALES.search(maker) and cut:
                yield from ((f"{unparse(one)}, beside {unparse(cut[0])}", one) for one in whole)


def _fitted_past_a_border(tree: ast.AST) -> Found:
    """Where a scaler is fitted to the whole of what it then scales, in a function that knows where training ends."""
    for function in functions(tree):
        pairs = [pair for node in walk(function) for pair in assigned(node)]
        made = {to.id: given for to, given in pairs if isinstance(to, ast.Name)}
        for call in calls(function):
            held = call.args[0] if called(call) in ("fit", "fit_transform") and len(call.args) == 1 else None
            if not isinstance(held, ast.Name) or not _SCALES.search(unparse(call.func)) or "train" in held.id:
                continue
            borders = [name for name, given in made.items() if _BORDER.fullmatch(name) and given.lineno < call.lineno]
            scaled = any(called(given) == "transform" and reads(given, held.id) for _, given in pairs)
            is_part = any(isinstance(one, ast.Subscript | ast.ListComp) for one in walk(made.get(held.id, held)))
            if borders and scaled and not is_part and not SPLITS.search(called(made.get(held.id, held))):
                yield f"{unparse(call)}, though {borders[0]} is known", call


_BORDER = re.compile(r"(val|valid|validation|test)_?(start|begin|from)|train_?(end|stop|until)", re.IGNORECASE)
_LEARNS_WORDS = re.compile(r"bpe|token|vocab|vectori[sz]er|tf_?idf|word_?piece", re.IGNORECASE)


def _fitted_behind_the_split(tree: ast.AST) -> Found:
    """Where a tokenizer is fitted to all texts, behind the line that split them and gave the training part a name."""
    for function in functions(tree):
        for to, given in (pair for node in walk(function) for pair in assigned(node)):
            parts = [unparse(one) for one in to.elts] if isinstance(to, ast.Tuple) else []
            texts = given.args[0] if isinstance(given, ast.Call) and given.args else None
            if not parts or not TRAINS_ALONE.fullmatch(parts[0]) or not isinstance(texts, ast.Name):
                continue
            for call in calls(function):
                fits = called(call) in ("fit", "train", "fit_on_texts", "build_vocab") and call.lineno > given.lineno
                if (
                    fits
                    and call.args
                    and unparse(call.args[0]) == texts.id
                    and _LEARNS_WORDS.search(unparse(call.func))
                ):
                    yield f"{unparse(call)}, though {parts[0]} is known", call


TRAINS_ALONE = re.compile(r"(train|trn|tr)(_\w+)?", re.IGNORECASE)


def _made_of_all_parts(tree: ast.AST) -> Found:
    """Where a scaler is made of the rows that are cut into the training part and others."""
    for function in [tree, *functions(tree)]:
        pairs = [pair for block in blocks(function) for one in block for pair in assigned(one)]
        whole = {
            unparse(given.args[0])
            for to, given in pairs
            if isinstance(given, ast.Call) and given.args and isinstance(to, ast.Tuple) and len(to.elts) > 1
            and TRAINS.fullmatch(unparse(to.elts[0])) and SPLITS.search(called(given))
        }  # fmt: skip
        for _, given in pairs:
            made = isinstance(given, ast.Call) and len(given.args) == 1 and _SCALER.fullmatch(called(given))
            if made and unparse(given.args[0]) in whole:  # type: ignore[attr-defined]
                yield f"{unparse(given)}, which is cut into parts", given


_ALL_ROWS = re.compile(r"(np\.|torch\.)?(arange|range)\(len\(.*\)\)|slice\(None\)")


def _fitted_to_all_rows(tree: ast.AST) -> Found:
    """Where something is fitted to data at the numbers of all rows, and those of training have a name."""
    for function in (node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)):
        named = {one.id for one in walk(function) if isinstance(one, ast.Name)}
        of_training = sorted(n for n in named if re.fullmatch(r"(train|trn)_?(rows|idx|index|indices|ids)", n))
        for call in calls(function) if of_training and not isinstance(function, ast.Module) else ():
            last = call.args[-1] if called(call) == "fit" and len(call.args) == 2 else None
            if last is not None and _ALL_ROWS.fullmatch(unparse(last)):
                yield f"{unparse(call)}, though there are {of_training[0]}", call


def _ends_training(node: ast.Attribute, holders: set[str]) -> bool:
    """Whether it is where training ends in the data of a holder: `panel.train_end`."""
    return unparse(node.value) in holders and _LAST_OF_TRAINING.fullmatch(node.attr) is not None


def _of(value: ast.expr, how: re.Pattern[str]) -> Iterator[tuple[str, ast.Call]]:
    """Of what the means in an expression are."""
    for call in calls(value):
        if how.fullmatch(called(call)):
            inner = call.func.value if isinstance(call.func, ast.Attribute) else None
            is_of_library = inner is None or unparse(inner) in ("np", "numpy", "torch")
            of = call.args[0] if is_of_library and call.args else inner
            if of is not None:
                yield unparse(of), call


def _whole(of: str, given: dict[str, ast.expr]) -> bool:
    """Whether it is an attribute, or what a function makes of one, with nothing cut from it."""
    value = given[of] if of in given and of.isidentifier() else ast.parse(of, mode="eval").body
    names = [one for one in walk(value) if isinstance(one, ast.Name | ast.Attribute)]
    is_of_self = any(isinstance(one, ast.Attribute) and unparse(one.value) == "self" for one in names)
    is_cut = any(isinstance(one, ast.Subscript) for one in walk(value))
    return is_of_self and not is_cut and not any("train" in unparse(one) for one in names)


FITTED = Slip(
    rule=fitted_to_all,
    asked="of what mean and spread are kept",
    expected="of the training part",
    got="of everything",
    sentence="Mean and spread are those of all the data, though the file says where training ends: training sees "
    "numbers of the data that judge.",
    mend="take them of the rows before that border",
    nothing="no mean and spread of all were seen beside a border where training ends",
)

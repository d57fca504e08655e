"""Slips of the axes of tensors, that the text of a file shows by itself: heads that are joined where they stand, new
shapes that name axes in another order, grids that are laid out in two orders, boxes whose x gets the height, masks
that are repeated as a whole for heads, and weights that sum to one over another axis than the one that is summed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from conformance.slips.slip import (
    Found,
    Slip,
    all_given,
    assigned,
    blocks,
    called,
    calls,
    functions,
    named,
    reads,
    unparse,
    walk,
)


def heads_joined_in_place(tree: ast.AST) -> Found:
    """Where heads, (B, H, T, d), are given the shape of words, (B, T, H * d), and their axis is not moved back."""
    for function in functions(tree):
        if not any(map(_splits_heads, walk(function))):
            continue
        given = sorted(named(function), key=lambda pair: pair[1].lineno)
        for node in walk(function):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr in ("reshape", "view") and len(node.args) == 3:  # type: ignore[attr-defined]
                held = node.func.value  # type: ignore[attr-defined]
                if isinstance(held, ast.Name):
                    before = [value for name, value in given if name == held.id and value.lineno < node.lineno]  # type: ignore[attr-defined]
                    held = before[-1] if before else held
                if _is_product_with_values(held):
                    yield unparse(node), node


def _splits_heads(node: ast.AST) -> bool:
    """Whether it is ``x.view(B, T, H, d).transpose(1, 2)``, or the same for queries, keys and values at once."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    held = node.func.value
    moves = unparse(node).endswith((".transpose(1, 2)", ".permute(0, 2, 1, 3)", ".permute(2, 0, 3, 1, 4)"))
    shapes = (
        isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) and held.func.attr in ("view", "reshape")
    )
    return moves and shapes and len(held.args) >= 4  # type: ignore[attr-defined]


def _is_product_with_values(value: ast.expr) -> bool:
    """Whether it is ``weights @ v`` or torch's attention, as they give it."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.MatMult):
        return isinstance(value.right, ast.Name) and re.fullmatch(r"v|vs|values?", value.right.id) is not None
    return isinstance(value, ast.Call) and unparse(value.func).endswith("scaled_dot_product_attention")


Axes = list[str]


def axes_out_of_order(tree: ast.AST) -> Found:
    """Where ``b, c, t, f = x.shape`` names the axes of a tensor, and a new shape names all of them in another order
    than they stand in: ``x.reshape(b, t, c * f)`` without a transposition."""
    for function in functions(tree):
        for block in blocks(function):
            known: dict[str, Axes] = {}
            for statement in block:
                for node in walk(statement):
                    if isinstance(node, ast.Call) and called(node) in ("reshape", "view"):
                        before = _axes_of(node.func.value, known) if isinstance(node.func, ast.Attribute) else None
                        after = [_factors(one) for one in node.args]
                        same = before and sorted(before) == sorted(name for one in after for name in one)
                        if before and same and not _stand_so(before, after):
                            yield unparse(node), node
                _follow(statement, known)


def _follow(statement: ast.stmt, known: dict[str, Axes]) -> None:
    """What a statement says of the axes of names; of what is given another value nothing is known but by that."""
    pairs = assigned(statement)
    of_shape = [(to, given) for to, given in pairs if isinstance(to, ast.Tuple) and _is_shape(given)]
    for to, given in pairs:
        axes = _axes_of(given, known)
        if isinstance(to, ast.Name) and axes:
            known[to.id] = axes
            pairs = [pair for pair in pairs if pair[0] is not to]
    written = {one.id for one in walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    kept = {to.id for to, given in assigned(statement) if isinstance(to, ast.Name) and _axes_of(given, known)}
    for name in list(known):
        if (name in written and name not in kept) or written & set(known[name]):
            del known[name]
    for to, given in of_shape:
        names = [one.id for one in to.elts if isinstance(one, ast.Name)]
        held = given.value if isinstance(given, ast.Attribute) else given.func.value  # type: ignore[attr-defined]
        is_whole = len(names) == len(to.elts) == len(set(names)) and "_" not in names
        if is_whole and len(names) > 2 and isinstance(held, ast.Name):
            known[held.id] = names


def _is_shape(value: ast.expr) -> bool:
    """``x.shape``, ``x.size()``."""
    if isinstance(value, ast.Call):
        return called(value) == "size" and not value.args and isinstance(value.func, ast.Attribute)
    return isinstance(value, ast.Attribute) and value.attr == "shape"


def _axes_of(value: ast.expr, known: dict[str, Axes]) -> Axes | None:
    """The axes of a name, also behind transpositions of it; None where they are not known."""
    if isinstance(value, ast.Name):
        return known.get(value.id)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    if re.fullmatch(r"self\.\w*(norm|ln|drop)\w*", unparse(value.func), re.IGNORECASE) and len(value.args) == 1:
        return _axes_of(value.args[0], known)
    axes = _axes_of(value.func.value, known)
    try:
        given = [ast.literal_eval(one) for one in value.args]
    except (ValueError, TypeError):
        return None
    places = list(given[0]) if len(given) == 1 and isinstance(given[0], tuple) else given
    if axes is None or not all(type(one) is int and -len(axes) <= one < len(axes) for one in places):
        return None
    if called(value) == "contiguous":
        return axes
    if called(value) == "permute" and len(places) == len(axes):
        return [axes[one] for one in places]
    if called(value) in ("transpose", "swapaxes") and len(places) == 2:
        turned = list(axes)
        turned[places[0]], turned[places[1]] = axes[places[1]], axes[places[0]]
        return turned
    return None


def _factors(size: ast.expr) -> Axes:
    """The names of which one size is the product; what is no name is given as it is written."""
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        return [*_factors(size.left), *_factors(size.right)]
    return [unparse(size)]


def _stand_so(axes: Axes, sizes: Sequence[Axes]) -> bool:
    """Whether axes, as they stand, can be put together to these sizes: in a product any may be named first."""
    at = 0
    for names in sizes:
        if sorted(axes[at : at + len(names)]) != sorted(names):
            return False
        at += len(names)
    return True


# --- rows and columns -----------------------------------------------------------------------------


def grids_in_two_orders(tree: ast.AST) -> Found:
    """Where one function lays one grid out row by row, ``(h w)``, and another column by column, ``(w h)``."""
    for function in functions(tree):
        patterns = [
            (unparse(one.args[1]), one)
            for one in calls(function)
            if called(one) in ("rearrange", "reduce") and len(one.args) > 1 and isinstance(one.args[1], ast.Constant)
        ]
        laid = [(text, one) for text, one in patterns if re.search(r"-> .*\((h w|w h)\)", text)]
        by_rows = [text for text, _ in laid if "(h w)" in text.partition("->")[2]]
        for text, one in laid:
            if by_rows and "(w h)" in text.partition("->")[2] and re.search(r"\bh w\b.*->", text):
                yield f"{text} beside {by_rows[0]}", one


# --- sides of boxes -------------------------------------------------------------------------------

_HEIGHT, _WIDTH = (rf"(\w*_)?({side})" for side in ("h|height|img_h|rows", "w|width|img_w|cols"))


_FOUR = re.compile(rf"[\[(]{_HEIGHT}, {_WIDTH}, {_HEIGHT}, {_WIDTH}[\])]")


def boxes_scaled_by_the_other_side(tree: ast.AST) -> Found:
    """Where boxes are multiplied or divided by (height, width, height, width), and nothing says that y comes first."""
    if re.search(r"yxyx|cy, cx|y_?(min|1|0), x_?(min|1|0)|top, left", unparse(tree)):
        return
    for function in functions(tree):
        for node in walk(function):
            is_scaled = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div)
            if is_scaled and "box" in unparse(node).lower() and _FOUR.search(unparse(node.right)):  # type: ignore[attr-defined]
                yield unparse(node), node


# --- masks of heads -------------------------------------------------------------------------------

_HEADS = re.compile(r"(self\.)?(\w+\.)?(n_?|num_?)?(attention_)?heads?|h", re.IGNORECASE)


def masks_by_heads_first(tree: ast.AST) -> Found:
    """Where masks of the samples are repeated as a whole, once a head, and handed to `nn.MultiheadAttention`, which has
    the heads of one sample side by side."""
    if "MultiheadAttention" not in unparse(tree):
        return
    for function in functions(tree):
        handed = {unparse(word.value) for node in calls(function) for word in node.keywords if word.arg == "attn_mask"}
        for node in calls(function):
            first = node.args[0] if called(node) == "repeat" and len(node.args) == 3 else None
            if (
                first is None
                or not _HEADS.fullmatch(unparse(first))
                or {unparse(one) for one in node.args[1:]} != {"1"}
            ):
                continue
            names = {unparse(to) for one in walk(function) for to, given in assigned(one) if given is node}
            if handed & {unparse(node), *names}:
                yield unparse(node), node


_DROPS = re.compile(r"\w*(drop|identity)\w*", re.IGNORECASE)


def weights_over_another_axis(tree: ast.AST) -> Found:
    """Where weights are a softmax over one axis, and the einsum that uses them sums another one, which alone is not in
    its result. Slots compete for what they read, and are left alone."""
    for function in functions(tree):
        if re.search(r"slot", unparse(function), re.IGNORECASE):
            continue
        axes: dict[str, list[tuple[int | None, ast.expr]]] = {}
        for _, to, given in all_given(function):
            if isinstance(to, ast.Name) and not (_DROPS.fullmatch(called(given)) and reads(given, to.id)):
                axes.setdefault(to.id, []).append((_axis_of_softmax(given), given))
        for call in calls(function):
            for name, letters, summed in _summed_by(call):
                [(axis, given), *others] = axes.get(name, [(None, call)])
                if axis is not None and not others and len(summed) == 1 and axis % len(letters) != summed[0]:
                    yield unparse(given), given


def _axis_of_softmax(given: ast.expr) -> int | None:
    """The axis of a softmax, also where dropout gets it."""
    for call in calls(given):
        if called(call) == "softmax":
            owner = unparse(call.func).rpartition(".")[0]
            words = [word.value for word in call.keywords if word.arg == "dim"]
            at = words or call.args[1 if owner in ("F", "torch", "nn.functional", "torch.nn.functional") else 0 :][:1]
            with suppress(ValueError):
                return int(ast.literal_eval(at[0])) if at else None
    return None


def _summed_by(call: ast.Call) -> Iterator[tuple[str, str, list[int]]]:
    """Each name that an einsum of two gets, its letters, and the places of those that both have and its result not."""
    pattern = call.args[0].value if called(call) == "einsum" and isinstance(call.args[0], ast.Constant) else ""
    sides, _, made = str(pattern).replace(" ", "").partition("->")
    letters = sides.split(",")
    if len(letters) != 2 or not made or not sides.replace(",", "").isalpha():
        return
    for own, other, operand in zip(letters, letters[::-1], call.args[1:], strict=False):
        if isinstance(operand, ast.Name):
            yield operand.id, own, [at for at, one in enumerate(own) if one in other and one not in made]


GRIDS = Slip(
    rule=grids_in_two_orders,
    asked="the places of a grid that is laid out twice in one function",
    expected="of one order",
    got="row by row, and column by column",
    sentence="A grid is laid out row by row in one place, and column by column in another: rows and columns change.",
    mend='"b h w d -> b (h w) d" in both',
    nothing="no grid was seen that is laid out in two orders",
)
SIDES = Slip(
    rule=boxes_scaled_by_the_other_side,
    asked="by what the numbers of boxes are scaled",
    expected="x by the width, y by the height",
    got="x by the height",
    sentence="Boxes are scaled by height, width, height, width: x gets the height, and y the width.",
    mend="boxes * torch.stack([width, height, width, height], -1)",
    nothing="no boxes were seen whose x is scaled by the height",
)
HEADS = Slip(
    rule=heads_joined_in_place,
    asked="what each position gets",
    expected="the results of its own heads",
    got="those of other positions",
    sentence="Heads stand before positions, and get another shape as they stand: each position gets parts of others.",
    mend="(weights @ v).transpose(1, 2).reshape(b, n, d)",
    nothing="no heads were seen that are joined where they stand",
)
AXES = Slip(
    rule=axes_out_of_order,
    asked="a new shape of a tensor whose axes have names",
    expected="names them in the order in which they stand",
    got="names them in another one",
    sentence="A new shape moves no numbers: it names the axes in another order than they stand in, and the numbers of "
    "one go to another.",
    mend="x.transpose(1, 2).reshape(b, t, c * f): move the axes first",
    nothing="no new shape was seen that names axes in another order than they stand in",
)

MASKS_OF_HEADS = Slip(
    rule=masks_by_heads_first,
    asked="masks of the heads of nn.MultiheadAttention",
    expected="the heads of one sample side by side",
    got="all samples of one head side by side",
    sentence="The masks of all samples are repeated as a whole: heads get the mask of another sample.",
    mend="mask.repeat_interleave(heads, dim=0)",
    nothing="no mask was seen that is repeated as a whole for heads",
)
OTHER_AXIS = Slip(
    rule=weights_over_another_axis,
    asked="the axis of a softmax, and the one that its weights sum",
    expected="one axis",
    got="the weights that are summed do not sum to one",
    sentence="A softmax is taken over another axis than the one that its weights sum: what comes out is no mean.",
    mend="softmax over the axis whose letter is not in the result of the einsum",
    nothing="no weights were seen that sum to one over another axis",
)

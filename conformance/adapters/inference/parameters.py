"""Where a role's parameters are stored: proposed by names and shapes, most usual layout first.

A *layout* maps the role's parameter names to `Place`s. Layouts differ only in what the field really does: separate
or fused projections (in blocks, or head by head), weights (out, in) or (in, out), kernels with a head axis, lists
of numbered or per-head layers. Permuted heads and other reshapes are never tried: they would forgive real mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from torch import Tensor, nn

from conformance.adapters.torch_subject import Slot

Config = Mapping[str, Any]
View = Callable[..., Tensor]
"""The view of a stored tensor that has the protocol's elements in order, called as view(tensor, config)."""


def stored(tensor: Tensor, config: Config) -> Tensor:
    """Stored as the protocol has it."""
    return tensor


@dataclass(frozen=True)
class Place:
    """Where a parameter is stored, for any configuration: name patterns (``*`` is a number) and a view."""

    patterns: tuple[str, ...]
    view: View = stored
    offset: float = 0.0

    def slot(self, names: Mapping[str, Tensor], config: Config) -> Slot:
        found = [name for pattern in self.patterns for name in _matching(pattern, names)]
        return Slot(tuple((name, partial(self.view, config=config)) for name in found), self.offset)

    def under(self, prefix: str) -> Place:
        return Place(tuple(prefix + pattern for pattern in self.patterns), self.view, self.offset)


Layout = dict[str, Place]


def under(layout: Layout, prefix: str, name: str) -> Layout:
    """A child's layout as the parent sees it: parameters below `name`, stored below `prefix`."""
    return {f"{name}.{parameter}": place.under(prefix) for parameter, place in layout.items()}


def numbered(layout: Layout, n_layers: int) -> Layout:
    """The layout of a model with the numbers of its layers filled in."""
    places: Layout = {}
    for name, place in layout.items():
        if "*" in name:
            for i in map(str, range(n_layers)):
                patterns = tuple(pattern.replace("*", i, 1) for pattern in place.patterns)
                places[name.replace("*", i)] = replace(place, patterns=patterns)
        else:
            places[name] = place
    return places


def _matching(pattern: str, names: Mapping[str, Tensor]) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    expression = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)"))
    found = [(tuple(map(int, match.groups())), name) for name in names if (match := expression.fullmatch(name))]
    return [name for _, name in sorted(found)]


# --- kernels: the matrices of a module, with their biases ------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """A weight matrix: its pattern, one of its tensors, its bias's pattern, whether an nn.Linear owns it."""

    pattern: str
    tensor: Tensor
    bias: str | None
    linear: bool

    @property
    def words(self) -> list[str]:
        """The name's words, lower case, a capital or a sign beginning a new one: ``W_Q.weight`` -> w, q, weight."""
        return re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", self.pattern).lower())


def kernels(module: nn.Module, split: bool = False) -> list[Kernel]:
    """The matrices of a module in order; `split` keeps numbered ones apart, else a list of layers is one kernel."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    linear = {f"{name}.weight".lstrip(".") for name, child in module.named_modules() if isinstance(child, nn.Linear)}
    found: dict[str, Kernel] = {}
    for name, tensor in parameters.items():
        if tensor.ndim < 2:
            continue
        pattern = name if split else re.sub(r"(?<![A-Za-z\d])\d+(?![A-Za-z\d])", "*", name)
        bias = next((b for b in _bias_names(name) if b in parameters and parameters[b].ndim < tensor.ndim), None)
        if bias is not None and not split:
            bias = re.sub(r"(?<![A-Za-z\d])\d+(?![A-Za-z\d])", "*", bias)
        found.setdefault(pattern, Kernel(pattern, tensor, bias, name in linear))
    return list(found.values())


def _bias_names(name: str) -> list[str]:
    changed = [name.replace(old, new) for old, new in (("weight", "bias"), ("kernel", "bias"), ("W", "b"), ("w", "b"))]
    return [bias for bias in changed if bias != name]


def with_bias(parameter: str, kernel: Kernel, view: View) -> Layout:
    """A kernel's weight, and its bias where it has one, under the protocol's name."""
    layout = {f"{parameter}.weight": Place((kernel.pattern,), view)}
    if kernel.bias is not None:
        layout[f"{parameter}.bias"] = Place((kernel.bias,), view)
    return layout


# --- views ----------------------------------------------------------------------------------------


def transposed(tensor: Tensor, config: Config) -> Tensor:
    """Stored (in, out); a bias as it is."""
    return tensor.T if tensor.ndim == 2 else tensor


def permuted(tensor: Tensor, config: Config, axes: tuple[int, ...]) -> Tensor:
    """A kernel with a head axis; a bias as it is."""
    return tensor.permute(axes) if tensor.ndim == 3 else tensor


def units(tensor: Tensor, config: Config, inner: View, dim: int) -> Tensor:
    """The first d_ff hidden units, along `dim` of a matrix: a module that decides its own width may have more."""
    whole = inner(tensor, config)
    axis = dim if whole.ndim == 2 else 0
    return whole.narrow(axis, 0, min(config["d_ff"], whole.shape[axis]))


def block(tensor: Tensor, config: Config, part: int, inner: View, parts: str) -> Tensor:
    """Part `part` of [q | k | v] (or of the `parts` "kv", "gu") in whole blocks along the first axis."""
    rows = inner(tensor, config)
    sizes = [_width(config, letter) for letter in parts]
    return rows.narrow(0, sum(sizes[:part]), sizes[part])


def per_head(tensor: Tensor, config: Config, part: int, inner: View, parts: str) -> Tensor:
    """Part `part` of each head's own [q | k | v]."""
    return inner(tensor, config).unflatten(0, (config["n_heads"], len(parts), -1))[:, part]


def _width(config: Config, letter: str) -> int:
    if letter in "gu":
        return int(config["d_ff"])
    if "d_k" in config:
        return int(config["d_k"])
    head = config["d_model"] // config["n_heads"]
    return int(head * (config["n_heads"] if letter == "q" else config.get("n_kv_heads", config["n_heads"])))


# --- attention ------------------------------------------------------------------------------------

_PROJECTION = {
    "q": re.compile(r"(to|w|lin|fc)?q(s|uery|ueries)?"),
    "k": re.compile(r"(to|w|lin|fc)?k(s|ey|eys)?"),
    "v": re.compile(r"(to|w|lin|fc)?v(s|alue|alues)?"),
    "o": re.compile(r"(to|w|fc)?(o|out|output|unify|unifyheads|combine|concat|merge)"),
}


def _projection(kernel: Kernel) -> str:
    """'q', 'k', 'v', 'o', a permutation of 'qkv', 'kv', or '' when the name does not say."""
    words = kernel.words
    for word in words:
        letters = re.sub(r"^(to|w)", "", word)
        if sorted(letters) == ["k", "q", "v"] or letters == "kv":
            return letters
    said = [letter for letter, expression in _PROJECTION.items() if any(expression.fullmatch(word) for word in words)]
    if said[:3] == ["q", "k", "v"] or words[:2] == ["in", "proj"] or words[-3:] == ["c", "attn", "weight"]:
        return "qkv"
    return "".join(said) if len(said) == 1 or said == ["k", "v"] else ""


def attention_layouts(module: nn.Module, config: Config, output: bool = True) -> Iterator[tuple[str, Layout]]:
    """The layouts that an attention module's names allow, the most usual first; none when q, k, v cannot be told.

    output: whether there is an output projection.
    """
    found = _by_projection(module, config, output)
    if found is None:
        return
    square = any(not k.linear and k.tensor.ndim == 2 and len(set(k.tensor.shape)) == 1 for k in found.values())
    fused = any(len(name) > 1 for name in found)
    for turned, cut in product((True, False) if square else (False,), (block, per_head) if fused else (block,)):
        layout: Layout = {}
        for name, kernel in found.items():
            view = _oriented(kernel, turned, config, name == "o")
            if len(name) == 1:
                layout |= with_bias("out_proj" if name == "o" else f"{name}_proj", kernel, view)
                continue
            for i, letter in enumerate(name):
                layout |= with_bias(f"{letter}_proj", kernel, partial(cut, part=i, inner=view, parts=name))
        words = ["fused in blocks" if cut is block else "fused head by head"] if fused else ["separate projections"]
        turned_any = any(place.view is transposed for place in layout.values())
        yield ", ".join(words + (["weights (in, out)"] if turned_any else [])), layout


def shares_key_heads(module: nn.Module, config: Config) -> bool:
    """Whether keys are projected to less than queries are."""
    found = _by_projection(module, config, True) or {}
    return {"q", "k"} <= found.keys() and found["k"].tensor.numel() < found["q"].tensor.numel()


def _by_projection(module: nn.Module, config: Config, output: bool) -> dict[str, Kernel] | None:
    """Each projection's kernel: by number where four (or three) are alike, else by name, the last by elimination."""
    apart = kernels(module, split=True)
    for listed in kernels(module):
        alike = [k for k in apart if "*" in listed.pattern and re.sub(r"\d+", "*", k.pattern) == listed.pattern]
        if len(alike) in (3, 4) and len({k.tensor.shape for k in alike}) == 1 and len(_projection(listed)) != 1:
            rest = [k for k in apart if k not in alike]
            found = dict(zip("qkvo", alike, strict=False))
            if len(alike) == 3 and len(rest) == 1 and output:
                found["o"] = rest[0]
            return found if len(found) == 3 + output else None
    found, rest = {}, []
    for kernel in kernels(module):
        name = _projection(kernel)
        if name and name not in found:
            found[name] = kernel
        else:
            rest.append(kernel)
    if not {"q", "qkv", "kqv"} & found.keys():
        wide = [k for k in rest if 3 * config["d_model"] in k.tensor.shape]
        if len(wide) == 1:
            found["qkv"] = wide[0]
            rest.remove(wide[0])
    if output and "o" not in found and len(rest) == 1:
        found["o"] = rest.pop()
    letters = sorted("".join(found))
    return found if not rest and letters == sorted("qkvo" if output else "qkv") else None


def _oriented(kernel: Kernel, turned: bool, config: Config, is_output: bool) -> View:
    """The view that makes a kernel (out, in)."""
    if kernel.linear:
        return stored
    if kernel.tensor.ndim == 3:
        return partial(permuted, axes=_head_axes(tuple(kernel.tensor.shape), config, is_output))
    n_out, n_in = kernel.tensor.shape
    if n_out == n_in:
        return transposed if turned else stored
    widths = {config["d_model"]}
    return transposed if (n_in not in widths and not is_output) or (is_output and n_out not in widths) else stored


def _head_axes(shape: tuple[int, ...], config: Config, is_output: bool) -> tuple[int, ...]:
    """How (d, h, d_head), (h, d, d_head) or (h, d_head, d) becomes (h, d_head, d); for the output, (d, h, d_head)."""
    d, head = shape.index(config["d_model"]), shape.index(config["d_model"] // config["n_heads"])
    heads = ({0, 1, 2} - {d, head}).pop()
    return (d, heads, head) if is_output else (heads, head, d)


# --- feed-forward, norms, tables ------------------------------------------------------------------


def feed_forward_layouts(found: list[Kernel], config: Config) -> Iterator[tuple[str, Layout]]:
    """Two matrices between d_model and d_ff."""
    if len(found) != 2:
        return
    first, second = found if config["d_ff"] in found[0].tensor.shape[: 1 + (not found[0].linear)] else found[::-1]
    by_linear = first.tensor.shape[0] == config["d_ff"]
    view = stored if by_linear else transposed
    label = "two matrices" + ("" if by_linear else ", weights (in, out)")
    layout = with_bias("linear1", first, partial(units, inner=view, dim=0))
    layout["linear2.weight"] = Place((second.pattern,), partial(units, inner=view, dim=1))
    if second.bias is not None:
        layout["linear2.bias"] = Place((second.bias,))
    yield label, layout


def swiglu_layouts(found: list[Kernel], config: Config) -> Iterator[tuple[str, Layout]]:
    """Three matrices, or two with gate and up fused. Names decide which is the gate: one that says so, else w1."""
    down = [k for k in found if k.tensor.shape[0] == config["d_model"]]
    rest = [k for k in found if k not in down]
    if len(down) != 1:
        return
    if len(rest) == 1 and rest[0].tensor.shape[0] == 2 * config["d_ff"]:
        for parts, label in (("gu", "fused [gate | up]"), ("ug", "fused [up | gate]")):
            layout = with_bias("down_proj", down[0], stored)
            for i, letter in enumerate(parts):
                name = "gate_proj" if letter == "g" else "up_proj"
                layout |= with_bias(name, rest[0], partial(block, part=i, inner=stored, parts=parts))
            yield label, layout
    elif len(rest) == 2:
        gates = [k for k in rest if {"gate", "g"} & set(k.words)]
        gates = gates or [k for k in rest if re.search(r"(w|fc|linear)_?1\b", k.pattern.lower())]
        gate = gates[0] if len(gates) == 1 else rest[0]
        up = rest[1] if gate is rest[0] else rest[0]
        inner = partial(units, inner=stored, dim=0)
        layout = with_bias("gate_proj", gate, inner) | with_bias("up_proj", up, inner)
        yield "gate, up and down by name", layout | with_bias("down_proj", down[0], partial(units, inner=stored, dim=1))


def norm_layouts(module: nn.Module, bias: bool) -> Iterator[tuple[str, Layout]]:
    """One vector, or two: weight (gamma, scale, a) and bias (beta, shift, b), which a LayerNorm may do without. The
    weight may be stored less 1."""
    names = [name for name, tensor in module.named_parameters() if tensor.ndim >= 1]
    shifts = [name for name in names if re.search(r"bias|beta|shift|offset|^b(_\d+)?$", name.rsplit(".", 1)[-1])]
    scales = [name for name in names if name not in shifts]
    if len(scales) != 1 or len(shifts) > bias:
        return
    layout = {"weight": Place((scales[0],)), **({"bias": Place((shifts[0],))} if shifts else {})}
    yield "weight", layout
    yield "weight stored minus one", {**layout, "weight": Place((scales[0],), offset=1.0)}


def table_layouts(module: nn.Module, config: Config) -> Iterator[tuple[str, Layout]]:
    """One table of positions (max_len, d_model), perhaps with axes of length 1."""
    names = [name for name, tensor in module.named_parameters() if tensor.shape[-1] == config["d_model"]]
    if len(names) == 1:
        yield f"table {names[0]}", {"weight": Place((names[0],))}

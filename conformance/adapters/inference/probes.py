"""Probes: small experiments on a module that show a convention.

Sizes differ pairwise, so that no axis can pass for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conformance.adapters.inference.calls import Call, output_of, tensors_in
from conformance.adapters.inference.masks import ENCODINGS, SHAPES, Channel, probe
from conformance.adapters.reference import REFERENCE
from conformance.adapters.reference.base import ReferenceSubject
from conformance.protocol import Arrays

SIZES = {
    **{"d_model": 24, "n_heads": 4, "n_kv_heads": 2, "d_ff": 20, "d_k": 10, "max_len": 32},
    **{"vocab": 11, "src_vocab": 11, "tgt_vocab": 13, "n_layers": 2},
}
B, TQ, TK = 3, 5, 7
NORM_EPS = (1e-5, 1e-6, 1e-8, 1e-12)
"""The eps of norms that are tried."""

FITS = 2e-5
"""A fit is equality with the formula to float32 rounding: largest error relative to the largest output."""


def randomise(module: nn.Module) -> None:
    """Random parameters, none zero, one or shared by chance: a forgotten one shows."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread + 0.5 * (parameter.ndim == 1))


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def difference(
    subject: Any,
    inputs: Arrays,
    config: Mapping[str, Any],
    mask: np.ndarray | None = None,
    scale: float = 1.0,
    formula: type[ReferenceSubject] | None = None,
    got: np.ndarray | None = None,
) -> float:
    """How far a subject is from the role's formula with the same parameters; infinite when it does not run.

    scale: the formula's scores are multiplied by it (through its query projection). formula: another one, of a mutant.
    got: what the subject gives for these inputs, if it is known.
    """
    masked = inputs if mask is None else {**inputs, "mask": mask}
    try:
        reference = (formula or REFERENCE[subject.role])(config)
        reference.attributes = {**reference.attributes, **subject.attributes}
        weights = subject.weights()
        reference.load({k: v * scale if "q_proj" in k else v for k, v in weights.items()} if scale != 1.0 else weights)
        got = subject(**masked)["out"] if got is None else got
        expected = reference(**masked)["out"]
    except Exception:
        return float("inf")
    if got.shape != expected.shape:
        return float("inf")
    error = np.abs(got - expected).max() / max(1.0, float(np.abs(expected).max()))
    return float(error) if np.isfinite(error) else float("inf")


def runs(call: Call, module: nn.Module, width: int) -> bool:
    """Whether the call works on inputs of `width`, all of one length."""
    named = {name: noise(2, 3, width) for name in call.names if name in ("query", "key", "value", "memory")}
    try:
        with torch.no_grad():
            call(module, named)
    except Exception:
        return False
    return True


class _Calls(TorchFunctionMode):
    """Whether torch's scaled_dot_product_attention is called."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= func is F.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def is_fused(probe: Probe) -> bool:
    """Whether its attention is torch's scaled_dot_product_attention, which decides what it accepts."""
    with _Calls() as calls, suppress(Exception):
        probe.run(probe.inputs())
    return calls.seen


def same_without(call: Call, module: nn.Module, width: int, parameter: str) -> bool:
    """Whether a call with something else under `parameter` gives the same as one without it."""
    named = {name: noise(2, 3, width) for name in call.names if name in ("query", "key", "value")}
    with torch.no_grad():
        without, given = call(module, named), call(module, named, {parameter: noise(2, 3, width, seed=8)})
    return torch.equal(next(floats(without)), next(floats(given)))


class Probe:
    """A module with its call, run on tensors laid out as it wants them."""

    def __init__(self, module: nn.Module, call: Call, batch_first: bool = True, width: int = SIZES["d_model"]) -> None:
        self.module = module
        self.width = width
        self.call = call
        self.batch_first = batch_first

    def run(self, inputs: Mapping[str, Tensor], masks: Mapping[str, Any] | None = None) -> Tensor:
        """The output (B, Tq, d) for inputs (B, T, d).

        With gradients on: without them nn.MultiheadAttention takes a fast path, and there any shape of a mask.
        """
        turn: Callable[[Tensor], Tensor] = (lambda x: x) if self.batch_first else (lambda x: x.transpose(0, 1))
        with torch.enable_grad():
            result = self.call(self.module, {name: turn(x) for name, x in inputs.items()}, masks)
        return turn(output_of(result, (*turn(inputs["query"]).shape[:2], self.width))).detach()

    def inputs(self, t_query: int = TQ, t_key: int = TK, batch: int = B) -> dict[str, Tensor]:
        """Random inputs for the call's names; self-attention has one length."""
        names = [name for name in ("query", "key", "value", "memory") if name in self.call.names]
        lengths = [t_query if name == "query" else t_key for name in names]
        seeds = {"key": 2, "value": 3, "memory": 4}
        return {
            name: noise(batch, length, SIZES["d_model"], seed=seeds.get(name, 1))
            for name, length in zip(names, lengths, strict=True)
        }


def eps_of(norm: nn.Module, width: int) -> float | None:
    """The eps under the root of a LayerNorm or RMSNorm, by how much it shrinks small inputs; None where there is none:
    it does not normalise, or another number comes out for inputs of another size, as of an eps beside the root."""
    x = noise(4, width)
    x = x - x.mean(-1, keepdim=True)
    found = []
    with torch.no_grad():
        shift, large = norm(torch.zeros_like(x)), norm(1e3 * x)
        for size in 10.0 ** -np.arange(1, 8):
            shrunk = float(((norm(size * x) - shift) / (large - shift)).square().mean())
            if 0.01 < shrunk < 0.95:
                found.append(size**2 * float(x.square().mean()) * (1.0 / shrunk - 1.0))
    if not found or max(found) > 2 * min(found):
        return None
    return min(NORM_EPS, key=lambda eps: abs(log(eps / found[0])))


def batch_axis(probe: Probe) -> tuple[bool, str]:
    """Whether the first axis is the batch: the one whose other slices do not notice a change of slice 0."""
    inputs = probe.inputs(3, 3, 3)
    before = probe.run(inputs)
    for axis in (0, 1):
        moved = {name: x.clone() for name, x in inputs.items()}
        for x in moved.values():
            x.select(axis, 0).add_(noise(3, SIZES["d_model"], seed=9))
        change = (probe.run(moved) - before).abs().narrow(axis, 1, 2).max()
        if change < 1e-6:
            return axis == 0, f"changing slice 0 of axis {axis} changes no other slice"
    return True, "assumed: neither axis keeps its slices apart"


def sight(probe: Probe) -> tuple[int, int]:
    """How many positions ahead of its own, and how many behind, an output sees with no mask given."""
    inputs = probe.inputs(TQ, TQ)
    before = probe.run(inputs)
    ahead, behind = 0, 0
    for at in range(TQ):
        moved = {**inputs, "query": inputs["query"].clone()}
        moved["query"][:, at] += 1.0 + noise(SIZES["d_model"], seed=9)
        change = (probe.run(moved) - before).abs().amax((0, 2))
        seen = [i for i in range(TQ) if not change[i] < 1e-6]  # NaN is seen
        ahead, behind = max([ahead, *[at - i for i in seen]]), max([behind, *[i - at for i in seen]])
    return ahead, behind


def ignores(probe: Probe, name: str) -> bool:
    """Whether an input has no influence at all."""
    inputs = probe.inputs()
    return torch.equal(probe.run(inputs), probe.run({**inputs, name: inputs[name] + 1.0}))


def channels(probe_: Probe, parameters: list[str], heads: int, keys: tuple[str, ...]) -> Iterator[Channel]:
    """The mask parameters that hide something: `keys` are the inputs whose rows the mask hides.

    Hidden is the last key, and in self-attention the first, which a causal module does not hide by itself.
    """
    inputs = probe_.inputs()
    shared = keys == ("query",)
    t_query, t_key = TQ, TQ if shared else TK
    hidden_key, visible_key = (0, 1) if shared else (t_key - 1, 0)
    rows = slice(2, None) if shared else slice(None)

    def moved(at: int) -> dict[str, Tensor]:
        changed = {name: x.clone() for name, x in inputs.items()}
        for name in keys:
            changed[name][:, at] += 1.0 + noise(SIZES["d_model"], seed=9)
        return changed

    for parameter in parameters:

        def leak(encoding: str, shape: str, parameter: str = parameter) -> float | None:
            fixed, cut = SHAPES[shape]
            hidden = slice(None) if 0 in fixed else slice(0, 1)
            mask = torch.ones(B, heads, t_query, t_key, dtype=torch.bool)
            mask[hidden, :, :, hidden_key] = False
            masks = {parameter: ENCODINGS[encoding](cut(mask))}
            try:
                given = (inputs, moved(hidden_key), moved(visible_key))
                base, last, first = (probe_.run(x, masks)[:, rows] for x in given)
            except Exception:
                return None
            if not bool(torch.isfinite(base).all()):
                return None
            seen = [(first - base)[hidden].abs().max()]
            if 0 not in fixed:
                seen.append((last - base)[1:].abs().max())
            return float((last - base)[hidden].abs().max() / max(float(min(seen)), 1e-9))

        def opened(encoding: str, shape: str, parameter: str = parameter) -> Tensor:
            mask = torch.ones(B, heads, t_query, t_key, dtype=torch.bool)
            return probe_.run(inputs, {parameter: ENCODINGS[encoding](SHAPES[shape][1](mask))})

        found = probe(parameter, leak)
        if found is not None:
            yield _of_one_answer(found, opened)


def _of_one_answer(channel: Channel, opened: Callable[[str, str], Tensor]) -> Channel:
    """The channel without the shapes in which a mask that hides nothing gives another answer than in that of the fewest
    axes: further axes may be broadcast against others than those of the scores."""
    answers: dict[str, Tensor] = {}
    try:
        answers |= {shape: opened(channel.encoding, shape) for shape in channel.shapes}
    except Exception:  # it refuses a mask that hides nothing, which tells nothing of the others
        return channel
    first = min(channel.shapes, key=lambda shape: shape.count(","))
    near = 1e-4 * float(answers[first].abs().max()) + 1e-9
    kept = [
        s
        for s, one in answers.items()
        if one.shape == answers[first].shape and (one - answers[first]).abs().max() < near
    ]
    return replace(channel, shapes=tuple(kept))


def floats(result: Any) -> Iterator[Tensor]:
    """The floating tensors of a result."""
    return (tensor for tensor in tensors_in(result) if tensor.is_floating_point())

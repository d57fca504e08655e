"""What a model learns from: the gradients of its answer and of its loss, whether they are right, and what a few
steps along them give."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.record import record
from conformance.adapters.whole.running import RunningModel
from conformance.adapters.whole.used_functions import line_in, text_of
from conformance.adapters.whole.watching import Watching, user_line
from conformance.places import innermost_line
from conformance.protocol import Array, Arrays, NotProvided

RATES = (0.3, 0.03, 0.003)
_FLAGS = 4
"""So many flags are turned."""
_CUTS = r"\.detach\(|no_grad\(|\.data\b"
"""What cuts a gradient off."""


_KEEPS_ITS_RESULT = {"tanh", "sigmoid", "_softmax", "_log_softmax", "exp", "sqrt", "rsqrt", "reciprocal", "relu"}
"""Operations whose gradient is computed from what they gave."""
_STEPS = {"round", "sign", "sgn", "floor", "ceil", "trunc", "heaviside"}
"""Operations whose slope is 0 nearly everywhere."""


class Overwritten(NotProvided):
    """There are no gradients: what the way back needs was written over in place."""


class GradientProbes(RunningModel):
    """Gradients, of a running model."""

    def gradients(
        self, inputs: Mapping[str, Any], cotangent: Array | None = None, of: str = "out"
    ) -> dict[str, Array | None]:
        """The gradient of sum(out * cotangent) (a random one when None), or of "loss", by parameter; None without. Of
        what goes backward in training only, as a stack that runs its layers again, it is that without dropout. Raises
        Overwritten."""
        try:
            return self._gradients(inputs, cotangent, of, training=False)
        except AssertionError:
            raise
        except Exception as error:
            if isinstance(error, NotProvided) and not isinstance(error, Overwritten):
                raise
            with suppress(Exception):
                return self._gradients(inputs, cotangent, of, training=True)
            raise

    def written_over_at(self, inputs: Mapping[str, Any]) -> str | None:
        """file:line that writes in place over what the way back needs, "" where no line is
        seen; None where there are gradients."""
        try:
            self.gradients(inputs)
            return None
        except Overwritten:
            pass
        except Exception:
            return None  # whoever asks for them is told
        with self.mode(False), torch.enable_grad(), _Writes() as writes:
            self.run(inputs)
        written = [one for one in writes.found if _writes_by_its_text(one[1])] or writes.found
        lines = [line for maker, line in written if maker in _KEEPS_ITS_RESULT] or [one for _, one in written]
        return lines[-1] if lines else ""

    def raised_in_training(self, inputs: Mapping[str, Any]) -> tuple[str, str] | None:
        """What it raises in training, in words, and the user's line; None where it runs."""
        try:
            self.in_training(0, **inputs)
        except NotProvided:
            return None  # in training it needs more than it was given
        except Exception as error:
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return words, innermost_line(error).partition(" in ")[0]
        return None

    def reached_as_drawn(self, names: list[str], inputs: Mapping[str, Any]) -> set[str]:
        """Those of these parameters that get a gradient in a model as its constructor draws it. Other weights may leave
        them none: a softmax that is one at a key, and 0 at all others to the last digit, has no slope."""
        found: dict[str, Array | None] = {}
        with suppress(Exception):
            found = self.fresh().gradients(inputs)
        sizes = {name: float(np.abs(g).max(initial=0.0)) for name, g in found.items() if g is not None}
        largest = max(sizes.values(), default=0.0)
        return {name for name in names if sizes.get(name, 0.0) > 1e-13 * largest}

    def cut_off_at(self, name: str, inputs: Mapping[str, Any]) -> str:
        """file:line that cuts off the gradient of a parameter on which the answer depends; "" where it does not, or no
        such line is found in the forward of a part of the user's that holds it."""
        changed = self.twin()
        with suppress(Exception):
            with torch.no_grad():
                changed.module.get_parameter(name).mul_(1.5).add_(0.1)
            if np.array_equal(changed(**inputs)["out"], self(**inputs)["out"], equal_nan=True):
                return ""
            names = name.split(".")
            for depth in range(len(names) - 1, -1, -1):  # the part that holds it, then what holds that
                part = type(self.module.get_submodule(".".join(names[:depth])))
                forward = inspect.unwrap(part.forward)
                if not part.__module__.startswith("torch.") and re.search(_CUTS, text_of(forward)):
                    return line_in(forward, _CUTS)
        return ""

    def reached_by_gaps(self, names: list[str], inputs: Mapping[str, Any]) -> set[str]:
        """Those of these parameters that get a gradient where a number of the input is missing (NaN): what stands in
        its place may be learnt."""
        given = inputs.get("x")
        if given is None or not np.issubdtype(given.dtype, np.floating):
            return set()
        gaps = given.copy()
        gaps.reshape(len(gaps), -1)[::2, ::2] = np.nan
        found: dict[str, Array | None] = {}
        with suppress(Exception):
            found = self.gradients({**inputs, "x": gaps})
        sizes = {name: float(np.abs(g).max(initial=0.0)) for name, g in found.items() if g is not None}
        return {name for name in names if 0.0 < sizes.get(name, 0.0) < np.inf}

    def reached_from_before(self, names: list[str], inputs: Mapping[str, Any]) -> set[str]:
        """Those of these parameters that get a gradient where the numbers handed in want one, too, as what an embedding
        gives does: layers that torch.utils.checkpoint runs again have none where nothing that they read wants one."""

        def wanting(module: nn.Module, args: Any, kwargs: Any) -> Any:
            def of(x: Tensor) -> Tensor:
                return x.detach().requires_grad_().clone() if x.is_floating_point() else x

            return tree_map_only(Tensor, of, (args, kwargs))

        hook = self.module.register_forward_pre_hook(wanting, with_kwargs=True)
        found: dict[str, Array | None] = {}
        try:
            with suppress(Exception):
                found = self.gradients(inputs)
        finally:
            hook.remove()
        sizes = {name: float(np.abs(g).max(initial=0.0)) for name, g in found.items() if g is not None}
        largest = max(sizes.values(), default=0.0)
        return {name for name in names if sizes.get(name, 0.0) > 1e-13 * largest}

    def reached_under_flags(self, names: list[str], inputs: Mapping[str, Any]) -> set[str]:
        """Those of these parameters that get a gradient where a flag, which a part keeps and its forward asks for, is
        turned: a model that is pretrained first has parts for that."""
        reached: set[str] = set()
        flags = [
            (path, name)
            for path, part in self.module.named_modules()
            if not type(part).__module__.startswith("torch.")
            for name, value in vars(part).items()
            if type(value) is bool and name != "training" and _asks_for(part, name)
        ]
        for path, name in flags[:_FLAGS]:
            with suppress(Exception):
                reached |= self._reached_with(path, name, names, inputs)
        return reached

    def _reached_with(self, path: str, flag: str, names: list[str], inputs: Mapping[str, Any]) -> set[str]:
        """Those of these parameters that anything of a result depends on where all flags of this name are turned."""
        twin = self.twin()
        turned = not vars(self.module.get_submodule(path))[flag]
        for part in twin.module.modules():
            if type(vars(part).get(flag)) is bool:
                setattr(part, flag, turned)
        return twin._reached(names, inputs)

    def reached_in_training(self, names: list[str], inputs: Mapping[str, Any]) -> set[str]:
        """Those of these parameters that anything of a result depends on in training mode alone: the noise of a
        router."""
        with suppress(Exception):
            return self.twin()._reached(names, inputs, training=True) - self.twin()._reached(names, inputs)
        return set()

    def _reached(self, names: list[str], inputs: Mapping[str, Any], training: bool = False) -> set[str]:
        """Those of these parameters that anything of a result depends on."""
        parameters = {name: p for name, p in self.module.named_parameters() if name in names}
        with self.mode(training), torch.enable_grad(), default_dtype(self.torch_dtype):
            result = self.module(**self.calling.arguments(self.tensors(inputs)))
        leaves = [one for one in tensors_in(result) if one.requires_grad]
        gradients = torch.autograd.grad(
            leaves, [*parameters.values()], [torch.randn_like(x) for x in leaves], allow_unused=True
        )
        return {name for name, g in zip(parameters, gradients, strict=True) if g is not None and bool(g.any())}

    def columns_of_tables_read(self, gradients: Mapping[str, Array | None]) -> dict[str, tuple[int, int]]:
        """Tables of which only the first or the last half of the numbers of each row, or less, gets a gradient: how
        many, and of how many. Numbers in between may get none by themselves: what comes behind may clip them."""
        tables = {f"{path}.weight" for path, part in self.module.named_modules() if isinstance(part, nn.Embedding)}
        found: dict[str, tuple[int, int]] = {}
        for name, gradient in gradients.items():
            if name not in tables or gradient is None:
                continue
            width, read = gradient.shape[1], np.flatnonzero(np.abs(gradient).max(0, initial=0.0))
            if not len(read) or 2 * len(read) > width:
                continue
            if read[-1] - read[0] + 1 == len(read) and (read[0] == 0 or read[-1] == width - 1):
                found[name] = (len(read), width)
        return found

    def worst_gradient(self, inputs: Arrays) -> tuple[str, float, float, float]:
        """Of all parameters the one whose slope along a random direction differs most from its gradient: its name, the
        error that differences allow, the slope, and the gradient's."""
        generator = torch.Generator().manual_seed(12)
        with torch.no_grad(), self.mode(False):
            answer = self.run(inputs)["out"]
            weight = torch.randn(answer.shape, generator=generator, dtype=torch.float64)
        gradients = self.gradients(inputs, to_array(weight))
        directions = {
            name: torch.randn(p.shape, generator=generator, dtype=torch.float64)
            * max(float(p.detach().double().std(correction=0)), 1e-2)
            for name, p in self.module.named_parameters()
            if p.requires_grad
        }
        for path, part in self.module.named_modules():
            if (
                isinstance(part, nn.Embedding)
                and part.padding_idx is not None
                and (name := f"{path}.weight") in directions
            ):
                directions[name][part.padding_idx] = 0.0  # torch gives the row of padding no gradient

        def slope(names: list[str], step: float) -> float:
            parameters = dict(self.module.named_parameters())
            ends = []
            for sign in (1.0, -1.0):
                with torch.no_grad(), self.mode(False):
                    for name in names:
                        parameters[name].add_(directions[name].to(parameters[name].dtype), alpha=sign * step)
                    ends.append(float((self.run(inputs)["out"].double() * weight).sum()))
                    for name in names:
                        parameters[name].sub_(directions[name].to(parameters[name].dtype), alpha=sign * step)
            return (ends[0] - ends[1]) / (2 * step)

        def of_gradient(names: list[str]) -> float:
            return sum(float((gradients[n] * to_array(directions[n])).sum()) for n in names if gradients[n] is not None)

        def differs(names: list[str]) -> tuple[bool, float, float, float]:
            told = of_gradient(names)
            for step in (1e-5, 1e-6, 1e-7):  # the error of kinks shrinks with the step, that of a mistake does not
                coarse, fine = slope(names, 2 * step), slope(names, step)
                kink = 3 * abs(coarse - fine) + 1e-7 * (
                    abs(fine) + float((answer.double() * weight).abs().sum()) * 1e-4
                )
                wrong = abs(fine - told) > max(1e-4 * abs(fine), kink)
                if not wrong:
                    break
            return wrong, kink, fine, told

        everything = list(directions)
        wrong, error, expected, got = differs(everything)
        if not wrong:
            return everything[0], error, expected, got
        for name in everything:
            wrong, error, expected, got = differs([name])
            if wrong:
                return name, error, expected, got
        return everything[0], abs(expected - got), expected, got

    def rounds(self, name: str, inputs: Arrays) -> bool:
        """Whether what is computed from a parameter is rounded, as quantised weights are: its gradient is meant to be
        another than its slope, which is 0 nearly everywhere."""
        with torch.no_grad(), self.mode(False):
            run = record(self.module, lambda: self.run(inputs))
        found = run.after(value for value in run.values if value.kind == "parameter" and value.name == name)
        makers = (run.producer(value) for value in found)
        return any(op is not None and op.name.removesuffix("_") in _STEPS for op in makers)

    def learns(self, length: int) -> tuple[float, float]:
        """The cross-entropy of the next token on one batch, before and after 5 steps at the first of three rates that
        lowers it, else at the best."""
        inputs = self.example(4, length, seed=30)
        best, before = float("inf"), float("nan")
        for rate in RATES:
            other = self.twin()
            parameters = [p for p in other.module.parameters() if p.requires_grad]
            given = other.tensors(inputs)
            for step in range(6):
                with other.mode(False), torch.enable_grad():
                    logits = other.run(inputs)["out"]
                    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).double(), given["ids"][:, 1:].flatten())
                if step == 0:
                    before = float(loss.detach())
                if not loss.requires_grad:
                    return float(loss), float(loss)
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                norm = sum(float(g.square().sum()) for g in gradients if g is not None) ** 0.5
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        if gradient is not None:
                            parameter.sub_(gradient, alpha=rate / max(norm, 1.0))
            best = min(best, float(loss.detach()))
            if best < before:
                break
        return before, best

    def _gradients(
        self, inputs: Mapping[str, Any], cotangent: Array | None, of: str, training: bool
    ) -> dict[str, Array | None]:
        self.module.zero_grad(set_to_none=True)
        let_go(self.module)
        with self.mode(training), torch.enable_grad():
            for part in self.module.modules() if training else ():
                if isinstance(part, nn.Dropout):
                    part.eval()
            found = self.run(inputs)
            if of not in found:
                raise NotProvided(f"{self.made.name} returns no {of}")
            value = found[of]
            weight = torch.randn(value.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
            if cotangent is not None:
                weight = torch.tensor(cotangent)
            if not value.requires_grad:
                return {name: None for name, p in self.module.named_parameters() if p.requires_grad}
            go_back((value * weight.to(value.dtype)).sum())
        let_go(self.module)
        result = {
            name: None if p.grad is None else to_array(p.grad.double())
            for name, p in self.module.named_parameters()
            if p.requires_grad and p.numel()
        }
        self.module.zero_grad(set_to_none=True)
        return result


class _Writes(Watching):
    """What writes over the result of an operation: the name of this one, and the user's line that writes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._makers: dict[int, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func._schema.is_mutable and args and isinstance(args[0], Tensor):
            maker = self._makers.get(args[0].untyped_storage()._cdata)
            if maker is not None:
                self.found.append((maker, user_line()))
        elif isinstance(result, Tensor):
            self._makers.setdefault(result.untyped_storage()._cdata, name)
        return result


_WRITES = re.compile(r"\][^=<>!]{0,3}(?<![=<>!])=(?!=)|[-+*/@|&]=|\w_\(|inplace=True")


def _writes_by_its_text(line: str) -> bool:
    """Whether a line says that it writes in place: ``x[i] = ``, ``x += ``, ``x.mul_(``. A library writes at others."""
    file, _, number = line.rpartition(":")
    return _WRITES.search(linecache.getline(file, int(number) if number.isdigit() else 0)) is not None


def let_go(module: nn.Module) -> None:
    """What its parts keep of earlier runs, such as a cache that each run writes into, leads back into none of them. A
    cache may be a parameter that wants no gradient."""
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is not None and parameter.grad_fn is not None:
                parameter.detach_()
        for kept in (vars(part), part._buffers):
            for name, value in list(kept.items()):
                if isinstance(value, Tensor) and value.grad_fn is not None:
                    kept[name] = value.detach()


def go_back(total: Tensor) -> None:
    """Raises Overwritten where what the way back needs was written over in place."""
    try:
        total.backward()
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise Overwritten(
            "it has no gradients: what the way back needs is written over in place; "
            "see model-every-parameter-gets-a-gradient"
        ) from error


def _asks_for(part: nn.Module, flag: str) -> bool:
    """Whether the forward of a part asks for one of its flags."""
    return re.search(rf"\bif .*\bself\.{flag}\b", text_of(type(part).forward)) is not None

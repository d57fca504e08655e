"""Models of one vector a text: the methods that answer lists of texts, and the losses that compare pairs of texts."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import T, default_dtype, first_data, quiet_evaluation
from conformance.adapters.whole.losses import LossProbes, loss_candidates, partial_of
from conformance.adapters.whole.softmaxes import WRITTEN_OUT, Softmax, Softmaxes
from conformance.adapters.whole.vector_losses import losses_of_vectors, owner_of
from conformance.adapters.whole.watching import argument, user_line
from conformance.protocol import Array, NotProvided

_ENCODES = re.compile(
    r"(?i)^(encode|embed|get_?embeddings?|vectori[sz]e)(_?(texts?|sentences?|batch|all|documents?))?$"
)
_SIMILARITIES = {"matmul", "__matmul__", "__rmatmul__", "mm", "einsum", "cosine_similarity"}
_TEMPERATURE = re.compile(r"(?i)^(logit_?|softmax_?)?(temp(erature)?|tau)$")
_LOG_SCALE = re.compile(r"(?i)^log(it)?_?scale$")
_LOGARITHM = re.compile(r"(?i)^log(it)?_?(scale|temp(erature)?|tau)$")
_END = re.compile(r"_?(EOT|EOS|END)(_?(ID|IDX|TOKEN|TOKEN_ID))?")
_PAD = re.compile(r"_?PAD(DING)?(_?(ID|IDX|TOKEN|TOKEN_ID))?")
_SCORES = re.compile(r"(?i)(logits?|scores?|sim(s|ilarit(y|ies))?)(_|$)")
LENGTHS = (3, 6, 4, 2, 5)
"""How many words the texts of a list have: no two as many, and in no order."""


@dataclass(frozen=True)
class Contrast:
    """One cross-entropy of the similarities (N, N) of pairs. target: (N,). factor: by which a cosine is multiplied;
    None where it is no constant. matrix: which product it is of; turned: whether of its columns, None where rows and
    columns are the same; made: the line of the product."""

    place: str
    target: Array
    factor: float | None
    matrix: int = 0
    turned: bool | None = None
    made: str = ""


@dataclass(frozen=True)
class Widened:
    """One cross-entropy of the similarities of pairs and of further false partners beside them. blocks: of each product
    the line that made it, and by which number its cosines are multiplied."""

    blocks: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Clamped:
    """A single number that is clamped. power: whether it is the exponential of a parameter, else a parameter itself;
    before: its value; low, high: the bounds; trains: whether it has a gradient behind them, so that it stops where it
    is cut; place: file:line."""

    power: bool
    before: float
    low: float | None
    high: float | None
    trains: bool
    place: str

    @property
    def cut_to(self) -> float | None:
        """The bound that stands for it; None where it lies between them."""
        if self.low is not None and self.before < self.low:
            return self.low
        return self.high if self.high is not None and self.before > self.high else None


@dataclass(frozen=True)
class LearnedScale:
    """A parameter that scales the similarities of pairs. name, value: of it; factor: by which cosines are multiplied;
    power: whether the factor is a power or an inverse of the value; place: the line of the loss; clamps: of the
    parameter itself; clamps_of_power: of its exponential."""

    name: str
    value: float
    factor: float
    power: bool
    place: str
    clamps: list[Clamped]
    clamps_of_power: list[Clamped]


class Similarities(TorchFunctionMode):
    """Records the products of two computed matrices, with their cosines and lines, and the cross-entropies of such; and
    the single numbers that are clamped."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Tensor, Tensor, str]] = []
        self.contrasts: list[Contrast] = []
        self.widened: list[Widened] = []
        self.clamped: list[Clamped] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _SIMILARITIES and isinstance(result, Tensor) and _is_matrix(result):
            cosines = _cosines(name, args, result)
            if cosines is not None:
                self.products.append((result.detach(), cosines, user_line()))
        if name in ("cross_entropy", "nll_loss"):
            given = kwargs.get("input", args[0] if args else None)
            target = kwargs.get("target", args[1] if len(args) > 1 else None)
            if isinstance(given, Tensor) and isinstance(target, Tensor) and _is_matrix(given):
                self._note(given.detach(), target.detach())
        if name in ("clamp", "clip", "clamp_max", "clamp_min"):
            self._note_clamped(name, args, kwargs)
        return result

    def _note_clamped(self, name: str, args: Any, kwargs: Any) -> None:
        given, last = argument(args, kwargs, 0, "input", None), name.removeprefix("clamp_")
        bounds = {last: argument(args, kwargs, 1, last, None)} if "_" in name else {}
        low = bounds.get("min", argument(args, kwargs, 1, "min", None) if "_" not in name else None)
        high = bounds.get("max", argument(args, kwargs, 2, "max", None) if "_" not in name else None)
        if not isinstance(given, Tensor) or given.numel() != 1 or not given.is_floating_point():
            return
        power = given.grad_fn is not None and given.grad_fn.name().startswith("Exp")
        if power or given.is_leaf:
            trains = given.requires_grad and torch.is_grad_enabled()
            ends = number_of(low), number_of(high)
            self.clamped.append(Clamped(power, float(given.detach()), *ends, trains, user_line()))

    def _note(self, given: Tensor, target: Tensor) -> None:
        if target.is_floating_point() or target.shape != given.shape[:1]:
            return
        if not _is_square(given):
            self._note_wider(given)
            return
        for at, (result, cosines, made) in reversed(list(enumerate(self.products))):
            if result.shape != given.shape:
                continue
            alike = torch.allclose(result, result.t())
            for turned, one, cosine in ((False, result, cosines), (True, result.t(), cosines.t())):
                if _ratio(given, one) is not None:
                    side = None if alike else turned
                    factor = _ratio(given, cosine)
                    self.contrasts.append(Contrast(user_line(), to_array(target), factor, at, side, made))
                    return

    def _note_wider(self, given: Tensor) -> None:
        blocks = []
        for result, cosines, line in self.products:
            width = result.shape[1]
            cuts = [given[:, at : at + width] for at in range(given.shape[1] - width + 1)]
            factors = [_ratio(cut, cosines) for cut in cuts if _ratio(cut, result) is not None]
            blocks += [(line, factor) for factor in factors[:1] if factor is not None]
        if len(blocks) > 1:
            self.widened.append(Widened(tuple(blocks)))


def _is_matrix(one: Tensor) -> bool:
    return one.dim() == 2 and min(one.shape) > 1 and one.is_floating_point()


def _is_square(one: Tensor) -> bool:
    return _is_matrix(one) and one.shape[0] == one.shape[1]


def _cosines(name: str, args: Any, result: Tensor) -> Tensor | None:
    """The cosines of the vectors that a product compares; None where one of its factors is a parameter."""
    factors = [one for one in args if isinstance(one, Tensor)]
    if name == "cosine_similarity":
        return result.detach()
    if len(factors) != 2 or any(one.dim() != 2 or one.is_leaf for one in factors):
        return None
    first, second = (one.detach() for one in factors)
    for other in (second, second.t()):
        for one in (first, first.t()):
            if one.shape[1] == other.shape[0] and torch.allclose(one @ other, result.detach()):
                return F.normalize(one, dim=1) @ F.normalize(other, dim=0)
    return None


def _ratio(one: Tensor, other: Tensor) -> float | None:
    """The number that `other` is multiplied by to be `one`; None where there is none."""
    number = float((one * other).sum() / (other * other).sum().clamp(min=1e-30))
    close = torch.allclose(one, number * other, rtol=1e-5, atol=1e-7 * float(one.abs().max()))
    return number if close and number != 0 else None


def _each_has_one(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == count


def _different(value: Tensor, count: int) -> Tensor:
    """The inputs of `count` samples, no two alike: words in turned order, other numbers."""
    if value.is_floating_point():
        noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        return value + noise.to(value.dtype)
    return torch.stack([row.roll(at, 0) if row.dim() else row for at, row in enumerate(value)])


class EmbeddingProbes(LossProbes):
    """The experiments with vectors of texts, of a running model."""

    def contrasts(self) -> list[Contrast]:
        """The cross-entropies of similarities of pairs in its losses. Raises NotProvided."""
        found = self._of_losses()[0].contrasts
        if not found:
            raise NotProvided("none of its losses compares pairs within a batch")
        return found

    def softmaxes_of_losses(self) -> list[Softmax]:
        """Those that are written out in its losses, and the cross-entropies of pairs. Raises NotProvided."""
        found = self._of_losses()[1]
        if not found:
            raise NotProvided("none of its losses writes a softmax out")
        return found

    def _of_losses(self) -> tuple[Similarities, list[Softmax]]:
        """What is seen where its losses are run."""
        if "of losses" not in self.known:
            seen, written, of_pairs = Similarities(), Softmaxes(*WRITTEN_OUT), Softmaxes("cross_entropy", *WRITTEN_OUT)
            with suppress(NotProvided), seen, written:
                replace(self.as_written(), known={}).loss_runs()
            with suppress(NotProvided), seen, of_pairs:
                self._losses_of_pairs()
            with seen, of_pairs, default_dtype(self.torch_dtype), torch.enable_grad():
                for loss, given in losses_of_vectors(self.module):
                    with suppress(Exception):  # it may want them in another form
                        loss(**given)
            self.known["of losses"] = seen, written.seen + of_pairs.seen
        found: tuple[Similarities, list[Softmax]] = self.known["of losses"]
        return found

    def learned_scales(self) -> list[LearnedScale]:
        """The parameters by which cosines are scaled in its cross-entropies of pairs. Raises NotProvided."""
        factors = {one.factor: one.place for one in self.contrasts() if one.factor is not None}
        clamped = self._of_losses()[0].clamped
        found = []
        for name, parameter in self.module.named_parameters():
            value = number_of(parameter)
            if value is None or not parameter.requires_grad:
                continue
            of_it = [one for one in clamped if not one.power and _near(one.before, value)]
            of_power = [one for one in clamped if one.power and _near(one.before, _exp(value))]
            ends = [end for one in of_power if (end := one.cut_to) is not None]
            ends += [_exp(end) for one in of_it if (end := one.cut_to) is not None]
            powers = [x for x in (_exp(value), _exp(-value), 1 / value if value else None, *ends) if x]
            for factor, place in factors.items():
                power = any(_near(abs(factor), abs(x)) for x in powers)
                if power or _near(abs(factor), abs(value)):
                    found.append(LearnedScale(name, value, factor, power, place, of_it, of_power))
        if not found:
            raise NotProvided("no learned scale is seen in its similarities of pairs")
        return found

    def as_written(self) -> Self:
        """A copy whose losses may call a forward that compares pairs: that of one side does not stand for it."""
        twin = self.twin()
        if self.pairs is not None:
            vars(twin.module).pop("forward", None)
        return twin

    def pair_scores(self, fewer: int = 0) -> Array:
        """(N, N): the scores that forward gives pairs of samples; fewer: of the batch without its last samples.
        Raises NotProvided."""
        return to_array(self.tables_of_pairs(fewer)[0].detach())

    def arguments_of_pairs(self, fewer: int = 0) -> dict[str, Any]:
        """What a forward that compares pairs is given: samples that differ; fewer: without the last ones. Raises
        NotProvided."""
        if self.pairs is None:
            raise NotProvided("its forward compares no pairs")
        with default_dtype(self.torch_dtype):
            first = first_data(self.pairs, self.pairs.main.length or T)
            data = {name: torch.cat([x, x[:2]]) for name, x in first.items()}
            whole = len(next(iter(data.values())))
            return {
                name: _different(x, whole)[: whole - fewer] if _each_has_one(x, whole) else x
                for name, x in self.pairs.arguments(data).items()
            }

    def tables_of_pairs(self, fewer: int = 0) -> list[Tensor]:
        """The tables (N, N) that forward gives, at least one. With gradients on: so parameters are told from what was
        computed. Raises NotProvided."""
        given = self.arguments_of_pairs(fewer)
        try:
            with default_dtype(self.torch_dtype), quiet_evaluation(self.module), torch.enable_grad():
                result = type(self.module).forward(self.module, **given)
        except Exception as error:  # one side was run so far, and the other may ask for another form or dtype
            raise NotProvided(f"its forward does not run on pairs: {type(error).__name__}: {error}") from error
        count = next((len(x) for x in given.values() if isinstance(x, Tensor) and x.dim()), 0)
        tables = [one for one in tensors_in(result) if _is_square(one) and len(one) == count]
        if not tables:
            raise NotProvided("what its forward gives pairs is no table of one number each")
        return tables

    def padded_texts(self) -> tuple[Array, Array]:
        """The scores of pairs whose texts stop at their end token, and of the same with padding behind it. Raises
        NotProvided where the file does not say which words these are."""
        known = vars(sys.modules[type(self.module).__module__])
        end, pad = (
            [value for name, value in known.items() if one.fullmatch(name) and type(value) is int]
            for one in (_END, _PAD)
        )
        given = self.arguments_of_pairs()
        texts = [
            name for name, x in given.items() if isinstance(x, Tensor) and x.dim() == 2 and not x.is_floating_point()
        ]
        if len(texts) != 1 or len(end) != 1 or len(pad) != 1:
            raise NotProvided("its file does not say how texts of pairs end")
        text = given[texts[0]].clone()
        text[text == pad[0]] = text.max() + 1
        text[text == end[0]] = text.max() + 1
        text[:, -1] = end[0]
        longer = torch.cat([text, torch.full_like(text[:, :2], pad[0])], 1)
        scores = []
        with default_dtype(self.torch_dtype), quiet_evaluation(self.module):
            for one in (text, longer):
                result = type(self.module).forward(self.module, **given | {texts[0]: one})
                scores.append(to_array(next(iter(tensors_in(result)))))
        return scores[0], scores[1]

    def _losses_of_pairs(self) -> None:
        """Runs the losses beside the model that take the scores of pairs, and those of its that take the pairs. Raises
        NotProvided."""
        scores, pairs = self.tables_of_pairs(), self.arguments_of_pairs()
        for name, function in vars(sys.modules[type(self.module).__module__]).items():
            if inspect.isfunction(function) and "loss" in name.lower():
                taken = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
                if 0 < len(taken) <= len(scores) and all(_SCORES.match(p.name) for p in taken):
                    with suppress(Exception):  # it may want them in another form
                        function(*scores[: len(taken)])
        for _, function, method in loss_candidates(self):
            wanted = list(inspect.signature(function).parameters.values())[1:]
            given = {one.name: pairs[one.name] for one in wanted if one.name in pairs}
            call = partial_of(function, self.as_written().module, method)
            if all(one.name in given for one in wanted if one.default is one.empty):
                # With gradients on: so parameters are told from what was computed.
                with suppress(Exception), default_dtype(self.torch_dtype), torch.enable_grad():
                    call(**given)

    def temperatures(self) -> dict[str, float]:
        """What it calls a temperature, by name, as what similarities are divided by."""
        found: dict[str, float] = {}
        beside = [loss for loss, _ in losses_of_vectors(self.module)]
        for loss in beside:
            defaults = {p.name: p.default for p in inspect.signature(loss).parameters.values()}
            found |= {n: float(v) for n, v in defaults.items() if _TEMPERATURE.match(n) and type(v) is float and v > 0}
        for part in [*self.module.modules(), *filter(None, map(owner_of, beside))]:
            holders = [part, *(getattr(part, name, None) for name in ("config", "cfg", "args"))]
            for holder in holders:
                items = holder if isinstance(holder, Mapping) else dict(getattr(holder, "__dict__", {}))
                for name, value in [*items.items(), *(part.named_parameters(recurse=False) if holder is part else ())]:
                    number = number_of(value)
                    if number is not None and isinstance(name, str) and _TEMPERATURE.match(name) and number > 0:
                        found[name] = number
                    if number is not None and isinstance(name, str) and _LOG_SCALE.match(name):
                        found[name] = math.exp(-number)
        return found

    def logarithms(self) -> dict[str, float]:
        """The parameters that hold the logarithm of a scale or a temperature: their names say so, or the line that
        makes them."""
        return {
            name: number
            for part in self.module.modules()
            for name, value in part.named_parameters(recurse=False)
            if _LOGARITHM.match(name) and (number := number_of(value)) is not None
            if not name.lower().startswith("logit") or self.line_of(rf"\b{name}\s*(:.*)?=.*\blog\(")
        }

    def listed(self) -> Iterator[tuple[str, str, Callable[[list[list[int]]], Array]]]:
        """Its methods that answer lists of texts, given as lists of words: name, line, and the answers (N, d)."""
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            names = list(inspect.signature(function).parameters.values())[1:]
            needed = [one.name for one in names if one.default is one.empty]
            if not _ENCODES.match(name) or function.__module__.startswith("torch.") or len(needed) != 1:
                continue
            few = {one.name: 2 for one in names if re.fullmatch(r"batch_?size|bs|chunk(_?size)?", one.name.lower())}

            def answers(texts: list[list[int]], function: Any = function, few: Any = few) -> Array:
                twin = self.twin()
                with quiet_evaluation(twin.module), default_dtype(twin.torch_dtype):
                    made = function(twin.module, [list(text) for text in texts], **few)
                rows = [torch.as_tensor(row) for row in made]
                if len(rows) != len(texts) or any(row.dim() != 1 or not row.is_floating_point() for row in rows):
                    raise NotProvided("it gives no vector for each text")
                return to_array(torch.stack(rows).double())

            yield name, self.line_of(rf"def {name}\b"), answers

    def texts(self) -> list[list[int]]:
        """Texts of several lengths."""
        rng = np.random.default_rng(70)
        return [self.tokens(rng, self.calling.main.meaning, (length,)).tolist() for length in LENGTHS]


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def number_of(value: Any) -> float | None:
    """A single number, of a tensor or plain; None for anything else."""
    if isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point():
        return float(value.detach())
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

"""Taps on modules: which outermost module is called in which mode and with what, and what its parts are fed."""

from __future__ import annotations

import hashlib
import sys
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.watch.calls import Calls
from conformance.watch.events import Forward, Mode
from conformance.watch.inputs import spread_of
from conformance.watch.losses import array
from conformance.watch.repeating import Call
from conformance.watch.tensors import samples, tensors, windows
from conformance.watch.watcher import Watcher, place, users_frames

_DROPS = (nn.modules.dropout._DropoutNd,)
_NORMS = (nn.modules.batchnorm._BatchNorm,)
_LOSSES = (nn.modules.loss._Loss,)


def tap(watcher: Watcher) -> None:
    taps = _Modules(watcher)
    watcher.on_close(nn.modules.module.register_module_forward_pre_hook(taps.begin).remove)
    watcher.on_close(nn.modules.module.register_module_forward_hook(taps.end, always_call=True).remove)
    watcher.around(nn.Module, "train", taps.train)
    watcher.around(F, "embedding", taps.embedding)
    watcher.around(F, "dropout", taps.dropout)
    watcher.around(F, "scaled_dot_product_attention", taps.attention)


class _Modules(Calls):
    """The taps. setting: how deep in setting a mode we are."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.setting = 0

    def probability(self, part: Any) -> float | None:
        if isinstance(part, _DROPS):
            return float(part.p)
        if isinstance(part, nn.MultiheadAttention):
            return float(part.dropout)
        if isinstance(part, nn.RNNBase):
            return float(part.dropout) if part.num_layers > 1 else 0.0  # it drops between layers
        return None

    def is_norm(self, part: Any) -> bool:
        return isinstance(part, _NORMS)

    def begin(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        watcher = self.watcher
        if watcher.is_blind() or isinstance(module, _LOSSES):
            return
        watcher.depth += 1
        self.use(module)
        if watcher.depth == 1:
            frame = _forward_by_hand()
            if frame is not None and frame is watcher.direct:
                return
            watcher.direct = frame
            keywords = _keywords(sys._getframe(1)) if frame is None else _arguments(frame)
            if frame is not None:
                module, inputs = frame.f_locals["self"], ()
            gradients, autocast = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
            watcher.called(gradients)
            with watcher.looking():
                self._outermost(module, inputs, gradients, autocast)
            if watcher.is_close and gradients:
                self._keep(module, inputs, keywords)

    def end(self, module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        watcher = self.watcher
        if watcher.is_blind() or isinstance(module, _LOSSES):
            return
        watcher.depth = max(watcher.depth - 1, 0)
        if watcher.is_close:
            given = [*tensors(result, 2)]
            watcher.seen.results = [*watcher.seen.results, *given][-8:]
            for one in given:
                if not one.is_nested and one.dim() >= 2:
                    watcher.seen.answers[one.shape[-1]].appendleft(one.detach())

    def _outermost(self, module: nn.Module, inputs: tuple[Any, ...], gradients: bool, autocast: bool) -> None:
        watcher = self.watcher
        number = self.known(module)
        given = list(tensors(inputs, 3))
        if watcher.until == "eval" and gradients and self._was_evaluated(number):
            watcher.end("an evaluation was watched")
        state = torch.get_rng_state().numpy().tobytes()
        self.begun(
            module,
            gradients,
            generator=hash(state),
            state=hashlib.sha256(state).hexdigest() if watcher.keeps_moments else "",
            samples=samples(given),
            columns=samples(given, 1),
            windows=windows(given),
            autocast=autocast,
            spread=spread_of(given),
        )

    def _was_evaluated(self, number: int) -> bool:
        """Whether the last call of a module recorded no graph, after a step."""
        calls = (e for e in reversed(self.watcher.run.events) if isinstance(e, Forward) and e.module == number)
        last = next(calls, None)
        return last is not None and not last.gradients and last.step > 0

    def _keep(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        number = self.watcher.number("module", module)
        self.watcher.calls[number] = Call(number, module, arguments, keywords)

    def train(self, original: Any, module: nn.Module, mode: bool = True) -> nn.Module:
        self.setting += 1
        try:
            result: nn.Module = original(module, mode)
        finally:
            self.setting -= 1
        if not self.setting:
            number = self.watcher.number("module", module)
            self.watcher.add(Mode(module=number, training=bool(mode)))
            if mode:
                self.own(number, module)
        return result

    def embedding(self, original: Any, input: Tensor, weight: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        if self.watcher.is_close and isinstance(input, Tensor):
            pad = keywords.get("padding_idx", rest[0] if rest else None)
            with self.watcher.looking():
                self.watcher.seen.inputs.append((array(input).copy(), weight.shape[0], pad))
        self._name_samples(input)
        result: Tensor = original(input, weight, *rest, **keywords)
        return result

    def dropout(
        self, original: Any, input: Tensor, p: float = 0.5, training: bool = True, *rest: Any, **keywords: Any
    ) -> Tensor:
        self._drops(p if training else 0.0)
        result: Tensor = original(input, p, training, *rest, **keywords)
        return result

    def attention(
        self, original: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **keywords: Any
    ) -> Tensor:
        self._drops(keywords.get("dropout_p", rest[1] if len(rest) > 1 else 0.0))
        result: Tensor = original(query, key, value, *rest, **keywords)
        return result

    def _drops(self, p: float) -> None:
        """A function drops, whatever the mode of the model is."""
        last = self.watcher.last_forward
        if p > 0 and last is not None and self.watcher.depth and not last.training and not last.dropping:
            last.dropping = (*last.dropping, place())

    def _name_samples(self, ids: Tensor) -> None:
        """A module that is called by keywords gets the fingerprints of its rows from the ids that it looks up."""
        last = self.watcher.last_forward
        if last is not None and not last.samples and isinstance(ids, Tensor) and ids.dim() == 2:
            with self.watcher.looking():
                last.samples, last.columns, last.windows = samples([ids]), samples([ids], 1), windows([ids])


def _forward_by_hand() -> FrameType | None:
    """The outermost `model.forward(...)` that a script calls itself, past the model's __call__."""
    found = None
    for frame in users_frames():
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        found = frame if isinstance(owner, nn.Module) and not isinstance(owner, _LOSSES) else found
    return found


def _keywords(frame: FrameType) -> dict[str, Any]:
    """What a module is called with by name: torch's own frame around its hooks knows it."""
    found = frame.f_locals.get("kwargs")
    return dict(found) if isinstance(found, dict) else {}


def _arguments(frame: FrameType) -> dict[str, Any]:
    """What a call of forward was given, by the names of its parameters."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: frame.f_locals[name] for name in names if name != "self" and name in frame.f_locals}

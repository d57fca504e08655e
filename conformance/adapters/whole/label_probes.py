"""The labels of a model's loss: which it ignores, by how many places they are shifted, and which tokens it teaches."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from contextlib import suppress
from types import ModuleType

import torch

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import Calling
from conformance.adapters.whole.losses import LossProbes
from conformance.adapters.whole.usage import surroundings
from conformance.adapters.whole.used_functions import text_of
from conformance.protocol import Array, NotProvided

_SHIFTS = re.compile(
    r"(labels?|targets?)\W{1,3}(= |are |is )?(the )?(input[_ ]?ids|tokens? themselves|ids themselves|inputs themselves)"
    r"(?!\W+(\w+\W+){0,3}shifted)"
    r"|(?<!no )(?<!not )(?<!never )shift(ed|s)? ((happens|takes place|is (done|made)) )?"
    r"((in )?here|inside|internally|in the model|in forward)"
    r"|\b(not|never) (yet |already )?shifted by the (loader|caller|data)"
    r"|(labels?|targets?)\W{1,3}(are |is )?(token )?(ids )?aligned with (the )?\W?"
    r"(input[_ ]?ids|tokens?|ids|inputs?)\b"
    r"|(labels?|targets?)\s*:[^.]{0,60}\b(not|un)[- ]?shifted\b(?!\W+(\w+\W+)?(here|inside|in (the )?(model|forward)))",
    re.I,
)
_SHIFTED = re.compile(
    r"(?<!not )(already|pre)[- ]?shifted|(?<!not )(?<!never )(?<!yet )(?<!already )shifted by the (loader|caller|data)"
    r"|aligned (from|by)"
    r"|(labels|targets)\W{1,3}\w* ?next tokens?|next tokens? (of|for|at) (every|each) position",
    re.I,
)
_MAKES_BATCHES = re.compile(r"collat|batch|prepare", re.I)
_ARE_THE_INPUTS = re.compile(
    r"""\blabels["']?\]?\s*[=:]\s*(\w+\[["'])?(input_ids|ids|tokens)(["']\])?\.(clone\(|masked_fill\()"""
)


class LabelProbes(LossProbes):
    """The labels, of a running model."""

    def ignored_label(self) -> int | None:
        """The label that its loss ignores: what its code says, -100 where it says nothing and calls torch's loss."""
        for _, source, _, _ in self.sources():
            found = re.search(r"ignore_index\s*=\s*(-?\d+)", source)
            if found:
                return int(found.group(1))
            if re.search(r"ignore_index\s*=\s*[\w.]*pad", source, re.I) and self.pad_id is not None:
                return self.pad_id
            if re.search(r"ignore_index\s*=\s*[\w.]+\s*[,)]", source) and (told := self._told_to_ignore()) is not None:
                return told
        if self.line_of(r"cross_entropy|CrossEntropyLoss|nll_loss|NLLLoss"):
            return -100
        with suppress(NotProvided):  # its loss may stand in another file
            return -100 if any(c.of_classes for run in self.loss_runs() if run.own for c in run.criteria) else None
        return None

    def _told_to_ignore(self) -> int | None:
        """The label that the loss of its forward is told to ignore when it runs."""
        with suppress(NotProvided):
            return next((c.ignored for run in self.loss_runs() if run.own for c in run.criteria if c.of_classes), None)
        return None

    def says_shift(self) -> int | None:
        """By how many places the model itself shifts labels, as its author says: 1 where they are the inputs, 0 where
        the caller has shifted them; None where the text says neither, or both. A function beside it that makes batches
        says so, too, and so does a call that hands the inputs in as labels."""
        sources = (source.replace("*not*", "not") for cls, source, _, _ in self.sources() if cls is type(self.module))
        text = " ".join(" ".join(source.split()) for source in sources)
        inside, before = bool(_SHIFTS.search(text)), bool(_SHIFTED.search(text))
        inside = inside or _makes_labels_of_inputs(type(self.module).__module__)
        inside = inside or _is_handed_inputs_as_labels(type(self.module), self.calling)
        return None if inside == before else int(inside)

    def taught(self, inputs: dict[str, Array]) -> Array:
        """Which token the loss teaches at each position, ``(B, T)``: the one whose logit it raises, or -1.
        Read from the gradient of the loss, so that smoothing, weights and other losses beside it do not matter."""
        with self.mode(False), torch.enable_grad():
            found = self.run(inputs)
            if "loss" not in found or "out" not in found or found["out"].ndim < 3 or not found["out"].requires_grad:
                raise NotProvided("it returns no loss beside its logits")
            (gradient,) = torch.autograd.grad(found["loss"], found["out"], allow_unused=True)
        if gradient is None:
            raise NotProvided("its loss is not computed from the logits that it returns")
        lowest, token = gradient.min(-1)
        silent = lowest > -1e-3 * gradient.abs().max()
        return to_array(torch.where(silent, -1, token))


def _makes_labels_of_inputs(file: str) -> bool:
    """Whether a function of a module that makes batches takes the inputs as labels, and moves none."""
    functions = [one for one in vars(sys.modules.get(file, object())).values() if inspect.isfunction(one)]
    own = [text_of(one) for one in functions if one.__module__ == file and _MAKES_BATCHES.search(one.__name__)]
    return any(_ARE_THE_INPUTS.search(text) and not re.search(r"\b1\s*:|roll|shift", text) for text in own)


def _is_handed_inputs_as_labels(cls: type, calling: Calling) -> bool:
    """Whether every training step beside a class gives its labels what it gives as inputs, as in
    ``model(batch, labels=batch)``. A call that trains nothing may only try out whether the model runs."""
    module = sys.modules.get(cls.__module__)
    if not isinstance(module, ModuleType) or not calling.labels:
        return False
    around = surroundings(module)
    alike = [
        ast.dump(word.value) == ast.dump(inputs)
        for source in around.sources
        if source.path == around.path or cls.__name__ in source.text
        for call, scope in source.calls
        if "step" in (called := _methods_called_in(scope.node)) and "backward" in called
        for word in call.keywords
        if word.arg == calling.labels
        for inputs in [w.value for w in call.keywords if w.arg == calling.main.parameter] or call.args[:1]
    ]
    return bool(alike) and all(alike)


def _methods_called_in(node: ast.AST) -> set[str]:
    calls = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {function.attr for function in calls if isinstance(function, ast.Attribute)}

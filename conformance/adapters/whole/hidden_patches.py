"""Masked autoencoders: which patches did the answer see, and does the mask that forward gives tell these?

What was seen is read from the gradient of the answer by the image. The mask may count its patches in any order, as long
as it is always the same one; and it may be True for what is seen or for what is hidden.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.pads import PadProbes
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

_NAMES = re.compile(r"(?i)masked_?auto_?enc|masked_?image|sim_?mim|(^|[a-z_])MAE(?![a-z])|^mae")
_SAYS = re.compile(r"(?i)masked auto-?encod|masked image model")
_SEEDS, _ROWS = range(8), 3
_FEWEST = 4
"""Of fewer patches too many masks are alike by chance."""
_FRONT = 4
"""So many tokens may stand in front of those of patches: of a class, registers."""


@dataclass(frozen=True)
class Hidden:
    """What a few runs show. seen: (runs, numbers of an input) of bool; masks: (runs, patches) of bool."""

    seen: Tensor
    masks: Tensor

    def is_told(self) -> bool:
        """Whether each part of the input is seen or hidden as one place of the mask says."""
        return any(_columns(self.seen) <= _columns(masks) for masks in (self.masks, ~self.masks))

    def has_as_many(self) -> bool:
        """Whether in each run as large a part is seen as the mask says."""
        part = self.seen.double().mean(1)
        return any(torch.allclose(part, masks.double().mean(1)) for masks in (self.masks, ~self.masks))


class HiddenPatchProbes(PadProbes):
    """The experiments, of a running model."""

    def hidden_patches(self) -> Hidden:
        """What was seen and what the mask says. Raises NotProvided where forward draws no mask that it gives, where
        everything is seen, or where patches overlap."""
        found = self._seen_and_masks()
        if bool(found.seen.all()) or len(_columns(found.seen)) > found.masks.shape[1] or not found.has_as_many():
            raise NotProvided("which patches it saw is not told by gradients")
        return found

    def sees_hidden_patches(self) -> bool:
        """Whether the answer depends on every number of its input, though a mask was drawn. Raises NotProvided where
        forward gives no such mask, or nothing says that it is a masked autoencoder."""
        cls = type(self.module)
        heading = f"{cls.__doc__ or ''}\n{getattr(sys.modules.get(cls.__module__), '__doc__', None) or ''}"
        if not (_NAMES.search(cls.__name__) or _SAYS.search(heading)):
            raise NotProvided("nothing says that it is a masked autoencoder")
        return bool(self._seen_and_masks().seen.all())

    def _seen_and_masks(self) -> Hidden:
        if "hidden_patches" not in self.known:
            self.known["hidden_patches"] = self._runs()
        found: Hidden = self.known["hidden_patches"]
        return found

    def _runs(self) -> Hidden:
        seen, masks = [], []
        for seed in _SEEDS:
            x, result = self._drawn(seed, constant=False)
            mask = _mask_of(result, len(x))
            answer = next((t for t in result if t.requires_grad and t.dim() > 2), None)
            if mask is None or answer is None:
                raise NotProvided("forward gives no answer with a mask that it drew")
            (slope,) = torch.autograd.grad(answer.square().sum(), x)
            seen.append(slope.flatten(1) != 0)
            masks.append(mask)
        if any(mask.shape != masks[0].shape for mask in masks) or all(torch.equal(mask, masks[0]) for mask in masks):
            raise NotProvided("its mask is the same in every run")
        return Hidden(torch.cat(seen), torch.cat(masks))

    def places_of_visible_patches(self) -> tuple[bool, bool]:
        """Whether, of an image of one colour, the tokens of visible patches differ from each other, and whether they
        depend on which patches are visible. Raises NotProvided where no part takes visible patches only."""
        if len(self.calling.main.shape) != 3:
            raise NotProvided("its input is no image")
        runs: list[list[Tensor]] = []
        for seed in _SEEDS[:3]:
            tokens: list[Tensor] = []
            handles = [part.register_forward_hook(_keeps(tokens)) for part in self.module.modules()]
            try:
                x, result = self._drawn(seed, constant=True)
            finally:
                for handle in handles:
                    handle.remove()
            mask = _mask_of(result, len(x))
            if mask is None:
                raise NotProvided("forward gives no mask that it drew")
            runs.append(list(_of_visible(tokens, mask)))
        if not all(runs) or len({len(run) for run in runs}) > 1:
            raise NotProvided("no part of it takes visible patches only")
        last = torch.cat([run[-1] for run in runs])
        size = float(last.abs().max())
        apart = float((last - last[:, -1:])[:, _FRONT:].abs().max()) if last.shape[1] > _FRONT + 1 else 0.0
        apart = max(apart, float((last[:, -1] - last[:, -2]).abs().max()))
        return apart > 1e-6 * size, float((last - last[:1]).abs().max()) > 1e-6 * size

    def _drawn(self, seed: int, constant: bool) -> tuple[Tensor, list[Tensor]]:
        """The input and the tensors of one run. Raises NotProvided where it takes more than numbers, or fails."""
        if self.calling.main.meaning != "x" or self.calling.two_sided:
            raise NotProvided("its input is no numbers")
        x = self.tensors(self.example(_ROWS, seed=93))["x"]
        x = (torch.ones_like(x) if constant else x.clone()).requires_grad_()
        try:
            with self.mode(False), torch.enable_grad(), default_dtype(self.torch_dtype):
                seed_torch(seed)
                return x, list(tensors_in(self.module(**self.calling.arguments({"x": x}))))
        except Exception as error:
            raise NotProvided(f"it does not run with a gradient: {error}") from error


def _columns(table: Tensor) -> set[tuple[bool, ...]]:
    return {tuple(column) for column in table.T.unique(dim=0).tolist()}


def _mask_of(result: list[Tensor], rows: int) -> Tensor | None:
    """The result (B, N) that is 0 or 1 everywhere, and both in each row, as bool."""
    for one in result:
        if one.dim() == 2 and len(one) == rows and one.shape[1] >= _FEWEST and not one.requires_grad:
            mask = one.detach() == 1
            if bool((mask | (one == 0)).all()) and bool(mask.any(1).all()) and not bool(mask.all(1).any()):
                return mask
    return None


def _keeps(tokens: list[Tensor]) -> object:
    def hook(_: nn.Module, __: object, result: object) -> None:
        tokens.extend(one.detach() for one in tensors_in(result) if one.dim() == 3 and one.is_floating_point())

    return hook


def _of_visible(tokens: list[Tensor], mask: Tensor) -> Iterator[Tensor]:
    """The vectors of as many tokens as are visible, with a few in front. Visible are the fewer, or those that are 0."""
    for count in dict.fromkeys([int((~mask).sum(1)[0]), int(mask.sum(1)[0])]):
        found = [one for one in tokens if len(one) == len(mask) and count <= one.shape[1] <= count + _FRONT]
        found = [one for one in found if one.shape[1] < mask.shape[1]]
        if len(found) > 1 and count > 1:
            yield from found
            return

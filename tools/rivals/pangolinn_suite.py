"""The model as pangolinn wants it: a wrapper that takes vectors and lengths, for its tests of causality and padding.

pangolinn differentiates by its input, so the vectors stand in for those of the model's table of tokens. Its test that
answers to padding are zero is left out: it is a convention.
"""

from __future__ import annotations

from typing import Any

import torch
from pangolinn import seq2seq
from torch import LongTensor, Tensor, nn

from tools.rivals.given import TEACHES_THE_NEXT, asked_for

LONGEST = 27
"""The longest input of pangolinn's tests."""
GIVEN = asked_for(LONGEST + 1)
WORD, OTHER, TARGETS = 5, 6, 4


class _Wrapper(seq2seq.PangolinnSeq2SeqModuleWrapper):
    """Vectors in the place of the input `wanted`, and whatever else the model needs. answers: how many there are for
    each input, 0 for as many as it is long."""

    wanted = ""
    answers = 0

    def build_module(self) -> nn.Module:
        self.given = GIVEN
        self.table = next(
            (part for part in self.given.subject.module.modules() if self._is_table(part)), None
        )  # None for numbers
        return self.given.subject.module

    def _is_table(self, part: nn.Module) -> bool:
        """Whether a part looks up the wanted words."""
        seen: list[Tensor] = []
        if not isinstance(part, nn.Embedding) or self.wanted == "x":
            return False
        hook = part.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        try:
            with torch.no_grad():
                self.given.run(self.given.subject.module, self._words(torch.LongTensor([6, 6])))
        finally:
            hook.remove()
        return any(bool((ids == WORD).any()) for ids in seen)

    def _words(self, lengths: LongTensor) -> dict[str, Tensor]:
        """WORD in the wanted input, padding behind it, OTHER in the other input."""
        at = torch.arange(int(lengths.max()))
        real = at < lengths[:, None]
        pad = self.given.subject.pad_id or 0
        data = {one.meaning: torch.full((len(lengths), TARGETS), OTHER) for one in self.given.subject.calling.inputs}
        data[self.wanted] = torch.where(real, WORD, pad)
        if (name := self.given.padding(self.wanted)) and not bool(real.all()):
            data[name] = real
        return data

    @property
    def num_input_channels(self) -> int:
        return self.table.embedding_dim if self.table else int(self.given.subject.calling.main.shape[-1])

    @property
    def num_output_channels(self) -> int:
        return self.given.subject.calling.outputs

    def output_sequence_length(self, input_sequence_len: int) -> int:
        return self.answers or input_sequence_len

    def forward(self, x: Tensor, lengths: LongTensor) -> Tensor:
        data = self._words(lengths)
        if self.table is None:
            return self._laid(self.given.run(self.given.subject.module, {**data, self.wanted: x})["out"])

        def stands_in(_: nn.Module, args: Any, looked_up: Tensor) -> Tensor:
            if not bool((args[0] == WORD).any()):
                return looked_up
            turned = x.transpose(0, 1)
            first = [x, turned] if self.given.subject.calling.batch_first else [turned, x]
            return next(vectors for vectors in first if vectors.shape == looked_up.shape)

        hook = self.table.register_forward_hook(stands_in)
        try:
            return self._laid(self.given.run(self.given.subject.module, data)["out"])
        finally:
            hook.remove()

    @staticmethod
    def _laid(out: Tensor) -> Tensor:
        return out if out.ndim == 3 else out[:, None]


class Forward(_Wrapper):
    """From the target, or the text of a language model, to its answers."""

    wanted = GIVEN.main


class Reading(_Wrapper):
    """From what is read as a whole to the answers: of a translation a fixed number, of a classifier one."""

    wanted = GIVEN.read
    answers = TARGETS if GIVEN.subject.calling.two_sided else 0 if GIVEN.subject.positions else 1


_FREE = GIVEN.subject.free_length and len(GIVEN.subject.calling.main.shape) < 3

if _FREE and GIVEN.kind in TEACHES_THE_NEXT and GIVEN.subject.positions:

    class TestCausality(seq2seq.CausalTestCase):
        module_wrapper_class = Forward


if _FREE and GIVEN.padding(GIVEN.read):

    class TestPadding(seq2seq.EncoderPaddingTestCase):
        module_wrapper_class = Reading
        test_padding_area_is_zero = None

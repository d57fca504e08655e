"""Writers that are given sources with padding, whose model hides it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

MODEL = """
    class Translator(nn.Module):
        def __init__(self, vocab=24, width=8, pad_id=0):
            super().__init__()
            self.pad_id = pad_id
            self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(32, width)
            self.model = nn.Transformer(width, 2, 1, 1, 16, 0.0, batch_first=True)
            self.head = nn.Linear(width, vocab)

        def embed(self, ids):
            return self.words(ids) + self.places(torch.arange(ids.size(1)))

        def encode(self, src, pad):
            return self.model.encoder(self.embed(src), src_key_padding_mask=pad)

        def decode(self, tgt, memory, pad):
            t = tgt.size(1)
            causal = torch.ones(t, t, dtype=torch.bool).triu(1)
            x = self.model.decoder(self.embed(tgt), memory, tgt_mask=causal, memory_key_padding_mask=pad)
            return self.head(x)

        def forward(self, src, tgt):
            pad = src == self.pad_id
            return self.decode(tgt, self.encode(src, pad), pad)

        @torch.no_grad()
        def translate(self, src, max_new_tokens=8):
            pad = src == self.pad_id
            memory = self.encode(src, pad)
            written = torch.ones(len(src), 1, dtype=torch.long)
            for _ in range(max_new_tokens):
                step = self.decode(written, memory, PAD)[:, -1].argmax(-1)
                written = torch.cat([written, step[:, None]NEXT], 1)
            return written
"""


@pytest.mark.parametrize(
    ("pad", "rest", "said"),
    [
        ("pad", "", "PASS"),
        ("None", "", "FAIL"),
        ("None", " * 0 + step.item()", "NOT_PROVIDED"),  # it writes for one sentence, which has no padding
    ],
)
def test_padding_of_a_source_changes_nothing_that_is_written(made, pad, rest, said):
    source = MODEL.replace("PAD", pad).replace("NEXT", rest)
    found = run_check(
        CHECKS["generate-hides-the-padding-of-sources"], Whole(whole_model(made("Translator", source))), "quick"
    )
    assert found.verdict.name == said

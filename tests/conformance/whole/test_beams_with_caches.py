"""A beam search with a cache: each beam goes on with the cache of the beam that it comes from."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

TITLER = """
class Titler(nn.Module):
    def __init__(self, vocab=23, width=16, eos_id=2):
        super().__init__()
        self.eos_id, self.vocab = eos_id, vocab
        self.table, self.qkv = nn.Embedding(vocab, width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, vocab)

    def encode(self, src):
        return self.table(src).mean(1, keepdim=True)

    def step(self, tgt, memory, cache=None):
        x = self.table(tgt) + memory
        q, k, v = self.qkv(x).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
        return self.out(x + scores.softmax(-1) @ v), (k, v)

    def forward(self, src, tgt):
        return self.step(tgt, self.encode(src))[0]

    @torch.no_grad()
    def beam_search(self, src, beams=4, max_len=10):
        memory, seqs, cache, done = self.encode(src[None]), src.new_full((beams, 1), 1), None, []
        totals = torch.tensor([0.0] + [-1e9] * (beams - 1))
        for step in range(max_len):
            logits, cache = self.step(seqs[:, -1:], memory, cache)
            ranked = totals[:, None] + logits[:, -1].log_softmax(-1)
            best, flat = ranked.view(-1).topk(2 * beams)
            kept = []
            for value, at in zip(best.tolist(), flat.tolist()):
                row, word = divmod(at, self.vocab)
                if word == self.eos_id:
                    done.append((value, seqs[row, 1:].tolist()))
                elif len(kept) < beams:
                    kept.append((row, word, value))
            rows = torch.tensor([row for row, _, _ in kept])
            seqs = torch.cat([seqs[rows], torch.tensor([[word] for _, word, _ in kept])], 1)
            cache = tuple(part[rows] for part in cache)
            totals = torch.tensor([value for _, _, value in kept])
        done = done or [(value, seq[1:].tolist()) for value, seq in zip(totals.tolist(), seqs)]
        return max(done)[1]
"""
REORDERED = "            cache = tuple(part[rows] for part in cache)\n"


@pytest.mark.parametrize(("line", "verdict"), [(REORDERED, "PASS"), ("", "FAIL")])
def test_a_beam_goes_on_with_the_cache_that_it_comes_from(made, line, verdict):
    assert TITLER.count(REORDERED) == 1
    torch.manual_seed(0)
    impl = Whole(whole_model(made("Titler", TITLER.replace(REORDERED, line))))
    found = run_check(CHECKS["beam-search-scores-are-those-of-its-tokens"], impl, "quick")
    assert found.verdict.name == verdict
    if verdict == "FAIL":
        assert "the cache of another beam" in found.diagnosis

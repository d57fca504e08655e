"""Words as vectors before there were sentences: bag of words, and Word2Vec's two tasks (Mikolov et al. 2013)."""

from __future__ import annotations

from collections.abc import Sequence

import minigrad as mg
from minigrad import Tensor, nn
from transformer.ids import check_ids


def bag_of_words(ids: Tensor, vocab: int, pad_id: int | None = None) -> Tensor:
    """How often each word occurs: ids ``(B, T)`` int to counts, float32 ``(B, vocab)``. `pad_id` is not counted."""
    check_ids(ids)
    counts = mg.zeros(ids.shape[0], vocab, device=ids.device)
    one = mg.ones(*ids.shape, device=ids.device) if pad_id is None else (ids != pad_id).float()
    return counts.scatter_add(1, ids, one)


def contexts(ids: Sequence[int], window: int) -> list[tuple[int, list[int]]]:
    """Each word with its neighbours, up to `window` on each side, fewer at the ends. Raises ValueError below 1."""
    if window < 1:
        raise ValueError(f"a window has at least one word on each side, got {window}")
    around = ((word, [*ids[max(0, i - window) : i], *ids[i + 1 : i + 1 + window]]) for i, word in enumerate(ids))
    return [(word, neighbours) for word, neighbours in around if neighbours]


class SkipGram(nn.Module):
    """From a word its neighbours: ids ``(N,)`` of words to logits ``(N, vocab)`` of a neighbour.

    Both tables are ``(vocab, d)``; a word's vector is its row of `words`.
    """

    def __init__(self, vocab: int, d_model: int) -> None:
        super().__init__()
        self.words, self.neighbours = nn.Embedding(vocab, d_model), nn.Linear(d_model, vocab, bias=False)

    def forward(self, word: Tensor) -> Tensor:
        return self.neighbours(self.words(word))


class CBOW(SkipGram):
    """From its neighbours the word: ids ``(N, W)``, padded with -1, to logits ``(N, vocab)`` of the word between them.

    The neighbours' vectors are averaged, so their order does not matter (a continuous bag of words).
    """

    def forward(self, neighbours: Tensor) -> Tensor:
        real = (neighbours >= 0).unsqueeze(-1)
        vectors = mg.where(real, self.words(neighbours.clamp(min=0)), 0.0)
        return self.neighbours(vectors.sum(1) / real.float().sum(1))

"""The recurrent networks that the Transformer replaced: RNN, LSTM, and what is built on them (document 003).

Sequences are ``(B, T, ...)``, padded on the right; a state depends on no later token, so padding reaches no real one.
"""

from __future__ import annotations

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.cache import KVCache
from transformer.ids import check_ids
from transformer.masks import padding_mask
from transformer.models.base import Seq2Seq
from transformer.scores import attend


class RNN(nn.Module):
    """h_t = tanh(x_t W_ih^T + h_(t-1) W_hh^T + b), h_0 = 0: x ``(B, T, d_input)`` to all states ``(B, T, d_hidden)``.

    (Elman 1990.) Everything starts from U(-1/sqrt(d_hidden), 1/sqrt(d_hidden)).
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(mg.empty(d_hidden, d_input))
        self.weight_hh = nn.Parameter(mg.empty(d_hidden, d_hidden))
        self.bias = nn.Parameter(mg.empty(d_hidden))
        _uniform(self, d_hidden)

    def forward(self, x: Tensor) -> Tensor:
        driven = F.linear(x, self.weight_ih, self.bias)  # of all steps at once
        state = mg.zeros(x.shape[0], self.bias.shape[0], dtype=x.dtype, device=x.device)
        states = []
        for t in range(x.shape[1]):
            state = F.tanh(driven[:, t] + F.linear(state, self.weight_hh))
            states.append(state)
        return mg.stack(states, 1)


class LSTM(nn.Module):
    """c_t = f c_(t-1) + i g, h_t = o tanh(c_t): x ``(B, T, d_input)`` to all h ``(B, T, d_hidden)``.

    i, f, o = sigmoid and g = tanh of x_t W_ih^T + h_(t-1) W_hh^T + b, whose rows are in the order i, f, g, o
    (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000). Starts as RNN does.
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        self.weight_ih = nn.Parameter(mg.empty(4 * d_hidden, d_input))
        self.weight_hh = nn.Parameter(mg.empty(4 * d_hidden, d_hidden))
        self.bias = nn.Parameter(mg.empty(4 * d_hidden))
        _uniform(self, d_hidden)

    def forward(self, x: Tensor, start: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """start: h_0 and c_0 ``(B, d_hidden)``, zeros unless given."""
        driven = F.linear(x, self.weight_ih, self.bias)
        if start is None:
            zero = mg.zeros(x.shape[0], self.weight_hh.shape[1], dtype=x.dtype, device=x.device)
            start = zero, zero
        hidden, cell = start
        states = []
        for t in range(x.shape[1]):
            i, f, g, o = (driven[:, t] + F.linear(hidden, self.weight_hh)).chunk(4, -1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            states.append(hidden)
        return mg.stack(states, 1)


def _uniform(module: nn.Module, d_hidden: int) -> None:
    bound = d_hidden**-0.5
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -bound, bound)


def last_state(states: Tensor, real: Tensor) -> Tensor:
    """The state at each row's last real token: states ``(B, T, d)``, real bool ``(B, T)``, to ``(B, d)``."""
    last = (real.long().sum(1) - 1).clamp(min=0)
    return states[mg.arange(states.shape[0], device=states.device), last]


class RecurrentClassifier(nn.Module):
    """One label for a text, from the last state: ids ``(B, T)`` to logits ``(B, n_classes)``."""

    def __init__(self, vocab: int, n_classes: int, d_model: int = 64, pad_id: int = 0) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.embedding = nn.Embedding(vocab, d_model, padding_idx=pad_id)
        self.lstm = LSTM(d_model, d_model)
        self.head = nn.Linear(d_model, n_classes)

    def forward(self, ids: Tensor) -> Tensor:
        check_ids(ids)
        return self.head(last_state(self.lstm(self.embedding(ids)), ids != self.pad_id))


class RecurrentTagger(nn.Module):
    """A label for each token, from the states of both directions: ids ``(B, T)`` to logits ``(B, T, n_tags)``.

    Rows of one batch must be equally long: the backward direction would begin in the padding.
    """

    def __init__(self, vocab: int, n_tags: int, d_model: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        self.forwards, self.backwards = LSTM(d_model, d_model), LSTM(d_model, d_model)
        self.head = nn.Linear(2 * d_model, n_tags)

    def forward(self, ids: Tensor) -> Tensor:
        check_ids(ids)
        x = self.embedding(ids)
        return self.head(mg.cat([self.forwards(x), self.backwards(x.flip(1)).flip(1)], -1))


class RecurrentSeq2Seq(Seq2Seq):
    """LSTM encoder and decoder (Sutskever et al. 2014); with a `score` the decoder looks back at the source.

    The decoder starts from tanh of a linear map of the encoder's last state. With a score (a module of
    `transformer.scores`: dot, general or additive), each output sees tanh(W [h_t; context_t]), context_t the encoder
    states weighted by the softmax of score(h_t, them) (Luong et al. 2015; Bahdanau et al. 2015 ask with h_(t-1)).
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        d_model: int = 64,
        score: nn.Module | None = None,
        max_len: int = 512,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        self.max_len, self.pad_id = max_len, pad_id
        self.src_embedding = nn.Embedding(src_vocab, d_model, padding_idx=pad_id)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model, padding_idx=pad_id)
        self.encoder, self.decoder = LSTM(d_model, d_model), LSTM(d_model, d_model)
        self.bridge = nn.Linear(d_model, 2 * d_model)
        self.score = score
        self.combine = None if score is None else nn.Linear(2 * d_model, d_model)
        self.output_proj = nn.Linear(d_model, tgt_vocab)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """src ``(B, Ts)`` int to all states ``(B, Ts, d_model)`` and which are real ``(B, 1, 1, Ts)``."""
        check_ids(src, "src")
        return self.encoder(self.src_embedding(src)), padding_mask(src, self.pad_id)

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor, cache: KVCache | None = None) -> Tensor:
        """tgt ``(B, Tt)`` int to logits ``(B, Tt, tgt_vocab)``. Raises ValueError for a cache."""
        check_ids(tgt, "tgt")
        if cache is not None:
            raise ValueError("a recurrent decoder has no keys to cache: decode without a cache")
        real = memory_mask.squeeze(1).squeeze(1)
        hidden, cell = self.bridge(last_state(memory, real)).tanh().chunk(2, -1)
        states = self.decoder(self.tgt_embedding(tgt), (hidden, cell))
        if self.score is not None and self.combine is not None:
            context, _ = attend(self.score(states, memory), memory, real.unsqueeze(1))
            states = self.combine(mg.cat([states, context], -1)).tanh()
        return self.output_proj(states)

"""What a writer chooses from, seen and decided from outside.

A model writes a token by `argmax`, `max`, `topk` of one, or a draw. `Choices` records what each of them is given, and
may decide it: by the likeliest, by a column, or by a script, so that nothing is left to chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.watching import Watching, user_line
from conformance.protocol import Array

RANDOM = ("rand", "rand_like", "uniform", "uniform_", "randn", "normal_", "bernoulli", "bernoulli_", "randint")


@dataclass
class Step:
    """What was looked up before one choice, and what it was chosen from.

    fed: how many tokens a row; None where no table was seen. first: the first token of each row. scores: (B, columns).
    drawn: whether it was drawn.
    """

    fed: int | None
    first: Array | None
    scores: Array
    drawn: bool


class Choices(Watching):
    """Records lookups in the tables of tokens, and choices among `vocab` tokens.

    draw: the column that a draw gives, -1 for the likeliest, None to draw as it would. script: (rows, n) the tokens
    that are chosen, whatever they are chosen from. partly: whether a choice was seen for fewer rows, which no script
    decides.
    """

    def __init__(self, tables: set[int], vocab: int, rows: int, draw: int | None, script: Array | None) -> None:
        super().__init__()
        self.tables, self.vocab, self.rows, self.draw, self.script = tables, vocab, rows, draw, script
        self.events: list[tuple[str, Tensor]] = []
        self.at, self.chosen = 0, False
        self.random = ""
        self.partly = False
        self.chosen_at = ""
        self.dtypes: set[torch.dtype] = set()
        self.order: Tensor | None = None  # (rows, V): the tokens, as scores were sorted last
        self.barred: Tensor | None = None  # (V): tokens that were minus infinity in all that was chosen from

    @property
    def noise(self) -> float:
        """How far rounding may move numbers, relative to the largest, by the coarsest dtype that was seen."""
        if self.dtypes & {torch.float16, torch.bfloat16, torch.int8, torch.uint8}:
            return 3e-2
        return 2e-4 if torch.float32 in self.dtypes else 1e-6

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in ("argmax", "max", "topk", "sort"):
            self._bar(args[0])
        if name == "topk" and args[0].is_floating_point() and args[0].numel() and args[0].numel() % self.vocab == 0:
            self.events.append(("ranked", args[0].detach().clone()))
        if name == "embedding" and args[0].data_ptr() in self.tables:
            self._fed(args[1])
        elif name == "index" and len(args[1]) == 1 and args[1][0] is not None and args[0].data_ptr() in self.tables:
            self._fed(args[1][0])
        elif name == "multinomial":
            self.chosen_at = user_line()
            return self._drawn(func, args, kwargs)
        elif name in ("exponential_", "exponential") and self.draw is not None:
            return self._even(args[0], in_place=name == "exponential_")
        elif name in ("argmax", "max", "topk") and self._chooses(name, args, kwargs):
            self.events.append(("chosen", args[0].detach().clone()))
            self.chosen, self.chosen_at = True, user_line()
            return self._scripted(name, args[0], func(*args, **kwargs))
        elif name in RANDOM:
            self.random = name
        result = func(*args, **kwargs)
        if name in ("sort", "topk") and args[0].is_floating_point() and result[1].shape[-1] == self.vocab:
            self.order = result[1].reshape(-1, self.vocab)
        if isinstance(result, Tensor) and result.numel() > 1:
            self.dtypes.add(result.dtype)
        return result

    def _bar(self, scores: Tensor) -> None:
        """scores: (..., V), or those of all beams in one row."""
        one_row = scores.ndim == 1 and scores.numel() % self.vocab == 0
        if scores.is_floating_point() and scores.numel() and (scores.shape[-1:] == (self.vocab,) or one_row):
            found = scores.reshape(-1, self.vocab).isneginf().all(0)
            self.barred = found if self.barred is None else self.barred & found

    def _fed(self, ids: Tensor) -> None:
        self.events.append(("fed", ids.detach().clone()))
        self.at, self.chosen = self.at + self.chosen, False

    def _tokens(self, shape: Any) -> Tensor | None:
        """The script's tokens of this step in a shape; None without a script."""
        if self.script is None:
            return None
        return torch.tensor(self.script[:, min(self.at, self.script.shape[1] - 1)].copy()).reshape(shape)

    def _drawn(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        scores = args[0]
        self.events.append(("drawn", scores.detach().clone()))
        self.chosen = True
        if self.draw is None:
            return func(*args, **kwargs)
        count = args[1] if len(args) > 1 else kwargs["num_samples"]
        if self.script is not None and scores.numel() == self.rows * self.vocab and count == 1:
            return self._columns(self._tokens((self.rows, 1)), scores).reshape(*scores.shape[:-1], 1)
        if self.draw >= 0 and count == 1:
            return torch.full((*scores.shape[:-1], 1), min(self.draw, scores.shape[-1] - 1), dtype=torch.int64)
        return torch.topk(scores, count, dim=-1).indices

    def _columns(self, tokens: Any, scores: Tensor) -> Tensor:
        """(rows, 1): where tokens stand in scores that are drawn from; another place than the token's own number where
        these were sorted and are so still."""
        rows = scores.reshape(self.rows, self.vocab)
        if self.order is None or len(self.order) != self.rows or not bool((rows.diff(dim=-1) <= 0).all()):
            return tokens
        return (self.order == tokens).int().argmax(-1, keepdim=True)

    def _even(self, like: Tensor, in_place: bool) -> Tensor:
        """Exponential noise without chance: a probability divided by it is largest where it is, or at the column."""
        self.events.append(("noise", like))
        noise = like if in_place else torch.empty_like(like)
        noise.fill_(1.0)
        if self.draw is not None and self.draw >= 0:
            noise[..., min(self.draw, noise.shape[-1] - 1)] = 1e-30
        return noise

    def _chooses(self, name: str, args: Any, kwargs: Any) -> bool:
        x = args[0]
        if not x.is_floating_point() or x.ndim == 0 or x.shape[-1] != self.vocab or x.numel() != self.rows * self.vocab:
            self.partly = self.partly or (x.shape[-1:] == (self.vocab,) and 0 < x.numel() < self.rows * self.vocab)
            return False
        if name == "topk":
            return bool((args[1] if len(args) > 1 else kwargs.get("k")) == 1)
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        return (axis is None and self.rows == 1 and name == "argmax") or axis in (-1, x.ndim - 1)

    def _scripted(self, name: str, scores: Tensor, result: Any) -> Any:
        """The result with the script's tokens in the place of those that were found."""
        if name == "argmax":
            tokens = self._tokens(result.shape)
            return result if tokens is None else tokens
        values, indices = result
        tokens = self._tokens(indices.shape)
        if tokens is None:
            return result
        wide = tokens if tokens.ndim == scores.ndim else tokens.unsqueeze(-1)
        return scores.gather(-1, wide).reshape(values.shape), tokens

    def beams(self) -> list[tuple[Array, Array]]:
        """Of each step of a search that feeds one token a beam: these tokens, (n), and the scores (n, V) that all beams
        are ranked by. None of a search that feeds its texts whole."""
        found, fed = [], None
        for kind, tensor in self.events:
            if kind == "fed":
                fed = tensor.reshape(-1)
            elif kind == "ranked" and fed is not None and tensor.numel() == len(fed) * self.vocab:
                found.append((to_array(fed), to_array(tensor.reshape(len(fed), self.vocab).double())))
        return found

    def begun_with(self, batch_first: bool) -> Array | None:
        """(B): the tokens of the first lookup of one token a row, or of one token, alone or for each beam, where a
        writer takes its rows one by one; None without one."""
        fed = [tensor for kind, tensor in self.events if kind == "fed"]
        one_each = ((self.rows,), (self.rows, 1) if batch_first else (1, self.rows))
        together = next((tensor for tensor in fed if tuple(tensor.shape) in one_each), None)
        if together is not None:
            return to_array(together.reshape(-1))
        alone = next((one for one in fed if one.numel() == 1 or _is_of_beams(one)), None)
        return None if alone is None else to_array(alone.reshape(-1)[:1].repeat(self.rows))

    def led_by(self, prompt: Array, batch_first: bool) -> Array:
        """The prompt with the tokens that the first lookup has in front of it: a sign of the start."""
        fed = next((tensor for kind, tensor in self.events if kind == "fed"), None)
        if fed is None or fed.ndim != 2:
            return prompt
        rows = to_array(fed if batch_first else fed.T)
        led = len(rows) == len(prompt) and rows.shape[1] > prompt.shape[1]
        return rows if led and bool((rows[:, rows.shape[1] - prompt.shape[1] :] == prompt).all()) else prompt

    def steps(self, batch_first: bool, last_only: bool) -> list[Step]:
        """The events, a step a choice: a draw outranks a maximum, the last maximum counts. last_only: the last lookup
        before the first choice is what counts; a source was looked up in the same table before."""
        steps: list[Step] = []
        fed, first, choice, drawn, noisy = 0, None, None, False, False

        def finish() -> None:
            nonlocal fed, first, choice, drawn, noisy
            if choice is not None:
                scores = choice.reshape(self.rows, -1).double().numpy()
                steps.append(Step(fed or None, first, scores, drawn))
                fed, first, choice, drawn, noisy = 0, None, None, False, False

        for kind, tensor in self.events:
            if kind == "fed":
                finish()
                if tensor.numel() % self.rows == 0:
                    rows = tensor.reshape(self.rows, -1) if batch_first else tensor.reshape(-1, self.rows).T
                    if last_only and not steps:
                        fed, first = 0, None
                    first = rows[:, 0].numpy() if first is None else first
                    fed += rows.shape[1]
            elif kind == "noise":
                noisy = True
            elif kind == "drawn" or (kind == "chosen" and not drawn):
                choice, drawn = tensor, kind == "drawn" or noisy
        finish()
        return steps


def _is_of_beams(ids: Tensor) -> bool:
    """Whether one and the same token stands in a row for each of several beams."""
    return ids.ndim == 2 and 1 in ids.shape and len(ids.unique()) == 1

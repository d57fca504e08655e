"""What can be trained from one command: each task's tokens, batches, model and measures.

A batch is a function of the seed and the step alone, so that training continues exactly where it stopped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import minigrad as mg
from minigrad import Tensor
from minigrad import functional as F
from transformer import data
from transformer.data import BEGIN, END, PAD, Tokenizer
from transformer.decoding import beam_decode, evaluation, greedy_decode, translator
from transformer.models import DecoderLM, EncoderDecoder
from transformer.training import Batch, token_loss

Pairs = Sequence[tuple[str, str]]
Figures = dict[str, float]
TEXT, TRANSLATE = "text", "translate"
NAMES = (*data.TASKS, TRANSLATE, TEXT)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The sizes of the model of a task, and of its data; see `make`. Raises ValueError for a size out of its range."""

    d_model: int = 128
    n_heads: int = 4
    n_kv_heads: int = 4
    n_layers: int = 2
    d_ff: int = 256
    dropout: float = 0.1
    max_len: int = 64
    vocab: int = 259
    batch_size: int = 64
    size: int = 8
    source: str = "en"
    target: str = "de"

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "n_kv_heads", "n_layers", "d_ff", "batch_size", "size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_len < 2:
            raise ValueError(f"max_len must be at least 2, got {self.max_len}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")


def make(task: str, sizes: ModelSettings, seed: int, tokenizer: Tokenizer | None = None) -> PairsTask | TextTask:
    """The task with a model of fresh weights. A tokenizer is trained on its text unless one is given.

    Raises ValueError for an unknown task and for sizes that the task cannot have.
    """
    if task not in NAMES:
        raise ValueError(f"there is no task {task!r}: the tasks are {', '.join(NAMES)}")
    if task == TEXT:
        return TextTask(data.shakespeare(), sizes, seed, tokenizer)
    if task == TRANSLATE:
        pairs = data.parallel(sizes.source, sizes.target)
        return PairsTask(CorpusPairs(pairs, sizes.batch_size, seed), pairs, sizes, seed, tokenizer)
    held_out = data.examples(task, 256, np.random.default_rng([seed, 1]), sizes.size, held_out=True)
    return PairsTask(SyntheticPairs(task, sizes, seed), held_out, sizes, seed, tokenizer)


class SyntheticPairs:
    """Fresh examples at every step, none of the held-out part."""

    def __init__(self, task: str, sizes: ModelSettings, seed: int) -> None:
        self.task, self.sizes, self.seed = task, sizes, seed

    def texts(self) -> Pairs:
        return []

    def __call__(self, step: int) -> Pairs:
        rng = np.random.default_rng([self.seed, 2, step])
        return data.examples(self.task, self.sizes.batch_size, rng, self.sizes.size)


class CorpusPairs:
    """All pairs once an epoch in random order, pairs of similar length together; those that fill no batch sit out."""

    POOL = 8  # batches among which pairs are sorted by length

    def __init__(self, pairs: Pairs, batch_size: int, seed: int) -> None:
        self.pairs, self.batch_size, self.seed = pairs, min(batch_size, len(pairs)), seed
        self.per_epoch = len(pairs) // self.batch_size

    def texts(self) -> Pairs:
        return self.pairs

    @functools.lru_cache(maxsize=2)  # noqa: B019 - lives as long as the training
    def epoch(self, number: int) -> list[np.ndarray]:
        """The batches of an epoch, as indices of pairs."""
        rng = np.random.default_rng([self.seed, 3, number])
        order = rng.permutation(len(self.pairs))[: self.per_epoch * self.batch_size]
        pool = self.POOL * self.batch_size
        ordered = [sorted(order[i : i + pool], key=self._length) for i in range(0, len(order), pool)]
        batches = np.concatenate(ordered).reshape(self.per_epoch, self.batch_size)
        return [batches[i] for i in rng.permutation(self.per_epoch)]

    def _length(self, index: int) -> int:
        return len(self.pairs[index][0]) + len(self.pairs[index][1])

    def __call__(self, step: int) -> Pairs:
        return [self.pairs[i] for i in self.epoch(step // self.per_epoch)[step % self.per_epoch]]


class PairsTask:
    """An encoder-decoder that answers: `test` are the pairs by which it is judged."""

    pad_id = PAD  # of labels that do not count

    def __init__(
        self,
        source: SyntheticPairs | CorpusPairs,
        test: Pairs,
        sizes: ModelSettings,
        seed: int,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.source, self.test, self.sizes = source, test, sizes
        self.tokenizer = tokenizer or data.train_bpe([text for pair in source.texts() for text in pair], sizes.vocab)
        mg.manual_seed(seed)
        self.model = EncoderDecoder(
            self.tokenizer.vocab, self.tokenizer.vocab, sizes.d_model, sizes.n_heads, sizes.n_layers, sizes.d_ff,
            sizes.max_len, sizes.dropout, PAD,
        )  # fmt: skip
        encoded = [self._encode(pair) for pair in [*source.texts(), *test]]
        self.longest = max(len(src) for src, _ in encoded), 1 + max(len(tgt) for _, tgt in encoded)
        if max(self.longest) > sizes.max_len:
            raise ValueError(f"the task's longest text has {max(self.longest)} tokens, so max_len must be as much")

    def _encode(self, pair: tuple[str, str]) -> tuple[list[int], list[int]]:
        return self.tokenizer.encode(pair[0]), self.tokenizer.encode(pair[1])

    def tensors(self, pairs: Pairs) -> Batch:
        """Sources, targets after BEGIN, and as labels targets before END."""
        encoded = [self._encode(pair) for pair in pairs]
        needed = max(max(len(src), len(tgt) + 1) for src, tgt in encoded)
        bucket = max(8, 1 << (needed - 1).bit_length())  # few lengths, so that few shapes are compiled
        source_length, length = (min(bucket, longest) for longest in self.longest)
        sources = data.pad_batch([src for src, _ in encoded], length=source_length)
        targets = data.pad_batch([[BEGIN, *tgt] for _, tgt in encoded], length=length)
        return Batch((sources, targets), data.pad_batch([[*tgt, END] for _, tgt in encoded], length=length))

    def batch(self, step: int) -> Batch:
        return self.tensors(self.source(step))

    def answers(self, questions: Sequence[str], beams: int = 1, longest: int | None = None) -> list[str]:
        """The model's answers: by beam search, greedily with one beam. Raises ValueError for an empty question.

        longest: in tokens; as long as fits the model unless given.
        """
        return [self.tokenizer.decode(ids) for ids in self.answer_ids(questions, beams, longest)]

    def answer_ids(self, questions: Sequence[str], beams: int = 1, longest: int | None = None) -> list[list[int]]:
        """The answers as token ids from BEGIN on, up to END where the model wrote it, filled up with PAD."""
        found: list[list[int]] = []
        for start in range(0, len(questions), 64):
            sources = [self.tokenizer.encode(question) for question in questions[start : start + 64]]
            if not all(sources):
                raise ValueError("there is nothing to translate: a text is empty")
            begin = mg.full((len(sources), 1), BEGIN, dtype=mg.int64)
            next_logits = translator(self.model, data.pad_batch(sources), self.model.new_cache())
            longest = longest or self.sizes.max_len
            if beams == 1:
                written = greedy_decode(next_logits, begin, longest, END, PAD)
            else:
                written = beam_decode(next_logits, begin, longest, beams, 1.0, END, PAD)
            found += written.tolist()
        return found

    def evaluate(self) -> Figures:
        """Loss and share of right tokens with the right beginning given; share of answers right as a whole."""
        loss = right = count = 0.0
        with evaluation(self.model):
            for start in range(0, len(self.test), 64):
                batch = self.tensors(self.test[start : start + 64])
                logits = self.model(*batch.inputs).float()
                real = batch.labels != PAD
                loss += F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), PAD, reduction="sum").item()
                right += int(((logits.argmax(-1) == batch.labels) & real).sum())
                count += int(real.sum())
        answers = self.answers([question for question, _ in self.test], longest=self.longest[1])
        exact = sum(answer == wanted for answer, (_, wanted) in zip(answers, self.test, strict=True))
        return {"held_out_loss": loss / count, "token_accuracy": right / count, "exact": exact / len(self.test)}


class TextTask:
    """A decoder-only model of a text; its last tenth is held out."""

    pad_id = -1  # no label is padding

    def __init__(self, text: str, sizes: ModelSettings, seed: int, tokenizer: Tokenizer | None = None) -> None:
        cut = len(text) * 9 // 10
        self.tokenizer = tokenizer or data.train_bpe([text[:cut]], sizes.vocab)
        self.sizes, self.seed = sizes, seed
        self.train, self.held_out = (np.array(self.tokenizer.encode(part)) for part in (text[:cut], text[cut:]))
        if len(self.held_out) <= sizes.max_len:
            raise ValueError(f"the held-out text has {len(self.held_out)} tokens: max_len must be smaller")
        mg.manual_seed(seed)
        self.model = DecoderLM(
            self.tokenizer.vocab, sizes.d_model, sizes.n_heads, sizes.n_kv_heads, sizes.n_layers, sizes.d_ff,
            sizes.max_len, sizes.dropout,
        )  # fmt: skip

    def windows(self, tokens: np.ndarray, starts: np.ndarray) -> Batch:
        """max_len tokens from each of `starts` on; their labels are the tokens one later."""
        rows = tokens[starts[:, None] + np.arange(self.sizes.max_len + 1)]
        return Batch((mg.tensor(rows[:, :-1]),), mg.tensor(rows[:, 1:]))

    def batch(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, 4, step])
        return self.windows(self.train, rng.integers(0, len(self.train) - self.sizes.max_len, self.sizes.batch_size))

    def evaluate(self) -> Figures:
        """Loss in nats a token on windows side by side over the held-out text; and in bits a byte."""
        starts = np.arange(0, len(self.held_out) - self.sizes.max_len, self.sizes.max_len)
        total, loss = 0.0, token_loss(self.pad_id)
        with evaluation(self.model):
            for first in range(0, len(starts), 32):
                total += loss(self.model, self.windows(self.held_out, starts[first : first + 32])).item()
        nats = total / (len(starts) * self.sizes.max_len)
        size = len(self.tokenizer.decode(self.held_out).encode()) / len(self.held_out)
        return {"held_out_loss": nats, "bits_per_byte": nats / np.log(2) / size}

    def continuation(self, prompt: str) -> Tensor:
        """The prompt as ids ``(1, T)``. Raises ValueError for an empty one."""
        ids = self.tokenizer.encode(prompt)
        if not ids:
            raise ValueError("the prompt is empty: give at least one character")
        return mg.tensor([ids])

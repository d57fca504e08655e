"""What can be trained from one command: each task's tokens, batches, model and measures.

A batch is a function of the seed and the step alone, so that training continues exactly where it stopped.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer import data
from transformer.cache import KVCache
from transformer.data import BEGIN, END, PAD, Tokenizer
from transformer.decoding import beam_decode, evaluation, greedy_decode, translator
from transformer.models import DecoderLM, EncoderDecoder
from transformer.models.base import CausalLM, Seq2Seq
from transformer.models.bert import Bert, BertConfig
from transformer.models.mixtral import Mixtral, MixtralConfig
from transformer.moe import load_balancing_loss, routing
from transformer.recurrent import RecurrentSeq2Seq
from transformer.scores import AdditiveScore, DotScore, GeneralScore
from transformer.training import Batch, mask_tokens, token_loss
from transformer.training.optimise import LossSum

Pairs = Sequence[tuple[str, str]]
Figures = dict[str, float]
LONG_COPY, TRANSLATE, TEXT, MASKED, MIXTURE = "long-copy", "translate", "text", "masked", "mixture"
NAMES = (*data.TASKS, LONG_COPY, TRANSLATE, TEXT, MASKED, MIXTURE)
SCORES: dict[str, Callable[[int], nn.Module | None]] = {
    "none": lambda d_model: None,
    "dot": lambda d_model: DotScore(),
    "general": lambda d_model: GeneralScore(d_model, d_model),
    "additive": lambda d_model: AdditiveScore(d_model, d_model, d_model),
}


MOST = 1_000_000
"""The largest batch, and the longest word: more would not come to its first step."""


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
    data: str = ""
    vocab: int = 259
    batch_size: int = 64
    size: int = 8
    source: str = "en"
    target: str = "de"
    score: str = "additive"
    mask_rate: float = 0.15
    n_experts: int = 4
    experts_per_token: int = 2
    balance: float = 0.02

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "n_kv_heads", "n_layers", "d_ff", "batch_size", "size", "n_experts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("batch_size", "size"):
            if getattr(self, name) > MOST:
                raise ValueError(f"{name} must be at most {MOST:,}, got {getattr(self, name):,}")
        if self.max_len < 2:
            raise ValueError(f"max_len must be at least 2, got {self.max_len}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.score not in SCORES:
            raise ValueError(f"score must be one of {', '.join(SCORES)}, got {self.score!r}")
        if not 0 < self.mask_rate < 1:
            raise ValueError(f"mask_rate must lie in (0, 1), got {self.mask_rate}")
        if not 1 <= self.experts_per_token <= self.n_experts:
            raise ValueError(
                f"experts_per_token must lie between 1 and n_experts, {self.n_experts}, got {self.experts_per_token}"
            )
        if not 0 <= self.balance < math.inf:
            raise ValueError(f"balance must not be negative, got {self.balance}")


def make(task: str, sizes: ModelSettings, seed: int, tokenizer: Tokenizer | None = None) -> Task:
    """The task with a model of fresh weights. A tokenizer is trained on its text unless one is given.

    Raises ValueError for an unknown task and for sizes that the task cannot have.
    """
    if task not in NAMES:
        raise ValueError(f"there is no task {task!r}: the tasks are {', '.join(NAMES)}")
    if task in TEXT_TASKS:
        return TEXT_TASKS[task](text_of(sizes), sizes, seed, tokenizer)
    if sizes.data:
        raise ValueError(f"a text of one's own (data) is learned by {', '.join(TEXT_TASKS)}, and not by {task}")
    if task == TRANSLATE:
        pairs = data.parallel(sizes.source, sizes.target)
        return PairsTask(CorpusPairs(pairs, sizes.batch_size, seed), pairs, sizes, seed, tokenizer)
    kind, words = (RecurrentPairsTask, "copy") if task == LONG_COPY else (PairsTask, task)
    held_out = data.examples(words, 256, np.random.default_rng([seed, 1]), sizes.size, held_out=True)
    return kind(SyntheticPairs(words, sizes, seed), held_out, sizes, seed, tokenizer)


def text_of(sizes: ModelSettings) -> str:
    """What is learned: one's own text, or Shakespeare's plays. Raises FileNotFoundError, and ValueError as own_text."""
    return data.own_text(Path(sizes.data)) if sizes.data else data.shakespeare()


def device_of(model: nn.Module) -> str:
    """Where the model's parameters are."""
    return next(model.parameters()).device


def measure(model: nn.Module, batches: Iterable[Batch], pad_id: int) -> tuple[float, float]:
    """Cross-entropy in nats and share of right tokens, over all labels but `pad_id`, in evaluation mode."""
    loss = right = count = 0.0
    with evaluation(model):
        for batch in (each.to(device_of(model)) for each in batches):
            logits, counted = model(*batch.inputs).float(), batch.labels != pad_id
            loss += F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), pad_id, reduction="sum").item()
            right += int(((logits.argmax(-1) == batch.labels) & counted).sum())
            count += int(counted.sum())
    return loss / count, right / count


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

    digest: str | None = None  # of the text that is learned
    pad_id = PAD  # of labels that do not count
    purpose = "answers: use translate"

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
        self.model = self._make_model(self.tokenizer.vocab, sizes)
        encoded = [self._encode(pair) for pair in [*source.texts(), *test]]
        self.longest = max(len(src) for src, _ in encoded), 1 + max(len(tgt) for _, tgt in encoded)
        if max(self.longest) > sizes.max_len:
            raise ValueError(f"the task's longest text has {max(self.longest)} tokens, so max_len must be as much")

    def _make_model(self, vocab: int, sizes: ModelSettings) -> Seq2Seq:
        return EncoderDecoder(
            vocab, vocab, sizes.d_model, sizes.n_heads, sizes.n_layers, sizes.d_ff, sizes.max_len, sizes.dropout, PAD
        )

    def _new_cache(self) -> KVCache | None:
        return self.model.new_cache()

    def loss(self, label_smoothing: float) -> LossSum:
        """What is minimised, summed over the labels."""
        return token_loss(self.pad_id, label_smoothing)

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
        device = device_of(self.model)
        together = max(1, min(64, 256 // max(beams, 1)))  # many beams need as much memory as many questions
        for start in range(0, len(questions), together):
            sources = [self.tokenizer.encode(question) for question in questions[start : start + together]]
            if not all(sources):
                raise ValueError("there is nothing to translate: a text is empty")
            begin = mg.full((len(sources), 1), BEGIN, dtype=mg.int64, device=device)
            next_logits = translator(self.model, data.pad_batch(sources).to(device), self._new_cache())
            longest = longest or self.sizes.max_len
            if beams == 1:
                written = greedy_decode(next_logits, begin, longest, END, PAD)
            else:
                written = beam_decode(next_logits, begin, longest, beams, 1.0, END, PAD)
            found += written.tolist()
        return found

    def evaluate(self) -> Figures:
        """Loss and share of right tokens with the right beginning given; share of answers right as a whole."""
        batches = (self.tensors(self.test[start : start + 64]) for start in range(0, len(self.test), 64))
        loss, accuracy = measure(self.model, batches, PAD)
        answers = self.answers([question for question, _ in self.test], longest=self.longest[1])
        exact = sum(answer == wanted for answer, (_, wanted) in zip(answers, self.test, strict=True))
        return {"held_out_loss": loss, "token_accuracy": accuracy, "exact": exact / len(self.test)}


class RecurrentPairsTask(PairsTask):
    """A recurrent encoder-decoder that answers; with a score it looks back at the source (document 000 section 2.1)."""

    def _make_model(self, vocab: int, sizes: ModelSettings) -> Seq2Seq:
        return RecurrentSeq2Seq(vocab, vocab, sizes.d_model, SCORES[sizes.score](sizes.d_model), sizes.max_len, PAD)

    def _new_cache(self) -> None:
        """A recurrent decoder has no keys to keep."""


class Windows:
    """A text in windows of max_len tokens, of which the last tenth is held out. What is learned on it, a class says.

    tokenizer: a Tokenizer, or what cuts texts as a published model does (see `transformer.finetuning`).
    """

    pad_id = -1  # no token of the text is padding
    model: nn.Module
    tokenizer: Any

    def __init__(self, text: str, sizes: ModelSettings, seed: int, tokenizer: Any = None) -> None:
        cut = len(text) * 9 // 10
        self.tokenizer = tokenizer or data.train_bpe([text[:cut]], sizes.vocab)
        self.sizes, self.seed = sizes, seed
        self.train, self.held_out = (np.array(self.tokenizer.encode(part)) for part in (text[:cut], text[cut:]))
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        if len(self.held_out) <= sizes.max_len:
            raise ValueError(
                f"the last tenth of the text, which is held out, has {len(self.held_out)} tokens: max_len, "
                f"{sizes.max_len}, must be smaller"
            )
        mg.manual_seed(seed)

    def drawn(self, step: int, length: int) -> np.ndarray:
        """`length` tokens from batch_size random places of the training part: the rows of a step."""
        rng = np.random.default_rng([self.seed, 4, step])
        starts = rng.integers(0, len(self.train) - self.sizes.max_len, self.sizes.batch_size)
        return self.train[starts[:, None] + np.arange(length)]

    def side_by_side(self, length: int) -> Iterator[np.ndarray]:
        """The held-out part once, in rows of `length` tokens that begin max_len apart, 32 rows at a time."""
        starts = np.arange(0, len(self.held_out) - self.sizes.max_len, self.sizes.max_len)
        for first in range(0, len(starts), 32):
            yield self.held_out[starts[first : first + 32, None] + np.arange(length)]

    def loss(self, label_smoothing: float) -> LossSum:
        """What is minimised, summed over the labels."""
        return token_loss(self.pad_id, label_smoothing)

    def read(self, text: str) -> Tensor:
        """The text as ids ``(1, T)``, where the model is. Raises ValueError for an empty one."""
        ids = self.tokenizer.encode(text)
        if not ids:
            raise ValueError("the prompt is empty: give at least one character")
        return mg.tensor([ids], device=device_of(self.model))


class TextTask(Windows):
    """A decoder-only model of a text: the next token."""

    purpose = "continues texts: use generate"
    model: CausalLM

    def __init__(self, text: str, sizes: ModelSettings, seed: int, tokenizer: Any = None) -> None:
        super().__init__(text, sizes, seed, tokenizer)
        self.model = self._make_model(self.tokenizer.vocab, sizes)

    def _make_model(self, vocab: int, sizes: ModelSettings) -> CausalLM:
        return DecoderLM(
            vocab, sizes.d_model, sizes.n_heads, sizes.n_kv_heads, sizes.n_layers, sizes.d_ff, sizes.max_len,
            sizes.dropout,
        )  # fmt: skip

    def _shifted(self, rows: np.ndarray) -> Batch:
        """Rows of max_len + 1 tokens: all but the last, and as labels all but the first."""
        return Batch((mg.tensor(rows[:, :-1]),), mg.tensor(rows[:, 1:]))

    def batch(self, step: int) -> Batch:
        return self._shifted(self.drawn(step, self.sizes.max_len + 1))

    def _held_out_batches(self) -> Iterable[Batch]:
        return map(self._shifted, self.side_by_side(self.sizes.max_len + 1))

    def evaluate(self) -> Figures:
        """Loss in nats a token on windows side by side over the held-out text; perplexity; and bits a byte."""
        nats, _ = measure(self.model, self._held_out_batches(), self.pad_id)
        size = len(self.tokenizer.decode(self.held_out).encode()) / len(self.held_out)
        return {
            "held_out_loss": nats,
            "perplexity": math.exp(min(nats, 700)),
            "bits_per_byte": nats / math.log(2) / size,
        }


class MixtureTask(TextTask):
    """The next token by a mixture of experts (Mixtral); a second loss keeps the experts equally busy."""

    def _make_model(self, vocab: int, sizes: ModelSettings) -> CausalLM:
        config = MixtralConfig(
            vocab_size=vocab, hidden_size=sizes.d_model, intermediate_size=sizes.d_ff,
            num_hidden_layers=sizes.n_layers, num_attention_heads=sizes.n_heads, num_key_value_heads=sizes.n_kv_heads,
            max_position_embeddings=sizes.max_len, attention_dropout=sizes.dropout,
            num_local_experts=sizes.n_experts, num_experts_per_tok=sizes.experts_per_token,
            router_aux_loss_coef=sizes.balance, tie_word_embeddings=True,
        )  # fmt: skip
        return Mixtral(config)

    def loss(self, label_smoothing: float) -> LossSum:
        """Cross-entropy, and for each label `balance` times the balancing loss of all layers."""
        prediction = super().loss(label_smoothing)

        def total(model: nn.Module, batch: Batch) -> Tensor:
            with routing(model) as logits:
                found = prediction(model, batch)
            balance = load_balancing_loss([each.float() for each in logits], self.sizes.experts_per_token)
            return found + self.sizes.balance * batch.labels.numel() * balance

        return total

    def evaluate(self) -> Figures:
        """As a text's; and the busiest expert's share of the choices in a layer, 1 / n_experts where all are equal."""
        figures = super().evaluate()
        counts = np.zeros((self.sizes.n_layers, self.sizes.n_experts))
        with evaluation(self.model):
            for batch in self._held_out_batches():
                with routing(self.model) as logits:
                    self.model(*batch.to(device_of(self.model)).inputs)
                for layer, each in enumerate(logits):
                    chosen = each.topk(self.sizes.experts_per_token, -1)[1].numpy()
                    counts[layer] += np.bincount(chosen.reshape(-1), minlength=self.sizes.n_experts)
        return {**figures, "busiest_expert": float((counts / counts.sum(1, keepdims=True)).max())}


class MaskedTask(Windows):
    """BERT on a text: some tokens are hidden, and those are to be found from both sides (Devlin et al. 2019)."""

    purpose = "finds hidden tokens: inspect shows it"

    def __init__(self, text: str, sizes: ModelSettings, seed: int, tokenizer: Any = None) -> None:
        super().__init__(text, sizes, seed, tokenizer)
        self.mask_id = self.tokenizer.mask_id
        self.model = self._make_model(self.tokenizer.vocab, sizes)

    def _make_model(self, vocab: int, sizes: ModelSettings) -> nn.Module:
        config = BertConfig(
            vocab_size=vocab + 1, hidden_size=sizes.d_model, num_hidden_layers=sizes.n_layers,
            num_attention_heads=sizes.n_heads, intermediate_size=sizes.d_ff, max_position_embeddings=sizes.max_len,
            hidden_dropout_prob=sizes.dropout, attention_probs_dropout_prob=sizes.dropout, type_vocab_size=1,
            pad_token_id=None, initializer_range=sizes.d_model**-0.5,  # BERT's 0.02 fits a width of 2,500
        )  # fmt: skip
        return Bert(config)

    def _hidden(self, rows: np.ndarray, key: list[int]) -> Batch:
        """The rows with tokens hidden by the draws that `key` names; at least one is."""
        generator = mg.Generator(int(np.random.default_rng(key).integers(2**62)))
        while True:
            ids, labels = mask_tokens(
                mg.tensor(rows), self.tokenizer.vocab, self.mask_id, self.sizes.mask_rate, ignore_index=self.pad_id,
                generator=generator,
            )  # fmt: skip
            if (labels != self.pad_id).any():
                return Batch((ids,), labels)

    def batch(self, step: int) -> Batch:
        return self._hidden(self.drawn(step, self.sizes.max_len), [self.seed, 5, step])

    def evaluate(self) -> Figures:
        """Loss in nats and share of right tokens, of those hidden in the held-out text (always the same)."""
        rows = enumerate(self.side_by_side(self.sizes.max_len))
        hidden = (self._hidden(each, [self.seed, 6, i]) for i, each in rows)
        loss, accuracy = measure(self.model, hidden, self.pad_id)
        return {"held_out_loss": loss, "masked_accuracy": accuracy}


TEXT_TASKS: dict[str, type[TextTask] | type[MaskedTask]] = {TEXT: TextTask, MASKED: MaskedTask, MIXTURE: MixtureTask}
Task = PairsTask | TextTask | MaskedTask

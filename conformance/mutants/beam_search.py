"""Mutants of beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.decoding import BeamSearch
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference.training import log_softmax

Hypothesis = tuple[float, Array]


class _Beams(BeamSearch):
    """Beam search with its parts to override. A hypothesis is its running score and its ids, the prompt among them."""

    prompt: int

    def scores(self, logits: Array) -> Array:
        return np.asarray(log_softmax(logits))

    def total(self, before: float, step: float) -> float:
        return before + step

    def is_possible(self, score: float) -> bool:
        return score > -np.inf

    def kept(self, grown: list[Hypothesis]) -> list[Hypothesis]:
        return sorted(grown, key=lambda item: -item[0])[: self.config["beams"]]

    def has_ended(self, item: Hypothesis) -> bool:
        return bool(item[1][-1] == self.config["eos_id"])

    def is_extended(self, item: Hypothesis) -> bool:
        return not self.has_ended(item)

    def length(self, ids: Array) -> int:
        return len(ids) - self.prompt

    def penalty(self) -> float:
        return float(self.config["length_penalty"])

    def value(self, item: Hypothesis) -> float:
        return float(item[0] / self.length(item[1]) ** self.penalty())

    def is_over(self, finished: list[Hypothesis], live: list[Hypothesis]) -> bool:
        reachable = live[0][0] / self.config["max_new_tokens"] ** self.penalty()
        return bool(finished) and max(map(self.value, finished)) >= reachable

    def best(self, finished: list[Hypothesis], live: list[Hypothesis]) -> Hypothesis:
        return max(finished or live, key=self.value)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        (prompt,) = inputs["ids"]
        self.prompt = len(prompt)
        live: list[Hypothesis] = [(0.0, prompt)]
        finished: list[Hypothesis] = []
        for _ in range(self.config["max_new_tokens"]):
            steps = self.scores(inputs["next_logits"](np.stack([ids for _, ids in live])))
            grown = [
                (self.total(before, row[token]), np.append(ids, token))
                for (before, ids), row in zip(live, steps, strict=True)
                for token in range(len(row))
                if self.is_possible(row[token])
            ]
            best = self.kept(grown)
            finished += [item for item in best if self.has_ended(item)]
            live = [item for item in best if self.is_extended(item)]
            if not live or self.is_over(finished, live):
                break
        chosen = self.best(finished, live)
        return {"out": chosen[1][None], "score": np.asarray(self.value(chosen))}


@mutant(breaks=("finished-hypotheses-must-leave-the-beam",), known_as="D11")
class FinishedBeamsAreExtended(_Beams):
    """Finished hypotheses stay in the beam, are extended behind EOS, and counted again until there are enough."""

    def is_extended(self, item: Hypothesis) -> bool:
        return True

    def is_over(self, finished: list[Hypothesis], live: list[Hypothesis]) -> bool:
        return len(finished) >= self.config["beams"]


@mutant(breaks=("finished-hypotheses-must-leave-the-beam",))
class FirstEndWins(_Beams):
    """The first hypothesis that ends is returned."""

    def is_over(self, finished: list[Hypothesis], live: list[Hypothesis]) -> bool:
        return bool(finished)


@mutant(
    breaks=("a-beam-of-all-prefixes-is-exhaustive", "beam-scores-are-summed-log-probabilities"),
    known_as="D13",
)
class ScoreOfTheLastStep(_Beams):
    """A hypothesis is worth its last step only."""

    def total(self, before: float, step: float) -> float:
        return step


@mutant(breaks=("beam-scores-are-summed-log-probabilities", "a-beam-of-all-prefixes-is-exhaustive"))
class RawLogitsAreSummed(_Beams):
    """Logits are added up without being normalised."""

    def scores(self, logits: Array) -> Array:
        return 2.0 * logits


@mutant(breaks=("beam-scores-are-summed-log-probabilities",))
class ProbabilitiesAreSummed(_Beams):
    """Probabilities are added up instead of their logarithms."""

    def scores(self, logits: Array) -> Array:
        return np.exp(log_softmax(logits))

    def is_possible(self, score: float) -> bool:
        return score > 0


@mutant(breaks=("beam-scores-are-summed-log-probabilities", "a-length-penalty-divides-by-a-power-of-the-length"))
class AlwaysNormalised(_Beams):
    """Scores are divided by the length even where no penalty was asked for."""

    def penalty(self) -> float:
        return max(super().penalty(), 1.0)


@mutant(breaks=("beam-scores-are-summed-log-probabilities",))
class BeamLimitCountsThePrompt(_Beams):
    """The limit is that of the whole text, prompt included."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.config["max_new_tokens"] = max(1, self.config["max_new_tokens"] - inputs["ids"].shape[1])
        return super().forward(p, **inputs)


@mutant(breaks=("a-length-penalty-divides-by-a-power-of-the-length",))
class PenaltyMultiplies(_Beams):
    """The score is multiplied by the power of the length: short texts win."""

    def value(self, item: Hypothesis) -> float:
        return float(item[0] * self.length(item[1]) ** self.penalty())


@mutant(breaks=("a-length-penalty-divides-by-a-power-of-the-length",))
class LengthCountsThePrompt(_Beams):
    """The length that scores are divided by counts the prompt."""

    def length(self, ids: Array) -> int:
        return len(ids)


@mutant(breaks=("a-beam-of-one-is-greedy",))
class WorstAreKept(_Beams):
    """The least probable hypotheses stay in the beam."""

    def kept(self, grown: list[Hypothesis]) -> list[Hypothesis]:
        return sorted(grown, key=lambda item: item[0])[: self.config["beams"]]


@mutant(breaks=("a-beam-of-one-is-greedy", "the-best-finished-hypothesis-is-returned"))
class EosIsAWord(_Beams):
    """Nothing ends: EOS is written as any other token."""

    def has_ended(self, item: Hypothesis) -> bool:
        return False


@mutant(breaks=("a-beam-of-two-finds-what-greedy-misses", "a-beam-of-all-prefixes-is-exhaustive"))
class OneBeamOnly(_Beams):
    """The number of beams is ignored: one is kept."""

    def kept(self, grown: list[Hypothesis]) -> list[Hypothesis]:
        return super().kept(grown)[:1]


@mutant(breaks=("the-best-finished-hypothesis-is-returned", "a-beam-of-two-finds-what-greedy-misses"))
class WorstEndIsReturned(_Beams):
    """The least probable finished hypothesis is returned."""

    def best(self, finished: list[Hypothesis], live: list[Hypothesis]) -> Hypothesis:
        return min(finished or live, key=self.value)


@mutant(breaks=("the-best-finished-hypothesis-is-returned",))
class UnfinishedPreferred(_Beams):
    """A live hypothesis is returned even where others have ended."""

    def best(self, finished: list[Hypothesis], live: list[Hypothesis]) -> Hypothesis:
        return max(live or finished, key=self.value)


@mutant(breaks=("a-small-vocabulary-fills-no-wide-beam",))
class ImpossibleEnds(_Beams):
    """Hypotheses of probability 0 fill the beam, and an EOS among them counts as an end."""

    def is_possible(self, score: float) -> bool:
        return True

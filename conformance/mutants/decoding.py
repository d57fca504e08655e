"""Mutants of teacher forcing, greedy decoding and sampling filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.decoding import GreedyDecode, SamplingFilter, ShiftTargets
from conformance.adapters.reference.models import DecoderLM
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import decoding as f

# --- teacher forcing ----------------------------------------------------------------------------------


@mutant(breaks=("teacher-forcing-shifts-by-one", "labels-are-the-input-shifted-left"))
class LabelsNotShifted(ShiftTargets):
    """The labels are the input: the model learns to copy."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": inputs["ids"][:, :-1], "labels": inputs["ids"][:, :-1]}


@mutant(breaks=("teacher-forcing-shifts-by-one", "labels-are-the-input-shifted-left"), known_as="S06")
class LabelsShiftedTwice(ShiftTargets):
    """The labels are shifted by two."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": inputs["ids"][:, :-1], "labels": np.roll(inputs["ids"], -2, axis=1)[:, :-1]}


@mutant(breaks=("teacher-forcing-shifts-by-one", "labels-are-the-input-shifted-left"))
class LabelsShiftedRight(ShiftTargets):
    """Input and labels are exchanged: each position must give the token before it."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": inputs["ids"][:, 1:], "labels": inputs["ids"][:, :-1]}


@mutant(breaks=("teacher-forcing-shifts-by-one",))
class InputKeepsItsEnd(ShiftTargets):
    """The decoder's input keeps the last token, one longer than the labels."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": inputs["ids"], "labels": inputs["ids"][:, 1:]}


@mutant(breaks=("one-pass-trains-every-position",))
class SentenceSeenAsAWhole(DecoderLM):
    """Every position sees the mean over the whole sentence, the words to predict among it."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = super().forward(p, **inputs)["out"]
        return {"out": out + 0.1 * out.mean(axis=1, keepdims=True)}


@mutant(breaks=("one-pass-trains-every-position",))
class LogitsCentredOverTheBatch(DecoderLM):
    """The logits are centred over the sentences of the batch."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = super().forward(p, **inputs)["out"]
        return {"out": out - 0.1 * out.mean(axis=0, keepdims=True)}


# --- greedy decoding ----------------------------------------------------------------------------------


class _Loop(GreedyDecode):
    """Greedy decoding with its parts to override."""

    def visible(self, ids: Array) -> Array:
        """What the model is fed."""
        return ids

    def choose(self, logits: Array) -> Array:
        return logits.argmax(axis=-1)

    def written(self, token: Array, finished: Array) -> Array:
        return np.where(finished, self.config["pad_id"], token)

    def stops(self, token: Array, finished: Array) -> bool:
        return bool(finished.all())

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        ids, eos = inputs["ids"], self.config["eos_id"]
        finished = np.zeros(len(ids), bool)
        for _ in range(self.config["max_new_tokens"]):
            token = self.written(self.choose(inputs["next_logits"](self.visible(ids))), finished)
            ids = np.concatenate([ids, token[:, None]], axis=1)
            finished = finished | (token == (-1 if eos is None else eos))
            if self.stops(token, finished):
                break
        return {"out": ids}


@mutant(breaks=("greedy-appends-the-argmax-of-the-last-position", "greedy-keeps-the-prompt"))
class LeastProbableToken(_Loop):
    """The least probable token is taken."""

    def choose(self, logits: Array) -> Array:
        return logits.argmin(axis=-1)


@mutant(breaks=("greedy-decoding-is-deterministic", "greedy-appends-the-argmax-of-the-last-position"))
class SampledInstead(_Loop):
    """Tokens are drawn from the distribution instead of taken by argmax."""

    def choose(self, logits: Array) -> Array:
        return (logits + self.rng.gumbel(size=logits.shape)).argmax(axis=-1)


@mutant(breaks=("greedy-appends-the-argmax-of-the-last-position", "generation-takes-one-step-per-token"))
class OnlyThePromptIsFed(_Loop):
    """Every step feeds the prompt again, without the model's own words."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        self.prompt = inputs["ids"].shape[1]
        return super().forward(p, **inputs)

    def visible(self, ids: Array) -> Array:
        return ids[:, : self.prompt]


@mutant(breaks=("greedy-stops-at-eos",))
class EosIgnored(_Loop):
    """Decoding goes on behind EOS to the limit."""

    def written(self, token: Array, finished: Array) -> Array:
        return token

    def stops(self, token: Array, finished: Array) -> bool:
        return False


@mutant(breaks=("greedy-stops-at-eos",))
class EosNotAppended(_Loop):
    """The EOS is dropped from the result."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = super().forward(p, **inputs)["out"]
        return {"out": out[:, :-1] if (out[:, -1] == self.config["eos_id"]).any() else out}


@mutant(breaks=("greedy-stops-at-eos", "rows-finish-at-different-steps"))
class StopsOneStepLate(_Loop):
    """One more step is run after the last EOS."""

    def stops(self, token: Array, finished: Array) -> bool:
        return bool(finished.all() and not (token == self.config["eos_id"]).any())


@mutant(breaks=("rows-finish-at-different-steps",), known_as="D09")
class WritesBehindEos(_Loop):
    """Finished rows keep writing until all rows have finished."""

    def written(self, token: Array, finished: Array) -> Array:
        return token


@mutant(breaks=("rows-finish-at-different-steps",))
class StopsOnlyWhenAllEndAtOnce(_Loop):
    """The loop ends only when every row writes EOS in the same step."""

    def written(self, token: Array, finished: Array) -> Array:
        return token

    def stops(self, token: Array, finished: Array) -> bool:
        return bool((token == self.config["eos_id"]).all())


@mutant(breaks=("rows-finish-at-different-steps",))
class StopsAtTheFirstEos(_Loop):
    """The loop ends as soon as one row has written EOS."""

    def stops(self, token: Array, finished: Array) -> bool:
        return bool(finished.any())


@mutant(breaks=("rows-finish-at-different-steps",))
class FinishedRowsRepeatEos(_Loop):
    """Finished rows are filled with EOS instead of padding."""

    def written(self, token: Array, finished: Array) -> Array:
        return np.where(finished, self.config["eos_id"] or 0, token)


@mutant(breaks=("rows-finish-at-different-steps",))
class PaddingIsZero(_Loop):
    """Finished rows are filled with 0 whatever the padding id is."""

    def written(self, token: Array, finished: Array) -> Array:
        return np.where(finished, 0, token)


@mutant(breaks=("greedy-writes-at-most-max-new-tokens",))
class LimitCountsThePrompt(GreedyDecode):
    """The limit is that of the whole text, prompt included."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        config = {**self.config, "max_new_tokens": max(self.config["max_new_tokens"] - inputs["ids"].shape[1], 0)}
        return {"out": f.greedy_decode(inputs["next_logits"], inputs["ids"], **config)}


@mutant(breaks=("greedy-keeps-the-prompt", "greedy-appends-the-argmax-of-the-last-position"))
class PromptLosesItsLastToken(GreedyDecode):
    """The first new token replaces the last token of the prompt."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = super().forward(p, **inputs)["out"]
        return {"out": np.delete(out, inputs["ids"].shape[1] - 1, axis=1)}


# --- sampling filters ---------------------------------------------------------------------------------


class _Filter(SamplingFilter):
    """The filter's steps, to override one at a time."""

    def heated(self, logits: Array) -> Array:
        return logits / self.config["temperature"]

    def of_top_k(self, logits: Array) -> Array:
        k = self.config["top_k"]
        return logits if k is None else f.top_k_filter(logits, k)

    def of_top_p(self, logits: Array) -> Array:
        p = self.config["top_p"]
        return logits if p is None else f.top_p_filter(logits, p)

    def ranked(self, logits: Array) -> tuple[Array, Array, Array]:
        """The order of the tokens, their probabilities in it, and the cumulative sums."""
        order = np.argsort(-logits, axis=-1, kind="stable")
        sorted_p = np.take_along_axis(f.sampling_probabilities(logits), order, axis=-1)
        return order, sorted_p, np.cumsum(sorted_p, axis=-1)

    def marked(self, logits: Array, order: Array, keep: Array) -> Array:
        """-inf where the token at a rank is not kept."""
        kept = np.zeros_like(keep)
        np.put_along_axis(kept, order, keep, axis=-1)
        return np.where(kept, logits, -np.inf)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        logits = self.of_top_p(self.of_top_k(self.heated(inputs["logits"])))
        return {"out": f.sampling_probabilities(logits)}


@mutant(breaks=("temperature-divides-the-logits", "filters-apply-temperature-then-top-k-then-top-p"))
class TemperatureMultiplies(_Filter):
    """The logits are multiplied by the temperature."""

    def heated(self, logits: Array) -> Array:
        return logits * self.config["temperature"]


@mutant(breaks=("temperature-divides-the-logits", "filters-apply-temperature-then-top-k-then-top-p"))
class TemperatureIgnored(_Filter):
    """The temperature is accepted and not used."""

    def heated(self, logits: Array) -> Array:
        return logits


@mutant(breaks=("temperature-zero-is-greedy-or-refused",))
class TemperatureZeroIsNaN(_Filter):
    """A temperature of 0 divides by zero, and sampling goes on with NaN."""

    def heated(self, logits: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return logits / np.float64(self.config["temperature"])


@mutant(breaks=("top-k-keeps-the-k-most-probable",), known_as="D08")
class TopKKeepsOneMore(_Filter):
    """Top-k keeps k + 1 tokens."""

    def of_top_k(self, logits: Array) -> Array:
        k = self.config["top_k"]
        return logits if k is None else f.top_k_filter(logits, k + 1)


@mutant(breaks=("top-k-keeps-the-k-most-probable", "ties-with-the-kth-logit-do-not-cost-a-better-one"))
class TopKKeepsTheLeast(_Filter):
    """Top-k keeps the k least probable tokens."""

    def of_top_k(self, logits: Array) -> Array:
        k = self.config["top_k"]
        return logits if k is None else np.where(np.isfinite(f.top_k_filter(-logits, k)), logits, -np.inf)


@mutant(breaks=("ties-with-the-kth-logit-do-not-cost-a-better-one",))
class TiesAllDropped(_Filter):
    """Every token that ties with the k-th logit is dropped with it."""

    def of_top_k(self, logits: Array) -> Array:
        k = self.config["top_k"]
        if k is None:
            return logits
        kth = np.sort(logits, axis=-1)[:, -min(k, logits.shape[-1])][:, None]
        tied = (logits == kth).sum(axis=-1, keepdims=True) > 1
        return np.where((logits < kth) | (tied & (logits == kth)), -np.inf, logits)


@mutant(breaks=("top-k-above-the-vocabulary-keeps-every-token",), known_as="D05")
class TopKAboveTheVocabularyFails(_Filter):
    """A top_k larger than the vocabulary, 50 by default, is an index out of range."""

    attributes = {"default_top_k": 50}

    def of_top_k(self, logits: Array) -> Array:
        k = self.config["top_k"]
        if k is not None and k > logits.shape[-1]:
            raise IndexError(f"index {k} is out of range")
        return super().of_top_k(logits)


@mutant(breaks=("no-top-k-keeps-every-token",))
class TopKNeverOff(_Filter):
    """Without a top_k the last token is dropped all the same."""

    def of_top_k(self, logits: Array) -> Array:
        k = self.config["top_k"]
        return f.top_k_filter(logits, logits.shape[-1] - 1 if k is None else min(k, logits.shape[-1] - 1))


@mutant(breaks=("top-k-keeps-the-k-most-probable", "filters-apply-temperature-then-top-k-then-top-p"))
class ProbabilitiesNotRenormalised(_Filter):
    """What the filters leave keeps the probabilities that it had among all tokens."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        kept = super().forward(p, **inputs)["out"] > 0
        return {"out": np.where(kept, f.sampling_probabilities(self.heated(inputs["logits"])), 0.0)}


@mutant(breaks=("top-p-keeps-the-smallest-set-that-reaches-p",), known_as="D01")
class CrossingTokenDropped(_Filter):
    """The token that crosses p is dropped (the first one always stays)."""

    def of_top_p(self, logits: Array) -> Array:
        if self.config["top_p"] is None:
            return logits
        order, _, sums = self.ranked(logits)
        keep = sums <= self.config["top_p"]
        keep[:, 0] = True
        return self.marked(logits, order, keep)


@mutant(breaks=("top-p-keeps-the-smallest-set-that-reaches-p", "top-p-always-keeps-the-most-probable"), known_as="D02")
class TopPKeepsOneMore(_Filter):
    """One token more than reaches p is kept."""

    def of_top_p(self, logits: Array) -> Array:
        if self.config["top_p"] is None:
            return logits
        order, probabilities, sums = self.ranked(logits)
        before = np.roll(sums - probabilities, 1, axis=-1)
        before[:, 0] = 0.0
        return self.marked(logits, order, before < self.config["top_p"])


@mutant(breaks=("top-p-always-keeps-the-most-probable",))
class EmptyNucleus(_Filter):
    """A p below the largest probability keeps nothing, and the probabilities are NaN."""

    def of_top_p(self, logits: Array) -> Array:
        if self.config["top_p"] is None:
            return logits
        order, _, sums = self.ranked(logits)
        with np.errstate(invalid="ignore"):
            return self.marked(logits, order, sums <= self.config["top_p"])


@mutant(breaks=("top-p-of-one-keeps-every-token",))
class TopPOfOneDropsTheLast(_Filter):
    """At p = 1 the least probable token is dropped."""

    def of_top_p(self, logits: Array) -> Array:
        if self.config["top_p"] is None:
            return logits
        order, _, sums = self.ranked(logits)
        keep = sums < min(self.config["top_p"], 1.0) - 1e-12
        keep[:, 0] = True
        return self.marked(logits, order, keep)


@mutant(breaks=("top-p-marks-return-to-vocabulary-order", "top-p-keeps-the-smallest-set-that-reaches-p"))
class MarksLeftInSortedOrder(_Filter):
    """The ranks that are kept are taken for token ids."""

    def marked(self, logits: Array, order: Array, keep: Array) -> Array:
        return np.where(keep, logits, -np.inf)

    def of_top_p(self, logits: Array) -> Array:
        if self.config["top_p"] is None:
            return logits
        order, probabilities, sums = self.ranked(logits)
        return self.marked(logits, order, sums - probabilities < self.config["top_p"])


@mutant(breaks=("filters-apply-temperature-then-top-k-then-top-p",))
class TopPBeforeTopK(_Filter):
    """Top-p is applied first, to all tokens, and top-k to what it leaves."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.sampling_probabilities(self.of_top_k(self.of_top_p(self.heated(inputs["logits"]))))}


@mutant(breaks=("filters-apply-temperature-then-top-k-then-top-p",))
class TopPBeforeTemperature(_Filter):
    """Top-p ranks the logits before the temperature is applied."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.sampling_probabilities(self.heated(self.of_top_p(self.of_top_k(inputs["logits"]))))}

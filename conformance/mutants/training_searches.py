"""Mutants of training scripts whose text shows how a search is taught and judged: temperatures, candidates, pools,
ranks."""

from __future__ import annotations

from conformance.mutants import slip_texts
from conformance.mutants.training_texts import beside

beside(
    "ScaledInPartInTraining",
    slip_texts.SCALED_IN_PART,
    "run-scores-of-one-softmax-have-one-temperature",
    "Only the similarities to positives are divided by the temperature.",
)
beside(
    "ComparedWithThemselves",
    slip_texts.COMPARED_WITH_THEMSELVES,
    "run-candidates-are-compared-with-the-own-one",
    "Candidates are compared with themselves, and not with the own one of the row.",
)
beside(
    "ReciprocalOfAMeanInTraining",
    slip_texts.RECIPROCAL_OF_A_MEAN,
    "run-reciprocal-ranks-are-meant",
    "One is divided by the mean rank.",
)
beside(
    "TestAmongFewer",
    slip_texts.TEST_AMONG_FEWER,
    "run-test-searches-among-as-many",
    "The test searches among its own part alone.",
)

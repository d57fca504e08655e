"""The verifications of claims about the documents: every one holds, and the helpers can fail."""

from __future__ import annotations

import tomllib
from importlib import resources

import numpy as np
import pytest

from conformance.evidence import close, same
from conformance.verifications import (
    VERIFICATIONS,
    arithmetic,
    complexity,
    erratum,
    learning,
    listings,
    losses,
    memory,
    parameters,
    pipeline,
    printed_numbers,
    rounds_to,
    verify,
)

CLAIMS = {
    claim["slug"]: claim
    for topic in sorted((resources.files("conformance") / "claims").iterdir(), key=str)
    if topic.name.endswith(".toml")
    for claim in tomllib.loads(topic.read_text(encoding="utf-8")).get("claim", [])
}
DOCUMENT_TOPICS = {
    "algebra",
    "arithmetic",
    "backpropagation",
    "complexity",
    "learning",
    "listings",
    "losses",
    "memory",
    "parameters",
    "pipeline",
    "printed_numbers",
}
ERRATA = sorted(s for s, c in CLAIMS.items() if c["verdict"] == "erratum" and c["topic"] in DOCUMENT_TOPICS)


@pytest.mark.parametrize("slug", sorted(VERIFICATIONS))
def test_verification_holds(slug):
    with np.errstate(all="raise", under="ignore"):
        evidence = VERIFICATIONS[slug]()
    assert evidence.ok, f"{evidence.what}: expected {evidence.expected}, got {evidence.got}"


@pytest.mark.parametrize("slug", sorted(VERIFICATIONS))
def test_every_verification_has_a_claim(slug):
    assert slug in CLAIMS


def test_every_claim_about_a_document_is_verified_or_says_why_not():
    unverified = {
        slug
        for slug, claim in CLAIMS.items()
        if claim["subject"] == "document" and claim["verdict"] != "untestable" and slug not in VERIFICATIONS
    }
    assert unverified == set()


@pytest.mark.parametrize("slug", ERRATA)
def test_erratum_shows_the_statement_and_what_is_true(slug):
    evidence = VERIFICATIONS[slug]()
    assert {"written", "actual"} <= set(evidence.details)
    assert CLAIMS[slug]["correction"]


def test_an_erratum_that_holds_as_written_fails():
    evidence = erratum("a sum", 3.0, 1.0 + 2.0, same("correction", 1, 1))
    assert not evidence.ok
    assert "as written it holds" in evidence.what


def test_an_erratum_within_the_given_distance_fails():
    assert not erratum("a sum", 3.0, 3.01, same("correction", 1, 1), by=0.1).ok
    assert erratum("a sum", 3.0, 3.2, same("correction", 1, 1), by=0.1).ok


def test_an_erratum_whose_correction_does_not_hold_fails():
    evidence = erratum("a sum", 3.0, 4.0, same("right", 1, 1), close("wrong", 1.0, 2.0, 0.5))
    assert not evidence.ok
    assert "wrong" in evidence.what


def test_another_shape_is_another_value():
    assert erratum("a shape", (2, 3), (2, 3, 4), same("correction", 1, 1)).ok


@pytest.mark.parametrize(("got", "ok"), [(0.2926, True), (0.2951, False), (0.285, True), (0.2849, False)])
def test_rounding_to_printed_digits(got, ok):
    assert rounds_to("weight", got, 0.29, 2).ok is ok


def test_a_claim_has_one_verification():
    slug = next(iter(VERIFICATIONS))
    with pytest.raises(ValueError, match="two verifications"):
        verify(slug)(VERIFICATIONS[slug])


def over_all_entries(x, dim=-1):
    """A wrong softmax: it normalises over the whole array."""
    exponentials = np.exp(np.asarray(x) - np.max(x))
    return exponentials / exponentials.sum()


def unscaled_attention(query, key, value, mask=None):
    """A wrong attention: it does not divide by sqrt(d_k)."""
    scores = query @ np.swapaxes(key, -1, -2)
    weights = np.exp(np.where(True if mask is None else mask, scores, -np.inf))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ value, weights


def one_more(role, under="", **config):
    """A wrong count: one parameter too many."""
    return COUNT(role, under, **config) + 1


COUNT = parameters.count


@pytest.mark.parametrize(
    ("module", "name", "wrong", "slug"),
    [
        (arithmetic, "softmax", over_all_entries, "masking-keeps-the-ratio-of-visible-weights"),
        (arithmetic, "softmax", lambda x: x / x.sum(), "worked-output-is-029-033-038-of-the-values"),
        (arithmetic, "attention", unscaled_attention, "worked-example-needs-the-scale-of-its-own-width"),
        (parameters, "count", one_more, "the-demo-model-has-7799688-parameters"),
        (parameters, "count", one_more, "multi-head-attention-holds-four-d-squared"),
        (complexity, "projections", lambda n, d, how_many=4: 4 * n * d * d, "each-projection-costs-n-d-squared"),
        (
            complexity,
            "scores",
            lambda n, d, heads=1: heads * n * n * d,
            "scores-and-weighted-sum-cost-n-squared-d-each",
        ),
        (
            memory,
            "matrix_bytes",
            lambda n, heads=1, itemsize=4: heads * n * itemsize,
            "float32-attention-matrix-in-mib",
        ),
        (memory, "cache_bytes", lambda *sizes: np.prod(sizes), "the-cache-costs-two-l-n-d"),
        (memory, "attention", unscaled_attention, "blockwise-attention-is-exact"),
        (printed_numbers, "sinusoid", lambda at, d: np.zeros((len(at), d)), "row-1-of-width-8-has-sin-one-tenth"),
        (printed_numbers, "attention", unscaled_attention, "cat-attends-mainly-to-itself-in-the-demo"),
        (listings, "attention", unscaled_attention, "masked-attention-uses-an-undefined-width"),
        (
            listings,
            "warmup_rate",
            lambda step, d_model, warmup: 1e-4,
            "the-first-update-runs-at-the-constructor-s-rate",
        ),
        (losses, "cross_entropy", lambda *_, **__: 0.0, "uniform-predictions-cost-ln-v"),
        (losses, "masks", lambda n, p: (np.ones((1, n)), np.ones(1)), "dropout-is-an-adaptive-ridge-penalty"),
        (learning, "frequencies", lambda d: np.zeros(d // 2), "rotations-carry-a-fit-further-than-sinusoids"),
        (pipeline, "causal_mask", lambda n: np.ones((n, n), bool), "two-orders-give-the-same-vectors-until-masked"),
    ],
)
def test_a_wrong_formula_fails_its_verification(monkeypatch, module, name, wrong, slug):
    assert VERIFICATIONS[slug]().ok
    monkeypatch.setattr(module, name, wrong)
    assert not VERIFICATIONS[slug]().ok


def test_a_hundred_tokens_take_a_hundred_calls():
    assert VERIFICATIONS["generation-is-serial-for-both"]().details["actual"] == 100

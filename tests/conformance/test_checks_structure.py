"""The checks of positions, norms, networks, layers, models and the cache: the reference passes, each mutant dies."""

from __future__ import annotations

import numpy as np
import pytest

import conformance.checks  # noqa: F401  (registers the checks)
from conformance.adapters.reference import ReferenceImplementation
from conformance.adapters.reference.layers import EncoderLayer
from conformance.adapters.reference.models import EncoderDecoder
from conformance.adapters.reference.positions import SinusoidalPositions
from conformance.check import CHECKS
from conformance.draw import Draw, Pinned, Seeded
from conformance.mutants import MUTANTS
from conformance.protocol import NotProvided
from conformance.reference import models
from conformance.reference.feed_forward import ACTIVATIONS
from conformance.reference.layers import Layers, part
from conformance.reference.models import DecoderLM
from conformance.reference.norms import layer_norm, rms_norm
from conformance.reference.positions import rope, sinusoid
from conformance.runner import evidence_of, run_check
from conformance.verdict import Verdict

TOPICS = ("positions", "norms", "feed_forward", "layers", "models", "kv_cache")
CLAIMS = sorted(c for c in CHECKS if CHECKS[c].function.__module__.rpartition(".")[2] in TOPICS)
ZOO = sorted(name for name, m in MUTANTS.items() if m.topic in TOPICS)
# fmt: off
PUBLISHED = [
    "P03", "P04", "P06", "P08", "R02", "R04", "R06", "R08", "N03", "N04", "N05", "N08", "N09", "F02", "F04", "L01",
    "L02", "L05", "L08", "M02", "M03", "M05", "M07", "M09", "M12", "M13", "K02", "K04", "K06",
]
# fmt: on
"""Numbers of the published list of mutants whose component is one of these topics."""


class InDtype(ReferenceImplementation):
    """The reference computing in one dtype."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def build(self, role, config):
        return self.classes[role](config, self.dtype)


def kills(claim, mutant):
    """Whether the check of `claim` catches the mutant, by evidence or because it could not run."""
    try:
        return not evidence_of(CHECKS[claim], mutant.implementation())[0].ok
    except Exception:
        return True


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_reference_keeps_every_claim(claim, dtype):
    for draw in (Draw(Pinned()), *(Draw(Seeded(seed)) for seed in range(1000, 1000 + CHECKS[claim].examples))):
        evidence = CHECKS[claim].function(InDtype(dtype), draw)
        assert evidence.ok, (draw.values, evidence)


class OneVariant(ReferenceImplementation):
    """Sines before cosines, RoPE by halves only: conventions, not mistakes."""

    class Halves(SinusoidalPositions):
        attributes = {"layout": "half"}

        def table(self, n):
            return sinusoid(np.arange(n), self.config["d_model"], "half")

    def build(self, role, config):
        if "interleaved" in config.values():
            raise NotProvided("pairs are (i, i + d/2)")
        return self.Halves(config) if role == "sinusoidal_positions" else super().build(role, config)


@pytest.mark.parametrize("claim", CLAIMS)
def test_conventions_are_not_failures(claim):
    evidence, _ = evidence_of(CHECKS[claim], OneVariant(), 4)
    assert evidence.ok, evidence


@pytest.mark.parametrize("name", ZOO)
def test_every_mutant_dies_by_the_claims_it_breaks(name):
    mutant = MUTANTS[name]
    assert mutant.breaks
    assert [claim for claim in mutant.breaks if not kills(claim, mutant)] == []


def test_every_check_has_a_mutant_to_kill():
    broken = {claim for name in ZOO for claim in MUTANTS[name].breaks}
    assert [claim for claim in CLAIMS if claim not in broken] == []


def test_the_published_mutants_are_here():
    assert sorted(set(PUBLISHED) - {MUTANTS[name].known_as for name in ZOO}) == []


@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
def test_activations_equal_torch(kind):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    theirs = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }[kind]
    x = np.linspace(-40, 40, 801)
    np.testing.assert_allclose(ACTIVATIONS[kind](x), theirs(torch.from_numpy(x)).numpy(), rtol=1e-12, atol=1e-14)


def test_norms_equal_torch():
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    rng = np.random.default_rng(0)
    x, weight, bias = rng.standard_normal((3, 5)), rng.standard_normal(5), rng.standard_normal(5)
    a, w, b = (torch.from_numpy(v) for v in (x, weight, bias))
    np.testing.assert_allclose(layer_norm(x, weight, bias), functional.layer_norm(a, (5,), w, b).numpy(), rtol=1e-12)
    np.testing.assert_allclose(rms_norm(x, weight), functional.rms_norm(a, (5,), w, 1e-6).numpy(), rtol=1e-12)


def test_sinusoid_numbers_of_the_documents():
    assert sinusoid(np.array([5]), 8)[0] == pytest.approx(
        [-0.95892427, 0.28366219, 0.47942554, 0.87758256, 0.04997917, 0.99875026, 0.00499998, 0.9999875], abs=1e-8
    )


@pytest.mark.parametrize(
    ("pairing", "at_position_1"),
    [("half", [-1.984111, 1.959901, 2.462378, 4.019800]), ("interleaved", [-1.142640, 1.922076, 2.959851, 4.029800])],
)
def test_rope_numbers_of_the_documents(pairing, at_position_1):
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    assert rope(x, 1, pairing=pairing)[0] == pytest.approx(at_position_1, abs=1e-6)


def test_pairings_of_rope_agree_after_a_permutation():
    x = np.random.default_rng(0).standard_normal((5, 8))
    order = np.concatenate([np.arange(0, 8, 2), np.arange(1, 8, 2)])
    np.testing.assert_allclose(rope(x[:, order], pairing="half"), rope(x)[:, order], rtol=0, atol=1e-15)


@pytest.mark.parametrize("chunks", [(7,), (1,) * 7, (3, 4), (1, 5, 1)])
def test_the_reference_cache_is_exact(chunks):
    draw = Draw(Pinned())
    impl = ReferenceImplementation()
    config = {"vocab": 11, "d_model": 12, "n_heads": 6, "n_kv_heads": 2, "n_layers": 2, "d_ff": 5}
    params = draw.params({name: a.shape for name, a in impl.build("decoder_lm", config).params().items()})
    formulas, ids = DecoderLM(6, 2), draw.integers("ids", (2, 7), 0, 11)
    logits, held = formulas.cached_logits(params, ids, chunks)
    np.testing.assert_allclose(logits, formulas.logits(params, ids), rtol=0, atol=1e-12)
    assert held == 2 * 2 * (2 * 2 * 2 * 7) * 8


@pytest.mark.parametrize("name", ["AttentionWithoutResidual", "ResidualScaled", "NormInsideTheResidual"])
def test_what_a_layer_computes_wrongly_is_no_dropout_in_evaluation(name):
    check = CHECKS["layer-in-evaluation-drops-nothing"]
    assert run_check(check, MUTANTS[name].implementation(), "quick").verdict is Verdict.PASS


@pytest.mark.parametrize("name", ["LayerDropsTheResidual", "LayerForgetsItsDropout"])
def test_a_layer_that_drops_the_sum_is_told_so_and_no_other(name):
    found = run_check(CHECKS["layer-dropout-falls-on-sublayer-outputs"], MUTANTS[name].implementation(), "quick")
    assert found.verdict is Verdict.FAIL
    assert ("sum of input and sublayer is dropped" in found.diagnosis) is (name == "LayerDropsTheResidual")


class _AttentionIsKept(Layers):
    def encoder_layer(self, p, x, mask=None):
        h = self.norm(part(p, "norm1"), x + self.attention(part(p, "self_attn"), x, x, mask))
        return self.residual(part(p, "norm2"), h, lambda y: self.feed_forward(part(p, "feed_forward"), y))


class DropsOneSublayer(EncoderLayer):
    formulas = _AttentionIsKept


class _SourceIsReadAsTarget(models.EncoderDecoder):
    def encode(self, p, src):
        return super().encode({**p, "src_embedding.weight": p["tgt_embedding.weight"]}, src)


class ReadsOneTable(EncoderDecoder):
    """It holds two tables."""

    formulas = _SourceIsReadAsTarget


@pytest.mark.parametrize(
    ("claim", "role", "subject"),
    [
        ("post-norm-layer-drops-both-sublayers", "encoder_layer", DropsOneSublayer),
        ("source-and-target-embed-separately", "encoder_decoder", ReadsOneTable),
    ],
)
def test_half_a_mistake_is_seen(claim, role, subject):
    impl = ReferenceImplementation()
    impl.classes = {**impl.classes, role: subject}
    assert not evidence_of(CHECKS[claim], impl)[0].ok

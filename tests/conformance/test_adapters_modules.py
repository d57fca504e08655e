"""The inference of nn.Module classes: every layout is found, correct ones keep every claim, wrong ones break theirs."""

from __future__ import annotations

import pytest
from slow import one_in

torch = pytest.importorskip("torch")

import torch_subjects.families  # noqa: E402, F401
from torch import nn  # noqa: E402
from torch_subjects import CORRECT, WRONG, mask_makers, specification  # noqa: E402
from torch_subjects.sequence_first import SequenceFirstPositions  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import resolve  # noqa: E402
from conformance.adapters.torch_module import TorchModuleImplementation, Unresolved  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import BROKEN, Verdict  # noqa: E402

FACTS = {
    "HiddenMask": {"mask mask": "bool, True = hidden"},
    "AdditiveMask": {"mask attn_mask": "additive, 0 and -inf"},
    "AddedMask": {"mask mask": "additive, 0 and -inf"},
    "SequenceFirst": {"layout of inputs": "(T, B, d)", "layout": "fused in blocks"},
    "NumberedLinears": {"layout": "separate projections", "a row whose keys are all hidden": "uniform"},
    "PlainMatrices": {"layout": "separate projections, weights (in, out)"},
    "PostNormInside": {"layout": "separate projections, its residual and norm taken out"},
    "FusedCausal": {"layout": "fused in blocks, weights (in, out)", "causal": "True"},
    "FusedPerHead": {"layout": "fused head by head", "weights": "(3, 1, 5, 5)"},
    "RMSNormMinusOne": {"layout": "weight stored minus one"},
    "PositionwiseFeedForward": {"activation": "gelu"},
    "HalfSplitPositions": {"returns": "the codes alone", "pairs": "half"},
    "SequenceFirstPositions": {"layout of inputs": "(T, B, d)"},
    "RotaryEmbedding": {"pairing": "half"},
    "RotaryTables": {"pairing": "half", "layout of inputs": "(B, H, T, d)"},
    "FourTimesWide": {"activation": "gelu_tanh", "dropout": "on the output"},
    "CausalBlock": {"norm": "before each sublayer", "causal": "True"},
    "NormedInput": {"layout": "fused in blocks, its norm taken out"},
    "EncoderBlock": {"norm": "after each sublayer"},
    "PreNormDecoderBlock": {"norm": "before each sublayer", "activation": "gelu"},
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def verdicts(implementation):
    """The verdict on each claim whose check builds the implementation's role."""
    checks = [check for check in CHECKS.values() if implementation.role in check.roles]
    return {check.claim: run_check(check, implementation, "quick") for check in checks}


@pytest.mark.parametrize("name", one_in(3, CORRECT))
def test_a_correct_module_is_inferred_and_breaks_no_claim(name):
    implementation = TorchModuleImplementation(CORRECT[name])
    assert implementation.role == CORRECT[name].role
    found = {fact.subject: str(fact.value) for fact in implementation.inference}
    for subject, value in FACTS.get(name, {}).items():
        assert found[subject].startswith(value), implementation.describe()
    results = verdicts(implementation)
    broken = {
        claim: f"{r.what} {r.expected} {r.got} {r.message}" for claim, r in results.items() if r.verdict in BROKEN
    }
    assert not broken, implementation.describe()
    assert any(result.verdict is Verdict.PASS for result in results.values())


@pytest.mark.parametrize("name", one_in(3, WRONG))
def test_a_wrong_module_breaks_the_claims_that_it_is_wrong_about(name):
    implementation = TorchModuleImplementation(WRONG[name])
    assert implementation.role == WRONG[name].role
    for claim in WRONG[name].breaks:
        assert run_check(CHECKS[claim], implementation, "quick").verdict is Verdict.FAIL, claim


@pytest.mark.parametrize("name", ["MultiplesOfEight", "TurnedByTables"])
def test_a_class_that_refuses_the_usual_sizes_is_judged_by_others(name):
    result = run_check(CHECKS["multi-head-formula"], TorchModuleImplementation(CORRECT[name]))
    assert result.verdict is Verdict.PASS
    assert result.examples > 1


@pytest.mark.parametrize("cls", [mask_makers.Opposite, mask_makers.OppositeByNumber, mask_makers.Agreeing])
def test_a_mask_that_contradicts_what_its_file_makes_is_doubtful(cls):
    (fact,) = [fact for fact in TorchModuleImplementation(cls).inference if fact.subject.startswith("mask ")]
    assert fact.value.startswith("bool, True = hidden") == fact.doubtful == (cls is not mask_makers.Agreeing)
    assert ("but what subsequent_mask of its file makes marks the others" in fact.evidence) == fact.doubtful


def test_a_mask_that_hides_what_it_should_show_is_called_turned_around():
    implementation = TorchModuleImplementation(WRONG["TenThousandBelowTurnedAround"])
    (fact,) = [fact for fact in implementation.inference if fact.subject == "mask attention_mask"]
    assert fact.doubtful
    assert fact.evidence.startswith("turned around")


def test_a_positional_encoding_is_used_as_the_attention_of_its_file():
    """Codes along axis 0 fit (T, B, d); but the attention in this file takes (B, T, d)."""
    here = type("Encoding", (SequenceFirstPositions,), {"__module__": CORRECT["SeparateProjections"].__module__})
    implementation = TorchModuleImplementation(here, "sinusoidal_positions")
    assert implementation.resolutions["sinusoidal_positions"].conventions.batch_first
    assert run_check(CHECKS["positions-run-along-the-sequence"], implementation, "quick").verdict is Verdict.FAIL


@pytest.mark.slow
def test_the_role_can_be_named():
    class Mystery(CORRECT["HandLayerNorm"]):
        pass

    assert TorchModuleImplementation(Mystery, "layer_norm").inference[0].evidence == "as asked"
    with pytest.raises(Unresolved, match="choose one of multi_head_attention"):
        TorchModuleImplementation(Mystery, "softmax")
    assert resolve(f"{specification('HandLayerNorm')}@layer_norm").parts.inference[0].evidence == "as asked"


class NeedsParts(nn.Module):
    def __init__(self, size, self_attn, feed_forward):
        super().__init__()

    def forward(self, x):
        return x


class UnreadableCall(CORRECT["HandLayerNorm"]):
    def forward(self, alpha, beta, gamma):
        return alpha


class UnreadableNames(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x):
        return self.d(self.a(x) + self.b(x) + self.c(x))


class Raises(UnreadableNames):
    def __init__(self, d_model, num_heads):
        raise RuntimeError("broken on purpose")


class DistanceBiased(CORRECT["SeparateProjections"]):
    """Adds a number for each distance to the scores."""

    def __init__(self, model_dimension, number_of_heads, dropout=0.0):
        super().__init__(model_dimension, number_of_heads, dropout)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, number_of_heads + 1))

    def scores(self, q, k):
        distances = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]
        return super().scores(q, k) - self.slopes[:, None, None] * distances.abs()


class TurnedInside(CORRECT["CachedAndTurned"]):
    """The same, without its cache."""

    def forward(self, x, mask=None):
        return super().forward(x, mask)[0]


class RotaryTablesAlone(CORRECT["RotaryTables"]):
    """No function of this file rotates by them."""


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (NeedsParts, "constructor needs self_attn, feed_forward"),
        (UnreadableCall, "forward needs"),
        (UnreadableNames, "names its layers"),
        (Raises, "broken on purpose"),
        (DistanceBiased, "has slopes: scores that depend on the distance"),
        (TurnedInside, "turns its queries and keys by their positions .inv_freq."),
        (RotaryTablesAlone, "no function of"),
        (nn.Identity, "plays none of the roles"),
    ],
)
def test_what_cannot_be_inferred_is_unresolved_with_what_to_write(cls, says):
    with pytest.raises(Unresolved, match=says) as raised:
        TorchModuleImplementation(cls)
    assert "write a" in str(raised.value)


def test_an_instance_is_refused():
    with pytest.raises(Unresolved, match="name the class"):
        TorchModuleImplementation(nn.Identity())


def test_options_that_the_class_has_not_are_not_provided():
    implementation = TorchModuleImplementation(CORRECT["EncoderBlock"])
    sizes = {"d_model": 12, "n_heads": 3, "d_ff": 7}
    with pytest.raises(NotProvided, match="norm_first"):
        implementation.build("encoder_layer", {**sizes, "norm_first": True})
    with pytest.raises(NotProvided, match="plays the role encoder_layer"):
        implementation.build("layer_norm", {"d_model": 4})

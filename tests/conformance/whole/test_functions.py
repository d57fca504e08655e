"""Plain functions, losses and schedules of a file are tested with zero code: correct ones of many styles have no
failure, and one-line mutants of them have one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import decoding_styles  # noqa: E402
import function_styles  # noqa: E402
import loss_styles  # noqa: E402
import mark_styles  # noqa: E402
import position_styles  # noqa: E402
from function_styles import HEAD  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import SpecificationError, resolve  # noqa: E402
from conformance.adapters.functions.implementation import FunctionImplementation  # noqa: E402
from conformance.catalogue import load  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402
from conformance.runner import evidence_of  # noqa: E402

CATALOGUE = load().claims
ROOMS = (function_styles, loss_styles, decoding_styles, mark_styles, position_styles)
STYLES = {style: given for room in ROOMS for style, given in room.STYLES.items()}
MUTANTS = [mutant for room in ROOMS for mutant in room.MUTANTS]


@pytest.fixture
def pointed(tmp_path):
    """pointed(text, name): what --impl gives for a name in a file of this text; forgotten after the test."""
    before = dict(sys.modules), list(sys.path)

    def point(text, name):
        path = tmp_path / f"style_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(HEAD + text)
        return resolve(f"{path}:{name}")

    yield point
    for added in sys.modules.keys() - before[0].keys():
        if Path(str(getattr(sys.modules[added], "__file__", ""))).is_relative_to(tmp_path):
            del sys.modules[added]
    sys.path[:] = before[1]


def tried(impl):
    """Every claim whose roles the function plays, with whether it holds: None where the function has not what it asks
    for, or keeps another convention. The pinned example and one more are run."""
    for check in CHECKS.values():
        if set(check.roles) <= set(impl.served):
            try:
                holds = evidence_of(check, impl, 1)[0].ok
            except NotProvided:
                holds = None
            except Exception:  # what a mistake raises in a check is its ERROR
                holds = False
            yield (
                check.claim,
                holds or (False if CATALOGUE[check.claim].verdict != "convention" and holds is False else None),
            )


@pytest.mark.parametrize("style", STYLES)
def test_a_correct_function_plays_its_role_and_fails_nothing(style, pointed):
    name, roles, text = STYLES[style]
    impl = pointed(text, name)
    results = dict(tried(impl))
    assert set(impl.served) == set(roles.split())
    assert [claim for claim, holds in results.items() if holds is False] == []
    assert True in results.values()
    assert all(served.fits in (True, None) for served in impl.served.values())
    assert not any(fact.doubtful for served in impl.served.values() for fact in served.facts)


@pytest.mark.parametrize(("style", "line", "instead"), MUTANTS, ids=[f"{m[0]}: {m[1]} -> {m[2]}" for m in MUTANTS])
def test_a_mistake_in_one_line_fails(style, line, instead, pointed):
    name, _, text = STYLES[style]
    assert line in text
    impl = pointed(text.replace(line, instead, 1), name)
    assert any(holds is False for _, holds in tried(impl))


@pytest.mark.parametrize("style", position_styles.CLASSES)
def test_a_class_of_positions_whose_forward_takes_no_vectors_is_tested(style, pointed):
    name, _, text = position_styles.CLASSES[style]
    impl = pointed(text, name)
    assert impl.untested == []
    assert isinstance(impl.parts, FunctionImplementation)
    results = dict(tried(impl.parts))
    assert [claim for claim, holds in results.items() if holds is False] == []
    assert sum(holds is True for holds in results.values()) >= 5


@pytest.mark.parametrize("style", list(position_styles.CLASSES)[:2])
def test_a_mistake_in_a_class_of_positions_fails(style, pointed):
    name, _, text = position_styles.CLASSES[style]
    impl = pointed(text.replace("10000", "1000"), name)
    assert evidence_of(CHECKS["sinusoid-formula"], impl, 1)[0].ok is False


def test_the_waves_of_tensor2tensor_are_another_formula(pointed):
    text = """
def sinusoids(length, channels, max_timescale=10000):
    rates = torch.exp(-math.log(max_timescale) / (channels // 2 - 1) * torch.arange(channels // 2))
    angles = torch.arange(length)[:, None] * rates[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)
"""
    with pytest.raises(SpecificationError, match="to the very end of the base"):
        pointed(text, "sinusoids")


def test_positions_that_are_added_in_place_are_compared_with_the_input_as_it_was(pointed):
    text = """
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        angles = torch.arange(max_len).unsqueeze(1) * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
        self.pe, self.d_model = torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :d_model], d_model

    def forward(self, x):
        x *= math.sqrt(self.d_model)
        x += self.pe[: x.size(1)]
        return x
"""
    impl = pointed(text, "PositionalEncoding")
    for claim in ("sinusoid-formula", "sinusoid-first-row"):
        assert evidence_of(CHECKS[claim], impl, 1)[0].ok


def test_a_dropout_that_is_made_in_the_function_is_one_failure(pointed):
    text = """
RATE = 0.1

def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -math.inf)
    return nn.Dropout(RATE)(scores.softmax(-1)) @ v
"""
    torch.manual_seed(0)
    results = dict(tried(pointed(text, "attention")))
    root = "attention-dropout-is-off-in-evaluation"
    failed = {claim for claim, holds in results.items() if holds is False}
    assert root in failed
    assert all(root in CATALOGUE[claim].depends for claim in failed - {root})
    assert sum(holds is True for holds in results.values()) >= 25
    unscaled = dict(tried(pointed(text.replace(" / math.sqrt(q.size(-1))", ""), "attention")))
    assert unscaled["attention-is-scaled-by-sqrt-d-k"] is False


def test_what_is_found_is_said_with_its_evidence(pointed):
    name, _, text = STYLES["padding mask: hidden, a constant pad"]
    assert pointed(text, name).notes == [
        "create_padding_mask as padding_mask",
        "  mask: True = hidden   (its file writes masked_fill(padding_mask,)",
        "  shape: (2, 1, 1, 4) of (B, T) = (2, 4)   (as returned)",
        "  padding: 1   (the token that changes the mask)",
    ]


def test_a_parameter_that_means_nothing_is_refused_in_one_sentence(pointed):
    with pytest.raises(SpecificationError, match="nothing shows what wobble of attention should be; write a class"):
        pointed("def attention(q, k, v, wobble):\n    return q\n", "attention")


def test_a_decoder_that_only_draws_is_no_greedy_one(pointed):
    text = """
def generate(model, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, torch.multinomial(model(ids)[:, -1].softmax(-1), 1)], 1)
    return ids
"""
    with pytest.raises(SpecificationError, match="it draws its tokens, and no option makes it greedy"):
        pointed(text, "generate")


def test_a_function_that_raises_says_what(pointed):
    text = "def attention(q, k, v):\n    raise ValueError('no such thing')\n"
    with pytest.raises(SpecificationError, match="in no layout: ValueError: no such thing"):
        pointed(text, "attention")


def test_a_filter_that_must_be_told_a_number_of_tokens_keeps_all_where_none_is_asked_for(pointed):
    text = """
def top_k_logits(logits, k):
    best, _ = torch.topk(logits, k)
    return logits.masked_fill(logits < best[:, [-1]], -float("inf"))
"""
    assert pointed(text, "top_k_logits").roles == ("sampling_filter",)


def test_a_filter_of_one_row_is_said_to_take_one(pointed):
    text = """
def top_k_logits(logits, k):
    assert logits.dim() == 1
    best, _ = torch.topk(logits, k)
    return logits.masked_fill(logits < best[-1], -float("inf"))
"""
    (served,) = pointed(text, "top_k_logits").served.values()
    assert [fact.value for fact in served.facts if fact.subject == "logits"] == ["(V,)"]


def test_a_softmax_over_the_first_axis_is_one_of_a_row(pointed):
    text = """
def softmax_with_temperature(logits, temperature):
    return torch.softmax(logits / temperature, dim=0)
"""
    (served,) = pointed(text, "softmax_with_temperature").served.values()
    assert [fact.value for fact in served.facts if fact.subject == "logits"] == ["(V,)"]


@pytest.mark.parametrize("end", [2, 4, 5])  # 4 and 5 are what it would write else
def test_a_decoder_that_never_writes_its_own_end_token_is_greedy_all_the_same(pointed, end):
    text = f"""
EOS = {end}

def generate(model, ids, n):
    for _ in range(n):
        following = model(ids)[:, -1].argmax(-1, keepdim=True)
        if int(following[0]) == EOS:
            break
        ids = torch.cat([ids, following], 1)
    return ids
"""
    served = pointed(text, "generate").served["greedy_decode"]
    assert served.fits
    assert [fact.value for fact in served.facts if fact.subject == "eos"] == [end]


def test_numbers_that_hide_padding_are_added(pointed):
    text = """
def padding_mask(ids, pad_id=0):
    return (ids == pad_id)[:, None, None, :] * -1e9
"""
    (served,) = pointed(text, "padding_mask").served.values()
    assert ["added" in str(fact.value) for fact in served.facts if fact.subject == "mask"] == [True]


@pytest.mark.parametrize(("says", "fits"), [("what is right", False), ("log_probs", True)])
def test_a_loss_without_a_softmax_takes_logarithms_only_where_it_says_so(pointed, says, fits):
    text = f"""
def cross_entropy_loss(pred, targets):
    return -pred.gather(1, targets[:, None]).mean()  # of {says}
"""
    (served,) = pointed(text, "cross_entropy_loss").served.values()
    assert bool(served.fits) is fits

"""Models on minigrad as subjects of the claims about whole models: the same numbers, and defects that are found."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import conformance.checks  # noqa: E402, F401
import minigrad as mg  # noqa: E402
from conformance.adapters.whole.calling import Calling, Input  # noqa: E402
from conformance.adapters.whole.making import Made  # noqa: E402
from conformance.adapters.whole.masking import Mask, real_tokens  # noqa: E402
from conformance.adapters.whole.model import in_double, moved  # noqa: E402
from conformance.adapters.whole.of_minigrad import MinigradModel, OnTorch  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from minigrad import functional as F  # noqa: E402
from minigrad import nn  # noqa: E402
from transformer import causal_mask, scaled_dot_product  # noqa: E402
from transformer.models.gpt2 import GPT2, GPT2Config  # noqa: E402

VOCAB, WIDTH, LONGEST = 17, 8, 12


class Tiny(nn.Module):
    """A causal language model of one attention, whose head is its table of tokens."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Parameter(mg.randn(LONGEST, WIDTH))
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def visible(self, ids, real):
        mask = causal_mask(ids.shape[1])
        return mask if real is None else mask & real.unsqueeze(1)

    def attend(self, x, mask):
        return scaled_dot_product(self.query(x), self.key(x), self.value(x), mask)[0]

    def forward(self, ids, real=None):
        x = self.dropout(self.tokens(ids) + self.positions[: ids.shape[1]])
        return self.head(self.norm(x + self.attend(x, self.visible(ids, real))))


class SeesTheFuture(Tiny):
    def visible(self, ids, real):
        return mg.ones(ids.shape[1], ids.shape[1], dtype=mg.bool)


class SeesPadding(Tiny):
    def visible(self, ids, real):
        n = ids.shape[1]
        mask = causal_mask(n)
        return mask if real is None else mask | ~real.unsqueeze(1)  # hidden words are shown to all


class DropsInEvaluation(Tiny):
    def attend(self, x, mask):
        return F.dropout(super().attend(x, mask), 0.3)


class DropsNothing(Tiny):
    def __init__(self, dropout=0.1):
        super().__init__(dropout)
        self.dropout.forward = lambda x: x


class DropsItsOwnShare(Tiny):
    def __init__(self, dropout=0.1):
        super().__init__(1.0 - dropout)


class CutsTheGradient(Tiny):
    def attend(self, x, mask):
        return super().attend(x.detach(), mask)


class HasAnIdlePart(Tiny):
    def __init__(self, dropout=0.1):
        super().__init__(dropout)
        self.idle = nn.Linear(WIDTH, WIDTH)


class MixesItsRows(Tiny):
    def attend(self, x, mask):
        return super().attend(x, mask) + x.mean(0, keepdim=True)


class Remembers(Tiny):
    calls = 0.0

    def attend(self, x, mask):
        self.calls += 1.0
        return super().attend(x, mask) * (1.0 + 0.1 * self.calls)


class CountsFromOne(Tiny):
    """Ids outside of the vocabulary are read as its last word."""

    def forward(self, ids, real=None):
        return super().forward(ids.clamp(max=VOCAB - 1), real)


class HasNoOrder(SeesTheFuture):
    """All places get the mean of the positions."""

    def forward(self, ids, real=None):
        x = self.dropout(self.tokens(ids) + self.positions.mean(0))
        return self.head(self.norm(x + self.attend(x, self.visible(ids, real))))


class GivesProbabilities(Tiny):
    def forward(self, ids, real=None):
        return F.softmax(super().forward(ids, real), -1)


class ForgetsATensor(Tiny):
    def __init__(self, dropout=0.1):
        super().__init__(dropout)
        self.shift = [mg.randn(WIDTH)]  # neither parameter nor buffer

    def attend(self, x, mask):
        return super().attend(x, mask) + self.shift[0].to(x.dtype)


class Cached(GPT2):
    def __init__(self, dropout=0.1):
        super().__init__(GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=WIDTH, n_layer=2, n_head=2))


class ForgetsWhereACacheEnds(Cached):
    def embed(self, ids, start, positions):
        return super().embed(ids, 0, positions)


class Side:
    """The implementation that a model is."""

    def __init__(self, cls):
        def make(sizing):
            mg.manual_seed(torch.initial_seed())
            return OnTorch(cls(dropout=sizing.of("dropout", 0.1)))

        made = Made(cls.__name__, OnTorch, [], make)
        real = Mask("real", lambda inputs: real_tokens(inputs, "ids"), "True = real", keys="ids", when_padded=True)
        calling = Calling(
            (Input("ids", "ids", VOCAB),), masks=(real,), cache="cache", layout="(B, T, V)", outputs=VOCAB
        )
        self.whole = in_double(MinigradModel(made, moved(made.fresh()).eval(), calling, "language_model", []))

    def build(self, role, config):
        if role not in ("module", "model", "language_model"):
            raise NotProvided(role)
        return self.whole.twin()


def result_of(cls, claim):
    return run_check(CHECKS[claim], Side(cls), "quick")


RIGHT = {"cached-steps-give-the-logits-of-one-pass": Cached}
"""The right model beside a defect, where it is not `Tiny`."""

DEFECTS = {
    "cached-steps-give-the-logits-of-one-pass": ForgetsWhereACacheEnds,
    "language-model-is-causal": SeesTheFuture,
    "language-model-is-causal-in-training": SeesTheFuture,
    "language-model-padding-changes-nothing": SeesPadding,
    "model-evaluation-repeats-itself": DropsInEvaluation,
    "model-drops-only-in-training": DropsNothing,
    "model-dropout-is-what-its-option-says": DropsItsOwnShare,
    "model-gradients-agree-with-differences": CutsTheGradient,
    "model-every-parameter-gets-a-gradient": HasAnIdlePart,
    "model-rows-of-a-batch-are-apart": MixesItsRows,
    "model-answers-one-sentence-as-in-a-batch": MixesItsRows,
    "model-keeps-no-state-between-calls": Remembers,
    "model-refuses-tokens-outside-its-vocabulary": CountsFromOne,
    "model-order-of-words-matters": HasNoOrder,
    "language-model-gives-logits": GivesProbabilities,
    "model-state-dict-makes-an-equal-model": ForgetsATensor,
}


@pytest.mark.parametrize("claim", DEFECTS)
def test_a_defect_in_a_model_on_minigrad_breaks_its_claim_and_a_right_model_keeps_it(claim):
    assert result_of(RIGHT.get(claim, Tiny), claim).verdict is Verdict.PASS
    expected = Verdict.NOTE if claim == "language-model-gives-logits" else Verdict.FAIL
    assert result_of(DEFECTS[claim], claim).verdict is expected


def test_the_line_of_a_dropout_is_the_models_own():
    assert (
        result_of(DropsInEvaluation, "model-evaluation-repeats-itself")
        .place.split(":")[0]
        .endswith("test_of_minigrad.py")
    )


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ("losses-for-balance-leave-padding-out-altogether", "no table of its words is seen"),
        ("cached-steps-give-the-logits-of-one-pass", "Tiny has no method new_cache"),
        (
            "autocast-gives-no-nan",
            "under autocast float16 it does not run (torch's autocast reaches no operation",
        ),
        ("half-precision-gives-no-nan", "in float16 it does not run (minigrad computes in float32 and float64"),
        ("language-model-can-be-sure", "one operation"),
        ("model-positions-reach-every-side", "one operation"),
    ],
)
def test_what_minigrad_cannot_answer_is_not_provided_and_says_why(claim, why):
    found = result_of(Tiny, claim)
    assert found.verdict is Verdict.NOT_PROVIDED
    assert why in found.message


# --- the module itself ----------------------------------------------------------------------------


def ids_of(*shape):
    return torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, shape))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_answers_and_gradients_are_minigrads(dtype):
    model = Tiny().to(getattr(mg, dtype)).eval()
    module, ids = OnTorch(Tiny().to(getattr(mg, dtype))).eval(), ids_of(2, 5)
    module.load_state_dict({name: torch.tensor(value.numpy()) for name, value in model.state_dict().items()})
    out = module(ids=ids)
    expected = model(mg.tensor(ids.numpy()))
    np.testing.assert_array_equal(out.detach().numpy(), expected.detach().numpy())
    weight = np.random.default_rng(1).standard_normal(out.shape).astype(dtype)
    out.backward(torch.from_numpy(weight))
    expected.backward(mg.tensor(weight))
    own = dict(model.named_parameters())
    assert own.keys() == dict(module.named_parameters()).keys()
    for name, parameter in module.named_parameters():
        np.testing.assert_array_equal(parameter.grad.numpy(), own[name].grad.numpy())


def test_the_state_dict_has_minigrads_names_and_a_tied_weight_stays_one():
    model = Tiny()
    model.register_buffer("kept", mg.ones(2))
    model.register_buffer("made", mg.ones(2), persistent=False)
    module = OnTorch(model)
    assert module.state_dict().keys() == model.state_dict().keys()
    assert module.head.weight is module.tokens.weight


def test_buffers_reach_minigrad():
    model = Tiny()
    model.register_buffer("shift", mg.zeros(VOCAB))
    forward = model.forward
    model.forward = lambda ids, real=None: forward(ids, real) + model.shift
    module, ids = OnTorch(model).eval(), ids_of(1, 3)
    before = module(ids=ids)
    module.shift += 2.0
    np.testing.assert_allclose((module(ids=ids) - before).detach().numpy(), 2.0, rtol=1e-5)


def test_a_parameter_that_reaches_nothing_has_no_gradient():
    module = OnTorch(HasAnIdlePart()).eval()
    module(ids=ids_of(2, 5)).sum().backward()
    assert module.idle.weight.grad is None
    assert module.query.weight.grad is not None


def test_where_nothing_needs_a_gradient_every_gradient_is_none():
    class Detached(Tiny):
        def forward(self, ids, real=None):
            return super().forward(ids, real).detach()

    module = OnTorch(Detached()).eval()
    module(ids=ids_of(2, 5)).sum().backward()
    assert all(parameter.grad is None for parameter in module.parameters())


def test_without_gradients_nothing_is_recorded():
    class Recording(Tiny):
        def forward(self, ids, real=None):
            self.out = super().forward(ids, real)
            return self.out

    module = OnTorch(Recording()).eval()
    module(ids=ids_of(1, 3))
    assert module.minigrad.out.requires_grad
    with torch.no_grad():
        module(ids=ids_of(1, 3))
    assert not module.minigrad.out.requires_grad


def test_frozen_parameters_stay_frozen():
    model = Tiny()
    model.query.requires_grad_(False)
    module = OnTorch(model).eval()
    module(ids=ids_of(2, 5)).sum().backward()
    assert not module.query.weight.requires_grad
    assert module.query.weight.grad is None
    assert module.key.weight.grad is not None


def test_numbers_that_go_in_get_a_gradient():
    module = OnTorch(nn.Linear(3, 2)).eval()
    x = torch.ones(4, 3, requires_grad=True)
    module(x=x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(module.weight.detach().numpy().sum(0), (4, 1)), rtol=1e-6)


def test_draws_in_training_follow_torchs_generator():
    module, ids = OnTorch(Tiny(dropout=0.5)), ids_of(2, 5)

    def drawn(seed):
        torch.manual_seed(seed)
        return module.train()(ids=ids).detach().numpy()

    np.testing.assert_array_equal(drawn(1), drawn(1))
    assert not np.array_equal(drawn(1), drawn(2))
    np.testing.assert_array_equal(module.eval()(ids=ids).detach().numpy(), module(ids=ids).detach().numpy())


def test_copies_share_nothing():
    one = Side(Tiny).whole
    other, inputs = one.twin(), one.example()
    before = one(**inputs)["out"]
    with torch.no_grad():
        for parameter in other.module.parameters():
            parameter.mul_(2.0)
    assert not np.array_equal(other(**inputs)["out"], before)
    np.testing.assert_array_equal(one(**inputs)["out"], before)


def test_narrow_numbers_are_refused():
    with pytest.raises(NotProvided, match="float32 and float64"):
        OnTorch(Tiny()).to(torch.bfloat16)(ids=ids_of(1, 3))


def test_several_results_are_refused():
    class Pair(Tiny):
        def forward(self, ids, real=None):
            return super().forward(ids, real), ids

    with pytest.raises(TypeError, match="Pair gives tuple: forward must give one tensor"):
        OnTorch(Pair())(ids=ids_of(1, 3))

"""Models on minigrad as subjects of the claims about whole models: the same numbers, and defects that are found."""

from __future__ import annotations

import importlib
import inspect
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import conformance.checks  # noqa: E402
import minigrad as mg  # noqa: E402
from conformance.adapters import resolve, subjects  # noqa: E402
from conformance.adapters.whole.calling import Calling, Input  # noqa: E402
from conformance.adapters.whole.making import Made  # noqa: E402
from conformance.adapters.whole.masking import Mask, real_tokens  # noqa: E402
from conformance.adapters.whole.model import WholeModel, in_double, moved  # noqa: E402
from conformance.adapters.whole.of_minigrad import on_torch, torch_class  # noqa: E402
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
            return on_torch(cls(dropout=sizing.of("dropout", 0.1)))

        made = Made(cls.__name__, torch_class(cls), [], make)
        real = Mask("real", lambda inputs: real_tokens(inputs, "ids"), "True = real", keys="ids", when_padded=True)
        calling = Calling(
            (Input("ids", "ids", VOCAB),), masks=(real,), cache="cache", layout="(B, T, V)", outputs=VOCAB
        )
        self.whole = in_double(WholeModel(made, moved(made.fresh()).eval(), calling, "language_model", []))

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
        ("losses-for-balance-leave-padding-out-altogether", "it returns no loss for the balance of experts"),
        ("cached-steps-give-the-logits-of-one-pass", "Tiny has no method new_cache"),
        (
            "autocast-gives-no-nan",
            "under autocast float16 it does not run (torch's autocast reaches no operation",
        ),
        ("half-precision-gives-no-nan", "in float16 it does not run (minigrad computes in float32 and float64"),
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
    module, ids = on_torch(Tiny().to(getattr(mg, dtype))).eval(), ids_of(2, 5)
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
    module = on_torch(model)
    assert module.state_dict().keys() == model.state_dict().keys()
    assert module.head.weight is module.tokens.weight


def test_buffers_reach_minigrad():
    model = Tiny()
    model.register_buffer("shift", mg.zeros(VOCAB))
    forward = model.forward
    model.forward = lambda ids, real=None: forward(ids, real) + model.shift
    module, ids = on_torch(model).eval(), ids_of(1, 3)
    before = module(ids=ids)
    module.shift += 2.0
    np.testing.assert_allclose((module(ids=ids) - before).detach().numpy(), 2.0, rtol=1e-5)


def test_a_parameter_that_reaches_nothing_has_no_gradient():
    module = on_torch(HasAnIdlePart()).eval()
    module(ids=ids_of(2, 5)).sum().backward()
    assert module.idle.weight.grad is None
    assert module.query.weight.grad is not None


def test_where_nothing_needs_a_gradient_every_gradient_is_none():
    class Detached(Tiny):
        def forward(self, ids, real=None):
            return super().forward(ids, real).detach()

    module = on_torch(Detached()).eval()
    module(ids=ids_of(2, 5)).sum().backward()
    assert all(parameter.grad is None for parameter in module.parameters())


def test_without_gradients_nothing_is_recorded():
    class Recording(Tiny):
        def forward(self, ids, real=None):
            self.out = super().forward(ids, real)
            return self.out

    module = on_torch(Recording()).eval()
    module(ids=ids_of(1, 3))
    assert module.minigrad.out.requires_grad
    with torch.no_grad():
        module(ids=ids_of(1, 3))
    assert not module.minigrad.out.requires_grad


def test_frozen_parameters_stay_frozen():
    model = Tiny()
    model.query.requires_grad_(False)
    module = on_torch(model).eval()
    module(ids=ids_of(2, 5)).sum().backward()
    assert not module.query.weight.requires_grad
    assert module.query.weight.grad is None
    assert module.key.weight.grad is not None


def test_numbers_that_go_in_get_a_gradient():
    module = on_torch(nn.Linear(3, 2)).eval()
    x = torch.ones(4, 3, requires_grad=True)
    module(x=x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(module.weight.detach().numpy().sum(0), (4, 1)), rtol=1e-6)


def test_draws_in_training_follow_torchs_generator():
    module, ids = on_torch(Tiny(dropout=0.5)), ids_of(2, 5)

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
        on_torch(Tiny()).to(torch.bfloat16)(ids=ids_of(1, 3))


class WithLoss(Tiny):
    def forward(self, ids, real=None, labels=None):
        logits = super().forward(ids, real)
        return logits if labels is None else {"logits": logits, "loss": F.cross_entropy(logits[0], labels[0])}


def test_results_keep_their_nesting_and_one_may_depend_on_another():
    module, ids = on_torch(WithLoss()).eval(), ids_of(2, 5)
    with torch.no_grad():
        found = module(ids=ids, labels=ids)
    expected = torch.nn.functional.cross_entropy(found["logits"][0], ids[0])
    torch.testing.assert_close(found["loss"], expected)
    found = module(ids, labels=ids)
    (gradient,) = torch.autograd.grad(found["loss"], found["logits"])
    assert float(gradient[0].abs().max()) > 0
    assert float(gradient[1].abs().max()) == 0


# --- whoever watches torch's operations sees minigrad's -------------------------------------------


class Watcher(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("cls", [Tiny, Cached, SeesPadding])
def test_a_run_that_is_watched_gives_the_same_numbers(cls):
    module, ids = on_torch(cls().double()).eval(), ids_of(2, 5)
    plain = module(ids=ids)
    with Watcher() as watcher:
        watched = module(ids=ids)
    torch.testing.assert_close(watched, plain, rtol=1e-12, atol=1e-12)
    assert {"embedding", "native_layer_norm"} <= {*watcher.seen}
    weight = torch.randn(plain.shape, dtype=torch.float64)
    mine, theirs = (torch.autograd.grad(out, list(module.parameters()), weight) for out in (plain, watched))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_calls_of_parts_are_seen_only_in_a_run_that_is_watched_and_nothing_is_left_behind():
    module, ids, calls = on_torch(Tiny()).eval(), ids_of(1, 3), []
    module.query.register_forward_hook(lambda part, args, result: calls.append((args[0].shape, result.shape)))
    module(ids=ids)
    assert calls == []
    with Watcher():
        module(ids=ids)
    assert calls == [((1, 3, WIDTH), (1, 3, WIDTH))]
    assert all("forward" not in vars(part) for part in module.minigrad.modules())


def test_a_forward_that_is_an_attribute_is_there_again_after_a_run_that_is_watched():
    module = on_torch(DropsNothing()).eval()
    before = module.minigrad.dropout.forward
    with Watcher():
        module(ids=ids_of(1, 3))
    assert module.minigrad.dropout.forward is before


def test_a_record_shows_the_inside_with_the_lines_of_the_model():
    inside = Side(Tiny).whole.inside()
    assert {"attention", "norm"} <= inside.seen
    assert "attention.py" in inside.attention  # where the model's library calls the softmax
    assert [finding.sentence for finding in inside.findings if finding.certain] == []


def test_a_draw_among_categories_is_the_watchers():
    class Draws(Tiny):
        def forward(self, ids, real=None):
            return mg.multinomial(super().forward(ids, real)[:, -1].softmax(-1), 1)

    with Watcher() as watcher:
        on_torch(Draws()).eval()(ids=ids_of(2, 3))
    assert "multinomial" in watcher.seen


def test_an_op_that_torch_has_no_operation_for_is_named():
    class Unfolds(Tiny):
        def forward(self, ids, real=None):
            return super().forward(ids, real).unfold(-1, 2, 1)

    module = on_torch(Unfolds()).eval()
    assert module(ids=ids_of(1, 3)).shape == (1, 3, VOCAB - 1, 2)
    with Watcher(), pytest.raises(NotProvided, match="minigrad's unfold"):
        module(ids=ids_of(1, 3))


# --- the classes ----------------------------------------------------------------------------------


def test_a_class_stands_where_the_models_stands_and_is_made_as_it_is():
    cls = torch_class(SeesPadding)
    assert issubclass(cls, torch_class(Tiny))
    assert (cls.__name__, cls.__module__) == ("SeesPadding", SeesPadding.__module__)
    assert inspect.signature(cls) == inspect.signature(SeesPadding)
    assert inspect.getsource(cls) == inspect.getsource(SeesPadding)
    module = cls(dropout=0.3)
    assert type(module.minigrad) is SeesPadding
    assert isinstance(module.query, torch.nn.Linear)
    assert module.dropout.p == 0.3
    assert module.tokens.num_embeddings == VOCAB


def test_a_method_takes_and_gives_torchs_tensors():
    class Writes(Tiny):
        def best(self, ids, count=1):
            for _ in range(count):
                ids = mg.cat([ids, self(ids)[:, -1:].argmax(-1)], 1)
            return ids

    module, ids = on_torch(Writes()).eval(), ids_of(2, 3)
    written = module.best(ids, count=4)
    assert written.shape == (2, 7)
    with Watcher() as watcher:
        torch.testing.assert_close(module.best(ids, count=4), written)
    assert "argmax" in watcher.seen


# --- pointed at -----------------------------------------------------------------------------------


MODEL = '''
"""A language model on minigrad."""
import minigrad as mg
from minigrad import functional as F
from minigrad import nn


class GPT(nn.Module):
    """A causal language model of one attention."""

    def __init__(self, vocab_size=40, width=8, block_size=16):
        self.block_size = block_size
        self.tokens, self.positions = nn.Embedding(vocab_size, width), nn.Embedding(block_size, width)
        self.qkv, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)

    def forward(self, idx, targets=None):
        x = self.tokens(idx) + self.positions(mg.arange(idx.shape[1]))
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        hidden = mg.tril(mg.ones(idx.shape[1], idx.shape[1])) == 0
        logits = self.head(self.norm(x + scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def generate(self, idx, max_new_tokens, temperature=1.0):
        for _ in range(max_new_tokens):
            logits = self(idx[:, -self.block_size :])[0][:, -1] / temperature
            idx = mg.cat([idx, mg.multinomial(logits.softmax(-1), 1)], 1)
        return idx
'''


@pytest.fixture
def gpt(tmp_path, monkeypatch):
    file = tmp_path / "gpt_on_minigrad.py"
    file.write_text(MODEL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield file
    for name in [name for name in sys.modules if name.endswith(file.stem)]:
        del sys.modules[name]


ASKED = (
    "language-model-is-causal, generate-takes-the-best-token, generate-divides-logits-by-temperature, "
    "attention-scale-is-one-over-sqrt-d-head, language-model-loss-teaches-the-next-token"
)


@pytest.mark.parametrize("name", ["GPT", "GPT(vocab_size=50)"])
def test_a_file_with_a_model_on_minigrad_is_tested_as_one_with_torchs(gpt, name):
    whole = resolve(f"{gpt}:{name}").whole
    assert whole.kind == "language_model"
    for claim in ASKED.split(", "):
        found = run_check(CHECKS[claim], resolve(f"{gpt}:{name}"), "quick")
        assert found.verdict is Verdict.PASS, found


def test_the_line_of_a_mistake_is_that_of_the_file(gpt):
    gpt.write_text(MODEL.replace("q.shape[-1] ** 0.5", "q.shape[-1]"), encoding="utf-8")
    found = run_check(CHECKS["attention-scale-is-one-over-sqrt-d-head"], resolve(f"{gpt}:GPT"), "quick")
    assert found.verdict is Verdict.FAIL
    line = next(n for n, text in enumerate(gpt.read_text("utf-8").splitlines(), 1) if "scores = q @ k" in text)
    assert found.place.startswith(f"{gpt}:{line}")


def test_a_whole_file_names_its_models_on_minigrad(gpt):
    assert list(subjects(str(gpt))) == ["gpt_on_minigrad.py:GPT"]


def test_check_takes_a_class_and_an_instance(gpt):
    found = importlib.import_module(gpt.stem)
    for model in (found.GPT, found.GPT(vocab_size=50)):
        checked = conformance.check(model, budget="quick", claims="language-model-is-causal")
        assert {result.verdict for result in checked.results.values()} == {Verdict.PASS}

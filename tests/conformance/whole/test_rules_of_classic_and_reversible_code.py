"""What the first Transformers in PyTorch, recommenders of a library and reversible layers taught: how they are called,
which of their results is the answer, and which parameters need no gradient."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed, told  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.stated import Shape  # noqa: E402
from conformance.adapters.whole.beside import beside  # noqa: E402
from conformance.adapters.whole.norms import perceptrons  # noqa: E402
from conformance.adapters.whole.record import record  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import DECIDER  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH = 16


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / 4
        weights = (scores if mask is None else scores + mask.squeeze(1)).softmax(-1)
        return x + weights @ v, weights


class Classic(nn.Module):
    """Vectors and the numbers of their places."""

    def __init__(self):
        super().__init__()
        self.places, self.layers = nn.Embedding(24, WIDTH), nn.ModuleList([Attention()])

    def forward(self, src_seq, src_pos):
        x = src_seq + self.places(src_pos)
        for layer in self.layers:
            x, _ = layer(x)
        return x


def test_the_places_of_the_source_are_no_number_a_sample():
    calling = calling_of(Classic())
    assert (calling.batch_first, calling.positions) == (True, "src_pos")


class AddsItsMask(nn.Module):
    """A stack whose caller hands numbers that are added to scores."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, hidden_states, attention_mask):
        for layer in self.layers:
            hidden_states, _ = layer(hidden_states, attention_mask)
        return hidden_states


def test_a_mask_of_four_axes_may_be_added_though_it_is_called_one_of_what_is_real():
    (mask,) = calling_of(AddsItsMask()).masks
    assert mask.how.startswith("additive")


class Shows(nn.Module):
    """Classes of texts, and the maps of its attention."""

    def __init__(self, vocab_size=30, num_classes=2):
        super().__init__()
        self.words, self.layers = nn.Embedding(vocab_size, WIDTH), nn.ModuleList([Attention(), Attention()])
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, ids):
        x, maps = self.words(ids), []
        for layer in self.layers:
            x, weights = layer(x)
            maps.append(weights)
        return self.head(x.mean(1)), maps


def test_a_map_of_attention_is_no_answer():
    calling = calling_of(Shows())
    assert (calling.layout, calling.outputs, calling.answer_at) == ("(B, V)", 2, 0)


class Weighs(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.beta = Attention(), nn.Parameter(torch.ones(1))

    def forward(self, x, weight=None):
        x, _ = self.attend(x)
        return x if weight is None else x + self.beta * weight[..., None]


class Layer(nn.Module):
    """A layer that may be told how much each place weighs."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = Weighs(), nn.LayerNorm(WIDTH)

    def forward(self, x, weight=None):
        return self.norm(self.inner(x, weight=weight))


class Forgets(Layer):
    def forward(self, x):
        return self.norm(self.inner(x))


@pytest.mark.parametrize(("cls", "verdict"), [(Layer, "PASS"), (Forgets, "FAIL")])
def test_what_an_argument_that_may_be_left_out_weighs_by_needs_no_gradient(cls, verdict):
    """Where nobody can hand it over, it is idle."""
    assert said(cls, "model-every-parameter-gets-a-gradient") == verdict


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        x = self.norm(x)
        return self.attend(x, x, x, need_weights=False)[0]


class Coupled(nn.Module):
    """Two halves of the rows, each of which gets what is computed from the other."""

    def __init__(self):
        super().__init__()
        self.f, self.g = Half(), Half()

    def forward(self, x):
        one, two = x.chunk(2, 1)
        one = one + self.f(two)
        return torch.cat([one, two + self.g(one)], 1)


class Reversible(nn.Module):
    """An encoder of reversible layers."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Coupled(), Coupled()])

    def forward(self, x):
        x = torch.cat([x, x], 1)
        for block in self.blocks:
            x = block(x)
        return sum(x.chunk(2, 1))


def test_streams_along_any_axis_may_be_added_to_each_other():
    assert said(Reversible, "sublayers-add-their-own-input") != "FAIL"


class Frozen(torch.autograd.Function):
    """Computes without gradients, and once more on the way back."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.save_for_backward(x)
        ctx.layer = layer
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            ctx.layer(x).backward(grad)
        return x.grad, None


class RunsAgain(nn.Module):
    """Layers that are run again on the way back."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Half(), Half()])

    def forward(self, x):
        for layer in self.layers:
            x = x + Frozen.apply(x, layer)
        return x


def test_layers_that_are_run_again_want_a_gradient_in_front_of_them():
    assert said(RunsAgain, "model-gradients-agree-with-differences") == "NOTE"


@pytest.mark.parametrize("inner", [WIDTH, 2 * WIDTH])
def test_convolutions_that_see_one_place_are_a_feed_forward_network(inner):
    class PointWiseFeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Conv1d(WIDTH, inner, 1), nn.Conv1d(inner, WIDTH, 1)

        def forward(self, x):
            return x + self.down(self.up(x.transpose(1, 2)).relu()).transpose(1, 2)

    module = PointWiseFeedForward()
    (network,) = perceptrons(record(module, lambda: module(torch.randn(2, 5, WIDTH))))
    assert (network.widens, network.function) == (inner > WIDTH, ("relu",))


def test_numbers_of_steps_rise():
    assert beside(Shape("timesteps", (2, 4, 1), "int"))[0, :, 0].tolist() == [0, 1, 2, 3]
    assert beside(Shape("timesteps", (2, 4), "int"))[1].tolist() == [0, 1, 2, 3]


ACTIONS = "self.actions(actions)), 2)"
WRITES = {
    "timesteps, attention_mask=None):": "timesteps, attention_mask=None, targets=None):",
    "batch, steps = states.shape[:2]": "batch, steps = states.shape[:2]\n        less = int(targets is None)",
    ACTIONS: "F.pad(self.actions(actions)[:, less:], (0, 0, 0, less))), 2)",
}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [(WRITES, "NOT_PROVIDED"), ({ACTIONS: "self.actions(actions.roll(-1, 1))), 2)"}, "FAIL")],
)
def test_a_decider_that_writes_takes_one_action_less(made, changes, verdict):
    """In both the first action reaches nothing; only one of them says that it leaves one out where it has no labels."""
    assert told(made, DECIDER, "actions-are-predicted-before-they-are-seen", changes) == verdict

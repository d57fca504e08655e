"""Norms and networks: the right ones are recognised in every writing, and each mistake gets its name and line."""

import pytest

torch = pytest.importorskip("torch")

from inside_subjects import SUBJECTS, load, mutated, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from conformance.adapters.whole.activations import activation_findings  # noqa: E402
from conformance.adapters.whole.norms import network_findings, networks, norm_findings, norms  # noqa: E402
from conformance.adapters.whole.record import record  # noqa: E402

VAR, DIVIDE = "var = x.var(-1, unbiased=False, keepdim=True)", "x = (x - mean) / torch.sqrt(var + self.eps)"
LAST, ROOT = "return self.gamma * x + self.beta", "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)"
NETWORK = "return self.w_2(self.dropout(self.w_1(x).relu()))"
WEIGHT = "return self._norm(x.float()).type_as(x) * self.weight"

# file, line, line of the mutant, part of the sentence, and the line of the finding where it is another
MUTANTS = [
    ("translator", VAR, "var = x.var(-1, keepdim=True)", "unbiased"),
    ("translator", DIVIDE, "x = (x - mean) / (torch.sqrt(var) + self.eps)", "eps is added to the root"),
    ("translator", DIVIDE, "x = (x - mean) / (x.std(-1, keepdim=True) + self.eps)", "unbiased one, and eps"),
    ("translator", DIVIDE, "x = (x - mean) / x.std(-1, keepdim=True)", "unbiased one (divided by d - 1)"),
    ("translator", DIVIDE, "x = (x - mean) / (var + self.eps)", "root of the variance is missing"),
    ("translator", DIVIDE, "x = (x - mean) * torch.sqrt(var + self.eps)", "multiplies by the root"),
    ("translator", DIVIDE, "x = x / torch.sqrt(var + self.eps)", "mean is not subtracted"),
    ("translator", DIVIDE, "x = x - mean", "divided by nothing", LAST),
    ("translator", "mean = x.mean(-1, keepdim=True)", "mean = x.mean(1, keepdim=True)", "", DIVIDE),
    ("translator", LAST, "return self.gamma * x", "bias is not added"),
    ("translator", LAST, "return x + self.beta", "weight is not applied"),
    ("translator", LAST, "return self.gamma * x + self.beta + self.beta", "bias is added twice"),
    ("translator", LAST, "return self.beta * x + self.gamma", "changed places"),
    ("llama", ROOT, "return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + self.eps)", "sum of the squares"),
    ("llama", ROOT, "return x / (x.pow(2).mean(-1, keepdim=True) + self.eps)", "mean square is missing"),
    ("llama", ROOT, "return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps)", "eps is added to the root"),
    ("llama", ROOT, "return x * torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)", "multiplies by the root"),
    ("llama", ROOT, "return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)", "over axis 1"),
    ("llama", ROOT, "return x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + self.eps)", "over axis 0"),
    ("llama", ROOT, "return x * torch.rsqrt(x.pow(2).mean((1, 2), keepdim=True) + self.eps)", "axis 1 together"),
    ("llama", WEIGHT, "return self._norm(x.float()).type_as(x)", "weight is not applied", ROOT),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant[0]}-{mutant[2][:50]}")
def test_a_norm_with_one_mistake_is_named_at_its_line(mutant, tmp_path):
    file, line, instead, words, *where = mutant
    found = norm_findings(run(mutated(tmp_path, file, None, line, instead)))
    if not words:  # a mean of another axis beside the right variance has no name here
        assert [finding.certain for finding in found] == [False]
        return
    [finding] = found
    assert finding.certain != words.startswith("eps")
    assert words in finding.sentence
    assert finding.place.text == (where or [instead])[0]
    assert network_findings(run(load(SUBJECTS / f"{file}.py"))) == []


@pytest.mark.parametrize(("file", "formula", "count"), [
    ("gpt", "LayerNorm", 7), ("llama", "RMSNorm", 5), ("translator", "LayerNorm", 10),
])  # fmt: skip
def test_right_norms_are_recognised_and_silent(file, formula, count):
    recorded = run(load(SUBJECTS / f"{file}.py"))
    assert [norm.formula for norm in norms(recorded)] == [formula] * count
    assert norm_findings(recorded) == []


class ChannelsFirst(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        return self.weight[:, None] * ((x - mean) / torch.sqrt(spread + 1e-6)) + self.bias[:, None]


class ShortNames(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        spread = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
        return self.g * ((x - x.mean(-1, keepdim=True)) / torch.sqrt(spread + 1e-5)) + self.b


class GemmaNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight)


@pytest.mark.parametrize(("module", "formula"), [
    (ChannelsFirst(6), "LayerNorm"), (GemmaNorm(7), "RMSNorm with 1 + weight"), (nn.RMSNorm(7), "RMSNorm"),
    (nn.LayerNorm(7, eps=0.01), "LayerNorm"), (ShortNames(7), "LayerNorm"), (nn.LayerNorm(7, bias=False), "LayerNorm"),
])  # fmt: skip
def test_other_ways_to_write_a_norm_are_right_too(module, formula):
    recorded = record(module, lambda: module(torch.randn(2, 6, 7)))
    [norm] = norms(recorded)
    assert (norm.formula, norm.mistake) == (formula, "")


class OverTime(nn.Module):
    """Each series is normalised over its time. keeps: what was measured is kept, to be put back."""

    def __init__(self, width, keeps=False):
        super().__init__()
        self.weight, self.bias, self.keeps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), keeps

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
        if self.keeps:
            self.mean, self.std = mean.detach(), std.detach()
        return (x - mean) / std * self.weight + self.bias


def test_a_norm_of_data_may_be_over_time_and_one_of_tokens_may_not():
    x = torch.randn(2, 6, 3)

    def mistakes(module):
        return [norm.mistake for norm in norms(record(module, lambda: module(x)))]

    over_time = "its statistics are over axis 1, not over the features of one token"
    assert mistakes(OverTime(3, keeps=True)) == [""]
    assert mistakes(nn.Sequential(OverTime(3), nn.Linear(3, 8))) == [""]
    assert mistakes(nn.Sequential(nn.Linear(3, 3), OverTime(3))) == [over_time]
    assert mistakes(OverTime(3)) == [over_time]


def test_the_networks_of_a_model_and_their_functions():
    for file, count, function in (("gpt", 3, {"gelu"}), ("llama", 2, {"mul", "silu"}), ("translator", 4, {"relu"})):
        found = networks(run(load(SUBJECTS / f"{file}.py")))
        assert [set(network.function) for network in found] == [function] * count


@pytest.mark.parametrize(("file", "line", "instead", "where"), [
    ("translator", NETWORK, "return self.w_2(self.dropout(self.w_1(x)))", ""),
    ("translator", NETWORK, "return self.w_2(self.w_1(x)).relu()", ""),
    ("gpt", "x = self.gelu(x)", "pass", "x = self.c_proj(x)"),
])  # fmt: skip
def test_a_network_without_a_function_between_its_maps(file, line, instead, where, tmp_path):
    [finding] = network_findings(run(mutated(tmp_path, file, None, line, instead)))
    assert finding.certain
    assert finding.place.text == (where or instead)
    assert ("relu stands after" in finding.sentence) == (instead.endswith("relu()"))


class TwoMaps(nn.Module):
    """join: of a gate and a value."""

    def __init__(self, join):
        super().__init__()
        self.join = join
        self.gate, self.up, self.down = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.down(self.join(self.gate(x), self.up(x)))


@pytest.mark.parametrize(
    ("join", "is_told"),
    [
        (lambda gate, value: F.silu(gate * value), True),
        (lambda gate, value: (gate * value).relu(), True),
        (lambda gate, value: F.silu(gate) * value, False),
        (lambda gate, value: F.layer_norm(gate.sigmoid() * value, (8,)), False),
        (lambda gate, value: F.layer_norm(gate * value, (8,)), False),
        (lambda gate, value: F.relu(gate.tanh() * value), False),
    ],
)
def test_a_function_acts_on_the_gate_and_not_on_the_product(join, is_told):
    model = TwoMaps(join)
    found = activation_findings(record(model, lambda: model(torch.randn(2, 5, 6))))
    assert [one.claim for one in found] == ["feed-forward-gate-has-its-function"] * is_told


class Gated(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.gate, self.up, self.down = gate, nn.Linear(6, 16), nn.Linear(8, 6)

    def forward(self, x):
        value, gate = self.up(x).chunk(2, -1)
        return self.down(value * nn.functional.gelu(gate if self.gate else value))


def test_a_gate_that_is_split_off_is_used():
    def found(gate):
        model = Gated(gate)
        return network_findings(record(model, lambda: model(torch.randn(2, 5, 6))))

    assert found(True) == []
    [finding] = found(False)
    assert (finding.claim, finding.certain) == ("feed-forward-gate-is-used", True)
    assert finding.place.text == "value, gate = self.up(x).chunk(2, -1)"

"""What everyday files have beside their attention: losses of blocks, evaluations, weights of classes, groups of an
optimizer, names that a constructor looks for. Beside what is right stands a real mistake of the same place."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.whole.calling import loss_in  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, VOCAB = 16, 23


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- losses


@dataclass
class Output:
    router_loss: Tensor
    loss: Tensor | None = None


def test_the_number_that_is_called_the_loss_is_the_loss():
    number = torch.tensor
    assert float(loss_in(Output(number(0.5), number(2.0)))) == 2.0
    assert float(loss_in({"aux_loss": number(0.5), "loss": number(2.0)})) == 2.0
    assert float(loss_in((number(0.5), number(2.0)))) == 0.5
    assert loss_in(Output(torch.ones(2))) is None


# --- norms


class Rms(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.gain * x * torch.rsqrt(self.size(x) + 1e-6)

    def size(self, x):
        return x.square().mean(-1, keepdim=True)


class RmsOfDeviations(Rms):
    def size(self, x):
        return x.var(-1, keepdim=True)


class Network(nn.Module):
    norm = Rms

    def __init__(self, dropout=0.1):
        super().__init__()
        self.first, self.words, self.drop = self.norm(), nn.Embedding(VOCAB, WIDTH), nn.Dropout(dropout)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, tokens):
        """(B, T) to the scores of five classes, (B, 5)."""
        return self.head(self.layer(self.drop(self.first(self.words(tokens)))).mean(1))


class NetworkOfDeviations(Network):
    norm = RmsOfDeviations


@pytest.mark.parametrize(("cls", "verdict"), [(Network, "PASS"), (NetworkOfDeviations, "FAIL")])
def test_a_norm_that_divides_by_the_deviation_subtracts_the_mean(cls, verdict):
    assert said(cls, "norm-is-its-formula") == verdict


# --- what stands beside a model


def file(tmp_path, monkeypatch, text, name="everyday_file"):
    """A module of the user's with a class, and with functions beside it."""
    path = tmp_path / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    module = ModuleType(name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


CLASSIFIER = """import torch
from torch import nn
from torch.nn import functional as F

class Sorter(nn.Module):
    def __init__(self, ns):
        super().__init__()
        self.ns = ns
        self.words, self.drop = nn.Embedding(ns.vocab, ns.width), nn.Dropout(ns.dropout)
        self.layer = nn.TransformerEncoderLayer(ns.width, ns.heads, 32, batch_first=True)
        self.head = nn.Linear(ns.width, ns.classes)

    def forward(self, tokens):
        return self.head(self.layer(self.drop(self.words(tokens))).mean(1))

def train_epoch(net, optimizer, batches):
    net.train()
    for step, (tokens, labels) in enumerate(batches):
        loss = F.cross_entropy(net(tokens), labels)
        (loss / net.ns.accumulate).backward()
        nn.utils.clip_grad_norm_(net.parameters(), net.ns.clip)
        if (step + 1) % net.ns.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()

@torch.no_grad()
def evaluate(net, batches):
    net.eval()
    losses = [F.cross_entropy(net(tokens), labels) for tokens, labels in batches]
    return torch.stack(losses).mean()
"""
CALLER = "\ndef main(net, batches):\n    net.eval()\n    return evaluate(net, batches)\n"
BETWEEN = "\ndef judge(net, batches):\n    return evaluate(net, batches)\n" + CALLER.replace("evaluate(", "judge(")
MODE = "evaluations-are-in-evaluation-mode"


@pytest.mark.parametrize(
    ("text", "claim", "verdict"),
    [
        (CLASSIFIER, MODE, "PASS"),
        (CLASSIFIER.replace("    net.eval()\n", ""), MODE, "FAIL"),
        (CLASSIFIER.replace("    net.eval()\n", "") + CALLER, MODE, "NOT_PROVIDED"),
        (CLASSIFIER.replace("    net.eval()\n", "") + BETWEEN, MODE, "NOT_PROVIDED"),
        (CLASSIFIER.replace("    net.eval()\n", "").replace("evaluate", "compute_loss"), MODE, "NOT_PROVIDED"),
        (CLASSIFIER, "functions-that-train-give-losses-what-they-take", "PASS"),
        (
            CLASSIFIER.replace(".mean(1))", ".mean(1)).softmax(-1)"),
            "functions-that-train-give-losses-what-they-take",
            "FAIL",
        ),
        (
            CLASSIFIER.replace("            optimizer.zero_grad()\n", ""),
            "functions-that-train-clear-gradients",
            "FAIL",
        ),
    ],
    ids=[
        "right",
        "never",
        "by its caller",
        "by the caller's caller",
        "a loss is for both",
        "scores",
        "probabilities",
        "a setting that only the loop reads",
    ],
)
def test_functions_that_train_and_evaluate(tmp_path, monkeypatch, text, claim, verdict):
    assert said(file(tmp_path, monkeypatch, text).Sorter, claim) == verdict


def rare(labels, n_classes):
    """Rare classes weigh more."""
    counts = torch.bincount(labels, minlength=n_classes).float()
    return len(labels) / (n_classes * counts)


def frequent(labels, n_classes):
    """Rare classes weigh more."""
    return torch.bincount(labels, minlength=n_classes).float() / len(labels)


def near(distances):
    return 1.0 / (1.0 + distances)


def test_weights_of_distances_are_none_of_classes():
    near.__name__ = "distance_weights"
    assert not examine([near]).tested


def test_weights_of_classes_are_larger_for_the_rare():
    for function, wrong in ((rare, False), (frequent, True)):
        function.__name__ = "class_weights"
        examined = examine([function])
        assert "weights-of-classes-favour-the-rare" in examined.tested
        assert [one.trouble.certain for one in examined.wrong] == [True] * wrong


# --- the constructor and the optimizer


class Writer(nn.Module):
    """A causal language model."""

    def __init__(self):
        super().__init__()
        self.words, self.norm, self.out = nn.Embedding(VOCAB, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)
        for name, weight in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids):
        return self.out(self.norm(self.words(ids)))

    def param_groups(self, weight_decay=0.1):
        """Decay matrices only; biases and norm gains are left alone."""
        resting = [p for n, p in self.named_parameters() if n.endswith("bias") or n.startswith("norm")]
        decaying = [p for n, p in self.named_parameters() if not (n.endswith("bias") or n.startswith("norm"))]
        return [{"params": decaying, "weight_decay": weight_decay}, {"params": resting, "weight_decay": 0.0}]


class WriterOfOtherNames(Writer):
    def __init__(self):
        super().__init__()
        for name, weight in self.named_parameters():
            if "of_another_model.weight" in name:
                nn.init.normal_(weight, std=0.02)


class WriterWhoseNormsDecay(Writer):
    def param_groups(self, weight_decay=0.1):
        """Decay matrices only; biases and norm gains are left alone."""
        resting = [p for n, p in self.named_parameters() if n.endswith("bias")]
        decaying = [p for n, p in self.named_parameters() if not n.endswith("bias")]
        return [{"params": decaying, "weight_decay": weight_decay}, {"params": resting, "weight_decay": 0.0}]


@pytest.mark.parametrize(("cls", "verdict"), [(Writer, "PASS"), (WriterOfOtherNames, "FAIL")])
def test_names_that_are_looked_for_are_there(cls, verdict):
    assert said(cls, "modules-that-are-looked-for-by-name-exist") == verdict


@pytest.mark.parametrize(("cls", "verdict"), [(Writer, "PASS"), (WriterWhoseNormsDecay, "FAIL")])
def test_norms_that_are_left_alone_do_not_decay(cls, verdict):
    assert said(cls, "model-optimizer-treats-norms-apart") == verdict


# --- what is handed on, and what raises when it is read


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layer = nn.Embedding(VOCAB, WIDTH), nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)

    def forward(self, tokens, padding_mask=None):
        """padding_mask (B, T): True for padding."""
        x = self.layer(self.words(tokens), src_key_padding_mask=padding_mask)
        return self.head(x)


class Around(nn.Module):
    """A masked language model that hands on all that it takes."""

    def __init__(self):
        super().__init__()
        self.model, self.head = Body(), nn.Linear(WIDTH, VOCAB)
        self.model.head = nn.Identity()

    def forward(self, *given):
        return self.head(self.model(*given))


class AroundForward(Around):
    def forward(self, *given):
        return self.head(self.model.forward(*given))


class AroundBlind(Around):
    def forward(self, *given):
        return self.head(self.model(*given[:1]))


class Attached(Around):
    """Reads of its trainer raise, as in Lightning."""

    @property
    def trainer(self):
        raise RuntimeError("not attached to a trainer")

    def is_last(self):
        return self.trainer is None


@pytest.mark.parametrize("cls", [Around, AroundForward, Attached])
def test_what_a_forward_hands_on_in_a_row_is_what_it_takes(cls):
    assert said(cls, "encoder-padding-changes-nothing") == "PASS"


def test_a_forward_that_hands_on_a_part_of_its_row_is_not_called():
    assert said(AroundBlind, "encoder-padding-changes-nothing") == "NOT_PROVIDED"


class Chosen(nn.Module):
    """Each expert is asked about the words that those before it have left small."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        flat = x.flatten(0, 1)
        shares = self.router(flat).softmax(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows = (out.abs().sum(-1) < 1).nonzero()[:, 0]
            picked = flat[rows].view(len(rows), WIDTH) * shares[rows, number, None]
            out = out.index_add(0, rows, expert(picked))
        return out.view_as(x)


class Writing(nn.Module):
    """A causal language model with a mixture of experts."""

    def __init__(self):
        super().__init__()
        self.words, self.mixture, self.head = nn.Embedding(VOCAB, WIDTH), Chosen(), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.head(self.mixture(self.words(ids)))


def test_numbers_that_choose_the_words_of_an_expert_are_not_computed_again():
    assert pointed(Writing).build("module", {}).inside().seen

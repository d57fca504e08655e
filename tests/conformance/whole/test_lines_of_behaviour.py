"""What fails by behaviour alone names the line that first goes wrong, in a model that is a file of the user's."""

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.adapters.whole.model import whole_model
from conformance.check import CHECKS
from conformance.protocol import NotProvided
from conformance.runner import run_check
from conformance.verdict import Verdict

ROWS = "model-rows-of-a-batch-are-apart"
ALONE = "model-answers-one-sentence-as-in-a-batch"
REPEATS = "model-evaluation-repeats-itself"
TYPES = "encoder-token-types-matter"
FUTURE = "language-model-is-causal"
GRADIENTS = "model-every-parameter-gets-a-gradient"

CLASSIFIER = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2)
        self.drop = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(x + self.drop(self.attention(x, x, x)[0]))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30, 16), nn.Parameter(torch.randn(64, 16))
        self.types = nn.Embedding(2, 16)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.score, self.head = nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, input_ids, token_type_ids=None):
        x = self.words(input_ids.T)
        x = x + self.places[:len(x)].unsqueeze(1)
        if token_type_ids is not None:
            x = x + self.types(token_type_ids.T)
        for block in self.blocks:
            x = block(x)
        weights = torch.softmax(self.score(x), 0)
        return self.head((weights * x).sum(0))
"""
DECODER = """
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x):
        mean = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + 1e-6) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.maps, self.out = Norm(), nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("seen", torch.tril(torch.ones(64, 64)))

    def forward(self, x):
        q, k, v = self.maps(self.norm(x)).chunk(3, -1)
        scores = q @ k.mT / 4
        t = x.shape[1]
        scores = scores.masked_fill(self.seen[:t, :t] == 0, -torch.inf)
        return x + self.out(scores.softmax(-1) @ v)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(30, 16), nn.Embedding(64, 16)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(16, 30)

    def forward(self, idx):
        told = self.places(torch.arange(idx.shape[1]))
        x = self.words(idx) + told
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""


class Alone:
    """A model as an implementation, without its parts."""

    def __init__(self, model):
        self.model = model

    def build(self, role, config):
        if role not in ("model", "module", self.model.kind):
            raise NotProvided(role)
        return self.model.twin()


CASES = [
    (
        CLASSIFIER,
        "classifier",
        "self.score(x), 0)",
        "self.score(x), 1)",
        ROWS,
        "weights = torch.softmax(self.score(x), 1)",
    ),
    (CLASSIFIER, "classifier", "[:len(x)].unsqueeze(1)", "[:x.shape[1]]", ALONE, "x = x + self.places[:x.shape[1]]"),
    (
        CLASSIFIER,
        "classifier",
        "nn.ModuleList([Block() for _ in range(2)])",
        "[Block() for _ in range(2)]",
        REPEATS,
        "self.blocks = [Block() for _ in range(2)]",
    ),
    (
        CLASSIFIER,
        "classifier",
        "self.types(token_type_ids.T)",
        "self.types(token_type_ids.T * 0)",
        TYPES,
        "x = x + self.types(token_type_ids.T * 0)",
    ),
    (
        CLASSIFIER,
        "classifier",
        "x = x + self.types(token_type_ids.T)",
        "pass",
        TYPES,
        "x = x + self.places[:len(x)].unsqueeze(1)",
    ),
    (
        DECODER,
        "language_model",
        "torch.ones(64, 64))",
        "torch.ones(64, 64), 1)",
        FUTURE,
        'self.register_buffer("seen", torch.tril(torch.ones(64, 64), 1))',
    ),
    (DECODER, "language_model", ".mean(-1,", ".mean(1,", FUTURE, "mean = x.pow(2).mean(1, keepdim=True)"),
    (DECODER, "language_model", "(idx) + told", "(idx)", GRADIENTS, "told = self.places(torch.arange(idx.shape[1]))"),
]


@pytest.mark.parametrize(("text", "kind", "old", "new", "claim", "line"), CASES, ids=[case[4] for case in CASES])
def test_the_line_that_goes_wrong_is_named(made, text, kind, old, new, claim, line):
    assert text.count(old) == 1
    name = "GPT" if text is DECODER else "Classifier"
    result = run_check(CHECKS[claim], Alone(whole_model(made(name, text.replace(old, new)), kind)), "quick")
    assert result.verdict is Verdict.FAIL
    assert result.place.partition(": ")[2] == line

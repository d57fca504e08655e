"""From the line at which a failure shows to the statement that it is about: read as syntax, by the words of a claim."""

import pytest

from conformance.blame import RULES, blamed
from conformance.catalogue import load
from conformance.definitions import Statement, unread

MODEL = '''\
class Attention(nn.Module):
    def __init__(self, size, scale=1.0):
        self.register_buffer("mask", torch.tril(torch.ones(size, size)))
        self.scale = scale

    def forward(self, x, bias, rate):
        scores = self.scores(x) * self.scale
        scores = scores + bias
        scores = scores.masked_fill(
            self.mask == 0, -1e9
        )
        return softmax(scores, -1) @ x

    def scores(self, x):
        return x @ x.mT


def distances(length):
    places = torch.arange(length)
    return places[:, None] - places


class Model(nn.Module):
    def __init__(self, scale):
        self.layer = Attention(8, scale / 2)

    def forward(self, x):
        far = distances(x.shape[1])
        x = self.layer(x, far, 0.1)
        return x

    def loss(self, x, mask):
        """The mean over what is real."""
        labels = x[:, 1:]
        logits = self.forward(x)
        lost = cross_entropy(logits, labels, reduction="none")
        real = mask[:, 1:]
        unused = lost.max()
        for row in lost:
            print(row)
        return lost.mean()

    def several(self, q_bias, k_bias):
        return q_bias + q_bias * 2
'''


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return file


def line_of(text):
    return MODEL[: MODEL.index(text)].count("\n") + 1


def behind(model, text):
    return [MODEL.splitlines()[one.line - 1].strip() for one in Statement(str(model), line_of(text)).behind()]


COMPONENT = """\
class Norm(Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        spread = x.std(-1, keepdim=True)
        return (x - mean) / (spread + self.eps)

class Attention(Module):
    def forward(self, x):
        scores = x @ x.mT
        scores = scores / self.width**0.5
        return scores.softmax(-2) @ x
"""


@pytest.mark.parametrize(
    ("claim", "start", "named"),
    [
        ("layer-norm-formula", 2, 4),
        ("layer-norm-eps-stands-inside-the-root", 2, 5),
        ("multi-head-scales-by-the-width-of-one-head", 8, 10),
        ("attention-softmax-runs-over-the-keys", 8, 11),
        ("attention-softmax-runs-over-the-keys", 2, 2),
    ],
)
def test_where_only_the_head_of_a_component_is_known_its_statement_is_looked_for(tmp_path, claim, start, named):
    file = tmp_path / "component.py"
    file.write_text(COMPONENT)
    assert blamed(f"{file}:{start}", claim, "").split(" ")[0] == f"{file}:{named}"


def test_a_name_leads_to_where_its_function_binds_it_and_self_to_where_its_class_sets_it(model):
    found = behind(model, "return softmax")
    assert found[0] == "return softmax(scores, -1) @ x"
    assert "scores = scores.masked_fill(" in found[:4]
    assert 'self.register_buffer("mask", torch.tril(torch.ones(size, size)))' in found
    assert "self.scale = scale" in found


def test_a_parameter_leads_to_what_calls_hand_over_and_a_call_to_what_it_returns(model):
    found = behind(model, "scores = scores + bias")
    assert "x = self.layer(x, far, 0.1)" in found
    assert "far = distances(x.shape[1])" in found
    assert "return places[:, None] - places" in found
    assert "places = torch.arange(length)" in found
    assert "return x @ x.mT" in found


def test_a_constructor_is_called_by_the_name_of_its_class(model):
    assert "self.layer = Attention(8, scale / 2)" in behind(model, "self.scale = scale")


def test_a_line_within_a_statement_counts_as_that_statement_and_a_body_is_no_part_of_its_head(model):
    inside = Statement(str(model), line_of("self.mask == 0"))
    assert inside.line_with("masked_fill") == inside.line - 1
    loop = Statement(str(model), line_of("for row in lost"))
    assert (loop.line_with("for row"), loop.line_with("mean")) == (loop.line, 0)
    assert list(loop.behind())[1].line == line_of("lost = cross")


def test_statements_that_follow_and_the_last_return(model):
    lost = Statement(str(model), line_of("lost = cross"))
    assert [one.line for one in lost.later()][:2] == [lost.line, lost.line + 1]
    assert lost.last_return().line == line_of("return lost.mean()")
    whole = Statement(str(model), line_of("def loss"))
    assert [one.line for one in whole.later()][:2] == [whole.line, line_of("labels = x")]  # a docstring is none


def test_an_argument_leads_to_the_statement_that_binds_it_unless_the_call_says_how(model, tmp_path):
    made = Statement(str(model), line_of("lost = cross")).argument(1, "target")
    assert made is not None
    assert made.line == line_of("labels = x")
    sliced = tmp_path / "sliced.py"
    sliced.write_text("def loss(logits, x):\n    y = x + 1\n    return cross_entropy(logits[:, :-1], target=y)\n")
    assert Statement(str(sliced), 3).argument(1, "target") is None


def test_what_nobody_reads_and_what_is_read_in_its_place(model):
    assert unread(str(model)) == tuple(map(line_of, ("real = mask", "unused = lost", "return q_bias")))


def test_a_part_that_is_read_in_the_place_of_one_that_was_made_alike(tmp_path):
    file = tmp_path / "block.py"
    lines = [
        "class Block:",
        "    def __init__(self, d):",
        "        self.norm1 = Norm(d)",
        "        self.norm2 = Norm(d)",
    ]
    lines += ["        self.map = Map(d)", "    def forward(self, x):", "        x = x + self.map(self.norm1(x))"]
    file.write_text("\n".join([*lines, "        return x + self.map(self.norm1(x))", ""]))
    assert unread(str(file)) == (8,)
    claim, place = "model-every-parameter-gets-a-gradient", f"{file}:7"
    assert blamed(place, claim, "norm2.weight: no answer depends on it: nothing is learnt there.") == f"{file}:8"
    assert blamed(place, claim, "The answer has no gradients, so that nothing can be learnt") == place
    other = tmp_path / "other_block.py"
    other.write_text("\n".join([*lines, "        return x + self.map(self.norm2(x))", ""]))
    assert unread(str(other)) == ()


@pytest.mark.parametrize("text", ["", "def broken(:\n", "# nothing\n"])
def test_what_cannot_be_read_leads_nowhere(tmp_path, text):
    file = tmp_path / "other.py"
    file.write_text(text)
    nowhere = Statement(str(file), 1)
    assert [*nowhere.behind(), *nowhere.later(), nowhere.argument(1, "target")] == [None]
    assert (nowhere.line_with("."), nowhere.last_return().line, unread(str(file))) == (0, 1, ())
    place = f"{tmp_path / 'missing.py'}:3"
    assert blamed(place, "language-model-is-causal", "") == place


@pytest.mark.parametrize(
    ("claim", "diagnosis", "at", "wanted"),
    [
        ("language-model-is-causal", "", "scores = scores.masked_fill", 'self.register_buffer("mask"'),
        ("language-model-is-causal", "", "return softmax", "return softmax"),  # no mask is spoken of
        ("losses-teach-the-next-word", "", "lost = cross", "labels = x"),
        ("losses-leave-padding-out-of-the-mean", "", "lost = cross", "return lost.mean()"),
        ("losses-count-the-words-that-a-mask-marks", "", "lost = cross", "real = mask"),
        ("generate-leaves-the-model-as-it-was", "left in evaluation mode", "labels = x", "return lost.mean()"),
        ("generate-leaves-the-model-as-it-was", "changes the weights", "labels = x", "labels = x"),
        ("a-claim-without-rules", "", "lost = cross", "lost = cross"),
    ],
)
def test_a_claim_names_the_statement_that_it_is_about(model, claim, diagnosis, at, wanted):
    place = blamed(f"{model}:{line_of(at)}", claim, diagnosis)
    assert place == f"{model}:{line_of(wanted)}"


def test_text_that_is_no_place_stays():
    assert blamed("", "language-model-is-causal", "") == ""
    assert blamed("somewhere in a library", "language-model-is-causal", "") == "somewhere in a library"


def test_every_rule_is_of_a_claim_in_the_catalogue():
    import re

    claims = load().claims
    assert not [rule.claims for rule in RULES if not any(re.fullmatch(rule.claims, slug) for slug in claims)]


def test_special_tokens_among_the_masked_ones_are_chosen_where_places_are_drawn(tmp_path):
    file = tmp_path / "masking.py"
    lines = ["def masked(ids):", "    special = ids < 4", "    kept = ids.clone()", "    drawn = torch.rand_like(kept)"]
    file.write_text("\n".join([*lines, "    return drawn < 0.15", ""]))
    claim = "masked-words-are-what-is-taught"
    assert blamed(f"{file}:2", claim, "special tokens are masked") == f"{file}:4"
    assert blamed(f"{file}:2", claim, "too many words are masked") == f"{file}:2"

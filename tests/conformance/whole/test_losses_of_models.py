"""The losses of a model are found, called and read, whatever their batch looks like; what cannot be run says so."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

HEAD = '''
import torch
import torch.nn.functional as F
from torch import nn

class GPT(nn.Module):
    """A causal language model."""
    def __init__(self, vocab_size=VOCAB, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.wte, self.wpe = nn.Embedding(vocab_size, 8), nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, vocab_size)
    def forward(self, ids):
        future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        return self.head(self.block(x, future, src_key_padding_mask=ids == self.pad_id))
'''
NEXT, EVERY, FITS = "losses-teach-the-next-word", "losses-teach-every-word", "losses-get-what-they-are-made-for"
PADDING, MEAN = "losses-teach-no-padding", "losses-leave-padding-out-of-the-mean"
CLAIMS = (NEXT, EVERY, FITS, PADDING, MEAN)
LOSS = "F.cross_entropy(self(x).flatten(0, 1), y.flatten(), ignore_index=0)"
FORMS = {
    "a tuple": ("def training_step(self, batch, batch_idx):", "x, y = batch"),
    "a dict": ("def training_step(self, batch, batch_idx):", 'x, y = batch["x"], batch["y"]'),
    "an object": ("def training_step(self, batch):", "x, y = batch.x, batch.y"),
    "two texts": ("def loss(self, x, y):", "pass"),
    "one text": ("def compute_loss(self, ids):", "x, y = ids[:, :-1], ids[:, 1:]"),
    "a flat one": ("def compute_loss(self, x, targets):", "y = targets.view(len(x), -1)"),
}


def verdicts(made, text, vocab=31):
    implementation = Whole(whole_model(made("GPT", HEAD.replace("VOCAB", str(vocab)) + text)))
    return {claim: run_check(CHECKS[claim], implementation, "quick").verdict.name for claim in CLAIMS}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_made_in_the_form_in_which_it_is_taken_apart(form, made):
    signature, line = FORMS[form]
    found = verdicts(made, f"    {signature}\n        {line}\n        return {LOSS}\n")
    assert (found[NEXT], found[FITS]) == ("PASS", "PASS")
    assert "FAIL" not in found.values()
    assert "ERROR" not in found.values()


@pytest.mark.parametrize(
    ("claim", "loss"),
    [
        (NEXT, LOSS.replace("y.", "x.")),
        (NEXT, LOSS.replace("self(x)", "self(x)[:, :-2]").replace("y.", "y[:, 2:].")),
        (NEXT, LOSS.replace("self(x).flatten(0, 1)", "self(x).transpose(0, 1).flatten(0, 1)")),
        (EVERY, LOSS.replace("self(x)", "self(x)[:, :-1]").replace("y.", "y[:, :-1].")),
        (FITS, LOSS.replace("self(x)", "self(x).softmax(-1)")),
        (PADDING, LOSS.replace(", ignore_index=0", "")),
        (MEAN, LOSS.replace("ignore_index=0", 'ignore_index=0, reduction="sum"') + " / y.numel()"),
    ],
)
def test_one_mistake_breaks_its_claim_in_a_function_beside_the_model(claim, loss, made):
    texts = "x, y = ids[:, :-1], ids[:, 1:]"
    beside = f"\ndef compute_loss(model, ids):\n    {texts}\n    return {loss.replace('self', 'model')}\n"
    assert verdicts(made, beside)[claim] == "FAIL"


@pytest.mark.parametrize(
    "text",
    [
        "    def loss(self, ids):\n        raise RuntimeError('not yet')\n",
        "    def loss(self, ids, teacher):\n        return self(ids).sum()\n",
        "    def loss(self):\n        return torch.zeros(())\n",
        "    def loss_name(self, ids):\n        return 'cross entropy'\n",
        "    def loss(self, batch):\n        return [self(one) for one in batch.values()]\n",
    ],
    ids=["raises", "asks for a model", "takes nothing", "gives a text", "takes what is not known"],
)
def test_a_loss_that_cannot_be_run_is_not_provided(text, made):
    assert set(verdicts(made, text).values()) == {"NOT_PROVIDED"}


def test_a_vocabulary_that_is_too_small_for_different_words_is_not_provided(made):
    text = f"    def loss(self, x, y):\n        return {LOSS}\n"
    assert verdicts(made, text, vocab=12)[NEXT] == "NOT_PROVIDED"


WRITTEN = """
    def loss(self, ids, eps=0.1):
        logp = self(ids[:, :-1]).log_softmax(-1)
        return {value}
"""
GOLD = "logp.gather(-1, ids[:, 1:, None])[..., 0]"
SHARE = "losses-ask-for-no-share-below-zero"


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (f"-{GOLD}.mean()", "PASS"),
        (f"-((1 - eps) * {GOLD} + eps * logp.mean(-1)).mean()", "PASS"),
        (f"-((1 - eps) * {GOLD} - eps * logp.mean(-1)).mean()", "FAIL"),
        (f"-((1 - eps) * {GOLD} + eps * logp.sum(-1)).mean()", "FAIL"),
        (f"{GOLD}.mean()", "FAIL"),
        ("logp.sum()", "NOT_PROVIDED"),
    ],
    ids=["plain", "smoothed", "wrong smoothing", "summed smoothing", "wrong sign", "no cross-entropy"],
)
def test_a_loss_that_is_written_out_tells_what_it_asks_for(value, verdict, made):
    implementation = Whole(whole_model(made("GPT", HEAD.replace("VOCAB", "31") + WRITTEN.format(value=value))))
    assert run_check(CHECKS[SHARE], implementation, "quick").verdict.name == verdict


BEHIND = """
    def loss(self, ids, prompt_lengths=None):
        keep = torch.ones_like(ids[:, 1:])
        if prompt_lengths is not None:
            keep = (torch.arange(1, ids.shape[1]) >= prompt_lengths[:, None]).long()
        lost = F.cross_entropy(self(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        return (lost * keep.flatten()).sum() / keep.sum()
"""


@pytest.mark.parametrize(("sign", "verdict"), [(">=", "PASS"), ("<", "FAIL")])
def test_a_loss_that_may_be_told_of_a_prompt_teaches_what_stands_behind_it(sign, verdict, made):
    text = HEAD.replace("VOCAB", "31") + BEHIND.replace(">=", sign)
    found = run_check(CHECKS["losses-teach-every-word"], Whole(whole_model(made("GPT", text))), "quick")
    assert found.verdict.name == verdict, found.message


def test_a_loss_that_is_written_out_tells_which_word_it_teaches(made):
    assert verdicts(made, WRITTEN.format(value=f"-{GOLD}.mean()"))[NEXT] == "PASS"
    unshifted = GOLD.replace("ids[:, 1:, None]", "ids[:, :-1, None]")
    assert verdicts(made, WRITTEN.format(value=f"-{unshifted}.mean()"))[NEXT] == "FAIL"


TAGS = '''
import torch
import torch.nn.functional as F
from torch import nn

class Tagger(nn.Module):
    """Names the part of speech of each word, and what the sentence asks for."""
    def __init__(self, n_words=31, n_tags=4, n_topics=3):
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, 8), nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.tags, self.topic = nn.Linear(8, n_tags), nn.Linear(8, n_topics)
    def forward(self, tokens, labels=None):
        h = self.block(self.words(tokens) + self.places(torch.arange(tokens.shape[1])))
        tags = self.tags(h)
        loss = None if labels is None else F.cross_entropy(tags.flatten(0, 1), labels.flatten())
        return {"tags": tags, "topic": self.topic(h.mean(1)), "loss": loss}
    def joint_loss(self, tokens, tag_labels, topic_labels):
        out = self(tokens)
        return F.cross_entropy(out["tags"].mT, tag_labels) + F.cross_entropy(out["topic"], topic_labels)
'''


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        ("", "", "PASS"),
        ('(out["topic"],', '(out["topic"].softmax(-1),', "FAIL"),
        ("(tags.f", "(tags.softmax(-1).f", "FAIL"),
    ],
)
def test_losses_of_tags_and_of_whole_sentences_are_run(right, wrong, verdict, made):
    model = whole_model(made("Tagger", TAGS.replace(right, wrong)))
    assert [run.name for run in model.loss_runs()] == ["forward", "joint_loss"]
    assert run_check(CHECKS[FITS], Whole(model), "quick").verdict.name == verdict


TRANSLATOR = """
import torch.nn.functional as F
class Translator(nn.Module):
    def __init__(self, n_source={vocab}, n_target={vocab}, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.source, self.target = nn.Embedding(n_source, 8), nn.Embedding(n_target, 8)
        self.model = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, n_target)

    def forward(self, src, tgt):
        future, hidden = torch.ones(tgt.shape[1], tgt.shape[1]).triu(1).bool(), src == self.pad_id
        keys = dict(src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
        return self.head(self.model(self.source(src), self.target(tgt), tgt_mask=future, **keys))


def translation_loss(model, src, tgt):
    logits = model(src, tgt[:, :-1])
    return F.cross_entropy(logits.transpose(1, 2), tgt[:, 1:]{ignored})
"""


@pytest.mark.parametrize(("ignored", "says"), [(", ignore_index=0", "PASS"), ("", "FAIL")])
def test_sources_are_shorter_where_there_are_few_words(ignored, says, made):
    text = TRANSLATOR.format(vocab=21, ignored=ignored)
    implementation = Whole(whole_model(made("Translator", text)))
    assert run_check(CHECKS[PADDING], implementation, "quick").verdict.name == says


READER = """
import torch
import torch.nn.functional as F
from torch import nn

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.ends = nn.Embedding(40, 8), nn.Linear(8, 2)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    def forward(self, ids, start=None, end=None):
        s, e = self.ends(self.block(self.words(ids))).unbind(-1)
        if start is None:
            return s, e
        return LOSS, s, e
"""


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        ("F.cross_entropy(s, start) + F.cross_entropy(e, end)", "PASS"),
        ("F.nll_loss(s.log_softmax(-1), start) + F.nll_loss(e.log_softmax(-1), end)", "PASS"),
        ("-(s.log_softmax(-1).gather(1, start[:, None]) + e.log_softmax(-1).gather(1, end[:, None])).mean()", "PASS"),
        ("F.cross_entropy(s, start) + F.cross_entropy(e, start)", "FAIL"),
        ("F.cross_entropy(s, start)", "FAIL"),
        ("F.cross_entropy(s, end) + F.cross_entropy(e, start)", "FAIL"),
        ("s.new_tensor(start.sum() + end.sum())", "NOT_PROVIDED"),  # it teaches nothing
    ],
)
def test_a_loss_of_spans_teaches_both_ends(loss, verdict, made):
    implementation = Whole(whole_model(made("Reader", READER.replace("LOSS", loss))))
    assert run_check(CHECKS["losses-of-spans-teach-both-ends"], implementation, "quick").verdict.name == verdict

"""Ends that are cut off, windows that hold their target, levels turned round, softmaxes taken twice: by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import data as slips


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("tgt = ([BOS] + list(words) + [EOS])[:max_len]", True),
        ("ids = ([BOS] + list(words) + [EOS])[:max_len]", False),  # a text of a language model may go on
        ("encoder = nn.TransformerEncoder(layer, 2)\nids = (words + [EOS])[:max_len]", False),
        ("answer_ids = (words + [self.eos_id])[:self.longest]", True),
        ("def summary_ids(words, n):\n    ids = words + [vocab.eos]\n    ids = ids[:n]", True),
        ("tgt = [BOS] + list(words)[:max_len - 2] + [EOS]", False),
        ("tgt = (words + [EOS])[:max_len - 1] + [EOS]", False),  # no name alone: something is kept for the end
        ("tgt = ([BOS] + words)[:max_len]", False),
        ("tgt = (words + [PAD])[:max_len]", False),
        ("print((tgt + [EOS])[:10])", False),
        ("src = [(list(d) + [EOS])[:block] for d in documents]", False),  # they go on: the end is not there
        ("rows = [(list(d) + [EOS])[:block] for d in titles]", True),
        ("def f(n):\n    for title in articles:\n        ids = title + [EOS]\n        ids = ids[:n]", False),
        ("def f(tgt, n):\n    ids = tgt + [vocab.eos]\n    tgt = tgt[:n]", False),
    ],
)
def test_the_end_of_a_text_is_not_cut_off(text, is_told):
    assert bool(told(slips.ENDS, text)) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("past, future = x[t - n:t], x[t:t + h]", False),
        ("past, future = x[t - n + 1:t + 1], x[t:t + h]", True),
        ("past, future = slice(t - n, t + 2), slice(t + 1, t + h)", True),
        ("history = x[i:i + n + 1]\n    target = x[i + n:i + n + h]", True),
        ("history = x[i:i + n]\n    target = x[i + n:i + n + h]", False),
        ("past, future = x[t - n:t], x[t + gap:t + h]", False),
        ("x, y = data[i:i + n], data[i + 1:i + 1 + n]", False),  # each word is taught the next one
        ("past, future = x[:n], x[n:]", False),
    ],
)
def test_a_window_ends_before_its_target(body, is_told):
    assert bool(told(slips.WINDOWS, f"def window(x, t, n, h, i):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("error", "weighed", "is_told"),
    [
        ("target - pred", "torch.maximum(q * e, (q - 1) * e)", False),
        ("pred - target", "torch.maximum(q * e, (q - 1) * e)", True),
        ("y_hat[..., 0] - y", "torch.max((q - 1.0) * e, q * e)", True),
        ("pred - target.unsqueeze(-1)", "torch.max((1 - q) * e, -q * e)", False),
        ("target - pred", "torch.max((1 - q) * e, -q * e)", True),
        ("pred - target", "torch.maximum(a * e, (q - 1) * e)", False),
        ("left - right", "torch.maximum(q * e, (q - 1) * e)", False),
        ("pred - target", "max(len(e), 1)", False),
    ],
)
def test_a_level_weighs_answers_that_are_too_low(error, weighed, is_told):
    assert bool(told(slips.LEVELS, f"def loss(pred, target, q):\n    e = {error}\n    return {weighed}")) == is_told


NET = """
class Net(nn.Module):
    def forward(self, x):
        return {given}

    def predict(self, x):
        {body}
"""


@pytest.mark.parametrize(
    ("given", "body", "is_told"),
    [
        ("self.head(x).softmax(-1)", "return self(x).softmax(-1)", True),
        ("F.softmax(self.head(x), dim=-1)", "return F.cross_entropy(self(x), y)", True),
        ("torch.softmax(self.head(x), -1)", "out = self.forward(x)\n        return torch.log_softmax(out, -1)", True),
        ("self.head(x)", "return self(x).softmax(-1)", False),
        ("self.head(x).softmax(-1)", "return self(x).argmax(-1)", False),
        ("self.head(x).softmax(-1)", "return self.head(x).softmax(-1)", False),
    ],
)
def test_one_softmax_is_enough(given, body, is_told):
    assert bool(told(slips.SHARES, NET.format(given=given, body=body))) == is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("reward_r = beta * (pol_r - ref_c)", True),
        ("margin = policy_chosen_logps - reference_rejected_logps", True),
        ("reward_r = beta * (pol_r - ref_r)", False),
        ("ratio = policy_chosen - policy_rejected", False),
        ("ratio = ref_chosen - ref_rejected", False),
        ("gap = pos_score - neg_mean", False),  # no two models
        ("x = model_r - ref", False),
    ],
)
def test_a_margin_is_of_one_answer(line, is_told):
    assert bool(told(slips.PARTNERS, line)) == is_told


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("counts = np.array(list(Counter(labels).values()))", True),
        ("c = Counter(labels)\n    n = torch.tensor(list(c.values()), dtype=torch.float)", True),
        ("counts = np.bincount(labels)", False),
        ("c = Counter(labels)\n    counts = torch.tensor([c[k] for k in range(n_classes)])", False),
        ("c = Counter(labels)\n    total = sum(c.values())", False),
        ("lengths = np.array(list(Counter(labels).values()))", False),
    ],
)
def test_counts_stand_in_the_order_of_classes(made, is_told):
    assert (
        bool(told(slips.COUNTS, f"def class_weights(labels, n_classes):\n    {made}\n    return 1 / counts")) == is_told
    )


@pytest.mark.parametrize(
    ("scored", "is_told"),
    [
        ("(own * mask[:, :-1]).sum(-1)", True),
        ("(own * reply[:, :-1]).sum(-1)", True),
        ("(own * mask[:, 1:]).sum(-1)", False),
        ("own.sum(-1), model(ids[:, :-1], mask[:, :-1])", False),
        ("(own * mask[:, :-1] * mask[:, 1:]).sum(-1)", False),
    ],
)
def test_a_mask_is_shifted_with_its_words(scored, is_told):
    text = (
        f"def f(logits, ids, mask, reply):\n    own = logits[:, :-1].gather(-1, ids[:, 1:, None])\n    return {scored}"
    )
    assert bool(told(slips.MASKS, text)) == is_told


@pytest.mark.parametrize(
    ("name", "labels", "is_told"),
    [
        ("next_token_loss", "labels[:, :-1]", True),
        ("next_token_loss", "labels[:, 1:]", False),
        ("next_token_loss", "labels", False),
        ("loss", "labels[:, :-1]", False),  # it says nothing of the next word
        ("causal_loss", "labels[..., :-1].masked_fill(padding, -100)", True),
        ("shifted_loss", "labels.roll(-1, 1)[:, :-1]", False),
    ],
)
def test_labels_that_are_not_moved_on_are_told(name, labels, is_told):
    text = (
        f"def {name}(logits, labels):\n    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ({labels}).flatten())"
    )
    assert bool(told(slips.MOVED, text)) == is_told

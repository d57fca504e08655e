"""Ends that are waited for, masks, labels of words, prompts, class weights, schedules: told, and nothing near them."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.launching import Script  # noqa: E402
from conformance.watch.script import watched  # noqa: E402
from conformance.watch.updates import comes_down_at  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

PASS, FAIL, NOTE, NOT_SEEN = Verdict.PASS, Verdict.FAIL, Verdict.NOTE, Verdict.NOT_SEEN
SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
PAD, BOS, EOS, MASK, CLS, SEP, FIRST, VOCAB, IGNORE = 0, 1, 2, 3, 4, 5, 6, 40, -100
{before}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(VOCAB, 16), nn.Linear(16, {classes})

    def forward(self, ids):
        return self.out(self.words(ids))

def texts(count=12):
    return [torch.randint(FIRST, VOCAB, (n,)).tolist() for n in torch.randint(3, 9, (count,)).tolist()]

def padded(rows, value):
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])

{batch}

model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
{made}
for step in range(12):
    for _ in range({passes}):
        ids, labels = batch()
        loss = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), ignore_index=IGNORE{weight})
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    {after}
{behind}
"""


def script(**parts):
    rest = dict.fromkeys(("before", "batch", "made", "weight", "behind"), "")
    return SCRIPT.format(**rest | {"classes": "VOCAB", "passes": "1", "after": "pass"} | parts)


def judged(claim, line="", **parts):
    """The verdict of a claim on a script of these parts; with `line`, that this is the one that is named."""
    source = script(**parts)
    found = results_of(run_of(source, "train.py").run)[claim]
    if line:
        assert found.verdict is FAIL, found
        number = int(re.search(r":(\d+)", found.place).group(1))
        assert source.splitlines()[number - 1].strip() == line, found.place
    return found.verdict


# --- ends -----------------------------------------------------------------------------------------

ENDS = "run-ends-that-are-waited-for-are-learned"
NEXT = """
def batch():
    rows = [[BOS] + text{end} for text in texts()]
    return padded([row[:-1] for row in rows], PAD), padded([row[1:] for row in rows], IGNORE)
"""
WRITE = """
def write(ids):
    while ids.shape[1] < 20:
        token = model(ids)[:, -1].argmax(-1)
        if token.item() == EOS:
            break
        ids = torch.cat([ids, token[:, None]], 1)
    return ids
"""


def test_an_end_that_writing_stops_at_is_learned():
    assert judged(ENDS, batch=NEXT.format(end=""), behind=WRITE) is FAIL
    assert judged(ENDS, batch=NEXT.format(end=" + [EOS]"), behind=WRITE) is PASS


def test_nobody_waits_for_the_end():
    assert judged(ENDS, batch=NEXT.format(end="")) is NOT_SEEN
    assert judged(ENDS, batch=NEXT.format(end=""), behind="known = [EOS == 2]") is NOT_SEEN


def test_texts_that_are_cut_out_of_a_long_one_have_no_end():
    cut = "def batch():\n    rows = torch.randint(FIRST, VOCAB, (8, 9))\n    return rows[:, :-1], rows[:, 1:]"
    assert judged(ENDS, batch=cut, behind=WRITE) is NOT_SEEN


def test_the_line_is_where_answers_become_tokens():
    batch = (
        NEXT.format(end="")
        .replace("    rows", "    answer_ids = encode(texts())\n    rows")
        .replace("in texts()", "in answer_ids")
    )
    before = "encode = list"
    assert judged(ENDS, "answer_ids = encode(texts())", batch=batch, behind=WRITE, before=before) is FAIL


@pytest.mark.parametrize(
    "held",
    [
        'vocabulary = {"<pad>": 0, "<eos>": 2}',
        "class Words:\n    def __init__(self):\n        self.eos_token_id = 2\nwords = Words()",
    ],
)
def test_the_end_is_known_by_what_the_script_holds(held):
    before = "del EOS\n" + held
    behind = WRITE.replace("== EOS", "== words.eos_id")
    assert judged(ENDS, batch=NEXT.format(end=""), before=before, behind=behind) is FAIL


def test_two_ends_are_none():
    before = "sentence_eos_id = 9"
    assert judged(ENDS, batch=NEXT.format(end=""), before=before, behind=WRITE) is NOT_SEEN


def test_files_that_a_script_imports_are_read(tmp_path):
    (tmp_path / "reading_of_texts.py").write_text(
        "END_OF_TEXT = 2\n\ndef read(ids):\n    words = []\n    for one in ids:\n        if one == END_OF_TEXT:\n"
        "            break\n        words.append(one)\n    return words\n"
    )
    (tmp_path / "train.py").write_text(script(before="import reading_of_texts", batch=NEXT.format(end="")))
    run = watched(Script(str(tmp_path / "train.py")), 12)
    assert run.files == [str(tmp_path / "reading_of_texts.py")]
    found = results_of(run)[ENDS]
    assert found.verdict is FAIL
    assert "reading_of_texts.py:6" in str(found.diagnosis)


# --- masks ----------------------------------------------------------------------------------------

MASKS = "run-most-of-what-is-asked-is-masked"
MASKED = """
def batch():
    ids = torch.randint(FIRST, VOCAB, (16, 20))
    labels, chosen = ids.clone(), torch.rand(ids.shape) < 0.25
    labels[~chosen] = IGNORE
    hidden = chosen & (torch.rand(ids.shape) < {share})
    ids[hidden] = MASK
    other = chosen & (torch.rand(ids.shape) < {others}){apart}
    ids[other] = torch.randint(FIRST, VOCAB, ids.shape)[other]
    return ids, labels
"""


def test_random_words_over_the_mask():
    wrong = MASKED.format(share=0.8, others=0.6, apart="")
    assert judged(MASKS, "other = chosen & (torch.rand(ids.shape) < 0.6)", batch=wrong) is FAIL


@pytest.mark.parametrize(("share", "others"), [(0.8, 0.5), (0.6, 0.5), (1.0, 0.0)])
def test_random_words_beside_the_mask(share, others):
    assert judged(MASKS, batch=MASKED.format(share=share, others=others, apart=" & ~hidden")) is PASS


def test_words_that_are_replaced_without_a_mask_are_another_task():
    batch = MASKED.format(share=0.0, others=1.0, apart="")
    assert judged(MASKS, batch=batch) is NOT_SEEN


# --- the words that labels lie at -----------------------------------------------------------------

WORDS = "run-labels-lie-at-their-words"
TAGS = """
def batch():
    found = texts()
    tags = [{tags} for text in found]
    return padded([[CLS, *text, SEP] for text in found], PAD), padded(tags, IGNORE)
"""


@pytest.mark.parametrize(
    ("tags", "verdict"),
    [
        ("[*(word % 3 for word in text), IGNORE, IGNORE]", FAIL),
        ("[IGNORE, *(word % 3 for word in text), IGNORE]", PASS),
        ("[2, *(word % 3 for word in text), IGNORE]", PASS),
    ],
)
def test_labels_of_words(tags, verdict):
    assert judged(WORDS, batch=TAGS.format(tags=tags), classes="3") is verdict


def test_next_words_are_no_labels_of_words():
    assert judged(WORDS, batch=TAGS.format(tags="[*text, IGNORE, IGNORE]")) is NOT_SEEN


# --- prompts --------------------------------------------------------------------------------------

PROMPTS = "run-prompts-are-not-learned"
JOINED = """
def joined(prompt, answer):
    ids = prompt + answer
    return ids, {labels}

def batch():
    rows = [joined(*two) for two in zip(texts(), texts())]
    return padded([ids[:-1] for ids, _ in rows], PAD), padded([labels[1:] for _, labels in rows], IGNORE)
"""


def test_prompts():
    assert judged(PROMPTS, batch=JOINED.format(labels="list(ids)")) is NOTE
    assert judged(PROMPTS, batch=JOINED.format(labels="[IGNORE] * len(prompt) + answer")) is PASS
    assert judged(PROMPTS, batch=NEXT.format(end="")) is NOT_SEEN


FIRST_WORDS = "run-answers-are-learned-from-their-first-word"


@pytest.mark.parametrize(
    ("joined", "labels", "verdict"),
    [
        ("prompt + [SEP] + answer", "[IGNORE] * (len(prompt) + 1) + answer", PASS),
        ("prompt + [SEP] + answer", "[IGNORE] * (len(prompt) + 2) + answer[1:]", FAIL),
        ("prompt + answer", "[IGNORE] * len(prompt) + answer", NOT_SEEN),  # no sign says where the prompt ends
        ("prompt + [SEP] + answer", "prompt + [SEP] + answer", NOT_SEEN),
    ],
)
def test_answers_are_learned_from_their_first_word(joined, labels, verdict):
    batch = JOINED.format(labels=labels).replace("ids = prompt + answer", f"ids = {joined}")
    assert judged(FIRST_WORDS, batch=batch) is verdict


# --- class weights --------------------------------------------------------------------------------

WEIGHTS = "run-class-weights-favour-the-rare"
COUNTED = """
chances = torch.tensor([40.0, 2.0, 20.0, 5.0, 1.0, 10.0])
weights = {weights}

def batch():
    ids = torch.randint(FIRST, VOCAB, (16, 20))
    return ids, torch.multinomial(chances, ids.numel(), True).reshape(ids.shape)
"""


@pytest.mark.parametrize(
    ("weights", "verdict"),
    [
        ("(chances.sum() / chances.sort(descending=True)[0]) ** 0.5", FAIL),
        ("(chances.sum() / chances) ** 0.5", PASS),
        ("(chances / chances.sum()) ** 0.5", FAIL),
        ("1 / chances", PASS),
        ("torch.tensor([1.0, 6.0, 5.0, 4.0, 3.0, 2.0])", PASS),
    ],
)
def test_class_weights_in_the_order_of_the_classes(weights, verdict):
    assert judged(WEIGHTS, batch=COUNTED.format(weights=weights), classes="6", weight=", weight=weights") is verdict


# --- schedules ------------------------------------------------------------------------------------

DOWN = "run-schedule-comes-down"
MADE = "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: {factor})"


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        ("max(0.0, 1 - step / 96)", FAIL),  # 24 steps, 4 passes each
        ("max(0.0, 1 - step / 24)", PASS),
        ("max(0.0, 1 - step / 200)", NOT_SEEN),  # for more steps than this run makes, of whatever kind
        ("0.99 ** step", NOT_SEEN),
    ],
)
def test_a_schedule_that_is_planned_in_backward_passes(factor, verdict):
    source = script(made=MADE.format(factor=factor), passes="4", after="scheduler.step()", batch=NEXT.format(end=""))
    source = source.replace("range(12)", "range(24)")
    found = results_of(run_of(source, "train.py", steps=99).run)[DOWN]
    assert found.verdict is verdict
    assert verdict is not FAIL or "in backward passes" in str(found.diagnosis)


@pytest.mark.parametrize(
    ("function", "down"),
    [
        (lambda step: max(0.0, 1 - step / 100), 99),
        (lambda step: min(step / 20, max(0.0, (100 - step) / 80)), 99),
        (lambda step: max(0.1, 1 - step / 100), 90),
        (lambda step: 1.0, None),
        (lambda step: 0.5 + 0.5 * max(0.0, 1 - step / 100), None),
        (lambda step: (step + 1) ** -0.5, None),
        (lambda step: [1.0, 0.5, 0.0][step], None),  # it has no more
    ],
)
def test_where_a_factor_has_come_down(function, down):
    found = comes_down_at(function, 200)
    assert (found is None) == (down is None)
    assert down is None or abs(found - down) <= 2


# --- rows -----------------------------------------------------------------------------------------

ROWS = "run-rows-are-apart"
WITH_KINDS = "self.layer(self.words(ids) + self.words(kinds)[:, None])[0]"
RECURRENT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB)
        self.layer = nn.GRU(16, 16{first})
        {more}

    def forward(self, ids, kinds=None):
        return self.out({answer})

def batch():
    ids = torch.randint(FIRST, VOCAB, (12, 9))
    {turned}
    return ({handed},), ids
"""
PLAIN = {"more": "pass", "turned": "pass", "handed": "ids", "answer": "self.layer(self.words(ids))[0]"}


def recurrent(**parts):
    return script(batch=RECURRENT.format(**PLAIN | parts)).replace("model(ids)", "model(*ids)")


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({"first": ", batch_first=True"}, PASS),
        ({"first": ""}, NOT_SEEN),  # it may be meant so: nothing says which axis is which
        ({"first": "", "handed": "ids, ids[:, 0].clone()", "answer": WITH_KINDS}, FAIL),
        ({"first": ", batch_first=True", "handed": "ids, ids[:, 0].clone()", "answer": WITH_KINDS}, PASS),
        ({"first": "", "turned": "ids = ids.T.contiguous()"}, NOT_SEEN),  # rows second, as the layer takes them
        ({"first": ", batch_first=True", "answer": "(lambda x: x + torch.rand_like(x))(self.words(ids))"}, NOT_SEEN),
    ],
)
def test_rows_are_apart(parts, verdict):
    assert results_of(run_of(recurrent(**parts), "train.py").run)[ROWS].verdict is verdict


def test_the_line_that_runs_along_the_batch_is_named():
    source = recurrent(first="", handed="ids, ids[:, 0].clone()", answer=WITH_KINDS)
    found = results_of(run_of(source, "train.py").run)[ROWS]
    line = int(re.search(r":(\d+)", found.place).group(1))
    assert source.splitlines()[line - 1].strip() == "self.layer = nn.GRU(16, 16)"


LENGTHS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(VOCAB, 16), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        x = self.words(ids)
        real = (torch.arange(ids.shape[1]) < lengths[:, None])[..., None]
        return self.out({pooled})

def batch():
    found = texts()
    ids, lengths = padded(found, PAD), torch.tensor([*map(len, found)])
    return (ids, lengths), torch.tensor([text[0] % 3 for text in found])
"""


@pytest.mark.parametrize(
    ("pooled", "verdict"),
    [("(x * real).sum(1) / lengths[:, None]", PASS), ("(x * real).mean(1)", FAIL), ("x.mean(1)", FAIL)],
)
def test_lengths_tell_padding(pooled, verdict):
    source = script(batch=LENGTHS.format(pooled=pooled)).replace(
        "model(ids).flatten(0, 1), labels.flatten()", "model(*ids), labels"
    )
    assert results_of(run_of(source, "train.py").run)["run-padding-is-hidden"].verdict is verdict


# --- writing --------------------------------------------------------------------------------------

WRITES = """
def write(ids, mask, block_size=8):
    done = torch.zeros(len(ids), dtype=torch.bool)
    while ids.shape[1] < 20:
        logits = model({fed})
        token = logits[:, -1].argmax(-1)
        done = done | (token == EOS)
        ids = torch.cat([ids, token[:, None]], 1)
        {mask}
        if {stop}:
            break
    return ids
"""
GROWN = "mask = torch.cat([mask, torch.ones_like(token[:, None])], 1)"


@pytest.mark.parametrize(
    ("claim", "parts", "line"),
    [
        ("run-writing-goes-on-from-the-newest", {}, ""),
        ("run-writing-goes-on-from-the-newest", {"fed": "ids[:, :block_size]"}, "logits = model(ids[:, :block_size])"),
        ("run-writing-goes-on-from-the-newest", {"fed": "ids[:, :5]"}, ""),  # a prompt of five tokens
        ("run-writing-stops-when-all-have-ended", {}, ""),
        ("run-writing-stops-when-all-have-ended", {"stop": "done.any()"}, "if done.any():"),
        ("run-writing-stops-when-all-have-ended", {"stop": "torch.any(done)"}, "if torch.any(done):"),
        ("run-writing-stops-when-all-have-ended", {"stop": "(token == EOS).any()"}, ""),  # of one text, perhaps
        ("run-masks-of-writing-are-read", {"mask": GROWN}, GROWN),
        ("run-masks-of-writing-are-read", {"mask": GROWN, "fed": "ids, mask"}, ""),
        ("run-masks-of-writing-are-read", {"mask": "pass"}, ""),
    ],
)
def test_writing(claim, parts, line):
    text = WRITES.format(**{"fed": "ids[:, -block_size:]", "mask": "pass", "stop": "done.all()"} | parts)
    verdict = judged(claim, line, batch=NEXT.format(end=""), behind=text)
    assert verdict is (FAIL if line else NOT_SEEN)


# --- the data that choose -------------------------------------------------------------------------

TEST, SEED, COPIES = (
    "run-test-data-choose-nothing",
    "run-judging-data-are-drawn-from-their-own-seed",
    "run-rows-are-split-before-they-are-copied",
)


@pytest.mark.parametrize(
    ("claim", "lines", "verdict"),
    [
        (TEST, "val_loader = test_loader = []; val_loss = len(test_loader); best = val_loss < 3", FAIL),
        (TEST, "val_loader = test_loader = []; val_loss = len(test_loader); keep_best = id; keep_best(val_loss)", FAIL),
        (TEST, "dev_loader = test_loader = [3]; dev = dict(f=test_loader); best = dev['f'] == 3", FAIL),
        (TEST, "val_loader = test_loader = []; val_loss = len(val_loader); best = val_loss < 3", NOT_SEEN),
        (TEST, "val_loader = test_loader = []; test_loss = len(test_loader); best = test_loss < 3", NOT_SEEN),
        (TEST, "val_loader = test_loader = []; val_loss = len(test_loader)", NOT_SEEN),  # it decides nothing
        (TEST, "test_loader = []; val_loss = len(test_loader); best = val_loss < 3", NOT_SEEN),  # it has no other
        (SEED, "make = lambda n, seed: n; x_train = make(90, seed=3); x_test = make(20, seed=3)", FAIL),
        (SEED, "make = lambda n, seed: n; x_train = make(90, seed=3); x_test = make(20, seed=4)", NOT_SEEN),
        (SEED, "cut = lambda x, seed: x; train_rows = cut([1], seed=3); test_rows = cut([2], seed=3)", NOT_SEEN),
        (COPIES, "oversample = random_split = list; train = random_split(oversample([1]))", FAIL),
        (COPIES, "oversample = random_split = list; rows = oversample([1])\ntrain = random_split(rows)", FAIL),
        (COPIES, "oversample = random_split = list; train = random_split([1]); rows = oversample(train)", NOT_SEEN),
        (COPIES, "oversample = list; rows = oversample([1, 2])\ntest, train = rows[:1], rows[1:]", FAIL),
        (COPIES, "oversample = list; rows = [1, 2]\ntest, train = rows[:1], oversample(rows[1:])", NOT_SEEN),
        (
            COPIES,
            "oversample = list\ndef one(rows):\n    rows = oversample(rows)\n    return rows\n"
            "def two(rows):\n    test = rows[:1]\n    return test",
            NOT_SEEN,
        ),
        (COPIES, "upsample = str; words = upsample('a b').split(' ')", NOT_SEEN),
        (COPIES, "split_heads = list; heads = split_heads(ids.repeat(2, 1))", NOT_SEEN),
    ],
)
def test_data_that_choose(claim, lines, verdict):
    assert judged(claim, batch=NEXT.format(end=""), behind=lines) is verdict


# --- measures, mixtures, states -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "mean", "verdict"),
    [
        ("macro_f1(batch)", "sum(scores) / len(scores)", FAIL),
        ("macro_f1(batch)", "np.mean(scores)", FAIL),
        ("accuracy(batch)", "np.mean(scores)", NOT_SEEN),
        ("macro_f1(batch)", "max(scores)", NOT_SEEN),
    ],
)
def test_ratios_that_are_averaged_over_batches(value, mean, verdict):
    text = f"""
def evaluate(loader, macro_f1=len, accuracy=len):
    scores = []
    for batch in loader:
        scores.append({value})
    return {mean}
"""
    assert judged("run-measures-weigh-rows-alike", batch=NEXT.format(end=""), behind=text) is verdict


@pytest.mark.parametrize(
    ("labels", "back", "verdict"),
    [
        ("pass", "x, t", FAIL),
        ("t = share * t + (1 - share) * t[order]", "x, t", NOT_SEEN),
        ("pass", "x, t, t[order], share", NOT_SEEN),
        ("pass", "x", NOT_SEEN),
    ],
)
def test_rows_that_are_mixed_without_their_labels(labels, back, verdict):
    text = f"""
def mixup(x, t):
    share = torch.distributions.Beta(0.2, 0.2).sample()
    order = torch.randperm(len(x))
    x = share * x + (1 - share) * x[order]
    {labels}
    return {back}
"""
    assert judged("run-mixtures-keep-their-shares", batch=NEXT.format(end=""), behind=text) is verdict


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        ("model.state_dict().copy()", FAIL),
        ("dict(model.state_dict())", FAIL),
        ("copy.deepcopy(model.state_dict())", PASS),
    ],
)
def test_a_shallow_copy_is_none(kept, verdict):
    after = f"if step % 2 == 0:\n        best = {kept}"
    source = script(batch=NEXT.format(end=""), before="import copy\nbest = None", after=after)
    source = source.replace("range(12)", "range(7)") + "\nmodel.load_state_dict(best)\n"
    assert results_of(run_of(source, "train.py", steps=20).run)["run-restored-state-is-a-copy"].verdict is verdict


def test_a_cosine_that_is_planned_in_backward_passes():
    claim = "run-rate-of-a-cosine-comes-down"
    after = (
        "import math\n    for group in optimizer.param_groups:\n"
        "        group['lr'] = 1e-3 * (1 + math.cos(math.pi * step / {}))"
    )
    for planned, verdict in ((96, FAIL), (200, NOTE)):
        source = script(
            batch=NEXT.format(end=""), passes="4", after=after.format(planned), before="resume = False"
        ).replace("range(12)", "range(24)")
        assert results_of(run_of(source, "train.py", steps=99).run)[claim].verdict is verdict


def test_what_rests_first_and_is_in_no_optimizer():
    claim = "run-nothing-that-is-learned-through-is-left-out"
    for given, verdict in (("[p for p in model.parameters() if p.requires_grad]", FAIL), ("model.parameters()", PASS)):
        source = script(batch=NEXT.format(end=""), after="model.words.weight.requires_grad_(step >= 3)").replace(
            "torch.optim.Adam(model.parameters()", f"torch.optim.Adam({given}"
        )
        source = source.replace("optimizer = ", "model.words.weight.requires_grad_(False)\noptimizer = ")
        assert results_of(run_of(source, "train.py").run)[claim].verdict is verdict

"""Functions that train and stand beside a model are called on tiny data and watched, when the model is pointed at."""

from zlib import crc32

import pytest

torch = pytest.importorskip("torch")

from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import FOLDER, TRAINED, Specimen  # noqa: E402
from conformance.mutated import pointed_at  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.script import called  # noqa: E402

CLEAR = "functions-that-train-clear-gradients"
CLIP = "functions-that-train-clip-what-is-stepped"
TAKE = "functions-that-train-give-losses-what-they-take"
NEXT = "functions-that-train-ask-for-the-next-word"
MODE = "functions-that-train-stay-in-training-mode"

EPOCH = """
def train_one_epoch(model, loader, optimizer, criterion, device="cuda"):
    model.train()
    total = 0.0
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        {clear}
        logits, _, _ = model(x)
        loss = criterion({given}.view(-1, logits.size(-1)), y.view(-1))
        loss.backward()
        {clip}
        optimizer.step()
        {after}
        total += loss.item()
    return total / len(loader)
"""
FIT = """
def get_batch(data, block_size, batch_size):
    at = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in at])
    y = torch.stack([data[i + {ahead} : i + {ahead} + block_size] for i in at])
    return x, y


def fit(model, data, steps=1000, lr=3e-4, batch_size=32, clip=1.0):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(steps):
        x, y = get_batch(data, model.block_size, batch_size)
        _, loss, _ = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        {backward}
        print(step, loss.item())
"""
BATCHES = """
def train_epochs(net, train_loader, val_loader, opt, n_epochs, max_norm, log_every=10):
    for epoch in range(n_epochs):
        for batch in tqdm(train_loader):
            ids = batch["input_ids"]
            logits = net(ids)[0]
            loss = F.cross_entropy({logits}.reshape(-1, logits.size(-1)), {labels}.reshape(-1))
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_({clipped}, max_norm)
            opt.step()


def tqdm(it):
    return it
"""


def results(text, specimen="gpt.py"):
    source = (FOLDER / specimen).read_text(encoding="utf-8") + "\n" + text
    kind = {"gpt.py": ("GPT", "language_model"), "classifier.py": ("TextClassifier", "classifier")}[specimen]
    subject = pointed_at(
        Specimen(specimen, *kind), source, f"functions_{crc32(text.encode())}.py"
    )  # its source is kept by its name
    found = {claim: run_check(CHECKS[claim], subject, "quick") for claim in (CLEAR, CLIP, TAKE, NEXT)}
    return found, source.splitlines()


def verdicts(text, **keywords):
    return [one.verdict.name for one in results(text, **keywords)[0].values()]


def line_of(result, lines):
    return lines[int(result.place.split(":")[1]) - 1]


def epoch(clear="optimizer.zero_grad()", given="logits", clip="pass", after="pass"):
    return EPOCH.format(clear=clear, given=given, clip=clip, after=after)


CLIPS = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


def test_a_function_over_a_loader_is_watched():
    assert verdicts(epoch(clip=CLIPS)) == ["PASS", "PASS", "PASS", "NOT_PROVIDED"]


@pytest.mark.slow
def test_labels_that_a_function_cuts_itself_are_judged():
    right = FIT.format(ahead=1, backward="loss.backward(); optimizer.step()")
    assert verdicts(right) == ["PASS", "NOT_PROVIDED", "PASS", "PASS"]
    found, lines = results(FIT.format(ahead=0, backward="loss.backward(); optimizer.step()"))
    assert found[NEXT].verdict is Verdict.FAIL
    assert "data[i + 0" in line_of(found[NEXT], lines)
    found, lines = results(FIT.format(ahead=2, backward="loss.backward(); optimizer.step()"))
    assert found[NEXT].verdict is Verdict.FAIL
    assert "data[i + 2" in line_of(found[NEXT], lines)


@pytest.mark.parametrize(
    ("text", "claim", "line"),
    [
        (epoch(clear="pass"), CLEAR, "loss.backward()"),
        (epoch(clear="pass", after="optimizer.zero_grad()"), CLEAR, None),
        (epoch(clip="optimizer.zero_grad()"), CLEAR, "optimizer.zero_grad()"),
        (epoch(clip="pass", after=CLIPS), CLIP, "clip_grad_norm_"),
        (epoch(clear=f"optimizer.zero_grad(); {CLIPS}"), CLIP, "clip_grad_norm_"),
        (epoch(given="logits.softmax(-1)"), TAKE, "softmax"),
        (epoch(given="logits.log_softmax(-1)"), TAKE, None),
        (BATCHES.format(logits="logits[:, :-1]", labels="ids[:, 1:]", clipped="net.parameters()"), NEXT, None),
        (BATCHES.format(logits="logits", labels="ids", clipped="net.parameters()"), NEXT, "net(ids)"),
        (BATCHES.format(logits="logits[:, :-2]", labels="ids[:, 2:]", clipped="net.parameters()"), NEXT, "ids[:, 2:]"),
        (
            BATCHES.format(logits="logits[:, :-1]", labels="batch['y'][:, 1:]", clipped="net.parameters()"),
            NEXT,
            "",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, claim, line):
    found, lines = results(text)
    if line:
        assert found[claim].verdict is Verdict.FAIL
        assert line in line_of(found[claim], lines)
    else:
        assert found[claim].verdict is (Verdict.PASS if line is None else Verdict.NOT_PROVIDED)


@pytest.mark.parametrize(
    ("text", "clips"),
    [
        ("model(x, y)[1].backward()\n    optimizer.step()", "NOT_PROVIDED"),
        (f"model(x, y)[1].backward()\n    optimizer.step()\n    {CLIPS}", "FAIL"),
    ],
)
def test_one_that_makes_a_step_is_asked_what_a_step_shows(text, clips):
    """Its caller may clear the gradients."""
    assert verdicts(f"def train_step(model, x, y, optimizer):\n    {text}\n") == [
        "NOT_PROVIDED",
        clips,
        "PASS",
        "NOT_PROVIDED",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def fit(model, config):\n    raise RuntimeError\n",
        "def train(model, loader):\n    return [model(x) for x in loader]\n",
        "def train(model, loader, optimizer, teacher_words):\n    optimizer.step()\n",
        pytest.param(
            "def fit(model, x, y, optimizer):\n    while True:\n        model(x, y)\n", marks=pytest.mark.slow
        ),
    ],
)
def test_what_cannot_be_run_or_steps_nothing_is_left_alone(text):
    assert set(verdicts(text)) == {"NOT_PROVIDED"}


def test_a_call_that_ends_between_a_switch_and_its_end_leaves_gradients_as_they_were():
    called(lambda: torch.no_grad().__enter__(), 3, 1.0)
    assert torch.is_grad_enabled()


def test_a_classifier_is_fitted_on_whole_tensors():
    text = """
def fit(model, x_train, y_train, epochs=20, batch_size=16):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for at in range(0, len(x_train), batch_size):
            x, y = x_train[at : at + batch_size], y_train[at : at + batch_size]
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
"""
    found, lines = results(text, specimen="classifier.py")
    assert found[CLEAR].verdict is Verdict.FAIL
    assert "loss.backward()" in line_of(found[CLEAR], lines)


FORMS = {
    "an optimizer that may be left out, and a loss of the file that returns two numbers": """
class LabelSmoothing(torch.nn.Module):
    def __init__(self, vocab, eps):
        super().__init__()
        self.vocab, self.eps = vocab, eps

    def forward(self, logits, gold):
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, self.vocab), gold.reshape(-1), label_smoothing=self.eps, reduction="sum"
        )
        return loss, gold.numel()


def run_epoch(model, batches, criterion, opt=None):
    for ids in batches:
        loss, n = criterion(model(ids[:, :-1])[0], ids[:, {first}:][:, : ids.shape[1] - 1])
        if opt is not None:
            opt.zero_grad()
            (loss / n).backward()
            opt.step()
""",
    "batches beside numbers, which are objects that a function of the file takes apart": """
def loss_of(model, batch):
    ids = batch.input_ids.to("cpu")
    logits = model(ids[:, :-1])[0]
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, {first}:][:, : ids.shape[1] - 1])


def train(model, loader, steps, optimizer):
    for step, batch in zip(range(steps), loader):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
""",
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_batches_losses_and_optimizers(form):
    assert results(FORMS[form].replace("{first}", "1"))[0][NEXT].verdict is Verdict.PASS
    assert results(FORMS[form].replace("{first}", "0"))[0][NEXT].verdict is Verdict.FAIL


MICRO = """
def train_step(model, optimizer, micro_batches, lr, clip=1.0):
    {once}
    for ids in micro_batches:
        {each}
        logits = model(ids[:, :-1])[0]
        loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:]) / len(micro_batches)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("once", "each", "verdict"),
    [
        ("optimizer.zero_grad()", "pass", "PASS"),
        ("pass", "optimizer.zero_grad()", "FAIL"),
        ("pass", "pass", "NOT_PROVIDED"),
    ],
)
def test_a_step_over_several_batches_keeps_the_gradients_of_each(once, each, verdict):
    found, lines = results(MICRO.format(once=once, each=each))
    assert found[CLEAR].verdict.name == verdict
    assert found[NEXT].verdict is Verdict.PASS
    if verdict == "FAIL":
        assert line_of(found[CLEAR], lines).strip() == each


SMOOTHED = """
class SmoothedLoss(torch.nn.Module):
    def __init__(self, vocab_size, smoothing=0.1):
        super().__init__()
        self.vocab_size, self.smoothing = vocab_size, smoothing

    def forward(self, logits, target):
        logp = logits.reshape(-1, self.vocab_size).log_softmax(-1)
        truth = torch.full_like(logp, self.smoothing / (self.vocab_size - 1))
        truth.scatter_(1, target.reshape(-1, 1), 1 - self.smoothing)
        return -(truth * logp).sum(-1).mean()
"""
SHIFTING = """
def next_word_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
"""
OF_CHANCES = """
def likelihood_loss(pred, target):
    return F.nll_loss(pred.log().flatten(0, -2), target.flatten())
"""
HANDED = """
def train_step(model, batch, criterion, optimizer):
    optimizer.zero_grad()
    out = model(batch{cut})[0]{softmax}
    loss = criterion(out, batch{labels})
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "cut", "labels", "verdict"),
    [
        (SMOOTHED, "[:, :-1]", "[:, 1:]", "PASS"),
        (SMOOTHED, "[:, :-1]", "[:, :-1]", "FAIL"),
        (SHIFTING, "", "", "NOT_PROVIDED"),  # which shifts by itself
        ("", "", "", "NOT_PROVIDED"),  # a loss of another file may
    ],
)
def test_labels_are_judged_where_a_step_is_handed_its_loss(loss, cut, labels, verdict):
    found, _ = results(loss + HANDED.format(cut=cut, labels=labels, softmax=""))
    assert found[NEXT].verdict.name == verdict


@pytest.mark.parametrize(("loss", "verdict"), [(OF_CHANCES, "PASS"), ("", "FAIL"), (SMOOTHED, "FAIL")])
def test_what_a_loss_takes_is_said_by_the_one_of_the_file(loss, verdict):
    found, _ = results(loss + HANDED.format(cut="[:, :-1]", labels="[:, 1:]", softmax=".softmax(-1)"))
    assert found[TAKE].verdict.name == verdict


LOOP = """
def evaluate(model, split):
    model.eval()
    return [model(x) for x in split]


def train_epoch(model, batches, optimizer):
    {in_epoch}
    for x in batches:
        model(x).backward()
        optimizer.step()


def fit(histories, config):
    net, teacher = build(config), build(config)
    for epoch in range(config.epochs):
        train_epoch(net, histories, None)
        evaluate({judged}, histories){after}
"""


@pytest.mark.parametrize(
    ("in_epoch", "judged", "after", "found"),
    [
        ("pass", "net", "", True),
        ("pass", "net", "\n        net.train()", False),
        ("model.train()", "net", "", False),
        ("pass", "teacher", "", False),
    ],
)
def test_a_loop_that_stays_in_evaluation_is_read_in_the_text(in_epoch, judged, after, found):
    text = LOOP.format(in_epoch=in_epoch, judged=judged, after=after)
    source = (FOLDER / "trained.py").read_text(encoding="utf-8").split("class EMA")[0] + text
    subject = pointed_at(TRAINED, source, f"loop_{crc32(text.encode())}.py")
    result = run_check(CHECKS[MODE], subject, "quick")
    assert (result.verdict is Verdict.FAIL) == found
    if found:
        assert "evaluate(net" in line_of(result, source.splitlines())

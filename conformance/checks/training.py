"""Checks of dropout, cross-entropy, label smoothing and the mean squared error."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import of_those_provided
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same, tolerance, true
from conformance.reference import training as f

Array = np.ndarray

# --- dropout ------------------------------------------------------------------------------------------


def dropped(impl: Any, p: float, x: Array) -> tuple[Any, Array]:
    """A dropout layer in training mode, and what it makes of x."""
    subject = impl.build("dropout", {"p": p})
    subject.train(True)
    return subject, np.asarray(subject(x=x)["out"], np.float64)


@check("dropout-zeroes-a-fraction-p", roles=("dropout",), examples=3)
def drop_rate(impl: Any, draw: Draw) -> Evidence:
    """In training a random fraction p of the outputs is 0: p is the probability to drop, not to keep."""
    p, n = draw.float("p", 0.05, 0.95, 0.1), 20_000
    _, out = dropped(impl, p, np.ones((100, n // 100)))
    bound = 6 * (p * (1 - p) / n) ** 0.5
    return close("fraction of zeros", np.mean(out == 0), p, bound, "six standard deviations of a binomial share")


@check("survivors-are-rescaled-once", roles=("dropout",))
def survivors(impl: Any, draw: Draw) -> Evidence:
    """Survivors are multiplied by 1 / (1 - p), so that the mean is the one of evaluation."""
    p, x = draw.float("p", 0.1, 0.9, 0.1), draw.uniform("x", (40, 50), 0.5, 1.5)
    subject, out = dropped(impl, p, x)
    kept = out != 0
    draw.bites(kept.any() and not kept.all(), "some entries were dropped and some kept")
    return close("survivors", out[kept], (x / (1 - p))[kept], tolerance(subject.dtype, 1, 1.5 / (1 - p)))


@check("dropout-is-the-identity-in-evaluation", roles=("dropout",))
def evaluation(impl: Any, draw: Draw) -> Evidence:
    """In evaluation every neuron is used, unscaled; training again drops again."""
    p, x = draw.float("p", 0.3, 0.7, 0.5), draw.normal("x", (40, 5))
    subject, _ = dropped(impl, p, x)
    subject.train(False)
    out = subject(x=x)["out"]
    subject.train(True)
    again = np.asarray(subject(x=x)["out"])
    return all_of(
        same("dropout in evaluation", out, x.astype(subject.dtype)),
        true("dropout after training is switched on again", (again == 0).any(), got=int((again == 0).sum())),
    )


@check("dropout-draws-a-new-mask-at-each-step", roles=("dropout",), examples=3)
def new_masks(impl: Any, draw: Draw) -> Evidence:
    """Each step switches off another random set, another one for each sample and position."""
    x = np.ones((4, 5, 40))
    subject, first = dropped(impl, draw.float("p", 0.3, 0.7, 0.5), x)
    second = np.asarray(subject(x=x)["out"])
    rows = (first == 0).reshape(20, 40)
    distinct = len({row.tobytes() for row in rows})
    return all_of(
        true("another mask at the next step", ((first == 0) != (second == 0)).any()),
        same("different masks of the 20 rows", distinct, 20),
    )


@check("dropout-trains-two-to-the-n-networks", roles=("dropout",), needs=("dropout.vjp",), examples=2)
def sub_networks(impl: Any, draw: Draw) -> Evidence:
    """n units have 2^n masks, and all occur about equally often; what was dropped gets no gradient."""
    units, draws = draw.int("units", 2, 5, 5), 4000
    x = np.ones((draws, units))
    subject, out = dropped(impl, 0.5, x)
    counts = np.bincount((out != 0) @ (1 << np.arange(units)), minlength=2**units)
    share = draws / 2**units
    gradient = np.asarray(subject.vjp({"x": x}, 3.0 * x)[0]["x"], np.float64)
    gaps = np.minimum(abs(gradient), abs(gradient - 6.0))
    return all_of(
        close("how often each mask occurs", counts, np.full(2**units, share), 6 * share**0.5, "six deviations"),
        close("gradients of 3 are 0 or 3 / (1 - p)", gaps, np.zeros_like(gaps), tolerance(subject.dtype, 1, 6.0)),
        close("share without gradient", np.mean(gradient == 0), 0.5, 3 * (draws * units) ** -0.5, "six deviations"),
    )


@check("dropout-is-an-adaptive-ridge-penalty", roles=("dropout",), examples=2)
def drop_moments(impl: Any, draw: Draw) -> Evidence:
    """E (m x / (1 - p)) w = x w, and its variance is p / (1 - p) sum (x w)^2: an adaptive ridge penalty."""
    p, n = draw.float("p", 0.1, 0.6, 0.3), 20_000
    x, w = draw.uniform("x", (4,), 0.5, 1.5), draw.uniform("w", (4,), 0.5, 1.5)
    _, out = dropped(impl, p, np.tile(x, (n, 1)))
    read = out @ w
    spread = p / (1 - p) * float(np.sum((x * w) ** 2))
    return all_of(
        close("mean of the read-out", read.mean(), x @ w, 6 * (spread / n) ** 0.5, "six standard errors"),
        close("its variance", read.var(), spread, 0.12 * spread, "six standard errors of a variance, kurtosis 4"),
    )


@check("dropout-saves-no-computation", roles=("dropout",), examples=3)
def drop_shape(impl: Any, draw: Draw) -> Evidence:
    """Dropout saves no computation: the shape in training is the shape in evaluation."""
    shape = draw.choice("shape", ((6,), (2, 3), (2, 3, 4), (0, 3)), (2, 3))
    _, out = dropped(impl, 0.5, np.ones(shape))
    return same("shape", out.shape, shape)


@check("dropout-rate-is-the-share-switched-off", roles=("dropout",), examples=1)
def drop_limits(impl: Any, draw: Draw) -> Evidence:
    """p = 0 drops nothing and p = 1 everything, without NaN."""
    x = draw.normal("x", (5, 4))
    subject, kept = dropped(impl, 0.0, x)
    _, gone = dropped(impl, 1.0, x)
    return all_of(same("p = 0", kept, x.astype(subject.dtype).astype(float)), same("p = 1", gone, np.zeros((5, 4))))


# --- cross-entropy ------------------------------------------------------------------------------------


def cross_entropy(impl: Any, logits: Array, targets: Array, **config: Any) -> tuple[Any, Array]:
    subject = impl.build("cross_entropy", config)
    return subject, np.asarray(subject(logits=logits, targets=targets)["out"], np.float64)


def loss_agrees(impl: Any, what: str, logits: Array, targets: Array, **config: Any) -> Evidence:
    subject, got = cross_entropy(impl, logits, targets, **config)
    expected = np.asarray(f.cross_entropy(logits, targets, **config))
    scale = max(1.0, float(np.abs(logits).max()))
    return close(what, got, expected, tolerance(subject.dtype, logits.size, scale))


@check("cross-entropy-is-minus-log-probability", roles=("cross_entropy",))
def minus_log(impl: Any, draw: Draw) -> Evidence:
    """Loss = -log P(target), natural logarithm: 0.9163 for P = 0.4; 1000 exactly for logits (1000, 0), target 1."""
    p = np.array([0.01, 0.4, 0.1, 0.49])
    n, vocab = draw.int("N", 1, 6, 4), draw.int("V", 2, 8, 5)
    logits, targets = draw.normal("logits", (n, vocab), 3.0), draw.integers("targets", (n,), 0, vocab)
    subject, worked = cross_entropy(impl, np.log(p)[None], np.array([1]))
    _, large = cross_entropy(impl, np.array([[1000.0, 0.0]]), np.array([1]))
    return all_of(
        close("P = 0.4", worked, np.array(0.9162907318741551), tolerance(subject.dtype, 4)),
        close("logits (1000, 0), target 1", large, np.array(1000.0), tolerance(subject.dtype, 1, 1000.0)),
        *(
            loss_agrees(impl, f"reduction {reduction}", logits, targets, reduction=reduction)
            for reduction in ("mean", "none")
        ),
    )


@check("cross-entropy-falls-as-the-target-gains", roles=("cross_entropy",))
def loss_falls(impl: Any, draw: Draw) -> Evidence:
    """The more probable the true word, the smaller the loss, which is never negative and is near 0 at certainty."""
    gains, vocab = np.array([-4.0, -1.0, 0.0, 1.0, 4.0, 100.0]), draw.int("V", 2, 8, 4)
    row, target = draw.uniform("logits", (vocab,)), draw.int("target", 0, vocab - 1, 1)
    logits = np.tile(row, (len(gains), 1))
    logits[:, target] += gains
    _, losses = cross_entropy(impl, logits, np.full(len(gains), target), reduction="none")
    return all_of(
        true("the loss falls", (np.diff(losses) < 0).all(), got=losses, expected="strictly falling"),
        true("and is 0 at certainty", 0 <= losses[-1] < 1e-9, got=losses[-1]),
    )


@check("cross-entropy-equals-the-one-hot-sum", roles=("cross_entropy",))
def one_hot_sum(impl: Any, draw: Draw) -> Evidence:
    """An integer label is a one-hot target: - sum(one_hot * log_softmax), the 1 at the label, counted from 0."""
    n, vocab = draw.int("N", 1, 5, 3), draw.int("V", 2, 8, 5)
    logits, targets = draw.normal("logits", (n, vocab)), draw.integers("targets", (n,), 0, vocab)
    subject, got = cross_entropy(impl, logits, targets, reduction="none")
    expected = -np.sum(np.eye(vocab)[targets] * f.log_softmax(logits), axis=-1)
    return close("one-hot sum", got, expected, tolerance(subject.dtype, vocab, 4.0))


@check("position-100-is-the-101st-word", roles=("cross_entropy",), examples=3)
def zero_based(impl: Any, draw: Draw) -> Evidence:
    """Target t is the word at index t, the first at 0 and the last at V - 1."""
    vocab = draw.int("V", 2, 9, 5)
    logits = np.where(np.eye(vocab, dtype=bool), 50.0, 0.0)
    _, losses = cross_entropy(impl, logits, np.arange(vocab), reduction="none")
    return close("loss of logits that are certain of index t", losses, np.zeros(vocab), 1e-6, "exp(-50) (V - 1)")


@check("uniform-predictions-cost-ln-v", roles=("cross_entropy",), examples=4)
def uniform_cost(impl: Any, draw: Draw) -> Evidence:
    """Uniform predictions cost ln V whatever the smoothing: every target distribution sums to one."""
    vocab = draw.int("V", 2, 1000, 1000)
    eps = draw.choice("eps", (0.0, 0.1, 0.4), 0.1)
    over = draw.choice("over", ("all", "others"), "all")
    config = {"label_smoothing": eps, "smoothing_over": over}
    subject, got = cross_entropy(impl, np.zeros((3, vocab)), np.array([0, 1, vocab - 1]), **config)
    return close("ln V", got, np.log(vocab), tolerance(subject.dtype, vocab, np.log(vocab)))


@check("cross-entropy-leaves-padding-out-of-the-mean", roles=("cross_entropy",))
def padding_left_out(impl: Any, draw: Draw) -> Evidence:
    """The mean is over real tokens: ignored labels, -100 or a word's id, are in neither sum nor count."""
    n, vocab = draw.int("N", 2, 7, 4), draw.int("V", 3, 8, 4)
    pad = draw.choice("pad", (0, 1, 2, -100), 0)
    targets = draw.integers("targets", (n,), 0, vocab)
    targets[-1], targets[0] = pad, (pad + 1) % vocab
    logits = draw.normal("logits", (n, vocab))
    logits[targets == pad] *= 1e4
    eps = draw.choice("eps", (0.0, 0.1), 0.1)
    draw.bites((targets == pad).any(), "some label is padding")
    kept = targets != pad

    def over_kept(reduction: str, **smoothing: Any) -> Evidence:
        each = f.cross_entropy(logits[kept], targets[kept], **smoothing, reduction="none")
        losses = np.zeros(n)
        losses[kept] = each
        expected = {"mean": each.mean(), "sum": each.sum(), "none": losses}[reduction]
        config = {"ignore_index": pad, "reduction": reduction, **smoothing}
        subject, got = cross_entropy(impl, logits, targets, **config)
        return close(f"{reduction} over kept labels", got, expected, tolerance(subject.dtype, n * vocab, 4.0))

    smoothed = [{"label_smoothing": eps, "smoothing_over": over} for over in ("all", "others")] if eps else []
    return of_those_provided(
        draw,
        (
            (f"{reduction} {smoothing or ''}".strip(), partial(over_kept, reduction, **smoothing))
            for smoothing, reduction in product([{}, *smoothed], ("mean", "sum", "none"))
        ),
    )


@check("a-position-is-scored-by-its-own-logits", roles=("cross_entropy",))
def own_position(impl: Any, draw: Draw) -> Evidence:
    """Position i of a sequence must predict label i: its loss answers to its own logits and label alone."""
    n, vocab = draw.int("N", 2, 6, 4), draw.int("V", 2, 8, 5)
    at = draw.int("i", 0, n - 1, 1)
    logits, targets = draw.normal("logits", (n, vocab)), draw.integers("targets", (n,), 0, vocab)
    changed = logits.copy()
    changed[at] = -changed[at]
    _, before = cross_entropy(impl, logits, targets, reduction="none")
    _, after = cross_entropy(impl, changed, targets, reduction="none")
    return same("the losses that changed", before != after, np.arange(n) == at)


@check("sequence-probability-is-a-product-of-conditionals", roles=("cross_entropy",), examples=3)
def sequence_loss(impl: Any, draw: Draw) -> Evidence:
    """Conditionals 0.5, 0.25 and 0.8 make a sequence of probability 0.1: the sum is ln 10, the mean a third of it."""
    p = np.array([0.5, 0.25, 0.8]) if draw.int("case", 0, 5, 0) == 0 else draw.uniform("p", (3,), 0.05, 0.95)
    logits, targets = np.log(np.stack([p, 1 - p], axis=1)), np.zeros(3, np.int64)
    total = -float(np.log(np.prod(p)))
    parts = []
    for reduction, want in (("sum", total), ("mean", total / 3)):
        subject, got = cross_entropy(impl, logits, targets, reduction=reduction)
        parts.append(close(f"reduction {reduction}", got, want, tolerance(subject.dtype, 3, max(total, 1.0))))
    return all_of(*parts)


@check("cross-entropy-takes-predictions-then-labels", roles=("cross_entropy",), examples=1)
def argument_order(impl: Any, draw: Draw) -> Evidence:
    """The loss is criterion(prediction, target): with the two exchanged it is refused."""
    logits, targets = draw.normal("logits", (3, 4)), np.array([0, 3, 1])
    subject = impl.build("cross_entropy", {})
    return refused("labels given as predictions", partial(subject, logits=targets, targets=logits))


@check("a-batch-of-padding-alone-has-no-loss", roles=("cross_entropy",), examples=1)
def only_padding(impl: Any, draw: Draw) -> Evidence:
    """Where every label is ignored the mean is 0 / 0: NaN, or 0 by convention, and no other number."""
    with np.errstate(invalid="ignore"):
        _, got = cross_entropy(impl, draw.normal("logits", (3, 4)), np.zeros(3, np.int64), ignore_index=0)
    return true("NaN or 0", np.isnan(got) or got == 0, got=got, expected="NaN or 0")


# --- label smoothing ----------------------------------------------------------------------------------


@check("label-smoothing-mixes-with-the-uniform-distribution", roles=("cross_entropy",))
def smoothing_over_all(impl: Any, draw: Draw) -> Evidence:
    """Smoothing over all V classes: 1 - eps + eps / V on the label, eps / V elsewhere."""
    n, vocab, eps = draw.int("N", 1, 5, 3), draw.int("V", 5, 11, 5), draw.float("eps", 0.05, 0.5, 0.1)
    logits, targets = draw.normal("logits", (n, vocab), 2.0), draw.integers("targets", (n,), 0, vocab)
    return loss_agrees(impl, "smoothed loss", logits, targets, label_smoothing=eps)


@check("label-smoothing-spreads-eps-over-the-other-words", roles=("cross_entropy",))
def smoothing_over_others(impl: Any, draw: Draw) -> Evidence:
    """The documents' smoothing: 1 - eps on the label, eps / (V - 1) on each other word."""
    n, vocab, eps = draw.int("N", 1, 5, 3), draw.int("V", 5, 11, 5), draw.float("eps", 0.05, 0.5, 0.1)
    logits, targets = draw.normal("logits", (n, vocab), 2.0), draw.integers("targets", (n,), 0, vocab)
    config = {"label_smoothing": eps, "smoothing_over": "others"}
    subject, worked = cross_entropy(
        impl, np.arange(1.0, 6.0)[None], np.array([4]), **{**config, "label_smoothing": 0.1}
    )
    return all_of(
        close("logits 1 to 5, target 4", worked, 0.7019143966, 1e-9 + tolerance(subject.dtype, 5, 5.0)),
        loss_agrees(impl, "smoothed loss", logits, targets, **config),
    )


@check("label-smoothing-takes-one-label", roles=("cross_entropy",))
def smoothing_batches(impl: Any, draw: Draw) -> Evidence:
    """A batch of targets gives a smoothed distribution for each: its losses are those of the rows one by one."""
    n, vocab = draw.int("N", 2, 5, 3), draw.int("V", 3, 8, 5)
    logits, targets = draw.normal("logits", (n, vocab)), draw.integers("targets", (n,), 0, vocab)
    config = {"label_smoothing": 0.1, "reduction": "none"}
    subject, together = cross_entropy(impl, logits, targets, **config)
    alone = [cross_entropy(impl, logits[i : i + 1], targets[i : i + 1], **config)[1][0] for i in range(n)]
    return close("rows together and alone", together, alone, tolerance(subject.dtype, vocab, 4.0))


@check("smoothing-has-a-finite-optimum", roles=("cross_entropy",))
def smoothed_optimum(impl: Any, draw: Draw) -> Evidence:
    """Smoothing keeps the model from being too confident: the least loss is the entropy of the target, not 0."""
    vocab, eps = draw.int("V", 3, 11, 10), draw.float("eps", 0.05, 0.4, 0.1)
    over = draw.choice("over", ("all", "others"), "all")
    target = f.smoothed_targets(np.array([0]), vocab, eps, over)
    config = {"label_smoothing": eps, "smoothing_over": over}
    subject, best = cross_entropy(impl, np.log(target), np.array([0]), **config)
    shift = draw.normal("shift", (1, vocab), 0.5)
    _, moved = cross_entropy(impl, np.log(target) + shift, np.array([0]), **config)
    sure = np.log(target) + np.where(np.arange(vocab) == 0, 20.0, 0.0)
    _, certain = cross_entropy(impl, sure, np.array([0]), **config)
    entropy = -float(np.sum(target * np.log(target)))
    return all_of(
        close("loss at the smoothed target", best, entropy, tolerance(subject.dtype, vocab, 4.0)),
        true("it grows away from it, certainty included", best < moved and best < certain, got=(best, moved, certain)),
    )


@check("certainty-costs-nothing-without-smoothing", roles=("cross_entropy",), examples=0)
def certainty(impl: Any, draw: Draw) -> Evidence:
    """At probability 1 the plain loss is 0; with smoothing 0.1 the same logits (100, 0, 0, 0) cost 7.5."""
    logits, target = np.array([[100.0, 0, 0, 0]]), np.array([0])
    subject, plain = cross_entropy(impl, logits, target)
    _, smooth = cross_entropy(impl, logits, target, label_smoothing=0.1)
    return all_of(
        close("plain", plain, 0.0, 1e-12, "3 exp(-100)"),
        close("smoothed", smooth, 7.5, tolerance(subject.dtype, 4, 100.0)),
    )


@check("gradient-of-the-smoothed-loss", roles=("cross_entropy",), needs=("cross_entropy.vjp",))
def smoothed_gradient(impl: Any, draw: Draw) -> Evidence:
    """d loss / d logits = (softmax - target distribution) / number of kept labels; exactly 0 where ignored."""
    n, vocab = draw.int("N", 2, 6, 4), draw.int("V", 3, 7, 4)
    eps = draw.choice("eps", (0.0, 0.1, 0.3), 0.1)
    logits, targets = draw.normal("logits", (n, vocab)), draw.integers("targets", (n,), 1, vocab)
    targets[-1] = 0
    subject = impl.build("cross_entropy", {"ignore_index": 0, "label_smoothing": eps})
    gradient, _ = subject.vjp({"logits": logits, "targets": targets}, np.array(1.0))
    expected = f.cross_entropy_gradient(logits, targets, ignore_index=0, label_smoothing=eps)
    draw.bites((targets == 0).any(), "some label is ignored")
    return all_of(
        close("gradient", gradient["logits"], expected, tolerance(subject.dtype, vocab) + 1e-9),
        same("gradient of the ignored rows", np.asarray(gradient["logits"])[targets == 0], expected[targets == 0]),
    )


# --- mean squared error -------------------------------------------------------------------------------


@check("mse-is-the-mean-of-squares", roles=("mse",))
def mse(impl: Any, draw: Draw) -> Evidence:
    """Libraries take the mean of (a - y)^2: 14/3 for (1, 2, 3) against 0; the textbook's half of the sum is 7."""
    x, target = draw.normal("x", (2, 3)), draw.normal("target", (2, 3))
    subject = impl.build("mse", {})
    worked = subject(x=np.array([1.0, 2, 3]), target=np.zeros(3))["out"]
    got = subject(x=x, target=target)["out"]
    return all_of(
        close("(1, 2, 3) against 0", worked, 14 / 3, tolerance(subject.dtype, 3, 9.0)),
        close("mean of squares", got, np.mean((x - target) ** 2), tolerance(subject.dtype, 6, 9.0)),
    )


@check("loss-measures-how-wrong-a-result-is", roles=("mse",))
def mse_grows(impl: Any, draw: Draw) -> Evidence:
    """The loss of a result against itself is 0, and it grows with the distance on either side."""
    subject, y = impl.build("mse", {}), draw.normal("y", (4,))
    away = [float(subject(x=y + d, target=y)["out"]) for d in (0.0, 0.5, 1.0, -1.5, 2.0)]
    return all_of(
        same("loss of y against y", away[0], 0.0),
        true("it grows with |a - y|", (np.diff(away) > 0).all(), got=away, expected="strictly growing"),
    )

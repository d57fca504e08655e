"""Checks of the warm-up schedule, gradient clipping, optimizers and gradient accumulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import loaded
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference import training as f

Array = np.ndarray

# --- warm-up ------------------------------------------------------------------------------------------


def rates(impl: Any, d_model: int, warmup: int, steps: Sequence[int]) -> Array:
    subject = impl.build("lr_schedule", {"d_model": d_model, "warmup": warmup})
    return np.array([float(subject(step=int(step))["out"]) for step in steps])


def relative(got: Array, expected: Any) -> Array:
    return np.asarray(got, np.float64) / np.asarray(expected, np.float64)


@check("warmup-rate-is-d-model-and-two-powers-of-step", roles=("lr_schedule",))
def warmup_values(impl: Any, draw: Draw) -> Evidence:
    """lr = d_model^-0.5 min(step^-0.5, step warmup^-1.5): 6.9877e-4 at its peak for 512 and 4000."""
    steps = [1, 100, 1000, 2000, 4000, 8000, 16000, 100000]
    printed = [1.746928107e-7, 1.746928107e-5, 1.746928107e-4, 3.493856215e-4]
    printed += [6.987712430e-4, 4.941058844e-4, 3.493856215e-4, 1.397542486e-4]
    d_model, warmup = draw.choice("d_model", (128, 256, 512, 768), 768), draw.int("warmup", 2, 10_000, 10_000)
    some = [1, 2, warmup // 2 + 1, warmup, warmup + 1, 3 * warmup]
    wanted = [f.warmup_rate(step, d_model, warmup) for step in some]
    ones = np.ones(8)
    return all_of(
        close("rate / printed rate", relative(rates(impl, 512, 4000, steps), printed), ones, 1e-6, "float32"),
        close("rate / formula", relative(rates(impl, d_model, warmup, some), wanted), ones[:6], 1e-6, "float32"),
    )


@check("the-rate-rises-during-warmup-and-falls-after", roles=("lr_schedule",))
def warmup_shape(impl: Any, draw: Draw) -> Evidence:
    """The rate starts very small, rises strictly to its peak at step = warmup, and falls strictly after."""
    warmup = draw.int("warmup", 3, 50, 20)
    values = rates(impl, draw.choice("d_model", (16, 512), 512), warmup, range(1, 4 * warmup))
    return all_of(
        same("step of the peak", int(values.argmax()) + 1, warmup),
        true("rises to it", (np.diff(values[:warmup]) > 0).all(), got=values[:warmup], expected="strictly rising"),
        true("falls after", (np.diff(values[warmup - 1 :]) < 0).all(), got=values[warmup:], expected="falling"),
        close("first rate / peak", values[0] / values[warmup - 1], 1 / warmup, 1e-6, "float32"),
    )


@check("warmup-is-linear", roles=("lr_schedule",))
def warmup_linear(impl: Any, draw: Draw) -> Evidence:
    """During warm-up the rate grows by the same amount at every step: lr(2k) = 2 lr(k)."""
    warmup = draw.int("warmup", 4, 5000, 4000)
    k = draw.int("k", 1, warmup // 2, warmup // 3)
    one, two = rates(impl, 512, warmup, [k, 2 * k])
    return close("lr(2k) / lr(k)", two / one, 2.0, 1e-6, "float32")


@check("after-warmup-the-rate-decays-as-the-root-of-step", roles=("lr_schedule",))
def warmup_decay(impl: Any, draw: Draw) -> Evidence:
    """After warm-up lr(4k) = lr(k) / 2."""
    warmup = draw.int("warmup", 2, 5000, 4000)
    k = warmup + draw.int("steps after", 0, 5000, 0)
    one, four = rates(impl, 512, warmup, [k, 4 * k])
    return close("lr(4k) / lr(k)", four / one, 0.5, 1e-6, "float32")


@check("the-rate-is-defined-at-step-zero", roles=("lr_schedule",), examples=2)
def step_zero(impl: Any, draw: Draw) -> Evidence:
    """At step 0 the schedule neither fails nor jumps: a finite rate between 0 and that of step 1."""
    warmup = draw.int("warmup", 2, 5000, 4000)
    try:
        zero, one = rates(impl, 512, warmup, [0, 1])
    except ZeroDivisionError as error:
        said = "Step 0 is put into a negative power: the schedule raises ZeroDivisionError at the first step."
        return true("lr(0) is a number", False, expected="a finite rate", got=str(error)).saying(
            diagnosis=said, mend="count steps from 1, or take max(step, 1)"
        )
    return true("0 <= lr(0) <= lr(1)", 0 <= zero <= one, got=zero, expected=f"between 0 and {one}")


# --- clipping -----------------------------------------------------------------------------------------

# torch scales by max_norm / (norm + 1e-6): a relative deviation of 1e-6 / norm is a convention, not an error
CLIP_EPSILON = 2e-6


def clipped(impl: Any, grads: Sequence[Array], max_norm: float) -> tuple[Any, list[Array], Any]:
    subject = impl.build("clip_grad_norm", {"max_norm": max_norm})
    result = subject(grads=[np.array(g) for g in grads])
    return subject, [np.asarray(g, np.float64) for g in result["out"]], result.get("norm")


def draw_gradients(draw: Draw, norm: float) -> list[Array]:
    """Gradients of three parameters of unequal size and scale, of this global norm."""
    grads = [draw.normal(f"grad{i}", shape) * 4.0**i for i, shape in enumerate(((2, 3), (4,), (1,)))]
    return [g * (norm / f.global_norm(grads)) for g in grads]


@check("clipping-uses-one-norm-over-all-parameters", roles=("clip_grad_norm",))
def clip_global(impl: Any, draw: Draw) -> Evidence:
    """Gradients (3, 0, 4) and (0, 12) have one norm, 13; all are scaled by max_norm / 13."""
    max_norm = draw.float("max_norm", 0.5, 2.0, 1.0)
    subject, out, norm = clipped(impl, [np.array([3.0, 0, 4]), np.array([0.0, 12])], max_norm)
    grads = draw_gradients(draw, max_norm * draw.float("excess", 1.5, 10.0, 3.0))
    _, other, _ = clipped(impl, grads, max_norm)
    bound = tolerance(subject.dtype, 11, max_norm) + CLIP_EPSILON
    reason = "rounding, and the 1e-6 that some libraries add to the norm"
    parts = [close("(3, 0, 4)", out[0], np.array([3.0, 0, 4]) * max_norm / 13, bound, reason)]
    parts.append(close("(0, 12)", out[1], np.array([0.0, 12]) * max_norm / 13, bound, reason))
    if norm is not None:
        parts.append(close("the norm before clipping", norm, 13.0, tolerance(subject.dtype, 5, 13.0)))
    wanted = f.clip_by_global_norm(grads, max_norm)
    parts += [close(f"gradient {i}", a, b, bound, reason) for i, (a, b) in enumerate(zip(other, wanted, strict=True))]
    return all_of(*parts)


@check("clipping-keeps-the-direction", roles=("clip_grad_norm",))
def clip_direction(impl: Any, draw: Draw) -> Evidence:
    """Clipping limits the norm, not the largest entry: (3, 4) becomes (0.6, 0.8), its direction kept."""
    grad = draw.normal("grad", (5,), 3.0)
    subject, (worked,), _ = clipped(impl, [np.array([3.0, 4.0])], 1.0)
    _, (out,), _ = clipped(impl, [grad], 0.5)
    draw.bites(np.linalg.norm(grad) > 0.5, "the norm exceeds the maximum")
    bound = tolerance(subject.dtype, 5) + CLIP_EPSILON
    unit = grad / np.linalg.norm(grad)
    return all_of(
        close("(3, 4)", worked, [0.6, 0.8], bound, "rounding, and 1e-6 added to the norm"),
        close("direction", out / np.linalg.norm(out), unit, bound, "rounding, and 1e-6 added to the norm"),
    )


@check("gradients-within-the-norm-are-left-alone", roles=("clip_grad_norm",))
def clip_small(impl: Any, draw: Draw) -> Evidence:
    """Only a norm above max_norm is scaled: smaller gradients stay as they are, and zeros stay zeros."""
    grads = draw_gradients(draw, draw.float("norm", 0.01, 0.9, 0.5))
    subject, out, _ = clipped(impl, grads, 1.0)
    _, zeros, _ = clipped(impl, [np.zeros(3), np.zeros((2, 2))], 1.0)
    unchanged = [
        same(f"gradient {i}", a, g.astype(subject.dtype)) for i, (a, g) in enumerate(zip(out, grads, strict=True))
    ]
    return all_of(*unchanged, same("zeros", zeros[0], np.zeros(3)), same("zeros", zeros[1], np.zeros((2, 2))))


@check("a-clipped-norm-never-exceeds-the-maximum", roles=("clip_grad_norm",))
def clip_bounded(impl: Any, draw: Draw) -> Evidence:
    """Exploding gradients are tamed: whatever the norm was, after clipping it is at most max_norm."""
    max_norm = draw.float("max_norm", 0.1, 5.0, 1.0)
    grads = draw_gradients(draw, 10.0 ** draw.int("exponent", -2, 8, 6))
    subject, out, _ = clipped(impl, grads, max_norm)
    norm = f.global_norm(out)
    return true(
        "norm after clipping",
        norm <= max_norm * (1 + tolerance(subject.dtype, 11)),
        got=norm,
        expected=f"<= {max_norm}",
    )


# --- optimizers ---------------------------------------------------------------------------------------


def optimize(impl: Any, params: Sequence[Array], grads: Sequence[Sequence[Array]], **config: Any) -> tuple[Any, list]:
    subject = impl.build("optimizer", config)
    given = [[np.array(g) for g in step] for step in grads]
    out = subject(params=[np.array(p) for p in params], grads=given)["out"]
    return subject, [[np.asarray(p, np.float64) for p in step] for step in out]


def steps_agree(impl: Any, params: Sequence[Array], grads: Sequence[Sequence[Array]], **config: Any) -> Evidence:
    """The parameters after every step against the formula."""
    subject, got = optimize(impl, params, grads, **config)
    expected = f.optimize(params, grads, ROLES["optimizer"].settings(config))
    scale = max(1.0, *(float(np.max(np.abs(p))) for step in expected for p in step))
    bound = tolerance(subject.dtype, 4 * len(grads), scale)
    return all_of(
        *(
            close(f"parameter {i} after step {t + 1}", a, b, bound)
            for t, (ours, wanted) in enumerate(zip(got, expected, strict=True))
            for i, (a, b) in enumerate(zip(ours, wanted, strict=True))
        )
    )


def draw_run(draw: Draw, steps: int) -> tuple[list[Array], list[list[Array]]]:
    """A matrix and a vector, and a gradient of each for every step."""
    shapes = ((2, 3), (4,))
    params = [draw.normal(f"param{i}", shape) for i, shape in enumerate(shapes)]
    return params, [[draw.normal(f"grad{t}.{i}", s) for i, s in enumerate(shapes)] for t in range(steps)]


@check("sgd-subtracts-the-rate-times-the-gradient", roles=("optimizer",))
def sgd(impl: Any, draw: Draw) -> Evidence:
    """w <- w - eta dL/dw, b <- b - eta dL/db: 0.8 becomes 0.7784397739 with the neuron's gradient and 0.1."""
    rate = draw.float("lr", 0.001, 1.0, 0.1)
    params, grads = draw_run(draw, draw.int("steps", 1, 4, 3))
    neuron = [np.array([0.8]), np.array([-0.2])], [[np.array([0.2156022607]), np.array([0.1437348405])]]
    subject, worked = optimize(impl, *neuron, kind="sgd", lr=0.1)
    bound = 1e-9 + tolerance(subject.dtype, 1)
    return all_of(
        close("w", worked[0][0], [0.7784397739], bound, "ten printed digits"),
        close("b", worked[0][1], [-0.2143734840], bound, "ten printed digits"),
        steps_agree(impl, params, grads, kind="sgd", lr=rate),
    )


def descend(impl: Any, curvature: Array, rate: float, steps: int) -> Array:
    """SGD on sum(curvature w^2) / 2 from ones: every step asks for the gradient where it stands."""
    w = np.ones(len(curvature))
    for _ in range(steps):
        w = optimize(impl, [w], [[curvature * w]], kind="sgd", lr=rate)[1][0][0]
    return w


@check("too-large-a-rate-diverges-and-too-small-is-slow", roles=("optimizer",), examples=0)
def step_size(impl: Any, draw: Draw) -> Evidence:
    """On w^2 / 2 from 1: rate 1 is there at once, 2 alternates for ever, 2.1 diverges, 0.1 and 0.001 are slow."""
    wanted = {1.0: 0.0, 2.0: 1.0, 2.1: 117.3909, 0.1: 0.0051537752, 0.001: 0.9512056282}
    parts = []
    for rate, want in wanted.items():
        got = descend(impl, np.ones(1), rate, 50)[0]
        parts.append(close(f"w after 50 steps of {rate}", got, want, 1e-4 * max(want, 0.01), "printed digits, float32"))
    return all_of(*parts)


@check("a-ravine-makes-gradient-descent-oscillate", roles=("optimizer",), examples=0)
def ravine(impl: Any, draw: Draw) -> Evidence:
    """On (100 w1^2 + w2^2) / 2 a rate of 0.019 converges and 0.021 diverges on the steep wall."""
    curvature = np.array([100.0, 1.0])
    steady, diverged = descend(impl, curvature, 0.019, 100), descend(impl, curvature, 0.021, 100)
    return all_of(
        close("w2 with 0.019", steady[1], 0.1468591, 1e-4, "float32"),
        true("w1 with 0.019 falls", abs(steady[0]) < 1e-3, got=steady[0], expected="2.66e-5"),
        close("w1 with 0.021, over 13780.6", diverged[0] / 13780.6, 1.0, 1e-3, "float32 over 100 steps"),
    )


@check("adam-step-follows-the-bias-corrected-moments", roles=("optimizer",))
def adam(impl: Any, draw: Draw) -> Evidence:
    """m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps), eps outside the root, over several steps."""
    params, grads = draw_run(draw, draw.int("steps", 2, 6, 5))
    config = {
        "kind": "adam",
        "lr": draw.float("lr", 0.001, 0.5, 0.1),
        "betas": draw.choice("betas", ((0.9, 0.98), (0.9, 0.999), (0.5, 0.7)), (0.9, 0.98)),
        "eps": draw.choice("eps", (1e-3, 0.1, 1e-9), 1e-3),
    }
    grads = [[g * 0.01 for g in step] for step in grads]
    paper = {"kind": "adam", "lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-9}
    subject, worked = optimize(impl, [np.zeros(1)], [[np.array([g])] for g in (1.0, 2.0, -3.0)], **paper)
    printed = np.array([-9.99999999e-5, -1.962414860e-4, -1.896178338e-4])
    bound = 1e-12 + tolerance(subject.dtype, 3, 2e-4)
    return all_of(
        close("gradients 1, 2, -3", np.ravel(worked), printed, bound, "ten printed digits"),
        steps_agree(impl, params, grads, **config),
    )


@check("sgd-follows-the-size-of-a-gradient-and-adam-does-not", roles=("optimizer",), examples=0)
def first_step_size(impl: Any, draw: Draw) -> Evidence:
    """Gradients 1e-3, 1 and 1e3 move a parameter by 1e-6, 1e-3 and 1 under SGD, and by about 1e-3 under Adam."""
    grads = [[np.array([1e-3]), np.array([1.0]), np.array([1e3])]]
    parts = []
    for kind, wanted in (("sgd", [1e-6, 1e-3, 1.0]), ("adam", [1e-3, 1e-3, 1e-3])):
        subject, out = optimize(impl, [np.zeros(1)] * 3, grads, kind=kind, lr=1e-3)
        ratio = -np.ravel(out) / wanted
        parts.append(
            close(f"{kind}: step over {wanted}", ratio, np.ones(3), 2e-5 + tolerance(subject.dtype), "eps / g")
        )
    return all_of(*parts)


@check("adamw-decays-weights-apart-from-the-gradient", roles=("optimizer",))
def adamw(impl: Any, draw: Draw) -> Evidence:
    """AdamW shrinks each parameter by lr weight_decay, outside the moments: 1 and gradient 0.5 give 0.99899."""
    one = {"kind": "adamw", "lr": 0.001, "weight_decay": 0.01}
    subject, worked = optimize(impl, [np.ones(1)], [[np.array([0.5])]], **one)
    _, idle = optimize(impl, [np.ones(1)], [[np.zeros(1)]], **one)
    params, grads = draw_run(draw, draw.int("steps", 2, 5, 4))
    config = {"kind": "adamw", "lr": draw.float("lr", 0.01, 0.5, 0.1), "eps": 1e-3}
    bound = 1e-10 + tolerance(subject.dtype)
    return all_of(
        close("gradient 0.5", worked[0][0], [0.99899000002], bound, "printed digits"),
        close("gradient 0", idle[0][0], [0.99999], bound, "printed digits"),
        steps_agree(impl, params, grads, **config, weight_decay=draw.float("weight_decay", 0.05, 0.5, 0.3)),
    )


@check("weight-decay-is-set-by-parameter-group", roles=("optimizer",))
def decay_groups(impl: Any, draw: Draw) -> Evidence:
    """AdamW with groups: a matrix decays; a vector, whose group's decay is 0, follows the moments alone."""
    params, grads = draw_run(draw, draw.int("steps", 1, 4, 3))
    decay = draw.float("weight_decay", 0.05, 0.5, 0.3)
    config = {"kind": "adamw", "lr": 0.1, "eps": 1e-3}
    subject, idle = optimize(impl, params, [[np.zeros_like(p) for p in params]], **config, weight_decay=(decay, 0.0))
    return all_of(
        close("a vector without gradient", idle[0][1], params[1], tolerance(subject.dtype, 1, 4.0)),
        steps_agree(impl, params, grads, **config, weight_decay=(decay, 0.0)),
    )


# --- accumulation -------------------------------------------------------------------------------------


@check("micro-batches-add-up-to-the-gradient-of-the-batch", roles=("gradient_accumulation",))
def accumulation(impl: Any, draw: Draw) -> Evidence:
    """A batch run in pieces leaves the gradient of its mean over tokens, however unequal the pieces' token counts."""
    rows, steps, width, vocab = 4, draw.int("T", 3, 7, 6), draw.int("d_model", 2, 5, 3), draw.int("V", 3, 7, 5)
    pieces = draw.choice("pieces", (1, 2, 4), 4)
    config = {"d_model": width, "vocab": vocab, "pieces": pieces}
    subject, params = loaded(impl, draw, "gradient_accumulation", **config)
    x, labels = draw.normal("x", (rows, steps, width)), draw.integers("labels", (rows, steps), 1, vocab)
    lengths = np.array([1, steps, steps - 1, 2])  # rows, and halves of the batch, of unequal length
    labels[np.arange(steps) >= lengths[:, None]] = 0
    got = subject(x=x, labels=labels)["out"]
    expected = f.mean_gradient(params["weight"], x, labels, pad_id=0)
    bound = tolerance(subject.dtype, rows * steps, max(1.0, float(np.abs(x).max())))
    return close("gradient of the weight", got, expected, bound)

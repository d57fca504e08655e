"""Checks of multi-head attention (document 000 section 2.4; 002 Multi-Head Attention)."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.attention import score_differences
from conformance.checks.masks import interior_padding
from conformance.checks.self_attention import layer_bound
from conformance.checks.subjects import POISON, loaded, usual_mask
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, refused, same, tolerance, true
from conformance.protocol import ROLES, Array, Arrays, NotProvided
from conformance.reference import multi_head as f

ROLE = "multi_head_attention"


def drawn(impl: Any, draw: Draw) -> tuple[Any, Arrays, int, Array, Array | None]:
    """A loaded layer, its parameters and number of heads, an input whose sizes all differ, and its `usual_mask`."""
    heads, d_head = draw.int("heads", 1, 4, 3), draw.int("d_head", 1, 5, 4)
    b, t = draw.int("B", 1, 3, 2), draw.int("T", 1, 6, 5)
    subject, p = loaded(impl, draw, ROLE, d_model=heads * d_head, n_heads=heads)
    x = draw.normal("x", (b, t, heads * d_head))
    return subject, p, heads, x, usual_mask(partial(attend, subject), x)


def drawn_head(impl: Any, draw: Draw) -> tuple[Any, Arrays, int, slice, Array, Array | None]:
    """A loaded layer, its parameters and number of heads, the columns of one head, an input and its `usual_mask`."""
    heads, d_head = draw.int("heads", 2, 4, 3), draw.int("d_head", 1, 5, 4)
    head = draw.int("head", 0, heads - 1, 1)
    subject, p = loaded(impl, draw, ROLE, d_model=heads * d_head, n_heads=heads)
    x = draw.normal("x", (2, 5, heads * d_head))
    own = slice(head * d_head, (head + 1) * d_head)
    return subject, p, heads, own, x, usual_mask(partial(attend, subject), x)


def attend(subject: Any, x: Array, mask: Array | None = None) -> Array:
    """Self-attention: one array is query, key and value."""
    masked = {} if mask is None else {"mask": mask}
    return np.asarray(subject(query=x, key=x, value=x, **masked)["out"], np.float64)


def without_output_projection(p: Arrays) -> Arrays:
    """W_O = I and no bias: the output is the concatenation of the heads."""
    d = len(p["out_proj.bias"])
    return {**p, "out_proj.weight": np.eye(d), "out_proj.bias": np.zeros(d)}


def reading_weights(p: Arrays, x: Array, heads: int) -> Arrays:
    """Parameters under which the output holds the weights themselves, for a self-attention input x ``(B, T, d)``.

    W_V maps each of the B*T words to the unit vector of its place, once for every head (it exists when d_head >= T
    and the words are independent), and W_O = I. So any implementation shows its weights, whatever it returns.
    """
    b, t, d = x.shape
    place = np.tile(np.tile(np.eye(t, d // heads), (b, 1)), (1, heads))
    w_v = np.linalg.pinv(x.reshape(b * t, d)) @ place
    return {**without_output_projection(p), "v_proj.weight": w_v.T, "v_proj.bias": np.zeros(d)}


def read_weights(out: Array, heads: int) -> Array:
    """``(B, H, T, T)`` from an output under `reading_weights`."""
    b, t, d = out.shape
    return out.reshape(b, t, heads, d // heads).swapaxes(1, 2)[..., :t]


# --- the formula ----------------------------------------------------------------------------------


@check("multi-head-formula", roles=(ROLE,))
def multi_head_formula(impl: Any, draw: Draw) -> Evidence:
    """MultiHead(X) = Concat(head_1, ..., head_h) W_O, head_i = Attention(X W_i^Q, X W_i^K, X W_i^V)."""
    subject, p, heads, x, mask = drawn(impl, draw)
    expected, _ = f.multi_head_attention(p, x, x, x, heads, mask=mask)
    return close("Concat(heads) W_O", attend(subject, x, mask), expected, layer_bound(subject, p, x, x, x))


@check("each-head-owns-a-slice-of-the-projections", roles=(ROLE,))
def each_head_owns_a_slice(impl: Any, draw: Draw) -> Evidence:
    """Head i is attention on columns i*d_head .. (i+1)*d_head of Q, K and V; the heads are concatenated in order."""
    subject, p, heads, x, mask = drawn(impl, draw)
    p = without_output_projection(p)
    subject.load(p)
    outs, _ = f.heads(p, x, x, x, heads, mask=mask)
    got = attend(subject, x, mask).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    return close("output before W_O, by head", got, outs, layer_bound(subject, p, x, x, x))


@check("heads-do-not-influence-each-other", roles=(ROLE,))
def heads_are_independent(impl: Any, draw: Draw) -> Evidence:
    """Changing the projections of one head changes its own columns only: every head attends by itself."""
    subject, p, _, own, x, mask = drawn_head(impl, draw)
    p = without_output_projection(p)
    other = dict(p)
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = p[f"{name}.weight"].copy()
        weight[own] += draw.normal(f"change {name}", weight[own].shape)
        other[f"{name}.weight"] = weight
    subject.load(p)
    before = attend(subject, x, mask)
    subject.load(other)
    change = attend(subject, x, mask) - before
    bound = layer_bound(subject, other, x, x, x)
    draw.bites(abs(change[..., own]).max() > bound, "the changed head's output moved")
    rest = np.delete(change, own, -1)
    return all_of(
        close("change of the other heads' columns", rest, np.zeros(rest.shape), bound),
        true("the changed head's columns move", abs(change[..., own]).max() > 1e-3),
    )


@check("the-output-projection-mixes-the-heads", roles=(ROLE,))
def output_projection_mixes(impl: Any, draw: Draw) -> Evidence:
    """The output is W_O applied to the concatenation, plus its bias."""
    subject, p, _, x, mask = drawn(impl, draw)
    with_projection = attend(subject, x, mask)
    subject.load(without_output_projection(p))
    expected = f.project(p, "out_proj", attend(subject, x, mask))
    return close("concatenation W_O + b_O", with_projection, expected, layer_bound(subject, p, x, x, x))


@check("a-head-can-be-taken-away", roles=(ROLE,))
def head_can_be_taken_away(impl: Any, draw: Draw) -> Evidence:
    """Zeroing the values of head i removes head_i W_i^O and nothing else: the other heads still deliver."""
    subject, p, heads, own, x, mask = drawn_head(impl, draw)
    before = attend(subject, x, mask)
    silent = {name: value.copy() for name, value in p.items()}
    silent["v_proj.weight"][own] = 0.0
    silent["v_proj.bias"][own] = 0.0
    subject.load(silent)
    outs, _ = f.heads(p, x, x, x, heads, mask=mask)
    taken = outs[:, own.start // outs.shape[-1]]
    expected = before - taken @ p["out_proj.weight"][:, own].T
    return close("sum of the other heads", attend(subject, x, mask), expected, 2 * layer_bound(subject, p, x, x, x))


@check("multi-head-scales-by-the-width-of-one-head", roles=(ROLE,))
def scales_by_head_width(impl: Any, draw: Draw) -> Evidence:
    """Each head's scores are divided by sqrt(d_head), not sqrt(d_model): read from the weights."""
    heads, t = draw.int("heads", 2, 4, 3), 3
    d_head = draw.int("d_head", 4, 8, 8)
    d = heads * d_head
    subject, p = loaded(impl, draw, ROLE, d_model=d, n_heads=heads)
    x = draw.normal("x", (1, t, d), 0.6)
    p = reading_weights(p, x, heads)
    subject.load(p)
    mask = usual_mask(partial(attend, subject), x)
    shown = np.ones((t, t), bool) if mask is None else mask[0, 0]
    got = score_differences(read_weights(attend(subject, x, mask), heads))[0][:, shown]
    q, k = (f.project(p, name, x)[0].reshape(t, heads, d_head).swapaxes(0, 1) for name in ("q_proj", "k_proj"))
    raw = q @ k.swapaxes(-1, -2)
    expected = ((raw - raw[..., :1]) / np.sqrt(d_head))[:, shown]
    # Logarithms of weights down to e^-2|s| magnify the rounding of the readout.
    magnified = float(np.exp(2 * abs(raw).max() / np.sqrt(d_head))) * (1.0 + float(abs(p["v_proj.weight"]).max()))
    return close("score differences / sqrt(d_head)", got, expected, tolerance(subject.dtype, d, 4 * magnified))


@check("one-head-is-plain-attention", roles=(ROLE,))
def one_head_is_plain_attention(impl: Any, draw: Draw) -> Evidence:
    """With h = 1 the layer is one attention over the whole width: one distribution per query."""
    d = draw.int("d_model", 1, 8, 6)
    subject, p = loaded(impl, draw, ROLE, d_model=d, n_heads=1)
    x = draw.normal("x", (2, 5, d))
    mask = usual_mask(partial(attend, subject), x)
    expected, _ = f.self_attention(p, x, None if mask is None else mask[:, 0])
    got = attend(subject, x, mask)
    return close("attention W_O", got, f.project(p, "out_proj", expected), layer_bound(subject, p, x, x, x))


def _places(t: int, n: int) -> Array:
    """``(1, t, n)`` inputs: a unit vector for each place, then zeros."""
    return np.eye(t, n)[None]


@check("two-heads-look-at-two-places", roles=(ROLE,), examples=3)
def two_heads_look_at_two_places(impl: Any, draw: Draw) -> Evidence:
    """Two heads give [x_(t-1); x_(t-2)] exactly, where one distribution could only blend the two."""
    t = draw.int("T", 3, 6, 6)
    d_head = 2 * t
    d = 2 * d_head
    # The input is the place in one half and content in the other; 60 sqrt(d_head) makes the wanted weight 1 - e^-60.
    content = draw.normal("content", (1, t, t))
    x = np.zeros((1, t, d))
    x[..., :t], x[..., t : 2 * t] = _places(t, t), content
    p = {
        name: np.zeros(shape) for name, shape in ROLES[ROLE].params({"d_model": d, "n_heads": 2, "bias": True}).items()
    }
    for head, back in enumerate((1, 2)):
        rows = head * d_head + np.arange(t)
        p["q_proj.weight"][rows, (np.arange(t) + back) % t] = 60.0 * d_head**0.5  # place i asks for i - back
        p["k_proj.weight"][rows, np.arange(t)] = 1.0
        p["v_proj.weight"][rows, t + np.arange(t)] = 1.0
    p["out_proj.weight"] = np.eye(d)
    subject = impl.build(ROLE, {"d_model": d, "n_heads": 2})
    subject.load(p)
    mask = usual_mask(partial(attend, subject), x)
    got = attend(subject, x, mask)
    expected = np.zeros((1, t, d))
    for head, back in enumerate((1, 2)):
        expected[..., head * d_head : head * d_head + t] = np.roll(content, back, axis=1)
    first = 0 if mask is None else 2  # the first two words ask around the corner, for words that follow them
    return close("[x_(t-1); x_(t-2)]", got[:, first:], expected[:, first:], tolerance(subject.dtype, t, 4.0))


@check("every-head-reads-the-whole-embedding", roles=(ROLE,))
def every_head_reads_the_whole_embedding(impl: Any, draw: Draw) -> Evidence:
    """The embedding itself is not split: a change of the last features reaches the first head, and the reverse."""
    heads, d_head = 2, draw.int("d_head", 2, 5, 4)
    d = heads * d_head
    subject, p = loaded(impl, draw, ROLE, d_model=d, n_heads=heads)
    x = draw.normal("x", (2, 5, d))
    subject.load(without_output_projection(p))
    mask = usual_mask(partial(attend, subject), x)
    before = attend(subject, x, mask)
    reach = []
    for head in range(heads):
        others = x.copy()
        foreign = np.arange(d) // d_head != head
        others[..., foreign] = 0.0
        reach.append(float(abs(attend(subject, others, mask) - before)[..., head * d_head : (head + 1) * d_head].max()))
    return true("influence of the other half of the features on each head", min(reach) > 1e-3, got=reach)


# --- shapes and parameters ------------------------------------------------------------------------


@check("multi-head-keeps-the-shape", roles=(ROLE,))
def keeps_the_shape(impl: Any, draw: Draw) -> Evidence:
    """(B, T, d_model) in, (B, T, d_model) out, so that layers can be stacked."""
    subject, _, _, x, mask = drawn(impl, draw)
    once = attend(subject, x, mask)
    if once.shape != x.shape:
        return same("shape", once.shape, x.shape)
    return same("shape of the second layer", attend(subject, once, mask).shape, x.shape)


@check("heads-must-divide-the-width", roles=(ROLE,), examples=3)
def heads_must_divide(impl: Any, draw: Draw) -> Evidence:
    """A width that is not a multiple of the number of heads is refused, at construction or at the first call."""
    d_model, heads = draw.choice("d_model, heads", ((10, 3), (10, 4), (8, 3), (9, 2)), (10, 3))

    def use(d_model: int) -> None:
        # 9 words: 9 * 10 numbers do divide into heads of 3, and a bare reshape would mix words silently.
        subject, x = impl.build(ROLE, {"d_model": d_model, "n_heads": heads}), np.ones((1, 9, d_model))
        attend(subject, x, usual_mask(partial(attend, subject), x))

    use(4 * heads)  # what divides is accepted
    evidence = refused(f"d_model {d_model} with {heads} heads", partial(use, d_model))
    if not evidence.ok:
        try:
            impl.build(ROLE, {"d_model": d_model, "n_heads": heads}).params()
        except NotProvided:
            return note(
                "heads of the width rounded down, projected back to the whole", f"d_model {d_model}, {heads} heads"
            )
    return evidence


@check("the-number-of-heads-adds-no-parameters", roles=(ROLE,), examples=2)
def heads_add_no_parameters(impl: Any, draw: Draw) -> Evidence:
    """Four d_model x d_model projections with bias: 4 d^2 + 4 d parameters for any number of heads."""
    d = draw.choice("d_model", (8, 16, 24), 8)
    counts = [sum(v.size for v in impl.build(ROLE, {"d_model": d, "n_heads": h}).params().values()) for h in (1, 2, 4)]
    return same("parameters with 1, 2 and 4 heads", counts, [4 * d * d + 4 * d] * 3)


@check("bias-is-an-option-of-the-projections", roles=(ROLE,), examples=2)
def bias_is_an_option(impl: Any, draw: Draw) -> Evidence:
    """With biases a zero input gives b_V W_O + b_O, and the bias of K changes nothing; without, the formula holds."""
    subject, p, heads, x, mask = drawn(impl, draw)
    bound = layer_bound(subject, p, x, x, x)
    at_zero = attend(subject, 0 * x, mask)
    before = attend(subject, x, mask)
    subject.load({**p, "k_proj.bias": p["k_proj.bias"] + draw.normal("key bias", p["k_proj.bias"].shape)})
    shifted = attend(subject, x, mask)
    zeroed = {name: 0 * value if name.endswith("bias") else value for name, value in p.items()}
    subject.load(zeroed)
    formula, _ = f.multi_head_attention(zeroed, x, x, x, heads, mask=mask)
    constant = p["v_proj.bias"] @ p["out_proj.weight"].T + p["out_proj.bias"]
    bare = formula
    with contextlib.suppress(NotProvided):
        plain = impl.build(ROLE, {"d_model": x.shape[-1], "n_heads": heads, "bias": False})
        plain.load({name: value for name, value in p.items() if name.endswith("weight")})
        bare = attend(plain, x, mask)
    return all_of(
        close("a layer built without biases", bare, formula, bound),
        close("zero input", at_zero, np.broadcast_to(constant, x.shape), bound),
        close("another bias of K", shifted, before, 4 * bound),
        close("zero biases", attend(subject, x, mask), formula, bound),
    )


@check("fresh-projections-are-random-and-independent", roles=(ROLE,), examples=0)
def fresh_projections_differ(impl: Any, draw: Draw) -> Evidence:
    """A fresh layer has W_Q, W_K and W_V of different random values, none of them constant."""
    p = impl.build(ROLE, {"d_model": 16, "n_heads": 4}).params()
    w = {name: np.asarray(p[f"{name}.weight"], np.float64) for name in ("q_proj", "k_proj", "v_proj")}
    spread = min(float(v.std()) for v in w.values())
    pairs = (("q_proj", "k_proj"), ("q_proj", "v_proj"), ("k_proj", "v_proj"))
    closest = min(float(abs(w[a] - w[b]).max()) for a, b in pairs)
    return all_of(
        true("spread of each projection", spread > 1e-3, got=spread, expected="more than 0.001"),
        true("difference between two projections", closest > 1e-3, got=closest, expected="more than 0.001"),
    )


@check("fresh-attention-is-nearly-uniform", roles=(ROLE,), examples=0)
def fresh_attention_is_nearly_uniform(impl: Any, draw: Draw) -> Evidence:
    """At the start the match of queries and keys is arbitrary: rows keep most of the entropy of uniform weights."""
    heads, t, d = 4, 16, 64
    subject = impl.build(ROLE, {"d_model": d, "n_heads": heads})
    x = draw.normal("x", (1, t, d))
    subject.load(reading_weights({name: np.asarray(v, np.float64) for name, v in subject.params().items()}, x, heads))
    mask = usual_mask(partial(attend, subject), x)
    weights = np.clip(read_weights(attend(subject, x, mask), heads), 1e-9, None)
    entropy = float(-(weights * np.log(weights)).sum(-1).mean())
    uniform = float(np.log(t if mask is None else mask.sum(-1)).mean())
    # Projections that keep the variance (Xavier) give scores of variance 1, which cost half a nat of ln 16 = 2.77;
    # without the scale the variance is 16, and more than half of the entropy is gone.
    return true("mean entropy of a row", entropy > 0.75 * uniform, got=entropy, expected=f"> {0.75 * uniform:.3f}")


@check("weights-are-returned-by-head", roles=(ROLE,), needs=(f"{ROLE}.weights",))
def weights_are_returned_by_head(impl: Any, draw: Draw) -> Evidence:
    """The returned weights are those of each head, (B, H, Tq, Tk), or declared an average by one head's axis."""
    subject, p, heads, x, mask = drawn(impl, draw)
    masked = {} if mask is None else {"mask": mask}
    got = np.asarray(subject(query=x, key=x, value=x, **masked)["weights"], np.float64)
    _, expected = f.multi_head_attention(p, x, x, x, heads, mask=mask)
    if got.ndim == 4 and got.shape[1] == 1:
        expected = expected.mean(1, keepdims=True)
    return close("weights", got, expected, layer_bound(subject, p, x, x, x))


# --- words, samples and positions ------------------------------------------------------------------


@check("splitting-heads-does-not-mix-words", roles=(ROLE,))
def splitting_does_not_mix_words(impl: Any, draw: Draw) -> Evidence:
    """Without mask, words in another order give the same outputs in that order: heads are not cut across words."""
    subject, p, _, x, _ = drawn(impl, draw)
    order = draw.rng("order").permutation(x.shape[1])
    draw.bites((order != np.arange(len(order))).any(), "some word moved")
    return close(
        "permuted", attend(subject, x[:, order]), attend(subject, x)[:, order], layer_bound(subject, p, x, x, x)
    )


@check("samples-of-a-batch-are-independent", roles=(ROLE,))
def samples_are_independent(impl: Any, draw: Draw) -> Evidence:
    """Each sample gives what it gives alone, whatever the others hold."""
    subject, p, _, x, mask = drawn(impl, draw)
    b = draw.int("b", 0, len(x) - 1, len(x) - 1)
    others = x + 100.0 * (np.arange(len(x)) != b)[:, None, None]
    got = attend(subject, others, mask)[b : b + 1]
    return close("sample alone", got, attend(subject, x[b : b + 1], mask), layer_bound(subject, p, x, x, x))


@check("multi-head-gradients-reach-every-projection", roles=(ROLE,), needs=(f"{ROLE}.vjp",), examples=1)
def gradients_reach_every_projection(impl: Any, draw: Draw) -> Evidence:
    """W_Q, W_K, W_V and W_O all receive the gradient of the formula, found by central differences."""
    heads, d = 2, 4
    x, cotangent = draw.normal("x", (1, 3, d)), draw.normal("cotangent", (1, 3, d))
    subject, p = loaded(impl, draw, ROLE, d_model=d, n_heads=heads)
    mask = usual_mask(partial(attend, subject), x)
    masked = {} if mask is None else {"mask": mask}
    _, gradients = subject.vjp({"query": x, "key": x, "value": x, **masked}, cotangent)
    parts, step = [], 1e-5

    def value_of(changed: Arrays) -> float:
        return float((f.multi_head_attention({**p, **changed}, x, x, x, heads, mask=mask)[0] * cotangent).sum())

    for name, value in p.items():
        if name.endswith("bias") and not value.any() and name not in gradients:
            continue  # some projections have a bias, and this one has none
        direction = draw.normal(f"direction {name}", value.shape)
        above, below = (value_of({name: value + sign * step * direction}) for sign in (1, -1))
        bound = 4 * layer_bound(subject, p, x, x, x) * float(np.abs(direction).sum()) + 1e-7  # step^2 error and 1e-9
        got = float((gradients[name] * direction).sum())
        parts.append(close(f"derivative along a direction of {name}", got, (above - below) / (2 * step), bound))
    return all_of(*parts)


@check("multi-head-reaches-any-distance", roles=(ROLE,), examples=2)
def reaches_any_distance(impl: Any, draw: Draw) -> Evidence:
    """In one layer the last word depends on the first one, however many words stand between them."""
    t = draw.choice("T", (10, 33, 100), 100)
    subject, p = loaded(impl, draw, ROLE, d_model=8, n_heads=2)
    x = draw.normal("x", (1, t, 8))
    mask = usual_mask(partial(attend, subject), x)
    changed = x.copy()
    changed[:, 0] += 1.0 + draw.normal("change", (8,))
    reach = attend(subject, changed, mask)[:, -1] - attend(subject, x, mask)[:, -1]
    expected, _ = f.multi_head_attention(p, changed, changed, changed, 2, mask=mask)
    before, _ = f.multi_head_attention(p, x, x, x, 2, mask=mask)
    bound = layer_bound(subject, p, x, x, x)
    draw.bites(abs(expected - before)[:, -1].max() > bound, "the influence is above rounding")
    return close("influence of the first word on the last output", reach, (expected - before)[:, -1], bound)


# --- masks ----------------------------------------------------------------------------------------


@check("padding-does-not-change-real-words", roles=(ROLE,))
def padding_does_not_change_real_words(impl: Any, draw: Draw) -> Evidence:
    """With a padding mask each sample gives what it gives unpadded, also when B = H and whatever the padding holds."""
    # B = H = 3 in the pinned example: a mask taken per head instead of per sample raises nothing there.
    b, heads, t = draw.int("B", 2, 4, 3), draw.int("heads", 2, 4, 3), draw.int("T", 2, 6, 5)
    lengths = 1 + (np.arange(b) + draw.int("first length", 0, t - 1, 1)) % t
    subject, p = loaded(impl, draw, ROLE, d_model=4 * heads, n_heads=heads)
    x = draw.normal("x", (b, t, 4 * heads))
    real = np.arange(t) < lengths[:, None]
    draw.bites(not real.all(), "some word is padding")
    poisoned = np.where(real[..., None], x, POISON)
    mask = np.broadcast_to(real[:, None, None, :], (b, 1, t, t))
    got = attend(subject, poisoned, mask=mask)
    alone = [attend(subject, x[i : i + 1, :n])[0] for i, n in enumerate(lengths)]
    return close("real words", got[real], np.concatenate(alone), layer_bound(subject, p, x, x, x))


@check("multi-head-causality-holds-in-every-head", roles=(ROLE,))
def causality_in_every_head(impl: Any, draw: Draw) -> Evidence:
    """Under the causal mask no output before t knows words after t, and the first word sees only itself."""
    subject, p, _, x, _ = drawn(impl, draw)
    t = x.shape[1]
    cut = draw.int("cut", 1, t, (t + 1) // 2)
    draw.bites(cut < t, "some word lies in the future")
    mask = np.tri(t, dtype=bool)[None, None]
    future = x.copy()
    future[:, cut:] += POISON
    bound = layer_bound(subject, p, x, x, x)
    before = attend(subject, x, mask=mask)
    first = f.project(p, "out_proj", f.project(p, "v_proj", x[:, :1]))
    return all_of(
        close(f"outputs before word {cut}", attend(subject, future, mask=mask)[:, :cut], before[:, :cut], bound),
        close("first word", before[:, :1], first, bound),
    )


@check("multi-head-obeys-both-masks", roles=(ROLE,))
def obeys_both_masks(impl: Any, draw: Draw) -> Evidence:
    """Causal and padding together: word i of a sample equals attention over its real words up to i."""
    subject, p, heads, x, _ = drawn(impl, draw)
    b, t = x.shape[:2]
    real = interior_padding(draw, b, t)
    mask = np.tri(t, dtype=bool) & real[:, None, None, :]
    poisoned = np.where(real[..., None], x, POISON)
    expected, _ = f.multi_head_attention(p, x, x, x, heads, mask=mask)
    subject.train(draw.bool("train"))
    got = attend(subject, poisoned, mask=mask)
    return close("real words", got[real], expected[real], layer_bound(subject, p, x, x, x))


@check("multi-head-dropout-thins-the-weights", roles=(ROLE,), examples=2)
def dropout_thins_the_weights(impl: Any, draw: Draw) -> Evidence:
    """In training each weight is dropped or divided by 1 - p before it meets V; in evaluation none is."""
    rate, heads, t = draw.choice("p", (0.25, 0.5), 0.25), 2, 6
    d_head = 2 * t
    subject, p = loaded(impl, draw, ROLE, d_model=heads * d_head, n_heads=heads, dropout=rate)
    x = draw.normal("x", (2, t, heads * d_head))
    p = reading_weights(p, x, heads)
    by_head = p["v_proj.weight"].reshape(heads, d_head, -1)
    by_head[:, t:] = by_head[:, :t]  # each weight is read twice: dropped before V, it is missing from both
    subject.load(p)
    bound = layer_bound(subject, p, x, x, x)
    mask = usual_mask(partial(attend, subject), x)
    _, full = f.multi_head_attention(p, x, x, x, heads, mask=mask)
    still = read_weights(attend(subject, x, mask), heads)
    subject.train(True)
    out = np.stack([attend(subject, x, mask) for _ in range(4)]).reshape(4, 2, t, heads, 2, t)
    first, second = out.transpose(4, 0, 1, 3, 2, 5)  # each (calls, B, H, T, T)
    sure = np.broadcast_to(full > 4 * bound, first.shape)  # of smaller weights rounding hides whether they were dropped

    def thinned(times: int) -> Evidence:
        kept = full / (1 - rate) ** times
        dropped = abs(first) < abs(first - kept)
        share = 1 - (1 - rate) ** times
        return all_of(
            close("weights in evaluation", still, full, bound),
            close("share of dropped weights", dropped[sure].mean(), share, 0.12, "576 draws: five standard deviations"),
            close("kept weights", first, np.where(dropped, 0.0, np.broadcast_to(kept, first.shape)), 2 * bound),
            close("second reading of the weights", second, first if times == 1 else second, 2 * bound),
        )

    # Some layers drop their output as well: then each number went through two thinnings.
    once, twice = thinned(1), thinned(2)
    return twice if twice.ok else once

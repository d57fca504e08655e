"""Checks of residuals, pre- and post-norm, encoder and decoder layers, and their stacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import DIFFERENCES, POISON, loaded, offered, usual_mask
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, same, tolerance, true
from conformance.protocol import Array, Arrays, Subject
from conformance.reference.attention import causal_mask
from conformance.reference.layers import Layers, part

"""What stands where a mask hides it: far above any bound, and far below where float32 loses the rest."""


def sizes(draw: Draw) -> dict[str, Any]:
    """d_model, n_heads, d_ff: several heads of several features, and a hidden width of its own.

    Few features hide mistakes: LayerNorm of two is their order alone, on which small changes have no influence. The
    width is even, since a whole model whose sines and cosines stand side by side is built in no other.
    """
    heads, d_head = draw.int("n_heads", 2, 3, 3), 2 * draw.int("half of d_head", 2, 3, 2)
    return {"d_model": heads * d_head, "n_heads": heads, "d_ff": draw.int("d_ff", 3, 11, 7)}


def stack_sizes(draw: Draw) -> dict[str, Any]:
    return {**sizes(draw), "n_layers": draw.int("n_layers", 1, 3, 2)}


def tokens(draw: Draw, width: int, name: str = "x", low: int = 2, pin: int = 5) -> Array:
    return draw.normal(name, (draw.int("B", 1, 3, 2), draw.int(f"T of {name}", low, 6, pin), width))


def huge_from(x: Array, cut: int) -> Array:
    """`x` with huge tokens from the place `cut` on."""
    return np.concatenate([x[:, :cut], POISON * (1.0 + np.abs(x[:, cut:]))], axis=1)


def formulas(config: dict[str, Any], subject: Subject) -> Layers:
    """The formulas in the variant of the configuration, with the subject's activation and eps."""
    said = {name: subject.attributes[name] for name in ("activation", "eps") if name in subject.attributes}
    return Layers(config["n_heads"], config.get("norm_first", False), **said)


def either_norm(impl: Any, draw: Draw, role: str, **options: Any) -> dict[str, Any]:
    """A configuration for claims that hold with the norm in either place: the place that the implementation has."""
    return offered(impl, role, {**sizes(draw), **options}, norm_first=(False, True))


def layer_bound(subject: Subject, config: dict[str, Any], expected: Array) -> float:
    """Rounding through every layer: products over the widths, and norms that divide by small deviations."""
    length = (config["d_model"] + config["d_ff"]) * config.get("n_layers", 1)
    return tolerance(subject.dtype, length, max(float(np.abs(expected).max()), 1.0) * 4.0)


def run(subject: Subject, x: Array, mask: Array | None = None) -> Array:
    """The output of an encoder layer under a mask, or none."""
    return subject(x=x, mask=mask)["out"]


def widest(subject: Subject, x: Array) -> Array | None:
    """No mask, or the causal one for a layer that never looks ahead."""
    return usual_mask(lambda inputs: run(subject, inputs), x)


def silenced(params: Arrays, *sublayers: str) -> Arrays:
    """The parameters with the named sublayers' last maps set to zero: they output nothing."""
    last = {"self_attn": "out_proj", "cross_attn": "out_proj", "feed_forward": "linear2"}
    dead = tuple(f"{name}.{last[name]}." for name in sublayers)
    return {name: np.zeros_like(a) if any(d in name for d in dead) else a for name, a in params.items()}


# --- the encoder layer ----------------------------------------------------------------------------


def _encoder_layer_formula(impl: Any, draw: Draw, norm_first: bool) -> Evidence:
    config = {**sizes(draw), "norm_first": norm_first}
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    x = tokens(draw, config["d_model"])
    mask = widest(subject, x)
    if mask is None and draw.bool("masked", pin=True):
        mask = draw.mask("mask", (len(x), 1, x.shape[1], x.shape[1]))
    steps, pieces = formulas(config, subject), []
    for what, params, inputs in (
        ("the layer's output", p, x),
        ("the output for tokens of zeros without attention", silenced(p, "self_attn"), np.zeros_like(x)),
    ):
        subject.load(params)
        expected = steps.encoder_layer(params, inputs, mask)
        pieces.append(close(what, run(subject, inputs, mask), expected, layer_bound(subject, config, expected)))
    return all_of(*pieces)


@check("post-norm-encoder-layer-formula", roles=("encoder_layer",))
def post_norm_layer(impl: Any, draw: Draw) -> Evidence:
    """z = LN1(x + MHA(x)), out = LN2(z + FFN(z))."""
    return _encoder_layer_formula(impl, draw, norm_first=False)


@check("pre-norm-encoder-layer-formula", roles=("encoder_layer",))
def pre_norm_layer(impl: Any, draw: Draw) -> Evidence:
    """h = x + MHA(LN1(x)), out = h + FFN(LN2(h))."""
    return _encoder_layer_formula(impl, draw, norm_first=True)


@check("post-norm-output-is-normalised", roles=("encoder_layer",))
def post_norm_output(impl: Any, draw: Draw) -> Evidence:
    """With gain 1 and shift 0 of the last norm, as at the start, each output token has mean 0 and variance 1."""
    config = sizes(draw)
    width = config["d_model"]
    fresh = impl.build("encoder_layer", config)
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    subject.load({**p, "norm2.weight": np.ones(width), "norm2.bias": np.zeros(width)})
    x, pieces = 10.0 * tokens(draw, width), []
    for when, layer in (("at the start", fresh), ("with gain 1 and shift 0", subject)):
        out = run(layer, x, widest(layer, x))
        means, variances = out.mean(-1), out.var(-1)
        pieces += [
            close(f"means {when}", means, np.zeros(means.shape), tolerance(subject.dtype, width, 4.0)),
            close(f"variances {when}", variances, np.ones(means.shape), 1e-2, "v / (v + eps) of a variance above 1e-3"),
        ]
    return all_of(*pieces)


@check("residual-adds-the-sublayer", roles=("encoder_layer",))
def residual_adds(impl: Any, draw: Draw) -> Evidence:
    """out = x + SubLayer(x): with a silent feed-forward network out - x is what attention returned, no more."""
    config = {**sizes(draw), "norm_first": True}
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    p = silenced(p, "feed_forward")
    subject.load(p)
    x, steps = tokens(draw, config["d_model"]), formulas(config, subject)
    mask, normed = widest(subject, x), steps.norm(part(p, "norm1"), x)
    expected = steps.attention(part(p, "self_attn"), normed, normed, mask)
    return close("out - x", run(subject, x, mask) - x, expected, layer_bound(subject, config, expected))


@check("pre-norm-layer-without-sublayers-is-the-identity", roles=("encoder_layer",))
def pre_norm_identity(impl: Any, draw: Draw) -> Evidence:
    """Though the sublayers contribute nothing the input is still there, bit for bit."""
    config = {**sizes(draw), "norm_first": True}
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    subject.load(silenced(p, "self_attn", "feed_forward"))
    x = tokens(draw, config["d_model"]).astype(subject.dtype)
    return same("out", run(subject, x, widest(subject, x)), x)


@check("gradient-passes-the-skip-path", roles=("encoder_layer",), needs=("encoder_layer.vjp",), examples=0)
def skip_gradient(impl: Any, draw: Draw) -> Evidence:
    """With silent sublayers the gradient of the input is the gradient of the output."""
    config = {"d_model": 4, "n_heads": 2, "d_ff": 2, "norm_first": True}
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    subject.load(silenced(p, "self_attn", "feed_forward"))
    x, cotangent = draw.normal("x", (1, 2, 4)), draw.normal("cotangent", (1, 2, 4))
    mask = widest(subject, x)
    of_inputs, _ = subject.vjp({"x": x, **({} if mask is None else {"mask": mask})}, cotangent)
    return close("gradient of x", of_inputs["x"], cotangent, max(tolerance(subject.dtype, 8, 4.0), DIFFERENCES))


@check("encoder-layer-obeys-its-mask", roles=("encoder_layer",))
def encoder_layer_mask(impl: Any, draw: Draw) -> Evidence:
    """With a causal mask the first tokens come out as if the huge ones after them were not there."""
    places = (True, False) if draw.bool("norm_first") else (False, True)
    config = offered(impl, "encoder_layer", sizes(draw), norm_first=places)
    subject, _ = loaded(impl, draw, "encoder_layer", **config)
    x = tokens(draw, config["d_model"])
    t = x.shape[1]
    cut = draw.int("cut", 1, t - 1, 2) if t > 2 else 1
    alone = subject(x=x[:, :cut], mask=causal_mask(cut)[None, None])["out"]
    got = subject(x=huge_from(x, cut), mask=causal_mask(t)[None, None])["out"][:, :cut]
    return close("the tokens before the cut", got, alone, layer_bound(subject, config, alone))


@check("encoder-layer-sees-the-whole-input", roles=("encoder_layer",))
def encoder_layer_sees_all(impl: Any, draw: Draw) -> Evidence:
    """Without a mask every output token depends on every input token, before and after it."""
    config = either_norm(impl, draw, "encoder_layer")
    subject, _ = loaded(impl, draw, "encoder_layer", **config)
    x = tokens(draw, config["d_model"])
    before = subject(x=x)["out"]
    influence = np.empty((x.shape[1], x.shape[1]))
    for j in range(x.shape[1]):
        changed = x.copy()
        changed[:, j] = -2.0 * x[:, j]
        influence[:, j] = np.abs(subject(x=changed)["out"] - before).max((0, 2))
    return true("smallest influence of a token on a token", influence.min() > 1e-6, got=float(influence.min()))


@check("layer-dropout-falls-on-sublayer-outputs", roles=("encoder_layer",), examples=2)
def layer_dropout(impl: Any, draw: Draw) -> Evidence:
    """In training a share p^2 of the entries has both sublayers dropped and equals x; x itself is never dropped."""
    p = draw.choice("p", (0.5, 0.7), pin=0.5)
    config = {"d_model": 12, "n_heads": 3, "d_ff": 7, "norm_first": True, "dropout": p}
    subject, _ = loaded(impl, draw, "encoder_layer", **config)
    x = draw.normal("x", (8, 20, 12)).astype(subject.dtype)
    mask = widest(subject, x)
    subject.train(True)
    out = run(subject, x, mask)
    share, deviation = float((out == x).mean()), (p**2 * (1 - p**2) / x.size) ** 0.5
    if share == 0 and np.all(out != 0.0) and not np.array_equal(run(subject, x, mask), out):
        return note("dropout falls inside a sublayer, not on its output", "in training no entry equals x")
    return all_of(
        true("no entry of x is dropped", np.all(out != 0.0)).saying(  # first: what is dropped so is scaled, too
            diagnosis="The sum of input and sublayer is dropped: the residual path loses entries."
        ),
        close("share of entries that equal x", share, p**2, 6 * deviation, "six standard deviations").saying(
            diagnosis=_dropped_otherwise(share, p, 10 * deviation)
        ),
    )


def _dropped_otherwise(share: float, p: float, bound: float) -> str:
    """What the share of entries in which both sublayers are dropped tells; "" where it is none of these."""
    twice = 1 - (1 - p) ** 2
    told = {
        p * twice: "One sublayer's output is dropped twice, inside the sublayer and by the layer.",
        twice**2: "The outputs of both sublayers are dropped twice, inside the sublayers and by the layer.",
        0.0: "The output of one sublayer is not dropped.",
    }
    return next((sentence for expected, sentence in told.items() if abs(share - expected) < bound), "")


@check("post-norm-layer-drops-both-sublayers", roles=("encoder_layer",), examples=0)
def post_norm_dropout(impl: Any, draw: Draw) -> Evidence:
    """Where one sublayer returns a constant and the other nothing, passes in training differ by what was dropped."""
    config = {"d_model": 12, "n_heads": 3, "d_ff": 7, "dropout": 0.5}
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    x, pieces = draw.normal("x", (4, 5, 12)), []
    mask = widest(subject, x)
    for constant, last in (("self_attn", "out_proj"), ("feed_forward", "linear2")):
        silent = silenced(p, "self_attn", "feed_forward")
        subject.load({**silent, f"{constant}.{last}.bias": np.full(12, 2.0)})
        subject.train(True)
        difference = float(np.abs(run(subject, x, mask) - run(subject, x, mask)).max())
        subject.train(False)
        pieces.append(true(f"passes differ by the dropped {constant}", difference > 1e-2, got=difference))
    return all_of(*pieces)


@check("layer-in-evaluation-drops-nothing", roles=("encoder_layer",), examples=2)
def layer_evaluation(impl: Any, draw: Draw) -> Evidence:
    """In evaluation, after training too, a layer with dropout computes what it does when it is built without."""
    config = either_norm(impl, draw, "encoder_layer", dropout=0.4)
    subject, p = loaded(impl, draw, "encoder_layer", **config)
    x = tokens(draw, config["d_model"])
    mask = widest(subject, x)
    subject.train(True)
    run(subject, x, mask)
    subject.train(False)
    plain = impl.build("encoder_layer", {**config, "dropout": 0.0})
    plain.load(p)
    expected = run(plain, x, mask)
    return close("the layer's output", run(subject, x, mask), expected, layer_bound(subject, config, expected))


# --- order ----------------------------------------------------------------------------------------


def _order(draw: Draw, n: int) -> Array:
    """A permutation without fixed points: a rotation."""
    return np.roll(np.arange(n), draw.int("rotation", 1, n - 1, 2) if n > 2 else 1)


@check("attention-weights-move-with-the-tokens", roles=("attention",), needs=("attention.weights",))
def weights_move(impl: Any, draw: Draw) -> Evidence:
    """Weights depend on dot products alone, not on indices: permuted queries and keys permute rows and columns."""
    b, h, t, d = draw.int("B", 1, 2, 2), draw.int("H", 1, 3, 3), draw.int("T", 2, 6, 5), draw.int("d_k", 1, 6, 4)
    query, key, value = (draw.normal(name, (b, h, t, d)) for name in ("query", "key", "value"))
    order = _order(draw, t)
    subject = impl.build("attention", {})
    weights = subject(query=query, key=key, value=value)["weights"]
    moved = subject(query=query[..., order, :], key=key[..., order, :], value=value[..., order, :])["weights"]
    bound = tolerance(subject.dtype, d, float(np.abs(query @ key.swapaxes(-1, -2)).max()))
    return close("weights of the permuted tokens", moved, weights[..., order, :][..., order], bound)


@check("unmasked-attention-is-permutation-equivariant", roles=("encoder_layer",))
def equivariance(impl: Any, draw: Draw) -> Evidence:
    """Permuted tokens come out permuted, with the same vectors and the same mean: equivariant, not invariant."""
    config = either_norm(impl, draw, "encoder_layer")
    subject, _ = loaded(impl, draw, "encoder_layer", **config)
    x = tokens(draw, config["d_model"])
    order = _order(draw, x.shape[1])
    out, permuted = subject(x=x)["out"], subject(x=x[:, order])["out"]
    bound = layer_bound(subject, config, out)
    return all_of(
        close("output of the permuted tokens", permuted, out[:, order], bound),
        close("mean over the tokens", permuted.mean(1), out.mean(1), bound),
        true("the outputs are not unchanged", np.abs(permuted - out).max() > 1e-3),
    )


@check("only-attention-mixes-positions", roles=("encoder",))
def only_attention_mixes(impl: Any, draw: Draw) -> Evidence:
    """No recurrence, no convolution: where each token may attend to itself only, huge other tokens change nothing."""
    config = {**stack_sizes(draw), "final_norm": True}
    subject, _ = loaded(impl, draw, "encoder", **config)
    x = tokens(draw, config["d_model"])
    t = x.shape[1]
    at = draw.int("position", 0, t - 1, 1)
    poisoned = POISON * (1.0 + np.abs(x))
    poisoned[:, at] = x[:, at]
    got = subject(x=poisoned, mask=np.eye(t, dtype=bool)[None, None])["out"][:, at]
    alone = subject(x=x[:, at : at + 1], mask=np.ones((1, 1, 1, 1), bool))["out"][:, 0]
    return close("the token among huge ones", got, alone, layer_bound(subject, config, alone))


@check("causal-mask-shows-the-order", roles=("encoder",))
def causal_order(impl: Any, draw: Draw) -> Evidence:
    """In two layers with a causal mask the last token's output depends on the order of those before it."""
    config = {**sizes(draw), "n_layers": 2, "final_norm": True}
    subject, _ = loaded(impl, draw, "encoder", **config)
    x = tokens(draw, config["d_model"], low=4)
    mask = causal_mask(x.shape[1])[None, None]
    order = np.append(_order(draw, x.shape[1] - 1), x.shape[1] - 1)
    shift = np.abs(subject(x=x[:, order], mask=mask)["out"][:, -1] - subject(x=x, mask=mask)["out"][:, -1]).max()
    return true("change of the last output", shift > 1e-5, got=float(shift))


@check("position-codes-make-the-order-visible", roles=("sinusoidal_positions", "encoder_layer"))
def codes_show_order(impl: Any, draw: Draw) -> Evidence:
    """With position codes added, permuted tokens do not come out merely permuted."""
    config = either_norm(impl, draw, "encoder_layer")
    width = config["d_model"]
    layer, _ = loaded(impl, draw, "encoder_layer", **config)
    positions = impl.build("sinusoidal_positions", {"d_model": width + width % 2, "max_len": 16})
    x = tokens(draw, width)
    order = _order(draw, x.shape[1])
    code = positions(x=np.zeros((len(x), x.shape[1], width + width % 2)))["out"][..., :width]
    mask = widest(layer, x)
    out, permuted = run(layer, x + code, mask), run(layer, x[:, order] + code, mask)
    change = float(np.abs(permuted - out[:, order]).max())
    return true("change beyond the permutation", change > 1e-3, got=change)


# --- the decoder layer ----------------------------------------------------------------------------


def _decoder_inputs(draw: Draw, width: int) -> dict[str, Array]:
    """Target and source of different lengths, the first causally masked, the second with hidden tokens."""
    x = tokens(draw, width, "target")
    memory = draw.normal("memory", (len(x), draw.int("T of source", 2, 7, 4), width))
    return {
        "x": x,
        "memory": memory,
        "mask": causal_mask(x.shape[1])[None, None],
        "memory_mask": draw.mask("memory_mask", (len(x), 1, 1, memory.shape[1])),
    }


def _decoder_layer_formula(impl: Any, draw: Draw, norm_first: bool) -> Evidence:
    config = {**sizes(draw), "norm_first": norm_first}
    subject, p = loaded(impl, draw, "decoder_layer", **config)
    inputs = _decoder_inputs(draw, config["d_model"])
    expected = formulas(config, subject).decoder_layer(p, **inputs)
    return close("the layer's output", subject(**inputs)["out"], expected, layer_bound(subject, config, expected))


@check("decoder-layer-formula", roles=("decoder_layer",))
def decoder_layer(impl: Any, draw: Draw) -> Evidence:
    """a = LN1(x + MaskedMHA(x)), b = LN2(a + MHA(q=a, kv=memory)), out = LN3(b + FFN(b))."""
    return _decoder_layer_formula(impl, draw, norm_first=False)


@check("pre-norm-decoder-layer-formula", roles=("decoder_layer",))
def pre_norm_decoder_layer(impl: Any, draw: Draw) -> Evidence:
    """a = x + MaskedMHA(LN1(x)), b = a + MHA(q=LN2(a), kv=memory), out = b + FFN(LN3(b)); memory is not normed."""
    return _decoder_layer_formula(impl, draw, norm_first=True)


@check("decoder-layer-hides-the-future", roles=("decoder_layer",))
def decoder_layer_causal(impl: Any, draw: Draw) -> Evidence:
    """With the causal mask the first target tokens come out as if the huge ones after them were not there."""
    config = either_norm(impl, draw, "decoder_layer")
    subject, _ = loaded(impl, draw, "decoder_layer", **config)
    inputs = _decoder_inputs(draw, config["d_model"])
    del inputs["memory_mask"]  # the source may be seen whole: a layer that takes no such mask has a future, too
    x = inputs["x"]
    cut = 1 if x.shape[1] == 2 else 2
    short = {**inputs, "x": x[:, :cut], "mask": causal_mask(cut)[None, None]}
    alone = subject(**short)["out"]
    got = subject(**{**inputs, "x": huge_from(x, cut)})["out"][:, :cut]
    return close("the tokens before the cut", got, alone, layer_bound(subject, config, alone))


@check("cross-attention-hides-masked-source-tokens", roles=("decoder_layer",))
def cross_attention_mask(impl: Any, draw: Draw) -> Evidence:
    """Source tokens that the memory mask hides may be enormous: they change nothing."""
    config = either_norm(impl, draw, "decoder_layer")
    subject, _ = loaded(impl, draw, "decoder_layer", **config)
    inputs = _decoder_inputs(draw, config["d_model"])
    hidden = ~inputs["memory_mask"][:, 0, 0]
    draw.bites(hidden.any(), "a source token is hidden")
    poisoned = np.where(hidden[..., None], POISON, inputs["memory"])
    got, expected = subject(**{**inputs, "memory": poisoned})["out"], subject(**inputs)["out"]
    return close("output with huge hidden source tokens", got, expected, layer_bound(subject, config, expected))


@check("every-target-token-sees-the-whole-source", roles=("decoder_layer",))
def cross_attention_sees_all(impl: Any, draw: Draw) -> Evidence:
    """Cross-attention has no causal mask: each target token, the first too, depends on each source token."""
    config = either_norm(impl, draw, "decoder_layer")
    subject, _ = loaded(impl, draw, "decoder_layer", **config)
    inputs = _decoder_inputs(draw, config["d_model"])
    del inputs["memory_mask"]
    before, memory = subject(**inputs)["out"], inputs["memory"]
    influence = []
    for j in range(memory.shape[1]):
        changed = memory.copy()
        changed[:, j] = -2.0 * memory[:, j]
        influence.append(np.abs(subject(**{**inputs, "memory": changed})["out"] - before).max((0, 2)).min())
    return true("smallest influence of a source token", min(influence) > 1e-6, got=float(min(influence)))


@check("gradient-reaches-every-source-token", roles=("decoder_layer",), needs=("decoder_layer.vjp",), examples=0)
def memory_gradient(impl: Any, draw: Draw) -> Evidence:
    """Cross-attention connects the decoder with the encoder: the loss has a gradient at every source token."""
    config = offered(impl, "decoder_layer", {"d_model": 4, "n_heads": 1, "d_ff": 2}, norm_first=(False, True))
    subject, _ = loaded(impl, draw, "decoder_layer", **config)
    inputs = {"x": draw.normal("x", (1, 2, 4)), "memory": draw.normal("memory", (1, 4, 4))}
    of_inputs, _ = subject.vjp(inputs, draw.normal("cotangent", (1, 2, 4)))
    smallest = np.abs(of_inputs["memory"]).max(-1).min()
    return true("smallest gradient of a source token", smallest > 1e-5, got=float(smallest))


# --- stacks ---------------------------------------------------------------------------------------


@check("encoder-applies-its-layers-in-order", roles=("encoder",))
def encoder_stack(impl: Any, draw: Draw) -> Evidence:
    """N layers of one structure, each with parameters of its own, one after the other, then the final norm."""
    config = {**stack_sizes(draw), "norm_first": draw.bool("norm_first"), "final_norm": True}
    subject, p = loaded(impl, draw, "encoder", **config)
    x = tokens(draw, config["d_model"])
    mask = draw.mask("mask", (len(x), 1, 1, x.shape[1]))
    expected = formulas(config, subject).encoder(p, x, mask)
    return close("the stack's output", subject(x=x, mask=mask)["out"], expected, layer_bound(subject, config, expected))


@check("decoder-gives-every-layer-the-memory", roles=("decoder",))
def decoder_stack(impl: Any, draw: Draw) -> Evidence:
    """N layers in order, the cross-attention of each on the encoder's one final output, then the final norm."""
    config = {
        **stack_sizes(draw),
        "norm_first": draw.bool("norm_first"),
        "final_norm": draw.bool("final_norm", pin=True),
    }
    subject, p = loaded(impl, draw, "decoder", **config)
    inputs = _decoder_inputs(draw, config["d_model"])
    expected = formulas(config, subject).decoder(p, **inputs)
    return close("the stack's output", subject(**inputs)["out"], expected, layer_bound(subject, config, expected))


@check("layers-have-parameters-of-their-own", roles=("encoder", "decoder"), examples=2)
def layers_distinct(impl: Any, draw: Draw) -> Evidence:
    """Layers share nothing: loaded with different parameters, each still holds its own."""
    config = {**sizes(draw), "n_layers": draw.int("n_layers", 2, 3, 3)}
    pieces = []
    for role in ("encoder", "decoder"):
        subject, loaded_params = loaded(impl, draw, role, **config)
        held = subject.params()
        for name, value in loaded_params.items():
            pieces.append(same(f"{role}: {name}", held.get(name), value.astype(subject.dtype)))
    return all_of(*pieces)


@check("deep-pre-norm-stack-keeps-its-input", roles=("encoder",), examples=0)
def deep_identity(impl: Any, draw: Draw) -> Evidence:
    """Twelve pre-norm layers with silent sublayers and no final norm are the identity, bit for bit."""
    config = {"d_model": 4, "n_heads": 2, "d_ff": 3, "n_layers": 12, "norm_first": True, "final_norm": False}
    subject, p = loaded(impl, draw, "encoder", **config)
    subject.load(silenced(p, "self_attn", "feed_forward"))
    x = draw.normal("x", (2, 3, 4)).astype(subject.dtype)
    return same("out", subject(x=x)["out"], x)


@check("final-norm-of-a-post-norm-stack-changes-little", roles=("encoder",), examples=2)
def final_norm_is_mild(impl: Any, draw: Draw) -> Evidence:
    """At the start (gain 1, shift 0) the rows are normalised already: the final norm is the identity up to eps."""
    config = {**stack_sizes(draw), "final_norm": True}
    subject = impl.build("encoder", config)
    plain = impl.build("encoder", {**config, "final_norm": False})
    start = subject.params()
    plain.load({name: a for name, a in start.items() if name not in ("norm.weight", "norm.bias")})
    x = 10.0 * tokens(draw, config["d_model"])
    expected = plain(x=x)["out"]
    return close(
        "with the final norm", subject(x=x)["out"], expected, 1e-2, "two norms: eps against variances above 1e-3"
    )


@check("pre-norm-output-needs-a-final-norm", roles=("encoder",), examples=2)
def pre_norm_output_grows(impl: Any, draw: Draw) -> Evidence:
    """A pre-norm stack returns the bare residual, whose tokens are normalised only by a final norm."""
    config = {**stack_sizes(draw), "norm_first": True}
    width = config["d_model"]
    plain, _ = loaded(impl, draw, "encoder", **config, final_norm=False)
    normed, p = loaded(impl, draw, "encoder", **config, final_norm=True)
    normed.load({**p, "norm.weight": np.ones(width), "norm.bias": np.zeros(width)})
    x = 5.0 * tokens(draw, width) + 3.0
    means, bare = normed(x=x)["out"].mean(-1), plain(x=x)["out"].mean(-1)
    return all_of(
        close("means with the final norm", means, np.zeros_like(means), tolerance(normed.dtype, width, 4.0)),
        true("means without it are far from 0", np.abs(bare).max() > 0.1, got=float(np.abs(bare).max())),
    )

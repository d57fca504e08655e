"""Verifications about residuals, depth and the order of sublayers; witnesses of the errata about layers."""

from __future__ import annotations

import numpy as np

from conformance.adapters.reference import ReferenceImplementation
from conformance.draw import Draw, Pinned
from conformance.evidence import Evidence, all_of, close, true
from conformance.protocol import ROLES, Array
from conformance.reference.attention import causal_mask, scaled_scores
from conformance.reference.layers import Layers, part
from conformance.reference.norms import layer_norm
from conformance.verifications.base import erratum, verify

CONFIG = {"d_model": 6, "n_heads": 3, "d_ff": 7}


def random_layer(role: str, **config: object) -> tuple[dict[str, Array], Draw]:
    """Random parameters of a small layer or stack."""
    draw = Draw(Pinned())
    return draw.params(ROLES[role].params(ROLES[role].settings({**CONFIG, **config}))), draw


@verify("post-norm-output-is-normalised")
def norm_below_the_block() -> Evidence:
    """Read as drawn, the last block has no norm after it: y = x' + FFN(x') has a mean other than 0."""
    p, draw = random_layer("encoder_layer")
    p = {**p, "norm2.weight": np.ones(6), "norm2.bias": np.zeros(6)}
    x, steps = draw.normal("x", (2, 5, 6)), Layers(3)
    normed = steps.norm(part(p, "norm2"), x)
    drawn = normed + steps.feed_forward(part(p, "feed_forward"), normed)
    out = steps.encoder_layer(p, x)
    return erratum(
        "mean of a token after the top block as drawn",
        0.0 * drawn.mean(-1),
        drawn.mean(-1),
        close("mean of a token after Add & Norm", out.mean(-1), np.zeros((2, 5)), 1e-12),
        close("variance", out.var(-1), np.ones((2, 5)), 1e-3, "eps against the variance"),
        by=0.1,
    )


@verify("unmasked-attention-is-permutation-equivariant")
def outputs_move_with_the_tokens() -> Evidence:
    """f(PX) = P f(X) and not f(X); with a causal mask not even that."""
    p, draw = random_layer("encoder_layer")
    x, order, steps = draw.normal("x", (1, 5, 6)), np.array([2, 0, 4, 1, 3]), Layers(3)
    out, permuted, mask = steps.encoder_layer(p, x), steps.encoder_layer(p, x[:, order]), causal_mask(5)
    masked = steps.encoder_layer(p, x[:, order], mask) - steps.encoder_layer(p, x, mask)[:, order]
    return erratum(
        "the output of the shuffled words",
        out,
        permuted,
        close("the permuted output", permuted, out[:, order], 1e-12),
        close("the mean over the words", permuted.mean(1), out.mean(1), 1e-12),
        true("a causal mask breaks the symmetry", np.abs(masked).max() > 0.1),
        by=0.1,
    )


@verify("causal-mask-shows-the-order")
def causal_models_tell_orders_apart() -> Evidence:
    """The last output after two causal layers changes with the order of the words before; after one unmasked, not."""
    p, draw = random_layer("encoder", n_layers=2)
    x, order = draw.normal("x", (1, 5, 6)), np.array([2, 0, 3, 1, 4])
    steps, mask = Layers(3), causal_mask(5)
    causal = [steps.encoder(p, rows, mask)[:, -1] for rows in (x, x[:, order])]
    unmasked = [steps.encoder(p, rows)[:, -1] for rows in (x, x[:, order])]
    return erratum(
        "the last output of two causal layers",
        causal[0],
        causal[1],
        close("without a mask", unmasked[1], unmasked[0], 1e-12),
        by=1e-3,
    )


@verify("attention-scores-stay-when-shuffled")
def scores_move_with_the_tokens() -> Evidence:
    """X = [[1, 0], [0, 2]] has the scores [[1, 0], [0, 4]], over sqrt(2); with its rows exchanged [[4, 0], [0, 1]]."""
    x, order = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([1, 0])
    scores, shuffled = scaled_scores(x, x), scaled_scores(x[order], x[order])
    return erratum(
        "the scores of the shuffled words",
        scores,
        shuffled,
        close("rows and columns exchanged", shuffled, scores[order][:, order], 0.0, "exact"),
        by=1.0,
    )


@verify("feed-forward-follows-attention-directly")
def cross_attention_stands_between() -> Evidence:
    """A decoder layer has two attentions and one network; moving it between them changes the output."""
    p, draw = random_layer("decoder_layer")
    x, memory, steps = draw.normal("x", (1, 4, 6)), draw.normal("memory", (1, 5, 6)), Layers(3)
    attentions = {name.split(".")[0] for name in p if "_attn" in name}
    a = steps.residual(part(p, "norm1"), x, lambda y: steps.attention(part(p, "self_attn"), y, y, None))
    b = steps.residual(part(p, "norm3"), a, lambda y: steps.feed_forward(part(p, "feed_forward"), y))
    direct = steps.residual(part(p, "norm2"), b, lambda y: steps.attention(part(p, "cross_attn"), y, memory, None))
    return erratum(
        "the output with the network directly after the first attention",
        direct,
        steps.decoder_layer(p, x, memory),
        true("attentions of a decoder layer", attentions == {"self_attn", "cross_attn"}, got=sorted(attentions)),
        by=1e-2,
    )


@verify("decoder-feed-forward-is-the-encoders")
def networks_are_separate() -> Evidence:
    """Changing the decoder's first matrix leaves the encoder's output as it was and changes the logits."""
    config = {"src_vocab": 7, "tgt_vocab": 8, "n_layers": 1, **CONFIG}
    model = ReferenceImplementation().build("encoder_decoder", config)
    before = {"src": np.array([[1, 2, 3]]), "tgt": np.array([[4, 5]])}
    params = model.params()
    networks = [
        {name: a.shape for name, a in part(params, f"{side}.layers.0.feed_forward").items()}
        for side in ("encoder", "decoder")
    ]
    logits = model(**before)["out"]
    model.load({**params, "decoder.layers.0.feed_forward.linear1.weight": np.ones((7, 6))})
    encoder = "encoder.layers.0.feed_forward.linear1.weight"
    return all_of(
        true("the same shapes", networks[0] == networks[1]),
        close("the encoder's matrix after a change of the decoder's", model.params()[encoder], params[encoder], 0.0),
        true("the logits change", np.abs(model(**before)["out"] - logits).max() > 1e-3),
    )


# --- depth ----------------------------------------------------------------------------------------


def gradient_size(depth: int, gain: float, skip: bool, width: int = 64) -> float:
    """Root mean square of the input gradient of a stack of tanh layers, random unit gradient at its end."""
    rng = np.random.default_rng(0)
    x, slopes = rng.standard_normal(width), []
    for _ in range(depth):
        weight = rng.standard_normal((width, width)) * gain / width**0.5
        inner = np.tanh(weight @ x)
        slopes.append((1 - inner**2)[:, None] * weight + (np.eye(width) if skip else 0.0))
        x = inner + x if skip else inner
    gradient = rng.standard_normal(width)
    for slope in reversed(slopes):
        gradient = slope.T @ gradient
    return float(np.sqrt((gradient**2).mean()))


def spread(depth: int, norm: bool, width: int = 64) -> float:
    """Standard deviation after `depth` residual blocks of two ReLU layers, each followed by LayerNorm if `norm`."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(width)
    for _ in range(depth):
        first = rng.standard_normal((4 * width, width)) * (2 / width) ** 0.5
        second = rng.standard_normal((width, 4 * width)) * (1 / (4 * width)) ** 0.5
        x = x + second @ np.maximum(first @ x, 0.0)
        x = layer_norm(x) if norm else x
    return float(x.std())


@verify("deep-plain-stacks-vanish-or-explode")
def depth_without_skips() -> Evidence:
    """50 tanh layers with weights of gain 0.8 shrink the gradient below a thousandth, of gain 3 blow it up."""
    small = gradient_size(50, 0.8, False) / gradient_size(1, 0.8, False)
    large = gradient_size(50, 3.0, False) / gradient_size(1, 3.0, False)
    return all_of(
        true("gain 0.8: ratio of 50 layers to 1 below 1e-3", small < 1e-3, got=small),
        true("gain 3: ratio of 50 layers to 1 above 1e3", large > 1e3, got=large),
    )


@verify("residuals-make-deep-networks-trainable")
def depth_with_skips() -> Evidence:
    """At 50 layers the gradient with skip connections is more than a thousand times that without."""
    ratio = gradient_size(50, 0.8, True) / gradient_size(50, 0.8, False)
    return true("gradient with skips over without", ratio > 1e3, got=ratio)


@verify("residuals-solve-vanishing-and-exploding")
def skips_explode() -> Evidence:
    """With bare skips the gradient does not vanish, but values grow with depth; normalised they stay at 1."""
    return all_of(
        true("gradient at 50 layers does not vanish", gradient_size(50, 0.8, True) > 1e-2),
        true("values of 24 residual blocks explode", spread(24, False) > 1e2, got=spread(24, False)),
        close("with LayerNorm", spread(24, True), 1.0, 1e-3, "eps against the variance"),
    )


@verify("unnormalised-activations-drift")
def values_drift() -> Evidence:
    """The spread after 2, 6, 12 and 24 residual blocks grows at every depth; with LayerNorm it is 1 at each."""
    bare = [spread(depth, False) for depth in (2, 6, 12, 24)]
    return all_of(
        true(
            "spread without norm", bare[0] < bare[1] / 2 and bare[1] < bare[2] / 2 and bare[2] < bare[3] / 2, got=bare
        ),
        close("with LayerNorm", [spread(depth, True) for depth in (2, 6, 12, 24)], np.ones(4), 1e-3),
    )


@verify("summary-of-residual-and-norm")
def product_of_one_plus_slope() -> Evidence:
    """Three tanh blocks: the derivative is the product of 1 + f', 3.143, not the sum, 3.084."""
    x, weights = 0.7, (0.5, -1.5, 2.0)
    slopes = []
    for w in weights:
        slopes.append(w * (1 - np.tanh(w * x) ** 2))
        x = x + np.tanh(w * x)
    step = 1e-6

    def chain(start: float) -> float:
        for w in weights:
            start = start + float(np.tanh(w * start))
        return start

    derivative = (chain(0.7 + step) - chain(0.7 - step)) / (2 * step)
    return erratum(
        "the sum 1 + f1' + f2' + f3'",
        1 + sum(slopes),
        derivative,
        close(
            "the product of 1 + f'", float(np.prod([1 + s for s in slopes])), derivative, 1e-7, "a difference quotient"
        ),
        by=0.05,
    )

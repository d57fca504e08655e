"""Verifications about the two models: witnesses of the errata about their masks, inputs and outputs."""

from __future__ import annotations

import numpy as np

from conformance.adapters.reference import ReferenceImplementation
from conformance.evidence import Evidence, all_of, close, true
from conformance.protocol import Array, Subject
from conformance.reference.attention import causal_mask
from conformance.reference.models import EncoderDecoder
from conformance.verifications.base import erratum, verify

CONFIG = {"src_vocab": 7, "tgt_vocab": 9, "d_model": 8, "n_heads": 2, "n_layers": 2, "d_ff": 5}
SOURCE, TARGET = np.array([[3, 1, 4, 1, 5]]), np.array([[2, 7, 1, 8]])


def small_model() -> Subject:
    """The full model at its start, a few tokens wide."""
    return ReferenceImplementation().build("encoder_decoder", CONFIG)


def logits(model: Subject, src: Array = SOURCE, tgt: Array = TARGET) -> Array:
    return model(src=src, tgt=tgt)["out"]


@verify("forward-ends-with-softmax")
def forward_returns_logits() -> Evidence:
    """Rows of the output do not sum to 1, and a shift of the head's bias shifts them: they are logits."""
    model = small_model()
    out, p = logits(model), model.params()
    model.load({**p, "output_proj.bias": p["output_proj.bias"] + 1.0})
    return erratum(
        "sum of an output row",
        np.ones((1, 4)),
        out.sum(-1),
        close("shift by the bias", logits(model) - out, np.ones_like(out), 1e-12),
        by=1e-2,
    )


@verify("decoder-position-sees-only-earlier-ones")
def first_position_sees_the_source() -> Evidence:
    """Another last source token changes the first target position; another last target token does not."""
    model = small_model()
    before = logits(model)
    by_source = logits(model, src=np.array([[3, 1, 4, 1, 6]]))
    by_target = logits(model, tgt=np.array([[2, 7, 1, 3]]))
    return erratum(
        "first position after a change of the last source token",
        before[:, 0],
        by_source[:, 0],
        close("after a change of the last target token", by_target[:, :3], before[:, :3], 1e-12),
        by=1e-6,
    )


@verify("decoder-reads-the-top-of-the-encoder")
def memory_is_the_last_output() -> Evidence:
    """The logits follow from the encoder's final output, and a change of its last layer changes them."""
    model = small_model()
    before, p = logits(model), model.params()
    steps = EncoderDecoder(CONFIG["n_heads"])
    memory, mask = steps.encode(p, SOURCE), steps.source_mask(SOURCE)
    name = "encoder.layers.1.feed_forward.linear2.weight"
    model.load({**p, name: p[name][::-1]})
    return erratum(
        "logits after a change of the last encoder layer",
        before,
        logits(model),
        close(
            "head of the decoder on the encoder's output",
            steps.head(p, steps.decode(p, TARGET, memory, mask)),
            before,
            0.0,
        ),
        by=1e-6,
    )


@verify("target-mask-is-causal-only")
def target_mask_hides_padding() -> Evidence:
    """15 target tokens with 3 pads at the end: the causal mask shows 120 cells, the model's 114."""
    tgt = np.array([[1] * 12 + [0] * 3])
    mask = EncoderDecoder(1).target_mask(tgt)
    interior = EncoderDecoder(1).target_mask(np.array([[1, 0, 5]]))[0, 0]
    return erratum(
        "visible cells",
        causal_mask(15).sum(),
        mask.sum(),
        close("visible cells", int(mask.sum()), 114, 0.0, "exact"),
        close("tokens 1, 0, 5", interior.astype(int), np.array([[1, 0, 0], [1, 0, 0], [1, 0, 1]]), 0.0, "exact"),
    )


@verify("decoder-receives-the-target-it-predicts")
def unshifted_target_leaks() -> Evidence:
    """The logits that are to predict a token change with it if the target is fed unshifted, and not if shifted."""
    model = small_model()
    bos, first, second = np.array([[2, 7, 1, 8]]), np.array([[7, 1, 8, 3]]), np.array([[7, 1, 8, 4]])
    unshifted = [logits(model, tgt=target)[:, -1] for target in (first, second)]
    shifted = [logits(model, tgt=np.concatenate([bos[:, :1], target[:, :-1]], axis=1)) for target in (first, second)]
    return all_of(
        true("unshifted: the prediction sees its answer", np.abs(unshifted[0] - unshifted[1]).max() > 1e-6),
        close("shifted by one: it does not", shifted[1], shifted[0], 0.0, "exact"),
    )

"""From token ids to logits and back: padding, shifting, position tables, the output layer, decoding, training modes."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference.attention import attention, causal_mask, padding_mask, scaled_scores, softmax
from conformance.reference.decoding import beam_search, greedy_decode, sampling_probabilities, shift
from conformance.reference.layers import Layers
from conformance.reference.norms import layer_norm
from conformance.reference.positions import rope, sinusoid
from conformance.reference.training import cross_entropy, optimize, warmup_rate
from conformance.verifications.base import erratum, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 16, 4)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# --- batches ------------------------------------------------------------------------------------------


def padded(sentences: list[list[int]]) -> Array:
    """Sentences of one batch, filled with 0 to the length of the longest."""
    longest = max(map(len, sentences))
    return np.array([s + [0] * (longest - len(s)) for s in sentences])


@verify("a-batch-is-padded-to-its-longest-sentence")
def batch() -> Evidence:
    ids = padded([[4, 5, 6], [7, 8, 9, 3, 2], [5, 2]])
    return all_of(
        same("lengths 3, 5, 2", ids.shape, (3, 5)),
        same("the padded entries are zeros, after the end", ids[[0, 2], [3, 2]], [0, 0]),
        same("and no token is one", (ids != 0).sum(-1), [3, 5, 2]),
    )


@verify("the-source-mask-marks-real-tokens-for-every-query")
def source_mask() -> Evidence:
    ids = np.where(np.arange(20) < 15, 7, 0)[None].repeat(4, axis=0)
    mask = padding_mask(ids)[:, None, None]
    return all_of(
        same("shape", mask.shape, (4, 1, 1, 20)),
        same("5 of 20 padded: visible keys", mask.sum(-1).ravel(), [15] * 4),
    )


@verify("left-padded-targets-leave-rows-without-keys")
def left_padding() -> Evidence:
    def rows(ids: list[int]) -> Array:
        return (causal_mask(len(ids)) & padding_mask(np.array([ids]))[0]).any(-1)

    return all_of(
        same("padding on the left: rows that see a key", rows([0, 0, 5, 6, 7]), [False, False, True, True, True]),
        true("padding on the right: all do", rows([5, 6, 7, 0, 0]).all()),
    )


@verify("one-shift-gives-inputs-and-labels-of-all-positions")
def flattened() -> Evidence:
    inputs, labels = shift(np.random.default_rng(0).integers(3, 1000, (16, 22)))
    logits = np.zeros((*inputs.shape, 10))
    return all_of(
        same("targets (16, 22): inputs and labels", [inputs.shape, labels.shape], [(16, 21)] * 2),
        same("flattened for the loss", [*logits.reshape(-1, 10).shape, *labels.reshape(-1).shape], [336, 10, 336]),
    )


@verify("training-needs-one-pass-of-the-decoder")
def one_pass() -> Evidence:
    words, passes = normal(6, 8), []

    def decode(first: int, last: int) -> Array:
        """The outputs of positions first to last, in one pass over the words up to there."""
        passes.append(last - first)
        return attention(words[first:last], words[:last], words[:last], causal_mask(last)[first:])[0]

    by_step = np.concatenate([decode(t, t + 1) for t in range(6)])
    token_by_token = len(passes)
    parallel = decode(0, 6)
    right = close("one masked pass gives what 6 steps give", parallel, by_step, ROUNDING)
    return erratum("passes for 6 training positions", token_by_token, len(passes) - token_by_token, right)


@verify("masked-language-models-do-not-shift")
def no_shift() -> Evidence:
    sentence, chosen = np.array([[1, 5, 6, 7, 2]]), np.array([[False, True, False, True, False]])
    inputs, labels = shift(sentence)
    masked = np.where(chosen, 99, sentence)
    right = all_of(
        same("labels stand where their words stood", sentence[chosen], [5, 7]),
        same("both neighbours of a masked word stay visible", masked[0, [0, 2]], [1, 6]),
        same("a shifted target is the next word", labels[:, :-1], inputs[:, 1:]),
    )
    return erratum("the label at the place of word 5 is the next word", labels[0, 1], sentence[0, 1], right)


# --- positions --------------------------------------------------------------------------------------------


@verify("a-position-table-ends")
def table_ends() -> Evidence:
    def fits(table: int, length: int) -> bool:
        codes = sinusoid(np.arange(table), 8)[:length]
        try:
            np.add(np.zeros((2, length, 8)), codes)
        except ValueError:
            return False
        return True

    return same(
        "128 rows for 128 and 129 tokens, 4096 for 4097",
        [fits(128, 128), fits(128, 129), fits(4096, 4097)],
        [True, False, False],
    )


@verify("a-batch-first-input-passes-an-unread-length")
def unread_length() -> Evidence:
    table = sinusoid(np.arange(10), 8)[:, None]
    by_batch = np.zeros((2, 50, 8)) + table[:2]
    return all_of(
        same("50 tokens pass a table of 10 when the batch axis is read", by_batch.shape, (2, 50, 8)),
        true("length first, 11 tokens exceed it", len(table[:11]) < 11, got=len(table[:11])),
    )


@verify("position-encodings-keep-shapes")
def keep_shapes() -> Evidence:
    words, heads = normal(2, 10, 512), normal(2, 8, 10, 64)
    return all_of(
        same("added codes", (words + sinusoid(np.arange(10), 512)).shape, (2, 10, 512)),
        same("rotated queries", rope(heads).shape, (2, 8, 10, 64)),
    )


@verify("dropout-of-the-sum-drops-word-and-position-together")
def dropped_sum() -> Evidence:
    words, codes = normal(9, 8), sinusoid(np.arange(9), 8)
    keep = np.random.default_rng(1).random((9, 8)) >= 0.1
    dropped = np.where(keep, (words + codes) / 0.9, 0)
    return all_of(
        same("where it strikes neither word nor position is left", dropped[~keep], np.zeros((~keep).sum())),
        close("elsewhere both are scaled", dropped[keep], (words / 0.9 + codes / 0.9)[keep], ROUNDING),
    )


# --- output layer and loss ------------------------------------------------------------------------------------


@verify("linear-and-softmax-give-a-distribution-over-words")
def distribution() -> Evidence:
    logits = normal(2, 5, 8) @ normal(8, 11, seed=1) + normal(11, seed=2)
    probabilities = softmax(logits)
    return all_of(
        same("one score a word", logits.shape, (2, 5, 11)),
        true("logits are no distribution", (np.abs(np.exp(logits).sum(-1) - 1) > 0.1).all(), got=logits.min()),
        close("softmax: rows sum to 1", probabilities.sum(-1), np.ones((2, 5)), ROUNDING),
    )


@verify("the-loss-compares-logits-with-shifted-labels")
def loss_of_a_step() -> Evidence:
    target = np.random.default_rng(2).integers(1, 11, (2, 6))
    inputs, labels = shift(target)
    logits = np.eye(11)[inputs] @ normal(11, 11, seed=3)
    flat = cross_entropy(logits.reshape(-1, 11), labels.reshape(-1))
    by_hand = [-np.log(softmax(logits[b, t])[labels[b, t]]) for b in range(2) for t in range(5)]
    return close("CE(model(tgt[:, :-1]), tgt[:, 1:])", float(flat), float(np.mean(by_hand)), ROUNDING)


# --- stacks -------------------------------------------------------------------------------------------------------


def stack(role: str, **config: int) -> tuple[Layers, dict[str, Array]]:
    full = {"d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 2, **config}
    shapes = ROLES[role].params(ROLES[role].settings(full))
    rng = np.random.default_rng(4)
    return Layers(n_heads=2), {n: rng.standard_normal(s) * 0.3 + n.endswith("norm.weight") for n, s in shapes.items()}


@verify("cross-attention-reads-the-top-of-the-encoder")
def top_of_the_encoder() -> Evidence:
    layers, encoder = stack("encoder")
    _, decoder = stack("decoder")
    source, target = normal(1, 6, 8, seed=5), normal(1, 5, 8, seed=6)
    memory = layers.encoder(encoder, source)
    last = "layers.1.feed_forward.linear2.weight"
    changed = {**encoder, last: encoder[last] + normal(8, 16, seed=9)}
    outputs = [layers.decoder(decoder, target, m) for m in (memory, layers.encoder(changed, source))]
    moved = float(np.abs(outputs[0] - outputs[1]).max())
    right = true("the last FFN of the encoder reaches the decoder", moved > 1e-3, got=moved, expected="> 1e-3")
    return erratum("an arrow from before that FFN carries its change", 0.0, moved, right, by=1e-3)


@verify("the-encoder-learns-through-cross-attention")
def learns_through_cross() -> Evidence:
    layers, decoder = stack("decoder")
    target, memory, step = normal(1, 5, 8, seed=6), normal(1, 6, 8, seed=7), 1e-5
    closed = {n: np.zeros_like(p) if "cross_attn.out_proj" in n else p for n, p in decoder.items()}

    def sensitivity(p: dict[str, Array]) -> Array:
        moved = []
        for i in range(6):
            change = np.zeros_like(memory)
            change[0, i, 0] = step
            moved.append(np.abs(layers.decoder(p, target, memory + change) - layers.decoder(p, target, memory)).max())
        return np.array(moved) / step

    open_gate = sensitivity(decoder)
    return all_of(
        true(
            "the decoder's output depends on every source word",
            open_gate.min() > 1e-4,
            got=open_gate,
            expected="> 1e-4",
        ),
        same("with W_O of cross-attention 0 nothing reaches the encoder", sensitivity(closed), np.zeros(6)),
    )


@verify("encoder-layers-have-one-attention-decoder-layers-two")
def inventory() -> Evidence:
    config = {"d_model": 8, "n_heads": 2, "d_ff": 16}
    counts = [
        sum(n.endswith("attn.q_proj.weight") for n in ROLES[role].params(config))
        for role in ("encoder_layer", "decoder_layer")
    ]
    return same("attention blocks", counts, [1, 2])


@verify("the-figure-lacks-the-target-input")
def target_input() -> Evidence:
    config: dict[str, int] = {"src_vocab": 9, "tgt_vocab": 9, "d_model": 8, "n_heads": 2, "d_ff": 16, "n_layers": 1}
    tables = [n for n in ROLES["encoder_decoder"].params(ROLES["encoder_decoder"].settings(config)) if "embedding" in n]
    layers, decoder = stack("decoder")
    memory = normal(1, 6, 8, seed=7)
    outputs = [layers.decoder(decoder, normal(1, 5, 8, seed=s), memory) for s in (8, 9)]
    moved = float(np.abs(outputs[0] - outputs[1]).max())
    right = true("another target gives another output", moved > 1e-2, got=moved, expected="> 1e-2")
    return erratum("embedding tables drawn", 1, len(tables), right)


@verify("without-recurrence-a-position-may-stand-alone")
def stands_alone() -> Evidence:
    layers, encoder = stack("encoder")
    x, alone = normal(1, 6, 8, seed=5), np.eye(6, dtype=bool)
    moved = x.copy()
    moved[0, 1:] += 1
    return same(
        "with attention to itself only, output 0 does not depend on the others",
        layers.encoder(encoder, moved, alone)[0, 0],
        layers.encoder(encoder, x, alone)[0, 0],
    )


@verify("attention-weights-follow-a-permutation")
def follow() -> Evidence:
    x, order = normal(6, 8), np.array([2, 0, 4, 1, 5, 3])
    _, weights = attention(x, x, x)
    _, permuted = attention(x[order], x[order], x[order])
    return close("A(X[perm]) = A(X)[perm][:, perm]", permuted, weights[order][:, order], ROUNDING)


@verify("two-orders-give-the-same-vectors-until-masked")
def two_orders() -> Evidence:
    x = normal(3, 8)
    plain, turned = (attention(y, y, y)[0] for y in (x, x[::-1]))
    masked, turned_masked = (attention(y, y, y, causal_mask(3))[0] for y in (x, x[::-1]))
    differ = np.abs(masked - turned_masked[::-1]).max()
    return all_of(
        close("unmasked: each word keeps its vector in the other order", turned[::-1], plain, ROUNDING),
        true("under a causal mask it does not", differ > 0.01, got=differ, expected="> 0.01"),
    )


@verify("fused-attention-keeps-the-shape")
def fused_shape() -> Evidence:
    x = normal(4, 8, 10, 6)
    return same("(B, h, T, d_k), causal", attention(x, x, x, causal_mask(10))[0].shape, x.shape)


@verify("both-attention-listings-split-alike")
def split_alike() -> Evidence:
    x, heads = normal(2, 6, 8), 4
    one_by_one = np.stack([x[..., h * 2 : h * 2 + 2] for h in range(heads)], axis=1)
    return same("view and transpose against column slices", x.reshape(2, -1, heads, 2).swapaxes(1, 2), one_by_one)


@verify("the-listed-attention-drops-no-weights")
def drops_no_weights() -> Evidence:
    x, rng = normal(5, 8), np.random.default_rng(5)
    _, weights = attention(x, x, x)
    dropped = np.where(rng.random(weights.shape) < 0.3, 0, weights / 0.7)
    listed = [softmax(scaled_scores(x, x)) for _ in range(2)]
    right = all_of(
        true("with dropout rows no longer sum to 1", np.abs(dropped.sum(-1) - 1).max() > 0.05, got=dropped.sum(-1)),
        close("nor without it do they differ from 1", listed[0].sum(-1), np.ones(5), ROUNDING),
    )
    return erratum("two training calls of the listing differ", True, not np.array_equal(listed[0], listed[1]), right)


@verify("a-norm-without-eps-fails-on-constants")
def norm_without_eps() -> Evidence:
    x = np.array([3.0, 3, 3, 3])
    with np.errstate(invalid="ignore"):
        listed = (x - x.mean()) / x.std()
    right = close("with eps inside the root", layer_norm(x, np.ones(4), np.zeros(4)), np.zeros(4), 0.0)
    return erratum("finite for a constant vector", True, bool(np.isfinite(listed).all()), right)


# --- decoding and training -------------------------------------------------------------------------------------------


@verify("cached-queries-are-single-rows")
def cached_rows() -> Evidence:
    x, cache, shapes = normal(2, 6, 8), np.zeros((2, 0, 8)), []
    for t in range(6):
        cache = np.concatenate([cache, x[:, t : t + 1]], axis=1)
        _, weights = attention(x[:, t : t + 1], cache, cache)
        shapes.append((cache.shape, weights.shape))
    return all_of(
        same("cache and weights after step 6", shapes[-1], ((2, 6, 8), (2, 1, 6))),
        same("the order of time is kept", cache, x),
    )


@verify("beams-start-apart")
def beams_start_apart() -> Evidence:
    seen = []

    def next_logits(ids: Array) -> Array:
        seen.append(ids.copy())
        return np.tile([-1e9, 3.0, 2, 1, 0], (len(ids), 1))

    _, score = beam_search(next_logits, np.array([7]), 3, 2, eos_id=0)
    return all_of(
        same("one row at the start", seen[0], [[7]]),
        same("different first tokens in the second step", seen[1][:, 1], [1, 2, 3]),
        true("no hypothesis of score -inf", np.isfinite(score), got=score),
    )


@verify("a-small-vocabulary-fills-no-wide-beam")
def small_vocabulary() -> Evidence:
    rows = []

    def next_logits(ids: Array) -> Array:
        rows.append(len(ids))
        return np.tile([-9.0, 1, 0], (len(ids), 1))

    beam_search(next_logits, np.array([7]), 4, 2, eos_id=0)
    return true("3 words give at most 3 first hypotheses for a beam of 4", rows[1] <= 3, got=rows, expected="<= 3")


@verify("the-demo-decodes-at-most-21-tokens")
def at_most_21() -> Evidence:
    decoded = greedy_decode(lambda ids: np.eye(5)[[3] * len(ids)], np.ones((1, 1), dtype=np.int64), 20, eos_id=2)
    return same("start token and 20 new ones, without an end", decoded.shape, (1, 21))


@verify("warmup-lets-a-rate-grow-that-would-diverge")
def warmup_helps() -> Evidence:
    """Descent on w^4 / 4, whose curvature is largest at the start."""

    def descend(rate: float, warmup: int) -> float:
        w = 3.0
        for step in range(1, 61):
            scale = warmup_rate(step, 1, warmup) / warmup_rate(warmup, 1, warmup) if warmup else 1.0
            w -= rate * min(scale, 1.0) * w**3
            if abs(w) > 1e6:
                return float("inf")
        return abs(w)

    return all_of(
        same("the full rate at once diverges", descend(0.3, 0), np.inf),
        true("after 20 steps of warm-up it converges", descend(0.3, 20) < 0.5, got=descend(0.3, 20), expected="< 0.5"),
    )


@verify("the-context-is-cut-to-its-last-tokens")
def cut_context() -> Evidence:
    ids, lengths = np.arange(5), []
    for token in range(5, 20):
        context = ids[-16:]
        lengths.append(len(context))
        ids = np.append(ids, token)
    return all_of(
        same("prompt 5, 15 new tokens, at most 16 in view", lengths, [*range(5, 16), 16, 16, 16, 16]),
        same("the last ones are kept, and the output is whole", (context[0], context[-1], len(ids)), (3, 18, 20)),
    )


@verify("one-encoding-serves-all-steps-and-beams")
def one_encoding() -> Evidence:
    layers, decoder = stack("decoder")
    memory, beams = normal(1, 6, 8, seed=7), normal(3, 5, 8, seed=8)
    together = layers.decoder(decoder, beams, np.repeat(memory, 3, axis=0), causal_mask(5))
    alone = [layers.decoder(decoder, beam[None], memory, causal_mask(5))[0] for beam in beams]
    step = layers.decoder(decoder, beams[:, :3], np.repeat(memory, 3, axis=0), causal_mask(3))
    return all_of(
        close("three beams on the repeated memory", together, alone, ROUNDING * 16),
        close("an earlier step on the same memory", step, together[:, :3], ROUNDING * 16),
    )


@verify("the-returned-loss-belongs-to-the-old-weights")
def returned_loss() -> Evidence:
    logits, target = normal(1, 5), np.array([2])
    before = float(cross_entropy(logits, target))
    updated = logits - (softmax(logits) - np.eye(5)[target])
    after = float(cross_entropy(updated, target))
    return true("the loss after the update is another, and lower", after < before - 0.01, got=(before, after))


@verify("the-listed-sampling-defaults-draw-from-50-tokens-at-most")
def sampling_defaults() -> Evidence:
    logits = 3 * normal(1, 1000)
    return all_of(
        same("top_k 50 of 1000 words", (sampling_probabilities(logits, 1.0, 50) > 0).sum(), 50),
        close("temperature 1 changes nothing", sampling_probabilities(logits, 1.0), softmax(logits), ROUNDING),
    )


@verify("one-rate-moves-every-parameter-group")
def one_rate() -> Evidence:
    config = {"kind": "sgd", "weight_decay": 0.0, "betas": (0.9, 0.98), "momentum": 0.0}
    groups, ones = [np.zeros(3), np.zeros(2)], [np.ones(3), np.ones(2)]
    rates = [warmup_rate(step, 512, 4000) for step in (1, 2, 3)]
    for rate in rates:
        groups = optimize(groups, [ones], {**config, "lr": rate})[0]
    return all_of(
        *(close(f"group {i} after 3 steps", g, np.full(len(g), -sum(rates)), 1e-18) for i, g in enumerate(groups)),
        close("rates of steps 1 to 3", rates, np.arange(1, 4) * rates[0], 1e-18),
    )


@verify("a-beam-keeps-its-rows-for-one-sample")
def one_sample() -> Evidence:
    beam, vocabulary = 3, 5
    scores = normal(beam, vocabulary)
    flat = np.argsort(-scores.ravel())[:beam]
    chosen = [(int(i) // vocabulary, int(i) % vocabulary) for i in flat]
    two = np.concatenate([scores, scores + 100])
    mixed = np.argsort(-two.ravel())[:beam] // vocabulary
    return all_of(
        close(
            "beam and token of the best of beam * V scores",
            [scores[c] for c in chosen],
            np.sort(scores.ravel())[::-1][:beam],
            0.0,
        ),
        same("with the rows of a second sample one of them takes all places", mixed >= beam, np.ones(beam, bool)),
    )

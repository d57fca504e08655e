"""Defects of the documents' listings, each witnessed by the defective formula beside the right one."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.protocol import ROLES
from conformance.reference.attention import attention, causal_mask, masked_softmax, softmax
from conformance.reference.decoding import beam_search, greedy_decode
from conformance.reference.positions import rope
from conformance.reference.training import smoothed_targets, warmup_rate
from conformance.verifications.base import erratum, rounds_to, verify

Array = np.ndarray
ROUNDING = tolerance(np.float64, 16)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def unbound(expression: str, bound: dict[str, Any]) -> set[str]:
    """The names that an expression uses and nobody has defined."""
    return {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)} - set(bound)


# --- multi-head attention -------------------------------------------------------------------------


@verify("a-listing-accepts-any-number-of-heads")
def heads_must_divide() -> Evidence:
    n, d, heads = 9, 10, 3
    regrouped = normal(1, n, d).reshape(1, -1, heads, d // heads)
    x = np.arange(4 * 8).reshape(1, 4, 8)
    split = x.reshape(1, 4, 2, 4).swapaxes(1, 2)
    right = all_of(
        same("8 features in 2 heads: head 1 of each token is its own second half", split[0, 1], x[0, :, 4:]),
        same("10 features in 4 heads: 4 tokens become", normal(4, 10).reshape(-1, 4, 10 // 4).shape[0], 5),
    )
    return erratum("9 tokens of 10 features in 3 heads stay 9 tokens", n, regrouped.shape[1], right)


@verify("per-example-masks-need-a-head-axis")
def mask_head_axis() -> Evidence:
    batch, heads, t = 2, 2, 3
    mask = np.ones((batch, t, t), dtype=bool)
    mask[0, :, 2] = False
    read = np.broadcast_to(mask, (batch, heads, t, t))
    meant = np.broadcast_to(mask[:, None], (batch, heads, t, t))
    try:
        np.broadcast_shapes((3, t, t), (3, heads, t, t))
        other_batch_fits = True
    except ValueError:
        other_batch_fits = False
    right = all_of(
        same("with a head axis sample 0 loses key 2 in both heads", meant[0, :, :, 2], np.zeros((heads, t))),
        true("a batch of 3 with 2 heads does not even broadcast", not other_batch_fits),
    )
    return erratum("keys hidden from sample 0, head 1", meant[0, 1], read[0, 1], right)


@verify("masks-of-four-axes-mix-samples-of-three")
def rank_four_masks() -> Evidence:
    scores = normal(2, 5, 5)
    listed = np.where(np.ones((2, 1, 1, 5), dtype=bool), scores, -np.inf)
    right = same(
        "a mask (batch, 1, seq) keeps the shape", np.where(np.ones((2, 1, 5), bool), scores, 0).shape, (2, 5, 5)
    )
    return erratum("shape of masked scores of queries (2, 5, 8)", scores.shape, listed.shape, right)


@verify("minus-1e9-is-no-minus-infinity")
def minus_1e9() -> Evidence:
    hidden = np.full(5, -1e9)
    nowhere, _ = masked_softmax(normal(1, 5), np.zeros((1, 5), dtype=bool)), None
    right = all_of(
        same(
            "with one visible key the hidden weights are exactly 0", softmax(np.array([1, -1e9, 3], np.float32))[1], 0
        ),
        same("a row with no visible key, by definition", nowhere, np.zeros((1, 5))),
        true(
            "float16 ends before -1e9",
            float(np.finfo(np.float16).min) > -1e9,
            got=np.finfo(np.float16).min,
            expected="> -1e9",
        ),
    )
    return erratum("weights of a fully hidden row", np.zeros(5), softmax(hidden), right, by=0.1)


@verify("masked-attention-uses-an-undefined-width")
def undefined_width() -> Evidence:
    expression = "softmax(where(mask, query @ key.T / sqrt(d_k), -inf)) @ value"
    query, key, value = normal(3, 4, 4)
    bound = {"softmax": softmax, "where": np.where, "mask": causal_mask(4), "sqrt": np.sqrt, "inf": np.inf}
    bound |= {"query": query, "key": key, "value": value}
    completed = eval(expression, {**bound, "d_k": query.shape[-1]})
    right = close(
        "with d_k = the width of the query", completed, attention(query, key, value, causal_mask(4))[0], ROUNDING
    )
    return erratum("names of the formula that the function does not define", 0, len(unbound(expression, bound)), right)


# --- cross-attention (000 2.12.3) -----------------------------------------------------------------


@verify("the-cross-attention-listing-never-splits-heads")
def never_splits() -> Evidence:
    d, heads = 16, 4
    query, key, value = normal(5, d), normal(7, d, seed=1), normal(7, d, seed=2)
    listed = softmax(query @ key.T / np.sqrt(d // heads)) @ value
    blocks = [np.s_[:, i * d // heads : (i + 1) * d // heads] for i in range(heads)]
    multi_head = np.concatenate([attention(query[b], key[b], value[b])[0] for b in blocks], axis=1)
    single = softmax(query @ key.T / np.sqrt(d)) @ value
    right = close("with one head it is single-head attention", single, attention(query, key, value)[0], ROUNDING)
    return erratum("the output of 4 heads", multi_head, listed, right, by=0.1)


@verify("the-cross-attention-listing-scales-by-the-wrong-root")
def wrong_root() -> Evidence:
    d, heads = 512, 8
    scores = normal(64, d) @ normal(64, d, seed=1).T
    listed, whole = (scores / np.sqrt(d / heads)).std(), (scores / np.sqrt(d)).std()
    right = all_of(
        close("std of scores over 512 dimensions scaled by sqrt(512)", whole, 1, 0.05, "4,096 samples"),
        close("times too large", listed / whole, np.sqrt(heads), ROUNDING),
    )
    return erratum("std of the listing's scores", 1.0, listed, right, by=1.5)


# --- caches ---------------------------------------------------------------------------------------


def cached_attention(x: Array, cache: Array | None, masked: bool) -> tuple[Array, Array]:
    """Self-attention of new rows x ``(t, d)`` over cache and x, both key and value; and the longer cache."""
    memory = x if cache is None else np.concatenate([cache, x])
    offset = len(memory) - len(x)
    mask = causal_mask(len(memory))[offset:] if masked else None
    return attention(x, memory, memory, mask)[0], memory


def run(x: Array, chunks: tuple[int, ...], masked: bool) -> Array:
    """`cached_attention` over consecutive chunks of x, from an empty cache."""
    cache, outputs = None, []
    for part in np.split(x, np.cumsum(chunks)[:-1]):
        out, cache = cached_attention(part, cache, masked)
        outputs.append(out)
    return np.concatenate(outputs)


X = normal(15, 8)
CAUSAL = attention(X, X, X, causal_mask(15))[0]


@verify("a-new-token-computes-its-own-key-and-value")
def own_key_and_value() -> Evidence:
    without, _ = attention(X[5:6], X[:5], X[:5])
    right = close("with its own appended", cached_attention(X[5:6], X[:5], masked=True)[0][0], CAUSAL[5], ROUNDING)
    return erratum("a new query over the cached keys and values only", CAUSAL[5], without[0], right, by=0.1)


@verify("the-cache-listing-lacks-its-projections")
def lacks_projections() -> Evidence:
    expression = "attention(x @ W_Q, concatenate([k, x @ W_K]), concatenate([v, x @ W_V]))"
    bound = {"x": X[5:6], "k": X[:5], "v": X[:5], "concatenate": np.concatenate}
    supplied = {"W_Q": np.eye(8), "W_K": np.eye(8), "W_V": np.eye(8), "attention": attention}
    right = close("with them supplied", eval(expression, {**bound, **supplied})[0][0], CAUSAL[5], ROUNDING)
    return erratum("names that the class does not define", 0, len(unbound(expression, bound)), right)


@verify("a-cache-serves-one-sequence")
def one_sequence() -> Evidence:
    _, left_over = cached_attention(X, None, masked=True)
    reused, _ = cached_attention(X[:1], left_over, masked=True)
    right = close(
        "a fresh cache for each sequence", cached_attention(X[:1], None, masked=True)[0][0], CAUSAL[0], ROUNDING
    )
    return erratum("first output of a second sequence", CAUSAL[0], reused[0], right, by=0.1)


@verify("a-prefill-needs-a-causal-mask")
def prefill_mask() -> Evidence:
    listed = run(X, (10, 5), masked=False)
    right = all_of(
        close("a mask offset by the cache's length", run(X, (10, 5), masked=True), CAUSAL, ROUNDING),
        close("token by token no mask is needed", run(X, (1,) * 15, masked=False), CAUSAL, ROUNDING),
        close("the last row of each chunk is right", listed[[9, 14]], CAUSAL[[9, 14]], ROUNDING),
    )
    return erratum("a prompt of 10 tokens in one call", CAUSAL[:9], listed[:9], right, by=0.1)


@verify("causal-option-hides-the-future")
def mask_in_evaluation() -> Evidence:
    scored_at_once, _ = attention(X, X, X)
    right = close("with the mask it equals decoding token by token", CAUSAL, run(X, (1,) * 15, masked=False), ROUNDING)
    return erratum("without training, a whole text needs no mask", CAUSAL, scored_at_once, right, by=0.1)


@verify("an-appended-chunk-needs-a-causal-mask")
def chunk_mask() -> Evidence:
    tokens_then_chunk = (1,) * 10 + (5,)
    listed = run(X, tokens_then_chunk, masked=False)
    right = close("with the mask", run(X, tokens_then_chunk, masked=True), CAUSAL, ROUNDING)
    return erratum("a chunk of 5 after 10 cached tokens", CAUSAL[10:14], listed[10:14], right, by=0.1)


@verify("an-unmasked-prefill-spoils-deeper-layers")
def spoiled_layers() -> Evidence:
    def two_layers(masked: bool) -> Array:
        hidden = X + run(X, (10, *(1,) * 5), masked)
        return hidden + run(hidden, (10, *(1,) * 5), masked)

    hidden = X + CAUSAL
    expected = hidden + attention(hidden, hidden, hidden, causal_mask(15))[0]
    right = close("with a masked prefill", two_layers(masked=True), expected, ROUNDING)
    return erratum(
        "the five tokens after the prefill, layer 2", expected[10:], two_layers(masked=False)[10:], right, by=1e-3
    )


@verify("use-cache-false-still-writes-the-cache")
def writes_anyway() -> Evidence:
    cache = X[:4]
    listed = X[9:10]  # the cacheless call on another token: keys are not joined, yet stored
    after, _ = cached_attention(X[4:5], listed, masked=True)
    right = close(
        "the next step on an untouched cache", cached_attention(X[4:5], cache, masked=True)[0][0], CAUSAL[4], ROUNDING
    )
    return erratum("the next cached step", CAUSAL[4], after[0], right, by=0.1)


@verify("cached-tensors-keep-their-graph")
def keeps_graph() -> Evidence:
    def graph_size(steps: int, detached: bool) -> int:
        """Nodes that a cache keeps alive: each concatenation points at its two inputs."""
        cache: tuple[Any, ...] = ()
        for _ in range(steps):
            cache = ("concatenated",) if detached else ("concatenated", cache, ("new keys",))
        pending, count = [cache], 0
        while pending:
            node = pending.pop()
            count += 1
            pending += [part for part in node if isinstance(part, tuple)]
        return count

    right = same("detached, the graph does not grow", [graph_size(n, True) for n in (5, 50)], [1, 1])
    return erratum("nodes kept after 5 and after 50 steps", [11, 11], [graph_size(n, False) for n in (5, 50)], right)


# --- the model of 002 -----------------------------------------------------------------------------

DEMO: dict[str, Any] = {"src_vocab": 50, "tgt_vocab": 50, "d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 3}


def parameters_of(**config: Any) -> dict[str, tuple[int, ...]]:
    role = ROLES["encoder_decoder"]
    return role.params(role.settings(config))


def size_of_the_base_model() -> int:
    """The number of parameters of the paper's base model, as the listing builds it."""
    sizes = {"d_model": 512, "n_heads": 8, "d_ff": 2048, "n_layers": 6, "src_vocab": 37_000, "tgt_vocab": 37_000}
    return sum(int(np.prod(shape)) for shape in parameters_of(**sizes).values())


@verify("each-stack-ends-with-a-layer-norm")
def final_norms() -> Evidence:
    norms = [name for name in parameters_of(**DEMO) if "norm" in name and name.endswith("weight")]
    in_layers = [name for name in norms if ".layers." in name]
    right = same(
        "norms outside the layers", set(norms) - set(in_layers), {"encoder.norm.weight", "decoder.norm.weight"}
    )
    return erratum("LayerNorms of the component tree with 3 + 3 layers", 2 * 3 + 3 * 3, len(norms), right)


@verify("the-listing-shares-no-embeddings")
def no_sharing() -> Evidence:
    total = size_of_the_base_model()
    shared = total - 2 * 37_000 * 512
    right = all_of(
        same("with one matrix for both embeddings and the output", shared, 63_121_544),
        true("which is near the paper's 65 million", abs(shared - 65e6) < 3e6, got=shared),
    )
    return erratum("parameters of the paper's base model", 65e6, total, right, by=30e6)


@verify("two-listings-do-not-stand-alone")
def not_alone() -> Evidence:
    expression = "F.softmax(Transformer(source))"
    bound = {"source": X}
    completed = eval(expression.replace("F.", ""), {**bound, "softmax": softmax, "Transformer": lambda x: x @ x.T})
    right = close("with both supplied it runs", completed.sum(-1), np.ones(15), ROUNDING)
    return erratum(
        "names that the listing uses and never defines",
        0,
        len(unbound(expression, bound)),
        right,
    )


@verify("weight-sharing-is-as-old-as-the-paper")
def sharing_is_old() -> Evidence:
    total = size_of_the_base_model()
    right = true(
        "sharing all three matrices gives it within 3 million", abs(total - 2 * 37_000 * 512 - 65e6) < 3e6, got=total
    )
    return erratum("the encoder-decoder paper's 65 million without sharing", 65e6, total, right, by=30e6)


@verify("xavier-overwrites-the-padding-row")
def padding_row() -> Evidence:
    table = normal(50, 16)
    table[0] = 0
    bound = np.sqrt(6 / (50 + 16))
    initialised = np.random.default_rng(0).uniform(-bound, bound, table.shape)
    again = initialised.copy()
    again[0] = 0
    right = same("zeroed again after the initialiser", np.linalg.norm(again[0]), 0)
    return erratum("norm of the padding row", np.linalg.norm(table[0]), np.linalg.norm(initialised[0]), right, by=0.1)


@verify("predictions-need-evaluation-mode")
def evaluation_mode() -> Evidence:
    rng = np.random.default_rng(0)

    def logits(dropout: bool) -> Array:
        return (np.where(rng.random(X.shape) < 0.1, 0, X / 0.9) if dropout else X) @ X.T

    right = same("in evaluation mode two calls agree", logits(False), logits(False))
    return erratum("two calls of a fresh model, in training mode", logits(True), logits(True), right, by=0.1)


@verify("the-first-update-runs-at-the-constructor-s-rate")
def first_update() -> Evidence:
    d_model, constructor, steps = 128, 1e-4, range(1, 6)
    scheduled = np.array([warmup_rate(n, d_model, 4000) for n in steps])
    rate, used = constructor, []
    for n in steps:
        used.append(rate)  # optimizer.step() comes first,
        rate = warmup_rate(n, d_model, 4000)  # then scheduler.step()
    right = all_of(
        same("from the second update on the rate lags one step behind", used[1:], scheduled[:-1]),
        rounds_to("the first update's rate over lr(1)", used[0] / scheduled[0], 286, 0),
    )
    return erratum("rates of updates 1 to 5", scheduled, used, right, by=9e-5)


@verify("the-printed-rate-belongs-to-the-next-update")
def printed_rate() -> Evidence:
    after = np.array([warmup_rate(n, 128, 4000) for n in range(1, 6)])
    used = np.r_[1e-4, after[:-1]]
    right = rounds_to("rates after each step, to 6 digits", after, [0, 1e-6, 1e-6, 1e-6, 2e-6], 6)
    return erratum("rates that led to the printed losses", np.round(after, 6), used, right, by=9e-5)


@verify("an-update-is-not-an-epoch")
def not_an_epoch() -> Evidence:
    order = np.random.default_rng(0).permutation(1000)
    batches = [order[i : i + 64] for i in range(0, len(order), 64)]
    right = same("an epoch's batches hold each of 1000 samples once", np.sort(np.concatenate(batches)), np.arange(1000))
    return erratum("updates in an epoch of 1000 samples in batches of 64", 1, len(batches), right)


@verify("the-demo-targets-have-no-end")
def no_end() -> Evidence:
    targets = np.random.default_rng(0).integers(3, 1000, (16, 22))
    targets[:, 0] = 1
    ended = targets.copy()
    ended[:, -1] = 2
    right = same("one end token a row", (ended == 2).sum(-1), np.ones(16))
    return erratum("targets that hold token 2", 16, int((targets == 2).any(-1).sum()), right)


# --- decoding -------------------------------------------------------------------------------------


def ends_at(*steps: int) -> Any:
    """Next-token logits of rows that write 3 until they write EOS (2) at the given step, and 3 again after it."""

    def next_logits(ids: Array) -> Array:
        return np.eye(5)[[2 if ids.shape[1] == step else 3 for step in steps]]

    return next_logits


@verify("rows-finish-at-different-steps")
def different_steps() -> Evidence:
    next_logits, start = ends_at(2, 4), np.ones((2, 1), dtype=np.int64)
    ids = start
    for _ in range(10):
        token = next_logits(ids).argmax(-1)
        ids = np.concatenate([ids, token[:, None]], axis=1)
        if (token == 2).all():
            break
    decoded = greedy_decode(next_logits, start, 10, eos_id=2)
    right = same("with a flag for each row", decoded, [[1, 3, 2, 0, 0], [1, 3, 3, 3, 2]])
    return erratum("length when 'all rows wrote EOS in this very step' is the test", 5, ids.shape[1], right)


@verify("finished-hypotheses-must-leave-the-beam")
def finished_hypotheses() -> Evidence:
    start, eos, a, b = 0, 1, 2, 3
    table = np.full((4, 4), 1e-30)
    table[start, [a, eos]] = 0.55, 0.45
    table[a, b] = table[b, eos] = table[eos, eos] = 1.0

    def next_logits(ids: Array) -> Array:
        return np.log(table[ids[:, -1]])

    live: list[tuple[float, tuple[int, ...]]] = [(0.0, (start,))]
    completed: list[tuple[float, tuple[int, ...]]] = []
    while len(completed) < 2:
        grown = [(s + float(np.log(table[ids[-1], t])), (*ids, t)) for s, ids in live for t in range(4)]
        live = sorted(grown, reverse=True)[:2]
        completed += [item for item in live if item[1][-1] == eos]
    listed = max(completed)
    best, score = beam_search(next_logits, np.array([start]), 2, 10, eos)
    right = all_of(
        same("finished hypotheses frozen: the better sequence", best, [start, a, b, eos]),
        rounds_to("its probability", np.exp(score), 0.55, 6),
        same("the listing completed one hypothesis twice", [ids[:2] for _, ids in completed], [(start, eos)] * 2),
    )
    return erratum("probability of the best sequence, beam 2", 0.55, np.exp(listed[0]), right, by=0.05)


# --- decoder-only model ---------------------------------------------------------------------------


@verify("the-gpt-listing-rotates-nothing")
def rotates_nothing() -> Evidence:
    order = np.r_[np.random.default_rng(1).permutation(14), 14]
    mask = causal_mask(15)

    def last(x: Array, rotate: bool) -> Array:
        q = rope(x[None, None])[0, 0] if rotate else x
        return attention(q, q, x, mask)[0][-1]

    with_rope = np.abs(last(X[order], True) - last(X, True)).max()
    right = true("with RoPE the order of the prefix counts", with_rope > 0.01, got=with_rope, expected="> 0.01")
    moved = np.abs(last(X[order], False) - last(X, False)).max() > ROUNDING
    return erratum("one layer's last output notices a permuted prefix", True, moved, right)


@verify("a-benchmark-compares-equal-functions")
def equal_functions() -> Evidence:
    full, _ = attention(X, X, X)
    agree = np.isclose(full, CAUSAL).all(-1)
    right = all_of(
        same("only the last row agrees", np.flatnonzero(agree), [14]),
        close("with the triangular mask on both sides", attention(X, X, X, causal_mask(15))[0], CAUSAL, ROUNDING),
    )
    return erratum("unmasked and causal attention: the same task", full, CAUSAL, right, by=0.1)


# --- visualisation --------------------------------------------------------------------------------


@verify("the-heat-map-prints-numbers-only")
def numbers_only() -> Evidence:
    weights, shades = np.array([0, 0.2, 0.5, 0.99]), " .:*#"
    levels = np.minimum((weights * 5).astype(int), 4)
    printed = "".join(f"{w:.2f} " for w in weights)
    shaded = "".join(shades[level] for level in levels)
    right = all_of(
        same("levels of 0, 0.2, 0.5, 0.99", levels, [0, 1, 2, 4]),
        true("a map by level darkens", sorted(shaded, key=shades.index) == list(shaded), got=shaded),
    )
    return erratum("characters of brightness in a printed row", 4, sum(c not in "0123456789. " for c in printed), right)


@verify("headers-drift-from-their-columns")
def headers_drift() -> Evidence:
    tokens = ["The", "cat", "sat", "the", "mat"]
    width = max(map(len, tokens))
    header = " " * (width + 2) + "".join(f"{token:>{width + 1}}" for token in tokens)
    row = f"{tokens[0]:>{width}} | " + "".join(f"{w:.2f} " for w in np.full(5, 0.2))
    right = same("cells are aligned for tokens of 4 letters", len(f"{'word':>{4 + 1}}"), len(f"{0.2:.2f} "))
    return erratum("width of the header line", len(row), len(header), right, by=4)


@verify("random-heads-have-learned-nothing")
def random_heads() -> Evidence:
    heads = [
        attention(normal(5, 8, seed=s), normal(5, 8, seed=s + 1), X[:5], causal_mask(5))[1] for s in range(0, 40, 10)
    ]
    patterns = [tuple(w.argmax(-1)) for w in heads]
    right = all_of(
        true("no head looks ahead", all((np.array(p) <= np.arange(5)).all() for p in patterns), got=patterns),
        same("row 0 can only look at itself", {p[0] for p in patterns}, {0}),
    )
    return erratum("patterns of four untrained random heads", 1, len(set(patterns)), right)


# --- small listings ----------------------------------------------------------------


@verify("the-warmup-formula-starts-at-step-1")
def warmup_start() -> Evidence:
    def listed(step: int) -> float:
        return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)

    try:
        listed(0)
        defined = True
    except ZeroDivisionError:
        defined = False
    right = close("from step 1 on it is the formula", listed(1), warmup_rate(1, 512, 4000), 1e-18)
    return erratum("defined at step 0", True, defined, right)


@verify("label-smoothing-takes-one-label")
def one_label() -> Evidence:
    classes, eps, labels = 10, 0.1, np.array([3, 5])
    listed = np.full(classes, eps / (classes - 1))
    listed[labels] = 1 - eps
    batch = smoothed_targets(labels, classes, eps, over="others")
    right = all_of(
        same("a batch gives a row for each label", batch.shape, (2, classes)),
        close("each row sums to 1", batch.sum(-1), np.ones(2), ROUNDING),
    )
    return erratum("sum of the label of two targets", 1.0, listed.sum(), right, by=0.5)

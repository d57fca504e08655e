"""Checks of the full encoder-decoder and the decoder-only model, from token ids to logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.positions import pairings
from conformance.checks.subjects import POISON, loaded, offered
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, refused, same, tolerance, true
from conformance.protocol import ROLES, Array, Arrays, NotProvided, Subject
from conformance.reference.models import DecoderLM, EncoderDecoder
from conformance.reference.positions import sinusoid

"""What stands in the row of the pad where padding must be hidden."""


def seq2seq_config(draw: Draw, **config: Any) -> dict[str, Any]:
    """Source and target vocabularies of different sizes; several heads; a pad id that need not be 0."""
    heads = draw.int("n_heads", 2, 3, 2)
    return {
        "src_vocab": 7,
        "tgt_vocab": 9,
        "d_model": 2 * heads * draw.int("half of d_head", 2, 3, 2),
        "n_heads": heads,
        "n_layers": draw.int("n_layers", 1, 2, 2),
        "d_ff": draw.int("d_ff", 3, 9, 5),
        "max_len": 16,
        "pad_id": draw.choice("pad_id", (0, 2), pin=0),
        **config,
    }


def sentences(draw: Draw, name: str, batch: int, vocab: int, pad_id: int, pin: int) -> Array:
    """A batch of token ids without padding: ``(batch, T)``, T of 2 to 5."""
    ids = draw.integers(name, (batch, draw.int(f"T of {name}", 2, 5, pin)), 0, vocab - 1)
    return ids + (ids >= pad_id)


def padded(draw: Draw, ids: Array, pad_id: int) -> Array:
    """The batch with 0, 1, ... tokens of each sentence replaced by padding at its end (never the first)."""
    out = ids.copy()
    for row, count in enumerate(draw.integers("pads", (len(ids),), 0, ids.shape[1])):
        out[row, ids.shape[1] - min(count + (row == 0), ids.shape[1] - 1) :] = pad_id
    return out


def build_seq2seq(impl: Any, draw: Draw, **config: Any) -> tuple[Subject, Arrays, dict[str, Any]]:
    config = seq2seq_config(draw, **config)
    subject, params = loaded(impl, draw, "encoder_decoder", **config)
    return subject, params, config


def pair(draw: Draw, config: dict[str, Any]) -> tuple[Array, Array]:
    """A source and a target batch without padding."""
    batch = draw.int("B", 1, 3, 2)
    return (
        sentences(draw, "src", batch, config["src_vocab"], config["pad_id"], pin=5),
        sentences(draw, "tgt", batch, config["tgt_vocab"], config["pad_id"], pin=4),
    )


def model_bound(subject: Subject, config: dict[str, Any], logits: Array) -> float:
    """Rounding through both stacks and the head."""
    length = (config["d_model"] + config["d_ff"]) * config["n_layers"] * 2
    return tolerance(subject.dtype, length, max(float(np.abs(logits).max()), 1.0) * 8.0)


# --- the encoder-decoder --------------------------------------------------------------------------


@check("encoder-decoder-formula", roles=("encoder_decoder",), examples=5)
def encoder_decoder_formula(impl: Any, draw: Draw) -> Evidence:
    """logits = output_proj(decoder(embed(tgt), encoder(embed(src)))), with padding of both sides per sentence."""
    subject, p, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    src, tgt = padded(draw, src, config["pad_id"]), padded(draw, tgt, config["pad_id"])
    expected = EncoderDecoder(config["n_heads"], pad_id=config["pad_id"]).logits(p, src, tgt)
    real = tgt != config["pad_id"]
    bound = model_bound(subject, config, expected)
    return close("logits at real target positions", subject(src=src, tgt=tgt)["out"][real], expected[real], bound)


@check("model-returns-logits", roles=("encoder_decoder",), examples=3)
def returns_logits(impl: Any, draw: Draw) -> Evidence:
    """forward stops at the linear layer: (B, Tt, tgt_vocab) numbers that are shifted as the head's bias is."""
    subject, p, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    before = subject(src=src, tgt=tgt)["out"]
    subject.load({**p, "output_proj.bias": p["output_proj.bias"] + 3.0})
    after = subject(src=src, tgt=tgt)["out"]
    return all_of(
        same("shape of the logits", before.shape, (*tgt.shape, config["tgt_vocab"])),
        close("shift by the bias", after - before, np.full(after.shape, 3.0), model_bound(subject, config, after)),
    )


@check("target-depends-on-the-source", roles=("encoder_decoder",), examples=3)
def source_matters(impl: Any, draw: Draw) -> Evidence:
    """Changing one source token changes the logits at every target position."""
    subject, _, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    other = src.copy()
    other[:, -1] = np.where(src[:, -1] == 3, 4, 3)
    change = np.abs(subject(src=other, tgt=tgt)["out"] - subject(src=src, tgt=tgt)["out"]).max(-1)
    return true("smallest change at a target position", change.min() > 1e-7, got=float(change.min()))


@check("decoder-reads-the-top-of-the-encoder", roles=("encoder_decoder",), examples=2)
def top_of_the_encoder(impl: Any, draw: Draw) -> Evidence:
    """Memory is the encoder's final output: its last layer's parameters matter, and its final norm's scale does."""
    subject, p, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    before, changes = subject(src=src, tgt=tgt)["out"], []
    for name in (f"encoder.layers.{config['n_layers'] - 1}.norm2.bias", "encoder.norm.bias"):
        subject.load({**p, name: p[name] + draw.normal(name, p[name].shape)})
        changes.append(float(np.abs(subject(src=src, tgt=tgt)["out"] - before).max()))
    return true("change by the last layer and by the final norm", min(changes) > 1e-6, got=changes)


@check("target-is-causal", roles=("encoder_decoder",), examples=5)
def target_causal(impl: Any, draw: Draw) -> Evidence:
    """Logits at position t do not depend on target tokens after t; those from the change on do."""
    subject, _, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    cut = draw.int("cut", 1, tgt.shape[1] - 1, 2) if tgt.shape[1] > 2 else 1
    other = tgt.copy()
    other[:, cut:] = np.where(tgt[:, cut:] == 3, 4, 3)
    first, second = subject(src=src, tgt=tgt)["out"], subject(src=src, tgt=other)["out"]
    return all_of(
        close("logits before the change", second[:, :cut], first[:, :cut], model_bound(subject, config, first)),
        true("logits after the change differ", np.abs(second[:, cut:] - first[:, cut:]).max() > 1e-5),
    )


@check("one-pass-equals-step-by-step", roles=("encoder_decoder",), examples=2)
def parallel_equals_sequential(impl: Any, draw: Draw) -> Evidence:
    """Row t of one pass over the target equals the last row of a pass over its first t + 1 tokens."""
    subject, _, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    whole = subject(src=src, tgt=tgt)["out"]
    steps = [subject(src=src, tgt=tgt[:, : t + 1])["out"][:, -1] for t in range(tgt.shape[1])]
    return close("last rows of the prefixes", np.stack(steps, 1), whole, model_bound(subject, config, whole))


@check("source-padding-is-ignored", roles=("encoder_decoder",), examples=5)
def source_padding(impl: Any, draw: Draw) -> Evidence:
    """Padding appended to the source, or in one sentence of the batch, shows nothing of its enormous embedding."""
    subject, p, config = build_seq2seq(impl, draw)
    pad = config["pad_id"]
    src, tgt = pair(draw, config)
    longer = np.concatenate([src, np.full((len(src), draw.int("pads", 1, 3, 2)), pad)], axis=1)
    holed = src.copy()
    holed[0, 0] = pad
    unpadded, holed_out = subject(src=src, tgt=tgt)["out"], subject(src=holed, tgt=tgt)["out"]
    table = p["src_embedding.weight"].copy()
    table[pad] = POISON
    subject.load({**p, "src_embedding.weight": table})
    bound = model_bound(subject, config, unpadded)
    return all_of(
        close("logits with padding at the end", subject(src=longer, tgt=tgt)["out"], unpadded, bound),
        close("logits with a pad in one sentence", subject(src=holed, tgt=tgt)["out"], holed_out, bound),
    )


@check("target-padding-is-ignored", roles=("encoder_decoder",), examples=5)
def target_padding(impl: Any, draw: Draw) -> Evidence:
    """A pad inside the target is hidden as a key: the logits after it do not depend on its embedding."""
    subject, p, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    tgt = np.concatenate([tgt[:, :1], np.full((len(tgt), 1), config["pad_id"]), tgt[:, 1:]], axis=1)
    expected = subject(src=src, tgt=tgt)["out"]
    table = p["tgt_embedding.weight"].copy()
    table[config["pad_id"]] = POISON
    subject.load({**p, "tgt_embedding.weight": table})
    real = tgt != config["pad_id"]
    got = subject(src=src, tgt=tgt)["out"]
    return close("logits at real positions", got[real], expected[real], model_bound(subject, config, expected))


@check("a-source-of-padding-harms-no-other-sentence", roles=("encoder_decoder",), examples=2)
def padding_only(impl: Any, draw: Draw) -> Evidence:
    """Where one sentence is all padding the others' logits are what they are without it."""
    subject, _, config = build_seq2seq(impl, draw)
    src, tgt = pair(draw, config)
    expected = subject(src=src[:1], tgt=tgt[:1])["out"]
    src = np.concatenate([src[:1], np.full_like(src[:1], config["pad_id"])])
    got = subject(src=src, tgt=np.concatenate([tgt[:1], tgt[:1]]))["out"][:1]
    return close("logits of the other sentence", got, expected, model_bound(subject, config, expected))


@check("embeddings-are-scaled-by-sqrt-d-model", roles=("encoder_decoder",), examples=3)
def embedding_scale(impl: Any, draw: Draw) -> Evidence:
    """Where sqrt(d) E + PE is one vector at every position, the tokens cannot be counted: the length is invisible."""
    subject, p, config = build_seq2seq(impl, draw)
    d, pad = config["d_model"], config["pad_id"]
    _, tgt = pair(draw, config)
    real = np.delete(np.arange(config["src_vocab"]), pad)
    table = p["src_embedding.weight"].copy()
    table[real] = (draw.normal("constant", (d,)) - sinusoid(np.arange(len(real)), d)) / d**0.5
    subject.load({**p, "src_embedding.weight": table})
    short, long = (subject(src=np.tile(real[:n], (len(tgt), 1)), tgt=tgt)["out"] for n in (2, len(real)))
    return close("logits for a longer source of equal vectors", long, short, model_bound(subject, config, short))


@check("source-and-target-embed-separately", roles=("encoder_decoder",), examples=2)
def separate_tables(impl: Any, draw: Draw) -> Evidence:
    """Each side has an embedding table and position codes of its own, and the head a third matrix."""
    subject, p, config = build_seq2seq(impl, draw, src_vocab=8, tgt_vocab=8)
    src, tgt = pair(draw, config)
    held, before, changes = subject.params(), subject(src=src, tgt=tgt)["out"], []
    names = ("src_embedding.weight", "tgt_embedding.weight", "output_proj.weight")
    for name in names:
        subject.load({**p, name: p[name] + 0.5})
        changes.append(float(np.abs(subject(src=src, tgt=tgt)["out"] - before).max()))
    return all_of(
        *(same(f"{name} as loaded", held.get(name), p[name].astype(subject.dtype)) for name in names),
        true("each matters", min(changes) > 1e-6, got=changes),
    )


@check("pad-row-starts-at-zero", roles=("encoder_decoder",), examples=2)
def pad_row(impl: Any, draw: Draw) -> Evidence:
    """The embedding of the pad is zero at the start, in both tables: initialisation leaves it alone."""
    config = seq2seq_config(draw)
    p = impl.build("encoder_decoder", config).params()
    rows = [p[name][config["pad_id"]] for name in ("src_embedding.weight", "tgt_embedding.weight")]
    return same("pad rows", np.stack(rows), np.zeros((2, config["d_model"])))


@check("matrices-start-xavier-uniform", roles=("encoder_decoder",), examples=0)
def xavier(impl: Any, draw: Draw) -> Evidence:
    """Every matrix is uniform within sqrt(6 / (fan_in + fan_out)): largest entry near it, deviation 1/sqrt(3) of it."""
    config = {"src_vocab": 41, "tgt_vocab": 43, "d_model": 24, "n_heads": 4, "n_layers": 1, "d_ff": 40}
    pieces = []
    for name, a in impl.build("encoder_decoder", config).params().items():
        if a.ndim < 2:
            continue
        a = a[1:] if "embedding" in name else a
        limit = (6.0 / (a.shape[0] + ("embedding" in name) + a.shape[1])) ** 0.5
        pieces.append(
            true(f"{name} within {limit:.4f}", np.abs(a).max() <= limit * (1 + 1e-6), got=float(np.abs(a).max()))
        )
        pieces.append(true(f"{name} reaches 0.97 of it", np.abs(a).max() >= 0.97 * limit, got=float(np.abs(a).max())))
        deviation = limit / 3**0.5
        pieces.append(
            close(f"deviation of {name}", a.std(), deviation, 0.1 * deviation, "five deviations of 576 draws")
        )
    return all_of(*pieces)


@check("vectors-keep-their-default-start", roles=("encoder_decoder",), examples=0)
def vector_start(impl: Any, draw: Draw) -> Evidence:
    """Norms start at weight 1 and bias 0, other biases within 1/sqrt(fan_in)."""
    config = {"src_vocab": 11, "tgt_vocab": 13, "d_model": 8, "n_heads": 2, "n_layers": 1, "d_ff": 12}
    p = impl.build("encoder_decoder", config).params()
    pieces = []
    for name, a in p.items():
        if a.ndim > 1:
            continue
        module, kind = name.rsplit(".", 1)
        if "norm" in module.rsplit(".", 1)[-1]:
            pieces.append(same(name, a, np.full(a.shape, float(kind == "weight"))))
        else:
            limit = p[f"{module}.weight"].shape[1] ** -0.5
            pieces.append(true(f"{name} within {limit:.4f}", np.abs(a).max() <= limit * (1 + 1e-6)))
    return all_of(*pieces)


@check("model-drops-in-training-only", roles=("encoder_decoder",), examples=1)
def model_dropout(impl: Any, draw: Draw) -> Evidence:
    """In training two passes differ; in evaluation all passes give the same, before and after training."""
    subject, _, config = build_seq2seq(impl, draw, dropout=0.4)
    src, tgt = pair(draw, config)

    def passes() -> list[Array]:
        return [subject(src=src, tgt=tgt)["out"] for _ in range(2)]

    before = passes()
    subject.train(True)
    first, second = passes()
    subject.train(False)
    after = passes()
    bound = model_bound(subject, config, before[0])
    return all_of(
        close("logits in evaluation", before[1], before[0], bound),
        true("two passes in training differ", np.abs(first - second).max() > 1e-3),
        close("logits in evaluation again", np.stack(after), np.stack([before[0]] * 2), bound),
    )


# --- the decoder-only model -----------------------------------------------------------------------


def lm_config(draw: Draw, **config: Any) -> dict[str, Any]:
    """Grouped-query attention with 1 < kv heads < heads at the pin."""
    n_kv, group = draw.int("n_kv_heads", 1, 3, 2), draw.int("group", 1, 3, 3)
    return {
        "vocab": 11,
        "d_model": n_kv * group * 2 * draw.int("half of d_head", 1, 2, 2),
        "n_heads": n_kv * group,
        "n_kv_heads": n_kv,
        "n_layers": draw.int("n_layers", 1, 2, 2),
        "d_ff": draw.int("d_ff", 3, 9, 7),
        "max_len": 16,
        **config,
    }


def variant(impl: Any, draw: Draw, role: str, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration in what is provided of it: a pairing of RoPE, or none (as printed), where the configuration
    says nothing; a head of its own where none is tied; key heads for every head where none can be shared."""
    tied = config.get("tied", True)
    rope = (config["rope"],) if "rope" in config else (*pairings(draw), None)
    kv_heads = (config["n_kv_heads"], config["n_heads"])
    return offered(impl, role, config, n_kv_heads=kv_heads, tied=(tied, not tied), rope=rope)


def build_lm(
    impl: Any, draw: Draw, role: str = "decoder_lm", **config: Any
) -> tuple[Subject, Arrays, dict[str, Any], DecoderLM]:
    """A language model with random parameters, and the formulas of the same sizes and pairing."""
    config = variant(impl, draw, role, lm_config(draw, **config))
    subject, params = loaded(impl, draw, role, **config)
    said = {name: subject.attributes[name] for name in ("eps",) if name in subject.attributes}
    return subject, params, config, DecoderLM(config["n_heads"], config["n_kv_heads"], config["rope"], **said)


def prompt(draw: Draw, low: int = 2, pin: int = 6) -> Array:
    return draw.integers("ids", (draw.int("B", 1, 3, 2), draw.int("T", low, 7, pin)), 0, 11)


@check("decoder-lm-formula", roles=("decoder_lm",), examples=5)
def decoder_lm_formula(impl: Any, draw: Draw) -> Evidence:
    """Embedding (unscaled), N x [RMSNorm, causal GQA with RoPE, add, RMSNorm, SwiGLU, add], RMSNorm, tied head."""
    printed = {"rope": None} if draw.bool("without RoPE, as printed") else {}
    subject, p, config, formulas = build_lm(impl, draw, "decoder_lm", tied=draw.bool("tied", pin=True), **printed)
    ids = prompt(draw)
    subject(ids=ids[:, :1])  # a mask or table cut for a short sequence must not stay
    expected = formulas.logits(p, ids)
    return close("logits", subject(ids=ids)["out"], expected, model_bound(subject, config, expected))


@check("decoder-lm-is-causal", roles=("decoder_lm",), examples=5)
def decoder_lm_causal(impl: Any, draw: Draw) -> Evidence:
    """Logits at t depend on tokens up to t only; the last ones depend on every token."""
    subject, _, config, _ = build_lm(impl, draw)
    ids = prompt(draw)
    before, pieces = subject(ids=ids)["out"], []
    bound = model_bound(subject, config, before)
    for j in range(ids.shape[1]):
        other = ids.copy()
        other[:, j] = (ids[:, j] + 1) % config["vocab"]
        after = subject(ids=other)["out"]
        reach = float(np.abs(after[:, -1] - before[:, -1]).max())
        pieces.append(close(f"logits before token {j} changes", after[:, :j], before[:, :j], bound))
        pieces.append(true(f"token {j} reaches the last logits", reach > 1e-6, got=reach))
    return all_of(*pieces)


@check("decoder-lm-knows-the-order-within-one-layer", roles=("decoder_lm",), examples=3)
def decoder_lm_order(impl: Any, draw: Draw) -> Evidence:
    """With RoPE the last logits of a single layer depend on the order of the tokens before."""
    subject, _, _, _ = build_lm(impl, draw, n_layers=1)
    ids = np.array([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    order = np.array([2, 0, 3, 1, 4])
    change = np.abs(subject(ids=ids[:, order])["out"][:, -1] - subject(ids=ids)["out"][:, -1]).max()
    return true("change of the last logits", change > 1e-5, got=float(change))


@check("values-are-not-rotated", roles=("decoder_lm",), examples=3)
def values_not_rotated(impl: Any, draw: Draw) -> Evidence:
    """RoPE turns queries and keys only: one token repeated gives the same logits at every position."""
    subject, _, config, _ = build_lm(impl, draw)
    out = subject(ids=np.full((1, draw.int("T", 2, 7, 6)), draw.int("token", 0, 10, 3)))["out"]
    expected = np.broadcast_to(out[:, :1], out.shape)
    return close("logits of a repeated token", out, expected, model_bound(subject, config, out))


@check("head-shares-the-embedding", roles=("decoder_lm",), examples=3)
def tied_head(impl: Any, draw: Draw) -> Evidence:
    """Doubling the embedding of a token that the input lacks doubles its logit and changes no other."""
    subject, p, config, _ = build_lm(impl, draw)
    if not config["tied"]:
        raise NotProvided("its head has a matrix of its own")
    ids = prompt(draw) % 10
    before = subject(ids=ids)["out"]
    table = p["token_embedding.weight"].copy()
    table[10] *= 2.0
    subject.load({**p, "token_embedding.weight": table})
    expected = before.copy()
    expected[..., 10] *= 2.0
    names = sorted(subject.params())
    return all_of(
        true("there is no second matrix", "lm_head.weight" not in names, got=names),
        close("logits", subject(ids=ids)["out"], expected, model_bound(subject, config, expected)),
    )


@check("decoder-lm-has-no-bias-and-no-cross-attention", roles=("decoder_lm",), examples=2)
def decoder_lm_parameters(impl: Any, draw: Draw) -> Evidence:
    """Its parameters are embedding, q, k, v and output projections, gate, up, down, and one gain per norm."""
    config = variant(impl, draw, "decoder_lm", lm_config(draw))
    subject = impl.build("decoder_lm", config)
    got = {name: a.shape for name, a in subject.params().items()}
    expected = ROLES["decoder_lm"].params(ROLES["decoder_lm"].settings(config))
    return true("names and shapes", got == expected, got=got, expected=expected)


@check("decoder-lm-refuses-more-than-max-len", roles=("decoder_lm",), examples=2)
def decoder_lm_limit(impl: Any, draw: Draw) -> Evidence:
    """max_len tokens pass, one more is refused."""
    limit = draw.int("max_len", 3, 9, 5)
    subject, _, config, _ = build_lm(impl, draw, max_len=limit)
    if subject.attributes.get("longest") == "any":
        raise NotProvided("it has no table of positions: it takes inputs of any length")
    fitting = subject(ids=np.ones((1, limit), np.int64))["out"]
    return all_of(
        same("shape at the limit", fitting.shape, (1, limit, config["vocab"])),
        refused("one token more", lambda: subject(ids=np.ones((1, limit + 1), np.int64))),
    )


@check("linear-weights-start-normal-0-02", roles=("decoder_lm",), examples=0)
def normal_start(impl: Any, draw: Draw) -> Evidence:
    """Every matrix starts from N(0, 0.02), the tied embedding among them; norm weights at 1."""
    config = {"vocab": 101, "d_model": 24, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "d_ff": 40}
    config = variant(impl, draw, "decoder_lm", config)
    pieces = []
    for name, a in impl.build("decoder_lm", config).params().items():
        if a.ndim < 2:
            pieces.append(same(name, a, np.ones(a.shape)))
            continue
        pieces.append(close(f"deviation of {name}", a.std(), 0.02, 0.02 * 6 / (2 * a.size) ** 0.5, "six deviations"))
        pieces.append(true(f"{name} has normal tails", np.abs(a).max() > 0.045, got=float(np.abs(a).max())))
    return all_of(*pieces)

"""Numbers printed in tables, sketches and demos, and sentences whose words are counted."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, tolerance, true
from conformance.reference.attention import attention, causal_mask, softmax
from conformance.reference.decoding import shift
from conformance.reference.positions import frequencies, sinusoid
from conformance.reference.training import cross_entropy, warmup_rate
from conformance.verifications.base import erratum, rounds_to, verify

ROUNDING = tolerance(np.float64)


# --- the sinusoidal table of 50 positions and 128 dimensions (000 2.6.5) --------------------------

TABLE = sinusoid(np.arange(50), 128)
NARROW = sinusoid(np.arange(51), 4)


@verify("the-printed-table-is-50-by-128")
def table_shape() -> Evidence:
    return same("rows of values", TABLE.shape, (50, 128))


@verify("dimension-127-is-one-at-all-listed-positions")
def last_dimension() -> Evidence:
    return rounds_to("column 127 at positions 0 to 3 and 49", TABLE[[0, 1, 2, 3, 49], 127], np.ones(5), 3)


@verify("dimensions-0-and-1-of-positions-1-to-3")
def first_pair() -> Evidence:
    return rounds_to("sin and cos of 1, 2, 3", TABLE[1:4, :2], [[0.841, 0.540], [0.909, -0.416], [0.141, -0.990]], 3)


@verify("printed-pairs-are-off-the-unit-circle")
def off_the_circle() -> Evidence:
    printed = np.array([[0.010, 0.999], [0.020, 0.999], [0.030, 0.999], [0.954, 0.297]])
    slack = 2 * 0.0005 * np.abs(printed).sum(-1) + 5e-7
    outside = np.abs((printed**2).sum(-1) - 1) > slack
    right = close("sin^2 + cos^2 of the table", TABLE[:, 2] ** 2 + TABLE[:, 3] ** 2, np.ones(50), ROUNDING)
    return erratum("four printed pairs come from one angle each", np.zeros(4), outside, right)


@verify("dimensions-2-and-3-of-positions-1-to-3")
def second_pair() -> Evidence:
    printed = [[0.010, 0.999], [0.020, 0.999], [0.030, 0.999]]
    right = all_of(
        rounds_to("for d_model = 128", TABLE[1:4, 2:4], [[0.762, 0.648], [0.987, -0.160], [0.517, -0.856]], 3),
        rounds_to("the printed sines are those of d_model = 4", NARROW[1:4, 2], [0.010, 0.020, 0.030], 3),
        rounds_to("whose cosine at position 1 is 1.000", NARROW[1, 3], 1.0, 3),
    )
    return erratum("dimensions 2 and 3", printed, TABLE[1:4, 2:4], right, by=0.4)


@verify("position-49-has-a-negative-sine")
def position_49() -> Evidence:
    right = rounds_to("sin 49 and cos 49", TABLE[49, :2], [-0.954, 0.301], 3)
    return erratum("position 49, dimensions 0 and 1", [0.954, 0.297], TABLE[49, :2], right, by=0.003)


@verify("position-49-dimensions-2-and-3-belong-to-position-50")
def position_50() -> Evidence:
    right = all_of(
        rounds_to("for d_model = 128", TABLE[49, 2:4], [-1.000, 0.021], 3),
        rounds_to("position 50 of d_model = 4", NARROW[50, 2:4], [0.479, 0.878], 3),
    )
    return erratum("position 49, dimensions 2 and 3", [0.479, 0.878], TABLE[49, 2:4], right, by=0.5)


@verify("row-1-of-width-8-has-sin-one-tenth")
def width_8_row_1() -> Evidence:
    row = sinusoid(np.array([1]), 8)[0]
    right = all_of(
        close("dimensions 2 and 3", row[2:4], np.array([np.sin(0.1), np.cos(0.1)]), ROUNDING),
        close("sin 0.01 stands in dimension 4", row[4], np.sin(0.01), ROUNDING),
        close("10000^(2/8)", 1 / frequencies(8)[1], 10, 1e-12),
    )
    return erratum("row 1, dimensions 2 and 3", [np.sin(0.01), np.cos(0.01)], row[2:4], right, by=0.004)


@verify("row-2-of-width-8-has-sin-one-fifth")
def width_8_row_2() -> Evidence:
    row = sinusoid(np.array([2]), 8)[0]
    right = close("dimensions 2 and 3", row[2:4], np.array([np.sin(0.2), np.cos(0.2)]), ROUNDING)
    return erratum("row 2, dimensions 2 and 3", [np.sin(0.02), np.cos(0.02)], row[2:4], right, by=0.01)


# --- the seeded visualisation demo (002 Attention visualisation) ----------------------------------

CAT = np.array([-0.752135, 1.648723, -0.392479, -1.403607, -0.727881, -0.559430, -0.768839, 0.762445])
THE_AND_CAT = np.array(
    [
        [-0.837125, -0.922390, 1.811318, 0.160565, 0.367249, 0.175411, 1.385161, -0.445852],
        [-1.202446, 0.707812, -1.075886, 0.535655, 1.175368, 0.561174, -0.452748, -0.771778],
    ]
)


@verify("cat-attends-mainly-to-itself-in-the-demo")
def seeded_demo() -> Evidence:
    _, weights = attention(CAT[None], THE_AND_CAT, THE_AND_CAT)
    right = all_of(
        close("weights of 'cat'", weights[0], [0.199508, 0.800492], 1e-5, "vectors of six digits"),
        rounds_to("as its own table prints them", weights[0], [0.20, 0.80], 2),
    )
    return erratum("weights of 'cat' on 'The' and itself", [0.55, 0.45], weights[0], right, by=0.3)


@verify("rows-of-weights-sum-to-one-columns-do-not")
def demo_rows() -> Evidence:
    query, key = np.random.default_rng(42).standard_normal((2, 5, 8))
    _, weights = attention(query, key, key, causal_mask(5))
    return all_of(
        close("sums over keys", weights.sum(-1), np.ones(5), ROUNDING),
        true("sums over queries are others", np.abs(weights.sum(0) - 1).max() > 0.1, got=weights.sum(0)),
    )


@verify("a-printed-row-may-sum-to-101-percent")
def printed_row() -> Evidence:
    weights = softmax(np.log([0.331, 0.236, 0.116, 0.317]))
    printed = np.round(weights, 2)
    return all_of(
        close("the weights sum to 1", weights.sum(), 1, ROUNDING),
        close("two digits of each do not", printed.sum(), 1.01, ROUNDING),
    )


@verify("the-printer-shows-the-upper-left-corner")
def upper_left() -> Evidence:
    weights = np.full((12, 12), 1 / 12)
    shown = weights[:10, :10]
    names = [f"T{i}" for i in range(len(shown))]
    return all_of(
        same("names of its rows", (names[0], names[-1], len(set(names))), ("T0", "T9", 10)),
        same("values of a row", {f"{w:.2f}" for w in shown[0]}, {"0.08"}),
        rounds_to("a truncated row no longer sums to 1", shown.sum(-1), np.full(10, 0.83), 2),
    )


@verify("the-last-row-sees-all-words")
def last_row() -> Evidence:
    query, key = np.random.default_rng(42).standard_normal((2, 5, 8))
    _, weights = attention(query, key, key, causal_mask(5))
    return all_of(
        true("row 'mat' has no zero", weights[-1].min() > 0, got=weights[-1], expected="> 0"),
        same("the upper right triangle is zero", np.triu(weights, 1), np.zeros((5, 5))),
    )


@verify("the-demo-loss-starts-near-ln-1000")
def demo_loss() -> Evidence:
    rng, bound = np.random.default_rng(0), (6 / (128 + 1000)) ** 0.5
    states = rng.standard_normal((100, 128))
    logits = states @ rng.uniform(-bound, bound, (128, 1000))
    loss = float(cross_entropy(logits, rng.integers(3, 1000, 100)))
    return all_of(
        close(
            "loss of an untrained model over 1000 words",
            loss,
            np.log(1000),
            0.2,
            "the logits' variance adds half of it",
        ),
        rounds_to("ln 1000 and the logits' half variance", np.log(1000) + 128 * bound**2 / 3 / 2, 7.0, 1),
    )


@verify("the-row-of-love-has-the-input-i")
def row_of_love() -> Evidence:
    start, i, love, ai = range(4)
    inputs, labels = shift(np.array([[start, i, love, ai]]))
    row = int(np.flatnonzero(labels[0] == love)[0])
    right = same("the row that must produce 'love' is fed 'I'", inputs[0, row], i)
    return erratum("the query word of the row that attends to the source of 'love'", love, int(inputs[0, row]), right)


@verify("love-is-produced-from-the-state-of-i")
def state_of_i() -> Evidence:
    start, i, love, ai = range(4)
    inputs, labels = shift(np.array([[start, i, love, ai]]))
    return same(
        "pairs of input and label", list(zip(inputs[0], labels[0], strict=True)), [(start, i), (i, love), (love, ai)]
    )


# --- sentences ------------------------------------------------------------------------------------

# The documents' own sentences, quoted so that their characters can be counted.
NEIGHBOUR = "那个昨天在公园里遛狗的男人是我的邻居"
CAPITAL = ("北京", "是", "中国", "的", "首都")


@verify("man-and-neighbour-are-three-characters-apart")
def man_and_neighbour() -> Evidence:
    man, neighbour = NEIGHBOUR.index("男人"), NEIGHBOUR.index("邻居")
    determiner = NEIGHBOUR.index("那")
    right = all_of(
        same("characters of the sentence", len(NEIGHBOUR), 18),
        same("between 'man' and 'neighbour'", neighbour - man - len("男人"), 3),
        true("the long gap lies before 'man'", man - determiner - 2 > 3 * 2, got=man - determiner - 2, expected="> 6"),
    )
    return erratum("many words between 'man' and 'neighbour'", True, neighbour - man - len("男人") > 4, right)


@verify("the-capital-sentence-has-eight-characters-and-five-words")
def capital() -> Evidence:
    counts = [len("".join(CAPITAL)), len(CAPITAL)]
    right = same("characters and words", counts, [8, 5])
    return erratum("6 tokens, by characters and by words", [6, 6], counts, right)


@verify("a-causal-row-sees-its-own-character")
def sees_itself() -> Evidence:
    visible = causal_mask(9).sum(-1)[[4, 8]]
    return erratum(
        "keys of the fifth and of the last of 9 characters", [4, 8], visible, same("with their own", visible, [5, 9])
    )


@verify("position-100-is-the-101st-word")
def hundredth_word() -> Evidence:
    label = np.eye(1000)[100]
    words_before = int(np.argmax(label))
    right = same("the 100th word has index 99", int(np.argmax(np.eye(1000)[99])) + 1, 100)
    return erratum("ordinal of the word at zero-based position 100", 100, words_before + 1, right)


# --- sketches -------------------------------------------------------------------------------------


@verify("illustrated-dropout-masks-drop-two-of-five")
def dropout_masks() -> Evidence:
    neurons = "ABCDE"
    kept, dropped = ("ACD", "BCE", "ABD"), ("BE", "AD", "CE")
    return all_of(
        same(
            "kept and dropped sets complete each other",
            [set(neurons) - set(k) for k in kept],
            [set(d) for d in dropped],
        ),
        same("rate", {len(d) / len(neurons) for d in dropped}, {0.4}),
    )


@verify("the-ten-percent-illustration-drops-thirty")
def thirty_percent() -> Evidence:
    before = np.array([0.5, 0.3, 0.2, 0.8, 0.2, 0.1, 0.6, 0.4, 0.1, 0.7])
    after = np.array([0.5, 0.3, 0, 0.8, 0.2, 0, 0.6, 0.4, 0.1, 0])
    rate = float(((after == 0) & (before != 0)).mean())
    right = same("a rate of 10% drops one of ten", before.size * 0.1, 1)
    return erratum("share of zeroed outputs", 0.1, rate, right, by=0.1)


@verify("survivors-are-scaled-by-the-keep-rate")
def survivors() -> Evidence:
    before = np.array([0.5, 0.3, 0.2, 0.8, 0.2, 0.1, 0.6, 0.4, 0.1, 0.7])
    keep = ~np.isin(np.arange(10), (2, 5, 9))
    inverted = np.where(keep, before / 0.9, 0)
    return all_of(
        close("unscaled, the printed convention: sum", np.where(keep, before, 0).sum(), 2.9, ROUNDING),
        close("inverted dropout: sum", inverted.sum(), 2.9 / 0.9, ROUNDING),
        rounds_to("inverted dropout: survivors", inverted[[0, 1, 3]], [0.5556, 0.3333, 0.8889], 4),
        close("the classic variant multiplies by 0.9 at test time", (before * 0.9).sum() / before.sum(), 0.9, ROUNDING),
    )


@verify("the-warmup-sketch-is-not-symmetric")
def warmup_sketch() -> Evidence:
    rate = [warmup_rate(step, 512, 4000) for step in (2000, 4000, 6000, 8000, 16_000)]
    before, after = rate[1] - rate[0], rate[1] - rate[2]
    return all_of(
        close("linear: half the rate at half the warm-up", rate[0] / rate[1], 0.5, ROUNDING),
        true("the descent is less than half as steep as the ascent", after < before / 2, got=(before, after)),
        rounds_to("rate at 2 and 4 times the warm-up", np.array(rate[3:]) / rate[1], [0.70711, 0.5], 5),
    )

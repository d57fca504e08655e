"""Mutants of whole models whose mistake the text of their file shows by itself."""

from __future__ import annotations

from conformance.mutants.source import ALIBI, QUANTILES, RELATIVE, TAGGER, VIT, changed

changed(
    "LowestForTheMiddle",
    QUANTILES,
    "(self.levels - 0.5).abs().argmin()",
    "(self.levels - 0.5).argmin()",
    breaks=("results-that-are-nearest-are-chosen-by-distance",),
    defect="The lowest level is taken for the one in the middle.",
)
changed(
    "NumbersOfOneProcess",
    TAGGER,
    "class Tagger(",
    "def number(word, words=50):\n    return hash(word) % words\n\n\nclass Tagger(",
    breaks=("results-stay-the-same-in-every-process",),
    defect="Words get their numbers from Python's hash, which is another one in every process.",
)
changed(
    "LabelsOfTheOtherEnd",
    TAGGER,
    "class Tagger(",
    "def cut(ids, labels, longest=512):\n    ids, labels = ids[-longest:], labels[:longest]\n"
    "    return ids, labels\n\n\nclass Tagger(",
    breaks=("results-stay-beside-their-tokens",),
    defect="Of long texts the words keep their end, and the labels their beginning.",
)
changed(
    "LastGroupOfTexts",
    TAGGER,
    "class Tagger(",
    "def groups_of(texts, most=64):\n    groups, group = [], []\n    for text in texts:\n"
    "        if len(group) + len(text) > most:\n            groups.append(group)\n            group = []\n"
    "        group.append(text)\n    return groups\n\n\nclass Tagger(",
    breaks=("results-of-the-last-group-are-kept",),
    defect="The last group of texts is handed on to nobody.",
)
changed(
    "OnePlaceMoreOfARank",
    TAGGER,
    "class Tagger(",
    "def hits(scores, own, k=5):\n    rank = (scores > own[:, None]).sum(1)\n    return rank <= k\n\n\nclass Tagger(",
    breaks=("results-of-ranks-count-the-first-k",),
    defect="A rank that counts from 0 is a hit at k, too.",
)
changed(
    "HeadsStayWhereTheyStand",
    RELATIVE,
    "(weights @ v).transpose(1, 2).reshape(batch, length, width)",
    "(weights @ v).reshape(batch, length, width)",
    breaks=("attention-moves-its-heads-back",),
    defect="The heads are joined where they stand, and each position gets parts of others.",
)
changed(
    "EndOfLongTexts",
    TAGGER,
    "class Tagger(",
    "EOS = 2\n\n\ndef encoded(ids, longest=512):\n    return (ids + [EOS])[:longest]\n\n\nclass Tagger(",
    breaks=("results-of-long-texts-have-their-end",),
    defect="Texts are cut when the sign of their end stands behind them.",
)
changed(
    "WindowWithItsTarget",
    QUANTILES,
    "class QuantileForecaster(",
    "def window(series, t, length, horizon):\n    past = series[t - length + 1 : t + 1]\n"
    "    future = series[t : t + horizon]\n    return past, future\n\n\nclass QuantileForecaster(",
    breaks=("results-of-windows-end-before-their-target",),
    defect="The window of the past holds the first step of what is to be forecast.",
)
changed(
    "LevelsOfTheOtherSide",
    QUANTILES,
    "class QuantileForecaster(",
    "def pinball(pred, target, q):\n    error = pred - target[..., None]\n"
    "    return torch.maximum(q * error, (q - 1) * error).mean()\n\n\nclass QuantileForecaster(",
    breaks=("results-of-levels-weigh-errors-by-their-sign",),
    defect="The error of a quantile loss has the other sign.",
)
changed(
    "SharesOfShares",
    VIT,
    "        return self.head(self.norm(x[:, 0]))\n",
    "        return self.head(self.norm(x[:, 0])).softmax(-1)\n\n"
    "    def predict(self, images):\n        return self(images).softmax(-1)\n",
    breaks=("results-of-shares-meet-one-softmax",),
    defect="forward gives shares, and what predicts takes a softmax of them.",
)
changed(
    "StartsWrittenOver",
    ALIBI,
    "                nn.init.normal_(weight, std=(2 * n_layers * d_model) ** -0.5)\n",
    "                nn.init.normal_(weight, std=(2 * n_layers * d_model) ** -0.5)\n        self.apply(self._start)\n\n"
    "    def _start(self, part):\n        if isinstance(part, nn.Linear):\n"
    "            nn.init.normal_(part.weight, std=part.in_features**-0.5)\n",
    breaks=("results-of-first-numbers-are-kept",),
    defect="What adds to the stream is made to start smaller, and gets other numbers afterwards.",
)
changed(
    "PerplexityOfBaseTwo",
    TAGGER,
    "class Tagger(",
    "def perplexity(logits, labels):\n    loss = nn.functional.cross_entropy(logits, labels)\n    return 2**loss\n\n\n"
    "class Tagger(",
    breaks=("results-of-perplexities-have-the-base-of-their-loss",),
    defect="The perplexity is two to a loss of natural logarithms.",
)
changed(
    "MarginOfTwoAnswers",
    TAGGER,
    "class Tagger(",
    "def margin(pol_c, pol_r, ref_c, ref_r):\n    return (pol_c - ref_c) - (pol_r - ref_c)\n\n\nclass Tagger(",
    breaks=("results-of-margins-are-of-one-answer",),
    defect="The rejected answer is compared with what the reference says of the chosen one.",
)
changed(
    "BeamsOfTheLastWord",
    TAGGER,
    "class Tagger(",
    "def beam_search(live, words, k):\n"
    "    found = [(lp, seq + [word]) for (score, seq) in live for lp, word in words(seq)]\n"
    "    return sorted(found, key=lambda one: -one[0])[:k]\n\n\nclass Tagger(",
    breaks=("results-of-beams-add-their-scores",),
    defect="Beams are ranked by their last word alone.",
)
changed(
    "PairsOfABatchOnce",
    TAGGER,
    "class Tagger(",
    "def count(table, labels, predictions):\n    table[labels, predictions] += 1\n\n\nclass Tagger(",
    breaks=("results-of-pairs-count-each-time",),
    defect="A label and a prediction that meet twice in a batch count once.",
)
changed(
    "GainsOfTheNaturalLogarithm",
    TAGGER,
    "class Tagger(",
    "def mean_ndcg(ranks, k):\n"
    "    ndcg = 0.0\n"
    "    for rank in ranks:\n"
    "        ndcg += (rank < k) / math.log(rank + 2)\n"
    "    return ndcg / len(ranks)\n"
    "\n\nclass Tagger(",
    breaks=("results-of-gains-use-the-logarithm-of-two",),
    defect="A gain is divided by a natural logarithm.",
)
changed(
    "SortedOnceMore",
    TAGGER,
    "class Tagger(",
    "def encode_all(model, texts):\n"
    "    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))\n"
    "    found = []\n"
    "    for text in [texts[i] for i in order]:\n"
    "        found.append(model(text))\n"
    "    return [found[i] for i in order]\n"
    "\n\nclass Tagger(",
    breaks=("results-of-rows-return-to-their-order",),
    defect="What is made of sorted rows is sorted once more, and belongs to other rows.",
)
changed(
    "WarmUpOfAHalf",
    TAGGER,
    "class Tagger(",
    "def noam(step, warmup, d_model):\n"
    "    return d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)\n"
    "\n\nclass Tagger(",
    breaks=("results-of-warm-ups-meet-their-fall",),
    defect="The rate rises with the root of the warm-up, far above where it falls.",
)
changed(
    "MaskingIsThrownAway",
    TAGGER,
    "class Tagger(",
    "def hide(scores, padding):\n    scores.masked_fill(padding, -1e9)\n    return scores\n\n\nclass Tagger(",
    breaks=("results-of-methods-are-kept",),
    defect="What masked_fill gives is thrown away.",
)
changed(
    "CrossEntropyOfShares",
    TAGGER,
    "class Tagger(",
    "def loss_of(logits, labels):\n"
    "    return nn.functional.cross_entropy(logits.softmax(-1), labels)\n"
    "\n\nclass Tagger(",
    breaks=("results-of-cross-entropies-are-of-logits",),
    defect="A cross-entropy is given a softmax.",
)
changed(
    "SpansAreLeftOpen",
    TAGGER,
    "class Tagger(",
    "def spans_of(tags):\n"
    "    spans, start = [], None\n"
    "    for i, tag in enumerate(tags):\n"
    "        if start is not None and tag != 'I':\n"
    "            spans.append((start, i))\n"
    "            start = None\n"
    "        if tag == 'B':\n"
    "            start = i\n"
    "    return spans\n"
    "\n\nclass Tagger(",
    breaks=("results-of-last-spans-are-closed",),
    defect="A span that goes on to the last tag is never put down.",
)

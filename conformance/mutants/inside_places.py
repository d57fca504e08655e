"""Mutants of whole models whose positions are wrong inside: vectors, biases, values; and experts that do not count."""

from __future__ import annotations

from conformance.mutants.source import (
    ALIBI,
    BERT,
    LLAMA,
    MIXTURE,
    QUANTILES,
    RELATIVE,
    RESTORER,
    TAGGER,
    TRANSLATOR,
    VIT,
    changed,
)

PLACES = "positions-differ-from-place-to-place"
WAVES = "positions-have-features-of-their-own"
VALUES = "attention-leaves-values-unrotated"
DISTANCE = "attention-relative-bias-depends-on-distance"
EVERYWHERE = "attention-relative-bias-reaches-every-layer"
SIDES = "attention-relative-bias-tells-before-from-after"
SOFTMAX = "experts-are-weighted-by-one-softmax"
COUNT = "experts-that-are-chosen-count"

changed(
    "LastPlaceForAll",
    TRANSLATOR,
    "self.pe[: x.shape[1]]",
    "self.pe[x.shape[1] - 1]",
    breaks=(PLACES,),
    defect="Every token gets the position vector of the last place.",
)
changed(
    "FirstPlaceForAll",
    BERT,
    "self.position_embeddings(places)",
    "self.position_embeddings(places[:1])",
    breaks=(PLACES,),
    defect="Every token is looked up at place 0.",
)
changed(
    "RowsForColumns",
    RESTORER,
    "sines(columns, d_model // 2)",
    "sines(rows, d_model // 2)",
    breaks=("positions-are-told-apart",),
    defect="Both halves of the positions tell the row of a patch.",
)
changed(
    "PlacesStayRandom",
    VIT,
    "self.pos_embedding = nn.Parameter(torch.randn(1, count + 1, d_model) * 0.02)",
    'self.register_buffer("pos_embedding", torch.randn(1, count + 1, d_model) * 0.02)',
    breaks=("positions-that-no-formula-makes-are-learned",),
    defect="The positions are a buffer of random numbers, which nothing trains.",
)
changed(
    "OneFrequency",
    TRANSLATOR,
    "torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))",
    "torch.exp(torch.zeros(d_model // 2) * (-math.log(10000.0) / d_model))",
    breaks=(WAVES,),
    defect="All sines of the positions have one frequency.",
)
changed(
    "SinesOnly",
    TRANSLATOR,
    "torch.cos(places * rates)",
    "torch.sin(places * rates)",
    breaks=(WAVES,),
    defect="The cosines of the positions are sines, too.",
)
changed(
    "PositionsScaledAsWords",
    TRANSLATOR,
    "x = x + self.pe[: x.shape[1]]",
    "x = (x / x.shape[-1] + self.pe[: x.shape[1]]) * x.shape[-1] ** 0.5",
    breaks=("positions-are-added-to-scaled-words",),
    defect="The factor sqrt(d) multiplies the positions as well as words that are small.",
)
changed(
    "RotatesValues",
    LLAMA,
    "q, k = rotate(q, cos, sin), rotate(k, cos, sin)",
    "q, k, v = rotate(q, cos, sin), rotate(k, cos, sin), rotate(v, cos, sin)",
    breaks=(VALUES,),
    defect="The values are rotated by their positions.",
)
changed(
    "BiasInTheFirstLayerOnly",
    RELATIVE,
    "            x = layer(x, bias)",
    "            x, bias = layer(x, bias), torch.zeros(())",
    breaks=(EVERYWHERE,),
    defect="Only the first layer gets the table of relative biases.",
)
changed(
    "BiasOfSums",
    RELATIVE,
    "places[None, :] - places[:, None]",
    "places[None, :] + places[:, None]",
    breaks=(DISTANCE,),
    defect="The bias is looked up by the sum of two positions.",
)
changed(
    "OneBiasForAll",
    RELATIVE,
    "places[None, :] - places[:, None]",
    "places[None, :] - places[None, :].expand(length, -1)",
    breaks=(DISTANCE,),
    defect="The distance of a key to itself is looked up: all pairs get one bias.",
)
changed(
    "OneBucketAhead",
    RELATIVE,
    "distance.abs().clamp(max=side - 1) + side * (distance > 0)",
    "(-distance).clamp(0, side - 1)",
    breaks=(SIDES,),
    defect="The buckets are those of a decoder: all keys behind the query share that of distance 0.",
)
changed(
    "SoftmaxOfProbabilities",
    MIXTURE,
    "scores = self.router(flat)\n",
    "scores = self.router(flat).softmax(-1)\n",
    breaks=(SOFTMAX,),
    defect="The softmax of the chosen experts is taken of probabilities.",
)
changed(
    "LastExpertWritesOver",
    MIXTURE,
    "out = out.index_add(0, token, weights[token, rank, None] * expert(flat[token]))",
    "out[token] = weights[token, rank, None] * expert(flat[token])",
    breaks=(COUNT,),
    defect="What an expert gives is written over what another gave for the token.",
)
changed(
    "FirstExpertForAll",
    MIXTURE,
    "* expert(flat[token])",
    "* self.experts[0](flat[token])",
    breaks=(COUNT,),
    defect="The first expert is asked in the place of each.",
)
changed(
    "SharesOfAllExperts",
    MIXTURE,
    "weights = best.softmax(-1)",
    "weights = scores.softmax(-1).gather(-1, chosen)",
    breaks=("experts-weights-sum-to-one-where-the-code-says",),
    defect="The weights of the chosen experts are their shares of the softmax over all.",
)
changed(
    "BalanceOfTheLastBlock",
    MIXTURE,
    "aux_loss = aux_loss + balance",
    "aux_loss = balance",
    breaks=("results-of-all-blocks-are-added-up",),
    defect="Only the last block's loss for balance is kept.",
)
changed(
    "ScalesWhatIsNotThere",
    ALIBI,
    'name.endswith(("attention.out.weight", "down.weight"))',
    'name.endswith("c_proj.weight")',
    breaks=("modules-that-are-looked-for-by-name-exist",),
    defect="Weights are looked for by the names of another model, and none is scaled.",
)
changed(
    "StartsByAMean",
    TAGGER,
    "nn.init.normal_(part.weight, std=0.02)",
    "nn.init.normal_(part.weight, 0.02)",
    breaks=("modules-start-by-a-deviation-and-not-a-mean",),
    defect="The deviation of the start is handed over as its mean: the weights have a deviation of 1.",
)
changed(
    "NameInAConditionOfItsOwn",
    ALIBI,
    'if name.endswith(("attention.out.weight", "down.weight")):',
    'is_last = name.endswith("c_proj.weight")\n            if is_last:',
    breaks=("modules-that-are-looked-for-by-name-exist",),
    defect="Weights are looked for by the names of another model, in a line of its own.",
)
changed(
    "StreamIsDropped",
    MIXTURE,
    "x + self.drop_path(mixed)",
    "self.drop_path(x + mixed)",
    breaks=("model-keeps-the-stream-where-branches-are-dropped",),
    defect="Where a branch is dropped, the stream is dropped with it.",
)
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

"""Mutants of whole models whose positions are wrong inside: vectors, biases, values; and experts that do not count."""

from __future__ import annotations

from conformance.mutants.source import (
    ALIBI,
    BERT,
    LLAMA,
    MIXTURE,
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

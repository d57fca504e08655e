"""Mutants of whole models whose inside is wrong: attention, norms, feed-forward networks and the stream of blocks."""

from __future__ import annotations

from conformance.mutants.source import ALIBI, BERT, GPT, LLAMA, MIXTURE, RESTORER, TRANSLATOR, VIT, changed

AXIS = "attention-softmax-runs-over-the-keys"
SCALE = "attention-scale-is-one-over-sqrt-d-head"
SUM = "attention-sums-values-over-the-keys"
TOKEN = "attention-key-and-value-are-of-one-token"
OWN = "attention-projects-query-key-and-value-apart"
HEADS = "attention-heads-have-their-own-projections"
SPLIT = "attention-heads-keep-tokens-apart"
ROW = "attention-stays-in-its-batch-row"
MERGE = "attention-merges-heads-of-one-token"
BEFORE = "attention-masks-before-the-softmax"
HIDES = "attention-mask-hides-completely"
EVERY = "attention-uses-every-mask"
DIAGONAL = "attention-causal-mask-keeps-the-diagonal"
GROUPS = "attention-groups-are-interleaved"
TURNS = "attention-rotates-queries-and-keys"
ANGLE = "attention-rotates-by-position"
LENGTHS = "attention-rotation-keeps-lengths"
DISTANCE = "attention-rotated-scores-depend-on-distance"
BASE = "attention-rotation-angles-are-those-of-a-base"
SLOPE = "attention-linear-bias-falls-with-distance"
NORM = "norm-is-its-formula"
NETWORK = "feed-forward-function-stands-between-its-maps"
GATE = "feed-forward-gate-is-used"
MADE = "modules-that-are-made-run"
USED = "results-that-are-computed-are-used"
ORDER = "blocks-run-once-and-in-order"
ALIKE = "blocks-are-wired-alike"
RESIDUAL = "sublayers-have-a-residual"
ONCE = "sublayers-add-their-input-once"
INPUT = "sublayers-add-their-own-input"
MEMORY = "decoder-layers-read-one-memory"

changed(
    "SoftmaxAlongTheQueries",
    BERT,
    "scores.softmax(-1)",
    "scores.softmax(-2)",
    breaks=(AXIS,),
    defect="The softmax runs along the queries.",
)
changed(
    "SoftmaxOverTheHeads",
    GPT,
    "scores.masked_fill(~visible, -1e30).softmax(-1)",
    "scores.masked_fill(~visible, -1e30).softmax(1)",
    breaks=(AXIS,),
    defect="The softmax runs along the heads.",
)
changed(
    "ScaledByTheWidth",
    TRANSLATOR,
    "math.sqrt(width // self.n_heads)\n",
    "math.sqrt(width)\n",
    breaks=(SCALE,),
    defect="Scores are divided by the root of the model's width, not of a head's.",
)
changed(
    "ScaledByTheLength",
    GPT,
    "math.sqrt(q.shape[-1])",
    "math.sqrt(q.shape[-2])",
    breaks=(SCALE,),
    defect="Scores are divided by the root of the number of queries.",
)
changed(
    "WeightsTransposed",
    BERT,
    "(weights @ v)",
    "(weights.transpose(-1, -2) @ v)",
    breaks=(SUM,),
    defect="The values are summed over the queries.",
)
changed(
    "ValuesOfTheNextToken",
    BERT,
    "heads(self.value(x))",
    "heads(self.value(x)).roll(-1, 2)",
    breaks=(TOKEN,),
    defect="The weight of a key multiplies the value of the token behind it.",
)
changed(
    "ValuesAreKeys",
    TRANSLATOR,
    "heads(self.w_v(memory))",
    "heads(self.w_k(memory))",
    breaks=(OWN, MADE),
    defect="The values are projected by the matrix of the keys.",
)
changed(
    "OneProjectionForAllHeads",
    BERT,
    "heads(self.query(x))",
    "F.linear(heads(x), self.query.weight[: width // self.num_heads, : width // self.num_heads])",
    breaks=(HEADS,),
    defect="All heads project their queries by one and the same block of the matrix.",
)
changed(
    "HeadsCutAcrossTokens",
    TRANSLATOR,
    "x.view(batch, -1, self.n_heads, width // self.n_heads).transpose(1, 2)",
    "x.view(batch, self.n_heads, -1, width // self.n_heads)",
    breaks=(SPLIT,),
    defect="The heads are cut by a view without a transpose, so that a head mixes tokens.",
)
changed(
    "KeysOfTheOtherRow",
    BERT,
    "heads(self.key(x))",
    "heads(self.key(x)).flip(0)",
    breaks=(ROW,),
    defect="The queries of one sentence meet the keys of another.",
)
changed(
    "MergedWithoutTranspose",
    BERT,
    "(weights @ v).transpose(1, 2).reshape(",
    "(weights @ v).reshape(",
    breaks=(MERGE,),
    defect="The heads are merged without a transpose.",
)
changed(
    "MasksTheWeights",
    GPT,
    "scores.masked_fill(~visible, -1e30).softmax(-1)",
    "scores.softmax(-1).masked_fill(~visible, 0.0)",
    breaks=(BEFORE,),
    defect="The mask is applied behind the softmax.",
)
changed(
    "HidesALittle",
    GPT,
    "-1e30",
    "-10.0",
    breaks=(HIDES,),
    defect="Hidden scores are -10, which leaves the keys some weight.",
)
changed(
    "MaskMultiplied",
    GPT,
    "scores.masked_fill(~visible, -1e30).softmax(-1)",
    "(scores * visible).softmax(-1)",
    breaks=(HIDES,),
    defect="Scores are multiplied by the mask, and a score of 0 hides nothing.",
)
changed(
    "MaskedScoresThrownAway",
    GPT,
    "weights = scores.masked_fill(~visible, -1e30).softmax(-1)",
    "scores.masked_fill(~visible, -1e30)\n        weights = scores.softmax(-1)",
    breaks=(EVERY,),
    defect="What masked_fill returns is thrown away.",
)
changed(
    "OwnTokenHidden",
    GPT,
    ".tril(keys - length)",
    ".tril(keys - length - 1)",
    breaks=(DIAGONAL,),
    defect="The mask hides each token from itself.",
)
changed(
    "GroupsRepeatedInTurn",
    LLAMA,
    "k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)",
    "k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1)",
    breaks=(GROUPS,),
    defect="The key heads are repeated one behind the other, so that query head i uses key head i % G.",
)
changed(
    "KeysAreNotRotated",
    LLAMA,
    "q, k = rotate(q, cos, sin), rotate(k, cos, sin)",
    "q = rotate(q, cos, sin)",
    breaks=(TURNS,),
    defect="The queries are rotated and the keys are not.",
)
changed(
    "OneAngleForAllTokens",
    LLAMA,
    "torch.outer(torch.arange(max_seq_len), frequencies)",
    "torch.outer(torch.ones(max_seq_len), frequencies)",
    breaks=(ANGLE,),
    defect="Every token is rotated by the angles of position 1.",
)
changed(
    "BiasGrowsWithDistance",
    ALIBI,
    "scores - self.slopes[:, None, None] * distance",
    "scores + self.slopes[:, None, None] * distance",
    breaks=(SLOPE,),
    defect="The linear bias is added, so that far tokens are preferred to near ones.",
)
changed(
    "SumOfSquares",
    LLAMA,
    "x.square().mean(-1, keepdim=True)",
    "x.square().sum(-1, keepdim=True)",
    breaks=(NORM,),
    defect="The norm divides by the root of the sum of squares.",
)
changed(
    "NoFunctionBetween",
    BERT,
    "F.gelu(self.intermediate(x))",
    "self.intermediate(x)",
    breaks=(NETWORK,),
    defect="Nothing stands between the two maps of the feed-forward network.",
)
changed(
    "FunctionBehindBothMaps",
    TRANSLATOR,
    "self.outer(self.dropout(self.inner(x).relu()))",
    "self.outer(self.dropout(self.inner(x))).relu()",
    breaks=(NETWORK,),
    defect="The function stands behind the second map.",
)
changed(
    "GateIsNotUsed",
    ALIBI,
    "value * F.gelu(gate)",
    "value * F.gelu(value)",
    breaks=(GATE,),
    defect="The value gates itself, and the gate is split off for nothing.",
)
changed(
    "NormIsNotCalled",
    GPT,
    "self.attention(self.norm1(x), real, past)",
    "self.attention(x, real, past)",
    breaks=(MADE,),
    defect="The norm before the attention is made and never called.",
)
changed(
    "NetworkThrownAway",
    TRANSLATOR,
    "return self.norm2(x + self.dropout(self.feed_forward(x)))",
    "self.dropout(self.feed_forward(x))\n        return self.norm2(x)",
    breaks=(USED,),
    defect="What the feed-forward network computes is added to nothing.",
)
changed(
    "FirstBlockAgain",
    LLAMA,
    "x = layer(x, self.rope_cos",
    "x = self.layers[0](x, self.rope_cos",
    breaks=(ORDER,),
    defect="The first layer runs in the place of each.",
)
changed(
    "OneLayerReadsItself",
    TRANSLATOR,
    "x = layer(x, memory, src_mask, tgt_mask)",
    "x = layer(x, x, tgt_mask, tgt_mask) if layer is self.decoder[1] else layer(x, memory, src_mask, tgt_mask)",
    breaks=(ALIKE,),
    defect="One layer of the decoder gets its own stream as memory.",
)
changed(
    "OneLayerReadsBackwards",
    TRANSLATOR,
    "x = layer(x, memory, src_mask, tgt_mask)",
    "x = layer(x, memory.flip(1) if layer is self.decoder[2] else memory, src_mask, tgt_mask)",
    breaks=(MEMORY,),
    defect="One layer of the decoder gets the memory from its end.",
)
changed(
    "InputAddedTwice",
    GPT,
    "x = x + self.drop(mixed)",
    "x = x + x + self.drop(mixed)",
    breaks=(ONCE,),
    defect="The input of the attention is added to its result twice.",
)
changed(
    "OldInputAdded",
    LLAMA,
    "x = x + self.attention(self.attention_norm(x), cos, sin)\n        return x + self.feed_forward(self.ffn_norm(x))",
    "h = x + self.attention(self.attention_norm(x), cos, sin)\n        return x + self.feed_forward(self.ffn_norm(h))",
    breaks=(INPUT,),
    defect="The input of the attention is added to what the feed-forward network gives.",
)
changed(
    "NormOnOneBranch",
    BERT,
    "x = self.norm1(x + self.dropout(self.attention(x, mask)))",
    "x = x + self.norm1(self.dropout(self.attention(x, mask)))",
    breaks=("sublayers-of-a-block-are-normed-in-one-place",),
    defect="The norm of the attention stands on its branch, and that of the network on the sum.",
)
changed(
    "NormalisedInputAdded",
    ALIBI,
    "return x + self.feed_forward(self.norm2(x))",
    "x = self.norm2(x)\n        return x + self.feed_forward(x)",
    breaks=(INPUT,),
    defect="The network's normalised input is added to its result, the attention's as it was.",
)


changed(
    "AttentionResidualLost",
    LLAMA,
    "x = x + self.attention(self.attention_norm(x), cos, sin)",
    "x = self.attention(self.attention_norm(x), cos, sin)",
    breaks=(RESIDUAL,),
    defect="Nothing is added to what the attention gives; the feed-forward network keeps its residual.",
)
changed(
    "TurnsWithoutAMinus",
    LLAMA,
    "first * cos - second * sin",
    "first * cos + second * sin",
    breaks=(LENGTHS,),
    defect="The rotation lacks its minus, so that it stretches what it turns.",
)
changed(
    "TurnsKeysBackwards",
    LLAMA,
    "q, k = rotate(q, cos, sin), rotate(k, cos, sin)",
    "q, k = rotate(q, cos, sin), rotate(k, cos, -sin)",
    breaks=(DISTANCE,),
    defect="Keys are turned against the direction of queries.",
)
changed(
    "AnglesRiseWithThePair",
    LLAMA,
    "theta ** -(torch.arange(0, head_dim, 2) / head_dim)",
    "theta ** (torch.arange(0, head_dim, 2) / head_dim)",
    breaks=(BASE,),
    defect="The exponents of the angles lack their minus.",
)
changed(
    "OneLayerManyTimes",
    TRANSLATOR,
    "[EncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_encoder_layers)]",
    "[EncoderLayer(d_model, n_heads, d_ff, dropout)] * n_encoder_layers",
    breaks=("blocks-have-their-own-parameters",),
    defect="The encoder is one layer, as often as it should have layers.",
)
changed(
    "FirstExpertsWeightForBoth",
    MIXTURE,
    "weights[token, rank, None]",
    "weights[token, 0, None]",
    breaks=("experts-are-weighted-by-their-own-scores",),
    defect="Both experts of a token count as much as the first one should.",
)
changed(
    "GateAdded",
    LLAMA,
    "F.silu(self.w1(x)) * self.w3(x)",
    "F.silu(self.w1(x)) + self.w3(x)",
    breaks=("feed-forward-gate-multiplies",),
    defect="The gate is added.",
)
changed(
    "GateWithoutItsFunction",
    LLAMA,
    "F.silu(self.w1(x)) * self.w3(x)",
    "self.w1(x) * self.w3(x)",
    breaks=("feed-forward-gate-has-its-function",),
    defect="The gate multiplies as it is.",
)
changed(
    "FunctionOfTheProduct",
    LLAMA,
    "F.silu(self.w1(x)) * self.w3(x)",
    "F.silu(self.w1(x) * self.w3(x))",
    breaks=("feed-forward-gate-has-its-function",),
    defect="The function acts on the product of both maps.",
)
changed(
    "GeluWithoutItsHalf",
    BERT,
    "F.gelu(self.intermediate(x))",
    "(lambda gelu: gelu(self.intermediate(x)))(lambda x: x * (1 + torch.tanh(0.7979 * (x + 0.044715 * x**3))))",
    breaks=("feed-forward-function-is-what-it-is-called",),
    defect="The GELU by its approximation lacks its factor of one half.",
)
changed(
    "HalvesAdded",
    ALIBI,
    "value * F.gelu(gate)",
    "value + F.gelu(gate)",
    breaks=("feed-forward-gate-multiplies",),
    defect="The gate, one half of the first map, is added.",
)
changed(
    "ClassTokenBehindThePatches",
    VIT,
    "torch.cat((self.cls_token.expand(len(patches), -1, -1), patches), 1)",
    "torch.cat((patches, self.cls_token.expand(len(patches), -1, -1)), 1)",
    breaks=("class-token-is-read-where-it-stands",),
    defect="The class token is the last, and the first token is read.",
)
changed(
    "FeaturesAsPlaces",
    VIT,
    ".flatten(2).transpose(1, 2)",
    ".flatten(2).reshape(len(images), -1, self.cls_token.shape[-1])",
    breaks=("patches-are-pieces-of-the-image",),
    defect="Features and places of the patches are mixed by a reshape.",
)
changed(
    "PixelsOfOtherPatches",
    RESTORER,
    "permute(0, 3, 1, 4, 2, 5)",
    "permute(0, 3, 1, 2, 4, 5)",
    breaks=("patches-are-answered-where-they-were",),
    defect="The image of the answer is put together in another order than the patches were cut in.",
)

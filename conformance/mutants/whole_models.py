"""Mutants of whole models that break what holds for every model: repetition, batches, dropout, gradients, positions."""

from __future__ import annotations

from conformance.mutants.source import ALIBI, BERT, CLASSIFIER, GPT, LLAMA, MIXTURE, SPEECH, TRANSLATOR, VIT, changed

REPEATS = "model-evaluation-repeats-itself"
STATELESS = "model-keeps-no-state-between-calls"
APART = "model-rows-of-a-batch-are-apart"
ALONE = "model-answers-one-sentence-as-in-a-batch"
DROPS = "model-drops-only-in-training"
LAYERS = "model-has-the-layers-that-its-option-says"
RATE = "model-dropout-is-what-its-option-says"
GRADIENT = "model-every-parameter-gets-a-gradient"
START = "model-learns-from-its-start"
SLOPE = "model-gradients-agree-with-differences"
PIECES = "model-every-piece-of-a-result-is-read"
KEPT = "model-what-it-keeps-reaches-the-answer"
ORDER = "model-order-of-words-matters"
ONE_TOKEN = "model-takes-one-token-and-its-longest-input"
REFUSES = "model-refuses-tokens-outside-its-vocabulary"
STATE_DICT = "model-state-dict-makes-an-equal-model"
INPUTS = "model-leaves-its-inputs-alone"
PRECISIONS = "model-precisions-agree"
TYPES = "encoder-token-types-matter"
USED = "results-that-are-computed-are-used"
BLOCKS = "blocks-run-once-and-in-order"
NORM = "norm-is-its-formula"

changed(
    "DropsInEvaluation",
    CLASSIFIER,
    "self.dropout, self.training)",
    "self.dropout)",
    breaks=(REPEATS, DROPS),
    defect="F.dropout is not told the mode, so that it drops in evaluation, too.",
)
changed(
    "DropsNowhere",
    GPT,
    "self.drop(self.tokens(ids) + self.positions(places))",
    "self.eval().tokens(ids) + self.positions(places)",
    breaks=(DROPS,),
    defect="forward switches the model to evaluation mode, and nothing is dropped in training.",
)
changed(
    "RateInTheCode",
    GPT,
    "self.drop = nn.Dropout(dropout)\n        self.blocks",
    "self.drop = nn.Dropout(0.1)\n        self.blocks",
    breaks=(RATE,),
    defect="The dropout of the embedding has a rate of its own, whatever the option says.",
)
changed(
    "AlwaysTwoLayers",
    GPT,
    "for _ in range(n_layers)",
    "for _ in range(2)",
    breaks=(LAYERS,),
    defect="The number of layers is written into the code, whatever the option says.",
)
changed(
    "RateTurnedRound",
    TRANSLATOR,
    "self.outer = nn.Linear(d_ff, d_model)\n        self.dropout = nn.Dropout(dropout)",
    "self.outer = nn.Linear(d_ff, d_model)\n        self.dropout = nn.Dropout(1 - dropout)",
    breaks=(RATE,),
    defect="The rate is taken for the share that is kept.",
)
changed(
    "CarriesAMemory",
    GPT,
    "        presents = []\n",
    "        presents = []\n        x, self.memory = x + getattr(self, 'memory', 0.0), x.detach().mean((0, 1))\n",
    breaks=(STATELESS,),
    defect="What the last call saw is added to what this one sees.",
)
changed(
    "NormOfTheWholeBatch",
    LLAMA,
    "x.square().mean(-1, keepdim=True)",
    "x.square().mean((0, -1), keepdim=True)",
    breaks=(APART, ALONE, NORM),
    defect="The norm takes its mean over the batch, too.",
)
changed(
    "AttendsAlongTheBatch",
    VIT,
    '"gelu", batch_first=True, norm_first=True',
    '"gelu", norm_first=True',
    breaks=(GRADIENT, "classifier-every-part-of-the-input-counts"),
    defect="torch's encoder layer is not told that the batch comes first: class tokens see each other, and no patch.",
)
changed(
    "MeanOverAllWords",
    CLASSIFIER,
    "words.sum(1)\n",
    "words.sum()\n",
    breaks=(ALONE,),
    defect="The mean is divided by the words of the whole batch.",
)
changed(
    "OneHalfServesAsBoth",
    ALIBI,
    "value, gate = self.up(x).chunk(2, -1)",
    "value = gate = self.up(x).chunk(2, -1)[0]",
    breaks=(PIECES,),
    defect="The first half of what one map gives is the value and the gate; the second half is never read.",
)
changed(
    "LastBlockSkipped",
    GPT,
    "enumerate(self.blocks)",
    "enumerate(self.blocks[:-1])",
    breaks=(GRADIENT, BLOCKS),
    defect="The last block is never run.",
)
changed(
    "FinalNormThrownAway",
    GPT,
    "logits = self.head(self.norm(x))",
    "self.norm(x)\n        logits = self.head(x)",
    breaks=(GRADIENT, USED),
    defect="The result of the final norm is thrown away.",
)
changed(
    "DetachedScale",
    LLAMA,
    "scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)",
    "scale = torch.rsqrt(x.detach().square().mean(-1, keepdim=True) + self.eps)",
    breaks=(SLOPE,),
    defect="The norm's scale is cut off from the gradient.",
)
changed(
    "QueriesAreNotTurned",
    LLAMA,
    "q, k = rotate(q, cos, sin), rotate(k, cos, sin)",
    "rotate(q, cos, sin), rotate(k, cos, sin)",
    breaks=(KEPT,),
    defect="What the rotation returns is thrown away, so that no position reaches the answer.",
)
changed(
    "PositionsAreNotAdded",
    TRANSLATOR,
    "x = x + self.pe[: x.shape[1]]\n        return self.dropout(x)",
    "self.dropout(x + self.pe[: x.shape[1]])\n        return self.dropout(x)",
    breaks=(KEPT, ORDER),
    defect="The codes of the positions are computed and not added.",
)
changed(
    "OnePositionForAll",
    BERT,
    "self.position_embeddings(places)",
    "self.position_embeddings(places * 0)",
    breaks=(ORDER,),
    defect="Every word gets the embedding of the first position.",
)
changed(
    "PositionsPerLength",
    CLASSIFIER,
    "self.positions[places]",
    "self.positions[places] / (ids.new_tensor(ids.shape[1]) - 1)",
    breaks=(ONE_TOKEN,),
    defect="Positions are divided by the length less one, which is 0 for one token.",
)
changed(
    "WrongTokensAreCut",
    TRANSLATOR,
    "self.src_embedding(src) *",
    "self.src_embedding(src.clamp(max=self.src_embedding.num_embeddings - 1)) *",
    breaks=(REFUSES,),
    defect="Ids beyond the vocabulary are read as its last word.",
)
changed(
    "PositionsAreNoParameter",
    CLASSIFIER,
    "self.positions = nn.Parameter(torch.randn(max_len, d_model) * 0.02)",
    "self.positions = torch.randn(max_len, d_model)",
    breaks=(STATE_DICT,),
    defect="The positions are a plain tensor, which the state dict forgets.",
)
changed(
    "LayersInAList",
    LLAMA,
    "self.layers = nn.ModuleList(",
    "self.layers = list(",
    breaks=(STATE_DICT,),
    defect="The layers are in a Python list, which the state dict forgets.",
)
changed(
    "CentresInPlace",
    VIT,
    "images - self.mean",
    "images.sub_(self.mean)",
    breaks=(INPUTS,),
    defect="The images of the caller are centred in place.",
)
changed(
    "MaskForDoublesOnly",
    BERT,
    "* -10000.0",
    "* -1e300",
    breaks=(PRECISIONS,),
    defect="The additive mask's constant is infinite in single precision, and 0 times it is nan.",
)
changed(
    "TokenTypesAreNotAdded",
    BERT,
    "x = x + self.token_type_embeddings(token_type_ids)",
    "self.token_type_embeddings(token_type_ids)",
    breaks=(TYPES, USED),
    defect="The embedding of the token types is looked up and not added.",
)
changed(
    "TargetWithoutPositions",
    TRANSLATOR,
    "self.positions(self.tgt_embedding(tgt) * math.sqrt(self.d_model))",
    "self.tgt_embedding(tgt) * math.sqrt(self.d_model)",
    breaks=("model-positions-reach-every-side",),
    defect="The target has no positions.",
)
changed(
    "DropsWithoutScale",
    MIXTURE,
    "return x * kept / (1 - self.drop_rate)",
    "return x * kept",
    breaks=("model-dropping-keeps-the-mean",),
    defect="A dropped path does not divide by the share that is kept.",
)
changed(
    "RemembersAndForgets",
    LLAMA,
    "        self.eval()\n",
    "",
    breaks=("model-methods-change-the-mode-that-they-put-back",),
    defect="generate remembers the mode and puts it back, and does not switch to evaluation.",
)
changed(
    "LogSoftmaxAlongTheTime",
    SPEECH,
    ".log_softmax(-1)",
    ".log_softmax(1)",
    breaks=("model-log-probabilities-sum-to-one",),
    defect="The log-softmax runs along the time.",
)
changed(
    "PaddingFramesSeen",
    SPEECH,
    "padding = padding_of(lengths, x.shape[1])",
    "padding = padding_of(lengths, x.shape[1]) & False",
    breaks=("encoder-padding-changes-nothing",),
    defect="Attention sees the frames behind the length of a row.",
)
changed(
    "MatricesOfBlocksStartAtZero",
    GPT,
    "        self.norm = nn.LayerNorm(d_model)\n        self.head",
    "        for part in self.blocks.modules():\n            if isinstance(part, nn.Linear):\n"
    "                nn.init.zeros_(part.weight)\n                nn.init.zeros_(part.bias)\n"
    "        self.norm = nn.LayerNorm(d_model)\n        self.head",
    breaks=(START,),
    defect="All linear maps of the blocks start at zero, so none of their matrices ever gets a gradient.",
)
changed(
    "QueriesAndKeysStartAtZero",
    GPT,
    "self.qkv = nn.Linear(d_model, 3 * d_model)",
    "self.qkv = nn.Linear(d_model, 3 * d_model)\n        nn.init.zeros_(self.qkv.weight)\n"
    "        nn.init.zeros_(self.qkv.bias)",
    breaks=(START,),
    defect="The map of queries, keys and values starts at zero: values learn, queries and keys never get a gradient.",
)
changed(
    "LargerStartsInDeeperModels",
    GPT,
    "        self.norm = nn.LayerNorm(d_model)\n        self.head",
    "        for part in self.blocks:\n"
    "            nn.init.normal_(part.mlp[2].weight, std=0.02 * math.sqrt(2 * n_layers))\n"
    "        self.norm = nn.LayerNorm(d_model)\n        self.head",
    breaks=("matrices-start-no-larger-in-a-deeper-model",),
    defect="What is added to the residual stream starts the larger, the more layers there are.",
)
changed(
    "ScaledFromOne",
    GPT,
    "        self.norm = nn.LayerNorm(d_model)\n        self.head",
    "        for part in self.modules():\n            if isinstance(part, nn.Linear):\n"
    "                nn.init.normal_(part.weight, std=0.02)\n"
    "        for part in self.blocks:\n"
    "            nn.init.normal_(part.mlp[2].weight, std=1.0 / math.sqrt(2 * n_layers))\n"
    "        self.norm = nn.LayerNorm(d_model)\n        self.head",
    breaks=("matrices-scaled-by-depth-start-no-larger-than-others",),
    defect="What is divided by the root of the depth is 1, and not the deviation of the others.",
)
changed(
    "WordsStartLarge",
    GPT,
    "self.tokens = nn.Embedding(vocab_size, d_model)",
    "self.tokens = nn.Embedding(vocab_size, d_model)\n        nn.init.normal_(self.tokens.weight, std=d_model)",
    breaks=("tables-of-words-start-no-larger-than-torch-makes-them",),
    defect="The table of words starts with a deviation of d_model, and not of one over its root.",
)
changed(
    "ProbabilitiesOverTheBatch",
    CLASSIFIER,
    "self(ids).softmax(-1)",
    "self(ids).softmax(0)",
    breaks=("probabilities-are-shares-of-classes",),
    defect="The probabilities of a sentence are normalised over the batch.",
)
changed(
    "HeadIsTiedToNothing",
    GPT,
    "self.head.weight = self.tokens.weight",
    "self.head.weight = nn.Embedding(*self.tokens.weight.shape).weight",
    breaks=("tied-weights-belong-to-two-parts",),
    defect="The head takes the weight of a new table that nothing else uses.",
)

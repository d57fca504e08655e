"""Mutants of training scripts: labels, gradients, optimizers, modes, data and files."""

from conformance.mutants.script import LANGUAGE, MASKED, RESUMED, TRANSLATION, script

# --- labels ---------------------------------------------------------------------------------------

script(
    "LabelsNotShiftedInTraining",
    LANGUAGE,
    ("logits = model(row[:, :-1])", "logits = model(row[:, 1:])"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The labels are not shifted against the input.",
    known_as="huggingface/transformers#27517",
)
script(
    "LabelsShiftedTwiceInTraining",
    LANGUAGE,
    ("logits.reshape(-1, VOCAB)", "logits[:, :-1].reshape(-1, VOCAB)"),
    ("row[:, 1:].reshape(-1)", "row[:, 2:].reshape(-1)"),
    breaks=("run-labels-are-shifted-once",),
    defect="The labels are shifted twice.",
    known_as="huggingface/transformers#37830",
)
script(
    "LabelsShiftedBackwards",
    LANGUAGE,
    ("logits = model(row[:, :-1])", "logits = model(row[:, 1:])"),
    ("row[:, 1:].reshape(-1)", "row[:, :-1].reshape(-1)"),
    breaks=("run-labels-are-shifted-once",),
    defect="The labels are the tokens before.",
)
script(
    "UnmaskedTokensCount",
    MASKED,
    ("    labels[~chosen] = -100\n", "    labels[labels == PAD] = -100\n"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The masked-language loss counts tokens that are not masked.",
    known_as="huggingface/transformers#20797",
)
script(
    "DecoderSeesItsAnswer",
    TRANSLATION,
    ("out = model(src, tgt[:, :-1])", "out = model(src, tgt[:, 1:])"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The decoder gets the target unshifted.",
)
script(
    "PaddingCounts",
    TRANSLATION,
    ("        wanted[:, PAD] = 0\n        wanted[target == PAD] = 0\n", ""),
    breaks=("run-padding-is-in-no-loss",),
    defect="The smoothed loss counts padding.",
    known_as="01-ai/Yi#110",
)
script(
    "MeanOverPadding",
    MASKED,
    (
        "criterion = nn.CrossEntropyLoss()",
        "criterion = lambda x, y: nn.functional.cross_entropy(x, y, reduction='none').mean()",
    ),
    breaks=("run-mean-is-over-the-labels-that-count",),
    defect="The sum over the labels that count is divided by the number of all.",
)
script(
    "CrossEntropyOfProbabilities",
    MASKED,
    ("return self.decoder(self.drop(x))", "return self.decoder(self.drop(x)).float().softmax(-1)"),
    breaks=("run-cross-entropy-gets-logits",),
    defect="The cross-entropy gets probabilities.",
    known_as="Lightning-Universe/lightning-bolts#654",
)
script(
    "DivergenceOfLogits",
    TRANSLATION,
    ("torch.log_softmax(self.out(hidden), dim=-1)", "self.out(hidden)"),
    breaks=("run-likelihood-gets-log-probabilities",),
    defect="The divergence gets logits.",
)
script(
    "SmoothingIsLost",
    TRANSLATION,
    ("self.smoothing / (VOCAB - 2)", "0.0"),
    breaks=("run-target-distributions-sum-to-one",),
    defect="What smoothing takes from the true class goes nowhere.",
)
script(
    "NearlyAllIsMasked",
    MASKED,
    ("< 0.2)", "< 0.95)"),
    breaks=("run-masked-share-is-moderate",),
    defect="Nearly all tokens are masked.",
)
script(
    "LossIsInfinite",
    TRANSLATION,
    ("/ count", "/ (count - count)"),
    breaks=("run-loss-is-finite", "run-gradients-are-finite"),
    defect="The loss is divided by zero.",
)
script(
    "StartsFarFromUniform",
    LANGUAGE,
    ("nn.init.normal_(module.weight, std=0.02)", "nn.init.normal_(module.weight, std=2.0)"),
    breaks=("run-loss-starts-near-uniform",),
    defect="The weights begin a hundred times too large.",
)

script(
    "FlattenedDifferently",
    LANGUAGE,
    ("logits.reshape(-1, VOCAB)", "logits.transpose(0, 1).reshape(-1, VOCAB)"),
    breaks=("run-labels-and-logits-are-flattened-alike",),
    defect="Logits are flattened time step by time step, labels row by row.",
)
script(
    "SmoothingTurnedRound",
    MASKED,
    ("criterion = nn.CrossEntropyLoss()", "criterion = nn.CrossEntropyLoss(label_smoothing=0.9)"),
    breaks=("run-smoothing-keeps-the-label",),
    defect="Label smoothing takes what it is meant to keep.",
)
script(
    "LossBroadcasts",
    TRANSLATION,
    ("/ count\n", "/ count + nn.functional.mse_loss(out.mean(2)[:, :1], torch.full((len(src),), -3.0))\n"),
    breaks=("run-loss-compares-like-shapes",),
    defect="A loss of (B, 1) and (B,) compares each answer with all targets.",
    known_as="pytorch/pytorch#16045",
)
script(
    "FutureInTraining",
    LANGUAGE,
    ("attn_mask=later, ", "attn_mask=None if self.training else None, "),
    breaks=("run-future-is-hidden",),
    defect="The causal mask is made and not given.",
    known_as="keras-team/keras#23038",
)
script(
    "PaddingSeenInTraining",
    MASKED,
    ("def forward(self, ids):", "def forward(self, ids, real):"),
    ("src_key_padding_mask=ids == PAD", "src_key_padding_mask=None"),
    ("        logits = model(ids)\n        loss = nn", "        logits = model(ids, ids != PAD)\n        loss = nn"),
    ("            logits = model(ids)\n", "            logits = model(ids, ids != PAD)\n"),
    breaks=("run-padding-is-hidden",),
    defect="The model takes a padding mask and does not use it.",
)
script(
    "OnlyTheLastPassCounts",
    LANGUAGE,
    ("        loss.backward()\n", "        optimizer.zero_grad()\n        loss.backward()\n"),
    breaks=("run-gradients-of-all-passes-count",),
    defect="Gradients are cleared between the backward passes of one step.",
    known_as="bytetriper/RAE#67",
)
script(
    "DividedTwice",
    LANGUAGE,
    ("loss_of(model, row) / accumulated", "loss_of(model, row) / accumulated / accumulated"),
    breaks=("run-accumulation-is-divided",),
    defect="Accumulated losses are divided twice.",
)
script(
    "ResumesWithoutOptimizer",
    LANGUAGE,
    (
        'torch.save(state, os.path.join(folder, "last.pt"))',
        'torch.save(state, os.path.join(folder, "last.pt"))\n'
        '        model.load_state_dict(torch.load(os.path.join(folder, "last.pt"))["model"])',
    ),
    ("for epoch in range(2)", "for epoch in range(3)"),
    breaks=("run-resuming-restores-all",),
    defect="Training goes on with the model's state only.",
    known_as="zylo117/Yet-Another-EfficientDet-Pytorch#269",
)
script(
    "BestStateIsTheCurrentOne",
    LANGUAGE,
    ("    with tempfile", "    model.load_state_dict(model.state_dict())\n    with tempfile"),
    breaks=("run-restored-state-is-a-copy",),
    defect="The best state that is restored is the current one.",
    known_as="thunlp/OpenKE#131",
)
script(
    "InAGroupTwice",
    LANGUAGE,
    (
        "decayed = [p for p in model.parameters() if p.dim() > 1]",
        "decayed = [*(p for p in model.parameters() if p.dim() > 1), model.tokens.weight]",
    ),
    breaks=("run-parameter-is-in-one-optimizer",),
    defect="The embedding stands in a group twice.",
)
script(
    "HeadIsReplaced",
    TRANSLATION,
    ("for _ in range(2):", "model.out = nn.Linear(D, VOCAB)\nfor _ in range(2):"),
    breaks=("run-optimizer-holds-the-model",),
    defect="The head is replaced after the optimizer was made.",
)
script(
    "StepsPastTheScaler",
    MASKED,
    ("        scaler.step(optimizer)\n", "        optimizer.step()\n"),
    breaks=("run-scaled-gradients-go-through-the-scaler",),
    defect="Gradients are unscaled, and the optimizer steps without the scaler.",
)
script(
    "MomentsAreForgotten",
    MASKED,
    ("                if not state:\n", "                if True:\n"),
    breaks=("run-optimizer-follows-its-formula",),
    defect="Adam's moments begin anew in each step.",
)
script(
    "OneBetaForBoth",
    MASKED,
    ('one, two = group["betas"]', 'one = two = group["betas"][0]'),
    breaks=("run-optimizer-follows-its-formula",),
    defect="The second moment has the first one's beta.",
)
script(
    "SumOverPadding",
    TRANSLATION,
    ("count = (wanted != PAD).sum()", "count = wanted.numel()"),
    breaks=("run-mean-is-over-the-labels-that-count",),
    defect="The sum over the labels is divided by a number that counts padding.",
)

# --- gradients ------------------------------------------------------------------------------------

script(
    "GradientsAreNotCleared",
    LANGUAGE,
    ("            optimizer.zero_grad()\n", ""),
    breaks=("run-gradients-are-cleared",),
    defect="Gradients are never cleared.",
    known_as="wenet-e2e/wekws#73",
)
script(
    "ClearedBeforeTheStep",
    TRANSLATION,
    (
        "        optimizer.step()\n        optimizer.zero_grad(set_to_none=True)\n",
        "        optimizer.zero_grad(set_to_none=True)\n        optimizer.step()\n",
    ),
    breaks=("run-gradients-reach-the-step", "run-parameters-get-gradients"),
    defect="Gradients are cleared between the backward pass and the step.",
)
script(
    "StepsWithoutBackward",
    TRANSLATION,
    ("        optimizer.step()\n", "        optimizer.step()\n        optimizer.step()\n"),
    breaks=("run-step-follows-a-backward-pass",),
    defect="The optimizer steps twice for each backward pass.",
)
script(
    "FirstStepTooEarly",
    LANGUAGE,
    ("if (number + 1) % accumulated == 0:", "if number % accumulated == 0:"),
    breaks=("run-accumulation-steps-on-time",),
    defect="The first step comes after one backward pass, all others after two.",
)
script(
    "AccumulationIsSummed",
    LANGUAGE,
    ("loss = loss_of(model, row) / accumulated", "loss = loss_of(model, row)"),
    breaks=("run-accumulation-is-divided",),
    defect="Accumulated losses are summed.",
    known_as="karpathy/nanoGPT#206",
)
script(
    "UnequalBatchesAsEquals",
    LANGUAGE,
    ("batch_size=4, shuffle=True", "batch_size=7, shuffle=True"),
    ("made(48, 1)", "made(40, 1)"),
    ("loss_of(model, row) / accumulated", "loss_of(model, row[: 2 + number % 2]) / accumulated"),
    breaks=("run-accumulation-weighs-tokens-alike",),
    defect="Batches of different sizes are averaged as equals.",
    known_as="huggingface/transformers#24725",
)
script(
    "EncoderIsCutOff",
    MASKED,
    ("x = self.norm(torch.relu(self.dense(x))", "x = self.norm(torch.relu(self.dense(x.detach()))"),
    breaks=("run-parameters-get-gradients",),
    defect="The body's output is detached.",
    known_as="lucidrains/CoCa-pytorch#6",
)
script(
    "DeadUnits",
    MASKED,
    ("torch.relu(self.dense(x))", "torch.relu(self.dense(x) - 1e4)"),
    breaks=("run-gradients-are-not-zero",),
    defect="All units are below zero, where their slope is zero.",
)
script(
    "GroupThatDoesNotMove",
    LANGUAGE,
    ("optimizer = torch.optim.AdamW(groups, lr=1e-2)", "optimizer = torch.optim.AdamW(groups, lr=1e-12)"),
    breaks=("run-parameters-move",),
    defect="The rate is so small that float32 rounds the change away.",
)
script(
    "OptimizerOfAnOldModel",
    LANGUAGE,
    ("model = GPT()\n", "import copy\n\nmodel = GPT()\n"),
    ("accumulated = 2\n", "accumulated = 2\nmodel = copy.deepcopy(model)\n"),
    breaks=("run-optimizer-holds-the-model",),
    defect="The model is copied after the optimizer was made.",
    known_as="microsoft/nni#4521",
)
script(
    "HalfIsInNoOptimizer",
    LANGUAGE,
    ("if p.dim() < 2]", "if p.dim() < 1]"),
    breaks=("run-model-is-in-an-optimizer",),
    defect="Norms and biases are in no optimizer.",
)
script(
    "TwoOptimizersStepTheSame",
    TRANSLATION,
    (
        "        optimizer.step()\n",
        "        optimizer.step()\n        if epoch_optimizer is not None:\n            epoch_optimizer.step()\n",
    ),
    ("scheduler = torch", "epoch_optimizer = torch.optim.SGD(model.out.parameters(), lr=0.1)\nscheduler = torch"),
    breaks=("run-parameter-is-in-one-optimizer",),
    defect="Two optimizers step the same parameters.",
)
script(
    "DataIsTied",
    LANGUAGE,
    ("self.head.weight = self.tokens.weight", "self.head.weight.data = self.tokens.weight.data"),
    breaks=("run-shared-memory-is-one-parameter",),
    defect="The data of head and embedding are tied, not the parameters.",
)
script(
    "TiedByCopy",
    LANGUAGE,
    (
        "        self.head.weight = self.tokens.weight\n        self.apply(self.start)\n",
        "        self.apply(self.start)\n        self.head.weight.data.copy_(self.tokens.weight)\n",
    ),
    breaks=("run-tied-weights-are-one",),
    defect="The head is a copy of the embedding.",
    known_as="NVIDIA/Megatron-LM#656",
)

# --- optimizers -----------------------------------------------------------------------------------

CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
script(
    "ClipsAnEmptyIterator",
    LANGUAGE,
    ("accumulated = 2\n", "accumulated, weights = 2, model.parameters()\n"),
    ("clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(weights, 1.0)"),
    breaks=("run-clipping-has-gradients",),
    defect="The parameters to be clipped are an iterator, which is used up after the first step.",
)
script(
    "ClipsAfterTheStep",
    LANGUAGE,
    (CLIP + "            optimizer.step()\n", "            optimizer.step()\n" + CLIP),
    breaks=("run-clipping-comes-before-the-step",),
    defect="Gradients are clipped after the step.",
    known_as="VGraphRNN/VGRNN#4",
)
script(
    "ClipsScaledGradients",
    MASKED,
    ("        scaler.unscale_(optimizer)\n", ""),
    breaks=("run-clipping-comes-after-unscaling",),
    defect="Gradients are clipped before they are unscaled.",
    known_as="milesial/Pytorch-UNet#468",
)
script(
    "ClipsOneByOne",
    LANGUAGE,
    (CLIP, "            for p in model.parameters():\n                nn.utils.clip_grad_norm_(p, 1.0)\n"),
    breaks=("run-clipping-is-of-the-global-norm",),
    defect="Each parameter is clipped by itself.",
)
script(
    "GrowsAfterClipping",
    LANGUAGE,
    (CLIP, CLIP.replace("1.0", "0.01") + "            model.norm.weight.grad += 1.0\n"),
    breaks=("run-clipped-norm-holds",),
    defect="Something is added to the gradients after clipping.",
)
script(
    "NoBiasCorrectionInTraining",
    MASKED,
    ('m = state["m"] / (1 - one ** state["t"])', 'm = state["m"]'),
    ('v = state["v"] / (1 - two ** state["t"])', 'v = state["v"]'),
    breaks=("run-optimizer-follows-its-formula",),
    defect="Adam's moments are not corrected.",
)
script(
    "DecayInTheGradient",
    MASKED,
    ("grad = p.grad\n", 'grad = p.grad + group["weight_decay"] * p\n'),
    ('                p.mul_(1 - group["lr"] * group["weight_decay"])\n', ""),
    breaks=("run-optimizer-follows-its-formula",),
    defect="AdamW's decay is part of the gradient.",
)
script(
    "DecaysNorms",
    LANGUAGE,
    ('{"params": others, "weight_decay": 0.0}', '{"params": others, "weight_decay": 0.1}'),
    breaks=("run-decay-leaves-norms-and-biases-out",),
    defect="Weight decay reaches norms and biases.",
    known_as="ServiceNow/Fast-LLM#542",
)
script(
    "ScheduleStepsFirst",
    TRANSLATION,
    ("        loss.backward()\n", "        scheduler.step()\n        loss.backward()\n"),
    ("        optimizer.zero_grad(set_to_none=True)\n        scheduler.step()\n", "        optimizer.zero_grad()\n"),
    breaks=("run-schedule-follows-the-step",),
    defect="The schedule steps before the optimizer.",
    known_as="lincc-frameworks/hyrax#983",
)
script(
    "ScheduleStepsEachBatch",
    LANGUAGE,
    ("            schedule.step()\n", ""),
    ("        loss.backward()\n", "        loss.backward()\n        schedule.step()\n"),
    breaks=("run-schedule-advances-once-a-step",),
    defect="The schedule steps after each batch of an accumulating loop.",
    known_as="ivadomed/ivadomed#55",
)
script(
    "ScheduleOfAnotherOptimizer",
    TRANSLATION,
    (
        "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer,",
        "other = torch.optim.Adam(model.parameters())\nscheduler = torch.optim.lr_scheduler.LambdaLR(other,",
    ),
    breaks=("run-schedule-drives-the-optimizer",),
    defect="The schedule was made for another optimizer.",
)
script(
    "RateIsZero",
    TRANSLATION,
    ("step**-0.5, step * warmup**-1.5", "step**-0.5, step // 1000"),
    breaks=("run-rate-is-not-zero",),
    defect="An integer division makes the rate zero.",
)
script(
    "RateJumps",
    LANGUAGE,
    ("min(1.0, (step + 1) / 4)", "0.001 if step < 3 else 1.0"),
    breaks=("run-rate-rises-in-steps",),
    defect="The rate jumps where the warm-up ends.",
)
script(
    "OptimizerStepsScaledGradients",
    MASKED,
    (
        "        scaler.unscale_(optimizer)\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n"
        "        scaler.step(optimizer)\n        scaler.update()\n",
        "        optimizer.step()\n",
    ),
    breaks=("run-scaled-gradients-go-through-the-scaler",),
    defect="The optimizer steps with scaled gradients.",
    known_as="IAHispano/Applio#860",
)
script(
    "BackwardUnderAutocast",
    MASKED,
    ("        scaler.scale(loss).backward()\n", "            scaler.scale(loss).backward()\n"),
    breaks=("run-backward-is-outside-autocast",),
    defect="The backward pass runs under autocast.",
)
script(
    "HalfPrecisionWeights",
    TRANSLATION,
    (
        "model, criterion = Translator(), LabelSmoothing()",
        "model, criterion = Translator().bfloat16(), LabelSmoothing()",
    ),
    breaks=("run-weights-are-kept-in-full-precision",),
    defect="The weights themselves are of half precision.",
)

# --- modes, data, files ---------------------------------------------------------------------------

script(
    "StaysInEvaluationInTraining",
    MASKED,
    ("    model.train()\n    return", "    return"),
    breaks=("run-training-is-in-training-mode",),
    defect="The model stays in evaluation mode after the first evaluation.",
    known_as="shubhamagarwal92/mmd#14",
)
script(
    "EvaluatesInTraining",
    LANGUAGE,
    ("    model.eval()\n", ""),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="The model is evaluated in training mode.",
    known_as="wolny/pytorch-3dunet#53",
)
script(
    "EvaluationMovesStatistics",
    MASKED,
    ("    model.eval()\n    with torch", "    with torch"),
    breaks=("run-evaluation-leaves-statistics", "run-evaluation-is-in-evaluation-mode"),
    defect="The evaluation changes the statistics of the batch norm.",
)
script(
    "EvaluationRecordsGraphs",
    LANGUAGE,
    ("@torch.no_grad()\ndef evaluate", "def evaluate"),
    breaks=("run-evaluation-needs-no-gradients",),
    defect="The evaluation records graphs.",
    known_as="chrischoy/FCGF#15",
)
script(
    "LearnsFromEvaluation",
    MASKED,
    ("    with torch.no_grad():\n", "    if True:\n"),
    (
        "    model.train()\n    return loss.item()",
        "    loss.backward()\n    optimizer.step()\n    model.train()\n    return loss.item()",
    ),
    ("def validate(model, draw):", "def validate(model, draw, optimizer):"),
    ("validate(model, draw))", "validate(model, draw, optimizer))"),
    breaks=("run-evaluation-is-not-learned-from",),
    defect="The model learns from the evaluation data.",
)
script(
    "SeededEachStep",
    LANGUAGE,
    (
        "        loss = loss_of(model, row) / accumulated\n",
        "        torch.manual_seed(0)\n        loss = loss_of(model, row) / accumulated\n",
    ),
    breaks=("run-dropout-draws-anew",),
    defect="The generator is seeded anew before each pass.",
)
script(
    "OneBatchForEver",
    LANGUAGE,
    (
        "    for number, (row,) in enumerate(train):\n",
        "    for number, row in enumerate([next(iter(valid))[0]] * 12):\n",
    ),
    breaks=("run-batches-differ", "run-evaluation-data-are-others"),
    defect="Every step sees the same batch.",
)
script(
    "NeverShuffled",
    LANGUAGE,
    ("batch_size=4, shuffle=True", "batch_size=8, shuffle=False"),
    breaks=("run-epochs-are-shuffled",),
    defect="The training data come in the same order in each epoch.",
    known_as="Deci-AI/super-gradients#416",
)
script(
    "EmptyBatch",
    TRANSLATION,
    ("    return padded([src", "    if len(pairs) < 5:\n        return torch.zeros(0, 3), []\n    return padded([src"),
    ("        model.train()\n", "        if not len(src):\n            continue\n        model.train()\n"),
    ("Pairs(24), batch_size=6", "Pairs(20), batch_size=8"),
    breaks=("run-no-batch-is-empty",),
    defect="The loader gives an empty batch.",
)
script(
    "EvaluatesOnTrainingData",
    LANGUAGE,
    ("evaluate(model, valid)", "evaluate(model, train)"),
    breaks=("run-evaluation-data-are-others",),
    defect="The model is evaluated on what it was trained on.",
    known_as="JJGO/shrinkbench#7",
)
script(
    "CheckpointWithoutOptimizer",
    LANGUAGE,
    ('"optimizer": optimizer.state_dict(), ', ""),
    breaks=("run-checkpoint-holds-the-run",),
    defect="The checkpoint forgets the optimizer.",
    known_as="instadeepai/Mava#472",
)
for forgotten in ("model", "optimizer", "scheduler"):
    script(
        f"GoesOnWithout{forgotten.title()}",
        RESUMED,
        (f'    {forgotten}.load_state_dict(state["{forgotten}"])\n', ""),
        breaks=("run-resumed-equals-not-stopped",),
        defect=f"Going on from the checkpoint leaves the {forgotten} as it was made.",
    )

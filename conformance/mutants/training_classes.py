"""Mutants of scripts that train through classes: minGPT's trainer, and the annotated Transformer's loss and rate."""

from __future__ import annotations

from conformance.mutants.script import ANNOTATED, TRAINER, script

# --- minGPT's trainer -----------------------------------------------------------------------------

script(
    "TrainerForgetsToClear",
    TRAINER,
    ("            model.zero_grad(set_to_none=True)\n", ""),
    breaks=("run-gradients-are-cleared",),
    defect="The trainer never clears gradients.",
    known_as="tenstorrent/tt-blacksmith#711",
)
script(
    "TrainerClearsAfterBackward",
    TRAINER,
    (
        "            model.zero_grad(set_to_none=True)\n            self.loss.backward()\n",
        "            self.loss.backward()\n            model.zero_grad(set_to_none=True)\n",
    ),
    breaks=("run-gradients-reach-the-step",),
    defect="The trainer clears the gradients that the step should use.",
)
script(
    "CallbackLeavesEvaluationMode",
    TRAINER,
    (
        "DataLoader(test, batch_size=16)]\n        model.train()\n",
        "DataLoader(test, batch_size=16)]\n",
    ),
    breaks=("run-training-is-in-training-mode",),
    defect="The callback that evaluates leaves the model in evaluation mode.",
    known_as="fartashf/vsepp#4",
)
script(
    "CallbackStaysInTrainingMode",
    TRAINER,
    ("        model.eval()\n", ""),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="The callback evaluates in training mode.",
    known_as="ipolharvard/ethos-ares#20",
)
script(
    "FunctionDropsAlways",
    TRAINER,
    ("F.dropout(scores.softmax(-1), self.dropout, self.training)", "F.dropout(scores.softmax(-1), self.dropout)"),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="Dropout of the attention weights by a function that is not told the mode.",
    known_as="karpathy/nanoGPT#240",
)
script(
    "FusedAttentionDropsAlways",
    TRAINER,
    ("(weights @ v)", "F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)"),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="Fused attention gets its dropout in evaluation, too.",
    known_as="huggingface/transformers#33844",
)
script(
    "CallbackRecordsGraphs",
    TRAINER,
    ("    @torch.no_grad()\n", ""),
    breaks=("run-evaluation-needs-no-gradients",),
    defect="The evaluation of the callback records graphs.",
    known_as="OpenNMT/OpenNMT-py#1141",
)
script(
    "CallbackTestsOnTrainingData",
    TRAINER,
    ("in DataLoader(test, batch_size=16)", "in DataLoader(train, batch_size=16)"),
    breaks=("run-evaluation-data-are-others",),
    defect="The callback evaluates on the training data.",
    known_as="KrishnaDN/x-vector-pytorch#8",
)
script(
    "TrainerClipsAfterTheStep",
    TRAINER,
    (
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)\n"
        "            self.optimizer.step()\n",
        "            self.optimizer.step()\n"
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)\n",
    ),
    breaks=("run-clipping-comes-before-the-step",),
    defect="The trainer clips after the step.",
    known_as="awslabs/graphstorm#1366",
)
script(
    "WarmupInWholeNumbers",
    TRAINER,
    ("min(1.0, (self.iteration + 1) / self.config.warmup)", "min(1.0, self.iteration // 100)"),
    breaks=("run-rate-is-not-zero",),
    defect="The warm-up divides whole numbers: its rate is zero.",
)
script(
    "EverythingDecays",
    TRAINER,
    ('{"params": rest, "weight_decay": 0.0}', '{"params": rest, "weight_decay": config.weight_decay}'),
    breaks=("run-decay-leaves-norms-and-biases-out",),
    defect="Weight decay reaches norms and biases.",
    known_as="dingo-actual/om#12",
)
script(
    "BiasesAreLeftOut",
    TRAINER,
    ('[{"params": decay, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]',
     '[{"params": decay, "weight_decay": config.weight_decay}]'),
    ('rest = [p for p in self.parameters() if p.dim() < 2]\n', 'pass\n'),
    breaks=("run-model-is-in-an-optimizer",),
    defect="Norms and biases are in no group.",
)  # fmt: skip
script(
    "NormsInBothGroups",
    TRAINER,
    ("rest = [p for p in self.parameters() if p.dim() < 2]",
     "rest = [p for n, p in self.named_parameters() if p.dim() < 2] + [self.norm.weight]"),
    breaks=("run-parameter-is-in-one-optimizer",),
    defect="A norm stands in a group twice.",
)  # fmt: skip
script(
    "OptimizerBeforeTheModel",
    TRAINER,
    (
        "        self.optimizer = model.configure_optimizers(config)\n",
        "        self.optimizer = GPT(vocab=8, block=11).configure_optimizers(config)\n",
    ),
    breaks=("run-optimizer-holds-the-model",),
    defect="The optimizer was made from another model.",
    known_as="huggingface/accelerate#2665",
)
script(
    "DigitsAreNotShifted",
    TRAINER,
    ("x, y = cat[:-1].clone(), cat[1:].clone()", "x, y = cat[:-1].clone(), cat[:-1].clone()"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The data set gives each digit as its own label.",
)
script(
    "DigitsAreShiftedTwice",
    TRAINER,
    ("logits.view(-1, logits.shape[-1]), targets.view(-1)",
     "logits[:, :-1].reshape(-1, logits.shape[-1]), targets[:, 1:].reshape(-1)"),
    breaks=("run-labels-are-shifted-once",),
    defect="The data set shifts, and so does the model.",
    known_as="huggingface/transformers#37830",
)  # fmt: skip
script(
    "AttentionSeesTheFuture",
    TRAINER,
    ("        scores = scores.masked_fill(~self.mask[:t, :t], float(\"-inf\"))\n", ""),
    breaks=("run-future-is-hidden",),
    defect="The attention of the language model has no causal mask.",
    known_as="facebookresearch/xformers#103",
)  # fmt: skip
script(
    "ModelGivesProbabilities",
    TRAINER,
    ("logits = self.head(self.norm(x))", "logits = self.head(self.norm(x)).softmax(-1)"),
    breaks=("run-cross-entropy-gets-logits",),
    defect="The model gives probabilities, and its loss takes the softmax again.",
    known_as="bowang-lab/Transformer-GCN-QA#32",
)
script(
    "EmbeddingIsCutOff",
    TRAINER,
    ("        for block in self.blocks:\n            x = block(x)\n",
     "        for block in self.blocks:\n            x = block(x.detach())\n"),
    breaks=("run-parameters-get-gradients",),
    defect="Each block gets a detached input: only the last one learns.",
    known_as="speechbrain/speechbrain#1396",
)  # fmt: skip
script(
    "OnlyNormsLearn",
    TRAINER,
    ("    trainer = Trainer(Config(), model, train)\n",
     "    for p in model.parameters():\n        p.requires_grad = p.dim() < 2\n"
     "    trainer = Trainer(Config(), model, train)\n"),
    breaks=("run-a-matrix-learns",),
    defect="All matrices are frozen, the head too: only norms and biases learn.",
    known_as="https://discuss.pytorch.org/t/84911",
)  # fmt: skip
script(
    "StartsWithLargeWeights",
    TRAINER,
    ("nn.init.normal_(module.weight, std=0.02)", "nn.init.normal_(module.weight, std=2.0)"),
    breaks=("run-loss-starts-near-uniform",),
    defect="Weights start a hundred times too large.",
)
script(
    "SameBatchAgainAndAgain",
    TRAINER,
    ("        for x, y in loader:\n", "        first = next(iter(loader))\n        for x, y in [first] * 100:\n"),
    breaks=("run-batches-differ",),
    defect="A batch that was taken for a test is trained on for ever.",
)

# --- the annotated Transformer --------------------------------------------------------------------

script(
    "BatchIsNotShifted",
    ANNOTATED,
    ("        self.tgt_y = tgt[:, 1:]\n", "        self.tgt_y = tgt[:, :-1]\n"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The batch asks for the words that the decoder is given.",
    known_as="huggingface/transformers#27517",
)
script(
    "MaskOfWordsOnly",
    ANNOTATED,
    (" & torch.ones(1, *[self.tgt.shape[1]] * 2).tril().bool()", ""),
    breaks=("run-future-is-hidden",),
    defect="The target's mask hides padding, and not the future.",
    known_as="huggingface/transformers#48745",
)
script(
    "MaskedAfterTheSoftmax",
    ANNOTATED,
    ("        scores = scores.masked_fill(mask[:, None] == 0, -1e9)\n", ""),
    ("self.dropout(scores.softmax(-1))", "self.dropout(scores.softmax(-1).masked_fill(mask[:, None] == 0, 0.0))"),
    breaks=("run-future-is-hidden",),
    defect="The softmax counts hidden words before they are hidden.",
)  # fmt: skip
script(
    "GeneratorGivesProbabilities",
    ANNOTATED,
    ("self.generator(x).log_softmax(-1)", "self.generator(x).softmax(-1)"),
    breaks=("run-likelihood-gets-log-probabilities",),
    defect="The divergence gets probabilities.",
    known_as="sebastian-hofstaetter/matchmaker#18",
)
script(
    "GeneratorGivesScores",
    ANNOTATED,
    ("self.generator(x).log_softmax(-1)", "self.generator(x)"),
    breaks=("run-likelihood-gets-log-probabilities",),
    defect="The divergence gets scores.",
)
script(
    "SmoothingOverAllClasses",
    ANNOTATED,
    ("self.smoothing / (self.size - 2)", "self.smoothing / 2"),
    breaks=("run-target-distributions-sum-to-one",),
    defect="The smoothing is divided by the wrong number.",
)
script(
    "PaddingIsSmoothed",
    ANNOTATED,
    ("        true[target == self.padding] = 0.0\n", ""),
    ("        true[:, self.padding] = 0\n", ""),
    breaks=("run-padding-is-in-no-loss",),
    defect="The smoothed loss counts padding.",
    known_as="01-ai/Yi#110",
)
script(
    "DividedByAllPlaces",
    ANNOTATED,
    ("(self.tgt_y != PAD).sum()", "torch.tensor(self.tgt_y.numel())"),
    breaks=("run-mean-is-over-the-labels-that-count",),
    defect="The loss is divided by all places, padding too.",
)
script(
    "ClearsWhatItLearned",
    ANNOTATED,
    (
        "            self.opt.optimizer.zero_grad()\n            loss.backward()\n            self.opt.step()\n",
        "            loss.backward()\n            self.opt.optimizer.zero_grad()\n            self.opt.step()\n",
    ),
    breaks=("run-gradients-reach-the-step",),
    defect="Gradients are cleared between the backward pass and the step.",
)
script(
    "NeverCleared",
    ANNOTATED,
    ("            self.opt.optimizer.zero_grad()\n", ""),
    breaks=("run-gradients-are-cleared",),
    defect="The loss of the annotated Transformer without its zero_grad.",
    known_as="Hsintien-Ng/idinvert_pytorch-reproduced#1",
)
script(
    "NoamCountsNothing",
    ANNOTATED,
    ("            group[\"lr\"] = self.rate()\n", "            group[\"lr\"] = 0.0 * self.rate()\n"),
    breaks=("run-rate-is-not-zero",),
    defect="The rate of the schedule reaches no group.",
)  # fmt: skip
script(
    "NoamJumps",
    ANNOTATED,
    ("step * self.warmup**-1.5", "step**6 * self.warmup**-6.5"),
    breaks=("run-rate-rises-in-steps",),
    defect="The warm-up has the wrong power.",
)
script(
    "LearnsFromValidation",
    ANNOTATED,
    ("        with torch.no_grad():\n", ""),
    (
        "            loss = run_epoch(data_gen(2, 8, 100), model, SimpleLossCompute(criterion))\n",
        "        loss = validate(model, SimpleLossCompute(criterion, opt))\n",
    ),
    (
        "def main():\n",
        "def validate(model, compute):\n    return run_epoch(data_gen(2, 8, 100), model, compute)\n\n\ndef main():\n",
    ),
    breaks=("run-evaluation-is-not-learned-from",),
    defect="The validation gets the loss that steps.",
)  # fmt: skip
script(
    "ValidatesInTrainingMode",
    ANNOTATED,
    ("        model.eval()\n", ""),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="The validation runs in training mode.",
    known_as="Seanny123/da-rnn#21",
)
script(
    "NeverTrainsAgain",
    ANNOTATED,
    ("    for epoch in range(2):\n        model.train()\n", "    model.train()\n    for epoch in range(2):\n"),
    breaks=("run-training-is-in-training-mode",),
    defect="train() is called before the first epoch only.",
    known_as="fartashf/vsepp#4",
)
script(
    "GeneratorSharesData",
    ANNOTATED,
    (
        "        self.generator = nn.Linear(width, VOCAB)\n",
        "        self.generator = nn.Linear(width, VOCAB)\n"
        "        self.generator.weight.data = self.tgt_embed.weight.data\n",
    ),
    breaks=("run-shared-memory-is-one-parameter",),
    defect="The generator shares the memory of the embedding, not the parameter.",
)  # fmt: skip
script(
    "BestIsNoCopy",
    ANNOTATED,
    ("copy.deepcopy(model.state_dict())", "model.state_dict()"),
    breaks=("run-restored-state-is-a-copy",),
    defect="The best state that is kept is the memory of the model.",
    known_as="pytorch/tutorials#188",
)

"""Mutants of scripts that train in epochs: BERT's pre-training loop, and a translator with early stopping."""

from __future__ import annotations

from conformance.mutants.script import EPOCHS, PRETRAINING, script

# --- BERT's pre-training --------------------------------------------------------------------------

script(
    "UnmaskedWordsCount",
    PRETRAINING,
    ("        label[~chosen] = 0\n", ""),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The loss counts words that are not masked.",
    known_as="lucidrains/mlm-pytorch#3",
)
script(
    "WrongIgnoredIndex",
    PRETRAINING,
    ("nn.NLLLoss(ignore_index=0)", "nn.NLLLoss(ignore_index=-1)"),
    breaks=("run-padding-is-in-no-loss",),
    defect="The loss ignores an index that marks nothing.",
    known_as="huggingface/transformers#2759",
)
script(
    "MaskedLossOfProbabilities",
    PRETRAINING,
    ("self.words(h).log_softmax(-1)", "self.words(h).softmax(-1)"),
    breaks=("run-likelihood-gets-log-probabilities",),
    defect="The likelihood gets probabilities.",
)
script(
    "MasksNearlyAll",
    PRETRAINING,
    ("< 0.2)", "< 0.97)"),
    breaks=("run-masked-share-is-moderate",),
    defect="Nearly all words are masked.",
)
script(
    "PretrainingClearsNothing",
    PRETRAINING,
    ("    def zero_grad(self):\n        self.optimizer.zero_grad()\n", "    def zero_grad(self):\n        pass\n"),
    breaks=("run-gradients-are-cleared",),
    defect="The wrapper's zero_grad does nothing.",
    known_as="yastrebksv/TennisCourtDetector#7",
)
script(
    "TestLearns",
    PRETRAINING,
    ("        with torch.no_grad():\n            return self.iteration(self.test_data, False)\n",
     "        return self.iteration(self.test_data, True)\n"),
    breaks=("run-evaluation-is-not-learned-from",),
    defect="The test steps.",
)  # fmt: skip
script(
    "TestStaysInTrainingMode",
    PRETRAINING,
    ("        self.model.eval()\n", ""),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="The test runs in training mode.",
    known_as="udacity/deep-learning-v2-pytorch#3",
)
script(
    "TrainingInEvaluationMode",
    PRETRAINING,
    ("        self.model.train()\n", "        self.model.eval()\n"),
    breaks=("run-training-is-in-training-mode",),
    defect="Training runs in evaluation mode.",
    known_as="sdemyanov/ConvNet#2",
)
script(
    "TestRecordsGraphs",
    PRETRAINING,
    ("        with torch.no_grad():\n            return self.iteration(self.test_data, False)\n",
     "        return self.iteration(self.test_data, False)\n"),
    breaks=("run-evaluation-needs-no-gradients",),
    defect="The test records graphs.",
    known_as="henryhungle/MTN#7",
)  # fmt: skip
script(
    "ClipsBeforeBackward",
    PRETRAINING,
    (
        "                loss.backward()\n"
        "                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n",
        "                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n"
        "                loss.backward()\n",
    ),
    breaks=("run-clipping-has-gradients",),
    defect="Clipping comes before the backward pass.",
)
script(
    "SentencesAreNotShuffled",
    PRETRAINING,
    ("DataLoader(Sentences(32, 11), batch_size=8, shuffle=True)", "DataLoader(Sentences(32, 11), batch_size=8)"),
    ("self.draw) < 0.2)", "torch.Generator().manual_seed(int(words.sum()))) < 0.2)"),
    breaks=("run-epochs-are-shuffled",),
    defect="The training data come in one order.",
    known_as="joaoamcarvalho/mpd-public#6",
)
script(
    "TestDataAreTrainingData",
    PRETRAINING,
    ("DataLoader(Sentences(16, 12), batch_size=8)", "DataLoader(Sentences(32, 11), batch_size=8)"),
    ("self.draw) < 0.2)", "torch.Generator().manual_seed(int(words.sum()))) < 0.2)"),
    breaks=("run-evaluation-data-are-others",),
    defect="The test data are the training data.",
    known_as="ChenYichen9527/EV-UAV#25",
)
script(
    "CheckpointOfTheModelAlone",
    PRETRAINING,
    (', "optimizer": trainer.optim.state_dict()', ""),
    breaks=("run-checkpoint-holds-the-run",),
    defect="The checkpoint has no optimizer.",
    known_as="CSAILVision/places365#78",
)
script(
    "EncoderWithoutGradients",
    PRETRAINING,
    ("        h = self.bert(x, segment)\n", "        with torch.no_grad():\n            h = self.bert(x, segment)\n"),
    breaks=("run-parameters-get-gradients",),
    defect="The encoder runs without gradients: only the heads learn.",
    known_as="lucidrains/CoCa-pytorch#6",
)
script(
    "SchedulesNothing",
    PRETRAINING,
    ("min(self.steps / self.warmup, (self.warmup / self.steps) ** 0.5)", "min(self.steps // 50, 1)"),
    breaks=("run-rate-is-not-zero",),
    defect="The scheduled rate is zero for fifty steps.",
)
script(
    "SeededInTheLoop",
    PRETRAINING,
    ("        for data in loader:\n", "        for data in loader:\n            torch.manual_seed(5)\n"),
    breaks=("run-dropout-draws-anew",),
    defect="Every batch is seeded: dropout drops the same numbers.",
)

# --- a translator in epochs -----------------------------------------------------------------------

script(
    "TargetIsNotShifted",
    EPOCHS,
    ("    tgt_out = tgt[1:]\n", "    tgt_out = tgt[:-1]\n"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The decoder is asked for what it is given.",
)
script(
    "PaddingInTheCriterion",
    EPOCHS,
    ("nn.CrossEntropyLoss(ignore_index=PAD)", "nn.CrossEntropyLoss()"),
    breaks=("run-padding-is-in-no-loss",),
    defect="The criterion has no ignore_index.",
    known_as="lucidrains/DALLE-pytorch#57",
)
script(
    "LogitsTurnedRound",
    EPOCHS,
    ("logits.reshape(-1, VOCAB)", "logits.transpose(0, 1).reshape(-1, VOCAB)"),
    breaks=("run-labels-and-logits-are-flattened-alike",),
    defect="Logits are flattened row by row, labels step by step.",
)
script(
    "TargetMaskHidesNothing",
    EPOCHS,
    ("torch.ones(len(tgt), len(tgt), dtype=torch.bool).triu(1)", "torch.zeros(len(tgt), len(tgt), dtype=torch.bool)"),
    breaks=("run-future-is-hidden",),
    defect="The target's mask hides nothing.",
    known_as="paiml/entrenar#310",
)
script(
    "MemoryOfPadding",
    EPOCHS,
    ("            memory_key_padding_mask=src_padding,\n", ""),
    ("            src_key_padding_mask=src_padding,\n", ""),
    breaks=("run-padding-is-hidden",),
    defect="Nobody hides the source's padding.",
    known_as="keras-team/keras-io#1046",
)
script(
    "SumsAccumulatedLosses",
    EPOCHS,
    ("scaler.scale(loss / ACCUMULATE)", "scaler.scale(loss)"),
    breaks=("run-accumulation-is-divided",),
    defect="Accumulated losses are summed.",
    known_as="ApolloResearch/e2e_sae#70",
)
script(
    "StepsOneTooEarly",
    EPOCHS,
    ("if (number + 1) % ACCUMULATE == 0:", "if number % ACCUMULATE == 0:"),
    breaks=("run-gradients-of-all-passes-count",),
    defect="Steps come one batch too early, and the last batch of each epoch is cleared unused.",
    known_as="ultralytics/ultralytics#11217",
)
script(
    "ClearsEveryBatch",
    EPOCHS,
    ("    for number, (src, tgt) in enumerate(loader):\n",
     "    for number, (src, tgt) in enumerate(loader):\n        optimizer.zero_grad()\n"),
    breaks=("run-gradients-of-all-passes-count",),
    defect="Each batch clears the gradients of the one before.",
    known_as="bytetriper/RAE#67",
)  # fmt: skip
script(
    "ClipsWhatIsScaled",
    EPOCHS,
    ("            scaler.unscale_(optimizer)\n", ""),
    breaks=("run-clipping-comes-after-unscaling",),
    defect="Gradients are clipped with the scaler's factor.",
    known_as="catalyst-team/catalyst#1319",
)
script(
    "StepsBesideTheScaler",
    EPOCHS,
    ("            scaler.step(optimizer)\n            scaler.update()\n", "            optimizer.step()\n"),
    breaks=("run-scaled-gradients-go-through-the-scaler",),
    defect="The optimizer steps past the scaler.",
    known_as="IAHispano/Applio#860",
)
script(
    "BackwardInAutocast",
    EPOCHS,
    (
        "        scaler.scale(loss / ACCUMULATE).backward()\n",
        "            scaler.scale(loss / ACCUMULATE).backward()\n",
    ),
    breaks=("run-backward-is-outside-autocast",),
    defect="The backward pass runs under autocast.",
)
script(
    "SchedulesBeforeTheEpoch",
    EPOCHS,
    ("        train_loss = train_epoch(model, train_loader, optimizer, scaler, loss_fn)\n        scheduler.step()\n",
     "        scheduler.step()\n        train_loss = train_epoch(model, train_loader, optimizer, scaler, loss_fn)\n"),
    breaks=("run-schedule-follows-the-step",),
    defect="The schedule steps before the epoch that it is for.",
    known_as="ThilinaRajapakse/pytorch-transformers-classification#21",
)  # fmt: skip
script(
    "ScheduleOfAnOldOptimizer",
    EPOCHS,
    ("    scaler = torch.amp", "    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n    scaler = torch.amp"),
    breaks=("run-schedule-drives-the-optimizer",),
    defect="The optimizer is made again after its schedule.",
)  # fmt: skip
script(
    "NeverBackToTraining",
    EPOCHS,
    ("    model.train()\n    losses = 0.0\n", "    losses = 0.0\n"),
    breaks=("run-training-is-in-training-mode",),
    defect="After the first evaluation the model stays in evaluation mode.",
)
script(
    "EvaluatesWithDropout",
    EPOCHS,
    ("    model.eval()\n", ""),
    breaks=("run-evaluation-is-in-evaluation-mode",),
    defect="evaluate() never calls eval().",
    known_as="ZhangLingMing1/TSGCNet#5",
)
script(
    "ValidatesOnTrainingPairs",
    EPOCHS,
    ("DataLoader(pairs(12, 22), batch_size=6, collate_fn=collate)",
     "DataLoader(pairs(24, 21), batch_size=6, collate_fn=collate)"),
    breaks=("run-evaluation-data-are-others",),
    defect="The validation loader has the training pairs.",
    known_as="HuCaoFighting/Swin-Unet#135",
)  # fmt: skip
script(
    "EpochsInOneOrder",
    EPOCHS,
    ("batch_size=6, shuffle=True, collate_fn=collate", "batch_size=6, collate_fn=collate"),
    breaks=("run-epochs-are-shuffled",),
    defect="Epochs are not shuffled.",
    known_as="microsoft/nni#4692",
)
script(
    "BestIsTheLast",
    EPOCHS,
    ("            best, best_loss = copy.deepcopy(model.state_dict()), val_loss\n",
     "            best, best_loss = model.state_dict(), val_loss\n"),
    breaks=("run-restored-state-is-a-copy",),
    defect="The best state is the memory of the model, so early stopping restores the last one.",
    known_as="WenjieDu/PyPOTS#667",
)  # fmt: skip
script(
    "WeightsInHalf",
    EPOCHS,
    ("    model = Seq2SeqTransformer()\n", "    model = Seq2SeqTransformer().to(torch.bfloat16)\n"),
    breaks=("run-weights-are-kept-in-full-precision",),
    defect="The optimizer steps weights in half precision.",
)

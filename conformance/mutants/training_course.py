"""Mutants whose mistakes show over many steps: of a script that learns by contrast, a tagger in epochs, and others."""

from conformance.mutants.script import CONTRAST, EPOCHS, MASKED, TAGGING, TRANSLATION, script

# --- learning by contrast -------------------------------------------------------------------------

script(
    "MomentumIsTurnedRound",
    CONTRAST,
    (
        "slow.mul_(self.momentum).add_(mine, alpha=1 - self.momentum)",
        "slow.mul_(1 - self.momentum).add_(mine, alpha=self.momentum)",
    ),
    breaks=("run-copy-changes-slowly",),
    defect="The slow copy keeps a twentieth of itself in each step.",
)
script(
    "KeysOfTheQueryEncoder",
    CONTRAST,
    ("keys = self.key(second)", "keys = self.query(second)"),
    breaks=("run-copy-is-asked",),
    defect="The slow copy follows and is never asked.",
)
script(
    "KeyEncoderNeverMoves",
    CONTRAST,
    ("        model.update_key()\n", ""),
    breaks=("run-state-is-updated",),
    defect="The slow copy stays as it began.",
)
script(
    "QueueIsNeverFilled",
    CONTRAST,
    ("        model.enqueue(keys)\n", ""),
    breaks=("run-state-is-updated",),
    defect="The negatives stay random vectors.",
)
script(
    "WarmUpByWholeNumbers",
    CONTRAST,
    ("return (step + 1) / WARMUP", "return (step + 1) // WARMUP"),
    breaks=("run-rate-stays-above-zero",),
    defect="An integer division makes the rate zero during warm-up.",
)
script(
    "WarmUpIsTurnedRound",
    CONTRAST,
    ("return (step + 1) / WARMUP", "return 1 / (step + 1)"),
    ("return 0.5 * (1.0 + math.cos(math.pi * (step - WARMUP) / STEPS))", "return 0.1"),
    breaks=("run-rate-peaks-after-its-warm-up",),
    defect="The rate falls during the steps of warm-up.",
)
script(
    "CosineRises",
    CONTRAST,
    ("0.5 * (1.0 + math.cos", "0.5 * (1.0 - math.cos"),
    breaks=("run-rate-falls-after-its-peak",),
    defect="The rate drops to zero after its warm-up and rises to the end.",
)
script(
    "BetasAreExchanged",
    CONTRAST,
    ("betas=(0.9, 0.99)", "betas=(0.99, 0.9)"),
    breaks=("run-betas-are-in-order",),
    defect="Adam's betas are in the wrong order.",
)
script(
    "EvaluationSeedsAgain",
    CONTRAST,
    ("    encoder.eval()\n", "    torch.manual_seed(8)\n    encoder.eval()\n"),
    breaks=("run-random-numbers-go-on",),
    defect="Each evaluation seeds the generator of the training.",
)
script(
    "DataAreDrawnAnewAlike",
    CONTRAST,
    ("        rows = train", "        draw = torch.Generator().manual_seed(step % 8)\n        rows = train"),
    breaks=("run-passes-over-the-data-differ",),
    defect="The generator of the data begins anew every eight steps.",
)
script(
    "ScheduleIsNeverStepped",
    CONTRAST,
    ("        schedule.step()\n", ""),
    breaks=("run-schedule-is-stepped",),
    defect="A schedule is made and never stepped.",
)
script(
    "ALayerIsForgotten",
    CONTRAST,
    (
        "self.inner, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, 8)",
        "self.inner, self.more, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, 32), nn.Linear(32, 8)",
    ),
    breaks=("run-stepped-parts-run",),
    defect="A layer is made and never called.",
)
script(
    "LossCannotFall",
    CONTRAST,
    ("dim=1) / self.temperature", "dim=1) * self.temperature * 0.1"),
    ("WARMUP, STEPS = 40, 16, 8, 24", "WARMUP, STEPS = 40, 16, 8, 110"),
    breaks=("run-loss-leaves-uniform",),
    defect="Similarities are multiplied by the temperature.",
)

# --- a tagger in epochs ---------------------------------------------------------------------------

script(
    "TagsOfPaddingCount",
    TAGGING,
    ("tags = torch.full((len(rows), width), IGNORE)", "tags = torch.zeros(len(rows), width, dtype=torch.long)"),
    breaks=("run-padding-is-in-no-loss",),
    defect="Places of padding have a valid tag, and count.",
)
script(
    "PaddingIsPooled",
    TAGGING,
    ("pooled = (x * real).sum(1) / real.sum(1)", "pooled = x.sum(1) / real.sum(1)"),
    breaks=("run-padding-is-hidden",),
    defect="Padding is hidden in attention, and not where sentences are pooled.",
)
script(
    "RareClassesCountLess",
    TAGGING,
    ("return counts.sum() / (TAGS * counts)", "return TAGS * counts / counts.sum()"),
    breaks=("run-class-weights-favour-the-rare",),
    defect="Class weights grow with how often a class occurs.",
)
script(
    "OneBatchAccumulated",
    TAGGING,
    ("        waiting.append(batch)\n", "        waiting += [batch] * ACCUMULATE\n"),
    breaks=("run-accumulated-batches-differ",),
    defect="Each step accumulates one batch twice.",
)
script(
    "PlateauOfTheLargestLoss",
    TAGGING,
    ('mode="min"', 'mode="max"'),
    breaks=("run-plateau-looks-the-right-way",),
    defect="The plateau looks for the largest loss.",
)
script(
    "PlateauIsToldTheEpoch",
    TAGGING,
    ("schedule.step(valid_loss)", "schedule.step(epoch)"),
    breaks=("run-plateau-is-told-a-measure",),
    defect="The plateau is told the number of the epoch.",
)
script(
    "DecayIsTurnedRound",
    TAGGING,
    ("if p.ndim >= 2]", "if p.ndim < 2]"),
    (
        "    others = [p for p in model.parameters() if p.ndim < 2]\n",
        "    others = [p for p in model.parameters() if p.ndim >= 2]\n",
    ),
    breaks=("run-decay-reaches-a-matrix",),
    defect="Norms and biases have weight decay, matrices have none.",
)
script(
    "TestDataChooseTheModel",
    TAGGING,
    ("valid_loss = evaluate(model, valid_loader, criterion)", "valid_loss = evaluate(model, test_loader, criterion)"),
    breaks=("run-loaders-are-read",),
    defect="The test data are looked at in each epoch, the validation data never.",
)

# --- rates, teachers and frozen parts of other scripts ---------------------------------------------

script(
    "RateHalvesInEachStep",
    CONTRAST,
    ("0.5 * (1.0 + math.cos(math.pi * (step - WARMUP) / STEPS))", "0.1 ** (step - WARMUP)"),
    breaks=("run-rate-does-not-vanish",),
    defect="A decay that is meant for epochs is made in each step.",
)
script(
    "RateTimesRate",
    CONTRAST,
    ("return (step + 1) / WARMUP", "return 1e-2 * (step + 1) / WARMUP"),
    ("return 0.5 * (1.0", "return 1e-2 * 0.5 * (1.0"),
    breaks=("run-schedule-gives-factors",),
    defect="The function of a LambdaLR gives the rate itself.",
)
script(
    "CosineIsOverTooEarly",
    EPOCHS,
    ("ExponentialLR(optimizer, gamma=0.9)", "CosineAnnealingLR(optimizer, T_max=2)"),
    breaks=("run-cosine-does-not-rise-again",),
    defect="The period of a cosine is shorter than the run.",
)
script(
    "DivergenceOverClasses",
    TRANSLATION,
    ('nn.KLDivLoss(reduction="sum")', 'nn.KLDivLoss(reduction="mean")'),
    breaks=("run-divergence-is-over-the-batch",),
    defect="The divergence is divided by the number of classes, too.",
)
script(
    "FrozenNormLearns",
    MASKED,
    ("    matrices = [p", "    model.norm.requires_grad_(False)\n    matrices = [p"),
    ("if p.dim() < 2]", "if p.dim() < 2 and p.requires_grad]"),
    breaks=("run-frozen-norms-rest",),
    defect="A frozen batch norm learns statistics.",
    known_as="open-mmlab/mmpretrain#702",
)
script(
    "TeacherDrops",
    CONTRAST,
    ("    trained = [p", "    teacher = Encoder().requires_grad_(False)\n    trained = [p"),
    ("        optimizer.zero_grad()\n", "        teacher(rows)\n        optimizer.zero_grad()\n"),
    ("self.key.load_state_dict(self.query.state_dict())", "self.key.load_state_dict(Encoder().state_dict())"),
    breaks=("run-teachers-rest",),
    defect="A frozen teacher is asked in training mode.",
)

"""Mutants of scripts that leave parameters out, plan schedules for other runs, weigh batches alike, or take padding,
ends, adapters and averages for others."""

from __future__ import annotations

from conformance.mutants.script import EPOCHS, LANGUAGE, PAIRS, TAGGING, script

script(
    "ScaleIsLeftOut",
    PAIRS,
    (
        "torch.optim.Adam(model.parameters(), lr=RATE)",
        "torch.optim.Adam([*model.left.parameters(), *model.right.parameters()], lr=RATE)",
    ),
    breaks=("run-nothing-that-is-learned-through-is-left-out", "run-model-is-in-an-optimizer"),
    defect="The learned scale of the scores is in no optimizer.",
)
script(
    "CosineOfManyMoreSteps",
    PAIRS,
    (
        "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / STEPS))",
        "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS * 8)",
    ),
    breaks=("run-schedule-comes-down",),
    defect="The cosine is planned for as many steps as there are samples.",
)
_ADAPTER = (
    "class Tower(nn.Module):\n",
    "class LoraLinear(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.base = nn.Linear(WIDTH, 32)\n"
    "        self.down, self.up = nn.Parameter(0.1 * torch.randn(WIDTH, 4)), nn.Parameter(torch.zeros(4, 32))\n\n"
    "    def forward(self, x):\n        return self.base(x) + x @ self.down @ self.up\n\n\nclass Tower(nn.Module):\n",
)
script(
    "AdaptedMapsLearn",
    PAIRS,
    _ADAPTER,
    (
        "        self.inner, self.out = nn.Linear(WIDTH, 32), nn.Linear(32, CLASSES)\n"
        "        self.down, self.up = nn.Parameter(0.1 * torch.randn(WIDTH, 4)), nn.Parameter(torch.zeros(4, 32))\n",
        "        self.inner, self.out = LoraLinear(), nn.Linear(32, CLASSES)\n",
    ),
    ("self.inner(x) + x @ self.down @ self.up", "self.inner(x)"),
    breaks=("run-adapted-maps-rest",),
    defect="The maps that have adapters are not frozen.",
)
script(
    "OneFactorIsSaved",
    PAIRS,
    (
        '    print("matched", loss.item())\n',
        "    import io\n\n"
        '    adapters = {name: one for name, one in model.state_dict().items() if name.endswith("down")}\n'
        "    torch.save(adapters, io.BytesIO())\n",
    ),
    breaks=("run-adapters-are-saved-whole",),
    defect="Of each adapter one factor is saved.",
)
script(
    "RawUnderTheAverage",
    LANGUAGE,
    ("import os\n", "import copy\nimport os\n"),
    ("model = GPT()\n", "model = GPT()\nema = copy.deepcopy(model).requires_grad_(False)\n"),
    (
        "            schedule.step()\n",
        "            schedule.step()\n            with torch.no_grad():\n"
        "                for slow, fast in zip(ema.parameters(), model.parameters()):\n"
        "                    slow.lerp_(fast, 0.1)\n",
    ),
    ('    state = {"model"', '    state = {"ema": model.state_dict(), "model"'),
    breaks=("run-average-is-what-is-saved-as-one",),
    defect="The raw weights are saved under the name of their average.",
)
script(
    "EachBatchWeighsTheSame",
    TAGGING,
    ("DataLoader(valid, batch_size=9,", "DataLoader(valid, batch_size=10,"),
    (
        "    losses = [criterion(model(ids)[0], labels).item() for ids, _, labels in loader]\n"
        "    return sum(losses) / len(losses)\n",
        "    wrong = 0.0\n    for ids, _, labels in loader:\n"
        "        wrong += (model(ids)[0].argmax(-1) != labels).float().mean().item()\n"
        "    return wrong / len(loader)\n",
    ),
    breaks=("run-measures-weigh-rows-alike",),
    defect="The share of errors is a mean over batches of different sizes.",
)
script(
    "ClassAfterClass",
    TAGGING,
    (
        "    train_loader = DataLoader(train, batch_size=8, shuffle=True,",
        "    train.sort(key=lambda row: row[2])\n    train_loader = DataLoader(train, batch_size=8,",
    ),
    breaks=("run-classes-come-mixed",),
    defect="The training data are sorted by class and not shuffled.",
)
script(
    "DivergenceOverPadding",
    TAGGING,
    ("def weights_of(rows):\n", "TEACHER = Tagger().eval().requires_grad_(False)\n\n\ndef weights_of(rows):\n"),
    (
        "            if labels.numel():\n",
        "            wanted = TEACHER(ids)[1].softmax(-1)\n"
        '            loss = loss + nn.functional.kl_div(answers.log_softmax(-1), wanted, reduction="sum") / count\n'
        "            if labels.numel():\n",
    ),
    breaks=("run-divergence-leaves-padding-out",),
    defect="The divergence from the teacher is taken over padding, too.",
)
script(
    "EndIsPadding",
    EPOCHS,
    ("PAD, BOS, EOS, VOCAB, WIDTH = 0, 1, 2, 24, 16", "PAD, BOS, EOS, VOCAB, WIDTH = 0, 1, 0, 24, 16"),
    breaks=("run-end-is-no-padding",),
    defect="The end has the id of padding, and the loss ignores both.",
)
script(
    "FrequentClassesAreDrawnMore",
    TAGGING,
    (
        "    train_loader = DataLoader(train, batch_size=8, shuffle=True,",
        "    labels = torch.tensor([label for _, _, label in train])\n    counts = torch.bincount(labels).float()\n"
        "    sampler = torch.utils.data.WeightedRandomSampler(counts[labels], len(train))\n"
        "    train_loader = DataLoader(Labelled(train), batch_size=8, sampler=sampler,",
    ),
    (
        "def weights_of(rows):\n",
        "class Labelled(torch.utils.data.Dataset):\n    def __init__(self, rows):\n        self.rows = rows\n\n"
        "    def __len__(self):\n        return len(self.rows)\n\n    def __getitem__(self, at):\n"
        "        return self.rows[at]\n\n\ndef weights_of(rows):\n",
    ),
    breaks=("run-sampler-favours-the-rare",),
    defect="Samples are drawn by the counts of their classes, not by the inverse.",
)
script(
    "RecallOfTraining",
    TAGGING,
    (
        "        valid_loss = evaluate(model, valid_loader, criterion)\n        schedule.step(valid_loss)\n"
        "        print(epoch, valid_loss)\n",
        "        score = evaluate(model, train_loader, criterion)\n        schedule.step(score)\n"
        "        print(epoch, score)\n",
    ),
    breaks=("run-part-that-is-named-is-taken",),
    defect="The measure is taken of the training data, and nothing reads those set apart.",
)
script(
    "PartsThatOverlapByTheirNumbers",
    TAGGING,
    ("rows[:64], rows[64:82], rows[82:]", "rows[:64], rows[50:82], rows[82:]"),
    breaks=("run-parts-are-apart",),
    defect="The validation data begin among the training data.",
)
script(
    "PadsAreAttended",
    TAGGING,
    ("        x = self.body(x, src_key_padding_mask=pads)\n", "        x = self.body(x)\n"),
    breaks=("run-padding-is-hidden",),
    defect="Attention gets no mask of the padding.",
)

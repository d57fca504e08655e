"""Mutants of scripts that choose, compute, load, save or sum up without effect, and that tear pairs apart."""

from __future__ import annotations

from conformance.mutants.script import CONTRAST, EPOCHS, MASKED, PAIRS, RESUMED, ROWS, TAGGING, script

_EPOCHS = ("    for epoch in range(6):\n", '    best = float("inf")\n    for epoch in range(6):\n')
_KEPT = "            kept = {name: one.clone() for name, one in model.state_dict().items()}\n"

script(
    "BestStaysInfinite",
    TAGGING,
    _EPOCHS,
    ("        print(epoch, valid_loss)\n", "        print(epoch, valid_loss)\n        if valid_loss < best:\n" + _KEPT),
    breaks=("run-best-is-renewed",),
    defect="The best loss so far is never renewed.",
)
script(
    "KeepsTheWorst",
    TAGGING,
    _EPOCHS,
    (
        "        print(epoch, valid_loss)\n",
        "        print(epoch, valid_loss)\n        if valid_loss > best:\n            best = valid_loss\n" + _KEPT,
    ),
    breaks=("run-best-looks-the-right-way",),
    defect="The weights of the largest loss are kept.",
)
script(
    "ShuffledWithoutTheirLabels",
    TAGGING,
    (
        "    train, valid, test = rows",
        "    texts, labels = [(words, tags) for words, tags, _ in rows], [label for _, _, label in rows]\n"
        "    random.shuffle(texts)\n"
        "    rows = [(*text, label) for text, label in zip(texts, labels)]\n"
        "    train, valid, test = rows",
    ),
    breaks=("run-pairs-stay-together",),
    defect="The texts are shuffled and their labels are not.",
)
script(
    "RateIsOnlyShown",
    PAIRS,
    (
        '        for group in optimizer.param_groups:\n            group["lr"] = rate(step)\n',
        "        lr = rate(step)\n",
    ),
    ('print("matched", loss.item())', 'print("matched", loss.item(), lr)'),
    breaks=("run-rate-that-is-computed-is-used",),
    defect="The rate is computed and printed, and never written to the optimizer.",
)
script(
    "CosineWithoutPi",
    CONTRAST,
    ("math.cos(math.pi * (step - WARMUP) / STEPS)", "math.cos((step - WARMUP) / STEPS)"),
    breaks=("run-cosine-turns-at-pi",),
    defect="The cosine of the schedule has no pi.",
)
script(
    "LoadedByOtherNames",
    CONTRAST,
    (
        "self.key.load_state_dict(self.query.state_dict())",
        'self.key.load_state_dict({f"module.{k}": v for k, v in self.query.state_dict().items()}, strict=False)',
    ),
    breaks=("run-loading-finds-its-weights",),
    defect="The names have a prefix, and strict=False loads nothing.",
)
script(
    "KeepsTheTeacher",
    PAIRS,
    ("import torch\n", "import io\n\nimport torch\n"),
    ('    print("taught", loss.item())\n', "    torch.save(model.teacher.state_dict(), io.BytesIO())\n"),
    breaks=("run-checkpoint-is-of-what-learns",),
    defect="The teacher's weights are saved, and the student's are lost.",
)
script(
    "OneSideIsDetached",
    PAIRS,
    ("F.cross_entropy(scores.T, wanted)", "F.cross_entropy(scores.T.detach(), wanted)"),
    breaks=("run-losses-that-are-summed-have-gradients",),
    defect="One of the two losses of the sum is detached.",
)
script(
    "FlagIsMisspelt",
    CONTRAST,
    ("            parameter.requires_grad_(False)\n", "            parameter.require_grad = False\n"),
    breaks=("run-frozen-by-its-parameters",),
    defect="The flag that should freeze a parameter is misspelt.",
)
script(
    "GoesOnWithoutItsSchedule",
    RESUMED,
    ('    scheduler.load_state_dict(state["scheduler"])\n', ""),
    breaks=("run-resuming-restores-all",),
    defect="A later run takes the optimizer from the checkpoint and begins the schedule anew.",
)
script(
    "TeacherAnswersTheNext",
    PAIRS,
    ("F.softmax(wanted / self.temperature", "F.softmax(wanted.roll(1, 0) / self.temperature"),
    breaks=("run-divergence-compares-like-places",),
    defect="The student of each row is compared with the teacher of the row before.",
)
script(
    "MeasuresTheTeacher",
    PAIRS,
    (
        "    model.train()\n    for _ in range(STEPS):\n",
        '    best = float("inf")\n    model.train()\n    for number in range(STEPS):\n'
        "        if number % 4 == 3:\n"
        "            score = entropy(model.teacher, data)\n"
        "            if score < best:\n"
        "                best, kept = score, model.student.state_dict()\n",
    ),
    (
        "def main():\n",
        "@torch.no_grad()\ndef entropy(tower, data):\n    p = tower(data[:, :6]).softmax(-1)\n"
        "    return -(p * p.log()).sum(-1).mean().item()\n\n\ndef main():\n",
    ),
    breaks=("run-best-is-measured-on-what-learns",),
    defect="The teacher is measured in the student's place.",
)
script(
    "BatchesAreDrawnFromOneSeed",
    PAIRS,
    (
        "        rows = data[torch.randperm(len(data), generator=draw)[:8]]\n",
        "        draw = torch.Generator().manual_seed(6)\n"
        "        rows = data[torch.randperm(len(data), generator=draw)[:8]]\n",
    ),
    breaks=("run-batches-are-drawn-anew",),
    defect="The generator gets its seed again for each batch.",
)

script(
    "BestByTrainingLoss",
    EPOCHS,
    ("        if val_loss < best_loss:\n", "        if train_loss < best_loss:\n"),
    ("copy.deepcopy(model.state_dict()), val_loss", "copy.deepcopy(model.state_dict()), train_loss"),
    breaks=("run-best-is-of-what-judges",),
    defect="The weights with the lowest loss of training are kept, and the loss of the other data chooses nothing.",
)
script(
    "BestByTheLastBatch",
    ROWS,
    ("        if valid_loss < best_loss:\n", "        if loss.item() < best_loss:\n"),
    ("copy.deepcopy(model.state_dict()), valid_loss, 0", "copy.deepcopy(model.state_dict()), loss.item(), 0"),
    breaks=("run-best-is-of-what-judges",),
    defect="The best weights are those of the lowest loss of a last training batch.",
)
script(
    "StatesOfOneMemory",
    EPOCHS,
    ("    best, best_loss = copy.deepcopy(model.state_dict()), math.inf\n",
     "    states, best, best_loss = [], copy.deepcopy(model.state_dict()), math.inf\n"),
    ("        print(epoch, train_loss, val_loss)\n",
     "        print(epoch, train_loss, val_loss)\n        states.append(model.state_dict())\n"),
    ("    model.load_state_dict(best)\n",
     "    model.load_state_dict(best)\n"
     "    model.load_state_dict({name: sum(one[name] for one in states) / len(states) for name in best})\n"),
    breaks=("run-restored-state-is-a-copy",),
    defect="The states that are averaged are the last one, several times.",
)  # fmt: skip
script(
    "MeansOfBatchesOverRows",
    EPOCHS,
    ("    return sum(loss_of(model, loss_fn, src, tgt).item() for src, tgt in loader) / len(loader)\n",
     "    total, count = 0.0, 0\n    for src, tgt in loader:\n"
     "        total += loss_of(model, loss_fn, src, tgt).item()\n        count += src.size(1)\n"
     "    return total / count\n"),
    breaks=("run-mean-is-over-what-is-summed",),
    defect="Means of batches are added up as they are made, and divided by the number of sentences.",
)  # fmt: skip
script(
    "RowsOverBatches",
    EPOCHS,
    ("    return sum(loss_of(model, loss_fn, src, tgt).item() for src, tgt in loader) / len(loader)\n",
     "    total = 0.0\n    for src, tgt in loader:\n"
     "        total += loss_of(model, loss_fn, src, tgt).item() * src.size(1)\n"
     "    return total / len(loader)\n"),
    breaks=("run-mean-is-over-what-is-summed",),
    defect="Means that are weighed by their sentences are divided by the number of batches.",
)  # fmt: skip
script(
    "SumOverAllLabels",
    MASKED,
    ("        loss = nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))\n",
     "        total, count = 0.0, 0\n"
     "        total += nn.functional.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), reduction='sum').item()\n"
     "        count += labels.numel()\n"),
    ("    return loss.item()\n", "    return total / count\n"),
    breaks=("run-mean-is-over-what-is-summed",),
    defect="A sum over the masked words is divided by the number of all places.",
)  # fmt: skip

script(
    "OnlyMatricesLearn",
    EPOCHS,
    ("torch.optim.Adam(model.parameters(), ", "torch.optim.Adam([p for p in model.parameters() if p.dim() > 1], "),
    breaks=("run-nothing-that-is-learned-through-is-left-out",),
    defect="Norms and biases are given to no optimizer, and the best weights are loaded at the end.",
)

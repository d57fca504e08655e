"""Mutants of scripts whose parts of the data overlap, are taken for others, or are read at their beginning only."""

from __future__ import annotations

from conformance.mutants.script import EPOCHS, LANGUAGE, PREFERENCE, ROWS, SPEECH, TAGGING, script

script(
    "TrainsOnEverything",
    TAGGING,
    (
        "    train, valid, test = rows[:64], rows[64:82], rows[82:]\n",
        "    train, valid, test = rows, rows[64:82], rows[82:]\n",
    ),
    breaks=("run-parts-are-apart",),
    defect="The training data hold the validation and the test data.",
)
script(
    "BothPartsFromTheBeginning",
    TAGGING,
    (
        "    train, valid, test = rows[:64], rows[64:82], rows[82:]\n",
        "    train, valid, test = rows[:64], rows[:18], rows[82:]\n",
    ),
    breaks=("run-parts-are-apart",),
    defect="The validation data are the first of the training data.",
)
script(
    "ValidatesOnTraining",
    EPOCHS,
    (
        "        val_loss = evaluate(model, val_loader, loss_fn)\n",
        "        val_loss = evaluate(model, train_loader, loss_fn)\n",
    ),
    breaks=("run-part-that-is-named-is-taken",),
    defect="The validation loss is of the training data.",
)
script(
    "LoadsTrainingForValidation",
    TAGGING,
    ("    valid_loader = DataLoader(valid, batch_size=9,", "    valid_loader = DataLoader(train_rows, batch_size=9,"),
    (
        "    train_loader = DataLoader(train, batch_size=8,",
        "    train_rows = train\n    train_loader = DataLoader(train_rows, batch_size=8,",
    ),
    breaks=("run-part-that-is-named-is-taken",),
    defect="The loader for validation gives the training data.",
)
_OF_SPLITS = (
    "def evaluate(model, loader):\n",
    'def both(model):\n    found = {}\n    for split in ("train", "valid"):\n'
    '        found[split] = evaluate(model, part("train"))\n    return found\n\n\n'
    'def part(split):\n    return train if split == "train" else valid\n\n\n'
    "@torch.no_grad()\ndef evaluate(model, loader):\n",
)
script(
    "EachSplitIsTraining",
    LANGUAGE,
    _OF_SPLITS,
    ("    print(epoch, evaluate(model, valid))\n", "    print(epoch, both(model))\n"),
    breaks=("run-part-that-is-named-is-taken",),
    defect="A loop over the names of the parts evaluates the training data for each.",
)
_CROPS = (
    "    return TensorDataset((start + start // VOCAB % 7 * torch.arange(T + 1) + torch.arange(T + 1) ** 2) % VOCAB)\n",
    "    text = ((start + start // VOCAB % 7 * torch.arange(T + 1) + torch.arange(T + 1) ** 2) % VOCAB).flatten()\n"
    "    at = torch.randint(T, (count,))\n"
    "    return TensorDataset(torch.stack([torch.cat([text[i : i + T], text[i + T : i + T + 1]]) for i in at]))\n",
)
script(
    "CropsOfTheBeginning",
    LANGUAGE,
    _CROPS,
    breaks=("run-crops-begin-everywhere",),
    defect="Random pieces of the text begin in its first piece only.",
)
script(
    "ValidatesOnUnscaled",
    SPEECH,
    (
        "        print(epoch, loss.item())",
        "        mean, std = SOUNDS.mean(), SOUNDS.std()\n"
        "        train_sounds = (SOUNDS[:4] - mean) / std\n"
        "        valid_sounds = SOUNDS[4:]\n"
        "        model.eval()\n"
        "        with torch.no_grad():\n"
        "            heard = [model(one[None], torch.tensor([len(one)])) for one in (train_sounds, valid_sounds)]\n"
        "        print(epoch, loss.item(), len(heard))",
    ),
    breaks=("run-parts-are-scaled-alike",),
    defect="The sounds that judge are not scaled, those of training are.",
)
script(
    "ScaledByAllRows",
    ROWS,
    (
        "def statistics(rows):\n    inputs = torch.stack([x for x, _ in rows])\n"
        "    return inputs.mean(0), inputs.std(0)\n",
        "class Scaler:\n    def fit(self, rows):\n        inputs = torch.stack([x for x, _ in rows])\n"
        "        self.known = inputs.mean(0), inputs.std(0)\n        return self\n",
    ),
    ("known = statistics(train_rows)", "known = Scaler().fit(rows).known"),
    breaks=("run-scaling-is-fitted-in-training",),
    defect="The scaler is fitted to all rows, those that judge among them.",
)
script(
    "JudgedByTheSameSeed",
    PREFERENCE,
    ("def __init__(self, count=80):", "def __init__(self, count=80, seed=4):"),
    ("torch.Generator().manual_seed(4)", "torch.Generator().manual_seed(seed)"),
    ("random_split(Answers(), [64, 16])", "Answers(64, seed=4), Answers(16, seed=4)"),
    breaks=("run-judging-data-are-drawn-anew",),
    defect="The pairs that judge are drawn from the seed of those that are learned from.",
)
script(
    "JudgedWithNoise",
    ROWS,
    ("def __init__(self, rows, mean, spread):", "def __init__(self, rows, mean, spread, augment=False):"),
    (
        "        self.rows, self.mean, self.spread = rows, mean, spread\n",
        "        self.rows, self.mean, self.spread = rows, mean, spread\n        self.noise = 0.1 * augment\n",
    ),
    ("        return (x - self.mean)", "        return (x + self.noise * torch.randn_like(x) - self.mean)"),
    (
        "Scaled(train_rows, *known), Scaled(valid_rows, *known)",
        "Scaled(train_rows, *known, augment=True), Scaled(valid_rows, *known, augment=True)",
    ),
    breaks=("run-judging-data-are-not-varied",),
    defect="The rows that judge are varied as those that are learned from.",
)

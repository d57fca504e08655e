"""Mutants of scripts that learn preferences, and of one that scales the rows of its parts: what a margin is, which rows
and numbers each part has, who is judged, where a cosine ends, and which layers learn faster."""

from __future__ import annotations

from conformance.mutants.script import LANGUAGE, PREFERENCE, REWARDS, ROWS, script

# --- preferences ----------------------------------------------------------------------------------

script(
    "PreferenceTurnedRound",
    PREFERENCE,
    ("F.logsigmoid(BETA * margin)", "F.logsigmoid(-BETA * margin)"),
    breaks=("run-preferred-answers-are-raised",),
    defect="The sign of the margin is turned round.",
)
script(
    "PreferenceWithoutMinus",
    PREFERENCE,
    ("return -F.logsigmoid(", "return F.logsigmoid("),
    breaks=("run-preferred-answers-are-raised",),
    defect="The log-probability of the preference is minimised.",
)
script(
    "ReferenceIsThePolicy",
    PREFERENCE,
    ("reference = copy.deepcopy(policy).requires_grad_(False)", "reference = policy"),
    breaks=("run-margin-is-of-two-models",),
    defect="The reference is the model that learns.",
)
script(
    "ReferenceIsASecondName",
    REWARDS,
    ("    optimizer = torch", "    reference = policy\n    optimizer = torch"),
    ("            before = log_probabilities(policy, ids)\n",
     "            before, fixed = (log_probabilities(one, ids) for one in (policy, reference))\n"),
    ("            loss = policy_loss(log_probabilities(policy, ids), before, advantage)\n",
     "            now = log_probabilities(policy, ids)\n"
     "            away = fixed - now\n"
     "            loss = policy_loss(now, before, advantage) + 0.1 * (away.exp() - away - 1).mean()\n"),
    breaks=("run-kept-model-is-a-copy",),
    defect="The reference that the policy is held to is the policy.",
)  # fmt: skip
script(
    "ReferenceIsNew",
    PREFERENCE,
    (
        "    policy = Writer()\n",
        "    policy = Writer()\n    first = torch.optim.Adam(policy.parameters(), lr=1e-2)\n"
        "    for chosen, _ in [row for _ in range(3) for row in train_loader]:\n"
        "        loss = -log_probability(policy, chosen).mean()\n"
        "        first.zero_grad()\n        loss.backward()\n        first.step()\n",
    ),
    ("reference = copy.deepcopy(policy)", "reference = Writer()"),
    breaks=("run-reference-has-learned",),
    defect="The model has learned before, and its reference is a new one.",
)
script(
    "ReferencesExchanged",
    PREFERENCE,
    ("- (reference_chosen - reference_rejected)", "- (reference_rejected - reference_chosen)"),
    breaks=("run-margin-begins-at-zero",),
    defect="The log-probabilities of the reference are exchanged.",
)
script(
    "BetaDivides",
    PREFERENCE,
    ("F.logsigmoid(BETA * margin)", "F.logsigmoid(margin / BETA)"),
    breaks=("run-margin-is-scaled-inside",),
    defect="The margin is divided by beta.",
)
script(
    "BetaOutside",
    PREFERENCE,
    ("-F.logsigmoid(BETA * margin).mean()", "-(BETA * F.logsigmoid(margin)).mean()"),
    breaks=("run-margin-is-scaled-inside",),
    defect="Beta multiplies the loss, and not the margin.",
)
script(
    "PreferenceCountsPadding",
    PREFERENCE,
    ("    counts = labels != PAD\n", "    counts = torch.ones_like(labels, dtype=torch.bool)\n"),
    breaks=("run-padding-is-in-no-loss",),
    defect="The log-probability of an answer counts its padding.",
)
script(
    "PreferenceUnshifted",
    PREFERENCE,
    ("model(ids)[:, :-1], ids[:, 1:]", "model(ids), ids"),
    breaks=("run-input-does-not-hold-its-answer",),
    defect="The log-probabilities are of the tokens that the model is given.",
)
script(
    "JudgesTheRawWeights",
    PREFERENCE,
    ("evaluate(average, valid_loader)", "evaluate(policy, valid_loader)"),
    breaks=("run-average-is-asked",),
    defect="An average of the weights is kept, and the raw weights are judged.",
)
script(
    "AverageIsTheModelItself",
    PREFERENCE,
    ("average = copy.deepcopy(policy).requires_grad_(False)", "model = policy\n    average = model"),
    ("mine.lerp_(its, 0.1)", "mine.mul_(0.9).add_(its, alpha=0.1)"),
    breaks=("run-average-has-its-own-memory",),
    defect="The average is the model under another name, and to update it shrinks the weights.",
)
script(
    "CosineOfSamples",
    PREFERENCE,
    ("EPOCHS * len(train_loader), 0", "EPOCHS * len(train_rows), 0"),
    breaks=("run-rate-of-a-cosine-comes-down",),
    defect="The cosine is planned for as many steps as there are samples.",
)

# --- rows -----------------------------------------------------------------------------------------

script(
    "PartsOverlap",
    ROWS,
    ("Subset(rows, order[112:])", "Subset(rows, torch.randperm(len(rows)).tolist()[112:])"),
    breaks=("run-loaders-share-no-rows",),
    defect="The rows are shuffled anew for the second part, which holds rows of the first.",
)
script(
    "ValidationByItself",
    ROWS,
    ("Scaled(valid_rows, *known)", "Scaled(valid_rows, *statistics(valid_rows))"),
    breaks=("run-inputs-are-scaled-alike",),
    defect="The validation rows are scaled by their own statistics.",
)
script(
    "ValidationAsItIs",
    ROWS,
    ("Scaled(train_rows, *known), Scaled(valid_rows, *known)", "Scaled(train_rows, *known), valid_rows"),
    breaks=("run-inputs-are-scaled-alike",),
    defect="The validation rows are not scaled.",
)
script(
    "CosineOfEpochsByBatches",
    ROWS,
    (
        "            optimizer.step()\n        schedule.step()\n",
        "            optimizer.step()\n            schedule.step()\n",
    ),
    breaks=("run-cosine-counts-what-it-is-stepped-with",),
    defect="A cosine over the epochs is stepped with each batch.",
)
script(
    "AverageWithoutStatistics",
    ROWS,
    (
        "    optimizer = torch.optim.SGD(",
        "    average = copy.deepcopy(model).requires_grad_(False)\n    optimizer = torch.optim.SGD(",
    ),
    (
        "            optimizer.step()\n",
        "            optimizer.step()\n            for mine, its in zip(average.parameters(), model.parameters()):\n"
        "                mine.mul_(0.9).add_(its.detach(), alpha=0.1)\n",
    ),
    ("valid_loss = evaluate(model, valid_loader)", "valid_loss = evaluate(average, valid_loader)"),
    breaks=("run-average-has-statistics",),
    defect="An average of the weights is judged whose batch norm has seen no data.",
)
script(
    "LowerLayersFaster",
    LANGUAGE,
    (
        'groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]\n',
        "inside = {id(p) for p in model.blocks.parameters()}\n"
        'groups = [{"params": [p for p in model.parameters() if id(p) not in inside]}]\n'
        "for depth, block in enumerate(model.blocks):\n"
        '    groups.append({"params": block.parameters(), "lr": 1e-2 * 0.5**depth})\n',
    ),
    breaks=("run-lower-layers-learn-no-faster",),
    defect="The rates of layers fall from the lowest to the highest.",
)
script(
    "CosineOfRowsByBatches",
    ROWS,
    ("T_max=EPOCHS", "T_max=EPOCHS * len(train_set)"),
    (
        "            optimizer.step()\n        schedule.step()\n",
        "            optimizer.step()\n            schedule.step()\n",
    ),
    breaks=("run-schedule-is-planned-in-batches",),
    defect="A cosine over all rows is stepped with each batch.",
)
script(
    "PatienceOfOnce",
    ROWS,
    ("copy.deepcopy(model.state_dict()), valid_loss, 0", "copy.deepcopy(model.state_dict()), valid_loss, waited"),
    ("        if waited == PATIENCE:\n", "        if waited >= PATIENCE:\n"),
    breaks=("run-patience-begins-anew",),
    defect="The count of bad epochs never begins anew.",
)

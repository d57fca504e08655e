"""Mutants of scripts that plan what never comes true: flags, limits, counters, schedules, copies and what is loaded."""

from __future__ import annotations

from conformance.mutants.script import CONTRAST, EPOCHS, MASKED, TAGGING, script

script(
    "RateFallsBelowZero",
    CONTRAST,
    ("return 0.5 * (1.0 + math.cos(math.pi * (step - WARMUP) / STEPS))", "return 1.0 - (step - WARMUP) / (STEPS / 3)"),
    breaks=("run-rate-is-not-negative",),
    defect="A linear decay is planned for a third of the steps.",
)
script(
    "FrozenByAnAttribute",
    CONTRAST,
    (
        "        for parameter in self.key.parameters():\n            parameter.requires_grad_(False)\n",
        "        self.key.requires_grad = False\n",
    ),
    breaks=("run-frozen-by-its-parameters",),
    defect="requires_grad is set on the part, which has no such flag.",
)
script(
    "ClipsToTheRate",
    EPOCHS,
    ("    losses = 0.0\n", '    losses, lr = 0.0, optimizer.param_groups[0]["lr"]\n'),
    ("clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(model.parameters(), lr)"),
    breaks=("run-clipping-limit-is-no-rate",),
    defect="Gradients are clipped to the learning rate.",
)
script(
    "PatienceNeverBeginsAnew",
    TAGGING,
    ("    for epoch in range(6):\n", '    best, waited, patience = float("inf"), 0, 4\n    for epoch in range(6):\n'),
    (
        "        print(epoch, valid_loss)\n",
        "        print(epoch, valid_loss)\n"
        "        if valid_loss < best:\n"
        "            best = valid_loss\n"
        "        else:\n"
        "            waited += 1\n"
        "        if waited >= patience:\n"
        "            break\n",
    ),
    breaks=("run-patience-begins-anew",),
    defect="Bad epochs add up over the whole run.",
)
script(
    "KeyBeginsOtherwise",
    CONTRAST,
    ("        self.key.load_state_dict(self.query.state_dict())\n", ""),
    breaks=("run-slow-copy-begins-as-a-copy",),
    defect="The slow copy begins with random numbers of its own.",
)
script(
    "LoadedIntoNothing",
    CONTRAST,
    ("self.key.load_state_dict(", "Encoder().load_state_dict("),
    breaks=("run-loaded-weights-are-kept",),
    defect="The weights are loaded into a module that is thrown away.",
)
script(
    "GoesOnFromTheAverage",
    CONTRAST,
    (
        "            print(step, loss.item(), evaluate",
        "            model.query.load_state_dict(model.key.state_dict())\n"
        "            print(step, loss.item(), evaluate",
    ),
    breaks=("run-training-leaves-its-average",),
    defect="The evaluation takes the average and does not put the weights back.",
)
script(
    "KeepsAReference",
    CONTRAST,
    (
        "            last = copy.deepcopy(model.state_dict())\n            print",
        "            if step > 8:\n                last = model.state_dict()\n            print",
    ),
    breaks=("run-restored-state-is-a-copy",),
    defect="The state that is kept is the model's own memory.",
)
script(
    "MasksAllAlike",
    MASKED,
    ("    ids[chosen] = MASK\n", "    ids[torch.rand(ids.shape, generator=draw) < 0.8] = MASK\n"),
    breaks=("run-what-is-masked-is-asked",),
    defect="Tokens are masked that no label asks for.",
)
script(
    "PointerRests",
    CONTRAST,
    ("        self.at = (self.at + len(keys)) % len(self.queue)\n", ""),
    breaks=("run-pointer-moves-on",),
    defect="The queue's pointer never moves.",
)
script(
    "MeansOverRows",
    TAGGING,
    (
        "    losses = [criterion(model(ids)[0], labels).item() for ids, _, labels in loader]\n"
        "    return sum(losses) / len(losses)\n",
        "    total, rows = 0.0, 0\n"
        "    for ids, _, labels in loader:\n"
        "        loss = criterion(model(ids)[0], labels)\n"
        "        total += loss.item()\n"
        "        rows += len(labels)\n"
        "    return total / rows\n",
    ),
    breaks=("run-mean-is-over-what-is-summed",),
    defect="Means of batches are divided by the number of rows.",
)

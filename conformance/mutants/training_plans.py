"""Mutants of scripts that plan what never comes true: flags, limits, counters, schedules."""

from __future__ import annotations

from conformance.mutants.script import CONTRAST, EPOCHS, TAGGING, script

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

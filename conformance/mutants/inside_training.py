"""Mutants of whole models in whose file a training loop stands that the text shows to be wrong."""

from __future__ import annotations

from conformance.mutants.source import TAGGER, changed

_LOOP = """def train(model, loader, epochs=3, accumulate=4):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=epochs * len(loader))
    best, best_state = float("inf"), None
    for epoch in range(epochs):
        for step, (ids, labels) in enumerate(loader):
            loss = loss_of(model, ids, labels) / accumulate
            loss.backward()
            if (step + 1) % accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()
        val_loss = evaluate(model)
        if val_loss < best:
            best, best_state = val_loss, copy.deepcopy(model.state_dict())
    model.load_state_dict(best_state)


"""
_CLASS = "class Tagger("


def _trained(name: str, changes: dict[str, str], claim: str, defect: str) -> None:
    loop = _LOOP
    for old, new in changes.items():
        assert loop.count(old) == 1, old
        loop = loop.replace(old, new)
    changed(name, TAGGER, _CLASS, loop + _CLASS, breaks=(f"results-of-training-{claim}",), defect=defect)


_trained(
    "GradientsOfOneBatch",
    {
        "            loss.backward()\n": "            optimizer.zero_grad()\n            loss.backward()\n",
        "                optimizer.zero_grad()\n": "",
    },
    "use-all-gradients",
    "Gradients are cleared with each batch, and a step comes after four.",
)
_trained(
    "GradientsOfAllBatches",
    {
        "            if (step + 1) % accumulate == 0:\n": "",
        "                nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n": "",
        "                optimizer.step()\n": "            optimizer.step()\n",
        "                optimizer.zero_grad()\n": "",
    },
    "start-from-no-gradients",
    "Nothing clears gradients.",
)
_trained(
    "ClipsWhatWasUsed",
    {
        "            if (step + 1) % accumulate == 0:\n": "",
        "                nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n": "",
        "                optimizer.step()\n": "            optimizer.step()\n"
        "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "                optimizer.zero_grad()\n": "            optimizer.zero_grad()\n",
    },
    "are-clipped-before-a-step",
    "Gradients are clipped behind the step.",
)
_trained(
    "KeepsWhatLearnsOn",
    {"copy.deepcopy(model.state_dict())": "model.state_dict()"},
    "are-copied-when-kept",
    "The state that is kept as the best is the model's own.",
)
_trained(
    "NothingIsBetter",
    {"val_loss < best": "val_loss > best"},
    "that-are-best-are-kept",
    "No loss is above infinity, so that none is ever kept.",
)
_trained(
    "OneStepAnEpoch",
    {"            scheduler.step()\n": "        scheduler.step()\n"},
    "follow-their-schedule",
    "A schedule for all batches is stepped once an epoch.",
)

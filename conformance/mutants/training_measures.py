"""Mutants of scripts whose measures count the wrong places or the last batch alone, and whose mixtures are none."""

from __future__ import annotations

from conformance.mutants.script import MASKED, TAGGING, script

_BEFORE = "    model.train()\n    return loss.item()\n"
script(
    "HitsOfTheInput",
    MASKED,
    (
        _BEFORE,
        "    hits, asked = (logits.argmax(-1) == ids).sum().item(), (labels != -100).sum().item()\n"
        "    model.train()\n    return loss.item(), hits / asked\n",
    ),
    breaks=("run-hits-are-counted-where-labels-count",),
    defect="The accuracy counts all places against the input, and is divided by the number of masked ones.",
)
script(
    "HitsOverAllPlaces",
    MASKED,
    (
        _BEFORE,
        "    right = (logits.argmax(-1) == labels).float().mean()\n"
        "    model.train()\n    return loss.item(), right.item()\n",
    ),
    breaks=("run-hits-are-counted-where-labels-count",),
    defect="The accuracy is a mean over all places, most of which are not asked for.",
)
_LOSSES = "    losses = [criterion(model(ids)[0], labels).item() for ids, _, labels in loader]\n"
script(
    "LossOfTheLastBatch",
    TAGGING,
    (_LOSSES, "    for ids, _, labels in loader:\n        loss = criterion(model(ids)[0], labels).item()\n"),
    ("    return sum(losses) / len(losses)\n", "    return loss\n"),
    breaks=("run-measures-are-of-all-batches",),
    defect="The validation loss is that of the last batch.",
)
script(
    "LossesBeginAnew",
    TAGGING,
    (
        _LOSSES,
        "    losses = []\n    for ids, _, labels in loader:\n"
        "        losses = [criterion(model(ids)[0], labels).item()]\n",
    ),
    breaks=("run-measures-are-of-all-batches",),
    defect="The list of losses begins anew with each batch.",
)
_ONE = "                loss = loss + criterion(label, labels) / ACCUMULATE\n"
_MIXED = (
    "                order, share = torch.randperm(len(labels)), 0.7\n"
    "                mixed = share * label + (1 - share) * label[order]\n"
    "                both = {}\n"
    "                loss = loss + both / ACCUMULATE\n"
)
script(
    "SharesOfTheOther",
    TAGGING,
    (
        _ONE,
        _MIXED.format("(1 - share) * criterion(mixed, labels) + share * criterion(mixed, labels[order])"),
    ),
    breaks=("run-mixtures-keep-their-shares",),
    defect="The shares of the labels are exchanged against those of what is mixed.",
)
script(
    "MixedWithItself",
    TAGGING,
    (_ONE, _MIXED.format("share * criterion(mixed, labels) + (1 - share) * criterion(mixed, labels)")),
    breaks=("run-mixtures-keep-their-shares",),
    defect="The labels of the other rows of a mixture are not asked for.",
)

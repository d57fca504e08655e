"""Which lines a mistake is said to be at: the likeliest first, never the whole file.

A check knows the event that shows a mistake. The mistake itself often stands elsewhere: labels go wrong where they are
cut out, not where the loss reads them. Each function names at most a few places, "train.py:12", the cause first.
"""

from conformance.watch.pointing.common import first
from conformance.watch.pointing.course import (
    averaged,
    beside,
    clearing,
    fed,
    in_its_place,
    kept,
    later,
    scheduled,
    settings,
    weights,
)
from conformance.watch.pointing.labels import (
    answers,
    condition,
    counted,
    distribution,
    divisor,
    filled,
    labels_of,
    shift,
    turned,
    value,
)
from conformance.watch.pointing.modules import (
    PADS,
    apart,
    batched,
    classes,
    dead,
    evaluating,
    halts,
    hides,
    seeded,
    switched,
    together,
    used,
)
from conformance.watch.pointing.updates import formula, given, parameters, rate, remade

__all__ = [
    "PADS",
    "answers",
    "apart",
    "averaged",
    "batched",
    "beside",
    "classes",
    "clearing",
    "condition",
    "counted",
    "dead",
    "distribution",
    "divisor",
    "evaluating",
    "fed",
    "filled",
    "first",
    "formula",
    "given",
    "halts",
    "hides",
    "in_its_place",
    "kept",
    "labels_of",
    "later",
    "parameters",
    "rate",
    "remade",
    "scheduled",
    "seeded",
    "settings",
    "shift",
    "switched",
    "together",
    "turned",
    "used",
    "value",
    "weights",
]

"""Optimizers of torch's interface, minigrad's and PyTorch's alike, run over given gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.protocol import NotProvided
from conformance.reference.training import weight_decays

KINDS = {"sgd": ("SGD", ("momentum",)), "adam": ("Adam", ("betas", "eps")), "adamw": ("AdamW", ("betas", "eps"))}
"""kind -> the class, and which options of the role it takes."""


def trajectory(
    optim: Any, config: Mapping[str, Any], parameters: Sequence[Any], grads: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """The parameters after each step, a list a step. optim: the module that has SGD, Adam and AdamW.

    Raises NotProvided for another kind.
    """
    if config["kind"] not in KINDS:
        raise NotProvided(f"{optim.__name__} is not asked for {config['kind']!r}: the kinds are {', '.join(KINDS)}")
    name, options = KINDS[config["kind"]]
    decays = weight_decays(config["weight_decay"], len(parameters))
    groups = [{"params": [p], "weight_decay": decay} for p, decay in zip(parameters, decays, strict=True)]
    optimizer = getattr(optim, name)(groups, lr=config["lr"], **{option: config[option] for option in options})
    after = []
    for step in grads:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient
        optimizer.step()
        after.append([parameter.detach().clone() for parameter in parameters])
    return after

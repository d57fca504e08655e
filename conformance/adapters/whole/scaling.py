"""Models made small enough to be tested: fewer parameters, fewer seconds in the constructor."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from torch import nn

from conformance.adapters.whole.sizes import HEAD_WIDTHS, MAX_PARAMETERS, Sizing

MAX_SECONDS = 2.0
"""A constructor that computes for longer is called with smaller sizes."""


class TooLarge(BaseException):
    """The module under construction has too many parameters, or takes too long: no `except Exception` may hide it."""


def scaled_down(
    make: Callable[[Sizing], nn.Module], sizing: Sizing, variants: Mapping[str, str]
) -> tuple[nn.Module, Sizing]:
    """The module at sizes at which it is small enough, and these; where there are none, as small as it gets.

    variants: the name of the smallest variant for the name of each.
    """
    seen = sizing.seen
    ways = list(itertools.product(HEAD_WIDTHS, (True, False)))  # some parts take images of their own size only
    for head_width, small_images in ways:
        for _ in range(3):  # sizes that come after the limit are seen only once what came before is small
            sizing = Sizing(None, head_width, seen, variants, small_images)
            try:
                return limited(make, sizing), sizing
            except (Exception, TooLarge):
                more = {what: seen.get(what, set()) | sizing.seen.get(what, set()) for what in seen | sizing.seen}
            if more == seen:
                break
            seen = more
    for head_width, small_images in ways[-2:]:  # still large, but smaller than its own
        sizing = Sizing(None, head_width, seen, variants, small_images)
        with suppress(Exception):
            return make(sizing), sizing
    return make(Sizing()), Sizing()


def parameters_in(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if not nn.parameter.is_lazy(p))


def limited(make: Callable[[Sizing], nn.Module], sizing: Sizing, most: int = MAX_PARAMETERS) -> nn.Module:
    """What `make` gives. Raises TooLarge as soon as it has more than `most` parameters or takes too long."""
    counted: dict[int, nn.Parameter] = {}
    total = 0
    start = time.thread_time()

    def check(parameters: int) -> None:
        if parameters > most:
            raise TooLarge(f"it would have more than {most:,} parameters")
        if time.thread_time() - start > MAX_SECONDS:
            raise TooLarge(f"its constructor would take more than {MAX_SECONDS:g} s")

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total
        if parameter is not None and id(parameter) not in counted and not nn.parameter.is_lazy(parameter):
            counted[id(parameter)] = parameter  # kept, so that no other gets its id
            total += parameter.numel()
            check(total)

    hook = nn.modules.module.register_module_parameter_registration_hook(count)
    try:
        made = make(sizing)
    finally:
        hook.remove()
    check(parameters_in(made))  # copies of a layer register nothing
    return made

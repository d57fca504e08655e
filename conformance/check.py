"""The check protocol: a plain function `check(impl, draw) -> Evidence`, registered for one claim.

    @check("attention-rows-sum-to-one", roles=("attention",), needs=("attention.weights",))
    def rows_sum_to_one(impl, draw):
        '''Every row of the attention weights sums to one.'''
        ...

`roles` are the roles it builds; `needs` optional outputs or methods beyond them ("role.output", "role.vjp").
`examples` is how many it explores in the default budget besides the pinned one. Nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `import conformance` imports this file, and nothing heavy
    from conformance.draw import Draw
    from conformance.evidence import Evidence

    CheckFunction = Callable[[Any, Draw], Evidence]


@dataclass(frozen=True)
class Check:
    claim: str
    roles: tuple[str, ...]
    needs: tuple[str, ...]
    examples: int
    function: CheckFunction

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"


CHECKS: dict[str, Check] = {}


def check(
    claim: str, *, roles: tuple[str, ...], needs: tuple[str, ...] = (), examples: int = 10
) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as the check of `claim` (a slug of the catalogue; one check a claim)."""

    def register(function: CheckFunction) -> CheckFunction:
        from conformance.protocol import ROLES

        if claim in CHECKS:
            raise ValueError(f"claim {claim!r} has two checks: {CHECKS[claim].name} and {function.__qualname__}")
        for role in roles:
            if role not in ROLES:
                raise ValueError(f"check of {claim!r}: there is no role {role!r}")
        CHECKS[claim] = Check(claim, tuple(roles), tuple(needs), examples, function)
        return function

    return register

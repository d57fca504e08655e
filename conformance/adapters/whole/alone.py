"""What is pointed at and is no model: a function or class, or all of a file, tried with the user's model for it.

`alone` gives what can be tested of it: with a model where one is found that can be run, else what needs none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from conformance.adapters.helpers.implementation import HelpersImplementation
from conformance.adapters.inference.facts import Fact
from conformance.adapters.specification import Specification, SpecificationError
from conformance.adapters.stated import Stated
from conformance.adapters.whole.decoding import NO_WRITER, WRITES
from conformance.adapters.whole.guests import Guest, stand_beside
from conformance.adapters.whole.implementation import PointedImplementation
from conformance.protocol import NotProvided

_MODELS = 4
"""So many classes are tried as the model."""

Alone = PointedImplementation | HelpersImplementation


def alone(guest: Guest, spec: Specification, stated: Stated | None) -> Alone | None:
    """The guest as something that can be tested; None where nothing of it can."""
    functions = guest.functions or [guest.found]
    by_itself = HelpersImplementation(functions, spec.name)
    if not guest.all_of_it and by_itself.says_something:
        return by_itself
    return next(_with_models(guest, spec, stated), None) or (by_itself if by_itself.roles else None)


def _with_models(guest: Guest, spec: Specification, stated: Stated | None) -> Iterator[PointedImplementation]:
    """Each model of the user's with which something of the guest can be tested."""
    for cls in islice(guest.models(), _MODELS):
        with suppress(SpecificationError):
            stand_beside(cls, guest)
            own = Specification(spec.text, spec.target, cls.__name__, spec.is_file)
            found = PointedImplementation(cls, own, stated, guest=guest)
            if found.whole is None:
                continue
            writes = [one.__name__ for one in guest.functions if _writes(one.__name__)]
            told = found.beside is not None and bool(found.beside.roles)
            if writes and (why := _unwritten(found, writes)):
                if not told:
                    continue
                found.untested.append(why)
            if writes or told:
                file = Path(spec.target).name if spec.is_file else spec.target
                pointed_at = f"all of {file}" if guest.all_of_it else f"{spec.name} of {file}"
                found.whole.facts.append(Fact("tested with it", pointed_at, "pointed at; it takes a model"))
                yield found


def _writes(name: str) -> bool:
    return bool(WRITES.search(name.lower())) and not NO_WRITER.search(name.lower())


def _unwritten(found: PointedImplementation, names: list[str]) -> str:
    """Why none of these functions writes with the model; "" where one does."""
    assert found.whole is not None
    try:
        writers = found.whole.writers()
    except NotProvided as error:
        return f"{', '.join(names)}: {error}"
    return "" if any(writer.name in names for writer in writers) else f"{', '.join(names)} could not be run"

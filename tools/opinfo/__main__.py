"""`python -m tools.opinfo [NAME...]`: torch's op samples on torch and on minigrad, side by side.

For every entry of torch's own database of operators (torch.testing's `op_db`) that has a namesake here, its samples run
on both: values, dtypes and shapes in every dtype, views, arguments that must not change, gradients and second
gradients, the same as a compiled plan, as a method, in place, and the calls that torch refuses. An entry is equal;
refused, with the sentence; unclear, where the error is no sentence of minigrad's; or different, with the smallest
sample. Exit code 1 if anything differs or is unclear.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from minigrad import Tensor
from tools.opinfo.runs import BUSY, DIFFERENT, EQUAL, REFUSED, SKIPPED, UNCLEAR, WIDER, Call, Outcome, run
from tools.opinfo.samples import database, dtypes_of, errors, inputs, namesake, title


def calls(entry: Any, share: int | None, reference: bool) -> Iterator[tuple[str, Call]]:
    """(mode, call) for the samples of an entry; the first `share` of each kind where it is given."""
    mine = namesake(entry)
    for dtype in dtypes_of(entry):
        name = str(dtype).removeprefix("torch.")
        wide = reference and name in ("float32", "int64")
        for sample in _samples(inputs(entry, dtype, False, wide), share):
            yield "values", Call(entry.op, mine, sample, name, entry.name)
        if name in ("float64", "int64"):
            for mode, function in (("method", entry.method_variant), ("in place", entry.inplace_variant)):
                own = getattr(Tensor, getattr(function, "__name__", ""), None)
                if function is None or own is None:
                    continue
                for sample in _samples(inputs(entry, dtype, False, False), share):
                    if isinstance(sample.input, torch.Tensor) and not getattr(sample, "broadcasts_input", False):
                        yield mode, Call(function, own, sample, name, entry.name)
    if torch.float64 in dtypes_of(entry):
        gradient = entry.supports_autograd
        for sample in _samples(inputs(entry, torch.float64, gradient, False), share):
            if gradient:
                yield "gradients", Call(entry.op, mine, sample, "float64", entry.name)
            yield "compiled", Call(entry.op, mine, sample, "float64", entry.name)
    if torch.float32 in dtypes_of(entry):
        for sample in _samples(inputs(entry, torch.float32, entry.supports_autograd, False), min(share or 4, 4)):
            yield "compiled", Call(entry.op, mine, sample, "float32", entry.name)
    try:
        for wrong in itertools.islice(errors(entry), share):
            yield "errors", Call(entry.op, mine, wrong.sample_input, "", entry.name)
    except ImportError:  # some need scipy
        pass


def _samples(found: Iterator[Any], share: int | None) -> Iterator[Any]:
    """Samples that are small enough, `share` of them, taken evenly from the first ten times as many."""
    if share is None:
        yield from found
        return
    first = list(itertools.islice(found, 10 * share))
    yield from first[:: max(len(first) // share, 1)][:share]


MODES_OF_RANDOM = ("values", "errors")


def examine(entry: Any, share: int | None = None, reference: bool = False) -> list[Outcome]:
    """The outcomes of an entry's samples."""
    outcomes: list[Outcome] = []
    try:
        for mode, call in calls(entry, share, reference):
            if call.size() <= BUSY and (not call.random or mode in MODES_OF_RANDOM):
                outcomes += run(call, mode)
    except (ImportError, RuntimeError, AssertionError) as error:  # torch cannot make a sample on this machine
        outcomes.append(Outcome(SKIPPED, "samples", f"{type(error).__name__}: {error}"[:200]))
    return outcomes


def verdict(outcomes: Sequence[Outcome]) -> str:
    found = {outcome.verdict for outcome in outcomes}
    return next((name for name in (DIFFERENT, UNCLEAR, REFUSED, EQUAL, WIDER) if name in found), SKIPPED)


def told(name: str, outcomes: Sequence[Outcome]) -> str:
    """An entry's lines: its verdict and counts, and for each thing that is not equal the smallest sample."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    many = ", ".join(
        f"{counts[kind]} {kind}" for kind in (EQUAL, WIDER, REFUSED, UNCLEAR, DIFFERENT, SKIPPED) if counts[kind]
    )
    lines = [f"{verdict(outcomes):10} {name}: {many}"]
    for kind in (DIFFERENT, UNCLEAR, REFUSED):
        groups: dict[tuple[str, str], list[Outcome]] = {}
        for outcome in outcomes:
            if outcome.verdict == kind:
                key = outcome.mode if kind == DIFFERENT else "", "" if kind == DIFFERENT else outcome.what[:60]
                groups.setdefault(key, []).append(outcome)
        for group in groups.values():
            least = min(group, key=lambda outcome: outcome.size)
            lines.append(f"    {kind} {len(group)}x, {least.mode}: {least.what}\n        {least.sample}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.opinfo", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries of op_db, by name or with their variant")
    parser.add_argument("--share", type=int, help="at most so many samples of each kind (default: all)")
    parser.add_argument("--reference", action="store_true", help="also the samples that torch compares with numpy")
    parser.add_argument("--missing", action="store_true", help="list the entries without a namesake, and stop")
    parser.add_argument("--quiet", action="store_true", help="leave out entries that are equal or refused")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    entries = [entry for entry in database() if not options.names or {entry.name, title(entry)} & set(options.names)]
    if not entries:
        parser.error(f"op_db has no entry {', '.join(options.names)}")
    known = [entry for entry in entries if namesake(entry) is not None]
    if options.missing:
        print(*[title(entry) for entry in entries if namesake(entry) is None], sep="\n")
        return 0
    found: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    for entry in known:
        outcomes = examine(entry, options.share, options.reference)
        kind = verdict(outcomes)
        found[kind] += 1
        samples.update(outcome.verdict for outcome in outcomes)
        if not options.quiet or kind in (DIFFERENT, UNCLEAR):
            print(told(title(entry), outcomes), flush=True)
    print(
        f"{len(known)} of {len(entries)} entries have a namesake: "
        + ", ".join(f"{found[kind]} {kind}" for kind in (EQUAL, REFUSED, UNCLEAR, DIFFERENT, SKIPPED))
        + f"; samples: {dict(samples)}"
    )
    return int(bool(found[DIFFERENT] or found[UNCLEAR]))


if __name__ == "__main__":
    sys.exit(main())

"""How failures fold to their root causes, so that one defect shows once (`fold`).

Of several failures, `most_specific_first` says which tells best what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.catalogue import Catalogue
from conformance.verdict import BROKEN, Result, Verdict


def fold(results: Mapping[str, Result], catalogue: Catalogue) -> dict[str, Result]:
    """The results with one root for each defect: what follows from it is BLOCKED.

    A claim that is broken, or a convention that is not kept, follows from the nearest broken ancestor that is not
    itself explained by another. Failures with the same diagnosis follow from the one that it is about. The order in
    which claims ran does not matter.
    """
    broken = {slug for slug, result in results.items() if result.verdict in BROKEN}
    causes = broken | {slug for slug, result in results.items() if result.verdict is Verdict.KNOWN_FAILURE}
    folded = dict(results)
    otherwise = {
        slug
        for slug, result in results.items()
        if result.verdict is Verdict.NOTE and catalogue.claims[slug].verdict == "convention"
    }
    for slug in broken | otherwise:
        guilty = [ancestor for ancestor in catalogue.ancestors(slug) if ancestor in causes]
        roots = [ancestor for ancestor in guilty if causes.isdisjoint(catalogue.ancestors(ancestor))]
        if roots:
            folded[slug] = replace(results[slug], verdict=Verdict.BLOCKED, root=roots[0])
    return _one_root_a_diagnosis(_with_diagnoses_of_what_follows(folded), catalogue)


def _with_diagnoses_of_what_follows(folded: Mapping[str, Result]) -> dict[str, Result]:
    """A failure of which nothing more is known is told by the one mistake that all that follows from it looks like."""
    told: dict[str, set[str]] = {}
    for result in folded.values():
        if result.verdict is Verdict.BLOCKED and result.diagnosis:
            told.setdefault(result.root, set()).add(result.diagnosis)
    return {
        slug: replace(result, diagnosis=next(iter(told[slug])))
        if result.verdict is Verdict.FAIL and not result.diagnosis and len(told.get(slug, ())) == 1
        else result
        for slug, result in folded.items()
    }


def _one_root_a_diagnosis(folded: Mapping[str, Result], catalogue: Catalogue) -> dict[str, Result]:
    alike: dict[str, list[str]] = {}
    for slug in catalogue.claims:
        if slug in folded and folded[slug].verdict is Verdict.FAIL and folded[slug].diagnosis:
            alike.setdefault(folded[slug].diagnosis, []).append(slug)
    root_of: dict[str, str] = {}
    for diagnosis, slugs in alike.items():
        root, *rest = most_specific_first(slugs, diagnosis)
        root_of |= dict.fromkeys(rest, root)
    return {
        slug: replace(result, verdict=Verdict.BLOCKED, root=root_of[slug])
        if slug in root_of
        else replace(result, root=root_of[result.root])
        if result.root in root_of
        else result
        for slug, result in folded.items()
    }


def most_specific_first(claims: Sequence[str], diagnosis: str = "") -> list[str]:
    """Claims that few mistakes break before those that many do: the first one says best what is wrong.

    A formula fails with whatever is wrong in its component; the claim about the scale fails with the scale. Counted are
    the mutants that name a claim. Claims that a mutant of the diagnosis names come before all others.
    """
    if len(claims) < 2:
        return list(claims)
    from conformance.mutants import MUTANTS  # needs numpy, which the report of a run that passes does without

    named = Counter(claim for mutant in MUTANTS.values() for claim in mutant.breaks)
    meant = {claim for mutant in MUTANTS.values() if mutant.defect in diagnosis for claim in mutant.breaks}
    return sorted(claims, key=lambda claim: (claim not in meant, named[claim]))

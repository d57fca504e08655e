"""Checks of taggers that score paths of tags, as conditional random fields do."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true


@check("tagger-finds-the-best-path", roles=("module",))
def finds_the_best_path(impl: Any, draw: Draw) -> Evidence:
    """A method that looks for the best path of tags finds it: no other tags between the first and the last score
    more."""
    return all_of(
        *(
            true(
                f"the path that {one.name} finds", one.right, got="another with a lower score", expected="the best one"
            ).saying(
                diagnosis=f"{one.name} gives a path to which another one is better, whichever axis of the transitions "
                "is the tag before.",
                place=one.place,
                mend="best, before = (total[:, None] + transitions).max(0), over the tag before; then go back by it",
            )
            for one in impl.build("module", {}).best_paths()
        )
    )


@check("tagger-paths-share-one-whole", roles=("module",))
def paths_share_one_whole(impl: Any, draw: Draw) -> Evidence:
    """The probabilities of all paths of tags, as a loss weighs them, sum to one."""
    return all_of(
        *(
            true(
                f"the probabilities of all paths by {one.name}",
                one.right,
                got="another sum",
                expected="they sum to one",
            ).saying(
                diagnosis=f"{one.name} takes off another sum than that over all paths: it is no logarithm of a "
                "probability.",
                place=one.place,
                mend="total = (total[:, None] + transitions).logsumexp(0) + scores, with all terms of a path",
            )
            for one in impl.build("module", {}).whole_of_paths()
        )
    )


@check("tagger-paths-leave-padding-out", roles=("module",))
def paths_leave_padding_out(impl: Any, draw: Draw) -> Evidence:
    """Padding behind a text changes neither its best path nor what a loss takes for its tags."""
    return all_of(
        *(
            true(
                f"what {one.name} gives for a padded text",
                one.right,
                got="another answer",
                expected="as for the text alone",
            ).saying(
                diagnosis=f"{one.name} lets padding count: a text gets another path, or another loss, beside a longer "
                "one.",
                place=one.place,
                mend="keep the scores of the last real tag where the mask is off, and end the path there",
            )
            for one in impl.build("module", {}).paths_behind_padding()
        )
    )

"""A number in [0, 1] with its evidence, for programs that learn to write Transformers: `reward`."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache

from conformance.grading import rubric as rubrics
from conformance.grading.archive import of_source
from conformance.grading.cheats import suspicions
from conformance.grading.rubric import Rubric, Score
from conformance.grading.run import Options, in_order
from conformance.grading.work import graded
from conformance.verdict import Result


def reward(source: str, name: str = "", rubric: Rubric | None = None, options: Options | None = None) -> Score:
    """How good the code is: `value` in [0, 1], `reasons`, and `mistakes` with their evidence.

    source: a file of Python. name: the class or function in it, with its role as in "Attention@attention"; everything
    in it where empty. rubric: what counts; all claims where None. options: the seed among them: the same code with the
    same seed has the same reward. Any thread may call it; each call in progress has a process of its own, which forks
    for the code and is used again. Code that does not run, hangs or does harm gets 0, and `reasons` says why.
    """
    rubric, options = rubric or rubrics.default(), options or Options()
    options = replace(options, claims=options.claims or rubric.claims)
    options.check()
    archive = of_source(source, name)
    task = {**asdict(options), "claims": _claims(options), "archive": archive, "forbidden": rubric.forbidden}
    outcome = graded(task)
    rows = [
        {**Result.from_json(result).to_json(), "part": part["name"]}
        for part in outcome["parts"]
        for result in part["results"]
    ]
    refused = outcome["refused"] or "; ".join(part["refused"] for part in outcome["parts"] if part["refused"])
    return rubric.score(rows, refused, suspicions(archive))


@cache
def _claims(options: Options) -> list[str]:
    return in_order(options.slugs(), {})

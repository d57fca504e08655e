"""Preferences that are turned round, of one model or scaled wrongly are told; what is near them and right is not."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutants.script import FOLDER  # noqa: E402
from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

RIGHT = (FOLDER / "preference.py").read_text(encoding="utf-8")
LOSS = "    return -F.logsigmoid(BETA * margin).mean()\n"
MARGIN = "margin = (chosen - rejected) - (reference_chosen - reference_rejected)"


def failures(*changes, steps=24):
    source = RIGHT
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    results = results_of(run_of(source, "train.py", steps=steps).run)
    failed = {claim: one for claim, one in results.items() if one.verdict is Verdict.FAIL}
    lines = {claim: re.search(r":(\d+):", one.place) for claim, one in failed.items()}
    return {claim: source.splitlines()[int(at.group(1)) - 1].strip() if at else "" for claim, at in lines.items()}


@pytest.mark.parametrize(
    "changes",
    [
        [(LOSS, "    return F.softplus(-BETA * margin).mean()\n")],
        [(LOSS, "    return -(0.9 * F.logsigmoid(BETA * margin) + 0.1 * F.logsigmoid(-BETA * margin)).mean()\n")],
        [(LOSS, "    return -F.logsigmoid(BETA * (margin - 0.5)).mean()\n")],
        [(MARGIN, "margin = chosen - rejected")],
        [("log_probability(policy, chosen), log_probability(policy, rejected), *fixed",
          "*(log_probability(policy, one) for one in (chosen, rejected)), *fixed")],
        [("reference = copy.deepcopy(policy)", "reference = Writer()")],
    ],
)  # fmt: skip
def test_preferences_that_are_right_or_may_be_meant_are_not_told(changes):
    found = failures(*changes)
    assert not {claim for claim in found if "margin" in claim or "preferred" in claim}, found


@pytest.mark.parametrize(
    ("claim", "old", "new", "line"),
    [
        ("run-preferred-answers-are-raised", "(policy, chosen), log_probability(policy, rejected), *fixed",
         "(policy, rejected), log_probability(policy, chosen), *fixed[::-1]", MARGIN),
        ("run-margin-is-of-two-models", "log_probability(reference, chosen), log_probability(reference, rejected)",
         "log_probability(policy, chosen), log_probability(policy, rejected)", ""),
        ("run-margin-begins-at-zero", "reference_chosen - reference_rejected)",
         "reference_chosen + reference_rejected)", ""),
        ("run-margin-is-scaled-inside", LOSS,
         "    scaled = margin / BETA\n    return -F.logsigmoid(scaled).mean()\n", "scaled = margin / BETA"),
    ],
)  # fmt: skip
def test_preferences_that_are_wrong_are_told(claim, old, new, line):
    found = failures((old, new))
    assert found.get(claim, "nothing") == (line or found.get(claim)), found


POLICY = "    policy = Writer()\n"
SUPERVISED = (
    POLICY + "    first = torch.optim.Adam(policy.parameters(), lr=1e-2)\n"
    "    for chosen, _ in [row for _ in range(3) for row in train_loader]:\n"
    "        loss = -log_probability(policy, chosen).mean()\n"
    "        first.zero_grad()\n        loss.backward()\n        first.step()\n"
)


@pytest.mark.parametrize(
    ("made", "expected"),
    [("copy.deepcopy(policy)", None), ("Writer()", "reference = Writer().requires_grad_(False)")],
)
def test_a_reference_of_a_model_that_has_learned_has_learned(made, expected):
    found = failures((POLICY, SUPERVISED), ("reference = copy.deepcopy(policy)", f"reference = {made}"), steps=30)
    assert found.get("run-reference-has-learned") == expected, found

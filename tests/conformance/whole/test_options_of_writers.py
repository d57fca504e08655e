"""Penalties, least lengths and n-grams of a writer in other styles: right ones are not blamed, wrong ones are."""

from zlib import crc32

import pytest

pytest.importorskip("torch")

import conformance.checks  # noqa: F401
from conformance.check import CHECKS
from conformance.mutants.source import CAREFUL
from conformance.mutated import pointed_at
from conformance.runner import run_check

PENALTY, LEAST = "generate-with-a-penalty-lowers-what-was-written", "generate-does-not-end-before-its-least-length"
LEAVES = "generate-leaves-the-model-as-it-was"
NGRAMS = "generate-repeats-no-n-gram-where-asked"
SEEN = "seen = scores.gather(1, ids)"
FORBID = "scores[:, self.eos_id] = -math.inf"
ENDS = "ended = ended | (chosen == self.eos_id)"


def cut(to):
    """The penalty for repetition sees a part of the text."""
    return tuple((f"scores.{name}(1, ids", f"scores.{name}(1, ids{to}") for name in ("gather", "scatter"))


STYLES = {
    "a window": (PENALTY, cut("[:, -6:]"), "PASS"),
    "log-probabilities": (PENALTY, ((SEEN, "scores = scores.log_softmax(-1)\n            " + SEEN),), "PASS"),
    "written words alone": (PENALTY, cut("[:, 5:]"), "PASS"),
    "the prompt alone": (PENALTY, cut("[:, :5]"), "FAIL"),
    "division alone": (PENALTY, (("seen * repetition_penalty)", "seen / repetition_penalty)"),), "FAIL"),
    "a penalty that only its default tells": (LEAVES, (("repetition_penalty", "penalty"),), "PASS"),
    "a penalty that nothing reads": (PENALTY, (("frequency_penalty * counts", "0.0 * counts"),), "FAIL"),
    "an end that does not count yet": (LEAST, ((FORBID, "pass"), (ENDS, f"{ENDS} & (step >= min_new_tokens)")), "PASS"),
    "a very low score": (LEAST, ((FORBID, "scores[:, self.eos_id] = -1e9"),), "PASS"),
    "a least length that nothing reads": (LEAST, (("if step < min_new_tokens", "if step < 0"),), "FAIL"),
    "pairs of a window of three": (NGRAMS, (("ids, no_repeat_ngram_size)", "ids, no_repeat_ngram_size + 1)"),), "FAIL"),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_writer_keeps_to_its_options(style):
    claim, edits, verdict = STYLES[style]
    source = CAREFUL.source
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    implementation = pointed_at(CAREFUL, source, f"writer_{crc32(style.encode())}.py")
    assert run_check(CHECKS[claim], implementation, "quick").verdict.name == verdict

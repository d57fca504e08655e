"""Answers belong to questions: what else comes out of an implementation's process is its error, in one sentence."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from pathlib import Path

import pytest
from processes import is_alive

from conformance import dialogue
from conformance.catalogue import load
from conformance.dialogue import LONGEST, Asker, Refused, Unfit
from conformance.supervisor import Supervisor, judgement, texts
from conformance.verdict import Result, Verdict

pytest_plugins = ["pytester"]

MINIATURES = Path(__file__).parent / "miniatures.py"
CLAIM, *OTHERS = [claim.slug for claim in load().select("attention") if claim.is_tested][:4]
PASS = Result(CLAIM, Verdict.PASS).to_json()
ENDING = "; only the suite may write there"


class Scripted:
    """A process that a test plays: `respond` is called with each question and returns the bytes to send."""

    def __init__(self, respond):
        questions, asking = os.pipe()
        answering, answers = os.pipe()
        self.asker = Asker(os.fdopen(asking, "wb"), os.fdopen(answering, "rb"))
        threading.Thread(target=self._run, args=(questions, answers, respond), daemon=True).start()

    def _run(self, questions, answers, respond):
        with os.fdopen(questions, "rb") as lines, os.fdopen(answers, "wb", buffering=0) as pipe:
            for line in lines:
                sent = respond(json.loads(line))
                if sent is None:
                    return
                pipe.write(sent)

    def ask(self, read=lambda answer: judgement(answer, CLAIM), clock=10.0):
        return self.asker.ask("claim", {"claim": CLAIM}, read, seconds=1.0, clock=clock, grace=0.0)


def line(question, values=PASS, **envelope):
    names = {"number": question["number"], "secret": question["secret"], "values": values}
    return json.dumps({**names, **envelope}).encode() + b"\n"


def without(question, *names):
    answer = json.loads(line(question))
    return json.dumps({name: answer[name] for name in answer if name not in names}).encode() + b"\n"


def test_an_answer_that_fits_is_read():
    process = Scripted(line)
    assert [process.ask().verdict for _ in range(3)] == [Verdict.PASS] * 3


@pytest.mark.parametrize("told", ["\\u001b[2J", "\\b", "\\u007f", "\x7f", "\\u009B", "\\u202E", "\\uD83D", "\u202e"])
def test_what_would_steer_a_terminal_is_shown_as_it_is_written(told):
    def respond(question):
        return line(question, {**PASS, "message": "@"}).replace(b"@", told.encode())

    (message,) = [Scripted(respond).ask().message]
    assert message.isascii()
    assert message.isprintable()
    assert message.startswith("\\")
    assert Scripted(lambda question: line(question, {**PASS, "message": "a\tb \u00e9 \u221a\n"})).ask().message == (
        "a\tb \u00e9 \u221a\n"
    )


def test_a_refusal_is_a_sentence():
    process = Scripted(lambda question: without({**question}, "values")[:-2] + b', "refused": "no such thing"}\n')
    with pytest.raises(Refused, match=r"^no such thing$"):
        process.ask()


FORGED = "does not carry the number and the secret of the question"
SHAPE = "is no answer to the question: it must hold values, or a refusal, and nothing else"
FORGERIES = {
    "the line of the attack": (lambda q: b'{"claim": "x", "verdict": "PASS"}\n', FORGED),
    "another number": (lambda q: line(q, number=q["number"] + 1), FORGED),
    "an earlier number": (lambda q: line(q, number=q["number"] - 1), FORGED),
    "NaN as number": (lambda q: line(q, number=float("nan")), FORGED),
    "no number": (lambda q: without(q, "number"), FORGED),
    "another secret": (lambda q: line(q, secret="0" * 32), FORGED),
    "a list as secret": (lambda q: line(q, secret=[q["secret"]]), FORGED),
    "no secret": (lambda q: without(q, "secret"), FORGED),
    "no values": (lambda q: without(q, "values"), SHAPE),
    "a list as values": (lambda q: line(q, values=[1]), SHAPE),
    "more than values": (lambda q: line(q, more=1), SHAPE),
    "values and a refusal": (lambda q: line(q, refused="no"), SHAPE),
    "a refusal without words": (lambda q: without(q, "values")[:-2] + b', "refused": 1}\n', SHAPE),
    "an empty line": (lambda q: b"\n", "is not JSON"),
    "words": (lambda q: b"epoch 1, loss 0.3\n", "is not JSON"),
    "invalid UTF-8": (lambda q: b'{"claim": "\xff"}\n', "is not JSON"),
    "UTF-16": (lambda q: line(q).decode().strip().encode("utf-16") + b"\n", "is not JSON"),
    "huge nesting": (lambda q: b"[" * 100_000 + b"\n", "is not JSON"),
    "a number of 5,000 digits": (lambda q: b"1" * 5000 + b"\n", "is not JSON"),
    "NaN": (lambda q: b"NaN\n", "is no JSON object"),
    "a list": (lambda q: b"[1, 2]\n", "is no JSON object"),
    "a duplicate": (lambda q: line(q) * 2, "follows the answer"),
    "half of another": (lambda q: line(q) + b'{"num', "follows the answer"),
    "a long line": (lambda q: b"x" * (LONGEST + 1) + b"\n", f"is longer than {LONGEST:,} bytes"),
    "a line without an end": (lambda q: b"x" * (LONGEST + 1), f"is longer than {LONGEST:,} bytes"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_line_that_is_no_answer_is_one_sentence(name):
    forge, why = FORGERIES[name]
    process = Scripted(forge)
    with pytest.raises(Unfit) as error:
        process.ask()
    assert str(error.value) == f"wrote a line into the pipe of answers that {why}{ENDING}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"claim": "x"}, "it is about the claim 'x'"),
        ({"claim": OTHERS[0]}, f"it is about the claim '{OTHERS[0]}'"),
        ({"claim": 3}, "its field 'claim' is 3, not a text"),
        ({"verdict": "GOOD"}, "its field 'verdict' is 'GOOD', not a verdict"),
        ({"verdict": ["PASS"]}, "its field 'verdict' is ['PASS'], not a verdict"),
        ({"verdict": "KNOWN FAILURE"}, "a check cannot come to the verdict KNOWN FAILURE"),
        ({"verdict": "BLOCKED"}, "a check cannot come to the verdict BLOCKED"),
        ({"grade": "A"}, "it has the field 'grade', which no result has"),
        ({"error": "0"}, "its field 'error' is '0', not a number"),
        ({"examples": 1.5}, "its field 'examples' is 1.5, not a whole number"),
        ({"example": [1]}, "its field 'example' is [1], not an object"),
        ({"attributes": {"attention": 1}}, "its field 'attributes' is {'attention': 1}, not an object of objects"),
        ({"notes": "many"}, "its field 'notes' is 'many', not a list of texts"),
        ({"notes": [1]}, "its field 'notes' is [1], not a list of texts"),
    ],
)
def test_values_that_are_no_result_of_the_claim_are_one_sentence(change, why):
    process = Scripted(lambda question: line(question, {**PASS, **change}))
    with pytest.raises(Unfit) as error:
        process.ask()
    assert str(error.value).endswith(f"is no answer to the question: {why}{ENDING}")


@pytest.mark.parametrize("name", ["claim", "verdict"])
def test_a_result_without_its_claim_or_verdict_is_none(name):
    process = Scripted(lambda question: line(question, {key: PASS[key] for key in PASS if key != name}))
    with pytest.raises(Unfit, match=f"it has no field '{name}'"):
        process.ask()


@pytest.mark.parametrize("values", [{}, {"name": 1}, {"name": "x", "more": 1}])
def test_an_answer_of_one_text_holds_nothing_else(values):
    with pytest.raises(Unfit, match="it must hold the text name, and nothing else"):
        Scripted(lambda question: line(question, values)).ask(texts("name"))


def test_a_sentence_about_a_long_value_is_short():
    process = Scripted(lambda question: line(question, {**PASS, "verdict": "x" * 100_000}))
    with pytest.raises(Unfit) as error:
        process.ask()
    assert len(str(error.value)) < 300


def test_a_late_answer_to_an_earlier_question_fits_none():
    questions = []

    def respond(question):
        questions.append(question)
        return line(questions[0])

    process = Scripted(respond)
    assert process.ask().verdict is Verdict.PASS
    with pytest.raises(Unfit, match=FORGED):
        process.ask()


def test_an_answer_before_its_question_is_told():
    answering, answers = os.pipe()
    asker = Asker(open(os.devnull, "wb"), os.fdopen(answering, "rb"))  # noqa: SIM115 (nobody listens)
    os.write(answers, b"early\n")
    with pytest.raises(Unfit, match="came before the question"):
        asker.ask("claim", {}, dict, seconds=1.0, clock=10.0, grace=0.0)
    os.close(answers)


def test_half_a_line_and_then_nothing_is_no_answer():
    process = Scripted(lambda question: line(question)[:-5])
    with pytest.raises(TimeoutError):
        process.ask(clock=0.05)


def test_half_a_line_and_then_death_is_an_end():
    sent = itertools.chain([b'{"num'], itertools.repeat(None))
    process = Scripted(lambda question: next(sent))
    with pytest.raises(TimeoutError):
        process.ask(clock=0.05)
    with pytest.raises((EOFError, Unfit)):
        process.ask()
    with pytest.raises(EOFError):
        Scripted(lambda question: None).ask()


def test_secrets_differ():
    seen = []
    for _ in range(2):
        Scripted(lambda question: seen.append(question["secret"]) or line(question)).ask()
    assert len({*seen}) == 2
    assert all(len(secret) == 32 for secret in seen)


def run(miniature, claims=(CLAIM,)):
    with Supervisor(f"{MINIATURES}:{miniature}", children=1) as supervisor:
        return [supervisor.result(claim) for claim in claims]


@pytest.fixture
def forged(tmp_path, monkeypatch):
    """What the implementation `Forges` writes, once."""

    def set_to(data):
        (tmp_path / "forged").write_bytes(data)
        monkeypatch.setenv("MINIATURE_FORGED", str(tmp_path / "forged"))

    return set_to


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"claim": "x", "verdict": "PASS"}\n' * 7, FORGED),
        (b'{"claim": "x", "verdict": "PASS"}\n', FORGED),
        (b"\xff" * 3_000_000, f"is longer than {LONGEST:,} bytes"),
    ],
    ids=["lines", "line", "endless"],
)
def test_a_forged_answer_is_an_error_and_a_fresh_process_takes_the_rest(forged, data, why):
    forged(data)
    first, *rest = run("Forges", [CLAIM, *OTHERS])
    assert (first.claim, first.verdict) == (CLAIM, Verdict.ERROR)
    assert first.message == f"the implementation wrote a line into the pipe of answers that {why}{ENDING}"
    assert [result.claim for result in rest] == OTHERS
    assert {result.verdict for result in rest} <= {Verdict.PASS, Verdict.NOT_PROVIDED}


def test_half_a_line_before_the_answer_spoils_it(forged):
    forged(b'{"number": 2, ')
    assert "that is not JSON" in run("Forges")[0].message


def test_forged_answers_and_garbage_fail_a_run_in_a_sentence_each(forged, pytester):
    """They gave "7 passed, 0 of 0 claims kept" and exit code 0, and thousands of lines of tracebacks."""
    forged(b'{"claim": "x", "verdict": "PASS"}\n' * 1000)
    options = ("-p", "no:cacheprovider", "--pyargs", "conformance", "--claims", ",".join([CLAIM, *OTHERS]))
    result = pytester.runpytest_inprocess(*options, "--impl", f"{MINIATURES}:Forges")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines([f"ERROR {CLAIM}", f"* of {1 + len(OTHERS)} claims kept: *1 ERROR*"])
    assert "Traceback" not in result.stdout.str()
    assert len(result.outlines) < 40


def test_a_message_of_two_million_characters_is_cut():
    (result,) = run("RaisesAtLength")
    assert result.verdict is Verdict.ERROR
    assert result.message.endswith("... (2,080,014 characters)")
    assert len(result.message) < 3000


def test_what_is_written_to_low_descriptors_disturbs_nothing():
    assert run("Fumbles")[0].verdict is Verdict.PASS


def test_a_process_that_the_implementation_forks_does_not_answer_and_ends_with_the_check(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIATURE_CHILD", str(tmp_path / "child"))
    with Supervisor(f"{MINIATURES}:Forks", children=1) as supervisor:
        results = [supervisor.result(claim) for claim in (CLAIM, *OTHERS)]
        child = int((tmp_path / "child").read_text())
        deadline = time.monotonic() + 10
        while is_alive(child) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_alive(child)
    assert [result.claim for result in results] == [CLAIM, *OTHERS]
    assert results[0].verdict is Verdict.PASS
    assert {result.verdict for result in results} <= {Verdict.PASS, Verdict.NOT_PROVIDED}


def test_an_implementation_that_closes_the_pipes_is_an_error():
    message = run("Closes")[0].message
    assert message.startswith("the implementation ")
    assert message.endswith("closed the pipe of answers")


def test_the_descriptors_are_within_what_every_system_allows():
    assert 100 < dialogue.QUESTIONS < dialogue.ANSWERS < 256

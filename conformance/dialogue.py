"""How the suite talks with a process that hosts an implementation: a question is a line of JSON, and so is its answer.

    question   {"number": 7, "secret": "9f2c...", "kind": "claim", "values": {...}, "seconds": 60.0, "clock": 240.0}
    answer     {"number": 7, "secret": "9f2c...", "values": {...}}
    refusal    {"number": 7, "secret": "9f2c...", "refused": "a sentence for the user"}

The next question is asked when the last one is answered. An answer belongs to its question when it repeats the number,
which counts this process's questions, and the secret, which is drawn for each process. Everything else that comes out
of the pipe was written by the implementation, and is `Unfit`. `seconds` is how much processor time the answer may take,
`clock` how long it may take by the clock.

The kinds of questions, and the values of each, are the methods of `conformance.host.Host`. `Asker` is the suite's end,
`Answerer` the hosting process's. This file imports nothing of ours but `conformance.systems`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from conformance.systems import in_forks, is_readable

Value = TypeVar("Value")

LONGEST = 2**20
"""The largest length of an answer's line, in bytes. The longest answers, sources of adapters, take a twentieth."""

QUESTIONS, ANSWERS = 200, 201
"""The hosting process's descriptors: far from the low numbers that a program may write to or close by mistake."""


_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What would steer a terminal, turn the direction of a line, or is half a character. Tabs and ends of lines stay."""

_MAY_HARM = re.compile(rb"\\(?:[bfr]|u(?:00[01789]|20[26]|[dD][89a-fA-F]))|\x7f")
"""What stands in a line of ASCII whose JSON has such a character: its escape, or itself, where JSON lets it stand."""


def harmless(text: str) -> str:
    """A text of the implementation's, such as a message, as it can be shown and written anywhere."""
    if text.isprintable():  # nearly every text, and none of these characters is
        return text
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _harmless(value: Any) -> Any:
    match value:
        case str():
            return harmless(value)
        case list():
            return [_harmless(item) for item in value]
        case dict():
            return {harmless(name): _harmless(item) for name, item in value.items()}
    return value


class Refused(Exception):
    """The hosting process answers that it cannot. The message is the sentence for the user."""


class Unfit(Exception):
    """A line that is no answer to the question. The message says why, and follows "the implementation"."""

    def __init__(self, why: str) -> None:
        super().__init__(f"wrote a line into the pipe of answers that {why}; only the suite may write there")


@dataclass(frozen=True)
class Question:
    """One question. values: the arguments of the method of `Host` that `kind` names. seconds, clock: its limits."""

    number: int
    secret: str
    kind: str
    values: Mapping[str, Any]
    seconds: float
    clock: float


class Asker:
    """The suite's end of the pipes to one process."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions, self._answers = questions, answers
        self._secret, self._number, self._received = secrets.token_hex(16), 0, b""

    def ask(
        self,
        kind: str,
        values: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Value],
        *,
        seconds: float,
        clock: float,
        grace: float,
    ) -> Value:
        """Ask, and wait for the answer as `read` makes it from the answer's values.

        `read` raises ValueError, with a sentence, when the values are none that this question can have. `grace`: how
        many seconds to wait beyond `clock`. Raises Refused, Unfit, TimeoutError when no whole line came in time, and
        EOFError when the process closed its end.
        """
        if is_readable(self._answers, 0.0) and self._receive():
            raise Unfit("came before the question")
        self._number += 1
        question = Question(self._number, self._secret, kind, values, seconds, clock)
        try:
            self._questions.write(json.dumps(vars(question)).encode() + b"\n")
            self._questions.flush()
        except OSError:  # BrokenPipeError, which Windows has other names for, too
            raise EOFError from None
        answer = self._values(self._line(clock + grace))
        if self._received:
            raise Unfit("follows the answer")
        try:
            return read(answer)
        except ValueError as error:
            raise Unfit(f"is no answer to the question: {error}") from error

    def _line(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._received and len(self._received) <= LONGEST:
            if not is_readable(self._answers, deadline - time.monotonic()):
                raise TimeoutError
            if not self._receive():
                raise EOFError
        line, _, self._received = self._received.partition(b"\n")
        if len(line) > LONGEST:
            raise Unfit(f"is longer than {LONGEST:,} bytes")
        return line

    def _receive(self) -> bool:
        """Take in what came. False when the process closed its end."""
        block = os.read(self._answers.fileno(), 1 << 16)
        self._received += block
        return bool(block)

    def _values(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line.decode())
            if not line.isascii() or _MAY_HARM.search(line):
                answer = _harmless(answer)
        except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            raise Unfit("is not JSON") from error
        if not isinstance(answer, dict):
            raise Unfit("is no JSON object")
        number, secret = answer.pop("number", None), answer.pop("secret", None)
        if (number, secret) != (self._number, self._secret):
            raise Unfit("does not carry the number and the secret of the question")
        match answer:
            case {"refused": str(sentence), **rest} if not rest:
                raise Refused(sentence)
            case {"values": dict(values), **rest} if not rest:
                return values
        raise Unfit("is no answer to the question: it must hold values, or a refusal, and nothing else")


class Answerer:
    """The hosting process's end. It takes the standard streams: the implementation then reads an empty input, and what
    it prints goes to standard error. Processes that the implementation forks are cut off from the pipes."""

    def __init__(self) -> None:
        os.dup2(0, QUESTIONS, inheritable=False)
        os.dup2(1, ANSWERS, inheritable=False)
        _empty(0)
        os.dup2(2, 1)
        in_forks(lambda: _empty(QUESTIONS, ANSWERS))
        self._questions, self._answers = os.fdopen(QUESTIONS, "rb"), os.fdopen(ANSWERS, "wb")

    def __iter__(self) -> Iterator[Question]:
        """The questions, as they come."""
        for line in self._questions:
            yield Question(**json.loads(line))

    def answer(self, question: Question, values: Mapping[str, Any]) -> None:
        """Answer a question. Values that JSON lacks are written as their text."""
        self._write(question, "values", values)

    def refuse(self, question: Question, sentence: str) -> None:
        """Answer that the question has no answer, and why."""
        self._write(question, "refused", sentence)

    def _write(self, question: Question, name: str, value: Any) -> None:
        envelope = {"number": question.number, "secret": question.secret}
        line = json.dumps({**envelope, name: value}, default=str)
        if len(line) > LONGEST:
            why = f"the answer takes {len(line):,} bytes, and may take {LONGEST:,}"
            what = "what the implementation says of itself, or raises, must be shorter"
            line = json.dumps({**envelope, "refused": f"{why}: {what}"})
        try:
            self._answers.write(line.encode() + b"\n")
            self._answers.flush()
        except OSError:
            sys.exit("the implementation closed the pipe of answers")


def _empty(*descriptors: int) -> None:
    """Make the descriptors read nothing, and write to nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)

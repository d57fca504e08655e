"""Watching while a script trains: `Watcher` puts taps where things happen, and takes them away again.

A tap only looks: it draws no random number, changes no value, and what it works out is recorded by no graph. Inside
compiled code, in other processes, and while the watcher itself computes, taps do nothing. What is particular to PyTorch
and to minigrad stands in `on_torch` and `on_minigrad`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from unittest import mock

from conformance.places import is_users, short
from conformance.systems import busyness
from conformance.watch.events import Forward, Kind
from conformance.watch.lines import At, at
from conformance.watch.phases import trains_once_more
from conformance.watch.record import Parameter, Run
from conformance.watch.targets import Looked

FOREIGN = [str(Path(__file__).parent)]
"""Folders whose files are not the user's: the watcher's, and those of a library that stands beside the user's code."""

_START = str(Path(__file__).with_name("script.py"))
"""What is outside of it started the script, and is no part of it."""

_EVALUATION = re.compile(r"(^|_)(eval\w*|valid\w*|val|test\w*|estimate\w*|accuracy|recall\w*|perplexity)(_|$)")


CLOSE = 3
"""In so many steps what a loss sees is looked at token by token; in later ones only what costs next to nothing."""

PATIENCE = 30.0
"""So many seconds one waits for what shows late: evaluations, epochs, checkpoints. On a busy machine longer, because a
script then comes less far."""


class Ended(BaseException):
    """Ends a script that was watched long enough. It is no Exception, so that no script takes it for an error."""


class Library(Protocol):
    """What is particular to a library. tap: put the taps. is_tracing: is a program being traced, so that values are
    unknown? quiet: computing without recording. finish: what is worked out when watching is over."""

    def tap(self, watcher: Watcher) -> None: ...

    def is_tracing(self) -> bool: ...

    def quiet(self) -> AbstractContextManager[Any]: ...

    def finish(self, watcher: Watcher) -> None: ...


class Seen:
    """What was seen since the last backward pass: inputs are the ids that tables were asked for, with the number of
    rows and the padding index of the table; results the last tensors that modules gave, answers the last ones of each
    width; softmaxes the operations of a softmax, with their lines."""

    def __init__(self) -> None:
        self.inputs: list[Looked] = []
        self.results: list[Any] = []
        self.answers: defaultdict[int, deque[Any]] = defaultdict(lambda: deque(maxlen=6))
        self.softmaxes: list[tuple[Any, str]] = []


class Watcher:
    """Taps that write a `Run`. Use it as a context; `libraries.tap_all` puts the taps.

    steps: after so many optimizer steps `Ended` is raised where the step was made; None: never. least: after so many it
    is raised as soon as PATIENCE is over, and where the script trains once more, both count anew; None: never. until:
    it is raised where the first "epoch" or evaluation ("eval") after a step is over. keeps_moments: whether each step's
    beginning is kept, for a run that is gone on with.
    """

    def __init__(
        self, steps: int | None = None, until: str = "", keeps_moments: bool = False, least: int | None = None
    ) -> None:
        self.run, self.until, self.keeps_moments = Run(), until, keeps_moments
        self._least, self._began, self._since = least, time.monotonic(), 0
        self._another: bool | None = None
        self.loader, self.learned_loader = -1, -1
        self._steps, self._process, self._busy = steps, os.getpid(), False
        self._stack = ExitStack()
        self._close_until, self.new_at = CLOSE, 0
        self._kept: dict[int, Any] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self.libraries: list[Library] = []
        self.parameters: dict[int, Any] = {}
        self.modules: dict[int, Any] = {}
        self.endings: list[Callable[[], Any]] = []
        self.seen = Seen()
        self.last_forward: Forward | None = None
        self.calls: dict[int, Any] = {}
        self.direct: FrameType | None = None
        self.depth = 0
        self.scale = 1.0
        self.judged, self.is_judging = 0, False
        self.is_over, self.in_backward = False, False

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the taps away."""
        self.is_over = True
        self._stack.close()

    @property
    def is_close(self) -> bool:
        """Whether this step is one of those that are looked at in detail: the first ones, and the first ones after a
        module or an optimizer is new; or whether this is one of the first calls that judge a model that has learned."""
        return self.run.steps < self._close_until or (self.is_judging and self.judged <= CLOSE)

    def look_closely(self) -> None:
        """Something is new: look at the next steps in detail."""
        self._close_until, self.new_at = self.run.steps + CLOSE, self.run.steps

    def called(self, gradients: bool) -> None:
        """An outermost module is called: with gradients to learn, without to judge what was learned."""
        self.is_judging = not gradients and self.run.steps > 0
        self.judged += self.is_judging

    # --- taps -------------------------------------------------------------------------------------

    def around(self, owner: Any, name: str, tap: Callable[..., Any]) -> None:
        """Put `tap(original, *arguments, **keywords)` in the place of an attribute; it calls the original."""
        original = getattr(owner, name)

        @wraps(original)
        def tapped(*arguments: Any, **keywords: Any) -> Any:
            if self.is_blind():
                return original(*arguments, **keywords)
            return tap(original, *arguments, **keywords)

        self._stack.enter_context(mock.patch.object(owner, name, tapped))

    def on_close(self, action: Callable[[], Any]) -> None:
        self._stack.callback(action)

    def is_blind(self) -> bool:
        """Whether taps do nothing now."""
        blind = self.is_over or self._busy or os.getpid() != self._process
        return blind or any(library.is_tracing() for library in self.libraries)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Compute something of one's own: without taps and graphs. An error in it is the watcher's, not the script's:
        it is noted, and the script goes on."""
        self._busy = True
        try:
            with ExitStack() as quiet:
                for library in self.libraries:
                    quiet.enter_context(library.quiet())
                yield
        except Exception as error:
            self.run.notes.append(f"not looked at ({type(error).__name__}: {error}): {place()}")
        finally:
            self._busy = False

    # --- the record -------------------------------------------------------------------------------

    def add(self, event: Kind) -> Kind:
        """Record an event, with the user's line that made it happen."""
        event.stack = event.stack or stack()
        event.place = event.place or (event.stack[0].place if event.stack else "")
        return self.run.add(event)

    def number(self, kind: str, thing: Any) -> int:
        """The number of a thing of some kind; the thing is kept, so that no other gets its address."""
        key = (kind, id(thing))
        if key not in self._numbers:
            self._numbers[key] = self._counts[kind]
            self._counts[kind] += 1
            self._kept[id(thing)] = thing
        return self._numbers[key]

    def known(self, kind: str, thing: Any) -> int:
        """The number of a thing of some kind; -1 where it has none yet."""
        return self._numbers.get((kind, id(thing)), -1)

    def thing(self, kind: str, number: int) -> Any:
        """The thing of a kind that has a number."""
        key = next((key for key, known in self._numbers.items() if key[0] == kind and known == number), ("", 0))
        return self._kept.get(key[1])

    def parameter(self, tensor: Any, name: str = "", layer: str = "") -> int:
        """The number of a parameter. Its name is the first one that it is met with."""
        number = self.number("parameter", tensor)
        if number not in self.run.parameters:
            self.parameters[number] = tensor
            dtype = str(tensor.dtype).removeprefix("torch.")
            is_matrix = len(tensor.shape) >= 2
            self.run.parameters[number] = Parameter(
                name, tensor.numel(), layer, tensor.requires_grad, dtype, is_matrix=is_matrix
            )
        known = self.run.parameters[number]
        known.name, known.layer = known.name or name, known.layer or layer
        return number

    def stepped(self) -> None:
        """An optimizer step ended: count it, and end the script when it was the last one to be watched."""
        self.run.steps += 1
        why = self._enough()
        if why and not self._waits():
            self.end(why)

    def _enough(self) -> str:
        """Why no more steps of this training need be watched; "" while they do."""
        steps = self.run.steps - self._since
        if self._steps is not None and steps >= self._steps:
            return f"{self.run.steps} steps were watched"
        if self._least is not None and steps >= self._least:
            patience = PATIENCE * busyness()
            if time.monotonic() - self._began > patience:
                return f"{patience:.0f} s were over"
        return ""

    def _waits(self) -> bool:
        """Whether the script goes on all the same, since it trains once more. A number of steps that was asked for is
        that of all steps."""
        if self._another is None:
            self._another = self._least is not None and trains_once_more(self.run)
        return self._another

    def trains_anew(self) -> None:
        """Another optimizer makes its first step: where the script went on for it, it is watched as the first one."""
        if self._another:
            self._since, self._began, self._another = self.run.steps, time.monotonic(), None

    def end(self, why: str) -> None:
        """Raise Ended in the user's script."""
        self.run.ended = why
        self.is_over = True
        raise Ended


def place() -> str:
    """ "train.py:12" of the user's line that is being run; empty when there is none."""
    for frame in users_frames():
        return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
    return ""


def stack(made: Any = None) -> tuple[At, ...]:
    """The user's frames that are being run, innermost first; without those that construct `made`."""
    found: list[At] = []
    frame: FrameType | None = sys._getframe(1)
    inner: FrameType | None = None  # the innermost user's frame that waits for its caller
    is_direct = True
    while frame is not None and frame.f_code.co_filename != _START:
        file = frame.f_code.co_filename
        if is_the_users(file):
            is_making = made is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is made
            if not is_making:
                if inner is not None:
                    found.append(at(inner, is_direct))
                inner, is_direct = frame, True
        elif not file.endswith(_BETWEEN) and not file.startswith(FOREIGN[0]):
            is_direct = False
        frame = frame.f_back
    return (*found, at(inner, False)) if inner is not None else ()


_BETWEEN = ("torch/nn/modules/module.py", "torch/utils/_contextlib.py", "functools.py", "contextlib.py")
"""Library files that hand a call on to the user's code as it is."""


def is_the_users(file: str) -> bool:
    """Whether a file is the user's, and of no library that is watched."""
    return is_users(file) and not file.startswith(tuple(FOREIGN))


def users_frames() -> Iterator[FrameType]:
    """The frames of user's code that are being run, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _START:
        if is_the_users(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def evaluating() -> tuple[str, ...]:
    """The names of the user's functions on the way that speak of evaluation."""
    return tuple(filter(speaks_of_evaluation, (frame.f_code.co_name for frame in users_frames())))


def speaks_of_evaluation(name: str) -> bool:
    """Whether a function is named after evaluation."""
    return _EVALUATION.search(name.lower()) is not None


def classes_with(method: str, cls: Any) -> list[Any]:
    """A class and its subclasses that define a method themselves."""
    below = [found for child in cls.__subclasses__() for found in classes_with(method, child)]
    return [*([cls] if method in vars(cls) else []), *dict.fromkeys(below)]

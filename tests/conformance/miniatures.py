"""Miniature implementations of one role, attention. The docstring of each is its defect."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from conformance.adapters.examples.numpy_class import Attention
from conformance.protocol import NotProvided


class Correct:
    """None."""

    subject: type = Attention

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        if role != "attention":
            raise NotProvided(f"miniatures have no {role}")
        return self.subject(config["causal"])


class Unscaled(Correct):
    """The scores are not divided by sqrt(d_k)."""

    class subject(Attention):
        def __call__(self, query: Any, **rest: Any) -> Any:
            return super().__call__(query * np.sqrt(query.shape[-1]), **rest)


class Overwrites(Correct):
    """It computes in place: its inputs are garbage afterwards. What it returns is right."""

    class subject(Attention):
        def __call__(self, **inputs: Any) -> Any:
            outputs = super().__call__(**inputs)
            for name in ("query", "key", "value"):
                inputs[name][...] = np.nan
            return outputs


class Chatty(Correct):
    """It prints, and waits for input, while it computes. What it returns is right."""

    class subject(Attention):
        def __call__(self, **inputs: Any) -> Any:
            print('{"result": "not an answer"}', flush=True)
            try:
                input("continue? ")
            except EOFError:
                return super().__call__(**inputs)


class WithoutWeights(Correct):
    """It returns its output alone, not in a dict, and has no weights."""

    class subject(Attention):
        def __call__(self, **inputs: Any) -> Any:
            return super().__call__(**inputs)["out"]


class Nothing(Correct):
    """It provides no role at all."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        raise NotProvided(f"nothing, so no {role}")


class Unfinished(Correct):
    """Its generate() cannot be tested, and it says so."""

    untested = ("generate() raised ValueError: no eos_id (model.py:31)",)


class CallsItselfAModel(Correct):
    """It is one layer, and says that it is a language model."""

    kind = "language_model"


class CallsItselfADiffusionModel(CallsItselfAModel):
    """It is of a kind that no claim is the core of."""

    kind = "diffusion_model"


class UnscaledModel(Unscaled, CallsItselfADiffusionModel):
    """Its scores are not divided either."""


class Raises(Correct):
    """It raises when it is built."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        raise RuntimeError("out of <b>luck</b>")


class RaisesAtLength(Correct):
    """What it raises has a message of two million characters."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        raise RuntimeError("far too much " * 160_000)


class Leaves(Correct):
    """It calls sys.exit."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        raise SystemExit(3)


class Hangs(Correct):
    """It never returns."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        while True:
            time.sleep(0.01)


class Spins(Correct):
    """It never returns, and works at it."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        while True:
            pass


class SpinsBeside(Correct):
    """It waits for a thread that never ends."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        thread = threading.Thread(target=Spins().build, args=(role, config), daemon=True)
        thread.start()
        thread.join()


class Dies(Correct):
    """It kills its process while a guard file exists, which it removes first."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        if os.path.exists(os.environ["MINIATURE_GUARD"]):
            os.remove(os.environ["MINIATURE_GUARD"])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().build(role, config)


class Forges(Correct):
    """It writes a file's bytes into every pipe that it finds open, once, before it computes what is right."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        forged = Path(os.environ["MINIATURE_FORGED"])
        if forged.exists():
            data = forged.read_bytes()
            forged.unlink()
            write_into_pipes(data)
        return super().build(role, config)


def write_into_pipes(data: bytes) -> None:
    for descriptor in range(3, 1024):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                left = data
                while left:
                    left = left[os.write(descriptor, left) :]


class Fumbles(Correct):
    """It prints to the descriptors that a program has, and to the first ones that it may take for its own."""

    class subject(Attention):
        def __call__(self, **inputs: Any) -> Any:
            for descriptor in range(1, 100):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"not an answer\n")
            return super().__call__(**inputs)


class Forks(Correct):
    """It forks once. Its child writes into every pipe that it finds open, and goes on with the check as it does."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        if not hasattr(self, "child"):
            self.child = 0
            self.child = os.fork()
            if self.child:
                Path(os.environ["MINIATURE_CHILD"]).write_text(str(self.child))
            else:
                write_into_pipes(b"not an answer\n")
        return super().build(role, config)


class Closes(Correct):
    """It closes every descriptor, as daemons do."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        os.closerange(3, 1024)
        return super().build(role, config)


class Devours(Correct):
    """It allocates without end."""

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        eaten = []
        while True:
            eaten.append(np.empty(2**27))


class CannotBeMade(Correct):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise ValueError("no licence")


class NeedsArguments(Correct):
    """Its constructor needs arguments."""

    def __init__(self, size: int) -> None:
        self.size = size


class NoImplementation:
    """It has no method build and is no nn.Module."""

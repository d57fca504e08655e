"""Values that an op refuses (ids past their table, a zero to divide integers by): a kernel notes one, and the host says
so where it waits for the device anyway.

The note is two words of the host's memory that kernels can write (place, value): where the host has waited it reads
them without another copy, in eager steps and after replays of a graph alike. A place is a number for an op's sentence,
which is an argument of the launch; 0 is nothing to say. Of several bad values, the first launch that met one has its
say.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.kernels.cuda.language import device, int64
from minigrad.kernels.cuda.memory import DeviceArray, Memory

WORDS = 2
FAULT = "int64*, int32"  # the last arguments of a kernel that notes: the words, and the place


@device
def note(words, fault, found):
    """Note a value that is refused, unless one is noted. Threads of a launch may meet here: any one's will do."""
    if words[0] == 0:
        words[1] = int64(found)
        words[0] = int64(fault)


class Faults:
    """What kernels noted, and what to raise for it."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self._host: np.ndarray | None = None  # made when a kernel needs it
        self._places: dict[tuple[type[Exception], str], int] = {}

    def place(self, error: type[Exception], sentence: str) -> tuple[DeviceArray, int]:
        """What a launch takes to `note` a value: the words, and the place that raises error(sentence.format(value))."""
        if self._host is None:
            address, self._host = self.runtime.driver.host_words(WORDS)
            memory: Memory = self.runtime.foreign(address, self._host.nbytes, self._host)
            self._words = DeviceArray(memory, address, (WORDS,), self._host.dtype)
        return self._words, self._places.setdefault((error, sentence), len(self._places) + 1)

    def check(self) -> None:
        """After waiting for the device: raise what was noted, once."""
        if self._host is None or not self._host[0]:
            return
        place, found = map(int, self._host)
        self._host[:] = 0
        error, sentence = list(self._places)[place - 1]
        raise error(sentence.format(found))

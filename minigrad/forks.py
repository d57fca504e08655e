"""Locks that a forked child finds free: the threads that held them do not exist in it."""

from __future__ import annotations

import os
import threading
import weakref

_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def lock() -> threading.Lock:
    """A lock that is free in a child which is forked while another thread holds it."""
    made = threading.Lock()
    _locks.add(made)
    return made


def _release_all() -> None:
    for held in _locks:
        if held.locked():
            held.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_all)

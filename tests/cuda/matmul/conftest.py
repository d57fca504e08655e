"""The tests of products and attention run in the simulator."""

import pytest

pytest.importorskip("greenlet", reason="the simulator needs greenlet: pip install greenlet")

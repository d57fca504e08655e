"""Settings of our own tests, and of the processes that they start.

Kernels that they generate lie in pytest's cache folder, not in the user's. Libraries compute on one thread: tests run
in parallel on small models, and threads that wait for each other between small operations take ten times as long. So
does minigrad beside other tests, unless a test asks for threads; alone it uses all cores.

Ctrl-C acts, also where a shell runs the tests in the background, for which it turns Ctrl-C off.

Processes start as cheaply as they can. They find our files compiled, also where Python is told to compile them anew
each time (then a test that runs pytest takes three times as long). They load no plugins of hypothesis, which import
whole libraries.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

os.environ.setdefault("MINIGRAD_CACHE", str(ROOT / ".pytest_cache" / "kernels"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("MINIGRAD_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config):
    """Examples of hypothesis do not depend on which files of ours happen to be loaded; it would read all of them."""
    if "hypothesis" in sys.modules:
        from conformance.runner import without_foreign_constants

        constants = without_foreign_constants()
        constants.__enter__()
        config.add_cleanup(lambda: constants.__exit__(None, None, None))

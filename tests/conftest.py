"""Settings of our own tests, and of the processes that they start.

Kernels that they generate lie in pytest's cache folder, not in the user's. Libraries compute on one thread: tests run
in parallel on small models, and threads that wait for each other between small operations take ten times as long.
Ctrl-C acts, also where a shell runs the tests in the background, for which it turns Ctrl-C off.
"""

import os
import signal
from pathlib import Path

os.environ.setdefault("MINIGRAD_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "kernels"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

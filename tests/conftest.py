"""Settings of our own tests, and of the processes that they start.

Kernels that they generate lie in pytest's cache folder, not in the user's. Libraries compute on one thread: tests run
in parallel on small models, and threads that wait for each other between small operations take ten times as long.
"""

import os
from pathlib import Path

os.environ.setdefault("MINIGRAD_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "kernels"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

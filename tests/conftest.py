"""Settings of our own tests: kernels that they generate lie in pytest's cache folder, not in the user's."""

import os
from pathlib import Path

os.environ.setdefault("MINIGRAD_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "kernels"))

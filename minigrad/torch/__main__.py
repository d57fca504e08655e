"""`python -m minigrad.torch script.py [arguments]`: run a PyTorch script with `torch` = the stand-in."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import minigrad.torch

USAGE = """usage: python -m minigrad.torch script.py [arguments]

Runs a Python script that is written for PyTorch on minigrad: `import torch` gives minigrad's stand-in.

example: python -m minigrad.torch train.py --steps 100"""


def main() -> int:
    """Run the script that sys.argv names as __main__; 2 when there is none."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(USAGE)
        return 0 if len(sys.argv) > 1 else 2
    script = Path(sys.argv[1])
    if not script.is_file():
        print(f"minigrad.torch: there is no script {script}", file=sys.stderr)
        return 2
    minigrad.torch.install()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(script.resolve().parent)  # as `python script.py` does
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tools.explain ...` is `minigrad explain ...`."""

import sys

from minigrad.cli import main

if __name__ == "__main__":
    sys.exit(main(["explain", *sys.argv[1:]]))

"""`python -m tools.render ...` is `minigrad render ...`."""

import sys

from minigrad.cli import main

if __name__ == "__main__":
    sys.exit(main(["render", *sys.argv[1:]]))

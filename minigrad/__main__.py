"""`python -m minigrad` and the command `minigrad`."""

from minigrad.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())

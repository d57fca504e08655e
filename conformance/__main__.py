"""`python -m conformance` and the command `conformance`."""

from conformance.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())

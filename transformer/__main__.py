"""`python -m transformer train|generate|translate|perplexity|attention|inspect`."""

from transformer.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

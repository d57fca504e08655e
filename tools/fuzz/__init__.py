"""Random programs on torch and on minigrad, eager, traced and compiled: `python -m tools.fuzz`.

`steps` says what a program consists of, `programs` draws, runs and shrinks them, `compare` holds the ways to run one to
torch, `__main__` reports.
"""

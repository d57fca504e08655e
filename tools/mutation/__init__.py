"""Systematic mutation of any implementation, to measure the checks: `python -m tools.mutate`.

operators: the mutations of a source file, one small edit each. trials: a mutant in a process of its own, against the
checks that run its line. explained: the survivors that are no gaps, and why.
"""

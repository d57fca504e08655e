"""Systematic mutation: `python -m tools.mutate` measures the checks, `python -m tools.own_mutants` our own tests.

operators: the mutations of a source file, one small edit each. trials: a mutant in a process of its own, against the
checks that run its line. explained: the survivors that are no gaps, and why.

drawn: mutations of our own code, by lot, and probes that tell which tests run them. apart: tests of a mutant in a
process that can harm nothing. equivalent: mutants of our own that are the same program, and why.
"""

"""Grading measured with thousands of subjects: `python -m tools.many --help`. docs/grading-figures.md has the figures.

subjects: makes them. runs: grades them here, and watches the workers. cluster: the same over a scheduler of Dask and
workers, of which one is killed and one stopped. hostile: what a few that do harm cost the others. model: what a million
cost on many machines.
"""

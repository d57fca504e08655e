"""Watching a training run: `conformance watch train.py`, or `watching()` around a loop of one's own.

`watcher` puts taps on torch (`modules`, `losses`, `optimization`, `data`), which write a `record`; the checks of the
topic "training-runs" read it, and `verdicts` makes the report. Importing this package imports nothing heavy.
"""

"""Imports every family, so that `CORRECT` and `WRONG` are complete."""

from torch_subjects import attention, layers, parts, sequence_first, wrong  # noqa: F401

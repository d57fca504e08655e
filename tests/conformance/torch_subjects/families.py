"""Imports every family, so that `CORRECT` and `WRONG` are complete."""

from torch_subjects import attention, everyday, layers, mistakes, parts, sequence_first  # noqa: F401

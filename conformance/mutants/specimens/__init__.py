"""Small, correct models in PyTorch, a file each: what the mutants of whole models are one line away from.

No module of the package imports these files: `conformance.mutants.source` reads them as text.
"""

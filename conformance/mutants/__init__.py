"""The mutant zoo, a module a topic. Importing this package registers every mutant."""

from conformance.discovery import import_modules
from conformance.mutants.base import MUTANTS, Mutant, mutant

__all__ = ["MUTANTS", "Mutant", "mutant"]

import_modules(__name__, __path__)

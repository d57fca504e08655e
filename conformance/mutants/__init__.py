"""The mutant zoo, a module a topic. Importing this package registers every mutant."""

from conformance.mutants import attention as attention
from conformance.mutants import engine as engine
from conformance.mutants import positions as positions
from conformance.mutants.base import MUTANTS, Mutant, mutant

__all__ = ["MUTANTS", "Mutant", "mutant"]

"""The numpy reference implementation, a module a topic. Importing this package registers every role."""

from conformance.adapters.reference import attention as attention
from conformance.adapters.reference.base import REFERENCE, ReferenceImplementation, ReferenceSubject, reference

__all__ = ["REFERENCE", "ReferenceImplementation", "ReferenceSubject", "reference"]

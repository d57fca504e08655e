"""The numpy reference implementation, a module a topic. Importing this package registers every role."""

from conformance.adapters.reference.base import REFERENCE, ReferenceImplementation, ReferenceSubject, reference
from conformance.discovery import import_modules

__all__ = ["REFERENCE", "ReferenceImplementation", "ReferenceSubject", "reference"]

import_modules(__name__, __path__)

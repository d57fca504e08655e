"""The numpy reference implementation, a module a topic. Importing this package registers every role."""

from conformance.adapters.reference import attention as attention
from conformance.adapters.reference import decoding as decoding
from conformance.adapters.reference import engine as engine
from conformance.adapters.reference import feed_forward as feed_forward
from conformance.adapters.reference import layers as layers
from conformance.adapters.reference import models as models
from conformance.adapters.reference import multi_head as multi_head
from conformance.adapters.reference import networks as networks
from conformance.adapters.reference import norms as norms
from conformance.adapters.reference import positions as positions
from conformance.adapters.reference import training as training
from conformance.adapters.reference.base import REFERENCE, ReferenceImplementation, ReferenceSubject, reference
from conformance.discovery import import_modules

__all__ = ["REFERENCE", "ReferenceImplementation", "ReferenceSubject", "reference"]

import_modules(__name__, __path__)

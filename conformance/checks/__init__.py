"""The checks, a module a topic. Importing this package registers every check."""

from conformance.discovery import import_modules

import_modules(__name__, __path__)
from conformance.checks import attention as attention
from conformance.checks import engine as engine
from conformance.checks import networks as networks
from conformance.checks import positions as positions

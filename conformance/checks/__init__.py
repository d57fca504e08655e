"""The checks, a module a topic. Importing this package registers every check."""

from conformance.discovery import import_modules

import_modules(__name__, __path__)

"""The checks, a module a topic. Importing this package registers every check."""

from conformance.checks import attention as attention
from conformance.checks import engine as engine
from conformance.checks import positions as positions

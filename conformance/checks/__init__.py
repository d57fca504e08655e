"""The checks, a module a topic. Importing this package registers every check."""

from conformance.checks import attention as attention
from conformance.checks import masks as masks
from conformance.checks import positions as positions
from conformance.checks import softmax as softmax

"""The checks, a module a topic. Importing this package registers every check."""

from conformance.checks import attention as attention

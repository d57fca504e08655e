"""Verifications of claims about the documents themselves: arithmetic, memory figures, printed numbers, errata.

`@verify("slug")` registers a function of no argument that returns `Evidence`. For an erratum it is the witness:
it shows that the statement as written does not hold and that the correction does (`erratum`). Importing this
package registers every verification, a module a topic.
"""

from conformance.discovery import import_modules
from conformance.verifications.base import VERIFICATIONS, erratum, rounds_to, verify, witnessed

__all__ = ["VERIFICATIONS", "erratum", "rounds_to", "verify", "witnessed"]

import_modules(__name__, __path__)

"""An implementation that is a whole model alone, without its components, so that a claim about it is asked quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.adapters.whole.model import WholeModel
from conformance.protocol import NotProvided


class Whole:
    """The model as it is; what is asked works on a copy."""

    def __init__(self, model: WholeModel) -> None:
        self.model = model

    def build(self, role: str, config: Mapping[str, Any]) -> WholeModel:
        if role not in ("module", "model", self.model.kind):
            raise NotProvided(role)
        return self.model.twin()

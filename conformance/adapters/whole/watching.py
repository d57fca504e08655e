"""The base of dispatch modes: what sees every operation of a run."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):
    """A dispatch mode that torch's compiler may look into: telling it not to would import it, which takes 2 s."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

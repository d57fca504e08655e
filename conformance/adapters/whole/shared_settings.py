"""Settings that several models of a file share: which of them are another model's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.configs import fields_of, is_config
from conformance.adapters.whole.sizes import meaning


def is_of_others(option: str, module: nn.Module, given: Mapping[str, Any]) -> bool:
    """Whether an option stands among settings that a model is handed, no class that it is made of reads it there, and
    another class of its file does. option: as `meaning` says it. given: the arguments of the constructor."""
    held = [fields_of(value) for value in given.values() if is_config(value)]
    names = [name for fields in held for name in fields if isinstance(name, str) and meaning(name) == option]
    if not names or any(meaning(name) == option for name, value in given.items() if not is_config(value)):
        return False
    classes: set[type] = {type(part) for part in module.modules()} | set(type(module).__mro__)
    texts = {found[0] for found in map(source_of, classes) if found is not None}
    reads = re.compile("|".join(rf"\[\s*['\"]{re.escape(n)}['\"]\s*\](?!\s*=[^=])|\.{re.escape(n)}\b" for n in names))
    cls: type = type(module)
    around = source_of(cls)
    whole = ""
    with suppress(OSError):
        whole = Path(around[1]).read_text(encoding="utf-8", errors="replace") if around else ""
    for text in texts:
        whole = whole.replace(text, "")
    return not any(reads.search(text) for text in texts) and reads.search(whole) is not None

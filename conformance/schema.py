"""Whether values that were read from a file have the form that a JSON schema says, of the words that ours use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def fault(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], where: str = "it") -> str:
    """What is wrong with a value, as a clause; nothing, where it has the form. root: what has the "$defs"."""
    if "$ref" in schema:
        return fault(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "oneOf" in schema:
        faults = [fault(value, choice, root, where) for choice in schema["oneOf"]]
        return "" if "" in faults else faults[0]
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        return f"{where} is no {' or '.join(types)}"
    if "const" in schema and value != schema["const"]:
        return f"{where} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {', '.join(map(str, schema['enum']))}"
    if "minimum" in schema and _is(value, "number") and value < schema["minimum"]:
        return f"{where} is less than {schema['minimum']}"
    if isinstance(value, dict):
        return _fault_of_object(value, schema, root, where)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{where} has {len(value)} items"
        parts = ((item, schema.get("items", {}), f"{where}[{index}]") for index, item in enumerate(value))
        return next(filter(None, (fault(item, of, root, at) for item, of, at in parts)), "")
    return ""


def _fault_of_object(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} has no {name!r}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, item in value.items():
        of = known.get(name, others)
        if of is False:
            return f"{where} has {name!r:.80}, which is unknown"
        if of is not True and (found := fault(item, of, root, f"{where}.{name:.40}")):
            return found
    return ""


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (not isinstance(value, bool) or name == "boolean")

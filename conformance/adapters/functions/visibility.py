"""What True means in a mask, as words tell it: the parameter's name, the docstring, the rest of the file.

Running cannot tell: a mask that is turned around hides just as well. What the text around it says is the intent.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from conformance.adapters.functions.subjects import file_of, source_of
from conformance.adapters.inference.masks import opposite_in

KEEPS, HIDES = "may attend", "hidden"
"""The ends of the names of `conformance.adapters.inference.masks.ENCODINGS`."""

_SAYS = r"[`'\"]*\s*(=|:|means|marks|indicates|denotes|for|where|at|if|->)"
_ON = rf"(\btrue\b|\b1s?{_SAYS}|\bones\b|\bnonzero\b)"
_OFF = rf"(\bfalse\b|\b0s?{_SAYS}|\bzeros?\b)"
_AWAY = r"(\bnot\b|n't|never|hidden|hides?\b|masked\b|mask(s|ed)? out|ignor|\bpad(s|ded|ding)?\b|block|forbid|future)"
_SEEN = r"((may|can) look|looks? at|visible|keep|kept|attend|real|\bsee[ns]?\b|allow|valid|tokens?\b)"
_SAID = (
    (HIDES, rf"{_ON}(?:(?!{_OFF})[^.,;\n])*?{_AWAY}"),  # "1 for tokens and 0 for padding" says what 1 is before the 0
    (KEEPS, rf"{_ON}(?:(?!{_OFF})[^.,;\n])*?{_SEEN}"),
    (KEEPS, rf"{_OFF}(?:(?!{_ON})[^.,;\n])*?{_AWAY}"),
    (HIDES, rf"{_OFF}(?:(?!{_ON})[^.,;\n])*?{_SEEN}"),
)

_MASK = r"\w*mask\w*"
_USED = (
    (KEEPS, rf"masked_fill_?\(\s*{_MASK}(\.\w+\([^)]*\)|\[[^\]]*\])*\s*==\s*(0|False)\b"),
    (KEEPS, rf"masked_fill_?\(\s*(~\s*{_MASK}|torch\.logical_not\(|{_MASK}\.logical_not|not )"),
    (KEEPS, rf"torch\.where\(\s*{_MASK}[^,]*,\s*\w*(scores|attn|logits|att|sim|energy|dots)\w*\s*,"),
    (KEEPS, rf"\(\s*1(\.0?)?\s*-\s*{_MASK}[^)]*\)\s*\*\s*(-|float|torch\.finfo)"),
    (HIDES, rf"masked_fill_?\(\s*{_MASK}(\.\w+\([^)]*\)|\[[^\]]*\])*\s*(==\s*(1|True)\s*)?,"),
    (HIDES, rf"{_MASK}(\.\w+\([^)]*\))*\s*\*\s*-\s*(1e|10000|float|torch\.finfo)"),
    (HIDES, rf"{_MASK}(\.\w+\([^)]*\))*\s*\*\s*\(?float\(['\"]-inf"),
    (HIDES, r"\w*key_padding_mask\s*="),
)
_NEGATED = r"(~|logical_not\(|not\s)\s*\w*(mask|subsequent)\w*\s*\("


def _said(function: Any) -> str:
    """What a docstring or a comment says that True marks; empty for nothing."""
    comments = re.findall(r"#([^\n]*)", source_of(function))
    return meaning_in("\n".join([function.__doc__ or "", *comments]))


def meaning_in(text: str) -> str:
    """What words about a mask say that True marks: KEEPS, HIDES, or "" for nothing."""
    words = re.sub(r"\bnot\s+(masked|padd(ed|ing)|pads?|ignored|hidden)\b", "kept", text.replace("*", "").lower())
    return next((meaning for meaning, pattern in _SAID if re.search(pattern, words)), "")


def convention_of(function: Any, parameter: str) -> tuple[str, str]:
    """What True means in the mask parameter of an attention: KEEPS, HIDES or "" for open; and the evidence."""
    if "key_padding_mask" in parameter:
        return HIDES, "its name"
    if parameter == "attention_mask":
        return KEEPS, "its name"
    if meaning := _said(function):
        return meaning, "its words"
    return _made_in(function)


def _made_in(function: Any) -> tuple[str, str]:
    """What the functions of the file that make causal masks mark; nothing where a caller may turn them around."""
    if re.search(_NEGATED, file_of(function)):
        return "", ""
    scope = vars(sys.modules.get(function.__module__, object()))
    if name := opposite_in(scope, "bool, True = may attend"):
        return HIDES, f"{name} of its file marks what is hidden"
    if name := opposite_in(scope, "bool, True = hidden"):
        return KEEPS, f"{name} of its file marks what is visible"
    return "", ""


def marks_of(function: Any) -> tuple[str, str]:
    """What True means in a mask that this function makes: by its name, its words, or how its file uses masks."""
    name = function.__name__.lower()
    if "key_padding" in name:
        return HIDES, "its name"
    if meaning := _said(function):
        return meaning, "its words"
    text = file_of(function).replace(source_of(function), "")
    if re.search(_NEGATED, text):
        return "", ""
    uses = {meaning: match[0] for meaning, pattern in reversed(_USED) if (match := re.search(pattern, text))}
    if len(uses) == 1:
        ((meaning, shown),) = uses.items()
        return meaning, f"its file writes {shown}"
    return "", ""

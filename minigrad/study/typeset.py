"""Formulas in mathematical notation: `typeset("dL/dx = g * x_i^2")` is ``∂L/∂x = g · xᵢ²``.

Declarations write formulas in ASCII, as programs do. Here they become what books print, as far as single characters
reach: what has no character of its own, such as a sum as an exponent, stays as it is.
"""

from __future__ import annotations

import re
import sys

_RAISED = dict(zip("0123456789+-abcdefghijklmnoprstuvwxyzTV", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀⱽ", strict=True))
_LOWERED = dict(zip("0123456789aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))

_SIGNS = (
    (r"\bdL/d(?=\w)", "∂L/∂"),
    (r"<([^<>=]*, [^<>=]*)>", r"⟨\1⟩"),  # an inner product
    (r"\bfloor\(([^()]*)\)", r"⌊\1⌋"),
    (r"\bsqrt\(", "√("),
    (r"\bintegral_0\^x", "∫₀ˣ"),
    (r"(?<!\.)\bsum(?=_[a-z]\b|\()", "Σ"),
    (r"\bprod(?=_[a-z]\b|\()", "Π"),
    (r"\bT\((\w+)\)", r"\1ᵀ"),
    (r"\beps\b", "ε"),
    (r"√\(pi\)", "√π"),
    (r"\bpi\b", "π"),
    (r"\binf\b", "∞"),
    (r"!=", "≠"),
    (r"(?<= )<=(?= )", "≤"),
    (r"(?<= )>=(?= )", "≥"),
    (r"(?<= )\*(?= )", "·"),
    (r" @ (?=\w)", " "),  # matrices that stand beside each other are multiplied
    (r"(?<=[\s(=⟨])-(?=[\w(√Σ ])", "−"),
)  # fmt: skip


def typeset(text: str) -> str:
    """A formula, or a sentence with formulas in it, with the signs, exponents and indices that books print."""
    for pattern, sign in _SIGNS:
        text = re.sub(pattern, sign, text)
    text = re.sub(r"\b([A-Za-z])(\d)\b", _lowered, text)  # y1, b2
    text = re.sub(r"(?<![A-Za-z_])(d?[A-Za-zΣΠ])_([a-z0-9]{1,2})(?![A-Za-z0-9_])", _lowered, text)
    return re.sub(r"(?<=[\w)\]])(?:\^|\*\*)(?:\((-?\w+)\)|(-?\d+|-?[A-Za-z])(?![\w(]|\.\d))", _raised, text)


def can_show(stream: object = None) -> bool:
    """Whether a stream (standard output where none is given) has all of these characters."""
    encoding = getattr(stream if stream is not None else sys.stdout, "encoding", None) or "utf-8"
    try:
        "".join((*_RAISED.values(), *_LOWERED.values(), *"∂⟨⟩⌊⌋√∫ΣΠεπ∞≠≤≥·−")).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _raised(match: re.Match[str]) -> str:
    exponent = match[1] or match[2]
    return "".join(_RAISED[c] for c in exponent) if set(exponent) <= _RAISED.keys() else match[0]


def _lowered(match: re.Match[str]) -> str:
    below = match[2]
    return match[1] + "".join(_LOWERED[c] for c in below) if set(below) <= _LOWERED.keys() else match[0]

"""What the rules of text tell of a text."""

from __future__ import annotations

import ast
from textwrap import dedent

from conformance.slips.slip import Rule, Slip


def told(slip: Slip | Rule, text: str) -> list[str]:
    """What is written where a slip, or its rule alone, finds something, in order."""
    rule = slip.rule if isinstance(slip, Slip) else slip
    return [written for written, _ in rule(ast.parse(dedent(text)))]

"""Slips of the weights of a model that the text of a file shows by itself: a saved model of which only the config is
loaded, and factors that are merged into a weight without their scale."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import Found, Slip, calls, functions


def rebuilt_from_config(tree: ast.AST) -> Found:
    """Where a function makes a model of the config in a folder, weights are saved by the file, and the function loads
    none."""
    if ".save_pretrained(" not in ast.unparse(tree):
        return
    for function in functions(tree):
        if "load_state_dict" in ast.unparse(function):
            continue
        for node in calls(function):
            inner = node.args[0] if len(node.args) == 1 else None
            of_config = isinstance(inner, ast.Call) and re.fullmatch(
                r"\w*Config\.from_pretrained", ast.unparse(inner.func)
            )
            if of_config and re.match(r"[A-Z]\w+|AutoModel\w*\.from_config", ast.unparse(node.func)):
                yield ast.unparse(node), node


_LOW_RANK = re.compile(r"(\w+_)?(lora_?)?(a|b|down|up)(_\w+)?", re.IGNORECASE)
_SCALES = re.compile(r"scal|alpha|\brank\b|/ self\.r\b", re.IGNORECASE)


def merged_without_scale(tree: ast.AST) -> Found:
    """Where forward scales what two low-rank factors give, and what adds their product to a weight does not."""
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods = {one.name: one for one in cls.body if isinstance(one, ast.FunctionDef)}
        forward = ast.unparse(methods["forward"]) if "forward" in methods else ""
        if not _SCALES.search(forward):
            continue
        for name, method in methods.items():
            adds = re.search(r"weight\b.*(\+=|\+|add_)|copy_", ast.unparse(method))
            if name in ("forward", "__init__") or not adds or _SCALES.search(ast.unparse(method)):
                continue
            for node in ast.walk(method):
                factors = _factors(node)
                if factors and all(re.search(rf"self\.{one}\b", forward) for one in factors):
                    yield ast.unparse(node), node


def _factors(node: ast.AST) -> list[str]:
    """The two low-rank factors of the module itself that a node multiplies: ``self.lora_b @ self.lora_a``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.MatMult):
        return []
    named = [re.match(r"self\.(\w+)", ast.unparse(side)) for side in (node.left, node.right)]
    names = [one[1] for one in named if one]
    return names if len(set(names)) == 2 and all(map(_LOW_RANK.fullmatch, names)) else []


REBUILT = Slip(
    rule=rebuilt_from_config,
    asked="what is loaded of a model that was saved",
    expected="its weights",
    got="its config alone",
    sentence="Only the config of the saved model is loaded: its weights begin at random again.",
    mend="model = Model.from_pretrained(folder)",
    nothing="no model was seen that is made of the config beside its saved weights",
)
MERGED = Slip(
    rule=merged_without_scale,
    asked="what is added to a weight for its low-rank factors",
    expected="their product, scaled as forward does",
    got="their product as it is",
    sentence="Forward scales what the low-rank factors give, and what is added to the weight is not scaled: the merged "
    "model is another one.",
    mend="weight += scale * (lora_b @ lora_a)",
    nothing="no product of low-rank factors was seen that is added to a weight without their scale",
)

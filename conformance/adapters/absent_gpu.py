"""Code that names a GPU runs where there is none: the processor stands in for it.

Many constructors and forwards call ``.cuda()`` or hand over ``device="cuda"`` without asking whether there is a GPU.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_GPU = re.compile(r"cuda(:\d+)?|mps")
_GPU_WRITTEN = re.compile(r"cuda(:(\d+|%[dis]|\{\w*\})?)?|mps")
"""How code writes it: also before its number is put in, as in ``f"cuda:{rank}"``."""
_OURS = Path(__file__).resolve().parents[2]
"""Where the suite itself lies: its own files name GPUs, too, and ask first."""


def on_processor(value: Any) -> Any:
    """The value; the processor in the place of a GPU that is not there."""
    if isinstance(value, (str, torch.device)) and _GPU.fullmatch(str(value)) and not torch.cuda.is_available():
        return type(value)("cpu")
    return value


class _OnProcessor(TorchFunctionMode):
    """Functions and methods of torch get the processor in the place of a GPU."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        words = dict(kwargs or {})
        if "device" in words:
            words["device"] = on_processor(words["device"])
        return func(*map(on_processor, args), **words)


_STANDING_IN: list[_OnProcessor] = []


def stand_in_for_gpu(module: ModuleType, root: Path) -> None:
    """From now on in this process the processor stands in for a GPU, where there is none and a module, or one of its
    repository that it imports, names one. Each function of torch takes longer then, so not for every model."""
    if not _STANDING_IN and not torch.cuda.is_available() and any(map(_names_gpu, _trees(module, root))):
        _STANDING_IN.append(_OnProcessor())
        _STANDING_IN[0].__enter__()


def end_standing_in() -> None:
    while _STANDING_IN:
        _STANDING_IN.pop().__exit__(None, None, None)


def _trees(module: ModuleType, root: Path) -> Iterator[ast.AST]:
    """The syntax of the imported files in a folder that may name a GPU."""
    inside = tuple(f"{folder}{os.sep}" for folder in {root, root.resolve()})
    imported = [] if root.resolve() == _OURS else list(sys.modules.values())
    known = [getattr(one, "__dict__", {}) for one in (module, *imported)]  # without asking lazy modules, which import
    files = {str(names.get("__file__") or "") for names in known}
    for file in sorted(files):
        if file.startswith(inside) and file.endswith(".py") and "site-packages" not in file:
            with suppress(OSError, SyntaxError, ValueError):
                text = Path(file).read_text(encoding="utf-8", errors="replace")
                if re.search("cuda|mps", text):
                    yield ast.parse(text)


def _names_gpu(node: ast.AST) -> bool:
    """Whether code calls ``.cuda()``, or names a GPU, without asking first whether there is one."""
    if isinstance(node, (ast.If, ast.IfExp)) and "is_available" in ast.unparse(node.test):
        return False
    if isinstance(node, ast.Compare):  # it asks for the kind of a device that it is handed
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _GPU_WRITTEN.fullmatch(node.value) is not None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
        return True
    return any(map(_names_gpu, ast.iter_child_nodes(node)))

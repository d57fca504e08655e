"""Subjects that are written as files of their own, and forgotten after each test."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """made("GPT", "class GPT...", {"train.py": "..."}): what is made of a name (or expression) of model.py."""
    pytest.importorskip("torch")
    from made_subjects import HEAD

    from conformance.adapters import _find, _load, parse
    from conformance.adapters.whole.making import made_of

    modules, path = dict(sys.modules), list(sys.path)

    def make(name: str, text: str, files: dict[str, str] | None = None, file: str = "model.py") -> Any:
        for other, content in {**(files or {}), file: HEAD + dedent(text)}.items():
            (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / other).write_text(dedent(content))
        spec = parse(f"{tmp_path / file}:{name}")
        return made_of(_find(_load(spec, ()), spec), spec)

    yield make
    for added in sys.modules.keys() - modules.keys():
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[added]
    sys.path[:] = path


@pytest.fixture
def functions(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], list[Any]]:
    """The functions of a file with the given text."""

    from conformance.adapters.helpers.beside import functions_of
    from conformance.adapters.loading import writing_no_bytecode

    def made(text: str) -> list[Any]:
        path = tmp_path / "helpers_of_a_test.py"
        path.write_text("import math, random\nimport torch\nimport torch.nn.functional as F\n" + dedent(text))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        request.addfinalizer(lambda: sys.modules.pop(path.stem, None))
        with writing_no_bytecode():
            spec.loader.exec_module(module)
        return list(functions_of(module))

    return made

"""What the tests of recorded runs share: subjects loaded from files, and mutants of them."""

import importlib.util
import itertools
from pathlib import Path

import torch

from conformance.adapters.whole.record import record

SUBJECTS = Path(__file__).parent / "inside"
_number = itertools.count()


def load(path):
    """The module in a file, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"whole_subject_{next(_number)}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(module, style=None, training=False, steps=False):
    """The record of a subject's run."""
    torch.manual_seed(0)
    model, arguments = module.subject(getattr(module, style)) if style else module.subject()
    model.train(training)
    if steps:
        return record(model, lambda: module.steps(model, *arguments))
    return record(model, lambda: model(*arguments))


def mutated(folder, file, style, line, instead):
    """The module of a subject's file, with `line` (of the class `style`, if given) replaced."""
    source = (SUBJECTS / f"{file}.py").read_text()
    if style:  # the line may stand in several classes
        head, tail = source.split(f"class {style}(", 1)
        head += f"class {style}("
    else:
        head, tail = "", source
    assert line in tail
    path = folder / f"{file}.py"
    path.write_text(head + tail.replace(line, instead, 1))
    return load(path)

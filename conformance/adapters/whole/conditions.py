"""What a writer hands its model at every step beside the tokens: the length of a prefix, a style, an image.

The model's own logits, to which its choices are compared, are then those of a forward that is called so, too.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from conformance.adapters.whole.names import PREFIX, meaning_of
from conformance.adapters.whole.running import RunningModel
from conformance.protocol import NotProvided

M = TypeVar("M", bound=RunningModel)
_DOCUMENTS = re.compile(
    r"(seg(ment)?|doc(ument)?|seq(uence)?|sample)_?(ids?|idx|index|numbers?)|(segment|document)s", re.I
)
_COMPARES = re.compile(
    r"(seg|doc|seq|sample)\w*[^=!\n]*(None|unsqueeze)[^=!\n]*(==|!=|\.eq\(|\.ne\()[^\n]*(None|unsqueeze)", re.I
)
"""A line that compares the document of each word with that of each other."""
_SAME_IN_ORDER = re.compile(
    r"same\w*\s*=[^\n]*(seg|doc|seq|sample)\w*[^=!<>\n]*(None|unsqueeze)[^=!<>\n]*[<>]=?[^\n]*(None|unsqueeze)", re.I
)
"""One that calls the same what it compares by their order."""
_OF_THE_STEP = ("mask", "cache", "positions", "offset", "labels")
"""Meanings of parameters that follow from where a step stands."""


@contextmanager
def calls_of(module: nn.Module) -> Iterator[list[dict[str, Any]]]:
    """The arguments of each call of forward, by name, as they were when it was called."""
    signature, calls = inspect.signature(module.forward), list[dict[str, Any]]()

    def called(_: nn.Module, args: Any, kwargs: Any) -> None:
        with suppress(TypeError):
            given = signature.bind(*args, **kwargs).arguments
            calls.append({name: v.detach().clone() if isinstance(v, Tensor) else v for name, v in given.items()})

    handle = module.register_forward_pre_hook(called, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def conditions_of(subject: RunningModel, calls: list[dict[str, Any]]) -> dict[str, Tensor]:
    """The tensors that every call was given alike, by parameter, where the subject is not called with them anyway."""
    calling = subject.calling
    known = {one.parameter for one in calling.inputs} | {mask.parameter for mask in calling.masks}
    known |= {*calling.fixed, *calling.lengths, *calling.optional_masks}
    found: dict[str, Tensor] = {}
    for name, value in calls[0].items() if calls else ():
        others = [call.get(name) for call in calls]
        same = isinstance(value, Tensor) and all(isinstance(v, Tensor) and torch.equal(v, value) for v in others)
        if same and name not in known and meaning_of(name) not in _OF_THE_STEP:
            found[name] = value
    return found


def under(subject: M, conditions: Mapping[str, Tensor]) -> M:
    """The subject whose forward is handed these, too: a row for each row of its input."""
    if not conditions:
        return subject
    main = subject.calling.main.meaning
    fixed = {**subject.calling.fixed, **{name: _rows_of(value, main) for name, value in conditions.items()}}
    return replace(subject, calling=replace(subject.calling, fixed=fixed))


def with_prefix(subject: M, length: int) -> M:
    """The subject told that so many tokens at the start of each row are a prefix. Raises NotProvided."""
    known = {*subject.calling.fixed, *subject.calling.lengths}
    names = [name for name in inspect.signature(subject.module.forward).parameters if PREFIX.fullmatch(name.lower())]
    if not names or names[0] in known:
        raise NotProvided("its forward takes no length of a prefix")
    told = under(subject, {names[0]: torch.full((2,), length)})
    return replace(told, known={})


def with_two_documents(subject: M, begins: Sequence[int] = ()) -> tuple[M, str]:
    """The subject told that each row holds two documents, the first half and the second, and file:line where its file
    compares the documents of words. begins: where the second one begins in each row. Raises NotProvided where nothing
    says that documents are kept apart."""
    names = [one for one in inspect.signature(subject.module.forward).parameters if _DOCUMENTS.fullmatch(one)]
    file, line = _first_line(subject.module, _COMPARES)
    if not line:
        file, line = _first_line(subject.module, _SAME_IN_ORDER)
    if not names or names[0] in subject.calling.fixed or not line:
        raise NotProvided("its forward takes no numbers of documents that it keeps apart")
    main = subject.calling.main.meaning

    def made(inputs: Mapping[str, Any]) -> Tensor:
        rows, length = inputs[main].shape
        if begins:
            of_rows = torch.tensor(begins)[torch.arange(rows) % len(begins), None]
            return (torch.arange(length) >= of_rows).long() + 1
        return (torch.arange(length) * 2 // length + 1).expand(rows, length)

    fixed = {**subject.calling.fixed, names[0]: made}
    return replace(subject, calling=replace(subject.calling, fixed=fixed), known={}), f"{file}:{line}"


def _first_line(module: nn.Module, pattern: re.Pattern[str]) -> tuple[str, int]:
    """The file of a module, and the number of its first line in which a pattern is found; 0 for none."""
    with suppress(OSError, TypeError):
        file = inspect.getsourcefile(type(module)) or ""
        lines = linecache.getlines(file)
        return file, next((n for n, line in enumerate(lines, 1) if pattern.search(line.partition("#")[0])), 0)
    return "", 0


def _rows_of(value: Tensor, main: str) -> Callable[[Mapping[str, Any]], Tensor]:
    def made(inputs: Mapping[str, Any]) -> Tensor:
        rows = len(inputs[main])
        return value if not value.ndim or len(value) == rows else value[:1].expand(rows, *value.shape[1:])

    return made

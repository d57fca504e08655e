"""Taps on data and files: which batches a loader gives, and what is saved."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from conformance.places import is_users
from conformance.watch.adapters import halves
from conformance.watch.events import Batch, Load, Restore, Save, Seed, Snapshot
from conformance.watch.indices import rows_of
from conformance.watch.lines import At
from conformance.watch.samplers import drawn
from conformance.watch.tensors import samples, tensors
from conformance.watch.watcher import Watcher, classes_with, place, stack


def tap(watcher: Watcher) -> None:
    taps = _Data(watcher)
    watcher.around(DataLoader, "__init__", taps.make)
    watcher.around(DataLoader, "__iter__", taps.begin)
    for owner in (torch, torch.random):
        watcher.around(owner, "manual_seed", taps.seed)
    watcher.around(_BaseDataLoaderIter, "__next__", taps.following)
    watcher.around(torch, "save", taps.save)
    watcher.around(torch, "load", taps.load)
    watcher.around(nn.Module, "load_state_dict", taps.restore_module)
    watcher.around(nn.Module, "state_dict", taps.state)
    watcher.on_close(register_optimizer_step_post_hook(taps.outlive).remove)
    watcher.around(Optimizer, "load_state_dict", taps.restore("optimizer"))
    for cls in classes_with("load_state_dict", LRScheduler):
        watcher.around(cls, "load_state_dict", taps.restore("scheduler"))


class _Data:
    """epochs: how often each loader was begun. loaders: iterator -> its loader, epoch and rows; rows: of each
    loader, by number in the run. numbers: of loaders; those of one line over as many rows are one, though a script
    makes it anew in each epoch. made: where each was made; lines: those places, and whether a loader of theirs gave
    a batch. written: what each file holds. restored: the parameters of modules that got their state back;
    snapshots: the last states that modules gave."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.written: dict[object, frozenset[str]] = {}
        self.made: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.lines: dict[str, bool] = {}
        watcher.endings.append(self.finish)
        self.numbers: dict[tuple[str, int], int] = {}
        self.epochs: dict[int, int] = {}
        self.loaders: WeakKeyDictionary[Any, tuple[int, int, int]] = WeakKeyDictionary()
        self.rows: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.restored: list[tuple[Restore, list[ref[Tensor]]]] = []
        self.snapshots: deque[tuple[Snapshot, ref[Any]]] = deque(maxlen=8)
        self.in_state = False

    def finish(self) -> None:
        for event, parameters in self.restored:
            event.is_lost = bool(parameters) and all(one() is None for one in parameters)
        self.watcher.run.unread += [line for line, was_read in self.lines.items() if not was_read]

    def make(self, original: Any, loader: DataLoader[Any], *rest: Any, **keywords: Any) -> None:
        original(loader, *rest, **keywords)
        made = stack(loader)
        with self.watcher.looking():
            found = drawn(getattr(loader, "sampler", None), loader.dataset, made[0].place if made else "")
            self.watcher.run.drawn += [found] if found is not None else []
            self._draws_from(loader, made)
        if made and made[0].is_direct:
            self.made[loader] = made[0].place
            self.lines.setdefault(made[0].place, False)

    def _draws_from(self, loader: DataLoader[Any], made: tuple[At, ...]) -> None:
        """Write down which rows a loader draws from, once for loaders that draw from the same."""
        rows, known = rows_of(loader, made[0].place if made else "", made), self.watcher.run.rows
        if rows is not None:
            if rows not in known:
                known.append(rows)
            self.rows[loader] = known.index(rows)

    def seed(self, original: Any, *rest: Any, **keywords: Any) -> Any:
        self.watcher.add(Seed())
        return original(*rest, **keywords)

    def begin(self, original: Any, loader: DataLoader[Any]) -> Any:
        result = original(loader)
        if loader in self.made:
            self.lines[self.made[loader]] = True
        line, rows = place(), len(loader.dataset) if hasattr(loader.dataset, "__len__") else 0
        number = self.numbers.setdefault((line, rows), len(self.numbers))
        self.watcher.run.loaders.setdefault(number, line)
        self.epochs[number] = self.epochs.get(number, 0) + 1
        if self.epochs[number] == 1:
            kind = type(loader.dataset)
            makers = (loader.collate_fn, getattr(kind, "__getitem__", None), getattr(kind, "__iter__", None))
            calls = (one if hasattr(one, "__code__") else vars(type(one)).get("__call__") for one in makers)
            codes = (getattr(one, "__code__", None) for one in calls)
            self.watcher.run.givers += [code for code in codes if code is not None and is_users(code.co_filename)]
        if self.watcher.until == "epoch" and self.epochs[number] > 1 and number == self.watcher.learned_loader:
            self.watcher.end("an epoch was watched")
        self.loaders[result] = (number, self.epochs[number], self.rows.get(loader, -1))
        return result

    def following(self, original: Any, iterator: Any) -> Any:
        batch = original(iterator)
        number, epoch, rows = self.loaders.get(iterator, (-1, 0, -1))
        self.watcher.loader = number
        with self.watcher.looking():
            given = list(tensors(batch, 3))
            sizes = [tensor.shape[0] for tensor in given if tensor.dim()]
            size = max(sizes, default=len(given))
            self.watcher.add(Batch(loader=number, epoch=epoch, samples=samples(given), size=size, rows=rows))
        return batch

    def save(self, original: Any, obj: Any, *rest: Any, **keywords: Any) -> None:
        original(obj, *rest, **keywords)
        found = frozenset(holds(obj, 4))
        keys = {key: value for key, value in obj.items() if isinstance(key, str)} if isinstance(obj, Mapping) else {}
        numbers = tuple(key for key, value in keys.items() if type(value) is int)
        factors: tuple[str, ...] = ()
        with self.watcher.looking():
            factors = next(halves(obj, self.trained()), ())
        self.watcher.add(Save(holds=found, numbers=numbers, keys=tuple(keys), factors=factors))
        self.written[_identity(rest[0] if rest else keywords.get("f"))] = found

    def trained(self) -> set[str]:
        """The names of the parameters that optimizers step, in their modules."""
        run, modules = self.watcher.run, [m for m in self.watcher.modules.values() if isinstance(m, nn.Module)]
        held = {number for one in run.optimizers.values() for number in one.parameters}
        pairs = (pair for module in modules for pair in module.named_parameters())
        return {name for name, one in pairs if one.requires_grad and self.watcher.known("parameter", one) in held}

    def load(self, original: Any, f: Any, *rest: Any, **keywords: Any) -> Any:
        result = original(f, *rest, **keywords)
        known = self.written.get(_identity(f))
        found = frozenset(holds(result, 4)) if known is None else known
        if known is not None or {"model", "optimizer"} <= found:
            self.watcher.add(Load(holds=found, is_own=known is not None, averages=tuple(_averages(result))))
        return result

    def restore_module(
        self, original: Any, module: nn.Module, state_dict: Mapping[str, Any], *rest: Any, **keywords: Any
    ) -> Any:
        held = (*module.parameters(), *module.buffers())
        own = {tensor.data_ptr() for tensor in held if tensor.numel()}
        given = [tensor for tensor in state_dict.values() if isinstance(tensor, Tensor) and tensor.numel()]
        result = original(module, state_dict, *rest, **keywords)
        is_itself = bool(given) and all(tensor.data_ptr() in own for tensor in given)
        names = {name for name, _ in module.named_parameters()}
        missing = getattr(result, "missing_keys", None)  # after what hooks have renamed
        matched = len(names - set(missing)) if names and given and missing is not None else -1
        event = self.watcher.add(Restore(what="model", of=self.of(module), is_itself=is_itself, matched=matched))
        self.restored.append((event, [ref(one) for one in module.parameters()]))
        return result

    def state(self, original: Any, module: nn.Module, *rest: Any, **keywords: Any) -> Any:
        if self.in_state:
            return original(module, *rest, **keywords)
        self.in_state = True
        try:
            result = original(module, *rest, **keywords)
        finally:
            self.in_state = False
        if isinstance(result, OrderedDict):
            learns = [one.requires_grad for one in module.parameters()]
            is_frozen = bool(learns) and not any(learns)
            held = frozenset(self.watcher.known("parameter", one) for one in module.parameters())
            event = self.watcher.add(Snapshot(of=self.of(module), held=held, frozen=is_frozen))
            tensor = next((one for one in result.values() if isinstance(one, Tensor)), None)
            self.snapshots.append((event, ref(result if tensor is None else tensor)))  # a shallow copy keeps tensors
        return result

    def of(self, module: nn.Module) -> int:
        """The number of the first parameter of a module; -1 where it has none that is known. It is not kept alive."""
        first = next(iter(module.parameters()), None)
        return -1 if first is None else self.watcher.known("parameter", first)

    def outlive(self, *_: Any) -> None:
        """A step changes what is still held of the states that modules gave."""
        for event, state in self.snapshots:
            event.outlived += state() is not None

    def restore(self, what: str) -> Any:
        def restored(original: Any, *rest: Any, **keywords: Any) -> Any:
            result = original(*rest, **keywords)
            self.watcher.add(Restore(what=what))
            return result

        return restored


_AVERAGE = re.compile(r"(^|_)(ema|swa|shadow|averages?|averaged|avg|momentum_encoder|queue)(_|$)", re.IGNORECASE)


def _averages(checkpoint: Any) -> Iterator[str]:
    """The keys of a checkpoint under which tensors of an average or a queue lie."""
    for key, value in checkpoint.items() if isinstance(checkpoint, Mapping) else ():
        if isinstance(key, str) and _AVERAGE.search(key) and any(isinstance(one, Tensor) for one in tensors(value, 3)):
            yield key


def _identity(file: Any) -> object:
    """What stays the same when a file is renamed: where it lies, and when it was written."""
    try:
        known = Path(file).stat()
    except (TypeError, OSError):
        return id(file)
    return known.st_dev, known.st_ino, known.st_mtime_ns


def holds(value: Any, depth: int) -> Iterator[str]:
    """What of a training run is in a value that is saved."""
    if isinstance(value, torch.nn.Module):
        yield "model"
    elif isinstance(value, Tensor) and value.dtype == torch.uint8 and value.numel() == torch.get_rng_state().numel():
        yield "random state"
    elif isinstance(value, Mapping):
        keys = set(map(str, value))
        if {"state", "param_groups"} <= keys:
            yield "optimizer"
        elif {"last_epoch"} <= keys:
            yield "scheduler"
        elif {"scale", "growth_factor"} <= keys:
            yield "scaler"
        elif value and all(isinstance(item, Tensor) for item in value.values()) and any("." in key for key in keys):
            yield "model"
        elif depth:
            for item in value.values():
                yield from holds(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from holds(item, depth - 1)

"""Compiled steps of a model with a cache: one plan for every bucket of lengths, kept with the memory that it works on.

A plan is bound to memory. So a cache is given a `Room`, memory for its layers with the plans over it, and when the
cache is gone the next one of the same batch and length takes that room over, plans and all. A model keeps the last
KEPT rooms that nobody uses. What cannot be traced (values that a program looks at) runs eagerly on the same memory, so
that either may follow the other. Eagerly run: models on a GPU, those of which something listens to the parts (hooks,
attention maps), and prompts of those with a mixture of experts, where a plan would compute every expert.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import minigrad as mg
from minigrad import Tensor, nn
from transformer.cache import KeyValue, KVCache, ToldCache, check_room
from transformer.decoding.evaluation import evaluation
from transformer.models.base import CausalLM, Seq2Seq
from transformer.moe import FEW, MixtureOfExperts, can_choose
from transformer.places import Told

KEPT = 2  # rooms without a user: a beam search takes one for its prompts and one for its beams
LEAST = 64  # positions that a plan looks at, at least


def bucket(count: int, least: int = 16) -> int:
    """How many tokens a plan for `count` takes: at most a quarter more, so that few plans serve all lengths."""
    step = max(least, 1 << max(count.bit_length() - 3, 0))
    return -(-count // step) * step


def looked_at(count: int, limit: int) -> int:
    """How many positions a plan looks at where `count` are filled: LEAST, or twice, four times, ... as many."""
    return min(limit, max(LEAST, 1 << (count - 1).bit_length()))


class Room:
    """Keys and values of all layers for a batch, and the plans over them."""

    def __init__(self, own: Sequence[KeyValue], cross: Sequence[KeyValue], real: Tensor) -> None:
        self.own, self.cross, self.real = own, cross, real
        self.size = (*real.shape, cross[0][0].shape[-2] if cross else 0)  # batch, positions, tokens of the sources
        self.filled = 0  # positions that were written: the others cost no memory yet
        self.steps: dict[Any, Any] = {}  # compiled, by what is no tensor among their arguments

    def clear(self) -> None:
        """As new: what is left from before must not be seen, not even times 0."""
        for memory in self.own:
            for held in memory:
                held[..., : self.filled, :] = 0
        for held in (held for memory in self.cross for held in memory):
            held.fill_(0)
        self.real.fill_(True)
        self.filled = 0

    def holds(self, cache: KVCache) -> bool:
        """Is this the memory of the cache?"""
        return cache.layers[0].key is self.own[0][0]

    def take(self, cache: KVCache) -> None:
        """Become the memory of the cache, with what it holds so far."""
        for layer, own in zip(cache.layers, self.own, strict=True):
            if layer.key is not None and layer.value is not None:
                for held, old in zip(own, (layer.key, layer.value), strict=True):
                    held[..., : layer.length, :] = old[..., : layer.length, :]
            layer.key, layer.value = own
        for memory, cross in zip(cache.memory, self.cross, strict=False):
            if memory.stored is not None:
                for held, old in zip(cross, memory.stored, strict=True):
                    held.copy_(old)
                memory.stored = cross
        if cache.real is not None:
            self.real.copy_(cache.real)
            cache.real = self.real


class Plans:
    """The rooms of one model that nobody uses, and the plans of its encoder."""

    def __init__(self, model: Any) -> None:
        model_of: Callable[[], Any] = weakref.ref(model)  # plans do not keep their model alive
        self._model = model_of
        self._modules, self._tensors = _parts(model)
        self._spare: list[Room] = []
        mixtures = [module for module in model.modules() if isinstance(module, MixtureOfExperts)]
        self._most = FEW if mixtures else math.inf
        if not all(map(can_choose, mixtures)):
            self._most = 0

        def encode(src: Tensor) -> Any:
            with evaluation(model_of()):
                return model_of().encode(src)

        self.encode = mg.compile(encode)

    def are_of(self, model: Any) -> bool:
        """Has the model the same parts as when these plans were made?"""
        modules, tensors = _parts(model)
        return modules == self._modules and list(map(id, tensors)) == list(map(id, self._tensors))

    def serves(self, ids: Tensor) -> bool:
        """Is there a plan for so many tokens ``(B, T)``?"""
        return ids.shape[0] * ids.shape[1] <= self._most

    def step(self, cache: KVCache, ids: Tensor, real: Tensor | None, memory: Sequence[Tensor]) -> Tensor:
        """Logits ``(B, vocab)`` of the token after ids ``(B, T)``, which follow those in the cache.

        memory: of an encoder-decoder, what its encoder gave, and its mask. Raises RuntimeError for what cannot be
        traced, ValueError where the cache is full.
        """
        model = self._model()
        start, n = cache.length, ids.shape[1]
        limit = min(cache.max_len, model.max_len)
        check_room(cache.max_len, start + n)
        if start + n > model.max_len:
            raise ValueError(f"{start + n} tokens do not fit max_len {model.max_len}: shorten the input")
        held = cache.layers[0].key
        if held is not None and held.shape[0] != ids.shape[0]:
            raise ValueError(
                f"the cache holds a batch of {held.shape[0]}, and {ids.shape[0]} rows came: use a new cache for them"
            )
        padded = 1 if n == 1 else min(bucket(n), limit - start)
        first = bool(memory) and cache.memory[0].stored is None
        room = self._room(cache, ids.shape[0], memory)
        if padded > n:
            ids = _wider(ids, padded)
            real = None if real is None else _wider(real, padded)
        if real is not None:
            cache.real = room.real
        noted = bool(memory) or cache.real is not None  # a decoder may note by itself what it takes for padding
        if noted and real is None and not memory:
            real = mg.ones(*ids.shape, dtype=mg.bool)
        how = looked_at(start + padded, limit), noted, first, real is not None
        step = room.steps.get(how)
        if step is None:
            step = room.steps[how] = mg.compile(_step(self._model, room, *how))
        room.filled = max(room.filled, start + padded)
        given = memory if real is None else (real, *memory)
        found: Tensor = step(ids, mg.tensor(start), mg.tensor(n - 1), *given)
        for layer in cache.layers:
            layer.length = start + n
        if memory:
            cache.real = room.real
            for each, cross in zip(cache.memory, room.cross, strict=True):
                each.stored = cross
        return found

    def _room(self, cache: KVCache, batch: int, memory: Sequence[Tensor]) -> Room:
        """The cache's room, or one that it moves into."""
        held = _ROOMS.get(cache)
        if held is not None:
            plans, room, leave = held
            if plans is self and room.holds(cache):
                return room
            leave()
        read = memory[0].shape[1] if memory else 0
        room = self._taken_over((batch, cache.max_len, read)) or self._new(cache, batch, memory)
        room.take(cache)
        leave = weakref.finalize(cache, self._left, room)
        leave.atexit = False
        _ROOMS[cache] = self, room, leave
        return room

    def _taken_over(self, size: tuple[int, ...]) -> Room | None:
        """A spare room of that size, as new."""
        for place, room in enumerate(self._spare):
            if room.size == size:
                del self._spare[place]
                room.clear()
                return room
        return None

    def _left(self, room: Room) -> None:
        self._spare.insert(0, room)
        del self._spare[KEPT:]

    def _new(self, cache: KVCache, batch: int, memory: Sequence[Tensor]) -> Room:
        """A room for the cache, whose shapes a trace of one token finds."""
        model = self._model()
        small = KVCache(len(cache.layers), 1)

        def one(ids: Tensor, memory: Sequence[Tensor]) -> None:
            model.decode(ids, *memory, small) if memory else model.hidden(ids, small)

        with evaluation(model):
            mg.trace(one)(mg.zeros(batch, 1, dtype=mg.int64), tuple(memory))
        own: list[KeyValue] = []
        for layer in small.layers:
            shapes = [(each.shape, each.dtype) for each in (layer.key, layer.value) if each is not None]
            key, value = (mg.zeros(*s[:-2], cache.max_len, s[-1], dtype=dtype) for s, dtype in shapes)
            own.append((key, value))
        cross: list[KeyValue] = []
        for each in small.memory:
            if each.stored is not None:
                key, value = (mg.zeros(*held.shape, dtype=held.dtype) for held in each.stored)
                cross.append((key, value))
        return Room(own, cross, mg.ones(batch, cache.max_len, dtype=mg.bool))


def _step(
    model_of: Callable[[], Any], room: Room, size: int, noted: bool, first: bool, told: bool
) -> Callable[..., Tensor]:
    """What plans of the room that look at `size` positions are made of. told: which tokens are real."""
    own, cross, notes = room.own, room.cross, room.real  # not the room itself, which keeps the plans

    def step(ids: Tensor, start: Tensor, last: Tensor, *given: Tensor) -> Tensor:
        model, real, memory = model_of(), given[0] if told else None, given[told:]
        cache = ToldCache(Told(start, size), own, cross, notes if noted else None, first)
        with evaluation(model):
            if memory:
                return model.decode(ids, *memory, cache).index_select(1, last.reshape(1)).squeeze(1)
            found = model.hidden(ids, cache, real)
            if ids.shape[1] > 1:  # the head is large, and only the last of the logits are wanted
                found = found.index_select(1, last.reshape(1))
            return model.logits(found).squeeze(1)

    return step


def _wider(x: Tensor, count: int) -> Tensor:
    """x ``(B, T)`` with zeros behind, ``(B, count)``."""
    return mg.cat([x, mg.zeros(x.shape[0], count - x.shape[1], dtype=x.dtype)], 1)


_PLANS: weakref.WeakKeyDictionary[Any, Plans] = weakref.WeakKeyDictionary()
_ROOMS: weakref.WeakKeyDictionary[KVCache, tuple[Plans, Room, Any]] = weakref.WeakKeyDictionary()


def plans_of(model: Any, cache: KVCache) -> Plans | None:
    """The plans of a model as it is now, None where it runs eagerly with this cache (see the module)."""
    if not isinstance(model, CausalLM | Seq2Seq):
        return None
    if len(cache.layers) != (len(model.layers) if isinstance(model, CausalLM) else model.n_layers):
        return None
    for module in model.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__:
            return None
    if any(parameter.device != "cpu" for parameter in model.parameters()):
        return None
    found = _PLANS.get(model)
    if found is None or not found.are_of(model):
        found = _PLANS[model] = Plans(model)
    return found


def _parts(model: nn.Module) -> tuple[list[Any], list[Tensor]]:
    """All modules, which are not kept alive, and all parameters and buffers."""
    return [weakref.ref(module) for module in model.modules()], [*model.parameters(), *model.buffers()]

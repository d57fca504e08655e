"""What a decoder remembers between calls: each layer's keys and values, preallocated (document 002, KV cache).

A cache is for decoding: it is used under no_grad and keeps no history. A layer's cache holds n_kv_heads heads only:
query heads that share a key head share its memory. `Told...` are the same memory as a compiled step sees it, which is
made once for many positions (see `transformer.places`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import minigrad as mg
from minigrad import Tensor
from transformer.places import Told, positions

KeyValue = tuple[Tensor, Tensor]


def _unrecorded(new: KeyValue) -> KeyValue:
    if new[0].requires_grad:
        raise RuntimeError("a key/value cache is for decoding and has no gradients: call the model under no_grad()")
    return new


def _taken(held: Tensor, rows: Tensor, length: int | None = None) -> Tensor:
    """`held` with the rows at `rows`: in its own memory, where they are as many. length: positions that count."""
    if held.shape[0] != rows.shape[0]:
        return held.index_select(0, rows)
    part = held if length is None else held[..., :length, :]
    part.copy_(part.index_select(0, rows))
    return held


class LayerCache:
    """Keys and values of one self-attention: room for `max_len` positions, of which `length` are filled."""

    def __init__(self, max_len: int) -> None:
        self.max_len = max_len
        self.length: Any = 0
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def extend(self, project: Callable[[], KeyValue]) -> KeyValue:
        """Append the new keys and values ``(B, n_kv_heads, T, d_head)``; returns all so far.

        Raises ValueError when they do not fit the room or the batch that the cache began with, RuntimeError while
        gradients are recorded.
        """
        key, value = _unrecorded(project())
        start, end = self.length, self.length + key.shape[-2]
        check_room(self.max_len, end)
        if self.key is None or self.value is None:
            self.key, self.value = (
                mg.zeros((*new.shape[:-2], self.max_len, new.shape[-1]), dtype=new.dtype, device=new.device)
                for new in (key, value)
            )
        if self.key.shape[:-2] != key.shape[:-2]:
            raise ValueError(
                f"the cache holds (batch, heads) = {self.key.shape[:-2]}, the new keys have {key.shape[:-2]}: "
                "use a new cache for another batch"
            )
        self.key[..., start:end, :] = key
        self.value[..., start:end, :] = value
        self.length = end
        return self.key[..., :end, :], self.value[..., :end, :]

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was. rows ``(new batch,)`` int; a row may be taken several times or never."""
        if self.key is not None and self.value is not None:
            self.key, self.value = _taken(self.key, rows, self.length), _taken(self.value, rows, self.length)

    def crop(self, length: int) -> None:
        """Forget all but the first `length` positions; their room stays."""
        self.length = min(self.length, length)


class MemoryCache:
    """Keys and values of one cross-attention: projected from the encoder's output once, at the first call."""

    length = 0

    def __init__(self) -> None:
        self.stored: KeyValue | None = None

    def extend(self, project: Callable[[], KeyValue]) -> KeyValue:
        if self.stored is None:
            self.stored = _unrecorded(project())
        return self.stored

    def reorder(self, rows: Tensor) -> None:
        """As `LayerCache.reorder`."""
        if self.stored is not None:
            self.stored = _taken(self.stored[0], rows), _taken(self.stored[1], rows)


class KVCache:
    """The caches of all layers of a decoder, and which of the positions so far hold real tokens."""

    def __init__(self, n_layers: int, max_len: int) -> None:
        if n_layers < 1:
            raise ValueError(f"a cache needs at least one layer, got {n_layers}")
        self.max_len = max_len
        self.layers = [LayerCache(max_len) for _ in range(n_layers)]
        self.memory = [MemoryCache() for _ in range(n_layers)]
        self.real: Tensor | None = None  # (B, max_len), all True until padding comes

    @property
    def length(self) -> Any:
        """How many positions are cached."""
        return self.layers[0].length

    @property
    def nbytes(self) -> int:
        """Bytes that the self-attention keys and values occupy, room that is not filled yet included."""
        held = (tensor for layer in self.layers for tensor in (layer.key, layer.value) if tensor is not None)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def see(self, real: Tensor) -> Tensor:
        """Note which of the new tokens are real, bool ``(B, T)``; returns it for all so far ``(B, length + T)``.

        Raises ValueError where they do not fit the room.
        """
        end = self.length + real.shape[1]
        check_room(self.max_len, end)
        if self.real is None:  # what came before without a note was real
            self.real = mg.ones(real.shape[0], self.max_len, dtype=mg.bool, device=real.device)
        self.real[:, self.length : end] = real
        return self.real[:, :end]

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was, in every layer, as a beam search needs it. rows ``(new batch,)`` int."""
        held = self.layers[0].key
        if held is not None and rows.tolist() == [*range(held.shape[0])]:
            return
        for own, cross in zip(self.layers, self.memory, strict=True):
            own.reorder(rows)
            cross.reorder(rows)
        if self.real is not None:
            self.real = _taken(self.real, rows)

    def crop(self, length: int) -> None:
        """Forget all but the first `length` positions. Raises ValueError for a negative length."""
        if length < 0:
            raise ValueError(f"a cache cannot be cropped to {length} positions")
        for layer in self.layers:
            layer.crop(length)


def check_room(max_len: int, end: int) -> None:
    """Raise ValueError where `end` positions do not fit."""
    if end > max_len:
        raise ValueError(f"the cache has room for {max_len} positions, {end} were to be stored: make it longer")


# --- the same memory in a compiled step -------------------------------------------------------------


class ToldLayer(LayerCache):
    """A layer's memory, of which all `start.room` positions are looked at, and new ones written where it is told."""

    def __init__(self, memory: KeyValue, start: Told) -> None:
        super().__init__(start.room)
        self.length, self.memory = start, memory

    def extend(self, project: Callable[[], KeyValue]) -> KeyValue:
        for held, new in zip(self.memory, project(), strict=True):
            if new.shape[-2] == 1:
                held[:, :, self.length.before] = new.squeeze(-2)
            else:
                held[:, :, positions(self.length, new.shape[-2])] = new
        key, value = (held[..., : self.max_len, :] for held in self.memory)
        return key, value


class ToldMemory(MemoryCache):
    """A cross-attention's memory, written where `first`, and read in later steps."""

    def __init__(self, memory: KeyValue, first: bool) -> None:
        super().__init__()
        self.memory, self.first = memory, first

    def extend(self, project: Callable[[], KeyValue]) -> KeyValue:
        if self.first:
            for held, new in zip(self.memory, project(), strict=True):
                held.copy_(new)
        return self.memory


class ToldCache(KVCache):
    """What a compiled step is given instead of a KVCache. real: the notes ``(B, max_len)``, None where nobody notes."""

    def __init__(
        self, start: Told, own: Sequence[KeyValue], cross: Sequence[KeyValue], real: Tensor | None, first: bool
    ) -> None:
        super().__init__(len(own), start.room)
        self.layers = [ToldLayer(memory, start) for memory in own]
        self.memory = [ToldMemory(memory, first) for memory in cross]
        self.real = real

    def see(self, real: Tensor) -> Tensor:
        assert self.real is not None
        if real.shape[1] == 1:
            self.real[:, self.length.before] = real.squeeze(1)
        else:
            self.real[:, positions(self.length, real.shape[1])] = real
        return self.real[:, : self.max_len]

"""What a decoder remembers between calls: each layer's keys and values, preallocated (document 002, KV cache).

A cache is for decoding: it is used under no_grad and keeps no history. A layer's cache holds n_kv_heads heads only:
query heads that share a key head share its memory.
"""

from __future__ import annotations

from collections.abc import Callable

import minigrad as mg
from minigrad import Tensor

KeyValue = tuple[Tensor, Tensor]


def _unrecorded(new: KeyValue) -> KeyValue:
    if new[0].requires_grad:
        raise RuntimeError("a key/value cache is for decoding and has no gradients: call the model under no_grad()")
    return new


class LayerCache:
    """Keys and values of one self-attention: room for `max_len` positions, of which `length` are filled."""

    def __init__(self, max_len: int) -> None:
        self.max_len = max_len
        self.length = 0
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def extend(self, project: Callable[[], KeyValue]) -> KeyValue:
        """Append the new keys and values ``(B, n_kv_heads, T, d_head)``; returns all so far.

        Raises ValueError when they do not fit the room or the batch that the cache began with, RuntimeError while
        gradients are recorded.
        """
        key, value = _unrecorded(project())
        start, end = self.length, self.length + key.shape[-2]
        if end > self.max_len:
            raise ValueError(
                f"the cache has room for {self.max_len} positions, {end} were to be stored: make it longer"
            )
        if self.key is None or self.value is None:
            room = (*key.shape[:-2], self.max_len, key.shape[-1])
            self.key = mg.zeros(room, dtype=key.dtype, device=key.device)
            self.value = mg.zeros(room, dtype=value.dtype, device=value.device)
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
            self.key, self.value = self.key.index_select(0, rows), self.value.index_select(0, rows)

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
            self.stored = self.stored[0].index_select(0, rows), self.stored[1].index_select(0, rows)


class KVCache:
    """The caches of all layers of a decoder, and which of the positions so far hold real tokens."""

    def __init__(self, n_layers: int, max_len: int) -> None:
        if n_layers < 1:
            raise ValueError(f"a cache needs at least one layer, got {n_layers}")
        self.layers = [LayerCache(max_len) for _ in range(n_layers)]
        self.memory = [MemoryCache() for _ in range(n_layers)]
        self.real: Tensor | None = None

    @property
    def length(self) -> int:
        """How many positions are cached."""
        return self.layers[0].length

    @property
    def nbytes(self) -> int:
        """Bytes that the self-attention keys and values occupy, room that is not filled yet included."""
        held = (tensor for layer in self.layers for tensor in (layer.key, layer.value) if tensor is not None)
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def see(self, real: Tensor) -> Tensor:
        """Note which of the new tokens are real, bool ``(B, T)``; returns it for all so far ``(B, length + T)``."""
        if self.real is None and self.length:  # what came before without a note was real
            self.real = mg.ones(real.shape[0], self.length, dtype=mg.bool, device=real.device)
        self.real = real if self.real is None else mg.cat([self.real, real], 1)
        return self.real

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row rows[i] was, in every layer, as a beam search needs it. rows ``(new batch,)`` int."""
        for own, cross in zip(self.layers, self.memory, strict=True):
            own.reorder(rows)
            cross.reorder(rows)
        if self.real is not None:
            self.real = self.real.index_select(0, rows)

    def crop(self, length: int) -> None:
        """Forget all but the first `length` positions. Raises ValueError for a negative length."""
        if length < 0:
            raise ValueError(f"a cache cannot be cropped to {length} positions")
        for layer in self.layers:
            layer.crop(length)
        if self.real is not None:
            self.real = self.real[:, :length]

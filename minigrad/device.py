"""Device: the name of where a tensor lives, which reads like torch's."""

from __future__ import annotations

from typing import Any


class Device(str):
    """A device by name: "cpu", "cuda" or "cuda:0". Is that string, and has torch's `type` and `index`.

    Raises ValueError for a name that is no device's, TypeError for what is no text.
    """

    __slots__ = ()

    def __new__(cls, type: str, index: int | None = None) -> Device:
        if not isinstance(type, str):
            raise TypeError(f"a device is 'cpu' or 'cuda', got {type!r}")
        name = type if index is None else f"{type}:{index}"
        kind, _, number = name.partition(":")
        if kind not in ("cpu", "cuda", "mps", "meta") or (":" in name and not number.isdecimal()):
            raise ValueError(f"{name!r} names no device: say 'cpu', or a kind and a number as in 'cuda:0'")
        return super().__new__(cls, name)

    @property
    def type(self) -> str:
        return str(self).partition(":")[0]

    @property
    def index(self) -> Any:  # str.index is a method; torch's name wins
        """The number after the colon, None without one."""
        number = str(self).partition(":")[2]
        return int(number) if number else None

    def __repr__(self) -> str:
        return f"device(type={self.type!r}" + (")" if self.index is None else f", index={self.index})")


CPU = Device("cpu")
CUDA = "cuda:0"  # the one GPU, as storages call it


def resolve(name: str) -> str:
    """The name under which storages know a device: "cpu" or "cuda:0".

    Raises ValueError for a device that minigrad does not compute on. `minigrad.kernels.usable` also asks whether
    there is a GPU.
    """
    if name == "cpu":
        return "cpu"
    device = Device(name)
    if device.type != "cuda":
        raise ValueError(f"minigrad does not compute on device {str(name)!r}: use 'cpu' or 'cuda'")
    if device.index:
        raise ValueError(
            f"there is no device {str(name)!r}: minigrad uses one GPU, 'cuda' (CUDA_VISIBLE_DEVICES chooses which)"
        )
    return CUDA

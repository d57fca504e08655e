"""A second device without hardware, "elsewhere": its tensors have their numbers on the CPU and refuse the CPU's.

As on a GPU, an id that a table does not have ends the device: nothing works there any more in this process.

torch lets one backend be written in Python. It is registered by the import, for the whole process: so only programs
that a test starts import this file.
"""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "elsewhere"
_MOVES = ("_to_copy", "copy_", "_local_scalar_dense")

_setup_privateuseone_for_python_backend(NAME)
torch.__future__.set_swap_module_params_on_conversion(True)  # a parameter stays the same object, as on a GPU


_ended: list[str] = []


class There(torch.Tensor):
    """A tensor on the device. numbers: what it holds, on the CPU."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> There:
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset(), "dtype": numbers.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, numbers.size(), device=torch.device(NAME, 0), **layout)
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, *args, **(kwargs or {}))


def compute(function, *args, **kwargs):
    """What the device's operations do. Raises RuntimeError, with torch's words, where tensors of two devices meet, and
    always once an id was outside of its table."""
    if _ended:
        raise RuntimeError(_ended[0])
    asked = kwargs.get("device")
    given = tree_leaves((args, kwargs))
    strangers = [x for x in given if isinstance(x, torch.Tensor) and not isinstance(x, There) and x.ndim]
    if strangers and function.overloadpacket.__name__ not in _MOVES:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two, cpu and {NAME}:0!")
    here_args, here_kwargs = tree_map_only(There, lambda x: x.numbers, (args, kwargs))
    if asked is not None:
        here_kwargs["device"] = "cpu"
    try:
        result = function(*here_args, **here_kwargs)
    except IndexError:
        _ended.append(f"{NAME} error: device-side assert triggered")
        raise RuntimeError(_ended[0]) from None
    if asked is not None and torch.device(asked).type != NAME:
        return result
    known = {id(x.numbers): x for x in given if isinstance(x, There)}  # an operation in place gives what it got

    def there(x):
        if not isinstance(x, torch.Tensor):
            return x
        return known[id(x)] if id(x) in known else There(x)

    return tree_map(there, result)


_library = torch.library.Library("_", "IMPL")
_library.fallback(compute, "PrivateUse1")

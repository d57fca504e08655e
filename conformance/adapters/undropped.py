"""Torch code run as if nothing were dropped (`NoDropouts`), whatever its mode and its rates are."""

from __future__ import annotations

from typing import Any, Self

from torch.overrides import TorchFunctionMode

DROPS = ("dropout", "alpha_dropout", "feature_dropout", "dropout_", "dropout1d", "dropout2d")


class NoDropouts(TorchFunctionMode):
    """No dropout function drops anything. active: whether one is entered."""

    active = False

    def __enter__(self) -> Self:
        self._before, NoDropouts.active = NoDropouts.active, True
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        NoDropouts.active = self._before
        super().__exit__(*raised)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in DROPS:
            return args[0] if args else (kwargs or {})["input"]
        if name == "scaled_dot_product_attention":
            if len(args) > 4:  # handed in by its place
                return func(*args[:4], 0.0, *args[5:], **(kwargs or {}))
            return func(*args, **{**(kwargs or {}), "dropout_p": 0.0})
        return func(*args, **(kwargs or {}))

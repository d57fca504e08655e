"""Optimizers: parameter groups, their state, and the update rules of SGD, Adam and AdamW.

An update is a few in-place tensor ops under no_grad, so that a trace of a training step contains it. What changes from
step to step lives in tensors: the step counts always, a group's `lr` if it is given as a scalar tensor (a schedule then
fills it in place).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.creation import tensor, zeros, zeros_like
from minigrad.gradmode import enable_grad, no_grad
from minigrad.inplace import write
from minigrad.ops import rules
from minigrad.ops.copies import to_device
from minigrad.ops.operands import as_operand
from minigrad.ops.optimise import adam
from minigrad.signals import uninterrupted
from minigrad.state import scope, silently
from minigrad.tensor import Tensor, edge_of

Group = dict[str, Any]
State = dict[str, Tensor]
Params = Iterable[Tensor] | Iterable[Group]


class Optimizer:
    """Base: subclasses give the default settings of a group and write `update`.

    params: tensors, or groups ``{"params": tensors, setting: value, ...}`` whose settings override the defaults. Raises
    ValueError for no parameters, a parameter twice, or a setting out of range; TypeError for what is not a leaf tensor.
    """

    def __init__(self, params: Params, defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, State] = {}
        if not isinstance(params, Mapping) and not rules.several(params):
            raise TypeError(
                f"{type(self).__name__}: params must be tensors or groups of them, got {type(params).__name__}: "
                "pass model.parameters()"
            )
        given: list[Any] = [params] if isinstance(params, Tensor | Mapping) else list(params)
        if not given:
            raise ValueError(f"{type(self).__name__} got no parameters to optimize")
        for group in given if isinstance(given[0], Mapping) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with settings of their own. Raises what the constructor raises."""
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(f'{type(self).__name__}: a group must be a dict like {{"params": tensors, "lr": 0.1}}')
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for parameter in params:
            if not isinstance(parameter, Tensor) or not parameter.is_leaf:
                raise TypeError(
                    f"{type(self).__name__} can optimize leaf tensors only, got "
                    + ("a computed tensor" if isinstance(parameter, Tensor) else type(parameter).__name__)
                )
            if id(parameter) in known:
                raise ValueError(f"a parameter of shape {list(parameter.shape)} was given twice: list it in one group")
            known.add(id(parameter))
        settings = {name: value for name, value in group.items() if name != "params"}
        unknown = set(settings) - set(self.defaults)
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}; it has {', '.join(self.defaults)}"
            )
        complete = {**self.defaults, **settings}
        _check(type(self).__name__, complete)
        if params and isinstance(complete.get("lr"), Tensor):
            complete["lr"] = to_device(complete["lr"], params[0].storage.device)
        self.param_groups.append({"params": params, **complete})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient. `closure` is called first; its loss is returned.

        A signal that comes during the update is handled behind it: KeyboardInterrupt finds all parameters as they were
        before the step or all as they are after it.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        uninterrupted(silently, self._update_all)
        return loss

    def _update_all(self) -> None:
        with no_grad(), scope("optimizer", type(self).__name__):
            for group in self.param_groups:
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is not None:
                        self.update(parameter, gradient, self.state.setdefault(parameter, {}), group)

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Change `parameter` in place; `state` is its own dict, empty at first."""
        raise NotImplementedError(f"{type(self).__name__} has no update()")

    def name_held(self, tensor: Tensor, path: Sequence[str]) -> str:
        """What a trace calls a tensor of a parameter's state ("head.weight.exp_avg"); "" if there is none."""
        for parameter, held in self.state.items():
            for name, value in held.items():
                if value is tensor:
                    return f"{edge_of(parameter)[0].name or 'parameter'}.{name}"
        return ""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """{"state": {index: state}, "param_groups": [settings and "params": indices]}; tensors are not copied."""
        index = {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}
        groups = [{**group, "params": [index[id(p)] for p in group["params"]]} for group in self.param_groups]
        return {"state": {index[id(p)]: dict(state) for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from `state_dict`: its values are copied, into the tensors that are there already, which compiled
        steps have bound. Raises ValueError when its groups or shapes are not this optimizer's."""
        sizes = [len(group["params"]) for group in state_dict["param_groups"]]
        own = [len(group["params"]) for group in self.param_groups]
        if sizes != own:
            raise ValueError(
                f"the state dict has groups of {sizes} parameters, this {type(self).__name__} has groups of {own}"
            )
        parameters = [p for group in self.param_groups for p in group["params"]]
        loaded: dict[Tensor, State] = {}
        for position, values in state_dict["state"].items():
            parameter = parameters[int(position)]
            loaded[parameter] = {name: _restored(name, value, parameter) for name, value in values.items()}
        with no_grad():
            for parameter, values in loaded.items():
                held = self.state.get(parameter, {})
                values.update({name: _filled(held.get(name), value) for name, value in values.items()})
            self.state = loaded
            for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
                for name, value in saved.items():
                    if name != "params":
                        group[name] = _filled(group.get(name), value.clone() if isinstance(value, Tensor) else value)

    def __repr__(self) -> str:
        groups = (
            ", ".join(f"{name}={value}" for name, value in group.items() if name != "params")
            for group in self.param_groups
        )
        return f"{type(self).__name__}({'; '.join(groups)})"


def _check(name: str, group: Group) -> None:
    for setting in ("lr", "eps", "momentum", "weight_decay"):
        value = group.get(setting, 0.0)
        if not isinstance(value, Tensor) and not rules.number(value, f"{name}: {setting}") >= 0:
            raise ValueError(f"{name}: {setting} must not be negative, got {value}")
    betas = group.get("betas", (0.0, 0.0))
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise TypeError(f"{name}: betas must be two numbers, got {betas!r}")
    for beta in betas:
        if not 0.0 <= rules.number(beta, f"{name}: a beta") < 1.0:
            raise ValueError(f"{name}: betas must lie in [0, 1), got {group['betas']}")
    if group.get("nesterov") and not group["momentum"]:
        raise ValueError(f"{name}: nesterov needs a momentum above 0")


def _restored(name: str, value: Any, parameter: Tensor) -> Tensor:
    array = np.asarray(value)
    if array.ndim and array.shape != parameter.shape:
        raise ValueError(f"{name} of shape {list(array.shape)} does not fit a parameter of {list(parameter.shape)}")
    dtype = parameter.dtype if array.ndim else dtypes.float64
    return tensor(array, dtype=dtype, device=parameter.storage.device)


def _filled(held: Any, value: Any) -> Any:
    """The tensor that is held, filled with `value`; or `value` itself, where there is none of its shape."""
    return held.copy_(value) if isinstance(held, Tensor) and held.shape == getattr(value, "shape", ()) else value


class SGD(Optimizer):
    """v <- momentum v + g,  w <- w - lr v; with nesterov, w <- w - lr (g + momentum v). weight_decay adds w to g."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "nesterov": nesterov})

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        momentum = group["momentum"]
        if group["weight_decay"]:
            gradient = gradient + parameter * group["weight_decay"]
        if momentum:
            if not state:
                state["momentum_buffer"] = zeros_like(parameter)
            velocity = state["momentum_buffer"]
            velocity.mul_(momentum).add_(gradient)
            gradient = gradient + velocity * momentum if group["nesterov"] else velocity
        parameter.sub_(gradient * group["lr"])


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015): steps of the bias-corrected mean of g over the root of the mean of g^2.

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
    w <- w - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps).  weight_decay adds w to g.
    """

    decoupled = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        if not state:
            state["step"] = zeros((), dtype=dtypes.float64, device=parameter.storage.device)
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        beta1, beta2 = group["betas"]
        held = (parameter, state["exp_avg"], state["exp_avg_sq"], state["step"])
        lr = group["lr"] if isinstance(group["lr"], Tensor) else as_operand(float(group["lr"]), state["step"])
        updated = adam(
            parameter,
            gradient,
            *held[1:],
            lr,
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            decay=group["weight_decay"],
            decoupled=self.decoupled,
        )
        for target, value in zip(held, updated, strict=True):
            write(target, value)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): w <- w (1 - lr weight_decay) before the step."""

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

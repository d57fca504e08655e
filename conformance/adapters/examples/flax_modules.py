"""Modules of Flax (nnx) as an implementation: parameters by the names of their roles, arrays converted here.

pytest conformance/ --impl conformance/adapters/examples/flax_modules.py:FlaxTransformer
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from conformance.protocol import Array, Arrays, NotProvided

NORM = {"scale": "weight", "bias": "bias"}


class FlaxTransformer:
    """Layer norm, RMS norm and softmax."""

    name = "flax.nnx"

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        random = nnx.Rngs(0)
        if role == "layer_norm":
            # The default, E[x^2] - E[x]^2, breaks a claim: it loses all digits where features are far from zero.
            norm = nnx.LayerNorm(config["d_model"], epsilon=config["eps"], use_fast_variance=False, rngs=random)
            return Module(norm, NORM)
        if role == "rms_norm":
            return Module(nnx.RMSNorm(config["d_model"], epsilon=config["eps"], rngs=random), NORM)
        if role == "softmax":
            return Module(partial(jax.nn.softmax, axis=config["dim"]), {})
        raise NotProvided(f"this example has no {role}")


class Module:
    """A module, or a function, of one input. names: flax's name of a parameter -> the role's."""

    dtype = np.dtype(np.float32)

    def __init__(self, module: Any, names: Mapping[str, str]) -> None:
        self.module = module
        self.variables = {ours: getattr(module, theirs) for theirs, ours in names.items() if hasattr(module, theirs)}
        self.names = names

    def run(self, x: Any, arrays: Mapping[str, Any]) -> Any:
        """The output for given parameters: a pure function, which JAX can differentiate."""
        if not self.variables:
            return self.module(x)
        graph, _ = nnx.split(self.module)
        theirs = {name: arrays[ours] for name, ours in self.names.items() if ours in arrays}
        return nnx.merge(graph, nnx.State({name: nnx.Param(array) for name, array in theirs.items()}))(x)

    def __call__(self, x: Array) -> Arrays:
        return {"out": np.asarray(self.module(jnp.asarray(x, jnp.float32)))}

    def params(self) -> Arrays:
        return {name: np.asarray(variable[...]) for name, variable in self.variables.items()}

    def load(self, params: Mapping[str, Array]) -> None:
        for name, variable in self.variables.items():
            variable[...] = jnp.asarray(params[name], jnp.float32)

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """The gradients of sum(out * cotangent), of the input and of the parameters."""
        arrays = {name: variable[...] for name, variable in self.variables.items()}
        _, pull = jax.vjp(self.run, jnp.asarray(inputs["x"], jnp.float32), arrays)
        of_x, of_params = pull(jnp.asarray(cotangent, jnp.float32))
        return {"x": np.asarray(of_x)}, {name: np.asarray(value) for name, value in of_params.items()}

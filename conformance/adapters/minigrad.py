"""This project's own engine and models as the implementation under test (``--impl minigrad``).

    minigrad              float32, fast kernels at every size: the kernels are what is tested
    minigrad:reference    float32, every op by its numpy reference
    minigrad:cuda         float32, everything on the GPU, by its kernels
    minigrad:compiled     float32, every call traced, optimised and replayed as a plan; loops that ask the values that
                          they have made (decoding, routing) run their steps eagerly

Every role is provided. A subject's parameters are the canonical ones because the modules of `transformer` carry
these names; so a role is one line here: how to build it, and how to call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
import transformer as tf
from conformance.adapters import SpecificationError
from conformance.adapters.optimizers import trajectory
from conformance.protocol import ROLES, Array, Arrays, NotProvided
from minigrad import Tensor, kernels, nn, optim
from minigrad import functional as F
from minigrad.compiler import compile as compile_plan
from minigrad.kernels import usable
from minigrad.kernels.cuda.driver import CudaError
from transformer import training
from transformer.cache import LayerCache
from transformer.moe import MixtureOfExperts

Config = Mapping[str, Any]
Outputs = dict[str, Any]

KERNEL_MODES = {"kernels": "always", "reference": "reference", "compiled": "always", "cuda": "always"}
EAGER = {
    "greedy_decode", "beam_search", "masked_tokens", "mixture_of_experts", "gradient_accumulation",
}  # fmt: skip  # roles whose Python looks at values


class MinigradSubject:
    """One role: `module` holds the parameters and the mode, `forward` maps tensors to the role's outputs."""

    def __init__(
        self, role: str, module: nn.Module, forward: Callable[..., Outputs], mode: str, dtype: np.dtype
    ) -> None:
        self.role = role
        self.device = "cuda" if mode == "cuda" else "cpu"
        self.module = module.to(self.device, dtype).eval()
        self.forward = forward
        self.mode = mode
        self.dtype = dtype
        self.attributes = ATTRIBUTES.get(role, {})

    def _run(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """`function`, as a plan in mode "compiled"."""
        if self.mode == "compiled" and self.role not in EAGER:
            function = compile_plan(function)
        with kernels.use(KERNEL_MODES[self.mode]):
            return function(*arguments, **keywords)

    def __call__(self, **inputs: Any) -> Arrays:
        with mg.no_grad():
            outputs = self._run(self.forward, **{name: self._tensor(value) for name, value in inputs.items()})
        return {name: _array(value) for name, value in outputs.items()}

    def params(self) -> Arrays:
        return {name: parameter.detach().numpy().copy() for name, parameter in self.module.named_parameters()}

    def load(self, params: Mapping[str, Array]) -> None:
        """Raises ValueError when the names or shapes are not the role's."""
        self.module.load_state_dict(params)

    def train(self, mode: bool = True) -> None:
        self.module.train(mode)

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """Gradients of ``sum(out * cotangent)``; zeros where the output does not depend."""
        if self.role.startswith("cached_"):
            raise NotProvided("a key/value cache is for decoding and has no gradients")
        parameters = dict(self.module.named_parameters())
        tensors = {name: self._tensor(value) for name, value in inputs.items()}
        floating = [name for name, value in tensors.items() if isinstance(value, Tensor) and value.is_floating_point()]

        def gradients(tensors: Mapping[str, Any], cotangent: Tensor) -> Any:
            out = self.forward(**tensors)["out"]
            sources = [*(tensors[name] for name in floating), *parameters.values()]
            if not out.requires_grad:
                return [mg.zeros_like(source) for source in sources]
            found = mg.grad([out], sources, [cotangent.reshape(out.shape)], allow_unused=True)
            return [mg.zeros_like(s) if g is None else g for s, g in zip(sources, found, strict=True)]

        for name in floating:
            tensors[name].requires_grad_()
        found = [_array(g) for g in self._run(gradients, tensors, self._tensor(np.asarray(cotangent, np.float64)))]
        return (
            dict(zip(floating, found, strict=False)),
            dict(zip(parameters, found[len(floating) :], strict=True)),
        )

    def _tensor(self, value: Any) -> Any:
        """Arrays (or lists of them) as tensors: floats in the subject's dtype, integers as int64; others unchanged."""
        if isinstance(value, list):
            return [self._tensor(item) for item in value]
        if not isinstance(value, np.ndarray | np.generic):
            return value
        dtype = {"f": self.dtype, "b": mg.bool}.get(value.dtype.kind, mg.int64)
        return mg.tensor(value, dtype, device=self.device)


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(item) for item in value]
    return value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)


ATTRIBUTES: dict[str, dict[str, str]] = {
    "attention": {"masked_row": "zero"},
    "self_attention": {"masked_row": "zero"},
    "multi_head_attention": {"masked_row": "zero"},
    "grouped_query_attention": {"masked_row": "zero"},
    "sinusoidal_positions": {"layout": "interleaved"},
}


# --- functions: (settings, inputs) -> outputs -------------------------------------------------------


def _rope(c: Config, x: Tensor, offset: int = 0) -> Outputs:
    rope = tf.RoPE(x.shape[-1], offset + x.shape[-2], c["base"], c["pairing"])
    return {"out": rope(x, offset)}


def _cross_entropy(c: Config, logits: Tensor, targets: Tensor) -> Outputs:
    settings = (c["label_smoothing"], c["smoothing_over"], c["ignore_index"], c["reduction"])
    return {"out": tf.smoothed_cross_entropy(logits, targets, *settings)}


def _clip_grad_norm(c: Config, grads: list[Tensor]) -> Outputs:
    parameters = [nn.Parameter(mg.zeros_like(gradient)) for gradient in grads]
    for parameter, gradient in zip(parameters, grads, strict=True):
        parameter.grad = gradient
    norm = nn.utils.clip_grad_norm_(parameters, c["max_norm"])
    return {"out": [parameter.grad for parameter in parameters], "norm": norm}


def _optimizer(c: Config, params: list[Tensor], grads: list[list[Tensor]]) -> Outputs:
    parameters = [nn.Parameter(mg.zeros_like(value)) for value in params]
    for parameter, value in zip(parameters, params, strict=True):
        parameter.copy_(value)
    return {"out": trajectory(optim, c, parameters, grads)}


def _on_tensors(next_logits: Callable[[Array], Array]) -> Callable[[Tensor], Tensor]:
    return lambda ids: mg.tensor(np.asarray(next_logits(ids.numpy())), device=ids.device)


def _greedy_decode(c: Config, next_logits: Callable[[Array], Array], ids: Tensor) -> Outputs:
    return {"out": tf.greedy_decode(_on_tensors(next_logits), ids, c["max_new_tokens"], c["eos_id"], c["pad_id"])}


def _beam_search(c: Config, next_logits: Callable[[Array], Array], ids: Tensor) -> Outputs:
    best = tf.beam_search(_on_tensors(next_logits), ids, **c)[0][0]
    return {"out": mg.cat([ids, mg.tensor([best.ids], dtype=ids.dtype, device=ids.device)], 1), "score": best.score}


def _masked_tokens(c: Config, ids: Tensor, seed: int) -> Outputs:
    given, labels = training.mask_tokens(ids, generator=mg.Generator(seed), **c)
    return {"out": given, "labels": labels}


def _shift_targets(c: Config, ids: Tensor) -> Outputs:
    decoder_input, labels = tf.shift_targets(ids)
    return {"out": decoder_input, "labels": labels}


# the program's ops that are not called mg.<op>(*tensors, **keywords)
PROGRAM_OPS: dict[str, Callable[..., Tensor]] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "cat": lambda *tensors, dim: mg.cat(list(tensors), dim),
    "expand": lambda x, size: x.expand(size),
    "reshape": lambda x, shape: x.reshape(shape),
    "permute": lambda x, dims: x.permute(dims),
    "narrow": Tensor.narrow,
    "index_select": lambda x, index, dim: mg.index_select(x, dim, index),
    "layer_norm": lambda x, weight, bias, eps: F.layer_norm(x, weight.shape, weight, bias, eps),
    "pow": lambda x, exponent: mg.pow(x, exponent),
}


def _program(c: Config, /, **inputs: Any) -> Outputs:
    values = dict(inputs)
    for result, op, arguments, keywords in c["program"]:
        function = PROGRAM_OPS.get(op) or getattr(mg, op, None)
        if function is None:
            raise NotProvided(f"minigrad has no function {op!r}")
        values[result] = function(*(values[name] for name in arguments), **keywords)
    return {"out": values[c["program"][-1][0]]}


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": F.gelu_tanh, "silu": F.silu, "sigmoid": F.sigmoid, "tanh": F.tanh,
}  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Outputs]] = {
    "softmax": lambda c, x: {"out": F.softmax(x, c["dim"])},
    "activation": lambda c, x: {"out": ACTIVATIONS[c["kind"]](x)},
    "causal_mask": lambda c, n: {"out": tf.causal_mask(n)},
    "padding_mask": lambda c, ids: {"out": tf.padding_mask(ids, c["pad_id"])[:, 0, 0]},
    "cross_entropy": _cross_entropy,
    "mse": lambda c, x, target: {"out": F.mse_loss(x, target)},
    "clip_grad_norm": _clip_grad_norm,
    "rope": _rope,
    "lr_schedule": lambda c, step: {"out": optim.noam_rate(step, c["d_model"], c["warmup"])},
    "optimizer": _optimizer,
    "autograd": _program,
    "greedy_decode": _greedy_decode,
    "beam_search": _beam_search,
    "masked_tokens": _masked_tokens,
    "sampling_filter": lambda c, logits: {"out": tf.sampling_probabilities(logits, **c)},
    "shift_targets": _shift_targets,
}


# --- modules: how one is made from the settings, and how it is called ---------------------------------


def _only(c: Config, module: Any, **inputs: Any) -> Outputs:
    """A module of one input, whatever the role calls it."""
    return {"out": module(*inputs.values())}


def _by_name(c: Config, module: Any, **inputs: Any) -> Outputs:
    """A module whose arguments have the role's names."""
    return {"out": module(**inputs)}


def _with_weights(c: Config, module: Any, **inputs: Any) -> Outputs:
    out, weights = module(**inputs, need_weights=True)
    return {"out": out, "weights": weights}


def _self_attention(c: Config, module: Any, x: Tensor, mask: Tensor | None = None) -> Outputs:
    """The role's mask has an axis for heads; one head has none."""
    return _with_weights(c, module, x=x, mask=None if mask is None else mask[:, 0])


def _attention(c: Config, dropout: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any = None) -> Outputs:
    if c["causal"]:
        causal = tf.causal_mask(query.shape[-2], key.shape[-2], device=query.device)
        mask = causal if mask is None else mask & causal
    out, weights = tf.scaled_dot_product(query, key, value, mask, dropout)
    return {"out": out, "weights": weights}


def _cached_attention(c: Config, module: Any, x: Tensor, chunks: tuple[int, ...]) -> Outputs:
    cache, parts = LayerCache(x.shape[1]), []
    for piece in x.split(list(chunks), 1):
        mask = tf.causal_mask(piece.shape[1], cache.length + piece.shape[1], device=x.device)
        parts.append(module(piece, piece, piece, mask, cache))
    return {"out": mg.cat(parts, 1)}


def _gradient_accumulation(c: Config, module: Any, x: Tensor, labels: Tensor) -> Outputs:
    with mg.enable_grad():
        updater = training.Updater(
            module,
            lambda groups: optim.SGD(groups, lr=0.0),
            training.token_loss(c["pad_id"]),
            c["pad_id"],
            accumulate=c["pieces"],
            clip=None,
            compile_step=False,
        )
        updater.update(training.Batch((x,), labels))
    return {"out": module.weight.grad}


def _mixture_of_experts(c: Config) -> nn.Module:
    if not c["renormalise"]:
        raise NotProvided("transformer's mixture of experts renormalises the gates of the chosen experts")
    return MixtureOfExperts(c["d_model"], c["n_experts"], c["top_k"], lambda: tf.SwiGLU(c["d_model"], c["d_ff"]))


def _cached_decoder_lm(c: Config, module: Any, ids: Tensor, chunks: tuple[int, ...]) -> Outputs:
    cache = module.new_cache(ids.shape[1])
    parts = [module(piece, cache) for piece in ids.split(list(chunks), 1)]
    return {"out": mg.cat(parts, 1), "cache_bytes": cache.nbytes}


MODULES: dict[str, tuple[Callable[[Config], nn.Module], Callable[..., Outputs]]] = {
    "attention": (lambda c: nn.Dropout(c["dropout"]), _attention),
    "dropout": (lambda c: nn.Dropout(c["p"]), _only),
    "linear": (lambda c: nn.Linear(c["n_in"], c["n_out"], c["bias"]), _only),
    "embedding": (lambda c: nn.Embedding(c["vocab"], c["d_model"], c["padding_idx"]), _only),
    "layer_norm": (lambda c: nn.LayerNorm(c["d_model"], c["eps"]), _only),
    "rms_norm": (lambda c: nn.RMSNorm(c["d_model"], c["eps"]), _only),
    "mlp": (lambda c: tf.MLP(**c), _only),
    "rnn": (lambda c: tf.RNN(**c), _only),
    "self_attention": (lambda c: tf.SelfAttention(**c), _self_attention),
    "multi_head_attention": (lambda c: tf.MultiHeadAttention(**c), _with_weights),
    "grouped_query_attention": (lambda c: tf.GroupedQueryAttention(**c), _with_weights),
    "cached_attention": (lambda c: tf.MultiHeadAttention(**c), _cached_attention),
    "sinusoidal_positions": (lambda c: tf.SinusoidalPositions(**c), _only),
    "learned_positions": (lambda c: tf.LearnedPositions(**c), _only),
    "feed_forward": (lambda c: tf.FeedForward(**c), _only),
    "swiglu": (lambda c: tf.SwiGLU(**c), _only),
    "mixture_of_experts": (_mixture_of_experts, _only),
    "gradient_accumulation": (lambda c: nn.Linear(c["d_model"], c["vocab"], False), _gradient_accumulation),
    "encoder_layer": (lambda c: tf.EncoderLayer(**c), _by_name),
    "decoder_layer": (lambda c: tf.DecoderLayer(**c), _by_name),
    "encoder": (lambda c: tf.Encoder(**c, dropout=0.0), _by_name),
    "decoder": (lambda c: tf.Decoder(**c, dropout=0.0), _by_name),
    "encoder_decoder": (lambda c: tf.EncoderDecoder(**c), _by_name),
    "decoder_lm": (lambda c: tf.DecoderLM(**c), _by_name),
    "cached_decoder_lm": (lambda c: tf.DecoderLM(**c), _cached_decoder_lm),
}


class MinigradImplementation:
    """minigrad and transformer. mode: "kernels", "reference", "compiled" or "cuda" (see the module); dtype: float32.

    Raises SpecificationError for another mode, and where CUDA cannot be used.
    """

    def __init__(self, mode: str = "kernels", dtype: Any = np.float32) -> None:
        if mode not in KERNEL_MODES:
            raise SpecificationError(f"minigrad has no mode {mode!r}; it has {', '.join(KERNEL_MODES)}")
        if mode == "cuda":
            try:
                usable("cuda")
            except CudaError as error:
                raise SpecificationError(f"{error} (--impl minigrad)") from error
        self.name = "minigrad" if mode == "kernels" else f"minigrad:{mode}"
        self.mode = mode
        self.dtype = np.dtype(dtype)

    def build(self, role: str, config: Config) -> MinigradSubject:
        """Fresh modules start from the seed 0."""
        settings = ROLES[role].settings(config)
        if role in FUNCTIONS:
            module, forward = nn.Module(), partial(FUNCTIONS[role], settings)
        elif role in MODULES:
            make, call = MODULES[role]
            mg.manual_seed(0)
            module = make(settings)
            forward = partial(call, settings, module)
        else:
            raise NotProvided(f"minigrad has no {role}")
        return MinigradSubject(role, module, forward, self.mode, self.dtype)

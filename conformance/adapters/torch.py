"""torch's own modules and functions as the implementation under test (``--impl torch``).

Every role that torch.nn, torch.nn.functional, torch.nn.utils or torch.optim provides is mapped here. A role is
provided when torch computes it: stock layers in sequence count (an mlp is nn.Linear and activations), a formula
that a user would have to write does not, and raises `NotProvided` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.adapters.optimizers import trajectory
from conformance.adapters.torch_subject import Slot, TorchSubject, masked_row_policy
from conformance.protocol import ROLES, Arrays, NotProvided

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}

ABSENT: dict[str, str] = {
    "padding_mask": "torch has no function that makes a padding mask from token ids",
    "rope": "torch.nn has no rotary positions",
    "lr_schedule": "torch.optim.lr_scheduler has no inverse-square-root warm-up (LambdaLR takes the user's formula)",
    "greedy_decode": "torch has no decoding loop",
    "beam_search": "torch has no decoding loop",
    "training_loss": "torch has no training loop: feeding a model and shifting its labels is left to the user",
    "masked_tokens": "torch has no corruption for masked language modelling",
    "gradient_accumulation": "torch has no training loop: dividing a micro-batch's loss is left to the user",
    "mixture_of_experts": "torch.nn has no mixture of experts",
    "sampling_filter": "torch has no temperature, top-k and top-p filter",
    "shift_targets": "torch has no teacher-forcing shift",
    "sinusoidal_positions": "torch.nn has no sinusoidal positions",
    "learned_positions": "torch.nn has no position module (nn.Embedding is the role embedding)",
    "swiglu": "torch.nn has no SwiGLU",
    "encoder_decoder": "nn.Transformer has no embeddings, positions, masks or output projection",
    "decoder_lm": "torch.nn has no decoder-only model",
    "cached_attention": "torch.nn has no key/value cache",
    "cached_decoder_lm": "torch.nn has no key/value cache",
}


class Function(TorchSubject):
    """A role without parameters, by one torch function of (settings, training, inputs)."""

    def __init__(self, role: str, config: Mapping[str, Any], function: Callable[..., dict[str, Any]]) -> None:
        super().__init__(role, config)
        self.function = function

    def forward(self, **inputs: Any) -> dict[str, Any]:
        return self.function(self.config, self.training, **inputs)


class Layer(TorchSubject):
    """A role that is one module called with the role's only input; parameters under torch's own names."""

    def __init__(
        self, role: str, config: Mapping[str, Any], module: nn.Module, names: Mapping[str, str] | None = None
    ) -> None:
        stored = (name for name, _ in module.named_parameters())
        super().__init__(role, config, module, {(names or {}).get(name, name): Slot.of(name) for name in stored})

    def forward(self, **inputs: Any) -> dict[str, Any]:
        (only,) = inputs.values()
        return {"out": self.module(only)}


# --- functions ------------------------------------------------------------------------------------


def _attention(
    c: Mapping[str, Any], training: bool, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> dict[str, Any]:
    """F.scaled_dot_product_attention. `is_causal` aligns its triangle at the top left and excludes a mask; torch's
    own way of saying the other alignment or both is the boolean mask of `causal_lower_right`."""
    dropout, t_query, t_key = c["dropout"] if training else 0.0, query.shape[-2], key.shape[-2]
    if c["causal"] and (mask is not None or t_query != t_key):
        visible = torch.ones(t_query, t_key, dtype=torch.bool).tril(t_key - t_query)
        mask = visible if mask is None else mask & visible
    is_causal = c["causal"] and mask is None
    return {"out": F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)}


def _causal_mask(c: Mapping[str, Any], training: bool, n: int) -> dict[str, Any]:
    """nn.Transformer's mask is additive: 0 where attention is allowed, -inf elsewhere."""
    return {"out": nn.Transformer.generate_square_subsequent_mask(n) == 0}


def _cross_entropy(c: Mapping[str, Any], training: bool, logits: Tensor, targets: Tensor) -> dict[str, Any]:
    if c["label_smoothing"] and c["smoothing_over"] != "all":
        raise NotProvided("torch's label smoothing is spread over all classes, the target included")
    ignored = {} if c["ignore_index"] is None else {"ignore_index": c["ignore_index"]}
    smoothing, reduction = c["label_smoothing"], c["reduction"]
    return {"out": F.cross_entropy(logits, targets, reduction=reduction, label_smoothing=smoothing, **ignored)}


def _clip_grad_norm(c: Mapping[str, Any], training: bool, grads: list[Tensor]) -> dict[str, Any]:
    parameters = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    norm = nn.utils.clip_grad_norm_(parameters, c["max_norm"])
    return {"out": [parameter.grad for parameter in parameters], "norm": norm}


def _optimizer(c: Mapping[str, Any], training: bool, params: list[Tensor], grads: list[list[Tensor]]) -> dict[str, Any]:
    parameters = [nn.Parameter(value.clone()) for value in params]
    return {"out": trajectory(torch.optim, c, parameters, grads)}


# the program's ops that are not called torch.<op>(*tensors, **keywords)
PROGRAM_OPS: dict[str, Callable[..., Tensor]] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "cat": lambda *tensors, dim: torch.cat(tensors, dim),
    "expand": lambda x, size: x.expand(size),
    "index_select": lambda x, index, dim: torch.index_select(x, dim, index),
    "layer_norm": lambda x, weight, bias, eps: F.layer_norm(x, weight.shape, weight, bias, eps),
}


def _program(c: Mapping[str, Any], training: bool, /, **inputs: Any) -> dict[str, Any]:
    values = dict(inputs)
    for result, op, arguments, keywords in c["program"]:
        function = PROGRAM_OPS.get(op) or getattr(torch, op, None)
        if function is None:
            raise NotProvided(f"torch has no function {op!r}")
        values[result] = function(*(values[name] for name in arguments), **keywords)
    return {"out": values[c["program"][-1][0]]}


FUNCTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "softmax": lambda c, training, x: {"out": F.softmax(x, c["dim"])},
    "activation": lambda c, training, x: {"out": _activation(c["kind"])(x)},
    "attention": _attention,
    "causal_mask": _causal_mask,
    "cross_entropy": _cross_entropy,
    "mse": lambda c, training, x, target: {"out": F.mse_loss(x, target)},
    "dropout": lambda c, training, x: {"out": F.dropout(x, c["p"], training)},
    "clip_grad_norm": _clip_grad_norm,
    "optimizer": _optimizer,
    "autograd": _program,
}


# --- layers ---------------------------------------------------------------------------------------


def _activation(kind: str) -> nn.Module:
    if kind not in ACTIVATIONS:
        raise NotProvided(f"torch has no activation {kind!r} here; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[kind]()


def _embedding(c: Mapping[str, Any]) -> TorchSubject:
    return Layer("embedding", c, nn.Embedding(c["vocab"], c["d_model"], c["padding_idx"]))


def _mlp(c: Mapping[str, Any]) -> TorchSubject:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(c["sizes"]):
        layers += [nn.Linear(n_in, n_out, c["bias"]), _activation(c["activation"])]
    names = {f"{2 * i}.{kind}": f"layers.{i}.{kind}" for i in range(len(layers) // 2) for kind in ("weight", "bias")}
    return Layer("mlp", c, nn.Sequential(*layers[:-1]), names)


def _feed_forward(c: Mapping[str, Any]) -> TorchSubject:
    first, second = nn.Linear(c["d_model"], c["d_ff"], c["bias"]), nn.Linear(c["d_ff"], c["d_model"], c["bias"])
    module = nn.Sequential(first, _activation(c["activation"]), nn.Dropout(c["dropout"]), second)
    names = {"0.weight": "linear1.weight", "0.bias": "linear1.bias"}
    return Layer("feed_forward", c, module, {**names, "3.weight": "linear2.weight", "3.bias": "linear2.bias"})


class RNN(TorchSubject):
    """nn.RNN, which has two biases: the second is held at zero."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        module = nn.RNN(config["d_input"], config["d_hidden"], batch_first=True)
        with torch.no_grad():
            module.bias_ih_l0 += module.bias_hh_l0
            module.bias_hh_l0.zero_()
        slots = {"weight_ih": Slot.of("weight_ih_l0"), "weight_hh": Slot.of("weight_hh_l0")}
        super().__init__("rnn", config, module, {**slots, "bias": Slot.of("bias_ih_l0")})

    def forward(self, **inputs: Any) -> dict[str, Any]:
        return {"out": self.module(inputs["x"])[0]}


class ProjectedAttention(TorchSubject):
    """self_attention and grouped_query_attention: nn.Linear projections around F.scaled_dot_product_attention."""

    def __init__(self, role: str, config: Mapping[str, Any]) -> None:
        shapes = ROLES[role].params(config)
        names = dict.fromkeys(name.split(".")[0] for name in shapes)
        linears = {name: shapes[f"{name}.weight"][::-1] for name in names}
        module = nn.ModuleDict({name: nn.Linear(*sizes, config["bias"]) for name, sizes in linears.items()})
        super().__init__(role, config, module, {name: Slot.of(name) for name in shapes})
        self.heads = config.get("n_heads", 1)
        probe = {"x": np.ones((1, 2, config["d_model"]))}
        self.attributes = {"masked_row": masked_row_policy(self, probe, np.zeros((1, 1, 2, 2), bool))}

    def forward(self, *, x: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
        layer = dict(self.module.named_children())
        split = {name: layer[name](x) for name in ("q_proj", "k_proj", "v_proj")}
        width = split["q_proj"].shape[-1] // self.heads
        query, key, value = (t.unflatten(-1, (-1, width)).transpose(1, 2) for t in split.values())
        out = F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True).transpose(1, 2).flatten(2)
        return {"out": layer["out_proj"](out) if "out_proj" in layer else out}


# --- nn.Transformer's family ----------------------------------------------------------------------


def _attention_slots(name: str, prefix: str, d: int, bias: bool) -> dict[str, Slot]:
    """nn.MultiheadAttention under `prefix`: one in_proj whose rows are q, then k, then v."""
    slots = {}
    for kind in ("weight", "bias") if bias else ("weight",):
        for i, projection in enumerate(("q_proj", "k_proj", "v_proj")):
            slots[f"{name}{projection}.{kind}"] = Slot.of(
                f"{prefix}in_proj_{kind}", partial(torch.narrow, dim=0, start=i * d, length=d)
            )
        slots[f"{name}out_proj.{kind}"] = Slot.of(f"{prefix}out_proj.{kind}")
    return slots


def _layer_slots(name: str, d: int, decoder: bool) -> dict[str, Slot]:
    slots = _attention_slots(f"{name}self_attn.", f"{name}self_attn.", d, True)
    if decoder:
        slots |= _attention_slots(f"{name}cross_attn.", f"{name}multihead_attn.", d, True)
    for kind in ("weight", "bias"):
        for part in ("linear1", "linear2"):
            slots[f"{name}feed_forward.{part}.{kind}"] = Slot.of(f"{name}{part}.{kind}")
        for part in ("norm1", "norm2", "norm3") if decoder else ("norm1", "norm2"):
            slots[f"{name}{part}.{kind}"] = Slot.of(f"{name}{part}.{kind}")
    return slots


def _hidden(mask: Tensor | None, x: Tensor, keys: Tensor, heads: int) -> Tensor | None:
    """The protocol's mask in nn.MultiheadAttention's convention: (B * H, Tq, Tk), True = may NOT attend."""
    if mask is None:
        return None
    shape = (len(x), heads, x.shape[1], keys.shape[1])
    return ~mask.broadcast_to(shape).reshape(-1, *shape[2:])


class MultiHead(TorchSubject):
    """nn.MultiheadAttention(batch_first=True), with the weights of each head."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        d, heads = config["d_model"], config["n_heads"]
        module = nn.MultiheadAttention(d, heads, config["dropout"], config["bias"], batch_first=True)
        super().__init__("multi_head_attention", config, module, _attention_slots("", "", d, config["bias"]))
        probe = dict.fromkeys(("query", "key", "value"), np.ones((1, 2, d)))
        self.attributes = {"masked_row": masked_row_policy(self, probe, np.zeros((1, 1, 2, 2), bool))}

    def forward(self, *, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> dict[str, Any]:
        hidden = _hidden(mask, query, key, self.config["n_heads"])
        out, weights = self.module(query, key, value, attn_mask=hidden, average_attn_weights=False)
        return {"out": out, "weights": weights}


class TransformerStack(TorchSubject):
    """nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, and the stacks nn.TransformerEncoder, -Decoder."""

    def __init__(self, role: str, config: Mapping[str, Any]) -> None:
        d, decoder = config["d_model"], role.startswith("decoder")
        make = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
        options = {"dropout": config.get("dropout", 0.0), "norm_first": config["norm_first"], "batch_first": True}
        module: nn.Module = make(d, config["n_heads"], config["d_ff"], **options)
        if "n_layers" not in config:
            super().__init__(role, config, module, _layer_slots("", d, decoder))
            return
        norm = nn.LayerNorm(d) if config["final_norm"] else None
        if decoder:
            module = nn.TransformerDecoder(module, config["n_layers"], norm)
        else:
            module = nn.TransformerEncoder(module, config["n_layers"], norm, enable_nested_tensor=False)
        slots = {k: v for i in range(config["n_layers"]) for k, v in _layer_slots(f"layers.{i}.", d, decoder).items()}
        if config["final_norm"]:
            slots |= {name: Slot.of(name) for name in ("norm.weight", "norm.bias")}
        super().__init__(role, config, module, slots)

    def forward(self, *, x: Tensor, mask: Any = None, memory: Any = None, memory_mask: Any = None) -> dict[str, Any]:
        heads = self.config["n_heads"]
        hidden = _hidden(mask, x, x, heads)
        if memory is None:
            return {"out": self.module(x, hidden)}
        return {"out": self.module(x, memory, hidden, _hidden(memory_mask, x, memory, heads))}


MODULES: dict[str, Callable[[Mapping[str, Any]], TorchSubject]] = {
    "linear": lambda c: Layer("linear", c, nn.Linear(c["n_in"], c["n_out"], c["bias"])),
    "embedding": _embedding,
    "layer_norm": lambda c: Layer("layer_norm", c, nn.LayerNorm(c["d_model"], c["eps"])),
    "rms_norm": lambda c: Layer("rms_norm", c, nn.RMSNorm(c["d_model"], c["eps"])),
    "mlp": _mlp,
    "rnn": RNN,
    "feed_forward": _feed_forward,
    "self_attention": partial(ProjectedAttention, "self_attention"),
    "grouped_query_attention": partial(ProjectedAttention, "grouped_query_attention"),
    "multi_head_attention": MultiHead,
    **{role: partial(TransformerStack, role) for role in ("encoder_layer", "decoder_layer", "encoder", "decoder")},
}


class TorchImplementation:
    """torch's own modules and functions; the installed torch is the subject."""

    name = "torch"

    def build(self, role: str, config: Mapping[str, Any]) -> TorchSubject:
        """Raises NotProvided for a role, or an option of one, that torch has not."""
        settings = ROLES[role].settings(config)
        if role in FUNCTIONS:
            subject: TorchSubject = Function(role, settings, FUNCTIONS[role])
        elif role in MODULES:
            subject = MODULES[role](settings)
        else:
            raise NotProvided(ABSENT.get(role, f"torch has no {role}"))
        if role == "attention":
            probe: Arrays = dict.fromkeys(("query", "key", "value"), np.ones((1, 1, 2, 2)))
            subject.attributes = {"masked_row": masked_row_policy(subject, probe, np.zeros((2, 2), bool))}
        return subject

"""What an implementation under test looks like: roles, subjects, implementations.

A *role* is one component of a Transformer (or of an autograd engine) that claims speak about. An
*implementation* builds a *subject* for a role, or raises `NotProvided`. Everything that crosses this
boundary is numpy. Any class with these methods will do; none needs to inherit from anything here.

Conventions, the same for every role
    weights     torch's: a Linear weight is ``(out, in)``, ``y = x @ W.T + b``
    masks       bool, True = may attend; broadcast against ``(B, H, Tq, Tk)``
    layout      batch first: ``(B, T, d_model)``; heads as ``(B, H, T, d_head)``
    token ids   int64 ``(B, T)``
    dtype       checks pass float64 arrays; a subject computes in its own ``dtype`` and returns arrays
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from conformance import shapes

Array = np.ndarray
Arrays = dict[str, Array]


class NotProvided(Exception):
    """The implementation has no such role, option or output. Counted and shown, never a pass."""


class DrawsAnew(NotProvided):
    """Its answers are random in evaluation mode, so that two of them cannot be compared."""

    def __init__(self) -> None:
        super().__init__("its answers are random in evaluation mode; see model-evaluation-repeats-itself")


class Refused(NotProvided):
    """It has the role, and its constructor raises for these values: what claims about refusals ask for."""


@runtime_checkable
class Subject(Protocol):
    """One built component. `dtype` is what it computes in; `attributes` are probed conventions.

    An optional `place`, "file.py:LINE in name", says where its code stands, if that is not its `__call__`.
    `__call__` takes the role's inputs by name and returns the role's outputs by name (``{"out": ...}``).
    A subject starts in evaluation mode. `vjp` returns the gradients of ``sum(out * cotangent)``: of the
    floating inputs by name and of the parameters by name.
    """

    dtype: np.dtype
    attributes: Mapping[str, Any]

    def __call__(self, **inputs: Any) -> Arrays: ...
    def params(self) -> Arrays: ...
    def load(self, params: Mapping[str, Array]) -> None: ...
    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]: ...
    def train(self, mode: bool = True) -> None: ...


class Implementation(Protocol):
    """Something that the suite can be pointed at (``--impl``).

    `name` and an optional `notes`, a sequence of lines about itself (what an adapter inferred, with its evidence), are
    shown in reports. An optional `untested`, a sequence of sentences, says what of the pointed-at object could not be
    tested and why (with the exception and its line). An optional `kind`, such as "language_model", says what the whole
    is: the claims that are the core of that kind must be tested.
    """

    name: str

    def build(self, role: str, config: Mapping[str, Any]) -> Subject: ...


@dataclass(frozen=True)
class Role:
    """One row of the role table.

    config: option -> default (`REQUIRED` where there is none). inputs: name -> shape, in words.
    outputs: name -> shape; every output but the first is optional. params: config -> {name: shape}.
    """

    name: str
    doc: str
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=lambda: {"out": "the result"})
    params: Callable[[Mapping[str, Any]], dict[str, tuple[int, ...]]] = lambda config: {}

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The whole configuration: defaults filled in. Raises ValueError on an unknown or missing option."""
        unknown = set(config) - set(self.config)
        if unknown:
            raise ValueError(
                f"role {self.name!r} has no option {', '.join(sorted(unknown))}; it has {', '.join(self.config)}"
            )
        full = {**self.config, **config}
        missing = [key for key, value in full.items() if value is REQUIRED]
        if missing:
            raise ValueError(f"role {self.name!r} needs a value for {', '.join(missing)}")
        return full


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


# --- the table ------------------------------------------------------------------------------------

_X = {"x": "(B, T, d_model)"}
_OUT_X = {"out": "(B, T, d_model)"}
_MASKED_X = {**_X, "mask": "bool, broadcasts to (B, H, T, T); optional"}
_TARGET_AND_MEMORY = {
    "x": "(B, Tt, d_model)",
    "memory": "(B, Ts, d_model)",
    "mask": "bool, broadcasts to (B, H, Tt, Tt); optional",
    "memory_mask": "bool, broadcasts to (B, H, Tt, Ts); optional",
}
_OUT_TARGET = {"out": "(B, Tt, d_model)"}
_SIZES = {"d_model": REQUIRED, "n_heads": REQUIRED, "d_ff": REQUIRED}
_LAYER = {**_SIZES, "norm_first": False, "dropout": 0.0}
_STACK = {**_SIZES, "n_layers": REQUIRED, "norm_first": False, "final_norm": True}
_DECODER_LM = {
    "vocab": REQUIRED,
    "d_model": REQUIRED,
    "n_heads": REQUIRED,
    "n_kv_heads": REQUIRED,
    "n_layers": REQUIRED,
    "d_ff": REQUIRED,
    "max_len": 128,
    "rope": "interleaved",
    "tied": True,
}

ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        # functions
        Role("softmax", "softmax along `dim`.", {"dim": -1}, {"x": "any shape"}),
        Role(
            "activation",
            "An activation, elementwise. kind: relu, gelu, gelu_tanh, silu, sigmoid, tanh.",
            {"kind": REQUIRED},
            {"x": "any shape"},
        ),
        Role(
            "attention",
            "Scaled dot-product attention. A row whose keys are all hidden is a convention (attribute "
            "`masked_row`: 'zero', 'nan' or 'uniform').",
            {"causal": False, "dropout": 0.0},
            {
                "query": "(B, H, Tq, d_k)",
                "key": "(B, H, Tk, d_k)",
                "value": "(B, H, Tk, d_v)",
                "mask": "bool, broadcasts to (B, H, Tq, Tk); optional",
            },
            {"out": "(B, H, Tq, d_v)", "weights": "(B, H, Tq, Tk)"},
        ),
        Role("causal_mask", "The look-ahead mask.", {}, {"n": "int"}, {"out": "(n, n) bool, True = may attend"}),
        Role(
            "padding_mask",
            "Which keys are real tokens.",
            {"pad_id": 0},
            {"ids": "(B, T) int"},
            {"out": "(B, T) bool, True = may attend"},
        ),
        Role(
            "rope",
            "Rotary positions. pairing: 'interleaved' rotates (0,1),(2,3),...; 'half' rotates (i, i + d/2).",
            {"base": 10000.0, "pairing": "interleaved"},
            {"x": "(B, H, T, d_head)", "offset": "int, position of the first row; default 0"},
        ),
        Role(
            "cross_entropy",
            "Cross-entropy of logits. Smoothed targets put 1 - eps on the target and spread eps over all "
            "`smoothing_over` classes: 'all' V (torch) or the V - 1 'others'. The mean is over kept targets.",
            {"ignore_index": None, "label_smoothing": 0.0, "reduction": "mean", "smoothing_over": "all"},
            {"logits": "(N, V)", "targets": "(N,) int"},
            {"out": "() or (N,)"},
        ),
        Role(
            "training_loss",
            "The loss that a function of a model and a batch of texts computes: cross-entropy of the next tokens. The "
            "model answers `logits` for the positions that it is fed; the token 0 is padding.",
            {},
            {"logits": "(B, T, V): the model's answers", "ids": "(B, T) int: the text, its first token among it"},
            {"out": "()", "given": "(B, T - 1) or (B, T) int: what the model was fed"},
        ),
        Role("mse", "Mean squared error.", {}, {"x": "any shape", "target": "the same shape"}, {"out": "()"}),
        Role("dropout", "Inverted dropout.", {"p": 0.5}, {"x": "any shape"}),
        Role(
            "clip_grad_norm",
            "Clipping by the global norm over all gradients.",
            {"max_norm": REQUIRED},
            {"grads": "list of arrays"},
            {"out": "list of arrays", "norm": "(), the norm before clipping"},
        ),
        Role(
            "lr_schedule",
            "The paper's warm-up: d_model^-0.5 min(step^-0.5, step warmup^-1.5).",
            {"d_model": REQUIRED, "warmup": REQUIRED},
            {"step": "int, from 1; 0 must not fail"},
            {"out": "()"},
        ),
        Role(
            "optimizer",
            "An optimizer run over given gradients. kind: sgd, adam, adamw. weight_decay is coupled (L2) in sgd "
            "and adam, decoupled in adamw; a tuple gives each parameter its own (parameter groups).",
            {
                "kind": REQUIRED,
                "lr": REQUIRED,
                "betas": (0.9, 0.999),
                "eps": 1e-8,
                "momentum": 0.0,
                "weight_decay": 0.0,
            },
            {"params": "list of arrays", "grads": "list (one a step) of lists of arrays"},
            {"out": "list (one a step) of lists of arrays: the parameters after each step"},
        ),
        Role(
            "autograd",
            "An engine that runs a small program and differentiates it. `program` is a tuple of "
            "(result, op, argument names, keyword dict); op is a torch function name (add, mul, matmul, tanh, sum, "
            "...; the list is `conformance.programs.OPS`). The last result is the output.",
            {"program": REQUIRED},
            {"**inputs": "the program's free names"},
        ),
        # decoding: the model is a Python callable ids (B, T) int -> next-token logits (B, V)
        Role(
            "greedy_decode",
            "Greedy decoding until `eos_id` or `max_new_tokens`. Finished rows are filled with `pad_id`.",
            {"eos_id": None, "pad_id": 0, "max_new_tokens": REQUIRED},
            {"next_logits": "callable (B, T) -> (B, V)", "ids": "(B, T) int prompt"},
            {"out": "(B, T + new) int"},
        ),
        Role(
            "beam_search",
            "Beam search: the best hypothesis for one prompt. One ends with `eos_id` or after `max_new_tokens`; "
            "its score is its log-probability / (number of its new tokens, EOS among them) ** length_penalty.",
            {"beams": REQUIRED, "max_new_tokens": REQUIRED, "eos_id": None, "length_penalty": 0.0},
            {"next_logits": "callable (B, T) -> (B, V)", "ids": "(1, T) int prompt"},
            {"out": "(1, T + new) int", "score": "(), of the hypothesis that is returned"},
        ),
        Role(
            "sampling_filter",
            "Next-token probabilities after temperature, then top-k, then top-p (the token that crosses p stays).",
            {"temperature": 1.0, "top_k": None, "top_p": None},
            {"logits": "(B, V)"},
            {"out": "(B, V) probabilities"},
        ),
        Role(
            "shift_targets",
            "Teacher forcing: decoder input and labels.",
            {},
            {"ids": "(B, T) int"},
            {"out": "(B, T-1): decoder input", "labels": "(B, T-1)"},
        ),
        Role(
            "masked_tokens",
            "Masked language modelling: each token is selected with probability `rate`; of the selected, the share "
            "`mask_share` becomes `mask_id`, `random_share` a random token, the rest stays. `special_ids` are never "
            "selected. The seed decides what is drawn.",
            {
                "vocab": REQUIRED,
                "mask_id": REQUIRED,
                "rate": 0.15,
                "mask_share": 0.8,
                "random_share": 0.1,
                "special_ids": (),
                "ignore_index": -100,
            },
            {"ids": "(B, T) int", "seed": "int"},
            {"out": "(B, T): what the model is given", "labels": "(B, T): selected tokens, elsewhere `ignore_index`"},
        ),
        # modules
        Role(
            "gradient_accumulation",
            "The gradient that one update of a linear classifier, logits = x W^T, accumulates when its batch is run in "
            "`pieces` micro-batches of equally many rows: that of the mean cross-entropy over all labels but `pad_id`.",
            {"d_model": REQUIRED, "vocab": REQUIRED, "pieces": REQUIRED, "pad_id": 0},
            {"x": "(B, T, d_model)", "labels": "(B, T) int"},
            {"out": "(vocab, d_model): the gradient of the weight"},
            lambda c: {"weight": (c["vocab"], c["d_model"])},
        ),
        Role(
            "linear",
            "y = x W^T + b.",
            {"n_in": REQUIRED, "n_out": REQUIRED, "bias": True},
            {"x": "(..., n_in)"},
            params=lambda c: {
                "weight": (c["n_out"], c["n_in"]),
                **({"bias": (c["n_out"],)} if c["bias"] else {}),
            },
        ),
        Role(
            "embedding",
            "A table look-up; the row of `padding_idx` is zero at the start and gets no gradient.",
            {"vocab": REQUIRED, "d_model": REQUIRED, "padding_idx": None},
            {"ids": "(B, T) int"},
            _OUT_X,
            lambda c: {"weight": (c["vocab"], c["d_model"])},
        ),
        Role(
            "layer_norm",
            "Layer normalisation over the last axis, biased variance, eps inside the root.",
            {"d_model": REQUIRED, "eps": 1e-5},
            _X,
            _OUT_X,
            lambda c: shapes.norm(c["d_model"]),
        ),
        Role(
            "rms_norm",
            "x / sqrt(mean(x^2) + eps) * weight over the last axis.",
            {"d_model": REQUIRED, "eps": 1e-6},
            _X,
            _OUT_X,
            lambda c: {"weight": (c["d_model"],)},
        ),
        Role(
            "mlp",
            "Linear layers with an activation between them (none after the last). activation: relu, sigmoid, "
            "tanh, gelu, or 'identity'.",
            {"sizes": REQUIRED, "activation": "relu", "bias": True},
            {"x": "(B, sizes[0])"},
            {"out": "(B, sizes[-1])"},
            shapes.mlp,
        ),
        Role(
            "rnn",
            "h_t = tanh(x_t W_ih^T + h_(t-1) W_hh^T + b), h_0 = 0.",
            {"d_input": REQUIRED, "d_hidden": REQUIRED},
            {"x": "(B, T, d_input)"},
            {"out": "(B, T, d_hidden): every hidden state"},
            shapes.rnn,
        ),
        Role(
            "self_attention",
            "Single-head self-attention without an output projection.",
            {"d_model": REQUIRED, "d_k": REQUIRED, "bias": False},
            {**_X, "mask": "bool (B, 1, T, T), optional"},
            {"out": "(B, T, d_k)", "weights": "(B, T, T)"},
            lambda c: {
                name: shape
                for p in ("q_proj", "k_proj", "v_proj")
                for name, shape in shapes.linear(p, c["d_k"], c["d_model"], c["bias"]).items()
            },
        ),
        Role(
            "multi_head_attention",
            "Multi-head attention; head i owns columns i*d_head .. (i+1)*d_head of each projection.",
            {"d_model": REQUIRED, "n_heads": REQUIRED, "bias": True, "dropout": 0.0},
            {
                "query": "(B, Tq, d_model)",
                "key": "(B, Tk, d_model)",
                "value": "(B, Tk, d_model)",
                "mask": "bool, broadcasts to (B, H, Tq, Tk); optional",
            },
            {"out": "(B, Tq, d_model)", "weights": "(B, H, Tq, Tk), or (B, 1, Tq, Tk) when averaged over heads"},
            shapes.attention,
        ),
        Role(
            "grouped_query_attention",
            "Self-attention whose n_kv_heads key/value heads each serve n_heads/n_kv_heads consecutive query heads.",
            {"d_model": REQUIRED, "n_heads": REQUIRED, "n_kv_heads": REQUIRED, "bias": False},
            _MASKED_X,
            {"out": "(B, T, d_model)", "weights": "(B, H, T, T)"},
            shapes.attention,
        ),
        Role(
            "cached_attention",
            "Causal multi-head self-attention run through its key/value cache: `chunks` says how many positions each "
            "call receives (a long first chunk is the prefill, ones are steps). All outputs, concatenated.",
            {"d_model": REQUIRED, "n_heads": REQUIRED, "bias": False},
            {**_X, "chunks": "tuple of ints that sum to T"},
            _OUT_X,
            shapes.attention,
        ),
        Role(
            "sinusoidal_positions",
            "x + sinusoid. Attribute `layout`: 'interleaved' (sin, cos, sin, cos, ...) or 'half' (sins, then coss).",
            {"d_model": REQUIRED, "max_len": 512},
            _X,
            _OUT_X,
        ),
        Role(
            "learned_positions",
            "x + a learned row for each position.",
            {"d_model": REQUIRED, "max_len": REQUIRED},
            _X,
            _OUT_X,
            lambda c: {"weight": (c["max_len"], c["d_model"])},
        ),
        Role(
            "feed_forward",
            "linear2(activation(linear1(x))). activation: relu or gelu.",
            {"d_model": REQUIRED, "d_ff": REQUIRED, "activation": "relu", "bias": True, "dropout": 0.0},
            _X,
            _OUT_X,
            shapes.feed_forward,
        ),
        Role(
            "swiglu",
            "down_proj(silu(gate_proj(x)) * up_proj(x)).",
            {"d_model": REQUIRED, "d_ff": REQUIRED},
            _X,
            _OUT_X,
            shapes.swiglu,
        ),
        Role(
            "mixture_of_experts",
            "Each token goes through the `top_k` SwiGLU experts with the largest router logits; their outputs are "
            "weighed by the router's softmax, which is renormalised over the chosen ones (`renormalise`) or not.",
            {
                "d_model": REQUIRED,
                "d_ff": REQUIRED,
                "n_experts": REQUIRED,
                "top_k": REQUIRED,
                "renormalise": True,
            },
            _X,
            _OUT_X,
            shapes.mixture_of_experts,
        ),
        Role(
            "encoder_layer",
            "Self-attention and feed-forward (relu), each with residual and LayerNorm: after (the documents') or "
            "before the sublayer (`norm_first`).",
            _LAYER,
            _MASKED_X,
            _OUT_X,
            shapes.encoder_layer,
        ),
        Role(
            "decoder_layer",
            "Masked self-attention, cross-attention to `memory`, feed-forward; residual and LayerNorm each.",
            _LAYER,
            _TARGET_AND_MEMORY,
            _OUT_TARGET,
            shapes.decoder_layer,
        ),
        Role(
            "encoder",
            "A stack of encoder layers, then a LayerNorm if `final_norm`.",
            _STACK,
            _MASKED_X,
            _OUT_X,
            shapes.encoder,
        ),
        Role(
            "decoder",
            "A stack of decoder layers, then a LayerNorm if `final_norm`.",
            _STACK,
            _TARGET_AND_MEMORY,
            _OUT_TARGET,
            shapes.decoder,
        ),
        Role(
            "encoder_decoder",
            "The documents' full model from token ids: embeddings times sqrt(d_model) plus sinusoid, both stacks "
            "with a final LayerNorm, an output projection; source and target padding and causality masked inside.",
            {
                "src_vocab": REQUIRED,
                "tgt_vocab": REQUIRED,
                "d_model": REQUIRED,
                "n_heads": REQUIRED,
                "n_layers": REQUIRED,
                "d_ff": REQUIRED,
                "max_len": 128,
                "pad_id": 0,
                "dropout": 0.0,
            },
            {"src": "(B, Ts) int", "tgt": "(B, Tt) int"},
            {"out": "(B, Tt, tgt_vocab) logits"},
            shapes.encoder_decoder,
        ),
        Role(
            "decoder_lm",
            "The documents' decoder-only model: token embedding, pre-RMSNorm layers of causal grouped-query "
            "attention with RoPE (`rope`: 'interleaved', 'half' or None, as printed) and SwiGLU, final RMSNorm, "
            "head tied to the embedding.",
            _DECODER_LM,
            {"ids": "(B, T) int"},
            {"out": "(B, T, vocab) logits"},
            shapes.decoder_lm,
        ),
        Role(
            "cached_decoder_lm",
            "`decoder_lm` run through its KV cache: `chunks` says how many tokens each call receives (a long first "
            "chunk is the prefill, ones are steps). The logits of all calls, concatenated.",
            _DECODER_LM,
            {"ids": "(B, T) int", "chunks": "tuple of ints that sum to T"},
            {"out": "(B, T, vocab) logits", "cache_bytes": "() bytes held by keys and values after the last call"},
            shapes.decoder_lm,
        ),
        # whole models as they run, by behaviour: `conformance.adapters.whole.model` says what their subjects offer
        Role("module", "Any module as it runs, a whole model or a part.", {}, {"**inputs": "its example()"}),
        Role(
            "model", "Any whole model, at its own sizes and with its own parameters.", {}, {"**inputs": "its example()"}
        ),
        Role(
            "language_model",
            "Token ids to the logits of each position's next token, in any design.",
            {},
            {"ids": "(B, T) int", "padding": "(B, T) bool, True = real; optional", "labels": "(B, T) int; optional"},
            {"out": "(B, T, V) logits", "loss": "()"},
        ),
        Role(
            "masked_language_model",
            "Token ids to logits of the masked tokens; every token sees every other.",
            {},
            {"ids": "(B, T) int", "padding": "(B, T) bool, True = real; optional", "labels": "(B, T) int; optional"},
            {"out": "(B, T, V) logits", "loss": "()"},
        ),
        Role(
            "sequence_to_sequence",
            "A source and a target to the logits of the target's next tokens.",
            {},
            {"src": "(B, Ts) int", "tgt": "(B, Tt) int", "src_padding, tgt_padding": "bool, True = real; optional"},
            {"out": "(B, Tt, V) logits"},
        ),
        Role(
            "encoder_model",
            "Token ids or numbers to a vector for each position.",
            {},
            {"ids or x": "(B, T) int, or numbers", "padding": "(B, T) bool, True = real; optional"},
            {"out": "(B, T, d)"},
        ),
        Role(
            "classifier",
            "Token ids or numbers to the scores of classes.",
            {},
            {"ids or x": "(B, T) int, or numbers", "padding": "(B, T) bool, True = real; optional"},
            {"out": "(B, C)"},
        ),
        # what stands beside a model
        Role("helpers", "The functions of a file that prepare, measure and decode: `conformance.adapters.helpers`."),
        # a run
        Role("training_run", "A training run: what `conformance.watch` recorded of it."),
    )
}

WHOLE_MODELS = (
    "module",
    "model",
    "language_model",
    "masked_language_model",
    "sequence_to_sequence",
    "encoder_model",
    "classifier",
)
"""The roles of whole models as they run: their subjects are `conformance.adapters.whole.model.WholeModel`."""

AS_THEY_ARE = (*WHOLE_MODELS, "helpers", "training_run")
"""The roles of which there is more to see than outputs: checks get their subjects as they are."""

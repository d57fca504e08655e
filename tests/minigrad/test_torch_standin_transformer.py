"""nn.MultiheadAttention and nn.Transformer of the stand-in: outputs, weights and gradients of torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigrad.torch as standin

torch = pytest.importorskip("torch")

N, L, S, E = 2, 3, 5, 12  # rows, target and source lengths, width
CAUSAL = np.triu(np.ones((L, L), bool), 1)
HIDDEN = np.array([[False, False, True, False, False], [False, False, False, True, True]])


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def added(hidden: np.ndarray) -> np.ndarray:
    return np.where(hidden, -np.inf, 0.0)


def run(
    side: Any, build: Callable[[Any], Any], state: dict | None, inputs: list[np.ndarray], masks: dict, train: bool
) -> tuple[dict, list[np.ndarray], dict[str, np.ndarray]]:
    """(state, outputs, gradients) of a module in float64: of its parameters, and of its inputs."""
    module = build(side).double().train(train)
    if state is not None:
        module.load_state_dict({name: side.tensor(value) for name, value in state.items()})
    given = [side.tensor(x, dtype=side.float64, requires_grad=True) for x in inputs]
    options = {k: side.tensor(v) if isinstance(v, np.ndarray) else v for k, v in masks.items()}
    result = module(*given, **options)
    outputs = [t for t in (result if isinstance(result, tuple) else (result,)) if t is not None]
    sum(
        ((out * out).sum() for out in outputs[1:]), (outputs[0] * side.tensor(array(*outputs[0].shape))).sum()
    ).backward()
    gradients = {name: p.grad for name, p in module.named_parameters()}
    gradients |= {f"input {i}": x.grad for i, x in enumerate(given)}
    return (
        {name: p.detach().numpy().copy() for name, p in module.state_dict().items()},
        [out.detach().numpy().copy() for out in outputs],
        {name: g.numpy().copy() for name, g in gradients.items() if g is not None},
    )


def compare(build: Callable[[Any], Any], inputs: list[np.ndarray], masks: dict, train: bool = True) -> None:
    rng = np.random.default_rng(7)
    names = build(torch).state_dict()
    state = {name: rng.standard_normal(tuple(p.shape)) * 0.3 for name, p in names.items()}
    state, theirs, their_gradients = run(torch, build, state, inputs, masks, train)
    own, ours, our_gradients = run(standin, build, state, inputs, masks, train)
    assert list(own) == list(state)
    assert len(ours) == len(theirs)
    for got, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
    assert our_gradients.keys() == their_gradients.keys()
    for name, wanted in their_gradients.items():
        np.testing.assert_allclose(our_gradients[name], wanted, rtol=1e-8, atol=1e-9, err_msg=name)


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": HIDDEN},
    "float padding": {"key_padding_mask": array(N, S, seed=3)},
    "float": {"attn_mask": array(L, S, seed=4)},
    "bool and float": {"attn_mask": array(L, S, seed=4), "key_padding_mask": HIDDEN},
    "bool": {"attn_mask": np.arange(S) > np.arange(L)[:, None] + 1, "key_padding_mask": HIDDEN},
    "a mask for each head": {"attn_mask": array(N * 3, L, S, seed=5)},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "without bias": {"bias": False},
    "other widths": {"kdim": 7, "vdim": 9},
    "appended rows": {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_multihead_attention_is_torchs(options: str, mask: str) -> None:
    given = OPTIONS[options]
    inputs = [array(L, N, E, seed=1), array(S, N, given.get("kdim", E), seed=2), array(S, N, given.get("vdim", E))]
    if given.get("batch_first"):
        inputs = [np.swapaxes(x, 0, 1) for x in inputs]
    for more in ({}, {"need_weights": False}, {"average_attn_weights": False}):
        compare(lambda side: side.nn.MultiheadAttention(E, 3, **given), inputs, {**MASKS[mask], **more})


def test_attention_without_a_batch_and_with_the_causal_hint() -> None:
    x = array(L, E)
    compare(lambda side: side.nn.MultiheadAttention(E, 3), [x, x, x], {"attn_mask": added(CAUSAL)})
    for need_weights in (True, False):
        masks = {"attn_mask": CAUSAL, "is_causal": True, "need_weights": need_weights}
        compare(lambda side: side.nn.MultiheadAttention(E, 2), [x[:, None]] * 3, masks)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layers_and_stacks_are_torchs(norm_first: bool, activation: str, batch_first: bool) -> None:
    layer = {"nhead": 3, "dim_feedforward": 10, "dropout": 0.0, "activation": activation, "norm_first": norm_first}
    layer |= {"batch_first": batch_first, "layer_norm_eps": 1e-4}
    src, tgt = ((array(N, n, E) if batch_first else array(n, N, E)) for n in (S, L))

    def encoder(side: Any) -> Any:
        return side.nn.TransformerEncoder(side.nn.TransformerEncoderLayer(E, **layer), 2, side.nn.LayerNorm(E))

    def decoder(side: Any) -> Any:
        return side.nn.TransformerDecoder(side.nn.TransformerDecoderLayer(E, **layer), 2)

    compare(lambda side: side.nn.TransformerEncoderLayer(E, **layer, bias=False), [src], {})
    compare(encoder, [src], {"src_key_padding_mask": HIDDEN, "mask": added(np.triu(np.ones((S, S), bool), 1))})
    masks = {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_key_padding_mask": HIDDEN}
    compare(decoder, [tgt, src], masks)


def test_the_whole_transformer_is_torchs() -> None:
    def build(side: Any) -> Any:
        return side.nn.Transformer(E, 2, 1, 2, 16, dropout=0.0, batch_first=True, activation=side.nn.functional.gelu)

    hidden = np.zeros((N, L), bool)
    hidden[0, -1] = True
    masks = {"tgt_mask": added(CAUSAL), "tgt_key_padding_mask": hidden}
    masks |= {"src_key_padding_mask": HIDDEN, "memory_key_padding_mask": HIDDEN}
    compare(build, [array(N, S, E), array(N, L, E)], masks)
    ours, theirs = (side.nn.Transformer.generate_square_subsequent_mask(4) for side in (standin, torch))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert str(theirs.dtype) == f"torch.{ours.dtype}"


def test_fresh_weights_are_drawn_as_torch_draws_them() -> None:
    torch.manual_seed(0)
    standin.manual_seed(0)
    ours, theirs = (side.nn.Transformer(64, 4, 2, 2, 128).state_dict() for side in (standin, torch))
    assert list(ours) == list(theirs)
    for name, wanted in theirs.items():
        assert float(ours[name].std(unbiased=False)) == pytest.approx(
            float(wanted.std(unbiased=False)), rel=0.15, abs=0.002
        ), name
    bias = standin.nn.MultiheadAttention(64, 4, add_bias_kv=True).bias_k
    assert float(bias.detach().std()) == pytest.approx(
        float(torch.nn.MultiheadAttention(64, 4, add_bias_kv=True).bias_k.detach().std()), rel=0.5
    )


def test_dropout_is_active_in_training_only() -> None:
    layer = standin.nn.TransformerEncoderLayer(E, 2, 8, dropout=0.5)
    x = standin.tensor(array(L, N, E), dtype=standin.float32)
    assert not standin.equal(layer(x), layer(x))
    layer.eval()
    assert standin.equal(layer(x), layer(x))
    attention = standin.nn.MultiheadAttention(E, 2, dropout=0.9)
    assert (attention(x, x, x)[1] == 0).any()


def test_errors_are_torchs_or_say_what_was_wrong() -> None:
    x = standin.zeros(L, N, E)
    attention = standin.nn.MultiheadAttention(E, 3)
    with pytest.raises(ValueError, match="num_heads 5 must divide embed_dim 12"):
        standin.nn.MultiheadAttention(E, 5)
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        attention(x, x, x, is_causal=True)
    with pytest.raises(ValueError, match=r"attn_mask must have shape \[3, 3\] or \[6, 3, 3\], got \[2, 3\]"):
        attention(x, x, x, attn_mask=standin.zeros(2, 3))
    with pytest.raises(ValueError, match=r"key_padding_mask must have shape \[2, 3\], got \[3, 2\]"):
        attention(x, x, x, key_padding_mask=standin.zeros(3, 2))
    with pytest.raises(ValueError, match="need 3 dimensions, or 2 without a batch"):
        attention(x[None], x, x)
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not tanh"):
        standin.nn.TransformerEncoderLayer(E, 3, activation="tanh")
    with pytest.raises(ValueError, match=r"torch\.nn\.Linear: there is no device 'cuda' here"):
        standin.nn.Linear(2, 2, device="cuda")

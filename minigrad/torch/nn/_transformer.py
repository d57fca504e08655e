"""nn.MultiheadAttention and nn.Transformer with its parts: torch's arguments, parameter names and rules of masks.

As in torch a bool mask is True where attention is *not* allowed, and a floating one is added to the scores. What a
bool mask hides from a query altogether gives zeros here and NaN in torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import minigrad
from minigrad import Tensor, dtypes
from minigrad.nn import Module, ModuleList, Parameter
from minigrad.ops.attention import visible_softmax
from minigrad.torch._creation import check_device
from minigrad.torch.nn import functional, init
from minigrad.torch.nn._layers import Dropout, LayerNorm, Linear


class MultiheadAttention(Module):
    """torch.nn.MultiheadAttention: attention of several heads, with projections in one matrix where sizes allow it.

    Raises ValueError unless num_heads divides embed_dim.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_device("nn.MultiheadAttention", device)
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: num_heads {num_heads} must divide embed_dim {embed_dim}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn

        def parameter(*size: int) -> Parameter:
            return Parameter(minigrad.zeros(*size, dtype=dtype))

        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
        self.in_proj_bias = parameter(3 * embed_dim) if bias else None
        self.bias_k, self.bias_v = (parameter(1, 1, embed_dim) if add_bias_kv else None for _ in range(2))
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """query ``(L, N, E)``, ``(N, L, E)`` if batch_first, or ``(L, E)``; key and value likewise with S for L.

        attn_mask ``(L, S)`` or ``(N * num_heads, L, S)``, key_padding_mask ``(N, S)``. Returns the output and, with
        `need_weights`, the weights ``(N, L, S)``, ``(N, num_heads, L, S)`` unless averaged. Raises ValueError for other
        shapes, and RuntimeError for is_causal without the mask that it describes.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.ndim == 3
        if not (batched or query.ndim == 2) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ValueError(
                f"MultiheadAttention: query, key and value need 3 dimensions, or 2 without a batch, got "
                f"{list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
            )
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._heads(query, key, value)
        mask = self._mask(query, key, attn_mask, key_padding_mask)
        out, weights = self._attend(q, k, v, mask, need_weights)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Projected queries ``(N, H, L, d)`` and keys and values ``(N, H, S', d)``, with the rows that are appended."""
        if self.in_proj_weight is not None:
            weights: Any = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        given = zip((query, key, value), weights, biases, strict=True)
        q, k, v = (functional.linear(x, weight, bias) for x, weight, bias in given)
        if self.bias_k is not None and self.bias_v is not None:
            count = q.shape[0]
            k, v = (minigrad.cat([x, row.expand(count, -1, -1)], 1) for x, row in ((k, self.bias_k), (v, self.bias_v)))
        if self.add_zero_attn:
            k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        return [x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v)]

    def _mask(self, query: Tensor, key: Tensor, attn_mask: Any, key_padding_mask: Any) -> Tensor | None:
        """One mask ``(N or 1, H or 1, L or 1, S')``: bool, True = may attend, or floating to be added."""
        (count, length), keys = query.shape[:2], key.shape[1]
        masks = []
        if attn_mask is not None:
            several = (count * self.num_heads, length, keys)
            if tuple(attn_mask.shape) not in ((length, keys), several):
                raise ValueError(
                    f"MultiheadAttention: attn_mask must have shape {[length, keys]} or {list(several)}, got "
                    f"{list(attn_mask.shape)}"
                )
            lead = (count, self.num_heads) if attn_mask.ndim == 3 else (1, 1)
            masks.append(attn_mask.reshape(*lead, length, keys))
        if key_padding_mask is not None:
            if tuple(key_padding_mask.shape) != (count, keys):
                raise ValueError(
                    f"MultiheadAttention: key_padding_mask must have shape {[count, keys]}, got "
                    f"{list(key_padding_mask.shape)}"
                )
            masks.append(key_padding_mask.reshape(count, 1, 1, keys))
        appended = (self.bias_k is not None) + self.add_zero_attn
        if not masks:
            return None
        if all(mask.dtype == dtypes.bool_ for mask in masks):
            hidden = masks[0] if len(masks) == 1 else masks[0] | masks[1]
            return ~(functional.pad(hidden, (0, appended)) if appended else hidden)
        floating = [
            minigrad.zeros(*mask.shape, dtype=query.dtype).masked_fill(mask, float("-inf"))
            if mask.dtype == dtypes.bool_
            else mask
            for mask in masks
        ]
        added = floating[0] if len(floating) == 1 else floating[0] + floating[1]
        return functional.pad(added, (0, appended)) if appended else added

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        p = self.dropout if self.training else 0.0
        if not need_weights:
            return functional.scaled_dot_product_attention(q, k, v, mask, p), None
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)
        if mask is not None and mask.dtype == dtypes.bool_:
            weights = visible_softmax(scores, mask)
        else:
            weights = functional.softmax(scores if mask is None else scores + mask, -1)
        weights = functional.dropout(weights, p, self.training)
        return weights @ v, weights


def _activation(activation: Any) -> Callable[[Tensor], Tensor]:
    """A function, or torch's name of one. Raises RuntimeError for another name."""
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return getattr(functional, activation)


class _Layer(Module):
    """What encoder and decoder layers share: self-attention, two linear maps with an activation between, residuals.

    cross: with attention to a memory between the two. norm_first: norms before the sublayers, else after the sums.
    """

    cross = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_device(f"nn.{type(self).__name__}", device)

        def attention() -> MultiheadAttention:
            return MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)

        self.self_attn = attention()
        if self.cross:
            self.multihead_attn = attention()
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        for i in range(2 + self.cross):
            setattr(self, f"norm{i + 1}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
            setattr(self, f"dropout{i + 1}", Dropout(dropout))
        self.activation = _activation(activation)

    def _residual(self, x: Tensor, number: int, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        return x + dropout(sublayer(norm(x))) if self.norm_first else norm(x + dropout(sublayer(x)))

    def _attended(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        return self._residual(x, 1, lambda y: self.self_attn(y, y, y, padding, False, mask, is_causal=is_causal)[0])

    def _mapped(self, x: Tensor, number: int) -> Tensor:
        return self._residual(x, number, lambda y: self.linear2(self.dropout(self.activation(self.linear1(y)))))


class TransformerEncoderLayer(_Layer):
    """torch.nn.TransformerEncoderLayer: self-attention and a feed-forward network."""

    def forward(
        self, src: Tensor, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        return self._mapped(self._attended(src, src_mask, src_key_padding_mask, is_causal), 2)


class TransformerDecoderLayer(_Layer):
    """torch.nn.TransformerDecoderLayer: self-attention, attention to the memory and a feed-forward network."""

    cross = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = self._attended(tgt, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._residual(
            x,
            2,
            lambda y: self.multihead_attn(
                y, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0],
        )
        return self._mapped(x, 3)


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList(copy.deepcopy(layer) for _ in range(count))


class TransformerEncoder(Module):
    """torch.nn.TransformerEncoder: `num_layers` copies of a layer, and a norm after them.

    enable_nested_tensor and mask_check change speed in torch, and are ignored.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self, src: Tensor, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """torch.nn.TransformerDecoder: `num_layers` copies of a layer, and a norm after them."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """torch.nn.Transformer: an encoder, a decoder, and masks for both; custom ones take their places."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = functional.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer, device=device, dtype=dtype), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer, device=device, dtype=dtype), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """``(sz, sz)``: -inf above the diagonal, 0 elsewhere."""
        check_device("nn.Transformer.generate_square_subsequent_mask", device)
        return minigrad.full((sz, sz), float("-inf"), dtype=dtype).triu(1)

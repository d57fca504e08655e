"""Encoder-decoders of two stacks under BART's settings: their layers, and a decoder's pass through them."""

from __future__ import annotations

from minigrad import Tensor, nn
from transformer.attention import MultiHeadAttention
from transformer.cache import KVCache
from transformer.feedforward import FeedForward
from transformer.ids import check_ids
from transformer.layers import Layer
from transformer.masks import visible_mask
from transformer.models.base import Seq2Seq
from transformer.models.family import Family, Name, activation
from transformer.places import Start


def layer_names(side: str, norms: dict[str, int]) -> list[Name]:
    """Of the layers of one stack; norms: what the file calls our norms of these numbers."""
    layer, ours = f"model.{side}.layers.{{}}", f"{side}_layers.{{}}"
    names = [Name(f"{layer}.{norm}.*", f"{ours}.norm{i}.*") for norm, i in norms.items()]
    names += [Name(f"{layer}.fc{i}.*", f"{ours}.feed_forward.linear{i}.*") for i in (1, 2)]
    for theirs, attn in (("self_attn", "self_attn"), ("encoder_attn", "cross_attn")):
        names += [Name(f"{layer}.{theirs}.{p}_proj.*", f"{ours}.{attn}.{p}_proj.*") for p in ("q", "k", "v", "out")]
    return names


LAYER_NAMES = (
    *layer_names("encoder", {"self_attn_layer_norm": 1, "final_layer_norm": 2}),
    *layer_names("decoder", {"self_attn_layer_norm": 1, "encoder_attn_layer_norm": 2, "final_layer_norm": 3}),
)


class TwoStacks(Seq2Seq, Family):
    """A family defines `embed_target` and `logits` beside `encode`.

    The first target token is a special one, and may be the padding token, so decoding hides no padding. norm_first and
    key_bias: as those of Layer and MultiHeadAttention.
    """

    encoder_layers: nn.ModuleList
    decoder_layers: nn.ModuleList

    def make_layers(self, norm_first: bool = False, key_bias: bool = True) -> None:
        """Make both stacks. Raises ValueError where heads do not divide."""
        config = self.config
        d, name = config.d_model, activation(config.activation_function)

        def attention(n_heads: int) -> MultiHeadAttention:
            return MultiHeadAttention(d, n_heads, dropout=config.attention_dropout, key_bias=key_bias)

        def layer(n_heads: int, d_ff: int, cross: bool) -> Layer:
            return Layer(
                attention(n_heads),
                FeedForward(d, d_ff, name, dropout=config.activation_dropout),
                lambda: nn.LayerNorm(d),
                config.dropout,
                norm_first,
                attention(n_heads) if cross else None,
            )

        self.encoder_layers = nn.ModuleList(
            layer(config.encoder_attention_heads, config.encoder_ffn_dim, False) for _ in range(config.encoder_layers)
        )
        self.decoder_layers = nn.ModuleList(
            layer(config.decoder_attention_heads, config.decoder_ffn_dim, True) for _ in range(config.decoder_layers)
        )

    def embed_target(self, tgt: Tensor, start: Start) -> Tensor:
        """Target ids ``(B, T)`` of the positions `start`, ... to ``(B, T, d_model)``."""
        raise NotImplementedError

    def logits(self, x: Tensor) -> Tensor:
        """What leaves the decoder's layers ``(B, T, d_model)`` to logits ``(B, T, vocab)``."""
        raise NotImplementedError

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor, cache: KVCache | None = None) -> Tensor:
        check_ids(tgt, "tgt")
        start: Start = 0 if cache is None else cache.length
        x, mask = self.embed_target(tgt, start), visible_mask(tgt.shape[1], start, device=tgt.device)
        for i, layer in enumerate(self.decoder_layers):
            own, cross = (None, None) if cache is None else (cache.layers[i], cache.memory[i])
            x = layer(x, mask, own, memory, memory_mask, cross)
        return self.logits(x)

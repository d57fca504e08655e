"""ViT: an encoder that reads an image as a row of patches behind one token of its own (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import minigrad as mg
from minigrad import Tensor, nn
from minigrad import functional as F
from transformer.attention import MultiHeadAttention
from transformer.feedforward import FeedForward
from transformer.layers import Layer
from transformer.models.family import Config, Family, Name, activation, initialise


@dataclass(frozen=True, kw_only=True)
class ViTConfig(Config):
    model_type = "vit"

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    image_size: int = 224
    patch_size: int = 16
    num_channels: int = 3
    qkv_bias: bool = True
    id2label: dict | None = None

    @property
    def n_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, side = self.hidden_size, self.patch_size
        return {
            "vit.embeddings.patch_embeddings.projection.weight": (d, self.num_channels, side, side),
            "vit.embeddings.position_embeddings": (1, self.n_patches + 1, d),
            f"vit.encoder.layer.{self.num_hidden_layers - 1}.intermediate.dense.weight": (self.intermediate_size, d),
        }


class Patches(nn.Module):
    """Images ``(B, C, H, W)`` to ``(B, patches, d)``, row by row: a Linear of each square patch.

    weight ``(d, C, side, side)``. What is left of a side on the right and below is not looked at.
    """

    def __init__(self, channels: int, side: int, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(mg.empty(d, channels, side, side)))
        self.bias = nn.Parameter(mg.zeros(d))

    def forward(self, images: Tensor) -> Tensor:
        d, channels, side, _ = self.weight.shape
        high, wide = images.shape[2] // side, images.shape[3] // side
        cut = images[:, :, : high * side, : wide * side].reshape(-1, channels, high, side, wide, side)
        patches = cut.permute(0, 2, 4, 1, 3, 5).reshape(-1, high * wide, channels * side * side)
        return F.linear(patches, self.weight.reshape(d, -1), self.bias)


LAYER = {"layernorm_before": "norm1", "layernorm_after": "norm2", "attention.attention.query": "self_attn.q_proj",
         "attention.attention.key": "self_attn.k_proj", "attention.attention.value": "self_attn.v_proj",
         "attention.output.dense": "self_attn.out_proj", "intermediate.dense": "feed_forward.linear1",
         "output.dense": "feed_forward.linear2"}  # fmt: skip


class ViT(nn.Module, Family):
    """ViT with the head that names what an image shows, ``(B, n_labels)``, or without one, ``(B, 1 + patches, d)``.

    Raises ValueError for another head, for patches larger than the image, and where heads do not divide.
    """

    config_class = ViTConfig
    architectures = {"ViTForImageClassification": {"head": "classification"}, "ViTModel": {"head": None}}
    prefix = "vit."
    ignored = (r"vit\.pooler\..*",)
    names = (
        Name("vit.embeddings.cls_token", "own_token"),
        Name("vit.embeddings.position_embeddings", "positions"),
        Name("vit.embeddings.patch_embeddings.projection.*", "patches.*"),
        *(Name(f"vit.encoder.layer.{{}}.{theirs}.*", f"layers.{{}}.{ours}.*") for theirs, ours in LAYER.items()),
        Name("vit.layernorm.*", "norm.*"),
        Name("classifier.*", "classifier.*"),
    )

    def __init__(self, config: ViTConfig, head: str | None = "classification") -> None:
        super().__init__()
        if head not in ("classification", None):
            raise ValueError(f"ViT: head must be 'classification' or None, got {head!r}")
        if config.n_patches < 1:
            raise ValueError(f"patches of {config.patch_size} pixels do not fit an image of {config.image_size}")
        self.config, self.head, d = config, head, config.hidden_size
        self.own_token = nn.Parameter(mg.zeros(1, 1, d))
        self.positions = nn.Parameter(mg.zeros(1, config.n_patches + 1, d))
        self.patches = Patches(config.num_channels, config.patch_size, d)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layers = nn.ModuleList(
            Layer(
                MultiHeadAttention(
                    d, config.num_attention_heads, bias=config.qkv_bias, out_bias=True,
                    dropout=config.attention_probs_dropout_prob,
                ),
                FeedForward(d, config.intermediate_size, activation(config.hidden_act)),
                lambda: nn.LayerNorm(d, config.layer_norm_eps),
                config.hidden_dropout_prob,
                norm_first=True,
            )
            for _ in range(config.num_hidden_layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(d, config.layer_norm_eps)
        if head is not None:
            self.classifier = nn.Linear(d, 2 if config.id2label is None else len(config.id2label))
        initialise(self, config.initializer_range)

    def architecture(self) -> str:
        return next(name for name, arguments in self.architectures.items() if arguments["head"] == self.head)

    def encode(self, images: Tensor) -> Tensor:
        """The last hidden states ``(B, 1 + patches, d)``; raises ValueError for images of another size."""
        size, channels = self.config.image_size, self.config.num_channels
        if images.shape[1:] != (channels, size, size):
            raise ValueError(f"images must be (B, {channels}, {size}, {size}), got {list(images.shape)}")
        own = self.own_token.expand(images.shape[0], -1, -1)
        x = self.dropout(mg.cat([own, self.patches(images)], 1) + self.positions)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(B, C, H, W)``, numbers as the model was trained on them, to what the head gives."""
        x = self.encode(images)
        return x if self.head is None else self.classifier(x[:, 0])

"""ViT: an encoder that reads an image as a row of patches behind one token of its own (Dosovitskiy et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from minigrad import Tensor, nn
from transformer.attention import MultiHeadAttention
from transformer.feedforward import FeedForward
from transformer.layers import Layer
from transformer.models.family import Config, Family, Name, activation, initialise
from transformer.patches import PlacedPatches


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

    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, side = self.hidden_size, self.patch_size
        places = 1 + (self.image_size // side) ** 2
        return {
            "vit.embeddings.patch_embeddings.projection.weight": (d, self.num_channels, side, side),
            "vit.embeddings.position_embeddings": (1, places, d),
            f"vit.encoder.layer.{self.num_hidden_layers - 1}.intermediate.dense.weight": (self.intermediate_size, d),
        }


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
        Name("vit.embeddings.cls_token", "embedding.own_token"),
        Name("vit.embeddings.position_embeddings", "embedding.positions"),
        Name("vit.embeddings.patch_embeddings.projection.*", "embedding.patches.*"),
        *(Name(f"vit.encoder.layer.{{}}.{theirs}.*", f"layers.{{}}.{ours}.*") for theirs, ours in LAYER.items()),
        Name("vit.layernorm.*", "norm.*"),
        Name("classifier.*", "classifier.*"),
    )

    def __init__(self, config: ViTConfig, head: str | None = "classification") -> None:
        super().__init__()
        self.check_head(head)
        self.config, self.head, d, dropout = config, head, config.hidden_size, config.hidden_dropout_prob
        attention = partial(MultiHeadAttention, d, config.num_attention_heads, bias=config.qkv_bias, out_bias=True)
        norm = partial(nn.LayerNorm, d, config.layer_norm_eps)
        self.embedding = PlacedPatches(config.num_channels, config.image_size, config.patch_size, d, dropout)
        self.layers = nn.ModuleList(
            Layer(
                attention(dropout=config.attention_probs_dropout_prob),
                FeedForward(d, config.intermediate_size, activation(config.hidden_act)),
                norm,
                dropout,
                norm_first=True,
            )
            for _ in range(config.num_hidden_layers)
        )
        self.norm = norm()
        if head is not None:
            self.classifier = nn.Linear(d, config.n_labels)
        initialise(self, config.initializer_range)

    def encode(self, images: Tensor) -> Tensor:
        """The last hidden states ``(B, 1 + patches, d)``; raises ValueError for images of another size."""
        x = self.embedding(images)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(B, C, H, W)``, numbers as the model was trained on them, to what the head gives."""
        x = self.encode(images)
        return x if self.head is None else self.classifier(x[:, 0])

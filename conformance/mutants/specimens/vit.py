"""A vision Transformer: patches by a convolution, a class token, learned positions, torch's encoder layers."""

import torch
import torch.nn.functional as F
from torch import nn


class ViT(nn.Module):
    def __init__(
        self, image_size=8, patch_size=4, in_channels=3, n_classes=5, d_model=16, n_heads=2, n_layers=2, dropout=0.1
    ):
        super().__init__()
        self.image_size = image_size
        self.patches = nn.Conv2d(in_channels, d_model, patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.randn(1, 1, d_model) * 0.02)
        count = (image_size // patch_size) ** 2
        self.pos_embedding = nn.Parameter(torch.randn(1, count + 1, d_model) * 0.02)
        self.register_buffer("mean", torch.full((1, in_channels, 1, 1), 0.5))
        layer = nn.TransformerEncoderLayer(
            d_model, n_heads, 2 * d_model, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, n_classes)

    def positions(self, rows, columns):
        """(1, 1 + rows * columns, d_model): those of the class token and of each patch, resized where they must be."""
        side = self.image_size // self.patches.kernel_size[0]
        if (rows, columns) == (side, side):
            return self.pos_embedding
        grid = self.pos_embedding[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, (rows, columns), mode="bilinear")
        return torch.cat((self.pos_embedding[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)), 1)

    def forward(self, images):
        """Scores (B, classes) of images (B, C, H, W)."""
        patches = self.patches(images - self.mean)
        places = self.positions(*patches.shape[2:])
        patches = patches.flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(patches), -1, -1), patches), 1)
        x = self.encoder(x + places)
        return self.head(self.norm(x[:, 0]))

    def mixup_loss(self, images, labels, alpha=0.4):
        """The loss of each image mixed with another of the batch: both labels count, as much as their images."""
        share = float(torch.distributions.Beta(alpha, alpha).sample())
        order = torch.randperm(len(images))
        scores = self(share * images + (1 - share) * images[order])
        own, other = F.cross_entropy(scores, labels), F.cross_entropy(scores, labels[order])
        return share * own + (1 - share) * other


def layer_decay_groups(model, lr=1e-3, weight_decay=0.05, layer_decay=0.75):
    """Groups for AdamW: each layer learns more slowly than the one above it, and norms and biases do not decay."""
    above, groups = len(model.encoder.layers) + 1, []
    for name, parameter in model.named_parameters():
        layer = above if name.startswith(("norm", "head")) else 0
        if name.startswith("encoder.layers."):
            layer = 1 + int(name.split(".")[2])
        rate = lr * layer_decay ** (above - layer)
        decay = weight_decay if parameter.dim() > 1 else 0.0
        groups.append({"params": [parameter], "lr": rate, "weight_decay": decay})
    return groups

"""A forecaster with a decoder that is taught on known values: steps, calendars, and the loss of what follows."""

import torch
from torch import nn


class FollowedForecaster(nn.Module):
    """C channels, F calendar features, T known steps, H steps to forecast."""

    def __init__(self, channels: int = 3, features: int = 2, width: int = 16, n_heads: int = 2):
        super().__init__()
        self.known, self.next = nn.Linear(channels + features, width), nn.Linear(channels + features, width)
        layer = nn.TransformerEncoderLayer(width, n_heads, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        layer = nn.TransformerDecoderLayer(width, n_heads, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)
        self.head = nn.Linear(width, channels)

    def forward(self, past, past_calendar, future, future_calendar):
        """past (B, T, C), past_calendar (B, T, F), future (B, H, C), future_calendar (B, H, F)."""
        memory = self.encoder(self.known(torch.cat([past, past_calendar], -1)))
        before = torch.cat([past[:, -1:], future[:, :-1]], 1)
        hidden = nn.Transformer.generate_square_subsequent_mask(future.size(1)).to(future)
        steps = self.decoder(self.next(torch.cat([before, future_calendar], -1)), memory, tgt_mask=hidden)
        forecast = self.head(steps)
        return {"forecast": forecast, "loss": (forecast - future).square().mean()}

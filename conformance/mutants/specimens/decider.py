"""A decision transformer: returns to go, states and actions as one sequence; the state's token predicts the action."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, visible):
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, visible).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class DecisionTransformer(nn.Module):
    def __init__(self, state_dim=6, act_dim=3, width=16, n_heads=2, n_layers=2, max_steps=24, context=8):
        super().__init__()
        self.context = context
        self.returns, self.states = nn.Linear(1, width), nn.Linear(state_dim, width)
        self.actions, self.times = nn.Linear(act_dim, width), nn.Embedding(max_steps, width)
        self.blocks = nn.ModuleList(Block(width, n_heads) for _ in range(n_layers))
        self.norm, self.predict_action = nn.LayerNorm(width), nn.Linear(width, act_dim)

    def forward(self, returns_to_go, states, actions, timesteps, attention_mask=None):
        """Returns (B, T, 1), states (B, T, state_dim) and actions (B, T, act_dim) to the predicted actions.
        timesteps (B, T): the number of each step in its episode; attention_mask (B, T): 1 for steps, 0 for padding
        before them."""
        batch, steps = states.shape[:2]
        tokens = torch.stack((self.returns(returns_to_go), self.states(states), self.actions(actions)), 2)
        x = (tokens + self.times(timesteps)[:, :, None]).reshape(batch, 3 * steps, -1)
        visible = torch.ones(3 * steps, 3 * steps, dtype=torch.bool).tril()
        if attention_mask is not None:
            real = attention_mask.bool().repeat_interleave(3, 1)
            visible = visible & real[:, None, None, :] | torch.eye(3 * steps, dtype=torch.bool)
        for block in self.blocks:
            x = block(x, visible)
        x = self.norm(x).reshape(batch, steps, 3, -1)
        return self.predict_action(x[:, :, 1])

    def action_loss(self, returns_to_go, states, actions, timesteps):
        return F.mse_loss(self(returns_to_go, states, actions, timesteps), actions)

    @torch.no_grad()
    def get_action(self, returns_to_go, states, actions, timesteps):
        """The action of the last step of a history (t, ...), whose own action may be anything."""
        missing = self.context - len(states)
        mask = torch.cat((torch.zeros(max(missing, 0)), torch.ones(len(states))))[-self.context :]
        filled = [F.pad(x, (0, 0, missing, 0))[None] for x in (returns_to_go, states, actions)]
        return self(*filled, F.pad(timesteps, (missing, 0))[None], attention_mask=mask[None])[0, -1]

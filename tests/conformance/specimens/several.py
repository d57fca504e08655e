"""Models that take several inputs of different forms, and models of two sides that are compared."""

import torch
import torch.nn.functional as F
from encoders import HEADS, WIDTH, Encoder
from torch import nn


def blocks(n_layers=2, **options):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, 0.0, batch_first=True, norm_first=True, **options)
    return nn.TransformerEncoder(layer, n_layers, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)


class DecisionTransformer(nn.Module):
    """Calling: states, actions and returns are vectors of three widths, and times are numbers and no ids."""

    def __init__(self, state_dim=5, act_dim=3):
        super().__init__()
        self.time, self.reward = nn.Linear(1, WIDTH), nn.Linear(1, WIDTH)
        self.state, self.action = nn.Linear(state_dim, WIDTH), nn.Linear(act_dim, WIDTH)
        self.blocks, self.head = blocks(), nn.Linear(WIDTH, act_dim)

    def forward(self, states, actions, returns_to_go, timesteps):
        batch, length, _ = states.shape
        time = self.time(timesteps.unsqueeze(-1))
        kinds = (self.reward(returns_to_go), self.state(states), self.action(actions))
        x = torch.stack([kind + time for kind in kinds], 2).reshape(batch, 3 * length, WIDTH)
        future = torch.ones(3 * length, 3 * length, dtype=torch.bool).triu(1)
        return torch.tanh(self.head(self.blocks(x, mask=future).reshape(batch, length, 3, WIDTH)[:, :, 1]))


class BatchForecaster(nn.Module):
    """Calling: a dict of tensors, of which one is as long as what is foretold, and one is a number for each sample."""

    def __init__(self, n_series=7, n_calendar=3, horizon=4):
        super().__init__()
        self.horizon = horizon
        self.value, self.calendar = nn.Linear(1, WIDTH), nn.Linear(n_calendar, WIDTH)
        self.series, self.places = nn.Embedding(n_series, WIDTH), nn.Parameter(torch.randn(40, WIDTH) * 0.1)
        self.encoder, self.head = blocks(), nn.Linear(WIDTH, 1)
        self.reader = nn.TransformerDecoderLayer(WIDTH, HEADS, 24, 0.0, batch_first=True)

    def forward(self, batch):
        past = batch["past_values"]
        x = self.value(past.unsqueeze(-1)) + self.calendar(batch["past_calendar"]) + self.places[: past.shape[1]]
        memory = self.encoder(x + self.series(batch["series_id"]).unsqueeze(1))
        asked = self.calendar(batch["future_calendar"]) + self.places[-self.horizon :]
        return {"mean": self.head(self.reader(asked, memory)).squeeze(-1)}


class Towers(nn.Module):
    """Kind: two sequences of tokens that get a vector each are no sequence to sequence."""

    def __init__(self):
        super().__init__()
        self.query_tower, self.text_tower = Encoder(), Encoder()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def loss(self, pair):
        queries, texts = self(*pair)
        return F.cross_entropy(queries @ texts.T * self.scale.exp(), torch.arange(len(queries)))

    def forward(self, query_ids, text_ids):
        return self.query_tower(query_ids).mean(1), self.text_tower(text_ids).mean(1)


class PairOfTowers(Towers):
    """Calling: both sides stand in one argument, a pair."""

    def forward(self, pair):
        queries, texts = pair
        return (self.query_tower(queries).mean(1) * self.text_tower(texts).mean(1)).sum(-1)


class SwitchedTowers(Towers):
    """Gradient, used: a tower that another argument asks for is no idle part."""

    def forward(self, ids, side="query"):
        return (self.query_tower if side == "query" else self.text_tower)(ids).mean(1)


class EarlyTowers(Towers):
    """Gradient, used: what follows an early return that another argument decides is no idle part."""

    def forward(self, ids, is_query: bool = True):
        if is_query:
            return self.query_tower(ids).mean(1)
        return self.text_tower(ids).mean(1)


class NamedTowers(nn.Module):
    """Gradient, used: of a dict of towers an argument names one."""

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleDict({"query": Encoder(), "text": Encoder()})

    def forward(self, ids, side="query"):
        return self.towers[side](ids).mean(1)


class ComparedTowers(Towers):
    """Calling: where forward gives a loss only, the side that has a method of its own is run by it."""

    def encode_query(self, ids):
        return self.query_tower(ids).mean(1)

    def encode_text(self, ids):
        return self.text_tower(ids).mean(1)

    def forward(self, query_ids, text_ids):
        scores = self.encode_query(query_ids) @ self.encode_text(text_ids).T * self.scale.exp()
        return F.cross_entropy(scores, torch.arange(len(scores)))


class RewardModel(nn.Module):
    """Calling: one number for each text, without an axis of its own."""

    def __init__(self):
        super().__init__()
        self.encoder, self.score = Encoder(), nn.Linear(WIDTH, 1)

    def forward(self, input_ids):
        return self.score(self.encoder(input_ids)[:, -1]).squeeze(-1)


class AssembledTagger(nn.Module):
    """Making: a constructor that takes parts, and a classmethod that makes them."""

    def __init__(self, encoder, head):
        super().__init__()
        self.encoder, self.head = encoder, head

    @classmethod
    def tiny(cls, n_tags=5):
        return cls(Encoder(), nn.Linear(WIDTH, n_tags))

    def forward(self, input_ids):
        return self.head(self.encoder(input_ids))


class LiteralPadding(AssembledTagger):
    """Padding: that 0 is padding stands in the code alone, where the mask is made."""

    def __init__(self, encoder=None, head=None):
        super().__init__(encoder or Encoder(), head or nn.Linear(WIDTH, 5))
        self.encoder.words = nn.Embedding(*self.encoder.words.weight.shape)

    def forward(self, input_ids):
        pad_mask = input_ids.eq(0)
        return self.head(self.encoder(input_ids, ~pad_mask[:, None, None, :]))

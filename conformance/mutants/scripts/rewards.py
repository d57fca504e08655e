"""A writer learns by rewards: several answers to each prompt, advantages within the group, a clipped ratio."""

import torch
import torch.nn.functional as F
from torch import nn

WORDS, PROMPTS, GROUP, LENGTH, CLIP = 12, 4, 6, 5, 0.2


class Writer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(16, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, ids):
        size = ids.shape[1]
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        return self.head(self.layer(self.words(ids) + self.places(torch.arange(size)), src_mask=future))


@torch.no_grad()
def answers_to(model, prompts):
    ids = prompts
    for _ in range(LENGTH):
        word = torch.multinomial(model(ids)[:, -1].softmax(-1), 1)
        ids = torch.cat([ids, word], dim=1)
    return ids


def log_probabilities(model, ids):
    every = F.log_softmax(model(ids[:, :-1]), dim=-1)
    return every.gather(2, ids[:, 1:, None])[..., 0][:, -LENGTH:]


def policy_loss(now, before, advantage):
    ratio = torch.exp(now - before)
    gain = torch.min(ratio * advantage, torch.clamp(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    return -gain.mean()


def main():
    torch.manual_seed(6)
    policy = Writer()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(8):
        prompts = torch.randint(WORDS, (PROMPTS, 2)).repeat_interleave(GROUP, 0)
        ids = answers_to(policy, prompts)
        rewards = (ids[:, -LENGTH:] % 2 == 0).float().mean(1).view(PROMPTS, GROUP)
        advantage = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        advantage = advantage.flatten()[:, None]
        with torch.no_grad():
            before = log_probabilities(policy, ids)
        for _ in range(2):
            loss = policy_loss(log_probabilities(policy, ids), before, advantage)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        print(step, rewards.mean().item())


if __name__ == "__main__":
    main()

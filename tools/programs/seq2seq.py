"""Train the encoder, attention and decoder of keon/seq2seq (its `model.py` on the path), for `tools.standin`."""

from itertools import pairwise

import torch
from model import Decoder, Encoder

source, target = torch.randint(0, 11, (7, 3)), torch.randint(0, 13, (5, 3))
encoder, decoder = Encoder(11, 8, 12, 2, 0.0), Decoder(8, 12, 13, 1, 0.2)
optimizers = [torch.optim.Adam(part.parameters(), lr=0.01) for part in (encoder, decoder)]
for step in range(4):
    codes, hidden = encoder(source)
    hidden, loss = hidden[: decoder.n_layers], 0.0
    for word, following in pairwise(target):
        output, hidden, weights = decoder(word, hidden, codes)
        loss = loss + torch.nn.functional.nll_loss(output, following)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    print(f"step {step}: loss {loss.item():.5f}, weights {weights.max().item():.5f}")

"""Train two models of knowledge-tracing-collection-pytorch on its own batches (its root on the path), for
`tools.standin`. Their method for that ends in `torch.save`, which the stand-in does not have."""

import numpy as np
import torch
from models.dkt import DKT, binary_cross_entropy, one_hot
from models.sakt import SAKT
from models.utils import collate_fn

rng = np.random.default_rng(0)
pupils = [(rng.integers(0, 7, n), rng.integers(0, 2, n)) for n in (6, 9, 4, 9, 7, 5)]
batches = [collate_fn(pupils[:3]), collate_fn(pupils[3:])]
for model in (DKT(7, 12, 12), SAKT(7, 8, 12, 3, 0.2)):
    model.train(isinstance(model, DKT))  # attention draws its dropout where it is not shared
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for question, answer, following, wanted, seen in batches * 2:
        if isinstance(model, DKT):
            known = (model(question.long(), answer.long()) * one_hot(following.long(), 7)).sum(-1)
        else:
            known, _ = model(question.long(), answer.long(), following.long())
        loss = binary_cross_entropy(torch.masked_select(known, seen), torch.masked_select(wanted, seen))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{type(model).__name__}: loss {loss.item():.5f}")

"""Train PyTorch's example of a graph attention network (its `main.py` on the path), for `tools.standin`."""

import torch
from main import GAT

features, labels = torch.randn(9, 6), torch.randint(0, 4, (9,))
edges = ((torch.rand(9, 9) > 0.6).float() + torch.eye(9)).clamp(max=1.0)
model = GAT(6, 8, 2, 4, dropout=0.3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for step in range(5):
    output = model(features, edges)
    loss = torch.nn.NLLLoss()(output, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.5f}")

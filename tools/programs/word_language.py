"""Train the models of PyTorch's example of a word language model (its `model.py` on the path), for `tools.standin`."""

import torch
from model import RNNModel, TransformerModel

ids = torch.randint(0, 17, (9, 4))
inputs, targets = ids[:-1], ids[1:].reshape(-1)
models = {kind: RNNModel(kind, 17, 12, 12, 2, 0.0, True) for kind in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")}
models["Transformer"] = TransformerModel(17, 12, 3, 20, 2, 0.0)
for kind, model in models.items():
    model.eval()  # the Transformer's layers draw their dropout where it is not shared
    hidden = None if kind == "Transformer" else model.init_hidden(4)
    for step in range(4):
        output = model(inputs) if hidden is None else model(inputs, hidden)[0]
        loss = torch.nn.functional.nll_loss(output.view(-1, 17), targets)
        model.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-0.5)
        print(f"{kind} step {step}: loss {loss.item():.5f}, gradient norm {norm.item():.5f}")

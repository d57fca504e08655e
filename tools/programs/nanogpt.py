"""Train, evaluate and sample from nanoGPT's model (its `model.py` on the path), for `tools.standin`."""

import torch
from model import GPT, GPTConfig

config = GPTConfig(block_size=12, vocab_size=17, n_layer=2, n_head=3, n_embd=24, dropout=0.0)
model = GPT(config)
ids = torch.randint(0, 17, (4, 13))
inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
targets[0, :5] = -1  # ignored
model(inputs, targets)
optimizer = model.configure_optimizers(weight_decay=0.1, learning_rate=1e-3, betas=(0.9, 0.95), device_type="cpu")
for step in range(8):
    logits, loss = model(inputs, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.5f}, gradient norm {norm.item():.5f}")
model.eval()
print(model.generate(ids[:1, :3], 12, temperature=0.8, top_k=5).tolist())

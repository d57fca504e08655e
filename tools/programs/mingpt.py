"""Train, evaluate and sample from minGPT's model (its folder `mingpt` on the path), for `tools.standin`."""

import torch
from mingpt.model import GPT
from mingpt.utils import CfgNode

config = GPT.get_default_config()
config.model_type, config.n_layer, config.n_head, config.n_embd = None, 2, 3, 24
config.vocab_size, config.block_size = 17, 12
model = GPT(config)
ids = torch.randint(0, 17, (4, 13))
inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
model(inputs, targets)
optimizer = model.configure_optimizers(CfgNode(weight_decay=0.1, learning_rate=1e-2, betas=(0.9, 0.95)))
for step in range(8):
    logits, loss = model(inputs, targets)
    model.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print(f"step {step}: loss {loss.item():.5f}, gradient norm {norm.item():.5f}")
model.eval()
print(model.generate(ids[:1, :3], 12, do_sample=True, top_k=5).tolist(), model.generate(ids[1:, :3], 9).tolist())

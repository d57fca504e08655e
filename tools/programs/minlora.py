"""Add, train, switch and merge the low-rank changes of minLoRA (its root on the path), for `tools.standin`."""

import torch
from minlora import add_lora, disable_lora, enable_lora, get_lora_params, get_lora_state_dict

model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 5))
x, wanted = torch.randn(4, 6), torch.randn(4, 5)
model(x)
add_lora(model)
print(sorted(name for name, _ in model.named_parameters()))
model(x)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):
            parameter.copy_(torch.randn(*parameter.shape) * 0.1)
        if name.endswith("lora_A"):
            parameter.copy_(torch.randn(*parameter.shape))
optimizer = torch.optim.AdamW(get_lora_params(model), lr=0.01)
for step in range(5):
    loss = ((model(x) - wanted) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.5f}")
print({name: tuple(value.shape) for name, value in get_lora_state_dict(model).items()})
disable_lora(model)
model(x)
enable_lora(model)
model(x)
for layer in (model[0], model[2]):  # its merge_lora raises RuntimeError on torch 2.13: a dict changes in its loop
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
print([name for name, _ in model.named_parameters()])
model(x)

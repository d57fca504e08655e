"""Training on the device: modules, losses, optimizers and compiled steps do what they do on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad import kernels, nn
from minigrad.compiler import compile
from minigrad.optim import SGD, AdamW
from minigrad.optim.lr_scheduler import LambdaLR
from transformer import training


@pytest.fixture(autouse=True)
def _ops_by_reference():
    """What is tested here is the engine, not the kernels: ops are computed by their references."""
    with kernels.use("reference"):
        yield


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 6)
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 8)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(8, 7)
        self.register_buffer("counts", mg.zeros(7, dtype=mg.int64))

    def forward(self, ids):
        return self.out(self.drop(F.relu(self.up(self.norm(self.tokens(ids))))))


def train(device, compiled, optimizer=AdamW, steps=4, lr=None):
    mg.manual_seed(0)
    model = Network().to(device)
    rate = mg.tensor(0.01, dtype=mg.float64) if lr is None else lr
    update = optimizer(model.parameters(), lr=rate)
    schedule = LambdaLR(update, lambda epoch: 1.0 / (1 + epoch))

    def step(ids):
        update.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).reshape(-1, 7), ids[:, 1:].reshape(-1))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        update.step()
        return loss, norm

    run = compile(step) if compiled else step
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        loss, norm = run(mg.tensor(rng.integers(0, 7, (3, 5)), device=device))
        losses.append((loss, norm))
        schedule.step()
    return [(float(a), float(b)) for a, b in losses], {n: p.detach().numpy() for n, p in model.named_parameters()}


def test_module_to_moves_all_of_it(cuda):
    model = Network()
    model.out.weight.grad = mg.ones_like(model.out.weight)
    assert model.cuda() is model
    assert all(t.is_cuda for t in [*model.parameters(), *model.buffers(), model.out.weight.grad])
    assert model.counts.dtype == mg.int64
    state = model.state_dict()
    model.cpu().load_state_dict(state)
    assert not any(t.is_cuda for t in [*model.parameters(), *model.buffers(), model.out.weight.grad])


@pytest.mark.parametrize("optimizer", [AdamW, SGD])
@pytest.mark.parametrize("compiled", [False, True])
def test_training_is_the_cpus(cuda, compiled, optimizer):
    expected_losses, expected = train("cpu", False, optimizer)
    losses, parameters = train("cuda", compiled, optimizer)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for name, value in parameters.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_trained_state_goes_from_one_device_to_the_other(cuda):
    mg.manual_seed(0)
    there = Network().to("cuda")
    update = AdamW(there.parameters(), lr=0.01)
    there(mg.tensor([[1, 2]], device="cuda")).sum().backward()
    update.step()
    here = Network()
    here.load_state_dict(there.state_dict())
    again = AdamW(here.parameters(), lr=0.01)
    again.load_state_dict(update.state_dict())
    assert all(not value.is_cuda for state in again.state.values() for value in state.values())
    for name, parameter in here.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), there.state_dict()[name].numpy())


def test_a_trainers_step_moves_its_batch_to_the_model(cuda):
    def updated(device):
        mg.manual_seed(0)
        model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5)).to(device)
        updater = training.Updater(model, lambda groups: SGD(groups, lr=0.1), training.token_loss(0), 0, accumulate=2)
        ids = mg.tensor([[1, 2, 3], [4, 0, 0]])
        return [updater.update(training.Batch((ids,), ids)) for _ in range(3)]

    np.testing.assert_allclose(updated("cuda"), updated("cpu"), rtol=1e-5)

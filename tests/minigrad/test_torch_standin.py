"""The stand-in for torch: its names against torch's own, a PyTorch program run unchanged on both, and its errors."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad.torch as standin
from minigrad.torch._missing import offered

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
MODULES = (
    "",
    ".nn",
    ".nn.functional",
    ".nn.init",
    ".nn.utils",
    ".optim",
    ".optim.lr_scheduler",
    ".utils.data",
    ".cuda",
)
OWN = {"install"}  # not torch's

PROGRAM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(inplace=True), nn.Linear(2 * width, width))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, dim=-1))
        mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=x.device))
        weights = F.softmax((q @ k.mT / q.size(-1) ** 0.5).masked_fill(~mask, float("-inf")), dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.ffn(self.norms[1](x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 12, padding_idx=0)
        self.block = Block(12, 3)
        self.head = nn.Linear(12, 11, bias=False)

    def forward(self, ids):
        return self.head(self.block(self.embedding(ids)))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Model().to(device)
with torch.no_grad():
    for i, parameter in enumerate(model.parameters()):
        parameter.copy_(torch.sin(torch.arange(parameter.numel()).float() + i).view_as(parameter) * 0.3)
ids = (torch.arange(48) * 7 % 11).reshape(6, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
for epoch in range(2):
    for inputs, targets in DataLoader(TensorDataset(ids[:, :-1], ids[:, 1:]), batch_size=4):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.reshape(-1), ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        print(f"{loss.item():.4f} {scheduler.get_last_lr()[0]:.4f}")
print(device, len(sys.argv), model(ids).argmax(-1)[0].tolist())
"""


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, env=environment, cwd=cwd
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_torchs(module: str) -> None:
    ours = importlib.import_module(f"minigrad.torch{module}")
    theirs = importlib.import_module(f"torch{module}")
    names = set(offered(vars(ours))) - OWN
    assert len(names) > 1
    assert not [name for name in names if not hasattr(theirs, name)]


X = np.array([[0.5, -1.25, 2.0, 0.0], [3.0, 0.75, -0.5, 1.5]], np.float32)
IDS = np.array([2, 1])
CALLS = {
    "zeros": lambda t, x, ids: t.zeros(2, 3, dtype=t.float64, device="cpu"),
    "full": lambda t, x, ids: t.full((2, 1), 7, dtype=t.long, device=t.device("cpu")),
    "arange": lambda t, x, ids: t.arange(0, 9, 2, device=x.device),
    "Tensor": lambda t, x, ids: t.Tensor([1, 2]),
    "clip": lambda t, x, ids: t.clip(x, -1, 1),
    "concat": lambda t, x, ids: t.concat([x, x], dim=1),
    "max": lambda t, x, ids: t.max(x, dim=1).values,
    "where": lambda t, x, ids: t.where(x > 0, x, 0.0),
    "einsum": lambda t, x, ids: t.einsum("ij,kj->ik", x, x),
    "topk": lambda t, x, ids: t.topk(x, 2)[1],
    "var": lambda t, x, ids: t.var(x, dim=-1, unbiased=False),
    "finfo": lambda t, x, ids: t.full((1,), t.finfo(x.dtype).min),
    "cross_entropy": lambda t, x, ids: t.nn.functional.cross_entropy(x, ids, label_smoothing=0.1, ignore_index=1),
    "nll_loss": lambda t, x, ids: t.nn.NLLLoss(ignore_index=1, reduction="sum")(x, ids),
    "kl_div": lambda t, x, ids: t.nn.KLDivLoss(reduction="batchmean")(x, t.softmax(x, dim=0)),
    "kl_div of logs": lambda t, x, ids: t.nn.functional.kl_div(
        x, t.log_softmax(x, dim=1), reduction="sum", log_target=True
    ),
    "kl_div at 0": lambda t, x, ids: t.nn.functional.kl_div(x, x.clamp(min=0), reduction="sum"),
    "l1_loss": lambda t, x, ids: t.nn.L1Loss()(x, x * 2 + 1),
    "bce": lambda t, x, ids: t.nn.BCEWithLogitsLoss()(x * 100, (x > 1).float()),
    "pad": lambda t, x, ids: t.nn.functional.pad(x, (1, 2), value=3.0),
    "rms_norm": lambda t, x, ids: t.nn.functional.rms_norm(x, (4,), x[0]),
    "layer_norm": lambda t, x, ids: t.nn.functional.layer_norm(x, x.shape[-1:]),
    "leaky_relu": lambda t, x, ids: t.nn.LeakyReLU(0.2)(x),
    "softmax": lambda t, x, ids: t.nn.Softmax(dim=-1)(x) + t.nn.LogSoftmax(dim=0)(x),
    "flatten": lambda t, x, ids: t.nn.Flatten(0)(x),
    "relu in place": lambda t, x, ids: (t.nn.ReLU(inplace=True)(x), x)[1],
    "causal": lambda t, x, ids: t.nn.functional.scaled_dot_product_attention(
        x[None, None], *[t.stack([x, x + 1]).reshape(1, 1, 4, 4)] * 2, is_causal=True
    ),
    "new_zeros": lambda t, x, ids: x.new_zeros(2, 3),
    "new_ones": lambda t, x, ids: x.new_ones((2, 3), dtype=t.long),
    "new_full": lambda t, x, ids: ids.new_full((2,), 7, device="cpu"),
    "new_empty": lambda t, x, ids: x.new_empty(2, 0),
    "new_tensor": lambda t, x, ids: x.new_tensor([1, 2]),
    "nonzero": lambda t, x, ids: t.nonzero(x > 0),
    "nonzero as a tuple": lambda t, x, ids: x.nonzero(as_tuple=True)[1],
    "masked_select": lambda t, x, ids: x.masked_select(x > 0) + t.masked_select(x, x[:1] > 0).sum(),
    "unique": lambda t, x, ids: t.unique(t.tensor([[3, 1], [1, 2]]), return_counts=True)[1],
    "unique inverse": lambda t, x, ids: t.tensor([[3, 1], [1, 2]]).unique(return_inverse=True)[1],
    "bincount": lambda t, x, ids: t.bincount(ids, minlength=5),
    "isin": lambda t, x, ids: t.isin(ids, t.tensor([1, 5])),
    "isclose": lambda t, x, ids: t.isclose(x, x + 1e-9),
    "logic": lambda t, x, ids: t.logical_and(x > 0, t.logical_not(x)).logical_or(x == 3).logical_xor(x < 0),
    "count_nonzero": lambda t, x, ids: t.count_nonzero(x, dim=1),
    "movedim": lambda t, x, ids: x[None].movedim(-1, 0) + t.movedim(x[:, None], (0, 2), (2, 0)),
    "swapaxes": lambda t, x, ids: x.swapaxes(0, 1) + t.swapaxes(x, -1, 0),
    "tile": lambda t, x, ids: t.tile(x, (2,)) + x.tile(1, 2),
    "diagonal": lambda t, x, ids: t.diagonal(t.stack([x, x + 1]), 1, 1, 2),
    "diagonal below": lambda t, x, ids: x.diagonal(-1),
    "diag": lambda t, x, ids: t.diag(x[0], -1) @ t.diag(t.diag(x, 2), 3),
    "hstack": lambda t, x, ids: t.hstack([x, x]) @ t.vstack([x[0], x, x, x, x[1]])[:, :2],
    "tril_indices": lambda t, x, ids: t.tril_indices(3, 4, 1) + t.triu_indices(4, 4)[:, :9],
    "addmm": lambda t, x, ids: t.addmm(x[0], x, t.diag(x[1]), beta=0.5, alpha=2),
    "baddbmm": lambda t, x, ids: t.baddbmm(x[None, :, :2], x[None], x[None].mT, alpha=0.5),
    "add with alpha": lambda t, x, ids: x.clone().add_(x, alpha=-0.5).sub(x, alpha=2),
    "addcmul": lambda t, x, ids: x.clone().addcmul_(x, x, value=0.5).addcdiv_(x, x + 5, value=2.0),
    "lerp": lambda t, x, ids: x.clone().lerp_(x * 2, 0.25) + t.lerp(x, x * 3, 0.5),
    "cumprod": lambda t, x, ids: t.cumprod(x, dim=-1),
    "take_along_dim": lambda t, x, ids: t.take_along_dim(x, x.argsort(-1)[:1], dim=1),
    "index_fill": lambda t, x, ids: x.clone().index_fill_(1, ids, 9.0),
    "index_add": lambda t, x, ids: x.clone().index_add_(1, ids, x[:, :2], alpha=2).index_add(0, ids - 1, x),
    "type": lambda t, x, ids: x.type(t.float64).to(x.device, non_blocking=True),
    "elu": lambda t, x, ids: t.nn.ELU(0.5)(x) + t.nn.functional.elu(x),
    "glu": lambda t, x, ids: t.nn.GLU()(x) + t.nn.functional.glu(x, 1),
    "softplus": lambda t, x, ids: t.nn.Softplus()(x) + t.nn.functional.logsigmoid(x) + t.nn.functional.relu6(x * 3),
    "cosine_similarity": lambda t, x, ids: t.nn.functional.cosine_similarity(x, x + 1, dim=-1),
    "layers on a device": lambda t, x, ids: t.cat(
        [
            layer(x).detach()
            for layer in (
                t.nn.LayerNorm(4, device="cpu", dtype=t.float32),
                t.nn.RMSNorm(4, device=t.device("cpu")),
                t.nn.BatchNorm1d(4, device="cpu"),
            )
        ]
    ),
    "from_pretrained": lambda t, x, ids: t.nn.Embedding.from_pretrained(x)(ids - 1),
    "grouped": lambda t, x, ids: t.nn.functional.scaled_dot_product_attention(
        t.stack([x, -x, x * 2, x + 1])[None], *[t.stack([x, x + 1])[None]] * 2, enable_gqa=True
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_give_what_torch_gives(name: str) -> None:
    ours = CALLS[name](standin, standin.tensor(X), standin.tensor(IDS))
    theirs = CALLS[name](torch, torch.tensor(X), torch.tensor(IDS))
    assert str(theirs.dtype) == f"torch.{ours.dtype}"
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("StepLR", {"step_size": 2, "gamma": 0.5}),
        ("ExponentialLR", {"gamma": 0.8}),
        ("LinearLR", {"start_factor": 0.25, "total_iters": 3}),
        ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
        ("LambdaLR", {"lr_lambda": lambda epoch: 1.0 / (epoch + 1)}),
    ],
)
def test_schedules_give_torchs_rates(name: str, settings: dict[str, object]) -> None:
    rates = []
    for side in (standin, torch):
        optimizer = side.optim.SGD([side.zeros(1, requires_grad=True)], lr=0.3)
        scheduler = getattr(side.optim.lr_scheduler, name)(optimizer, **settings)
        rates.append([])
        for _ in range(7):
            rates[-1] += scheduler.get_last_lr()
            optimizer.step()
            scheduler.step()
    assert rates[0] == pytest.approx(rates[1], rel=1e-9)


def test_devices_read_like_torchs() -> None:
    ours, theirs = standin.ones(1).device, torch.ones(1).device
    assert (str(ours), repr(ours), ours.type, ours.index) == (str(theirs), repr(theirs), theirs.type, theirs.index)
    assert ours == standin.device("cpu") == "cpu"
    assert repr(standin.device("cuda:1")) == repr(torch.device("cuda:1")) == repr(standin.device("cuda", 1))
    with pytest.raises(ValueError, match="'gpu' names no device"):
        standin.device("gpu")
    with pytest.raises(ValueError, match="no device 'cuda' here"):
        standin.zeros(2, device="cuda")


def test_what_is_missing_is_named() -> None:
    for name in ("Conv2d", "polar"):
        with pytest.raises(AttributeError, match=rf"no torch\.(nn\.)?{name}") as told:
            _ = getattr(standin.nn if name == "Conv2d" else standin, name)
        assert len(str(told.value)) < 120
    with pytest.raises(AttributeError, match="no attribute 'lu_solve'"):
        standin.ones(2).lu_solve()
    with pytest.raises(NotImplementedError, match=r"nn\.Embedding\(max_norm=1"):
        standin.nn.Embedding(3, 2, max_norm=1.0)
    with pytest.raises(AttributeError, match=r"no torch\.argmaxx; it has argmax"):
        _ = standin.argmaxx
    with pytest.raises(NotImplementedError, match=r"torch\.save: .*save_file"):
        standin.save({}, "x.pt")
    assert not hasattr(standin.nn.functional, "conv2d")


def test_loaders_batch_and_collate_as_torchs() -> None:
    items = [{"x": np.full(2, i, np.float32), "y": i, "name": str(i), "pair": (float(i), i)} for i in range(5)]
    for drop_last in (False, True):
        ours, theirs = (
            list(side.utils.data.DataLoader(items, batch_size=2, drop_last=drop_last)) for side in (standin, torch)
        )
        assert len(ours) == len(theirs) == 3 - drop_last
        for a, b in zip(ours, theirs, strict=True):
            assert (a["name"], a["y"].tolist(), a["x"].tolist()) == (b["name"], b["y"].tolist(), b["x"].tolist())
            assert [str(t.dtype) for t in a["pair"]] == [str(t.dtype)[6:] for t in b["pair"]]
    shuffled = [b.item() for b in standin.utils.data.DataLoader(list(range(9)), shuffle=True)]
    assert sorted(shuffled) == list(range(9))
    parts = standin.utils.data.random_split(list(range(9)), [4, 5])
    assert sorted(item for part in parts for item in (part[i] for i in range(len(part)))) == list(range(9))


@pytest.mark.slow
def test_a_pytorch_program_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    ours = run("-m", "minigrad.torch", str(script), "argument", cwd=tmp_path)
    theirs = run(str(script), "argument", cwd=tmp_path)
    assert not theirs.stderr
    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == theirs.stdout
    assert "cpu 2 [" in ours.stdout


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import torch.distributed\n", encoding="utf-8")
    assert "No module named 'torch.distributed'" in run("-m", "minigrad.torch", str(script)).stderr
    absent = run("-m", "minigrad.torch", str(tmp_path / "absent.py"))
    assert absent.returncode == 2
    assert "there is no script" in absent.stderr


DOCUMENT = """
```python
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.map = nn.Linear(d_model, d_model)

    def forward(self, x):
        return torch.tanh(self.map(x))


raise KeyError("a sketch's end")
```
"""


@pytest.mark.slow
def test_the_tool_compares_both_sides(tmp_path: Path) -> None:
    (tmp_path / "document.md").write_text(DOCUMENT, encoding="utf-8")
    told = run("-m", "tools.standin", str(tmp_path))
    row = told.stdout.splitlines()[0].split(" | ")
    assert row[:4] == ["| document", "2", "4", "0"], told.stderr  # an output, gradients of x, weight and bias
    assert row[5].startswith("equal (a part runs on neither: KeyError")
    assert told.returncode == 0


def test_the_tool_sees_differences() -> None:
    specification = importlib.util.spec_from_file_location("tools_standin", ROOT / "tools" / "standin.py")
    tool = importlib.util.module_from_spec(specification)
    sys.modules["tools_standin"] = tool
    specification.loader.exec_module(tool)

    def verdict(**ours: object) -> str:
        reference = {"text": "loss 1.25, 3", "outputs": [("net", np.array([1.0, -np.inf]))], "errors": []}
        return tool.compare(tool.Program("p", "-", ""), reference, {**reference, **ours}).verdict

    assert verdict() == verdict(text="cost 1.2501 3") == "equal"
    assert verdict(text="loss 1.26, 3") == "prints 1.25 on torch, 1.26 here"
    assert verdict(text="loss 1.25") == "prints 2 numbers on torch, 1 here"
    assert verdict(outputs=[("net", np.array([1.001, -np.inf]))]) == "differs"
    assert verdict(outputs=[("net", np.array([1.0, np.inf]))]) == "differs"
    assert verdict(outputs=[("net", np.array([[1.0, -np.inf]]))]) == "net: shape (2,) on torch, (1, 2) here"
    assert verdict(outputs=[]).startswith("other outputs")
    assert verdict(errors=["ValueError: no"]) == "torch: runs; minigrad.torch: ValueError: no"


@pytest.mark.skipif("CONFORMANCE_DOCUMENTS" not in os.environ, reason="CONFORMANCE_DOCUMENTS names no folder")
def test_the_documents_listings_give_torchs_numbers() -> None:
    told = run("-m", "tools.standin", os.environ["CONFORMANCE_DOCUMENTS"], "--limit", "280")
    assert told.returncode == 0, told.stdout + told.stderr


def test_truncated_normal_numbers_stay_inside() -> None:
    weight = standin.nn.init.trunc_normal_(standin.empty(2000), std=2.0, a=-1.0, b=3.0)
    assert float(weight.min()) >= -1.0
    assert 2.0 < float(weight.max()) <= 3.0
    with pytest.raises(ValueError, match="a must be below b"):
        standin.nn.init.trunc_normal_(weight, a=1.0, b=1.0)


def test_parameters_in_a_list_are_the_modules() -> None:
    state = {}
    for side in (standin, torch):
        module = side.nn.Module()
        module.weights = side.nn.ParameterList([side.ones(2), side.nn.Parameter(side.zeros(3))])
        module.weights.append(side.nn.Parameter(side.ones(1)))
        assert [len(p) for p in module.weights] == [2, 3, 1]
        assert len(module.weights[1]) == 3
        state[side] = {name: p.tolist() for name, p in module.state_dict().items()}
    assert state[standin] == state[torch]

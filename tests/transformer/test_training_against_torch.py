"""The same language model in torch, from the same weights, on the same batches: the same losses, held-out ones too."""

import numpy as np
import pytest

from transformer import tasks
from transformer.cli.settings import Settings, collect
from transformer.training import Batch, Trainer

torch = pytest.importorskip("torch")
F = torch.nn.functional

SMALL = {
    "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_ff": 48, "max_len": 32, "batch_size": 8,
    "steps": 20, "warmup": 3, "lr": 3e-3, "weight_decay": 0.1,
}  # fmt: skip


def rotate(x):
    """RoPE on pairs (0, 1), (2, 3), ... of x (B, H, T, d), by complex multiplication."""
    d = x.shape[-1]
    angles = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def logits(p, ids, sizes):
    """The decoder of document 002, written with torch's functions over a table of parameters."""
    x = F.embedding(ids, p["token_embedding.weight"])
    heads, shared = sizes.n_heads, sizes.n_heads // sizes.n_kv_heads
    for i in range(sizes.n_layers):
        name = f"layers.{i}."
        h = F.rms_norm(x, x.shape[-1:], p[name + "attn_norm.weight"], 1e-6)
        q, k, v = (
            F.linear(h, p[f"{name}attn.{part}_proj.weight"]).unflatten(-1, (-1, sizes.d_model // heads)).transpose(1, 2)
            for part in "qkv"
        )
        k, v = rotate(k).repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        a = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).flatten(-2), p[name + "attn.out_proj.weight"])
        h = F.rms_norm(x, x.shape[-1:], p[name + "ffn_norm.weight"], 1e-6)
        gate, up = (F.linear(h, p[f"{name}ffn.{part}.weight"]) for part in ("gate_proj", "up_proj"))
        x = x + F.linear(F.silu(gate) * up, p[name + "ffn.down_proj.weight"])
    return F.linear(F.rms_norm(x, x.shape[-1:], p["norm.weight"], 1e-6), p["token_embedding.weight"])


def loss_of(p, batch, sizes):
    ids, labels = (torch.from_numpy(np.asarray(t)) for t in (*batch.inputs, batch.labels))
    return F.cross_entropy(logits(p, ids, sizes).flatten(0, 1), labels.flatten())


def compare(settings: Settings, tolerance: float) -> None:
    """Train both; the held-out losses must agree within `tolerance`."""
    task = tasks.make("text", settings, settings.seed)
    p = {
        name: torch.nn.Parameter(torch.from_numpy(parameter.detach().numpy().copy()))
        for name, parameter in task.model.named_parameters()
    }
    optimizer = torch.optim.AdamW(
        [
            {"params": [q for q in p.values() if q.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [q for q in p.values() if q.ndim == 1], "weight_decay": 0.0},
        ],
        lr=settings.lr,
        betas=(0.9, settings.beta2),
    )
    trainer, ours = Trainer(task.model, task.batch, settings, pad_id=task.pad_id), []
    update = trainer.updater.update
    trainer.updater.update = lambda batch: ours.append(update(batch)) or ours[-1]
    trainer.run()
    theirs, warm = [], settings.warmup
    for step in range(settings.steps):
        done = (step - warm) / (settings.steps - warm)
        rate = settings.lr * ((step + 1) / warm if step < warm else 0.1 + 0.45 * (1 + np.cos(np.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(p, task.batch(step), settings)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), settings.clip)
        optimizer.step()
        theirs.append((loss.item(), norm.item()))
    np.testing.assert_allclose(ours[:5], theirs[:5], rtol=1e-3)
    assert theirs[-1][0] < 0.8 * theirs[0][0]
    rows, losses = 0, 0.0
    with torch.no_grad():
        for windows in task.side_by_side(settings.max_len + 1):
            losses += len(windows) * loss_of(p, Batch((windows[:, :-1],), windows[:, 1:]), settings).item()
            rows += len(windows)
    found = task.evaluate()["held_out_loss"]
    print(f"held-out loss: {found:.4f}, in torch {losses / rows:.4f}")
    assert found == pytest.approx(losses / rows, rel=tolerance)


def test_a_few_steps_are_torchs():
    compare(collect("text", {}, SMALL), tolerance=1e-3)


@pytest.mark.deep
def test_the_commands_character_model_reaches_the_loss_that_it_reaches_in_torch():
    """`python -m transformer train text`, as it stands."""
    compare(collect("text", {}, {}), tolerance=1e-2)

"""The same language model in torch, from the same weights, on the same batches: the same losses, held-out ones too."""

import numpy as np
import pytest

from transformer import tasks
from transformer.training import Batch, Trainer, TrainSettings

torch = pytest.importorskip("torch")
F = torch.nn.functional

SIZES = tasks.ModelSettings(
    d_model=32, n_heads=4, n_kv_heads=2, n_layers=2, d_ff=48, dropout=0.0, max_len=32, batch_size=8
)


def rotate(x):
    """RoPE on pairs (0, 1), (2, 3), ... of x (B, H, T, d), by complex multiplication."""
    d = x.shape[-1]
    angles = torch.arange(x.shape[2])[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    turned = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def logits(p, ids):
    """The decoder of document 002, written with torch's functions over a table of parameters."""
    x = F.embedding(ids, p["token_embedding.weight"])
    heads, shared = SIZES.n_heads, SIZES.n_heads // SIZES.n_kv_heads
    for i in range(SIZES.n_layers):
        name = f"layers.{i}."
        h = F.rms_norm(x, x.shape[-1:], p[name + "attn_norm.weight"], 1e-6)
        q, k, v = (
            F.linear(h, p[f"{name}attn.{part}_proj.weight"]).unflatten(-1, (-1, SIZES.d_model // heads)).transpose(1, 2)
            for part in "qkv"
        )
        k, v = rotate(k).repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        a = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).flatten(-2), p[name + "attn.out_proj.weight"])
        h = F.rms_norm(x, x.shape[-1:], p[name + "ffn_norm.weight"], 1e-6)
        gate, up = (F.linear(h, p[f"{name}ffn.{part}.weight"]) for part in ("gate_proj", "up_proj"))
        x = x + F.linear(F.silu(gate) * up, p[name + "ffn.down_proj.weight"])
    return F.linear(F.rms_norm(x, x.shape[-1:], p["norm.weight"], 1e-6), p["token_embedding.weight"])


def loss_of(p, batch):
    ids, labels = (torch.from_numpy(np.asarray(t)) for t in (*batch.inputs, batch.labels))
    return F.cross_entropy(logits(p, ids).flatten(0, 1), labels.flatten())


def compare(steps, tolerance):
    settings = TrainSettings(steps=steps, lr=3e-3, warmup=steps // 6, weight_decay=0.1, clip=1.0, log_every=1)
    task = tasks.make("text", SIZES, 0)
    p = {
        name: torch.nn.Parameter(torch.from_numpy(parameter.detach().numpy().copy()))
        for name, parameter in task.model.named_parameters()
    }
    optimizer = torch.optim.AdamW(
        [
            {"params": [q for q in p.values() if q.ndim > 1], "weight_decay": 0.1},
            {"params": [q for q in p.values() if q.ndim == 1], "weight_decay": 0.0},
        ],
        lr=3e-3,
        betas=(0.9, 0.98),
    )
    trainer, theirs = Trainer(task.model, task.batch, settings, pad_id=task.pad_id), []
    ours = []
    update = trainer.updater.update
    trainer.updater.update = lambda batch: ours.append(update(batch)) or ours[-1]
    trainer.run()
    for step in range(steps):
        warm, done = settings.warmup, (step - settings.warmup) / (steps - settings.warmup)
        rate = 3e-3 * ((step + 1) / warm if step < warm else 0.1 + 0.45 * (1 + np.cos(np.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(p, task.batch(step))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        optimizer.step()
        theirs.append((loss.item(), norm.item()))
    np.testing.assert_allclose(ours[:5], theirs[:5], rtol=1e-3)
    assert theirs[-1][0] < 0.8 * theirs[0][0]
    with torch.no_grad():
        held_out = np.concatenate(list(task.side_by_side(SIZES.max_len + 1)))
        held_out_loss = loss_of(p, Batch((held_out[:, :-1],), held_out[:, 1:])).item()
    assert task.evaluate()["held_out_loss"] == pytest.approx(held_out_loss, rel=tolerance)


def test_a_few_steps_are_torchs():
    compare(steps=20, tolerance=1e-3)


@pytest.mark.deep
def test_a_character_model_reaches_the_loss_that_it_reaches_in_torch():
    compare(steps=1000, tolerance=1e-2)

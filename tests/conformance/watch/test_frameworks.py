"""Trainers of libraries, watched as they are: a right script has no FAIL, and a mistake is told at the user's line."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.deep

TRAINER = """
import tempfile, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
torch.manual_seed(0)
V, T = 50, 16
class Rows(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.rows = torch.randint(V, (count, T), generator=torch.Generator().manual_seed(seed))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        ids = self.rows[i]
        return {"input_ids": ids, "labels": ids.clone()}
def collate(items):
    return {name: torch.stack([one[name] for one in items]) for name in items[0]}
model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=T, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=12, per_device_train_batch_size=4, gradient_accumulation_steps=2, warmup_steps=3,
        eval_strategy="steps", eval_steps=5, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=Rows(128, 1), eval_dataset=Rows(16, 2), data_collator=collate
    )
    trainer.train()
"""

LIGHTNING = """
import torch, lightning
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
V, T = 50, 16
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(V, 32), nn.GRU(32, 32, batch_first=True), nn.Linear(32, V)
        self.drop = nn.Dropout(0.1)
    def forward(self, ids):
        return self.head(self.drop(self.body(self.table(ids))[0]))
    def step(self, batch):
        (ids,) = batch
        logits = self(ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    def training_step(self, batch, index):
        return self.step(batch)
    def validation_step(self, batch, index):
        self.log("loss", self.step(batch))
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
lightning.seed_everything(0)
rows = torch.randint(V, (128, T), generator=torch.Generator().manual_seed(1))
train, valid = (DataLoader(TensorDataset(part), batch_size=8) for part in (rows[:112], rows[112:]))
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(max_epochs=1, accelerator="cpu", gradient_clip_val=1.0, **options).fit(Model(), train, valid)
"""

SCRIPTS = {"transformers": TRAINER, "lightning": LIGHTNING}
MISTAKES = {
    "transformers": (
        '"labels": ids.clone()',
        '"labels": torch.cat([ids[1:], ids[:1]])',
        "the labels are shifted twice",
    ),
    "lightning": ("ids[:, 1:].flatten()", "ids[:, :-1].flatten()", "the labels are not shifted"),
}


@pytest.mark.parametrize("library", SCRIPTS)
def test_a_library_s_trainer_is_watched(library, tmp_path):
    pytest.importorskip(library)
    path, (old, new, told) = tmp_path / "train.py", MISTAKES[library]
    right, wrong = SCRIPTS[library], SCRIPTS[library].replace(old, new)
    path.write_text(right)
    code, out = watch(path)
    assert (code, "0 FAIL" in out) == (0, True)
    path.write_text(wrong)
    code, out = watch(path)
    assert (code, told in out) == (1, True)
    assert f"train.py:{wrong[: wrong.index(new)].count(chr(10)) + 1}: " in out


def watch(path):
    order = [sys.executable, "-m", "conformance", "watch", path.name]
    done = subprocess.run(order, cwd=path.parent, capture_output=True, text=True)
    return done.returncode, done.stdout

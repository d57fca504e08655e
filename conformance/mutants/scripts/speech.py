"""A recogniser of phones: CTC over padded frames, an average of the weights, a rate planned in steps, a resumed run."""

import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PHONES, MELS, WIDTH, BLANK, EPOCHS, LONGEST = 8, 6, 16, 0, 4, 64
SOUNDS = 2.0 * torch.randn(PHONES, MELS, generator=torch.Generator().manual_seed(1))


class Utterances(Dataset):
    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            phones = torch.randint(PHONES, (int(torch.randint(2, 6, (), generator=draw)),), generator=draw)
            frames = SOUNDS[phones].repeat_interleave(9, 0)
            self.rows.append((frames + 0.3 * torch.randn(frames.shape, generator=draw), phones + 1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    frames, phones = zip(*rows, strict=True)
    lengths = torch.tensor([len(one) for one in frames])
    return pad_sequence(frames, batch_first=True), lengths, torch.cat(phones), torch.tensor([*map(len, phones)])


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = nn.Conv1d(MELS, WIDTH, 3, padding=1)
        self.places = nn.Parameter(0.02 * torch.randn(LONGEST, WIDTH))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True) for _ in range(2)])
        self.classes = nn.Linear(WIDTH, PHONES + 1)

    def forward(self, frames, lengths):
        x = torch.relu(self.frames(frames.transpose(1, 2))).transpose(1, 2)
        x = x + self.places[: x.shape[1]]
        behind = torch.arange(x.shape[1]) >= lengths[:, None]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=behind)
        return self.classes(x).log_softmax(-1)


class Average:
    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.weights[name].mul_(self.decay).add_(p, alpha=1 - self.decay)


def main():
    torch.manual_seed(3)
    model = Recogniser()
    average = Average(model)
    body = [p for name, p in model.named_parameters() if not name.startswith("classes")]
    optimizer = torch.optim.AdamW(
        [{"params": body, "lr": 1e-3}, {"params": model.classes.parameters(), "lr": 2e-3}], weight_decay=0.0
    )
    loader = DataLoader(Utterances(64, 5), batch_size=8, shuffle=True, collate_fn=collate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [1e-3, 2e-3], total_steps=EPOCHS * len(loader))
    epoch, folder = 0, tempfile.mkdtemp()
    while epoch < EPOCHS:
        model.train()
        for frames, lengths, phones, counts in loader:
            scores = model(frames, lengths)
            loss = F.ctc_loss(scores.transpose(0, 1), phones, lengths, counts, blank=BLANK, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            average.update(model)
        epoch += 1
        if epoch == 2:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "schedule": schedule.state_dict(), "epoch": epoch}, f"{folder}/last.pt")
            state = torch.load(f"{folder}/last.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            schedule.load_state_dict(state["schedule"])
            epoch = state["epoch"]
        print(epoch, loss.item())


if __name__ == "__main__":
    main()

"""BERT's pre-training loop: masked words and next sentences, a scheduled optimizer, one function for both modes."""

import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, CLS, SEP, MASK, VOCAB, LENGTH = 0, 1, 2, 3, 40, 16


class Sentences(Dataset):
    def __init__(self, count, seed):
        self.draw = torch.Generator().manual_seed(seed)
        self.rows = torch.randint(4, VOCAB, (count, 12), generator=self.draw)
        self.lengths = torch.randint(3, 7, (count, 2), generator=self.draw)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row, (first, second) = self.rows[index], self.lengths[index].tolist()
        is_next = index % 2
        other = row[6 : 6 + second] if is_next else row[6 : 6 + second].flip(0)
        words = torch.cat([torch.tensor([CLS]), row[:first], torch.tensor([SEP]), other, torch.tensor([SEP])])
        given, label = self.mask(words)
        segment = torch.cat([torch.full((first + 2,), 1), torch.full((second + 1,), 2)])
        fill = LENGTH - len(words)
        given, label, segment = (nn.functional.pad(one, (0, fill), value=PAD) for one in (given, label, segment))
        return {"input": given, "label": label, "segment": segment, "is_next": is_next}

    def mask(self, words):
        given, label = words.clone(), words.clone()
        chosen = (torch.rand(len(words), generator=self.draw) < 0.2) & (words > MASK)
        chosen[1] = True
        given[chosen] = MASK
        label[~chosen] = 0
        return given, label


class BERT(nn.Module):
    def __init__(self, width=16, layers=2, dropout=0.1):
        super().__init__()
        self.token = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.segment, self.position = nn.Embedding(3, width, padding_idx=0), nn.Embedding(LENGTH, width)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x, segment):
        places = torch.arange(x.shape[1])
        h = self.dropout(self.token(x) + self.segment(segment) + self.position(places))
        return self.encoder(h, src_key_padding_mask=x == PAD)


class BERTLM(nn.Module):
    def __init__(self, bert, width=16):
        super().__init__()
        self.bert, self.words, self.next = bert, nn.Linear(width, VOCAB), nn.Linear(width, 2)

    def forward(self, x, segment):
        h = self.bert(x, segment)
        return self.next(h[:, 0]).log_softmax(-1), self.words(h).log_softmax(-1)


class ScheduledOptim:
    def __init__(self, optimizer, rate, warmup):
        self.optimizer, self.rate, self.warmup, self.steps = optimizer, rate, warmup, 0

    def step_and_update_lr(self):
        self.steps += 1
        scale = min(self.steps / self.warmup, (self.warmup / self.steps) ** 0.5)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * scale
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


class BERTTrainer:
    def __init__(self, model, train, test):
        self.model, self.train_data, self.test_data = model, train, test
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        self.optim = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)
        self.schedule = ScheduledOptim(self.optim, 1e-3, 4)
        self.criterion = nn.NLLLoss(ignore_index=0)
        self.sentence_criterion = nn.NLLLoss()

    def train(self, epoch):
        self.model.train()
        return self.iteration(self.train_data, True)

    def test(self, epoch):
        self.model.eval()
        with torch.no_grad():
            return self.iteration(self.test_data, False)

    def iteration(self, loader, train):
        total = 0.0
        for data in loader:
            next_sentence, mask_lm = self.model(data["input"], data["segment"])
            next_loss = self.sentence_criterion(next_sentence, data["is_next"])
            mask_loss = self.criterion(mask_lm.transpose(1, 2), data["label"])
            loss = next_loss + mask_loss
            if train:
                self.schedule.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.schedule.step_and_update_lr()
            total += loss.item()
        return total / len(loader)


def main():
    torch.manual_seed(5)
    train = DataLoader(Sentences(32, 11), batch_size=8, shuffle=True)
    test = DataLoader(Sentences(16, 12), batch_size=8)
    trainer = BERTTrainer(BERTLM(BERT()), train, test)
    for epoch in range(3):
        print(epoch, trainer.train(epoch), trainer.test(epoch))
        with tempfile.TemporaryFile() as file:
            torch.save({"model": trainer.model.state_dict(), "optimizer": trainer.optim.state_dict()}, file)


if __name__ == "__main__":
    main()

"""Models with losses of unusual design, in methods and functions beside forward."""

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LONGEST = 16, 20


class CausalLM(nn.Module):
    """Ids to logits under a causal mask: what the others add a loss to."""

    def __init__(self, vocab_size=31, n_layers=2, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.wte, self.wpe = nn.Embedding(vocab_size, WIDTH), nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, vocab_size)

    def features(self, ids):
        length = ids.shape[1]
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.wte(ids) + self.wpe(torch.arange(length))
        return self.blocks(x, future, src_key_padding_mask=ids == self.pad_id)

    def forward(self, ids):
        return self.head(self.features(ids))


class SeveralAhead(CausalLM):
    """Next word: a second head is taught the word after the next, beside the first."""

    def __init__(self, vocab_size=31):
        super().__init__(vocab_size)
        self.second = nn.Linear(WIDTH, vocab_size)

    def loss(self, ids):
        features = self.features(ids)
        near = F.cross_entropy(self.head(features[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
        far = F.cross_entropy(self.second(features[:, :-2]).flatten(0, 1), ids[:, 2:].flatten(), ignore_index=0)
        return near + 0.3 * far


class TwoPasses(CausalLM):
    """Added once: two passes of one batch, which differ by dropout, are taught the same labels (R-Drop)."""

    def loss(self, ids):
        first, second = self(ids)[:, :-1].flatten(0, 1), self(ids)[:, :-1].flatten(0, 1)
        labels = ids[:, 1:].flatten()
        taught = F.cross_entropy(first, labels, ignore_index=0) + F.cross_entropy(second, labels, ignore_index=0)
        return taught / 2 + F.kl_div(first.log_softmax(-1), second.log_softmax(-1), log_target=True)


class LoggedPerplexity(CausalLM):
    """Returned losses: the plain cross-entropy beside a smoothed one is a figure to look at."""

    def training_step(self, batch, batch_idx):
        ids = batch["input_ids"]
        logits, labels = self(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        loss = F.cross_entropy(logits, labels, ignore_index=0, label_smoothing=0.1)
        perplexity = F.cross_entropy(logits, labels, ignore_index=0).exp()
        return {"loss": loss, "perplexity": perplexity}


class PadIsEnd(CausalLM):
    """No padding: where padding is the end token, it has to be taught."""

    def __init__(self, vocab_size=31, eos_id=0):
        super().__init__(vocab_size, pad_id=eos_id)
        self.eos_id = eos_id

    def loss(self, ids):
        return F.cross_entropy(self(ids[:, :-1]).transpose(1, 2), ids[:, 1:])


class AnswersOnly(CausalLM):
    """Every word: the words of the question are read and not taught."""

    def loss(self, ids, lengths):
        each = F.cross_entropy(self(ids[:, :-1]).transpose(1, 2), ids[:, 1:], reduction="none", ignore_index=0)
        taught = torch.arange(1, ids.shape[1]) >= lengths[:, None] // 2
        return (each * taught).sum() / taught.sum()


class ShiftedByTheLoader(CausalLM):
    """Next word: inputs and targets come apart from the loader, which has shifted them."""

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x).view(-1, self.head.out_features), y.view(-1))


class LogMixture(CausalLM):
    """What a loss is made for: logarithms of a mixture of two distributions are logarithms of probabilities."""

    def loss(self, ids):
        words = self(ids[:, :-1]).softmax(-1)
        mixed = 0.9 * words + 0.1 / words.shape[-1]
        return F.nll_loss(mixed.log().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)


class SummedOverWords(CausalLM):
    """The mean: a loss may be a sum over words, divided by the number of sentences."""

    def loss(self, ids):
        logits = self(ids[:, :-1])
        total = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=self.pad_id, reduction="sum")
        return total / len(ids)

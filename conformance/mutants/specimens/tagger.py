"""A tagger of words and their letters that classifies their text, too: labels of both, each of which may be given
alone, and paths of tags with the scores of transitions."""

import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    """Tokens (B, T) and their letters (B, T, L) to the scores of tags (B, T, n_tags) and of classes (B, n_classes), and
    the loss of what is given: tags (B, T), -100 for none, and classes (B)."""

    def __init__(self, vocab_size=40, n_tags=4, n_classes=3, d_model=16, n_heads=2, n_layers=2, max_len=24, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.words, self.places = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.letters = nn.Embedding(8, d_model)
        layer = nn.TransformerEncoderLayer(d_model, n_heads, 2 * d_model, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, n_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.tags, self.classes = nn.Linear(d_model, n_tags), nn.Linear(d_model, n_classes)
        follows = torch.eye(n_tags).roll(1, 1) * 0.5  # each tag is likely to be followed by the next one
        self.register_buffer("transitions", follows, persistent=False)
        for part in (self.words, self.places, self.letters, self.tags, self.classes):
            nn.init.normal_(part.weight, std=0.02)

    def forward(self, input_ids, letters, token_labels=None, labels=None):
        padding = input_ids == self.pad_id
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        spelled = self.letters(letters).mean(2)
        x = x + F.layer_norm(spelled, spelled.shape[-1:])
        x = self.encoder(x, src_key_padding_mask=padding)
        real = (~padding).unsqueeze(-1).to(x.dtype)
        tags, classes = self.tags(x), self.classes((x * real).sum(1) / real.sum(1).clamp(min=1))
        losses = []
        if token_labels is not None:
            losses.append(F.cross_entropy(tags.flatten(0, 1), token_labels.flatten(), ignore_index=-100))
        if labels is not None:
            losses.append(F.cross_entropy(classes, labels))
        return {"loss": sum(losses) if losses else None, "logits": tags, "classes": classes}

    def viterbi(self, scores, mask=None):
        """The best path of tags for the scores of one text, (T, n_tags). mask: (T), what is no padding."""
        scores = scores if mask is None else scores[mask]
        total, before = scores[0], []
        for step in scores[1:]:
            best, tag = (total[:, None] + self.transitions).max(0)
            before.append(tag)
            total = best + step
        path = [int(total.argmax())]
        for tag in reversed(before):
            path.append(int(tag[path[-1]]))
        return path[::-1]

    def log_likelihood(self, scores, tags):
        """The logarithm of the probability of a path (T) for the scores of one text, (T, n_tags)."""
        own = scores.gather(1, tags[:, None]).sum() + self.transitions[tags[:-1], tags[1:]].sum()
        total = scores[0]
        for step in scores[1:]:
            total = (total[:, None] + self.transitions).logsumexp(0) + step
        return own - total.logsumexp(0)

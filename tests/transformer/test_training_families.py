"""Other kinds of model learn by the same trainer: BERT from masked tokens, a mixture of experts that stays balanced."""

import numpy as np
import pytest

import minigrad as mg
from transformer import data
from transformer.models.bert import Bert, BertConfig
from transformer.models.mixtral import Mixtral, MixtralConfig
from transformer.moe import load_balancing_loss, routing
from transformer.training import Batch, Trainer, TrainSettings, mask_tokens, token_loss

MASK, VOCAB = 12, 13


def counting(rng, rows=32, length=10):
    """Rows that count 1, 2, ..., 11, 1, ... from anywhere, upwards or downwards."""
    start, direction = rng.integers(0, 11, (rows, 1)), rng.choice([-1, 1], (rows, 1))
    return 1 + (start + direction * np.arange(length)) % 11


@pytest.mark.slow
def test_bert_learns_to_fill_masks():
    mg.manual_seed(0)
    model = Bert(
        BertConfig(
            vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            initializer_range=0.1,
        )
    )  # fmt: skip

    def batch(step):
        rng = np.random.default_rng([1, step])
        read, labels = mask_tokens(
            mg.tensor(counting(rng)), VOCAB, MASK, ignore_index=data.PAD, generator=mg.Generator(step)
        )
        return Batch((read,), labels)

    settings = TrainSettings(steps=300, lr=4e-3, warmup=20, log_every=300, compile=True)
    Trainer(model, batch, settings).run()
    model.eval()
    rng = np.random.default_rng(99)
    ids = counting(rng, 64)
    hidden = ids.copy()
    hidden[:, 4] = MASK
    found = model(mg.tensor(hidden)).detach().numpy()[:, 4].argmax(-1)
    assert (found == ids[:, 4]).mean() >= 0.95


@pytest.mark.slow
def test_a_mixture_of_experts_learns_and_stays_balanced():
    mg.manual_seed(0)
    model = Mixtral(
        MixtralConfig(
            vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=16,
            initializer_range=0.2,
        )
    )  # fmt: skip

    def loss(model, batch):
        """Cross-entropy, and for every label a little of the balancing loss."""
        with routing(model) as logits:
            total = token_loss()(model, batch)
        return total + 0.02 * (batch.labels != data.PAD).sum() * load_balancing_loss(logits, 2)

    def batch(step):
        ids = counting(np.random.default_rng([2, step]))
        return Batch((mg.tensor(ids[:, :-1]),), mg.tensor(ids[:, 1:]))

    settings = TrainSettings(steps=120, lr=1e-2, warmup=10, log_every=120)
    Trainer(model, batch, settings, loss=loss).run()
    model.eval()
    test = batch(10_000)
    with routing(model) as logits:
        predicted = model(*test.inputs).detach().numpy().argmax(-1)
    assert (predicted[:, 1:] == test.labels.numpy()[:, 1:]).mean() >= 0.99  # the second token shows the direction
    assert load_balancing_loss(logits, 2).item() < 2.3  # 2 when the experts are used evenly, 4 when two do it all

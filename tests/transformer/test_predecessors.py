"""What came before: by hand, words as vectors, recurrent networks; attention is what makes long copies possible."""

import numpy as np
import pytest

import minigrad as mg
import transformer as tf
from minigrad import functional as F
from minigrad import optim
from transformer import by_hand, recurrent, scores, words
from transformer.data import PAD
from transformer.training import Batch, Trainer, TrainSettings

RNG = np.random.default_rng(0)

# --- by hand --------------------------------------------------------------------------------------


def test_the_neurons_gradients_are_those_of_the_engine():
    neuron, x, target = by_hand.Neuron(3), RNG.standard_normal((5, 3)), np.array([0.0, 1, 1, 0, 1])
    w, b = mg.tensor(neuron.w, requires_grad=True), mg.tensor(np.asarray(neuron.b), requires_grad=True)
    y = (mg.tensor(x) @ w + b).sigmoid()
    t = mg.tensor(target)
    loss = -(t * y.log() + (1 - t) * (1 - y).log()).mean()
    loss.backward()
    assert neuron.loss(x, target) == pytest.approx(loss.item())
    for name, gradient in neuron.backward(x, target).items():
        np.testing.assert_allclose(gradient, {"w": w, "b": b}[name].grad, rtol=1e-10)


def test_the_mlps_gradients_are_those_of_the_engine():
    mlp, x, target = by_hand.MLP(4, 7, 3), RNG.standard_normal((6, 4)), np.array([0, 2, 1, 1, 0, 2])
    p = {name: mg.tensor(value, requires_grad=True) for name, value in mlp.parameters.items()}
    logits = (mg.tensor(x) @ p["W1"].T + p["b1"]).relu() @ p["W2"].T + p["b2"]
    loss = F.cross_entropy(logits, mg.tensor(target))
    loss.backward()
    np.testing.assert_allclose(mlp.forward(x), logits.detach(), rtol=1e-10)
    assert mlp.loss(x, target) == pytest.approx(loss.item())
    for name, gradient in mlp.backward(x, target).items():
        np.testing.assert_allclose(gradient, p[name].grad, rtol=1e-9, atol=1e-12)


def test_a_neuron_learns_or_and_only_an_mlp_learns_xor():
    x = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    either, one = np.array([0.0, 1, 1, 1]), np.array([0.0, 1, 1, 0])
    neuron, stuck, mlp = by_hand.Neuron(2), by_hand.Neuron(2), by_hand.MLP(2, 8, 2)
    for _ in range(2000):
        neuron.step(x, either, 1.0)
        stuck.step(x, one, 1.0)
        mlp.step(x, one.astype(int), 0.3)
    assert ((neuron.forward(x) > 0.5) == either).all()
    assert stuck.loss(x, one) == pytest.approx(np.log(2), abs=1e-3)  # no line separates xor
    assert (mlp.forward(x).argmax(1) == one).all()


def test_a_neuron_survives_large_inputs():
    neuron = by_hand.Neuron(1)
    neuron.w = np.array([1e4])
    x, target = np.array([[1.0], [-1.0]]), np.array([0.0, 0.0])
    assert neuron.loss(x, target) == pytest.approx(5e3)
    assert np.isfinite(neuron.backward(x, target)["w"]).all()


# --- words ----------------------------------------------------------------------------------------


def test_a_bag_of_words_counts_and_forgets_order():
    bag = words.bag_of_words(mg.tensor([[3, 1, 3, 0], [1, 3, 3, 0]]), 5, pad_id=0)
    np.testing.assert_array_equal(bag, [[0, 1, 0, 2, 0]] * 2)
    np.testing.assert_array_equal(words.bag_of_words(mg.tensor([[0, 4]]), 5), [[1, 0, 0, 0, 1]])


def test_contexts_are_the_neighbours_within_the_window():
    assert words.contexts([5, 6, 7, 8], 1) == [(5, [6]), (6, [5, 7]), (7, [6, 8]), (8, [7])]
    assert words.contexts([5, 6, 7], 9) == [(5, [6, 7]), (6, [5, 7]), (7, [5, 6])]
    assert words.contexts([5], 2) == []
    with pytest.raises(ValueError, match="at least one word on each side, got 0"):
        words.contexts([5, 6], 0)


@pytest.mark.parametrize("kind", [words.SkipGram, words.CBOW])
def test_words_of_the_same_contexts_get_similar_vectors(kind):
    """Sentences "A x B" where x is 2 or 3, and "C y D" where y is 4 or 5: 2 and 3 become alike, 2 and 4 do not."""
    mg.manual_seed(0)
    pairs = [
        p
        for middle, (a, b) in ((2, (6, 7)), (3, (6, 7)), (4, (8, 9)), (5, (8, 9)))
        for p in words.contexts([a, middle, b], 1)
    ]
    model = kind(10, 6)
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    if kind is words.SkipGram:
        inputs, targets = zip(*[(word, other) for word, around in pairs for other in around], strict=True)
    else:
        inputs, targets = zip(*[([*around, -1][:2], word) for word, around in pairs], strict=True)
    inputs, targets = mg.tensor([*inputs]), mg.tensor([*targets])
    for _ in range(120):
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # CBOW's input words are the neighbours: compare those that surround the same words, 6 and 7
    table = (model.words.weight if kind is words.SkipGram else model.neighbours.weight).detach().numpy()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    assert unit[2] @ unit[3] > 0.9
    assert unit[2] @ unit[4] < 0.5


# --- recurrent ------------------------------------------------------------------------------------


def test_the_lstm_is_torchs():
    torch = pytest.importorskip("torch")
    ours, theirs = recurrent.LSTM(3, 4).double(), torch.nn.LSTM(3, 4, batch_first=True).double()
    with torch.no_grad():
        theirs.bias_hh_l0.zero_()
        for name, value in (
            ("weight_ih_l0", ours.weight_ih),
            ("weight_hh_l0", ours.weight_hh),
            ("bias_ih_l0", ours.bias),
        ):
            getattr(theirs, name).copy_(torch.from_numpy(value.detach().numpy()))
    x, h, c = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 4)), RNG.standard_normal((2, 4))
    start = [torch.from_numpy(s)[None] for s in (h, c)]
    out = theirs(torch.from_numpy(x), tuple(start))[0]
    out.square().sum().backward()
    got = ours(mg.tensor(x), (mg.tensor(h), mg.tensor(c)))
    (got * got).sum().backward()
    np.testing.assert_allclose(got.detach(), out.detach(), rtol=1e-12)
    np.testing.assert_allclose(ours.weight_hh.grad, theirs.weight_hh_l0.grad, rtol=1e-9)
    np.testing.assert_allclose(ours(mg.tensor(x)).detach(), theirs(torch.from_numpy(x))[0].detach(), rtol=1e-12)


def make_seq2seq(score, vocab=12, d_model=24):
    made = {
        None: lambda: None,
        "dot": scores.DotScore,
        "general": lambda: scores.GeneralScore(d_model, d_model),
        "additive": lambda: scores.AdditiveScore(d_model, d_model, d_model),
    }[score]()
    return recurrent.RecurrentSeq2Seq(vocab, vocab, d_model, made, max_len=40)


@pytest.mark.parametrize("score", [None, "dot", "general", "additive"])
def test_padding_changes_nothing_and_decoding_works(score):
    mg.manual_seed(0)
    model = make_seq2seq(score)
    src, tgt = mg.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), mg.tensor([[1, 4, 5], [1, 8, 9]])
    together, alone = model(src, tgt).detach(), model(src[1:, :2], tgt[1:]).detach()
    np.testing.assert_allclose(together[1:], alone, rtol=1e-4, atol=1e-6)
    begin = mg.ones(2, 1, dtype=mg.int64)
    written = tf.greedy_decode(tf.translator(model, src), begin, 6)
    for length in range(1, 7):
        np.testing.assert_array_equal(written[:, length], model(src, written[:, :length]).detach()[:, -1].argmax(-1))
    assert tf.beam_decode(tf.translator(model, src), begin, 6, 3, eos_id=2).shape[0] == 2
    with pytest.raises(ValueError, match="no keys to cache"):
        model.decode(tgt, *model.encode(src), tf.KVCache(1, 8))


@pytest.mark.slow
def test_a_classifier_and_a_tagger_learn():
    """Does the first token come again at the end? Is a token the largest of its sentence? Both need the whole of it."""
    mg.manual_seed(1)
    rng = np.random.default_rng(1)
    classifier, tagger = recurrent.RecurrentClassifier(5, 2, 20), recurrent.RecurrentTagger(9, 2, 12)
    for model, label in (
        (classifier, lambda ids: (ids[:, 0] == ids[:, -1]).astype(int)),
        (tagger, lambda ids: (ids == ids.max(1, keepdims=True)).astype(int)),
    ):
        optimizer = optim.Adam(model.parameters(), lr=2e-2)
        high = 5 if model is classifier else 9
        for _ in range(100):
            ids = rng.integers(1, high, (32, 4))
            loss = F.cross_entropy(model(mg.tensor(ids)).reshape(-1, 2), mg.tensor(label(ids).reshape(-1)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ids = rng.integers(1, high, (200, 4))
        assert (model(mg.tensor(ids)).detach().numpy().argmax(-1) == label(ids)).mean() > 0.95


def test_the_classifier_reads_the_last_real_state():
    mg.manual_seed(0)
    model = recurrent.RecurrentClassifier(9, 3, 8)
    padded, alone = model(mg.tensor([[3, 4, 5, 6], [7, 8, PAD, PAD]])), model(mg.tensor([[7, 8]]))
    np.testing.assert_allclose(padded[1:].detach(), alone.detach(), rtol=1e-5)


def long_copy(step, length=16, rows=32):
    rng = np.random.default_rng([7, step])
    symbols = rng.integers(3, 12, (rows, length))
    begin, end = np.full((rows, 1), 1), np.full((rows, 1), 2)
    return Batch((mg.tensor(symbols), mg.tensor(np.hstack([begin, symbols]))), mg.tensor(np.hstack([symbols, end])))


@pytest.mark.deep
def test_attention_beats_one_vector_on_long_copies(tmp_path):
    """Without attention all of the source must pass through one state (document 000 section 2.1)."""
    losses = {}
    for score in (None, "dot", "general", "additive"):
        mg.manual_seed(0)
        settings = TrainSettings(steps=400, lr=5e-3, warmup=20, log_every=50)
        losses[score] = Trainer(make_seq2seq(score, d_model=48), long_copy, settings).run()["loss"]
    assert losses[None] > 1.0
    for score in ("dot", "general", "additive"):
        assert losses[score] < 0.5 * losses[None], losses

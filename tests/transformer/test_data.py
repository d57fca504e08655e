"""Data: tokenizers that lose nothing, merges by frequency, corpora as they ship, tasks with right answers."""

from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer import data

TEXTS = ["low low low low low", "lower lower", "newest newest newest newest newest newest", "widest widest widest"]


@pytest.fixture(scope="module")
def bpe():
    return data.train_bpe([data.shakespeare()[:20_000]], 320)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(text=st.text())
def test_every_text_survives(bpe, text):
    for tokenizer in (data.Tokenizer(), bpe):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_half_a_character_is_refused(bpe):
    for tokenizer in (data.Tokenizer(), bpe):
        with pytest.raises(ValueError, match="half a character at place 2"):
            tokenizer.encode("ab\udcff")


def test_bytes_follow_the_special_ids():
    assert data.Tokenizer().encode("aé") == [3 + 97, 3 + 0xC3, 3 + 0xA9]
    assert data.Tokenizer().vocab == 259
    assert data.Tokenizer().decode([data.BEGIN, 3 + 97, data.END, data.PAD]) == "a"


def test_the_most_frequent_pairs_are_merged_first():
    tokenizer = data.train_bpe(TEXTS, 259 + 4)
    # e+s and s+t occur 9 times (newest, widest), "es"+"t" then, too; the tie is for the smaller ids; then l+o (7)
    assert [tokenizer.spelling[i] for i in range(259, 263)] == [b"es", b"est", b"lo", b"low"]
    assert tokenizer.encode("lowest") == [262, 260]


def test_merging_shortens_and_stops_when_nothing_repeats(bpe):
    text = data.shakespeare()[30_000:31_000]
    assert len(bpe.encode(text)) < 0.75 * len(text)
    assert data.train_bpe(["abc"], 300).vocab == 259


def test_a_tokenizer_is_saved_and_loaded(bpe):
    again = data.Tokenizer.from_json(bpe.to_json())
    assert again.merges == bpe.merges
    for broken in ("", "{}", '{"merges": 3}', '{"merges": [[1]]}'):
        with pytest.raises(ValueError, match="not a tokenizer's JSON"):
            data.Tokenizer.from_json(broken)
    with pytest.raises(ValueError, match="merge 0 joins 5 and 259"):
        data.Tokenizer([(5, 259)])
    with pytest.raises(ValueError, match="at least 259 ids, got 100"):
        data.train_bpe(TEXTS, 100)


def test_batches_are_padded_on_either_side():
    np.testing.assert_array_equal(data.pad_batch([[5, 6], [7]]), [[5, 6], [7, 0]])
    np.testing.assert_array_equal(data.pad_batch([[5, 6], [7]], left=True, length=3), [[0, 5, 6], [0, 0, 7]])
    with pytest.raises(ValueError, match="at least one row"):
        data.pad_batch([])
    with pytest.raises(ValueError, match="2 tokens does not fit a batch of length 1"):
        data.pad_batch([[5, 6]], length=1)


def test_the_corpora_ship_with_their_licences():
    pairs = data.parallel("en", "zh")
    assert len(pairs) == 647
    assert len({source for source, _ in pairs}) == 647
    assert ("Enter new password", "输入新密码") in pairs
    assert all(source and target for source, target in data.parallel("en", "de"))
    assert data.shakespeare().startswith("First Citizen:")
    assert 200_000 < len(data.shakespeare()) <= 250_000
    folder = files("transformer.data")
    assert "Django Software Foundation" in (folder / "LICENSE.django").read_text()
    for name in ("messages.tsv", "shakespeare.txt"):
        assert name in (folder / "SOURCES.md").read_text()
    with pytest.raises(ValueError, match="no language 'fr' in the corpus: it has en, de, zh"):
        data.parallel("fr", "en")


ANSWERS = {
    "copy": lambda q: q,
    "reverse": lambda q: "".join(reversed(q)),
    "sort": lambda q: "".join(sorted(q)),
    "addition": lambda q: str(sum(int(n) for n in q.split("+")))[::-1],
}


@pytest.mark.parametrize("task", data.TASKS)
@pytest.mark.parametrize("held_out", [False, True])
def test_tasks_have_right_answers(task, held_out):
    pairs = data.examples(task, 200, np.random.default_rng(0), 4, held_out)
    assert len({question for question, _ in pairs}) > 50
    for question, answer in pairs:
        assert answer.rstrip("0") == ANSWERS[task](question).rstrip("0")  # sums have leading zeros, at the end
        assert data.is_held_out(question) == held_out
    if task == "addition":
        assert {(len(q), len(a)) for q, a in pairs} == {(9, 5)}


def test_bad_tasks_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="no task 'subtract'"):
        data.examples("subtract", 1, rng, 3)
    with pytest.raises(ValueError, match="size of at least 1, got 0"):
        data.examples("copy", 1, rng, 0)

"""Every decoder with its cache: token by token, in chunks, reordered, cropped, padded, preallocated = without one."""

import numpy as np
import pytest
from small_families import DECODERS, SEQ2SEQ, small

import minigrad as mg
from transformer.cache import KVCache

TIGHT = {"rtol": 1e-10, "atol": 1e-10}
RNG = np.random.default_rng(0)
IDS = mg.tensor(RNG.integers(2, 19, (3, 9)))
SRC = mg.tensor(np.where(np.arange(7) < np.array([[7], [4], [6]]), RNG.integers(2, 19, (3, 7)), 1))  # 1 pads BART
CHUNKS = [(9,), (1,) * 9, (4, 1, 3, 1), (2, 7)]


def decoder(family):
    """(model, whole, step): logits of ids ``(B, T)`` of given rows without a cache, and after one of what it holds."""
    model = small(family)
    if family in DECODERS:
        return model, lambda ids, rows=None: model(ids), lambda ids, cache, rows=None: model(ids, cache)
    memory, mask = model.encode(SRC)

    def chosen(rows):
        return (memory, mask) if rows is None else (memory.index_select(0, rows), mask.index_select(0, rows))

    return (
        model,
        lambda ids, rows=None: model.decode(ids, *chosen(rows)),
        lambda ids, cache, rows=None: model.decode(ids, *chosen(rows), cache),
    )


@pytest.fixture(autouse=True)
def _no_gradients():
    with mg.no_grad():
        yield


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("family", [*DECODERS, *SEQ2SEQ])
def test_chunks_through_a_cache_equal_the_whole(family, chunks):
    model, whole, step = decoder(family)
    cache, start, parts = model.new_cache(12), 0, []
    for size in chunks:
        parts.append(step(IDS[:, start : start + size], cache))
        start += size
    np.testing.assert_allclose(mg.cat(parts, 1), whole(IDS), **TIGHT)
    assert cache.length == 9


@pytest.mark.parametrize("family", [*DECODERS, *SEQ2SEQ])
def test_a_reordered_cache_continues_other_rows(family):
    model, whole, step = decoder(family)
    cache = model.new_cache(12)
    step(IDS[:, :5], cache)
    rows = mg.tensor([2, 0, 2, 1])
    cache.reorder(rows)
    fresh = mg.tensor(np.random.default_rng(1).integers(2, 19, (4, 3)))
    got = step(fresh, cache, rows)
    expected = whole(mg.cat([IDS.index_select(0, rows)[:, :5], fresh], 1), rows)[:, 5:]
    np.testing.assert_allclose(got, expected, **TIGHT)


@pytest.mark.parametrize("family", [*DECODERS, *SEQ2SEQ])
def test_a_cropped_cache_forgets(family):
    model, whole, step = decoder(family)
    cache = model.new_cache(12)
    step(IDS[:, :7], cache)
    cache.crop(4)
    assert cache.length == 4
    other = mg.tensor(np.random.default_rng(2).integers(2, 19, (3, 4)))
    expected = whole(mg.cat([IDS[:, :4], other], 1))[:, 4:]
    np.testing.assert_allclose(step(other, cache), expected, **TIGHT)
    cache.crop(99)
    assert cache.length == 8
    with pytest.raises(ValueError, match="cannot be cropped to -1"):
        cache.crop(-1)


@pytest.mark.parametrize("family", [*DECODERS, *SEQ2SEQ])
def test_a_cache_is_allocated_once_and_refuses_more(family):
    model, _, step = decoder(family)
    cache = model.new_cache(6)
    step(IDS[:, :2], cache)
    place, size = cache.layers[0].key.numpy().__array_interface__["data"][0], cache.nbytes
    for t in range(2, 6):
        step(IDS[:, t : t + 1], cache)
    assert cache.layers[0].key.numpy().__array_interface__["data"][0] == place
    shapes = [held.shape for held in (cache.layers[0].key, cache.layers[0].value)]
    assert all(shape[:1] + shape[2:3] == (3, 6) for shape in shapes)
    assert cache.nbytes == size == len(cache.layers) * 3 * 6 * sum(shape[1] * shape[3] for shape in shapes) * 8
    with pytest.raises(ValueError, match="room for 6 positions, 7 were to be stored"):
        step(IDS[:, 6:7], cache)


def test_the_cache_of_shared_heads_is_smaller():
    cache = small("llama").new_cache(5)
    small("llama")(IDS[:, :1], cache)
    assert cache.layers[0].key.shape == (3, 2, 5, 4)  # two key heads for six query heads


@pytest.mark.parametrize("chunks", [(9,), (3, 1, 1, 4), (1,) * 9], ids=str)
@pytest.mark.parametrize("family", DECODERS)
def test_rows_padded_on_the_left_equal_rows_alone(family, chunks):
    model = small(family)
    lengths = (9, 4, 7)
    real = mg.tensor(np.arange(9) >= 9 - np.array(lengths)[:, None])
    cache, start, parts = model.new_cache(), 0, []
    for size in chunks:
        at = slice(start, start + size)
        parts.append(model(IDS[:, at], cache, real[:, at]))
        start += size
    got = mg.cat(parts, 1)
    np.testing.assert_allclose(model(IDS, real=real)[:, -4:], got[:, -4:], **TIGHT)
    for row, n in enumerate(lengths):
        alone = model(IDS[row : row + 1, 9 - n :])
        np.testing.assert_allclose(got[row : row + 1, 9 - n :], alone, **TIGHT)


def test_padding_may_follow_a_prompt_without_any():
    model = small("llama")
    cache = model.new_cache()
    model(IDS[:, :3], cache)
    real = mg.tensor([[True, True], [False, True], [True, True]])
    got = model(IDS[:, 3:5], cache, real)
    everything = mg.cat([mg.ones(3, 3, dtype=mg.bool), real], 1)
    np.testing.assert_allclose(got, model(IDS[:, :5], real=everything)[:, 3:], **TIGHT)


@pytest.mark.parametrize("family", DECODERS)
def test_logits_do_not_depend_on_later_tokens_nor_beyond_the_window(family):
    model = small(family)
    before, changed = model(IDS), IDS.clone()
    changed[:, 6:] = 3
    np.testing.assert_allclose(model(changed)[:, :6], before[:, :6], **TIGHT)
    changed = IDS.clone()
    changed[:, 0] = 2 if IDS[0, 0].item() != 2 else 3
    after = model(changed)
    if family == "mixtral":  # two layers of a window of 4 see the last 7 tokens
        np.testing.assert_allclose(after[:, 7:], before[:, 7:], **TIGHT)
    assert not np.allclose(after[0, 6], before[0, 6])


@pytest.mark.parametrize("family", ["gpt2", "llama", "bart", "marian"])
def test_too_long_a_text_is_refused(family):
    _, whole, _ = decoder(family)
    with pytest.raises(ValueError, match="do not fit"):
        whole(mg.full((3, 25), 2))


def test_t5_reads_texts_of_any_length():
    _, whole, _ = decoder("t5")
    assert whole(mg.full((3, 300), 2)).shape == (3, 300, 19)


def test_a_cache_under_gradients_is_refused():
    model = small("gpt2")
    with mg.enable_grad(), pytest.raises(RuntimeError, match="call the model under no_grad"):
        model(IDS, KVCache(2, 9))

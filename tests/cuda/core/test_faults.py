"""Ids past their table: kernels read nothing outside, nobody waits for that, and who waits anyway gets the sentence."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.cuda
import minigrad.functional as F
from minigrad.compiler import compile


def put(x, *index):
    x[index] = 1.0
    return x


BAD = {
    "embedding": lambda x, ids: F.embedding(ids[0], x),
    "embedding in vectors": lambda x, ids: F.embedding(ids[0], mg.cat([x, x[:, :3]], 1)),
    "gather": lambda x, ids: x.gather(1, ids),
    "scatter": lambda x, ids: x.scatter(1, ids, 2.0),
    "scatter_add": lambda x, ids: x.scatter_add(1, ids, x[:1, :3]),
    "scatter_add of one column": lambda x, ids: x[0].scatter_add(0, ids[0], x[0, :3]),
    "an index": lambda x, ids: x[ids],
    "an index from the end": lambda x, ids: x[-1 - ids],
    "an index of a middle dimension": lambda x, ids: x.unsqueeze(0)[:, ids[0]],
    "two indices, the first": lambda x, ids: x[ids[0], ids[0] * 0],
    "two indices, the second": lambda x, ids: x[ids * 0, ids[0]],
    "writing": lambda x, ids: put(x * 1, ids),
    "writing at two indices": lambda x, ids: put(x * 1, ids * 0, ids[0]),
    "cross_entropy": lambda x, ids: F.cross_entropy(x[:3], ids[0]),
    "cross_entropy without an ignored id": lambda x, ids: F.cross_entropy(x[:3], ids[0], None, reduction="none"),
}


def said_by(function):
    with pytest.raises((IndexError, ValueError)) as caught:
        function()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("op", BAD)
def test_who_waits_gets_the_hosts_sentence_once(cuda, op):
    x, ids = mg.randn(5, 5), mg.tensor([[0, 7, 2]])
    wanted = said_by(lambda: BAD[op](x, ids))
    there = x.to("cuda"), ids.to("cuda")
    before = cuda.driver.counts["synchronize"]
    y = BAD[op](*there)
    assert cuda.driver.counts["synchronize"] == before
    assert said_by(y.numpy) == wanted
    y.numpy()
    assert BAD[op](there[0], there[1] // 2).isfinite().all().item()


def test_synchronize_and_anything_read_later_say_it(cuda):
    table, ids = mg.randn(4, 3, device="cuda"), mg.tensor([4], device="cuda")
    sentence = "embedding: id 4 is outside the vocabulary of 4"
    F.embedding(ids, table)
    with pytest.raises(IndexError, match=sentence):
        minigrad.cuda.synchronize()
    minigrad.cuda.synchronize()
    F.embedding(ids, table)
    with pytest.raises(IndexError, match=sentence):
        table.sum().item()


def test_the_first_launch_that_met_one_has_its_say(cuda):
    x, ids = mg.randn(4, 3, device="cuda"), mg.tensor([9], device="cuda")
    x[ids]
    F.embedding(ids, x)
    with pytest.raises(IndexError, match=r"indexing a tensor of shape \[4, 3\]: index 9"):
        minigrad.cuda.synchronize()
    minigrad.cuda.synchronize()


def test_gradients_drop_what_is_outside(cuda):
    table = mg.randn(4, 3, device="cuda", requires_grad=True)
    F.embedding(mg.tensor([1, 4, 1], device="cuda"), table).sum().backward()
    assert said_by(minigrad.cuda.synchronize)[0] is IndexError
    np.testing.assert_array_equal(table.grad.numpy(), [[0] * 3, [2] * 3, [0] * 3, [0] * 3])


def test_a_replayed_graph_notes_it_without_waiting(cuda):
    table = mg.randn(4, 4, device="cuda")
    looked_up = compile(lambda ids: F.embedding(ids, table) * 2)
    for i in range(6):
        ids = mg.tensor([i, 0], device="cuda")
        before = dict(cuda.driver.counts)
        rows = looked_up(ids)
        after = cuda.driver.counts
        assert after["synchronize"] == before.get("synchronize", 0)
        if i > 1:
            assert after["launch_graph"] == before.get("launch_graph", 0) + 1
            assert after["launch"] == before["launch"]
        if i < 4:
            np.testing.assert_array_equal(rows.numpy(), 2 * table.numpy()[[i, 0]])
        else:
            assert said_by(rows.numpy) == (IndexError, f"embedding: id {i} is outside the vocabulary of 4")
            assert np.isnan(rows.numpy()[0]).all()

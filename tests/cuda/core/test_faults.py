"""Ids past their table, and other values that ops refuse: kernels read nothing outside, nobody waits for that, and who
waits anyway gets the sentence."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.cuda
import minigrad.functional as F
from minigrad.compiler import compile


def put(x, *index, to=1.0):
    x[index] = to
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
    "index_select": lambda x, ids: x.index_select(1, ids[0]),
    "index_select from the end": lambda x, ids: x.index_select(1, 3 - ids[0]),
    "one_hot": lambda x, ids: F.one_hot(ids, 5),
    "one_hot of too few": lambda x, ids: F.one_hot(3 - ids, 4),
    "embedding without columns": lambda x, ids: F.embedding(ids[0], x[:, :0]),
    "cross_entropy": lambda x, ids: F.cross_entropy(x[:3], ids[0]),
    "cross_entropy without an ignored id": lambda x, ids: F.cross_entropy(x[:3], ids[0], None, reduction="none"),
    "division of integers": lambda x, ids: ids // (7 - ids),
    "division of small integers": lambda x, ids: (ids.T // (7 - ids).to(mg.int8)) * 2,
    "remainder": lambda x, ids: ids % (ids - 7),
    "remainder of bytes": lambda x, ids: ids.to(mg.uint8) % (7 - ids).to(mg.uint8),
    "power of integers": lambda x, ids: (ids - 3) ** (6 - ids),
    "bernoulli above 1": lambda x, ids: mg.bernoulli((ids > 6) + (ids % 2).float()),
    "bernoulli below 0": lambda x, ids: mg.bernoulli((6 - ids).clamp(max=1).double()),
    "bernoulli of NaN": lambda x, ids: mg.bernoulli((6 - ids).float().sqrt().clamp(max=1).half()),
    "bernoulli of integers": lambda x, ids: mg.bernoulli(ids // 4 * (ids - 5)),
}


def said_by(function):
    with pytest.raises((IndexError, ValueError, ZeroDivisionError)) as caught:
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


INTO_NOTHING = {
    "gather": lambda x, ids: x.gather(0, ids),
    "scatter": lambda x, ids: x.scatter(0, ids, 1.0),
    "scatter_add": lambda x, ids: x.scatter_add(0, ids, x.sum().reshape(1, 1)),
    "index_select": lambda x, ids: x.index_select(0, ids[0]),
    "an index": lambda x, ids: x[ids],
    "one_hot": lambda x, ids: F.one_hot(ids, 0),
}


@pytest.mark.parametrize("op", INTO_NOTHING)
def test_nothing_has_no_place_for_an_id(cuda, op):
    x, ids = mg.zeros(0, 3), mg.tensor([[0]])
    wanted = said_by(lambda: INTO_NOTHING[op](x, ids))
    assert said_by(INTO_NOTHING[op](x.to("cuda"), ids.to("cuda")).numpy) == wanted


MISFITS = {
    "a mask": lambda x, on: put(x, mg.tensor([True] * 4, device=on)),
    "a mask that would be spread": lambda x, on: put(x, mg.tensor([[True]] * 3, device=on)),
    "a mask of a middle dimension": lambda x, on: put(x, slice(None), mg.tensor([True], device=on)),
    "a value": lambda x, on: put(x, mg.tensor([0, 1], device=on), to=mg.ones(3, 4, device=on)),
    "a value of too many dimensions": lambda x, on: put(x, mg.tensor([1], device=on), to=mg.ones(2, 1, 4, device=on)),
}


@pytest.mark.parametrize("what", MISFITS)
def test_what_does_not_fit_is_refused_at_once(cuda, what):
    x = mg.randn(3, 4)
    wanted = said_by(lambda: MISFITS[what](x, "cpu"))
    assert said_by(lambda: MISFITS[what](x.to("cuda"), "cuda")) == wanted
    assert said_by(lambda: compile(lambda x: MISFITS[what](x * 1, "cuda"))(x.to("cuda"))) == wanted


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


def test_a_number_divides_as_it_does_on_the_host(cuda):
    ids = mg.tensor([0, 7, 2])
    for op in (lambda a: a // 0, lambda a: a % 0, lambda a: a**-1):
        wanted = said_by(lambda op=op: op(ids))
        assert said_by(op(ids.to("cuda")).numpy) == wanted
    assert (ids.to("cuda") // 2).tolist() == [0, 3, 1]


def test_what_is_fused_beside_it_is_refused_with_it(cuda):
    def step(x, ids):
        return ((x * 2 + 1).tanh() * (ids % (7 - ids)).float()).exp() - mg.bernoulli((x + 1) / 2)

    x, ids = mg.tensor([-1.0, 1.0, 0.0]), mg.tensor([0, 3, 2])
    replayed = compile(step)
    refused = (
        (x, ids + 4, (ZeroDivisionError, "integer division by zero")),
        (x * 2, ids, (ValueError, "bernoulli: probabilities must lie in [0, 1]")),
    )
    for replay in range(4):
        for a, b, sentence in refused:
            launches = cuda.driver.counts["launch"]
            found = replayed(a.to("cuda"), b.to("cuda"))
            assert replay == 0 or cuda.driver.counts["launch"] == launches
            assert said_by(found.numpy) == sentence
    mg.manual_seed(0)
    wanted = step(x, ids).numpy()
    mg.manual_seed(0)
    np.testing.assert_allclose(replayed(x.to("cuda"), ids.to("cuda")).numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "op", ["index_select from the end", "one_hot", "gather", "division of integers", "power of integers",
           "bernoulli above 1"]
)  # fmt: skip
def test_a_replayed_graph_says_what_the_op_says(cuda, op):
    x, ids = mg.randn(5, 5), mg.tensor([[0, 7, 2]])
    wanted = said_by(lambda: BAD[op](x, ids))
    replayed = compile(BAD[op])
    there = x.to("cuda"), ids.to("cuda")
    for _ in range(3):
        assert said_by(replayed(*there).numpy) == wanted
    np.testing.assert_array_equal(replayed(there[0], there[1] // 2).numpy(), BAD[op](x, ids // 2).numpy())
    assert cuda.driver.counts["launch_graph"] == 3

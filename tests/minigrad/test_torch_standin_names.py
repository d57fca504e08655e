"""Names of the stand-in with torch's arguments and results: weighted losses, loaders, tuples, small functions."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad.torch as standin

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((4, 3))
CALLS = {
    "weights of classes": lambda t, x, i: t.nn.CrossEntropyLoss(weight=x[0].exp(), label_smoothing=0.1)(x, i),
    "probabilities": lambda t, x, i: t.nn.functional.cross_entropy(x, x.softmax(1), label_smoothing=0.2),
    "targets of images": lambda t, x, i: t.nn.functional.nll_loss(x.reshape(2, 3, 2), i.reshape(2, 2), x[0]),
    "bce": lambda t, x, i: t.nn.BCELoss(weight=x.square())(x.sigmoid(), (x > 0).double()),
    "bce of logits": lambda t, x, i: t.nn.BCEWithLogitsLoss(pos_weight=x[0].square())(x, (x > 0).double()),
    "huber": lambda t, x, i: t.nn.HuberLoss(delta=0.5)(x, x * 2) + t.nn.SmoothL1Loss(beta=0.3)(x, x * 2),
    "group norm": lambda t, x, i: t.nn.GroupNorm(3, 3, dtype=t.float64)(x.reshape(2, 3, 2)),
    "rms norm": lambda t, x, i: t.nn.RMSNorm((2, 3), dtype=t.float64)(x.reshape(2, 2, 3)),
    "softplus": lambda t, x, i: t.nn.Softplus(beta=2.0, threshold=1.0)(x),
    "grad": lambda t, x, i: t.autograd.grad(((y := x.clone().requires_grad_()) ** 2).sum(), y)[0],
    "add": lambda t, x, i: t.add(x, x, alpha=2) - t.sub(x, 1.0, alpha=3),
    "beta is 0": lambda t, x, i: t.addmm(x[:3] * float("nan"), x[:3], x[:3], beta=0),
    "median": lambda t, x, i: t.median(x, 1).values + t.cummax(x, 0)[0].sum() + t.var_mean(x)[1],
    "windows": lambda t, x, i: x.unfold(0, 2, 1).sum(-1) + t.diff(x, dim=0),
    "pads": lambda t, x, i: t.nn.functional.pad(x[None], (1, 2), "reflect"),
    "take": lambda t, x, i: t.take(x, t.tensor([0, -1])) + x.index_copy(0, i[:1], x[:1] * 2)[:2, 0],
    "search": lambda t, x, i: t.searchsorted(x[0].sort()[0], x[1]),
    "limits": lambda t, x, i: t.nan_to_num(x / 0).clamp_max(5.0) + t.fmod(x, 0.3) + t.trunc(x),
    "logs": lambda t, x, i: t.logaddexp(x, -x) + t.atan2(x, x + 1),
    "size": lambda t, x, i: t.zeros(size=(2, 3)) + t.ones(size=[3]),
    "cosine": lambda t, x, i: t.nn.functional.cosine_similarity(x[:, None], x[None], dim=-1),
    "mse": lambda t, x, i: t.nn.functional.mse_loss(x, x[:1]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_values_are_torchs(name: str) -> None:
    theirs = CALLS[name](torch, torch.tensor(X), torch.tensor([0, 2, 1, 2]))
    ours = CALLS[name](standin, standin.tensor(X), standin.tensor([0, 2, 1, 2]))
    assert str(theirs.dtype) == f"torch.{ours.dtype}"
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_loaders_take_samplers_and_streams_as_torchs_do() -> None:
    for side in (torch, standin):
        data = side.utils.data
        order = data.SequentialSampler(range(5))
        batches = data.BatchSampler(order, 2, False)
        assert (len(batches), len(data.BatchSampler(order, 2, True))) == (3, 2)
        assert [b.tolist() for b in data.DataLoader(list(range(5)), batch_sampler=batches)] == [[0, 1], [2, 3], [4]]
        assert [b.tolist() for b in data.DataLoader([5, 6, 7], sampler=[2, 0])] == [[7], [5]]
        assert list(data.DataLoader(["a", "b"], batch_size=None)) == ["a", "b"]

        class Stream(data.IterableDataset):
            def __iter__(self):
                return iter(range(3))

        assert [b.tolist() for b in data.DataLoader(Stream(), batch_size=2)] == [[0, 1], [2]]
        joined = data.ConcatDataset([[1, 2], [3]])
        assert [joined[i] for i in (0, 2, -1)] == [1, 3, 3]
        assert sorted(len(part) for part in data.random_split(range(10), [0.5, 0.25, 0.25])) == [2, 2, 6]
        assert sorted(data.RandomSampler(range(4))) == [0, 1, 2, 3]
        assert sorted(data.SubsetRandomSampler([7, 9])) == [7, 9]
        assert set(data.WeightedRandomSampler([0.0, 1.0], 5)) == {1}
        with pytest.raises(ValueError, match="sampler"):
            data.DataLoader([1], shuffle=True, sampler=[0])


def test_the_package_has_torchs_modules() -> None:
    from minigrad.torch.utils.data.dataloader import DataLoader
    from minigrad.torch.utils.data.dataset import Dataset
    from minigrad.torch.utils.data.sampler import Sampler

    data = standin.utils.data
    assert (data.DataLoader, data.Dataset, data.Sampler) == (DataLoader, Dataset, Sampler)


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    x, F = standin.tensor(X), standin.nn.functional
    for call, message in (
        (lambda: F.binary_cross_entropy(x * 9, x), "must be probabilities"),
        (lambda: F.nll_loss(x, standin.tensor([0, 1])), "do not fit"),
        (lambda: F.group_norm(x, 2), "groups divide"),
        (lambda: F.pad(x, (1, 1), "mirror"), "mode must be"),
        (lambda: F.pad(x[None], (9, 9), "reflect"), "cannot pad"),
        (lambda: standin.mv(x, x), "a matrix and a vector"),
        (lambda: standin.movedim(x, (0, 1), 0), "as many of both"),
        (lambda: standin.utils.data.ConcatDataset([]), "at least one dataset"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)

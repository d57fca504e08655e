"""What several processes do together, without MPI: shares of a batch, buckets that leave when they are final."""

import sys
from types import SimpleNamespace

import numpy as np
import parallel_program
import pytest

import minigrad as mg
from minigrad import kernels, nn
from transformer.cli import main, processes
from transformer.training import parallel
from transformer.training.parallel import Reduction, Team

SUM, IN_PLACE = object(), object()


class Wire:
    """The communicator of a team of one, or of one in a larger team: it keeps what was handed over as it was then."""

    def __init__(self, rank=0, size=1, others=()):
        self.rank, self.size, self.others, self.sent = rank, size, list(others), []

    def Iallreduce(self, here, array, op):
        assert (here, op) == (IN_PLACE, SUM)
        self.sent.append((array, array.copy()))
        return SimpleNamespace(Test=lambda: True, Wait=lambda: None)

    def allreduce(self, value):
        return value

    def allgather(self, value):
        return [value, *self.others]


def team(**options):
    return Team(SimpleNamespace(COMM_WORLD=Wire(**options), IN_PLACE=IN_PLACE, SUM=SUM))


@pytest.mark.slow
@pytest.mark.parametrize("case", parallel_program.CASES)
def test_what_leaves_is_final_and_is_the_gradient(case):
    ours = team()
    alone, together = parallel_program.learn(case), parallel_program.learn(case, ours)
    for key, expected in alone.items():
        np.testing.assert_allclose(together[key], expected, rtol=2e-5, atol=1e-7, err_msg=key)
    last = ours.comm.sent[-together[f"{case} traffic"][2] :]
    for array, then in last:
        np.testing.assert_array_equal(array, then)  # nothing was added behind it


def test_late_layers_leave_while_early_ones_are_computed():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    weights = list(model.parameters())
    ours = team()
    reduction = Reduction(ours, weights, 8 * 9 * 4)  # a bucket a layer
    unfinished = []
    send, wire = ours.comm.Iallreduce, ours.comm

    def watched(here, array, op):
        unfinished.append(sum(not bucket.found.all() for bucket in reduction.buckets))
        return send(here, array, op)

    wire.Iallreduce = watched
    with kernels.use("reference"), reduction.running(1):
        model(mg.ones(3, 8)).sum().backward()
    assert unfinished == [5, 4, 3, 2, 1, 0]
    assert reduction.early == len(reduction.buckets) == 6
    assert reduction.sent == sum(bucket.array.nbytes for bucket in reduction.buckets) == 4 * 6 * (8 * 9 + 2)


def test_a_parameter_without_a_gradient_has_none_afterwards_and_delays_nobody():
    used, unused = nn.Linear(3, 3), nn.Linear(3, 3)
    reduction = Reduction(team(), [*used.parameters(), *unused.parameters()], 1)
    with kernels.use("reference"), reduction.running(1):
        used(mg.ones(2, 3)).sum().backward()
    assert all(parameter.grad is None for parameter in unused.parameters())
    np.testing.assert_array_equal(used.weight.grad.numpy(), np.full((3, 3), 2.0))
    assert reduction.early == 4


@pytest.mark.parametrize(("count", "size"), [(9, 2), (9, 4), (4, 4), (64, 7)])
def test_each_row_has_one_process(count, size):
    shares = [list(range(count))[team(rank=rank, size=size).rows(count)] for rank in range(size)]
    assert [row for share in shares for row in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_what_a_team_refuses_is_said_in_one_sentence():
    with pytest.raises(ValueError, match="a batch of 3 rows cannot be shared by 4 processes"):
        team(size=4).rows(3)
    with pytest.raises(ValueError, match="process 1 has come to other weights than process 0"):
        team(size=2, others=[[1]]).check_equal({"weight": mg.ones(2)})


def test_without_mpi_a_sentence_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert parallel._team == []
    assert main(["train", "text"]) == 2
    assert "cannot talk to each other" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    monkeypatch.delenv("PMI_SIZE")
    monkeypatch.setattr(processes.importlib.util, "find_spec", lambda name: None)
    for missing, found in (("mpiexec", None), ("mpi4py", "/usr/bin/mpiexec")):
        monkeypatch.setattr(processes.shutil, "which", lambda *_, path=None, found=found: found)
        assert main(["train", "text", "--processes", "2"]) == 2
        said = capsys.readouterr().err
        assert f"there is no {missing}: pip install mpich" in said
        assert said.count("\n") == 1

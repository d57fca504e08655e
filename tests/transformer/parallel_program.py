"""What several processes learn together, and one by itself: `mpiexec -n 2 python parallel_program.py OUT.npz`.

Plain gradient descent, in which a rounding error stays as small as it is (Adam divides by the gradient's size).
"""

from __future__ import annotations

import sys

import numpy as np

from minigrad import kernels
from minigrad.optim import SGD
from transformer import tasks
from transformer.training import Updater
from transformer.training.parallel import Reduction, join

SIZES = {"d_model": 16, "n_heads": 2, "n_kv_heads": 1, "n_layers": 2, "d_ff": 24, "dropout": 0.0, "max_len": 12,
         "batch_size": 9, "size": 5, "balance": 0.0}  # fmt: skip
CASES = {  # rows that no number of processes divides, of unequal lengths; experts that some processes do not use
    "text": {"task": "text", "accumulate": 2},
    "pairs": {"task": "reverse", "compile_step": True},
    "masked": {"task": "masked"},
    "mixture": {"task": "mixture", "n_experts": 8},
}
STEPS, BUCKET = 3, 3000


def learn(name, team=None):
    """Losses, norms, last gradients and weights after a few steps of a case, and what was sent, by name."""
    case = CASES[name]
    options = {key: case[key] for key in ("accumulate", "compile_step") if key in case}
    sizes = tasks.ModelSettings(**{**SIZES, "n_experts": case.get("n_experts", 4)})
    task = tasks.make(case["task"], sizes, seed=3)
    updater = Updater(task.model, lambda groups: SGD(groups, lr=0.2), task.loss(0.0), task.pad_id, clip=None,
                      **{"compile_step": False, **options}, team=team)  # fmt: skip
    if team is not None:
        updater.reduction = Reduction(team, list(task.model.parameters()), BUCKET)
    task.model.train()
    with kernels.use("reference"):  # nothing waits for numba
        figures = [updater.update(task.batch(step)) for step in range(STEPS)]
    found = {"loss": np.array([loss for loss, _ in figures]), "norm": np.array([norm for _, norm in figures])}
    for path, parameter in task.model.named_parameters():
        found[f"weight {path}"] = parameter.detach().numpy()
        found[f"grad {path}"] = np.zeros(0) if parameter.grad is None else parameter.grad.numpy()
    if team is not None:
        team.check_equal(updater.weights())
        reduction = updater.reduction
        found["traffic"] = np.array([reduction.sent, reduction.early, len(reduction.buckets)])
    return {f"{name} {key}": value for key, value in found.items()}


if __name__ == "__main__":
    ours = join()
    results = {key: value for name in CASES for key, value in learn(name, ours).items()}
    if ours.first:
        np.savez(sys.argv[1], **results)

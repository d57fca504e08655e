"""The recipe for an op in CONTRIBUTING.md is followed to the letter, in a copy of the package, and gives a whole op."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "CONTRIBUTING.md").read_text().split("## An op")[1].split("\n## ")[0]
(BLOCK,) = re.findall(r"```python\n(.*?)```", RECIPE, re.DOTALL)
FILE = re.search(r"at the end of\s+`(minigrad/\S+\.py)`", RECIPE)

WHOLE = """
import numpy as np
import minigrad as mg
import minigrad.compiler
import minigrad.functional
import minigrad.torch as torch
from minigrad import kernels, viz
from minigrad.kernels.cuda import runtime
from minigrad.kernels.cuda.simulated import SimulatedDriver
from minigrad.ops.registry import OPS
from minigrad.study import explain, gradcheck, gradgradcheck

values = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
right, slope = values**3, 3 * values**2
x = mg.tensor(values, requires_grad=True)

# its names
assert torch.cube is mg.cube and mg.Tensor.cube is mg.cube and "x^3" in mg.cube.__doc__
# eager
np.testing.assert_allclose(x.cube().detach().numpy(), right, rtol=1e-6)
x.cube().sum().backward()
np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-5)
assert mg.cube(mg.tensor([2])).dtype == mg.float32
# differentiated twice
double = mg.tensor(values[:, :3], dtype=mg.float64, requires_grad=True)
assert gradcheck(mg.cube, [double]) and gradgradcheck(mg.cube, [double])
# traced and drawn
graph = mg.trace(mg.cube)(mg.tensor(values))
assert [node.op for node in graph.nodes if node.op != "input"] == ["cube"]
assert "cube" in viz.svg(graph) and "cube" in viz.html(graph) and "cube" in str(graph)


def step(x):
    y = (x.cube() * 2 + 1).sum()
    return y, *mg.grad(y, [x])


# fused on the CPU, forward and backward
compiled = mg.compile(step)
for _ in range(2):
    total, gradient = compiled(mg.tensor(values, requires_grad=True))
np.testing.assert_allclose(total.numpy(), (right * 2 + 1).sum(), rtol=1e-5)
np.testing.assert_allclose(gradient.numpy(), 2 * slope, rtol=1e-5)
((plan, _),) = compiled.plans.values()
fused = [name for node in plan.graph.nodes for name, _ in node.attrs.get("body", ())]
assert "cube" in fused and not any(node.op == "cube" for node in plan.graph.nodes)
# on the device, eagerly and compiled
with runtime.use(SimulatedDriver(0)) as device:
    there = mg.tensor(values, device="cuda")
    np.testing.assert_allclose(there.cube().numpy(), right, rtol=1e-6)
    compiled = mg.compile(step)
    for _ in range(2):
        total, gradient = compiled(mg.tensor(values, device="cuda", requires_grad=True))
    np.testing.assert_allclose(gradient.numpy(), 2 * slope, rtol=1e-5)
    assert device.host_ops == {}
assert set(kernels.specs(OPS["cube"], "cuda")) >= {"float32", "float64", "float16", "bfloat16"}
# explained
text = explain("cube", notation=False)
assert "y = x^3" in text and "dL/dx = g * (3 * x**2)" in text and "agree to" in text
print("whole")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The environment of a process that has a copy of the package with the recipe's op."""
    folder = tmp_path_factory.mktemp("recipe")
    shutil.copytree(ROOT / "minigrad", folder / "minigrad", ignore=shutil.ignore_patterns("__pycache__"))
    assert FILE is not None
    with open(folder / FILE[1], "a") as file:
        file.write("\n\n" + BLOCK)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_the_declaration_is_short():
    assert len(BLOCK.splitlines()) <= 15


@pytest.mark.slow
def test_it_is_a_whole_op(package):
    command, folder = [sys.executable, "-c", WHOLE], package["PYTHONPATH"]
    done = subprocess.run(command, env=package, cwd=folder, capture_output=True, text=True)
    assert done.stdout == "whole\n", done.stderr


@pytest.mark.slow
def test_its_tests_are_made_and_pass(package):
    files = ["tests/minigrad/test_ops.py", "tests/study/test_explain.py", "tests/cuda/kernels/test_every_op.py",
             "tests/cuda/core/test_routes.py"]  # fmt: skip
    options = ["-q", "-m", "not deep", "-k", "cube and not users", "-p", "no:cacheprovider"]
    options += ["-o", f"pythonpath={package['PYTHONPATH']}"]
    command = [sys.executable, "-m", "pytest", *options, *[str(ROOT / file) for file in files]]
    done = subprocess.run(command, env=package, cwd=package["PYTHONPATH"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 20

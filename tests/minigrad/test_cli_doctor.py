"""`minigrad doctor` and `minigrad warmup`."""

import numpy as np
import pytest

from minigrad import kernels, later
from minigrad.cli import doctor, main, warmup
from minigrad.kernels import store
from minigrad.ops.registry import OPS


def test_the_report_names_every_part(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for part in ("python", "threads", "BLAS", "products", "numba", "kernel cache", "torch", "CUDA driver", "graphviz"):
        assert part in text


def test_what_is_missing_comes_with_a_command():
    finding = doctor._package("a-package-that-does-not-exist", "something", "pip install it")
    assert "not installed (for something)" in finding.found
    assert finding.mend == "pip install it"


def test_a_broken_part_is_a_finding():
    def _part():
        raise RuntimeError("it fell apart")

    finding = doctor._guarded(_part)
    assert finding.what == "part"
    assert "it fell apart" in finding.found


@pytest.mark.parametrize("name", ["softmax", "adam", "sum"])
def test_warmup_runs_the_kernel(name, monkeypatch):
    ran = []
    original = later.load(kernels.spec(OPS[name], "cpu", "float32"))

    def counted(calls, inputs, outputs, **attrs):
        ran.append(all(np.asarray(x).dtype != np.float64 or x.ndim == 0 for x in inputs))
        return original(calls, inputs, outputs, **attrs)

    monkeypatch.setitem(later._loaded, kernels.spec(OPS[name], "cpu", "float32"), counted)
    for op, calls in warmup.bound_kernels():
        if op == name:
            calls.run()
    assert ran
    assert all(ran)


@pytest.mark.slow
def test_warmup_leaves_no_kernel_of_an_op_to_be_compiled(monkeypatch):
    from minigrad.kernels import compiler

    warmup.together(warmup.bound_kernels())
    monkeypatch.setattr(compiler, "_compile", lambda jobs, tell: pytest.fail(f"{jobs[0][0].__name__} was left out"))
    for _, calls in warmup.bound_kernels():
        calls.run()


def test_warmup_knows_every_cpu_kernel():
    assert {name for name, _ in warmup.bound_kernels()} == {
        name for name, op in OPS.items() if kernels.specs(op, "cpu")
    }


def test_warmup_compiles_what_only_plans_call():
    from minigrad.kernels.numba import argmax, matvec, put, twins

    for _, compile_one in warmup.programs_to_compile():
        compile_one()
    assert all(kernel.codes for kernel in (argmax._rows, matvec.by_rows, put._write, twins._check_rows))


def test_the_cache_is_shown_and_emptied(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    store.write("0" * 40, [b"object"])
    assert doctor._cache().found.startswith(f"{tmp_path}, 1 files, 0.0 MiB")
    assert main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out == f"1 files are removed from {tmp_path}\n"
    assert list(tmp_path.rglob("*.*")) == []


def test_without_a_home_the_cache_is_a_finding(monkeypatch):
    monkeypatch.setattr(store, "cache_folder", lambda: None)
    assert doctor._cache().mend == "set MINIGRAD_CACHE to a folder"

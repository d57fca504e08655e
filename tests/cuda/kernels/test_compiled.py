"""Every kernel is compiled for sm_90, with type inference: no double arithmetic, no spills, within its registers.

No GPU is needed. Kernels that are written as text on demand are represented by forms that use every expression. The
forms of the dtypes that models compute in are compiled each time, those of the other dtypes with `-m deep`.
"""

import importlib

import pytest

import minigrad.compiler
import minigrad.functional
import minigrad.optim  # noqa: F401  (they register ops)
from minigrad import kernels
from minigrad.kernels.cuda import codegen, words
from minigrad.kernels.cuda.codegen import DENSE, SINGLE, Form, Operand, Strided
from minigrad.kernels.cuda.language import KERNELS, Kernel
from minigrad.ops import rules
from minigrad.ops.registry import OPS

pytest.importorskip("numba_cuda", reason="compiling kernels needs the extra [cuda]")

CAPABILITY = (9, 0)
DTYPES = ("float32", "bfloat16", "int64", "bool", "float64", "float16", "int8", "int16", "int32", "uint8")
USUAL = DTYPES[:4]


def operands(name):
    """The places of an op's operands among two of a dtype and a condition."""
    return (2, 0, 1) if name == "where" else tuple(range(len(OPS[name].inputs) + len(OPS[name].attributes)))


def expressed(dtype):
    return sorted(
        name for name, op in OPS.items() if op.tree is not None and (name == "where" or words.serve(op, dtype))
    )


def every_expression(dtype):
    """Kernels whose steps are the expressions of a dtype, eight in each: two operands, a condition, eight outputs."""
    names = expressed(dtype)
    for first in range(0, len(names), 8):
        chosen = names[first : first + 8]
        boolean = [OPS[name].shape_rule is rules.boolean for name in chosen]
        outputs = [Operand("bool" if true else dtype, DENSE) for true in boolean]
        inputs = (Operand(dtype, DENSE), Operand(dtype, DENSE), Operand("bool", DENSE))
        kept = tuple(range(3, 3 + len(chosen)))
        yield Form(tuple((op, operands(op)) for op in chosen), inputs, tuple(outputs), kept, 1, 1)


def casts(dtypes):
    for source in dtypes:
        targets = [target for target in DTYPES if target != source]
        outputs = tuple(Operand(target, DENSE) for target in targets)
        body = tuple((f"cast:{target}", (0,)) for target in targets)
        yield Form(body, (Operand(source, DENSE),), outputs, tuple(range(1, 1 + len(targets))), 1, 1)


def layouts():
    """Vectors and single elements; rows, columns, numbers and any strides; copies of every size of element."""
    two = (("mul", (0, 1)), ("gelu", (2,)))
    x, y = Operand("float32", DENSE), (Operand("float32", DENSE),)
    yield Form(two, (x, x), y, (3,), 1, 4)
    yield Form(two, (x, Operand("float32", SINGLE)), y, (3,), 1, 4)
    yield Form(two, (x, Operand("float32", SINGLE, "0.5")), y, (3,), 1, 4)
    yield Form(two, (x, Operand("float32", Strided(0, 1))), y, (3,), 2, 4)
    yield Form(two, (x, Operand("float32", Strided(0, 0))), y, (2, 3), 2, 4)._replace(outputs=y * 2)
    yield Form(two, (Operand("float32", Strided(0, 1)), Operand("float32", Strided(1, "any"))), y, (3,), 4, 1)
    for dtype in ("uint8", "uint16", "float32", "int64"):
        yield Form((), (Operand(dtype, Strided(0, "any")),), (Operand(dtype, Strided(1, 1)),), (0,), 3, 4)


def forms(dtypes):
    for dtype in dtypes:
        yield from every_expression(dtype)
    yield from casts(dtypes)


def all_kernels():
    for module in sorted({s.split(":")[0] for op in OPS.values() for s in kernels.specs(op, "cuda").values()}):
        importlib.import_module(module)
    known = [kernel for kernel in KERNELS.values() if not kernel.name.startswith("fused_")]
    usual = {kernel.name: kernel for kernel in map(codegen.made, (*layouts(), *forms(USUAL)))}
    others = {kernel.name: kernel for kernel in map(codegen.made, forms(DTYPES[4:])) if kernel.name not in usual}
    yield from (pytest.param(kernel, id=kernel.name) for kernel in (*known, *usual.values()))
    yield from (pytest.param(kernel, id=kernel.name, marks=pytest.mark.deep) for kernel in others.values())


@pytest.mark.parametrize("kernel", [*all_kernels()])
def test_a_kernel_compiles_within_its_means(kernel: Kernel):
    from minigrad.kernels.cuda import compiler

    report = compiler.report(kernel, CAPABILITY)
    assert report.spills == 0
    assert report.registers <= kernel.registers
    assert kernel.threads * report.registers <= 65536
    assert kernel.float64 or not report.float64

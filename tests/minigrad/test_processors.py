"""Machine code for other processors: an older x86-64 by its features, ARM by LLVM's cross-compiler."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from minigrad.kernels import machine

pytestmark = pytest.mark.slow  # each compiles its kernels afresh
ROOT = Path(__file__).parents[2]
ARM = [("aarch64-unknown-linux-gnu", "neoverse-n1"), ("arm64-apple-macosx13", "apple-m1")]
PROCESSORS = {"AVX2": ("haswell", "+avx,+avx2,+fma,+f16c,+bmi2"), "SSE2": ("x86-64", "+sse2")}

# A step of training with the kinds of kernels that there are: products, a fused expression, rows, sums, a step of Adam.
PROGRAM = """
import numpy as np
import minigrad as mg
from minigrad import functional as F
from minigrad.kernels import compiler
compiler.MOST = 0  # all is compiled in this process, which prints it
draw = np.random.default_rng(0).standard_normal
x, target = mg.tensor(draw((64, 48)).astype(np.float32)), mg.tensor(np.arange(64) % 80)
w, gain = (mg.tensor(a.astype(np.float32), requires_grad=True) for a in (draw((48, 80)), 1 + 0.1 * draw(80)))

def loss(x, w, gain):
    h = F.gelu(x @ w) * gain
    return F.cross_entropy(F.layer_norm(h.softmax(-1) + h, (80,)), target) + (h ** 2).mean()

kept = loss(x, w, gain)
kept.backward()
expected = kept.item(), w.grad.numpy(), gain.grad.numpy()
w.grad = gain.grad = None
optimizer = mg.optim.AdamW([w, gain])

@mg.compile
def step(x):
    kept = loss(x, w, gain)
    kept.backward()
    return kept

found = step(x).item()
for got, wanted in zip((found, w.grad.numpy(), gain.grad.numpy()), expected):
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-5)
optimizer.step()
print("equal")
"""


def compiled(processor, tmp_path, setting):
    """What numba prints of its kernels while the program runs as if on a processor; the program checks its values."""
    name, features = PROCESSORS[processor]
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "MINIGRAD_CACHE": str(tmp_path), "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features, setting: "1",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.endswith("equal\n")
    return ran.stdout


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="not an x86-64 processor")
@pytest.mark.parametrize(("processor", "registers"), [("AVX2", "ymm"), ("SSE2", "xmm")])
def test_an_older_processor_computes_the_same_with_what_it_has(processor, registers, tmp_path):
    text = compiled(processor, tmp_path, "NUMBA_DUMP_ASSEMBLY")
    assert f"%{registers}" in text
    assert not {"ymm", "zmm"} - {registers} & set(re.findall(r"%([yz]mm)\d", text))


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """The kernels as LLVM modules, made for a processor whose vectors have four numbers, as ARM's have."""
    text = compiled("SSE2", tmp_path_factory.mktemp("cache"), "NUMBA_DUMP_OPTIMIZED")
    found = re.split(r"^-+OPTIMIZED DUMP.*-+$|^=+$", text, flags=re.MULTILINE)
    found = [part[part.index("; ModuleID") :] for part in found if "; ModuleID" in part]
    assert len(found) > 10
    # numba's own counter of references, where LLVM has put x86's instruction already
    found = [
        re.sub(
            r"%(\S+) = (?:tail )?call i8 @llvm\.x86\.atomic\.sub\.cc\.i64\(ptr (?:nonnull )?(\S+), i64 1, i32 4\)",
            r"%was\1 = atomicrmw sub ptr \2, i64 1 monotonic\n%no\1 = icmp eq i64 %was\1, 1\n%\1 = zext i1 %no\1 to i8",
            module,
        )
        for module in found
    ]
    return [
        re.sub(r"^(target .*|equal)$|\"target-(cpu|features)\"=\"[^\"]*\"", "", m, flags=re.MULTILINE) for m in found
    ]


@pytest.mark.parametrize(("triple", "processor"), ARM)
def test_kernels_become_code_for_arm(modules, triple, processor):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    texts = []
    for text in modules:
        assert not re.search(r"call .*@llvm\.x86\.", text)
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = triple, str(target.target_data)
        module.verify()
        texts.append(target.emit_assembly(module))
        assert len(target.emit_object(module)) > 0
    vectors = [text for text in texts if re.search(r"\bfml[as](\.4s|\s+v\d+\.4s)", text)]
    assert len(vectors) > 3, "loops over numbers use multiply-adds of four numbers"


def test_features_are_those_that_are_stated(monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2,-avx512f")
    machine.has.cache_clear()
    assert (machine.has("avx2"), machine.has("avx512f"), machine.has("avx")) == (True, False, False)
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    machine.has.cache_clear()
    assert machine.has("avx512f") == bool(llvm.get_host_cpu_features().get("avx512f"))


WIDE = """
define void @run(ptr %to) {
  %v = load <16 x float>, ptr %to, align 64
  %w = fadd <16 x float> %v, %v
  store <16 x float> %w, ptr %to, align 64
  ret void
}
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86 processors")
@pytest.mark.parametrize(("may", "is_wide"), [("+avx512f", True), ("-avx512f", False)])
def test_what_a_virtual_machine_hides_is_not_used(may, is_wide, monkeypatch):
    """A processor's name says that it has AVX-512, and the machine may hide it: its instructions are illegal then."""

    class Features(dict):
        def flatten(self):
            return f"+avx2,{may},-prefer-256-bit"

    monkeypatch.delenv("NUMBA_CPU_FEATURES", raising=False)
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.setattr(machine.llvm, "get_host_cpu_name", lambda: "znver4")
    monkeypatch.setattr(machine.llvm, "get_host_cpu_features", Features)
    text = machine._target().emit_assembly(machine.llvm.parse_assembly(WIDE))
    assert ("zmm" in text) == is_wide

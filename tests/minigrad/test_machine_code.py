"""Machine code of kernels: called as numba wants it, kept on disk, and found again, whatever happens."""

import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from minigrad import requirements
from minigrad.cli import doctor
from minigrad.kernels import compiler, machine, native, store, team
from minigrad.kernels.numba import abi, build, jit, softmax
from minigrad.kernels.numba.gemm_tile import SERVED
from minigrad.kernels.numba.jit import kernel

ROOT = Path(__file__).resolve().parents[2]
STEP = """
import sys
import numpy as np
import minigrad as mg
from minigrad.compiler import compile
step = compile(lambda x: mg.functional.softmax(mg.functional.gelu(x) * 2.0 + x, -1).sum(0))
y = step(mg.from_numpy(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))).numpy()
print(y.tobytes().hex(), "numba" in sys.modules)
"""


@kernel
def everything(start, stop, matrix, ids, sizes, pair, flag, number, wide, out):
    """Every type that a kernel may be given; memory of its own too."""
    scratch = np.empty(matrix.shape[0], np.float32)
    for i in range(start, stop):
        scratch[i] = matrix[i, 1] * number + np.float32(ids[i])
        out[i] = scratch[i] + np.float32(wide) + np.float32(sizes[0] - sizes[1]) + pair[1][0]
        if flag:
            out[i] = -out[i]


@kernel
def refuses(start, stop, ids):
    for i in range(start, stop):
        if ids[i] < 0:
            raise IndexError("an id is negative")


def types_of(*values):
    types = []
    abi.read(values, types, [])
    return tuple(types)


PAIR = (2, (np.float32(0.5), ()))
TYPES = types_of(
    np.ones((4, 3), np.float32), np.arange(4), (7, 3), PAIR, True, np.float32(2), 0.25, np.ones(4, np.float32)
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache, and kernels that have no machine code yet."""
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    for one in (everything, refuses):
        monkeypatch.setattr(one, "codes", {})
    return tmp_path


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def call(matrix=None):
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3) if matrix is None else matrix
    out = np.zeros(4, np.float32)
    everything(1, 3, matrix, np.arange(4), (7, 3), PAIR, np.bool_(True), np.float32(2), 0.25, out)
    np.testing.assert_array_equal(out, [0, *(-(matrix[i, 1] * 2 + i + 0.25 + 4 + 0.5) for i in (1, 2)), 0])


def test_arguments_of_every_type_and_layout_arrive(folder):
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    read_only = matrix.copy()
    read_only.flags.writeable = False
    for given in (matrix, np.asfortranarray(matrix), np.repeat(matrix, 2, 1)[:, ::2], matrix[:, ::-1], read_only):
        call(given)
    assert len(everything.codes) == 3  # in rows, in columns, anything else


def test_what_no_kernel_takes_is_refused():
    with pytest.raises(TypeError, match="takes arrays, tuples and numbers, it was given a list"):
        everything(0, 1, [1.0])


def test_a_kernel_that_raises_says_what_python_says(folder):
    refuses(0, 2, np.array([1, 2, -1]))
    with pytest.raises(IndexError, match="an id is negative"):
        refuses(0, 3, np.array([1, 2, -1]))


def test_code_is_kept_and_found_again(folder, monkeypatch):
    call()
    kept = files(folder)
    assert kept
    monkeypatch.setattr(everything, "codes", {})
    monkeypatch.setattr(compiler, "_compile", lambda jobs, line: pytest.fail("compiled again"))
    call()
    assert files(folder) == kept


SPOILED = {
    "empty": lambda data: b"",
    "head only": lambda data: data[:40],
    "cut short": lambda data: data[:-1],
    "other bytes": lambda data: data[:1000] + b"\1\2" + data[1002:],
    "another format": lambda data: b"?" + data,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_broken_file_is_written_anew(folder, monkeypatch, spoil):
    call()
    before = {path: path.read_bytes() for path in files(folder)}
    for path, data in before.items():
        path.write_bytes(spoil(data))
    assert all(store.read(path.name) is None for path in before)
    monkeypatch.setattr(everything, "codes", {})
    call()
    assert all(store.read(path.name) for path in before)


def test_files_that_are_swapped_are_not_believed(folder):
    """Whole files, each with a digest that is right, under each other's names."""
    store.write("first", [b"one"])
    store.write("second", [b"another"])
    assert store.read("first") == (b"one",)
    first, second = (path for path in files(folder) if path.parent.name == "machine")
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    assert store.read(first.name) is store.read(second.name) is None


@pytest.mark.skipif(os.name != "posix", reason="files have no owners and modes here")
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(folder, monkeypatch, mode):
    call()
    before = files(folder)
    folder.chmod(mode)
    store.distrust.cache_clear()
    monkeypatch.setattr(everything, "codes", {})
    with pytest.warns(
        UserWarning, match=r"minigrad does not use its cache .*, which others may write to, and compiles"
    ):
        call()
    monkeypatch.setattr(everything, "codes", {})
    call()  # said once
    assert files(folder) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only the administrator can give files away")
@pytest.mark.parametrize("part", ["folder", "file"])
def test_what_another_user_owns_is_not_used(folder, monkeypatch, part):
    call()
    for path in [folder] if part == "folder" else files(folder):
        os.chown(path, 4321, 4321)
    store.distrust.cache_clear()
    with warnings.catch_warnings(action="ignore"):
        assert all(store.read(path.name) is None for path in files(folder))


def test_a_file_that_others_may_write_to_is_not_used(folder):
    call()
    for path in files(folder):
        path.chmod(0o666)
    assert all(store.read(path.name) is None for path in files(folder))


NO_CACHE = {
    "no home": {"MINIGRAD_CACHE": None, "XDG_CACHE_HOME": None, "HOME": None},
    "a home that is not there": {"MINIGRAD_CACHE": None, "XDG_CACHE_HOME": None, "HOME": "/dev/null/home"},
    "a folder that is a file": {"MINIGRAD_CACHE": __file__},
    "a folder in a device": {"MINIGRAD_CACHE": "/dev/null/cache"},
    "the system's processes": {"MINIGRAD_CACHE": "/proc"},
    "a name that is too long": {"MINIGRAD_CACHE": "/tmp/" + "x" * 5000},
    "a name that is no text": {"MINIGRAD_CACHE": "/dev/null/\udcff"},
}


@pytest.mark.parametrize("environment", NO_CACHE.values(), ids=NO_CACHE)
def test_without_a_cache_kernels_are_compiled(folder, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
    if "HOME" in environment and environment["HOME"] is None:
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert store.read("name") is None
    store.write("name", [b"object"])
    assert store.read("name") is None
    store.clear(1e9)


def test_what_nobody_uses_any_more_is_removed_and_nothing_else(folder):
    call()
    machine = next(path for path in files(folder) if path.parent.name == "machine")
    old = folder / "0.0.1" / "machine" / "old"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    mine = folder / "mine.txt"
    mine.write_text("the user's own")
    for path in (old, mine):
        os.utime(path, (0, 0))
    assert store.clear(store.UNUSED) == 1
    assert not old.parent.parent.exists()
    assert machine.exists()
    assert store.clear() >= 1
    assert files(folder) == [mine]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(everything, "codes", {})
    call()
    assert files(tmp_path) == [tmp_path / "file"]


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    def fails(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    assert not store.write_whole(tmp_path / "deep" / "name", b"data")
    assert files(tmp_path) == []


def test_another_source_processor_or_setting_has_another_name(monkeypatch):
    names = {store.name_of("kernel", "text"), store.name_of("kernel", "text "), store.name_of("kernel", "te", "xt")}
    store._surroundings.cache_clear()
    monkeypatch.setenv("NUMBA_OPT", "1")
    names.add(store.name_of("kernel", "text"))
    store._surroundings.cache_clear()
    monkeypatch.delenv("NUMBA_OPT")
    monkeypatch.setattr(store.llvm, "get_host_cpu_name", lambda: "another")
    names.add(store.name_of("kernel", "text"))
    store._surroundings.cache_clear()
    monkeypatch.setattr(store.sysconfig, "get_config_var", lambda name: "cpython-314t-x86_64-linux-gnu")
    names.add(store.name_of("kernel", "text"))
    store._surroundings.cache_clear()
    assert len(names) == 6


def test_changed_source_is_compiled_anew(folder):
    text = "from minigrad.kernels.numba.jit import kernel\n\n\n@kernel\ndef fused(start, stop, x):\n    x[0] = {}\n"
    x = np.zeros(1, np.float32)
    for value in (1, 2):
        jit.generated(text.format(value)).fused(0, 1, x)
        assert x[0] == value


def test_objects_need_nothing_that_only_numba_has(folder):
    call()
    objects = next(found for found in (store.read(path.name) for path in files(folder)) if found and len(found) == 2)
    engine = machine.link(objects)
    assert engine.get_function_address("run")
    assert jit.Code(TYPES, objects).address


def test_several_threads_may_compile_one_kernel_at_once(folder):
    failed = []

    def attempt():
        try:
            call()
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(120)
    assert not failed


def processes(count, folder, code=STEP):
    """What new processes print that run `code` at once, with the same cache folder."""
    environment = {**os.environ, "MINIGRAD_CACHE": str(folder), "MINIGRAD_PROGRESS": "1"}
    command = [sys.executable, "-c", code]
    running = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    ended = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0] * count, ended
    return ended


@pytest.mark.slow
def test_processes_fill_one_cache_at_once_and_the_next_needs_no_compiler(tmp_path):
    first = processes(3, tmp_path)
    assert len({out.split()[0] for out, _ in first}) == 1
    assert all("minigrad compiles kernels, once: 0 of" in err for _, err in first)
    ((out, err),) = processes(1, tmp_path)
    assert out.split() == [first[0][0].split()[0], "False"]
    assert not err


class TestWorkers:
    @pytest.fixture(autouse=True)
    def two(self, monkeypatch):
        monkeypatch.setattr(compiler.threads, "available", lambda: 2)
        monkeypatch.setattr(compiler, "SHARE", 1)

    def test_workers_compile_and_what_they_cannot_is_compiled_here(self, folder):
        texts = [
            "from minigrad.kernels.numba.jit import kernel\n\n\n@kernel\ndef fused(start, stop, x):\n"
            f"    for i in range(start, stop):\n        x[i] += {i}\n"
            for i in range(3)
        ]
        x = np.zeros(2, np.float32)
        types = types_of(x)
        made = [jit.generated(text).fused for text in texts]
        jobs = [(one, types) for one in made] + [(refuses, types_of(np.arange(2)))]
        compiler.compile_all(jobs)  # a worker cannot import this file: `refuses` comes back
        for one in made:
            one(0, 2, x)
        np.testing.assert_array_equal(x, 3)
        refuses(0, 1, np.arange(2))
        assert len([path for path in files(folder) if "machine" in path.parts]) >= 4

    def test_a_worker_whose_files_have_changed_compiles_nothing(self, folder, monkeypatch):
        asked = []
        ask = compiler._ask
        monkeypatch.setattr(compiler, "_ask", lambda *job: asked.append(ask(*job)) or asked[-1])
        texts = [
            f"from minigrad.kernels.numba.jit import kernel\n\n\n@kernel\ndef fused(start, stop):\n    {i}\n"
            for i in (7, 8)
        ]
        jobs = [(jit.generated(text).fused, ()) for text in texts]
        monkeypatch.setattr(store, "_surroundings", lambda: "other sources")
        compiler.compile_all(jobs)
        assert asked == [None, None]
        assert all(() in kernel.codes for kernel, _ in jobs)

    @pytest.mark.parametrize(
        "serve", ["import sys; sys.exit(1)", "print('not an answer')", "import os; os.kill(os.getpid(), 9)"]
    )
    def test_a_worker_that_dies_or_talks_leaves_the_work_to_us(self, folder, monkeypatch, serve):
        monkeypatch.setattr(compiler, "_SERVE", serve)
        compiler.compile_all([(refuses, types_of(np.arange(2))), (everything, TYPES)])
        refuses(0, 1, np.arange(2))
        call()


@kernel
def doubled(start, stop, x, y):
    """A loop for the vectoriser."""
    x, y = x[start:stop], y[start:stop]
    for i in range(x.shape[0]):
        y[i] = x[i] + x[i]


@pytest.mark.skipif(not SERVED, reason="needs a processor with AVX-512")
def test_kernels_use_whole_vectors_and_nobody_elses_functions_change():
    from numba.core.registry import cpu_target

    before = cpu_target.target_context.codegen()
    vector = types_of(np.ones(4, np.float32))
    build.build(doubled, (*vector, *vector))
    (compiled,) = doubled.numba.overloads.values()
    assert "zmm" in compiled.library.get_asm_str()
    assert cpu_target.target_context.codegen() is before


@kernel
def addresses(start, stop, found):
    """Where arrays of a kernel's own lie."""
    for i in range(start, stop):
        found[i] = np.empty(i + 1, np.float32).ctypes.data


def test_a_kernels_own_arrays_begin_at_a_line_of_the_cache():
    found = np.zeros(100, np.int64)
    addresses(0, 100, found)
    assert found.all()
    assert not (found % 64).any()


class TestAnotherNumba:
    """Versions that are not tested: a kernel is tried first, and where that fails numba calls the kernels itself."""

    SAID = "numba 99.0 is newer than what minigrad is tested with"

    @pytest.fixture(autouse=True)
    def newer(self, folder, monkeypatch):
        monkeypatch.setattr(requirements, "misfits", lambda: {"numba": self.SAID})
        monkeypatch.setattr(compiler.threads, "available", lambda: 1)  # no worker, which would not be changed
        build.lacks.cache_clear()
        yield
        build.lacks.cache_clear()

    @pytest.fixture
    def without_private_parts(self, monkeypatch):
        def lacks(*_):
            raise AttributeError("module 'numba.core.registry' has no attribute 'cpu_target'")

        monkeypatch.setattr(build, "_build", lacks)

    def test_one_that_works_as_those_before_it_is_used_as_they_are(self, folder):
        assert build.lacks() == ""
        call()
        assert files(folder)

    def test_one_whose_kernels_compute_something_else_is_found_out(self, monkeypatch):
        def other(start, stop, numbers, pair):
            numbers[start] = pair[0]

        monkeypatch.setattr(build, "_probe", other)
        why = "RuntimeError: a kernel computes something else"
        assert build.lacks() == (
            f"{self.SAID}, and gives no machine code away ({why}): numba calls the kernels itself, on one thread"
        )

    def test_one_whose_kernels_ask_for_more_is_found_out_before_they_run(self, monkeypatch):
        monkeypatch.setattr(build, "_MEMORY", build._MEMORY.replace("NRT_MemInfo_alloc_aligned", "NRT_older"))
        assert "kernels ask for NRT_MemInfo_alloc_aligned" in build.lacks()

    def test_numba_calls_a_kernel_itself(self, folder, without_private_parts):
        call()
        assert everything.codes == {TYPES: None}
        assert not files(folder)
        with pytest.raises(IndexError, match="an id is negative"):
            refuses(0, 2, np.array([1, -1]))

    def test_all_rows_are_computed_where_a_team_would(self, without_private_parts):
        ids = np.array([0, 0, 0, -1])
        team.over_rows(refuses, 3, 1e9, ids)
        with pytest.raises(IndexError, match="an id is negative"):
            team.over_rows(refuses, 4, 1e9, ids)

    def test_a_plan_leaves_its_calls_to_python(self, without_private_parts):
        calls = [(team.over_rows, (refuses, 2, 10.0, np.arange(2)))]
        assert native.assemble(calls) == calls

    @pytest.mark.slow
    def test_a_compiled_step_computes_the_same(self, tmp_path):
        lacking = (
            "from minigrad import requirements\n"
            "requirements.misfits = lambda: {'numba': 'numba 99.0 is newer'}\n"
            "from minigrad.kernels import compiler\n"
            "compiler.threads.available = lambda: 1\n"
            "from minigrad.kernels.numba import build\n"
            "build._build = None\n"
        )
        ((ours, err),) = processes(1, tmp_path / "ours")
        ((theirs, err),) = processes(1, tmp_path / "theirs", lacking + STEP)
        found = [np.frombuffer(bytes.fromhex(out.split()[0]), np.float32) for out in (ours, theirs)]
        np.testing.assert_allclose(*found, rtol=1e-5)
        assert list((tmp_path / "ours").rglob("machine/*"))
        assert not list((tmp_path / "theirs").rglob("machine/*")), err

    def test_the_report_says_so(self, without_private_parts, monkeypatch):
        monkeypatch.setattr(softmax._forward, "codes", {})
        finding = doctor._kernels()
        assert "a test kernel gave 2, and 2 is right" in finding.found
        assert f"{self.SAID}, and gives no machine code away (AttributeError: module 'numba.core" in finding.found
        assert finding.mend == requirements.INSTALL

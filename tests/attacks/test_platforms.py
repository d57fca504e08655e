"""Systems that are not Linux, as far as they can be had here: names that they lack are taken away, and mypy reads the
branches for Windows.

What mypy holds (`mypy --platform win32`, in `.ci/run`) is that such a name stands behind a test of `sys.platform`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from conformance import systems
from conformance.sandbox import seccomp

ROOT = Path(systems.__file__).parents[1]

LACKING = """
import os, signal, sys
from importlib.machinery import PathFinder

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in {modules}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

class Elsewhere:  # what our own files see as the module sys: others' files have branches for systems by name
    platform = "elsewhere"
    def __getattr__(self, name):
        return getattr(sys, name)

class Ours:
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("conformance.") or not (spec := PathFinder.find_spec(name, path)):
            return None
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            if getattr(module, "sys", None) is sys:
                module.sys = Elsewhere()
        spec.loader.exec_module = exec_module
        return spec

for name in {modules}:
    sys.modules.pop(name, None)
sys.meta_path[:0] = Lacking(), Ours()
for module, names in ((os, {of_os}), (signal, {of_signal})):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "spwd", "crypt", "nis")
OF_OS = ("fork", "forkpty", "setsid", "setpgid", "getpgid", "getpgrp", "sched_getaffinity", "sched_setaffinity",
         "setpriority", "getloadavg", "nice", "mkfifo", "chroot", "setuid", "setgid", "wait3", "wait4", "memfd_create",
         "sync", "posix_fadvise", "sendfile", "pidfd_open", "eventfd")  # fmt: skip
OF_SIGNAL = ("SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP", "SIGCONT", "alarm",
             "pthread_sigmask", "sigtimedwait", "sigwait", "pause")  # fmt: skip
"""What Windows lacks, beside what Python's own modules or the branches for POSIX here are made of."""

SUBJECTS = {
    "reference": None,
    "model.py:Attention": """
import torch

class Attention(torch.nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.inner = torch.nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]
""",
}


@pytest.fixture
def elsewhere(tmp_path):
    """The environment of a Python that has not what only Linux has."""
    code = LACKING.format(
        modules=tuple({*MODULES} - {"resource"}), of_os=OF_OS, of_signal=OF_SIGNAL, platform="elsewhere"
    )
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def test_what_is_taken_away_is_missing(elsewhere):
    """Else the tests below would hold nothing."""
    program = """
import os, signal
from conformance import keeper, systems
print(systems.sys.platform, keeper.is_possible(), hasattr(os, "fork"), hasattr(signal, "alarm"))
import fcntl
"""
    done = subprocess.run([sys.executable, "-c", program], env=elsewhere, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["elsewhere", "False", "False", "False"], done.stderr
    assert "No module named 'fcntl'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("impl", "claims", "verdicts"),
    [
        ("reference", "softmax-formula", {"PASS"}),
        ("model.py:Attention", "multi-head-formula,*permutation*", {"PASS", "NOT PROVIDED"}),
    ],
)
def test_the_main_job_runs_without_what_other_systems_lack(tmp_path, elsewhere, impl, claims, verdicts):
    if SUBJECTS[impl]:
        pytest.importorskip("torch")
        (tmp_path / "model.py").write_text(SUBJECTS[impl])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--impl", impl, "--claims", claims,
         "--claims-report", "report.json", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path, env=elsewhere, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "report.json").read_text())["claims"]
    assert {claim["verdict"] for claim in found} == verdicts


def _can_hide_proc() -> bool:
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _can_hide_proc(), reason="a process may not hide /proc from itself here")
def test_the_main_job_runs_without_proc_and_on_one_core(tmp_path):
    hidden = 'mount -t tmpfs none /proc && test -z "$(ls /proc)" && exec "$@"'
    one_core = (
        "import os, sys; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); os.execv(sys.argv[1], sys.argv[1:])"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hidden, "sh", sys.executable, "-c", one_core,
         sys.executable, "-m", "pytest", "--pyargs", "conformance", "--claims", "softmax-formula", "-q"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 claims kept" in done.stdout


# --- the branches for Windows ---------------------------------------------------------------------


def as_on_windows(monkeypatch, file: Path) -> types.ModuleType:
    """A file of ours, loaded as Windows would, on what Windows has for pipes and locks, made of what there is here."""
    fcntl, termios, select = (pytest.importorskip(name) for name in ("fcntl", "termios", "select"))

    def peek(handle):
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        events = dict(waiting.poll(0)).get(handle, 0)
        if events & select.POLLHUP and not events & select.POLLIN:
            raise BrokenPipeError(109, "The pipe has been ended")
        return int.from_bytes(fcntl.ioctl(handle, termios.FIONREAD, bytes(4)), sys.byteorder), 0

    def locking(descriptor, mode, count):
        assert (mode, count) == ("LK_NBLCK", 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 2**20  # what is locked cannot be read
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    fakes = {
        "_winapi": {"PeekNamedPipe": peek},
        "msvcrt": {"get_osfhandle": lambda descriptor: descriptor, "locking": locking, "LK_NBLCK": "LK_NBLCK"},
    }
    for name, members in fakes.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**members))
    monkeypatch.setattr(sys, "platform", "win32")
    module = types.ModuleType(file.stem)
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module


def test_windows_waits_for_pipes(monkeypatch):
    loaded = as_on_windows(monkeypatch, Path(systems.__file__))
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        assert not loaded.is_readable(pipe, 0.05)
        os.write(writing, b"x")
        assert loaded.is_readable(pipe, 0.0)
        assert pipe.read(1) == b"x"
        assert not loaded.is_readable(pipe, -1.0)
        os.close(writing)
        assert loaded.is_readable(pipe, 0.0)  # its end can be read


def test_windows_limits_the_clock_and_ends_one_process(monkeypatch):
    loaded = as_on_windows(monkeypatch, Path(systems.__file__))
    assert loaded.OUT_OF_TIME is None
    loaded.in_forks(lambda: pytest.fail("Windows has no forks"))
    loaded.tell_where_time_ended()
    ended = []
    loaded.end(types.SimpleNamespace(pid=-1, terminate=lambda: ended.append(True)))
    assert ended == [True]
    program = "import time\nfrom conformance import systems\nwith systems.limited_time(60.0, 0.2):\n    time.sleep(60)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Timeout (" in done.stderr


def test_windows_locks_a_folder(monkeypatch, tmp_path):
    loaded = as_on_windows(monkeypatch, ROOT / "minigrad" / "locks.py")
    folder = tmp_path
    with loaded.only_writer(folder):
        assert (folder / loaded.NAME).read_text() == f"{os.getpid()}\n"
        loaded._ours().clear()  # as another process
        with (
            pytest.raises(BlockingIOError, match=f"process {os.getpid()} writes to it"),
            loaded.only_writer(folder),
        ):
            pass
    with loaded.only_writer(folder):
        pass


# --- what is imported ----------------------------------------------------------------------------


def imported_everywhere(tree: ast.AST) -> set[str]:
    """The modules that are imported on every system: not behind a test of `sys.platform`, nor where ImportError is
    caught."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.expr():  # nothing is imported in one
                continue
            case ast.If(test=test) if "sys.platform" in ast.unparse(test):
                continue
            case ast.Import(names=names):
                found |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
            case _:
                found |= imported_everywhere(node)
    return found


LINUX_ONLY = {"conformance/sandbox/privileges.py", "conformance/sandbox/trials.py"}
"""Files that are imported behind a test of the system."""


@pytest.mark.parametrize("package", ["conformance", "minigrad", "transformer"])
def test_nothing_is_imported_that_windows_lacks(package):
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in (ROOT / package).rglob("*.py")}
    named = re.compile(rf"\b(?:{'|'.join(MODULES)})\b")  # few files have such a word, and only these are parsed
    trees = ((name, ast.parse(text)) for name, text in texts.items() if named.search(text))
    wrong = {name: found for name, tree in trees if (found := imported_everywhere(tree) & set(MODULES))}
    assert {name: found for name, found in wrong.items() if name not in LINUX_ONLY} == {}


def test_an_import_that_windows_lacks_would_be_found():
    assert imported_everywhere(ast.parse("def f():\n    import fcntl")) == {"fcntl"}
    assert imported_everywhere(ast.parse("import sys\nif sys.platform != 'win32':\n    import fcntl")) == {"sys"}


HEADERS = ("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")
"""Where the system says the numbers of its calls: on x86-64, and on what came later, ARM among it."""


@pytest.mark.parametrize(("at", "header"), [*enumerate(HEADERS)])
def test_forbidden_calls_have_the_numbers_of_the_system(at, header):
    file = Path("/usr/include", header)
    if not file.is_file():
        pytest.skip("the headers of the system are not here")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)$", file.read_text(), re.MULTILINE)
    numbers = {name: int(number) for name, number in found}
    listed = {**seccomp._FORBIDDEN, **{name: both for name, (both, _) in seccomp._OTHERS.items()}}
    newest = max(numbers.values())
    assert len(numbers) > 250
    for name, both in listed.items():
        assert both[at] in (numbers.get(name, 0), 0) or both[at] > newest, name
        assert both[at] or name not in numbers, name

"""Isolation: what an implementation does to its process is a verdict, and the rest still runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from processes import host_of, is_alive, outlives

from conformance import hosting, keeper
from conformance import supervisor as supervisor_module
from conformance.adapters import SpecificationError
from conformance.catalogue import load
from conformance.sandbox import landlock
from conformance.supervisor import Supervisor, judgement
from conformance.verdict import Verdict

MINIATURES = Path(__file__).parent / "miniatures.py"
CLAIMS = [claim.slug for claim in load().select("attention") if claim.is_tested][:6]
FIRST = "attention-is-scaled-by-sqrt-d-k"


def run(miniature, claims=(FIRST,), **options):
    with Supervisor(f"{MINIATURES}:{miniature}", **options) as supervisor:
        supervisor.submit(claims)
        return {claim: supervisor.result(claim) for claim in claims}


def question():
    return "claim", {"claim": FIRST, "budget": "default", "seed": 0}, lambda answer: judgement(answer, FIRST)


@pytest.mark.parametrize("is_fresh", [True, False], ids=["fresh", "fork"])
def test_a_correct_implementation_passes(is_fresh, monkeypatch):
    if is_fresh:
        monkeypatch.setattr(hosting, "_server", lambda _: None)
    assert {result.verdict for result in run("Correct", CLAIMS).values()} <= {Verdict.PASS, Verdict.NOT_PROVIDED}


def test_what_an_implementation_prints_and_reads_disturbs_nothing():
    assert run("Chatty")[FIRST].verdict is Verdict.PASS


def test_sys_exit_is_an_error():
    result = run("Leaves")[FIRST]
    assert (result.verdict, result.message) == (Verdict.ERROR, "SystemExit: 3")


@pytest.mark.slow
def test_a_hang_is_an_error_that_says_where_and_the_rest_is_given_up(monkeypatch):
    monkeypatch.setattr(supervisor_module, "ASLEEP", 2)
    started = time.perf_counter()
    results = list(run("Hangs", CLAIMS, claim_seconds=0.5, children=1).values())
    assert {result.verdict for result in results} == {Verdict.ERROR}
    assert results[0].message.startswith("the implementation took longer than 1 s at File ")
    assert "miniatures.py" in results[0].message
    assert results[-1].message == "not run: 3 claims before it took too long"
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize("miniature", ["Spins", "SpinsBeside"])
def test_an_endless_loop_is_an_error_by_the_processor_time_that_it_uses(miniature, monkeypatch):
    monkeypatch.setattr(supervisor_module, "ASLEEP", 1000.0)  # whatever else the machine does
    result = run(miniature, claim_seconds=0.5)[FIRST]
    assert result.verdict is Verdict.ERROR
    assert result.message.startswith("the implementation used more than 0.5 s of processor time at File ")
    assert "miniatures.py" in result.message


@pytest.mark.slow
def test_an_interrupted_process_has_not_used_its_time(monkeypatch):
    """A machine that is busy elsewhere, or a laptop that sleeps, is no hang."""
    monkeypatch.setattr(supervisor_module, "ASLEEP", 1000.0)
    child = supervisor_module.Child(f"{MINIATURES}:Correct", 60)
    try:
        os.kill(host_of(child.process.pid), signal.SIGSTOP)
        threading.Timer(3.0, os.kill, (host_of(child.process.pid), signal.SIGCONT)).start()
        result = child.ask(*question(), 2.0)
    finally:
        child.close()
    assert result.verdict == Verdict.PASS


def test_a_hang_that_cannot_be_interrupted_is_killed(monkeypatch):
    """The child's own timer is switched off by the implementation, so the parent must end it."""
    monkeypatch.setattr(supervisor_module, "GRACE", 0.3)
    child = supervisor_module.Child(f"{MINIATURES}:Hangs", 60)
    try:
        os.kill(host_of(child.process.pid), signal.SIGSTOP)  # not even its timer runs
        with pytest.raises(supervisor_module.Died, match=r"took longer than 0.8 s"):
            child.ask(*question(), 0.2)
    finally:
        child.close()
    assert child.process.returncode == -9


def test_a_killed_process_is_an_error_and_a_fresh_one_takes_the_rest(tmp_path, monkeypatch):
    guard = tmp_path / "guard"
    guard.touch()
    monkeypatch.setenv("MINIATURE_GUARD", str(guard))
    results = list(run("Dies", CLAIMS, children=1).values())
    assert results[0].verdict is Verdict.ERROR
    assert results[0].message.startswith("the implementation killed its process (SIGKILL")
    assert {result.verdict for result in results[1:]} <= {Verdict.PASS, Verdict.NOT_PROVIDED}
    assert Verdict.PASS in {result.verdict for result in results[1:]}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space reliably")
def test_a_runaway_allocation_is_an_error():
    result = run("Devours")[FIRST]
    assert result.verdict is Verdict.ERROR
    assert "MemoryError" in result.message


def test_a_claim_without_a_check_is_an_error():
    with Supervisor("reference") as supervisor:
        assert "no check" in supervisor.result("no-such-check").message


def test_closing_ends_every_process():
    with Supervisor(f"{MINIATURES}:Hangs", claim_seconds=60) as supervisor:
        supervisor.submit([FIRST])
        processes = [child.process for child in supervisor._living]
        assert all(process.poll() is None for process in processes)
    assert all(process.poll() is not None for process in processes)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        pytest.param(
            "import time\ntime.sleep(60)",
            "importing and constructing it took longer than 4 s at File",
            marks=pytest.mark.slow,
        ),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", r"killed its process \(SIGSEGV\)"),
        ("import os\nos.write(201, b'loading\\n')", "it wrote a line into the pipe of answers that is not JSON"),
        ("raise ValueError('long ' * 300_000)", "the answer takes 1,5.* bytes, and may take 1,048,576"),
        ("import os\nos._exit(7)", "ended its process with exit code 7"),
        ("raise ValueError('broken file')", "importing it raised ValueError: broken file at"),
        ("x = 1\ndef f(:\n", r"importing it raised SyntaxError: .* at .*subject\.py:2: def f\(:"),
        ("import sys\nsys.exit('no display')", "importing it raised SystemExit: no display"),
        (
            "class X:\n  def __init__(self): raise OSError('no weights')\n  build = 1",
            r"X\(\) raised OSError: no weights",
        ),
    ],
)
def test_an_implementation_that_cannot_be_loaded_is_one_sentence(tmp_path, source, complaint):
    path = tmp_path / "subject.py"
    path.write_text(source)
    with pytest.raises(SpecificationError, match=complaint), Supervisor(f"{path}:X", load_seconds=1.0):
        pass


def test_a_child_ends_when_its_parent_is_killed():
    code = (
        "from conformance.supervisor import Supervisor\n"
        "with Supervisor('reference') as supervisor:\n"
        "    print(supervisor._first.process.pid, flush=True)\n"
        "    import time; time.sleep(60)\n"
    )
    assert not outlives(code)


LEAVES_ONE = """
import os, time
def left_behind():
    child = os.fork()
    if not child:
        os.setsid()
        {then}
        time.sleep(120)
    return child
class X:
    def build(self, role, config):
        open({where!r}, "w").write(str(left_behind()))
        raise OSError("no such role")
"""


@pytest.mark.skipif(not keeper.is_possible(), reason="only Linux gives a process what its children leave behind")
@pytest.mark.parametrize("then", ["", "os.fork() or time.sleep(120)"], ids=["child", "grandchild"])
def test_what_leaves_its_session_ends_with_the_implementation(tmp_path, then):
    where = tmp_path / "pid"
    path = tmp_path / "subject.py"
    path.write_text(LEAVES_ONE.format(then=then, where=str(where)))
    with Supervisor(f"{path}:X") as supervisor:
        assert supervisor.result(FIRST).verdict is Verdict.ERROR
        left = int(where.read_text())
        assert is_alive(left)
    assert not is_alive(left)


FORKS = """
import os, time
class X:
    def build(self, role, config):
        for _ in range(8):  # 256 processes, where nobody counts them
            os.fork()
            time.sleep(0.05)
        time.sleep(120)
"""


@pytest.mark.skipif(not keeper.is_possible(), reason="only Linux gives a process what its children leave behind")
def test_processes_without_end_are_one_error(tmp_path):
    path = tmp_path / "subject.py"
    path.write_text(FORKS)
    with Supervisor(f"{path}:X") as supervisor:
        result = supervisor.result(FIRST)
    pattern = r"the implementation took more than it may: it had \d+ processes, and 64 are the most"
    assert re.fullmatch(pattern, result.message)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what is allocated reliably")
@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("held = [bytes(2**28) for _ in range(99)]", "MemoryError"),
        ("files = [open(__file__) for _ in range(5000)]", "Too many open files"),
        ("while True: print('x' * 2**20, flush=True)", "File too large"),
        ("open('{folder}/large', 'wb').truncate(2**29)", "File too large"),
    ],
    ids=["memory", "files", "output", "file"],
)
def test_limits_hold_from_the_first_line_of_a_module(tmp_path, source, complaint):
    path = tmp_path / "subject.py"
    path.write_text(source.format(folder=tmp_path))
    with pytest.raises(SpecificationError, match=complaint), Supervisor(f"{path}:X"):
        pass


WRITES = """
import os, tempfile
class X:
    def build(self, role, config):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x")
        open({where!r}, "w")
"""


@pytest.mark.skipif(not landlock.version(), reason="the sandbox needs Landlock")
def test_in_the_sandbox_an_implementation_writes_into_its_scratch_folder_only(tmp_path):
    path = tmp_path / "subject.py"
    path.write_text(WRITES.format(where=str(tmp_path / "written")))
    with Supervisor(f"{path}:X", is_shut_in=True) as supervisor:
        scratch = Path(supervisor._first.scratch)
        assert scratch.is_dir()
        result = supervisor.result(FIRST)
    assert result.message.startswith("PermissionError: [Errno 13]")
    assert not (tmp_path / "written").exists()
    assert not scratch.exists()
    with Supervisor(f"{path}:X") as supervisor:
        supervisor.result(FIRST)
    assert (tmp_path / "written").exists()


@pytest.mark.skipif(not landlock.version(), reason="the sandbox needs Landlock")
def test_in_the_sandbox_a_correct_implementation_passes():
    assert run("Correct", is_shut_in=True)[FIRST].verdict is Verdict.PASS


def test_a_sandbox_that_cannot_be_entered_is_one_sentence(monkeypatch):
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: "/nowhere")
    complaint = "--claims-sandbox: the sandbox's scratch folder /nowhere is none|the sandbox needs Linux"
    with pytest.raises(SpecificationError, match=complaint), Supervisor("reference", is_shut_in=True):
        pass


def test_the_parent_imports_neither_numpy_nor_hypothesis_nor_torch():
    code = (
        "import sys, conformance.plugin, conformance.session, conformance.supervisor; "
        "print([name for name in ('numpy', 'hypothesis', 'torch', 'minigrad') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == "[]"

"""Hosts are forks of one server: each is as a new Python would be, and neither harms the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_alive, outlives

from conformance import hosting, keeper
from conformance.adapters.specification import imports_torch
from conformance.cli.watch import _waited
from conformance.limits import GIB, Limits
from conformance.supervisor import Supervisor
from conformance.verdict import Verdict

FIRST = "attention-is-scaled-by-sqrt-d-k"

forks_only = pytest.mark.skipif(not keeper.is_possible(), reason="only Linux has forks that a keeper looks after")


def told(tmp_path, expression, **options):
    """What an expression is in a host, as text."""
    path, out = tmp_path / "subject.py", tmp_path / "told"
    path.write_text(f"import os, sys\nopen({str(out)!r}, 'w').write(str(({expression})))\nclass X:\n    build = None\n")
    with Supervisor(f"{path}:X", **options):
        return out.read_text()


@pytest.fixture
def own_server(monkeypatch):
    """The server of this test alone, which it may kill."""
    monkeypatch.setattr(hosting, "_servers", {})
    yield lambda: hosting._server(False)
    hosting.close()


@forks_only
def test_a_host_has_the_variables_the_folder_and_the_path_of_its_request(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIATURE_SAYS", "first")
    assert told(tmp_path, "os.environ['MINIATURE_SAYS']") == "first"
    monkeypatch.setenv("MINIATURE_SAYS", "second")
    monkeypatch.chdir(tmp_path)
    assert told(tmp_path, "os.environ['MINIATURE_SAYS'], os.getcwd()") == str(("second", str(tmp_path)))
    monkeypatch.delenv("MINIATURE_SAYS")
    assert told(tmp_path, "os.environ.get('MINIATURE_SAYS')") == "None"


ALIKE = (
    "sys.path, sys.argv, sys.flags, dict(os.environ), os.getcwd(), "
    "*map(__import__('signal').getsignal, (2, 15, 17)), "
    "len(os.listdir('/proc/self/task')), sorted(map(int, os.listdir('/proc/self/fd')))"
)


@forks_only
@pytest.mark.slow
def test_a_host_is_as_a_new_python_is(tmp_path, monkeypatch):
    """Its path, its variables and signals, its threads and open files."""
    seen = []
    for there in ("here", "there"):
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / there))
        seen.append(told(tmp_path, ALIKE))
        with monkeypatch.context() as patch:
            patch.setattr(hosting, "_server", lambda _: None)
            assert told(tmp_path, ALIKE) == seen[-1]
    assert seen[0] != seen[1]


@forks_only
def test_a_host_finds_nothing_of_hosts_before_it(tmp_path):
    assert told(tmp_path, "'subject' in sys.modules and not hasattr(sys, 'was_here')") == "True"
    assert told(tmp_path, "setattr(sys, 'was_here', 1)") == "None"
    assert told(tmp_path, "hasattr(sys, 'was_here')") == "False"


@forks_only
def test_a_host_has_torch_only_where_its_file_imports_it(tmp_path):
    assert told(tmp_path, "'torch' in sys.modules, 'minigrad' in sys.modules") == "(False, False)"


@forks_only
@pytest.mark.slow
def test_where_the_server_is_killed_its_hosts_end_and_the_rest_runs(own_server):
    with Supervisor("reference") as supervisor:
        host = supervisor._first.process
        assert isinstance(host, hosting.Fork)
        os.kill(own_server()._process.pid, signal.SIGKILL)
        assert host.wait(10.0) == -signal.SIGKILL
        assert not is_alive(host.pid)
    with Supervisor("reference") as supervisor:  # without a server
        assert isinstance(supervisor._first.process, subprocess.Popen)
        assert supervisor.result(FIRST).verdict is Verdict.PASS


@forks_only
@pytest.mark.slow
def test_what_kills_its_group_harms_no_server(tmp_path, own_server):
    path = tmp_path / "subject.py"
    path.write_text(
        "import os\n"
        "class X:\n"
        "    def build(self, role, config):\n"
        "        os.fork() or os._exit(0)\n"
        "        os.killpg(0, 9)\n"
    )
    with Supervisor(f"{path}:X", children=1) as supervisor:
        assert "SIGKILL" in supervisor.result(FIRST).message
        assert "SIGKILL" in supervisor.result("attention-formula").message
        assert own_server()._process.poll() is None


@forks_only
@pytest.mark.slow
def test_a_server_ends_with_its_process():
    code = (
        "from conformance import hosting\n"
        "from conformance.supervisor import Supervisor\n"
        "if __name__ == '__main__':\n"
        "    with Supervisor('reference'):\n"
        "        print(*(server._process.pid for server in hosting._servers.values()), flush=True)\n"
        "else:\n"
        "    print('imported', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert not is_alive(int(done.stdout))


@forks_only
@pytest.mark.slow
def test_a_server_ends_when_its_process_is_killed():
    code = (
        "from conformance import hosting\n"
        "from conformance.supervisor import Supervisor\n"
        "with Supervisor('reference'):\n"
        "    print(*(server._process.pid for server in hosting._servers.values()), flush=True)\n"
        "    import time; time.sleep(60)\n"
    )
    assert not outlives(code)


@forks_only
@pytest.mark.slow
def test_a_server_that_cannot_start_is_done_without(monkeypatch, own_server):
    monkeypatch.setattr(hosting, "_python", lambda call, real=hosting._python: real(call.replace("forking", "nowhere")))
    with Supervisor("reference") as supervisor:
        assert isinstance(supervisor._first.process, subprocess.Popen)


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("import torch", True),
        ("import os, torch.nn as nn", True),
        ("from torch import nn", True),
        ("import minigrad as torch", False),
        ("'''\nimport torch\n'''", False),
        ("from .torch import nn", False),
        ("if False:\n    import torch", False),
        ("def f():\n    import torch", False),
        ("import torch\nx = '\\d'", True),
        ("import torch (", False),
    ],
)
def test_only_a_statement_of_the_file_itself_is_certain_to_import_torch(tmp_path, text, does):
    (tmp_path / "it.py").write_text(text)
    assert imports_torch(f"{tmp_path}/it.py:X") is does
    assert imports_torch("it:X", [tmp_path]) is does
    assert not imports_torch("it:X")


def test_a_package_imports_torch_where_all_of_it_is_meant(tmp_path):
    package = Path(tmp_path, "package")
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "it.py").write_text("import torch")
    assert imports_torch(str(package))
    assert not imports_torch("package:X", [tmp_path])
    assert imports_torch("package.it:X", [tmp_path])
    assert [imports_torch(name) for name in ("torch", "reference", "minigrad", "no specification")] == [
        True, False, False, False,
    ]  # fmt: skip


@forks_only
def test_nobody_waits_for_a_keeper_that_is_gone():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        hosting._wait_for_keeper(process.pid)


@forks_only
def test_what_processes_share_is_told_as_their_sum(monkeypatch):
    monkeypatch.setattr(keeper, "_resident", lambda process: 9 * GIB)
    monkeypatch.setattr(keeper, "_share", lambda process: 8 * GIB)
    monkeypatch.setattr(keeper, "_descendants", lambda: [1, 2])
    assert keeper._excess([1, 2], Limits()).startswith("it had 16.0 GiB in memory")


@forks_only
def test_a_script_has_time_to_end_when_its_seconds_are_over():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.1)"]) as process:
        assert _waited(process, 0.0) == 0


@forks_only
def test_processes_that_left_their_group_are_ended_at_once():
    text = (
        "import subprocess; from conformance import keeper\n"
        "one, other = (subprocess.Popen(['sleep', '600'], start_new_session=True) for _ in range(2))\n"
        "keeper._end_all(one.pid)\n"
        "print(keeper._descendants())"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"

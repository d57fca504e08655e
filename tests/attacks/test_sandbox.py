"""The sandbox: nothing gets out, what an implementation needs goes on working, and no promise is believed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from attacks.escapes import ALLOWED, ESCAPES

from conformance.sandbox import PROMISES, SandboxError, landlock, seccomp

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not seccomp.is_known() or not landlock.version(), reason="the sandbox needs Landlock"
)

BY_NUMBER = {name for name, source in ESCAPES.items() if "call(" in source} - {"a call that is newer than the list"}
"""Attempts by system calls of x86-64."""


def shut_in(folder: Path, tries: dict[str, str], readable=None) -> tuple[dict[str, str], Path]:
    """The outcome of each try, and the folder outside of the sandbox that they were after."""
    scratch, outside = folder / "scratch", folder / "outside"
    scratch.mkdir()
    outside.mkdir()
    (outside / "empty").mkdir()
    file = outside / "file"
    file.write_text("secret")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as victim,
    ):
        given = {
            "victim": victim.pid, "outside": str(outside), "file": str(file), "secret": "secret",
            "listener": listener.getsockname(),
        }  # fmt: skip
        asked = {"scratch": str(scratch), "given": given, "tries": tries, "readable": readable}
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("shut_in.py")],
            input=json.dumps(asked), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert victim.poll() is None
        victim.kill()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), outside


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str]:
    assert not set(ALLOWED) & set(ESCAPES)
    found, outside = shut_in(tmp_path_factory.mktemp("sandbox"), {**ALLOWED, **ESCAPES})
    assert sorted(path.name for path in outside.iterdir()) == ["empty", "file"]
    assert (outside / "file").read_text() == "secret"
    assert not Path("/dev/shm/conformance-escape").exists()
    return found


@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_gets_out(name, outcomes):
    if name in BY_NUMBER and os.uname().machine != "x86_64":
        pytest.skip("system calls have other numbers here")
    assert outcomes[name].startswith("refused: "), outcomes[name] or "it worked"
    assert "No such file" not in outcomes[name], "what the attempt needs is not there"


@pytest.mark.parametrize("name", ALLOWED)
def test_what_an_implementation_needs_goes_on_working(name, outcomes):
    assert outcomes[name] == ""


def test_only_what_is_listed_can_be_read(tmp_path):
    tries = {"the file": "open(file).read()", "the own": "open('own', 'w').write('x'); open('own').read()"}
    assert shut_in(tmp_path, tries, readable=[])[0]["the file"].startswith("refused: [Errno 13]")
    listed = tmp_path / "again"
    listed.mkdir()
    assert shut_in(listed, tries, readable=[str(listed / "outside")])[0] == {"the file": "", "the own": ""}


IN_CHILD = """
import json, sys
from conformance import sandbox
from conformance.sandbox import landlock, privileges, seccomp, trials
{broken}
try:
    sandbox.enter({scratch!r})
except sandbox.SandboxError as error:
    print(error)
"""


def in_child(scratch: Path, broken: str) -> str:
    code = IN_CHILD.format(scratch=str(scratch), broken=broken)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.mark.parametrize(
    ("broken", "promises"),
    [
        ("pass", []),
        ("landlock.restrict = lambda *_: 'no Landlock'", ["others"]),
        ("seccomp.restrict = lambda own_signals_only: None", ["network"]),
        ("sandbox.limit = sandbox.limit_address_space = lambda *_: None", ["memory"]),
        ("privileges.leave = lambda *_: None", ["processes"]),
    ],
    ids=["whole", "files", "calls", "memory", "privileges"],
)
def test_what_does_not_hold_is_found_by_trying(tmp_path, broken, promises):
    said = in_child(tmp_path, broken)
    if broken.startswith("privileges") and os.getuid():
        pytest.skip("this user's processes are limited in any case")
    if not promises:
        assert said == ""
    else:
        assert said.startswith("the sandbox does not hold on this machine: ")
        assert set(promises) <= {name for name in PROMISES if f"{name} (" in said}


def test_a_system_without_landlock_keeps_signals_in_by_the_filter(tmp_path):
    assert in_child(tmp_path, "landlock.guards_signals = lambda: False") == ""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "second thread"),
        ("sys.platform = 'darwin'", "the sandbox needs Linux"),
    ],
)
def test_where_it_cannot_be_entered_it_says_so(tmp_path, change, complaint):
    assert complaint in in_child(tmp_path, change)


def test_a_promise_that_there_is_not_is_refused(tmp_path):
    from conformance import sandbox

    with pytest.raises(SandboxError, match="there is no promise 'secrecy'; the promises are network, "):
        sandbox.enter(tmp_path, promised=["secrecy"])

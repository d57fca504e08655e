"""Hostile and broken files: each is refused in one sentence, by the exception that is documented for it."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.catalogue import load
from conformance.files import write_text
from conformance.report import ReportError, read_reports
from minigrad.files import write_atomically
from minigrad.io import FormatError, load_file
from tools.fuzz.files import a_report, main, mutated, readers, refused

CASES = 250
DEEP = 250_000
"""How many mutated files each reader gets, in CI and in the deep run."""

CATALOGUE = load()
SLUG = next(claim.slug for claim in CATALOGUE.claims.values() if claim.is_tested)


@pytest.mark.parametrize("count", [CASES, pytest.param(DEEP, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", ["weights", "metadata", "report", "settings", "listing"])
def test_readers_take_any_bytes(tmp_path, name, count):
    reader = readers(tmp_path)[name]
    chance = random.Random(f"{name} {count}")
    broken = 0
    for _ in range(count):
        data = mutated(reader.whole, chance)
        try:
            broken += refused(reader, data, tmp_path)
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error!s:.200} for {data!r:.2000}")
    assert 0 < broken <= count


def test_files_are_broken_for_as_long_as_one_wants(capsys):
    assert main(["--minutes", "0.01"]) == 0
    assert "listing: refused" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--minutes", "0"], ["--minutes", "-1"], ["--processes", "0"]])
def test_a_run_that_would_break_nothing_is_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--minutes must be above 0, and --processes 1 or more" in capsys.readouterr().err


def without(report: dict, name: str) -> dict:
    return {key: value for key, value in report.items() if key != name}


REPORTS = {
    "nothing": lambda r: None,
    "a list": lambda r: [r],
    "a text": lambda r: "report",
    "another schema": lambda r: {**r, "schema": 1},
    "a schema that is a list": lambda r: {**r, "schema": [2]},
    "no claims": lambda r: without(r, "claims"),
    "claims by name": lambda r: {**r, "claims": {}},
    "a claim that is null": lambda r: {**r, "claims": [None]},
    "a claim without a slug": lambda r: {**r, "claims": [without(r["claims"][0], "slug")]},
    "a claim without a verdict": lambda r: {**r, "claims": [without(r["claims"][0], "verdict")]},
    "a verdict that there is not": lambda r: {**r, "claims": [{**r["claims"][0], "verdict": "MAYBE"}]},
    "a verdict that is a list": lambda r: {**r, "claims": [{**r["claims"][0], "verdict": ["PASS"]}]},
    "no name": lambda r: without(r, "implementation"),
    "a name that is a number": lambda r: {**r, "implementation": 7},
    "counts that are a list": lambda r: {**r, "counts": []},
    "subjects that are null": lambda r: {"schema": 2, "subjects": None},
    "no subjects": lambda r: {"schema": 2, "subjects": []},
    "subjects in subjects": lambda r: {"schema": 2, "subjects": [{"schema": 2, "subjects": [r, r]}, r]},
    "a subject that is null": lambda r: {"schema": 2, "subjects": [r, None]},
    "something more": lambda r: {"schema": 2, "subjects": [r, r], "more": 1},
}


@pytest.mark.parametrize("change", REPORTS.values(), ids=REPORTS)
def test_a_report_of_another_form_is_one_sentence(tmp_path, change):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(change(copy.deepcopy(a_report()))))
    with pytest.raises(ReportError, match=r"is no (whole )?report"):
        read_reports(path)


def test_a_whole_report_is_read(tmp_path):
    path = tmp_path / "report.json"
    write_text(path, json.dumps(a_report()))
    assert read_reports(path) == [a_report()]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such devices here")
@pytest.mark.parametrize("device", ["/dev/null", "/dev", "/nonexistent", "/dev/null/x", pytest.param("/dev/zero")])
def test_a_report_from_what_is_no_file_is_one_sentence(device, monkeypatch):
    monkeypatch.setattr("conformance.report.LARGEST", 2**20)
    with pytest.raises(ReportError):
        read_reports(Path(device))


def header(**changes) -> dict:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return {"a": {**entry, **changes}}


HEADERS = {
    "metadata that are a list": {**header(), "__metadata__": []},
    "metadata that are null": {**header(), "__metadata__": None},
    "metadata with a number": {**header(), "__metadata__": {"a": 1}},
    "shared names that are a list": {**header(), "__metadata__": {"minigrad.shared": "[]"}},
    "shared names that are no JSON": {**header(), "__metadata__": {"minigrad.shared": "{"}},
    "shared names that are nested": {**header(), "__metadata__": {"minigrad.shared": "[" * 100_000}},
    "a shared name that is a list": {**header(), "__metadata__": {"minigrad.shared": '{"b": ["a"]}'}},
    "a shared name that is an object": {**header(), "__metadata__": {"minigrad.shared": '{"b": {}}'}},
    "a shared name that is null": {**header(), "__metadata__": {"minigrad.shared": '{"b": null}'}},
    "a shared name that is not there": {**header(), "__metadata__": {"minigrad.shared": '{"b": "c"}'}},
    "a shared name that is there": {**header(), "__metadata__": {"minigrad.shared": '{"a": "a"}'}},
    "a shape that is a number": header(shape=2),
    "a shape with a truth value": header(shape=[True, 2]),
    "a shape with a fraction": header(shape=[2.0]),
    "a shape with a negative size": header(shape=[-2]),
    "a shape of huge sizes": header(shape=[2**62, 2**62, 4]),
    "a shape of huge sizes and none": header(shape=[2**62, 2**62, 0], data_offsets=[0, 0]),
    "a shape of 100 dimensions": header(shape=[1] * 99 + [2]),
    "offsets that turn back": header(data_offsets=[8, 0]),
    "offsets beyond the file": header(data_offsets=[0, 2**62]),
    "one offset": header(data_offsets=[0]),
    "offsets that are texts": header(data_offsets=["0", "8"]),
    "a type that is a list": header(dtype=["F32"]),
    "a type that there is not": header(dtype="F31"),
    "no shape": {"a": {"dtype": "F32", "data_offsets": [0, 8]}},
    "a tensor that is a list": {"a": []},
    "a gap": header(data_offsets=[4, 8], shape=[1]),
}


@pytest.mark.parametrize("head", HEADERS.values(), ids=HEADERS)
def test_weights_with_a_hostile_header_are_one_sentence(tmp_path, head):
    path = tmp_path / "weights"
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(FormatError) as caught:
        load_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("write", [lambda p: write_text(p, "x"), lambda p: write_atomically(p, [b"x"])])
def test_a_full_disk_is_an_error_and_a_device_stays_one(write):
    with pytest.raises(OSError, match="No space left"):
        write(Path("/dev/full"))
    assert not Path("/dev/full").is_file()


@pytest.mark.parametrize("write", [lambda p, t: write_text(p, t), lambda p, t: write_atomically(p, [t.encode()])])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, write):
    path = tmp_path / "file"
    write(path, "old")
    link = tmp_path / "link"
    link.symlink_to(path)
    write(link, "new")
    assert (link.is_symlink(), path.read_text()) == (True, "new")

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        write(path, "newer")
    assert path.read_text() == "new"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["file", "link"]


SAYS = """
class X:
    def build(self, role, config):
        raise OSError({message!r})
"""


SAID = {
    "half a \udcff character": "half a \\udcff character",
    "\x1b[2J\x1b]0;title\x07 red": "\\x1b[2J\\x1b]0;title\\x07 red",
    "from \u202eright to left": "from \\u202eright to left",
    "over\rwritten": "over\\rwritten",
    "a \0 zero": "a \\x00 zero",
}


@pytest.mark.slow
def test_what_an_implementation_says_is_harmless(tmp_path):
    """All in one message: what is not made harmless in it is in the output as it was."""
    (tmp_path / "subject.py").write_text(SAYS.format(message=", ".join(SAID)))
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--impl", "subject.py:X", "--claims", SLUG,
         "--claims-report", report, "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    output = done.stdout.decode()
    for message, shown in SAID.items():
        assert not (set(message) - set(shown)) & set(output)
        assert shown in " ".join(output.split())
        assert shown in read_reports(report)[0]["claims"][0]["message"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_report_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "report.json").symlink_to("/dev/full")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--impl", "reference", "--claims", SLUG,
         "--claims-report", "report.json", "-p", "no:cacheprovider", "-q"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 4
    assert "--claims-report report.json: it cannot be written: No space left on device" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr

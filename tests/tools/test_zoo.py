"""The zoo: which entries its rule chooses, which part they are in, and when one counts as reached."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance import catalogue
from conformance.check import CHECKS
from tools.zoo import __main__ as command
from tools.zoo import figures, listing, table, trial
from tools.zoo.syntax import Checkout
from tools.zoo.table import Entry, Repository

MODEL = """
import torch.nn as nn
from layers import Block
from numpy import array

class TinyGPT(nn.Module):
    def __init__(self, vocab, d):
        super().__init__()
        self.table = nn.Embedding(vocab, d)
        self.block = Block(d)

    def forward(self, idx, targets=None, kv_cache=None):
        return self.block(self.table(idx))

    def generate(self, idx):
        return idx

class Recurrent(nn.Module):
    def __init__(self, vocab, d):
        super().__init__()
        self.table, self.attention = nn.Embedding(vocab, d), nn.GRU(d, d)

    def forward(self, idx):
        return self.attention(self.table(idx))

class Loader:
    def __init__(self):
        self.block = Block(2)
"""

LAYERS = """
import torch.nn as nn

class _Hidden(nn.Module):
    def forward(self, x): return x

class Norm(nn.LayerNorm):
    def forward(self, x): return super().forward(x)

class SelfAttention(nn.Module):
    def forward(self, x, mask=None): return x

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.parts = nn.ModuleList([SelfAttention(), Norm(d), _Hidden()])

    def forward(self, x): return x

class Unused(nn.Module):
    def forward(self, x): return x

def plot_attention(weights): return weights
def causal_mask(length): return length
def softmax(x): print(x)
"""


def checkout(folder: Path, files: Mapping[str, str]) -> Path:
    """A repository with these files and one commit."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return folder


def test_the_rule_takes_whole_models_then_what_they_are_made_of_then_a_function(tmp_path: Path) -> None:
    root = checkout(tmp_path, {"model.py": MODEL, "layers.py": LAYERS, "tests/model.py": MODEL, "broken.py": "def ("})
    assert listing.entries(root) == [
        Entry("model.py", "TinyGPT", "language_model", ("cache",)),
        Entry("layers.py", "Norm", "component"),
        Entry("layers.py", "SelfAttention", "component", ("mask",)),
        Entry("layers.py", "Block", "component"),
        Entry("layers.py", "causal_mask", "function"),
    ]


def test_a_repository_without_a_whole_model_is_listed_class_by_class(tmp_path: Path) -> None:
    found = listing.entries(checkout(tmp_path, {"layers.py": LAYERS}))
    assert [entry.entry for entry in found] == ["Norm", "SelfAttention", "Block", "causal_mask"]


@pytest.mark.parametrize(
    ("name", "made", "called", "kind"),
    [
        ("Translator", "vocab", "src, tgt, src_mask", "sequence_to_sequence"),
        ("Seq2Seq", "vocab", "x, y", "sequence_to_sequence"),
        ("BertModel", "vocab", "ids, mask", "masked_language_model"),
        ("Sorter", "vocab, num_classes", "ids", "classifier"),
        ("MyGPT", "vocab", "ids, targets", "language_model"),
        ("Reader", "vocab", "ids", "encoder"),
    ],
)
def test_the_kind_of_a_model_is_told_by_its_names(tmp_path: Path, name: str, made: str, called: str, kind: str) -> None:
    text = f"""
    import torch.nn as nn
    class Attention(nn.Module):
        def forward(self, x): return x
    class {name}(nn.Module):
        def __init__(self, {made}):
            self.table, self.attention = nn.Embedding(vocab, 8), Attention()
        def forward(self, {called}): return self.attention(self.table(ids))
    """
    assert listing.entries(checkout(tmp_path, {"model.py": text}))[0].kind == kind


def test_what_a_file_imports_is_followed_through_the_checkout(tmp_path: Path) -> None:
    files = {
        "pack/__init__.py": "import einops",
        "pack/model.py": "import os\nfrom .parts import A\nfrom pack import more\ntry:\n    import apex\nexcept: pass",
        "pack/parts.py": "import torch.nn as nn\nimport timm.layers",
        "pack/more.py": "import scipy\nfrom torch.utils.tensorboard import SummaryWriter",
        "other.py": "import tensorflow",
    }
    root = checkout(tmp_path, files)
    assert Checkout(root).packages("pack/model.py") == {"einops", "torch", "timm", "scipy", "tensorboard"}


def test_the_part_follows_from_the_name_alone_unless_it_was_seen() -> None:
    assert table.part_of("Owner/Name") == table.part_of("owner/name")
    parts = [table.part_of(f"owner/{number}") for number in range(2000)]
    shares = [parts.count(part) / len(parts) for part in table.PARTS]
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=0.04)
    sealed = next(name for name in map("owner/{}".format, range(99)) if table.part_of(name) == "sealed")
    assert Repository(sealed, "", ()).part == "sealed"
    assert Repository(sealed, "", (), seen=True).part == "tuning"


def test_the_table_is_large_enough_and_names_what_exists() -> None:
    repositories, packages = table.load()
    assert len({r.name.lower() for r in repositories}) == len(repositories) >= 60
    entries = [entry for r in repositories for entry in r.entries]
    assert len(entries) >= 300
    assert {entry.kind for entry in entries} == set(table.KINDS)
    assert {what for entry in entries for what in entry.takes} == set(listing.TAKES)
    claims = set(catalogue.load().claims)
    for repository in repositories:
        assert len(repository.commit) == 40, repository.name
        assert len({entry.impl for entry in repository.entries}) == len(repository.entries) > 0, repository.name
        assert all(set(entry.defects) <= claims for entry in repository.entries), repository.name
    assert not [p for p in packages if p.partition("==")[0] == "torch"], "torch must stay what it is"


def test_places_of_what_is_masked_are_no_mask() -> None:
    assert listing.takes(["x", "visible_idx", "masked_idx", "mask_indices"]) == ()
    assert listing.takes(["x", "masked_idx", "attention_mask"]) == ("mask",)


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    entry = Entry('a"b.py', "C", "component", ("mask",), {"causal-mask-is-lower-triangular": 'theirs: "triu"'})
    row = Repository("owner/name", "0" * 40, (entry, Entry("b.py", "f", "function")), seen=True)
    path = tmp_path / "zoo.toml"
    path.write_text(table.text(row))
    assert table.load(path) == ([row], [])
    assert table.load(path)[0][0].entries[0].defects == entry.defects


def test_every_core_claim_has_a_check(tmp_path: Path) -> None:
    trial.core_claims()
    path = tmp_path / "core.toml"
    path.write_text('[kind.encoder]\nalways = ["no-such-claim"]\n[role]\n[family]\n[module]')
    with pytest.raises(ValueError, match=r"core.toml, encoder: no check has the name no-such-claim"):
        trial.core_claims(path)


CORE = {
    "kind": {"language_model": {"always": ["decoder-lm-is-causal"], "cache": ["prefill-is-causal"]}},
    "role": {"rms_norm": {"always": ["rms-norm-formula"]}, "encoder": {"always": ["encoder-layer-obeys-its-mask"]}},
    "family": {"norm": {"always": ["norm-is-its-formula"]}},
    "module": {"core": ["model-evaluation-repeats-itself"], "always": ["model-rows-of-a-batch-are-apart"]},
}


def report(role: str, *open_: str, kind: str | None = None, **verdicts: str) -> dict[str, Any]:
    """A report in which all claims of a role passed, except these, which nobody could test."""
    told = {claim: "PASS" for claim, check in CHECKS.items() if role in check.roles}
    told |= dict.fromkeys(open_, "NOT PROVIDED") | {claim.replace("_", "-"): v for claim, v in verdicts.items()}
    claims = [{"slug": claim, "verdict": verdict} for claim, verdict in told.items()]
    counts = {"PASS": sum(verdict == "PASS" for verdict in told.values())}
    return {"notes": [f"Thing as {role}"], "claims": claims, "counts": counts, "kind": kind, "untested": []}


def test_a_component_is_reached_when_its_core_and_two_thirds_of_its_claims_were_decided() -> None:
    norm = Entry("a.py", "Thing", "component")
    assert trial.why_not(norm, report("rms_norm"), CORE) == ""
    assert trial.why_not(norm, report("rms_norm", rms_norm_formula="FAIL"), CORE) == ""
    untested = trial.why_not(norm, report("rms_norm", rms_norm_formula="ERROR"), CORE)
    assert untested == "core claims untested: rms-norm-formula"
    others = [claim for claim, check in CHECKS.items() if check.roles == ("rms_norm",) and claim != "rms-norm-formula"]
    assert trial.why_not(norm, report("rms_norm", others[0]), CORE) == ""
    said = trial.why_not(norm, report("rms_norm", *others[:2]), CORE)
    assert said == f"a third or more untested: 2 of the {len(others) + 1} claims that apply"
    nothing = {"notes": ["nothing"], "claims": [], "kind": None, "untested": []}
    assert "neither a role nor a run of it was tested" in trial.why_not(norm, nothing, CORE)
    assert trial.why_not(norm, {**report("rms_norm"), "untested": ["its mask"]}, CORE) == "its mask"


def test_a_component_without_a_role_is_reached_by_a_run_that_shows_what_its_name_says() -> None:
    def ran(**verdicts: str) -> dict[str, Any]:
        told = {"model-evaluation-repeats-itself": "PASS", "model-rows-of-a-batch-are-apart": "PASS"}
        told |= {claim.replace("_", "-"): verdict for claim, verdict in verdicts.items()}
        claims = [{"slug": claim, "verdict": verdict} for claim, verdict in told.items()]
        return {"notes": ["Thing as module"], "claims": claims, "kind": None, "untested": []}

    norm, attention = Entry("a.py", "MyNorm", "component"), Entry("a.py", "MyAttention", "component")
    assert trial.why_not(norm, ran(norm_is_its_formula="FAIL"), CORE) == ""
    assert "shows no norm" in trial.why_not(norm, ran(), CORE)
    assert "shows no attention" in trial.why_not(attention, ran(norm_is_its_formula="PASS"), CORE)
    still = ran(norm_is_its_formula="PASS", model_evaluation_repeats_itself="ERROR")
    assert trial.why_not(norm, still, CORE) == "core claims untested: model-evaluation-repeats-itself"
    few = ran(norm_is_its_formula="PASS", model_rows_of_a_batch_are_apart="NOT PROVIDED")
    assert "a third or more untested: 1 of the 2" in trial.why_not(norm, few, CORE)


def test_a_whole_model_is_reached_by_claims_of_its_kind_and_not_by_those_of_its_parts() -> None:
    def model(*takes: str, kind: str = "language_model") -> Entry:
        return Entry("a.py", "Thing", kind, takes)

    known = "language_model"
    assert "core claims untested: decoder-lm-is-causal" in trial.why_not(model(), report("rms_norm", kind=known), CORE)
    whole = report("decoder_lm", kind=known)
    assert trial.why_not(model(), whole, CORE) == ""
    assert trial.why_not(model("mask"), whole, CORE) == "", "the kind has no core claims of masks"
    assert trial.why_not(model("cache"), whole, CORE) == "core claims untested: prefill-is-causal"
    assert "does not take it for a whole model" in trial.why_not(model(kind="encoder"), report("rms_norm"), CORE)


def test_a_run_that_takes_too_long_is_ended_with_all_its_children(tmp_path: Path) -> None:
    told = tmp_path / "child"
    command = ["sh", "-c", f"sleep 60 & echo $! > {told}; wait"]
    assert trial.finished(command, tmp_path, os.environ, 1.0) == (None, "")
    child = int(told.read_text())
    deadline = time.monotonic() + 10
    while running(child):
        assert time.monotonic() < deadline, "the child outlived the run"
        time.sleep(0.02)


def running(process: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip()) and not listed.stdout.startswith("Z")


def repository_of(part: str, folder: Path, text: str = "") -> Repository:
    """A repository of a part, checked out below the folder, with one entry, whose file has this text."""
    name = next(name for name in map("owner/{}".format, range(999)) if table.part_of(name) == part)
    root = checkout(folder / table.folder_name(name), {"a.py": text})
    entry = Entry("a.py", "Thing", "component", (), {"rms-norm-formula": "theirs"})
    return Repository(name, table.commit_of(root), (entry,))


@pytest.mark.parametrize("part", ["trial", "sealed"])
def test_no_words_about_sealed_code_are_kept(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = repository_of(part, tmp_path)
    monkeypatch.setattr(trial, "finished", lambda *_: (4, "a line\nERROR: --impl a.py:Thing: secret is unknown\n"))
    outcome = trial.run(repository.entries[0], repository, tmp_path, CORE, "quick", 9)
    assert (outcome.reached, outcome.why) == (False, "the suite refused it")
    assert outcome.said == ("" if part == "sealed" else "ERROR: --impl a.py:Thing: secret is unknown")


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        (
            "importing it raised OSError: We couldn't connect to 'https://hub' to load the files at a.py:1",
            ["the network"],
        ),
        (
            "importing it raised URLError: <urlopen error [Errno -2] Name or service not known> at a.py:1",
            ["the network"],
        ),
        ("importing it raised TabError: inconsistent use of tabs and spaces in indentation at a.py:1", []),
        ("UNRESOLVED: Thing could not be made: ValueError: Connection error", []),
    ],
)
def test_a_file_whose_import_asks_the_network_stands_beside(
    said: str, missing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = repository_of("sealed", tmp_path)
    monkeypatch.setattr(trial, "finished", lambda *_: (4, f"ERROR: --impl a.py:Thing: {said}\n"))
    outcome = trial.run(repository.entries[0], repository, tmp_path, CORE, "quick", 9)
    assert (outcome.reached, outcome.missing) == (False, missing)


def test_a_known_defect_is_told_apart_from_a_false_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = repository_of("tuning", tmp_path)

    def ran(command: list[str], *_: object) -> tuple[int, str]:
        told = report("rms_norm", rms_norm_formula="FAIL", rms_norm_ignores_scale="FAIL")
        Path(command[command.index("--claims-report") + 1]).write_text(json.dumps(told))
        return 1, ""

    monkeypatch.setattr(trial, "finished", ran)
    outcome = trial.run(repository.entries[0], repository, tmp_path, CORE, "quick", 9)
    assert (outcome.reached, outcome.roles) == (True, ["rms_norm"])
    assert outcome.broken == ["rms-norm-formula", "rms-norm-ignores-scale"]
    results = tmp_path / "results.jsonl"
    results.write_text(outcome.line() + "\n")
    (read,) = figures.read(results, [repository])
    assert list(figures.failures([read])) == [f"- {repository.name}, `a.py:Thing`: `rms-norm-ignores-scale`"]
    assert [cell.strip() for cell in figures.row("all", [read]).split("|")][5:7] == ["2", "1"]
    assert figures.read(results, [Repository(repository.name, "f" * 40, repository.entries)]) == [], "another commit"


def test_what_cannot_be_imported_stands_beside_and_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = repository_of("tuning", tmp_path, "import a_package_that_nobody_has, numbers\nimport installed_here")
    installed = tmp_path / trial.PACKAGES / "installed_here.py"
    installed.parent.mkdir(parents=True)
    installed.touch()
    monkeypatch.setattr(trial, "finished", None)
    outcome = trial.run(repository.entries[0], repository, tmp_path, CORE, "quick", 9)
    assert outcome.missing == ["a_package_that_nobody_has"]
    cells = [cell.strip() for cell in figures.row("all", [outcome]).split("|")]
    assert (cells[2], cells[-2]) == ("0", "1")


def test_results_are_resumed_and_sealed_ones_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = repository_of("sealed", tmp_path)
    runs = []

    def run(entry: Entry, chosen: Repository, *_: object) -> trial.Outcome:
        runs.append(entry.impl)
        return trial.Outcome(chosen.name, chosen.commit, chosen.part, entry.impl, entry.kind, reached=True, seconds=2)

    monkeypatch.setattr(table, "load", lambda: ([repository], []))
    monkeypatch.setattr(trial, "run", run)
    arguments = [str(tmp_path), "--part", "sealed"]
    assert command.main(arguments) == 0
    assert "| all | 1 | 1 (100 %) |" in capsys.readouterr().out
    assert command.main([*arguments, "--resume"]) == 0
    assert runs == ["a.py:Thing"]
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert "the first results of the sealed part count" in capsys.readouterr().err


def test_a_checkout_at_another_commit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = repository_of("trial", tmp_path)
    other = Repository(repository.name, "f" * 40, repository.entries)
    absent = Repository("owner/absent", "f" * 40, repository.entries, seen=True)
    monkeypatch.setattr(table, "load", lambda: ([other, absent], []))
    for part, said in (
        ("trial", f"stands at {repository.commit}; check {'f' * 40} out"),
        ("tuning", "no git checkout"),
    ):
        with pytest.raises(SystemExit):
            command.main([str(tmp_path), "--part", part])
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "nowhere")])
    assert "there is no folder" in capsys.readouterr().err


def test_a_percentile_is_the_smallest_value_that_covers_the_share() -> None:
    assert figures.percentile([1.0], 0.95) == 1.0
    assert figures.percentile([float(n) for n in range(1, 21)], 0.95) == 19.0
    assert figures.percentile([3.0, 1.0, 2.0], 0.5) == 2.0

"""Training scripts that are watched: right ones keep every claim and their numbers, wrong ones are told their line."""

import json
import runpy
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import conformance  # noqa: E402
from conformance.cli import main  # noqa: E402
from conformance.mutants.script import (  # noqa: E402
    ANNOTATED,
    CONTRAST,
    EPOCHS,
    FOLDER,
    LANGUAGE,
    MASKED,
    NOTED,
    PRETRAINING,
    REWARDS,
    TAGGING,
    TRAINER,
    TRANSLATION,
)
from conformance.mutated import run_of, script_run  # noqa: E402
from conformance.page import to_html  # noqa: E402
from conformance.report import read_reports, to_json, write_reports  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.course import course_of  # noqa: E402
from conformance.watch.events import Step, Targets  # noqa: E402
from conformance.watch.launching import Script  # noqa: E402
from conformance.watch.losses import array  # noqa: E402
from conformance.watch.script import watched  # noqa: E402
from conformance.watch.targets import OFFSETS, compare, kind_of  # noqa: E402
from conformance.watch.verdicts import report_of, results_of  # noqa: E402

LOOP = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(3, (5,)))
    loss.backward()
    optimizer.step()
    {after}
print(repr(loss.item()))
"""


def loop(steps=4, after="pass"):
    return LOOP.format(steps=steps, after=after)


@pytest.mark.parametrize(
    "name", [LANGUAGE, TRANSLATION, MASKED, TRAINER, ANNOTATED, PRETRAINING, EPOCHS, CONTRAST, TAGGING, REWARDS]
)
def test_a_correct_script_breaks_nothing(name):
    results = results_of(script_run(name).run)
    told = {
        s: r.message or r.diagnosis or r.what
        for s, r in results.items()
        if r.verdict not in (Verdict.PASS, Verdict.NOT_SEEN)
    }
    assert told.keys() == NOTED.get(name, set())
    assert sum(r.verdict is Verdict.PASS for r in results.values()) >= 30


def test_a_schedule_of_several_does_not_step_while_it_is_made():
    """Its constructor steps the first of them, which is no step of the training."""
    parts = (
        "[torch.optim.lr_scheduler.LinearLR(optimizer, 0.1), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]"
    )
    made = f"schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, {parts}, milestones=[2])\nfor step"
    text = loop(after="schedule.step()").replace("for step", made, 1)
    results = results_of(run_of(text, "several.py").run)
    assert results["run-schedule-follows-the-step"].verdict is Verdict.PASS
    assert results["run-schedule-advances-once-a-step"].verdict is Verdict.PASS
    early = text.replace("    optimizer.zero_grad()", "    schedule.step()\n    optimizer.zero_grad()", 1)
    early = early.replace("    optimizer.step()\n    schedule.step()", "    optimizer.step()")
    assert results_of(run_of(early, "early.py").run)["run-schedule-follows-the-step"].verdict is Verdict.FAIL


@pytest.mark.parametrize("name", [LANGUAGE, TRANSLATION, MASKED])
def test_the_numbers_are_the_same_bits_without_watching(name, capsys):
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    alone = capsys.readouterr().out
    assert watched(Script(str(FOLDER / name)), steps=100).ended == "the script ended"
    assert capsys.readouterr().out == alone != ""


@pytest.fixture
def run(tmp_path):
    """run(text, ...) watches a script of this text in this process."""

    def run(text, arguments=(), **limits):
        path = tmp_path / "train.py"
        path.write_text(text)
        return watched(Script(str(path), arguments), **limits)

    return run


def test_watching_ends_the_script_after_so_many_steps(run):
    found = run(loop(10**9), steps=5)
    assert (found.steps, found.ended) == (5, "5 steps were watched")


def test_watching_goes_on_until_patience_is_over_and_a_few_steps_were_made(run, monkeypatch):
    monkeypatch.setattr("conformance.watch.watcher.PATIENCE", 0.0)
    found = run(loop(10**9), steps=500, least=7)
    assert (found.steps, found.ended) == (7, "0 s were over")
    monkeypatch.setattr("conformance.watch.watcher.PATIENCE", 1000.0)
    assert run(loop(10**9), steps=30, least=7).steps == 30


def test_on_a_busy_machine_patience_is_longer(run, monkeypatch):
    monkeypatch.setattr("conformance.watch.watcher.PATIENCE", 0.001)
    monkeypatch.setattr("conformance.watch.watcher.busyness", lambda: 1e6)
    assert run(loop(10**9), steps=30, least=7).steps == 30


@pytest.mark.slow
def test_watching_ends_the_script_after_so_many_seconds(run):
    found = run(loop(2, "__import__('time').sleep(100)"), seconds=3)
    assert (found.steps, found.ended) == (1, "3 s were over")


def test_a_script_cannot_take_the_end_for_an_error(run):
    found = run(loop(9, "pass").replace("    optimizer.step()\n", EAGER), steps=5)
    assert found.ended == "5 steps were watched"


EAGER = """    try:
        optimizer.step()
    except Exception:
        pass
"""


def test_what_is_equal_and_was_there_before_the_script_is_no_copy_of_its_own(run):
    torch.manual_seed(0)
    before = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    first = run(loop())
    assert (first.copies, first.aliases, run(loop()).copies) == ({}, {}, {})
    assert before[0].weight.shape == (8, 4)


def test_the_script_gets_its_arguments_and_is_the_main_module(run):
    before = list(sys.argv), list(sys.path), sys.modules["__main__"]
    text = "import sys\nassert __name__ == '__main__'\nassert sys.argv[1:] == ['--lr', '1']\n" + loop()
    assert run(text, ("--lr", "1")).ended == "the script ended"
    assert before == (sys.argv, sys.path, sys.modules["__main__"])


def test_a_script_that_raises_is_told_with_what_was_seen(run, capsys):
    found = run(loop(4, "assert step < 2, 'no more'"))
    assert (found.steps, found.ended) == (3, "the script raised AssertionError: no more")
    assert "Traceback" in capsys.readouterr().err


def test_a_script_that_ends_itself_is_told(run):
    assert run(loop(4, "raise SystemExit(3)")).ended == "the script ended itself with exit code 3"


def test_what_is_new_later_is_looked_at_closely(run):
    second = loop(4).replace("model(torch.randn(5, 4))", "model(torch.randn(5, 4)).softmax(-1)")
    found = run(loop(30) + second.replace("import torch\n", "", 1), steps=100)
    assert [step.closely for step in found.of(Step)] == [*[True] * 3, *[False] * 27, *[True] * 3, False]
    results = results_of(found)
    assert results["run-cross-entropy-gets-logits"].verdict is Verdict.FAIL


def test_probabilities_are_told_also_where_one_step_only_gets_them(run):
    line = next(line for line in loop().splitlines() if "loss = " in line)
    usual, wrong = line.strip(), line.strip().replace("torch.randn(5, 4))", "torch.randn(5, 4)).softmax(-1)")
    found = run(loop(30).replace(line, f"    if step: {usual}\n    else: {wrong}"), steps=100)
    result = results_of(found)["run-cross-entropy-gets-logits"]
    assert result.verdict is Verdict.FAIL
    assert ":10" in result.place


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("chances[:, 0]", Verdict.FAIL), ("2 * chances[:, 0] - 1", Verdict.PASS), ("x.mean(1)", Verdict.PASS)],
)
def test_a_binary_cross_entropy_with_logits_gets_no_chances(run, given, wanted):
    x = "x = model(torch.randn(5, 4)); chances = torch.sigmoid(x)"
    loss = f"{x}; loss = nn.functional.binary_cross_entropy_with_logits({given}, torch.ones(5))"
    line = next(line for line in loop().splitlines() if "loss = " in line)
    found = run(loop().replace(line, f"    {loss}"))
    assert results_of(found)["run-cross-entropy-gets-logits"].verdict is wanted


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def watch(tmp_path, capfd):
    """watch(text, ...) runs `conformance watch` on a script of this text: exit code, what was printed, and errors."""

    def run(text, *options):
        path = tmp_path / "train.py"
        path.write_text(text)
        code = main(["watch", *options, str(path)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.mark.slow
def test_a_mistake_is_told_with_its_line_and_mend(watch, tmp_path):
    written = tmp_path / "run.json"
    code, out, _ = watch(loop().replace("    optimizer.zero_grad()\n", ""), "--claims-report", str(written))
    assert code == 1
    assert "FAIL Gradients are not cleared between steps" in out
    assert "train.py:10: optimizer.step()" in out
    assert "call optimizer.zero_grad() once" in out
    assert "conformance watch" in out
    counts = json.loads(written.read_text())["counts"]
    assert (counts["FAIL"], counts["NOT PROVIDED"], counts["NOT SEEN"] > 0) == (1, 0, True)


@pytest.mark.slow
def test_a_script_that_trains_nothing_is_no_success(watch):
    code, out, _ = watch("print('hello')")
    assert (code, "no optimizer of torch or minigrad stepped" in out) == (2, True)


def test_a_script_that_kills_its_process_is_told(watch):
    code, _, err = watch("import os\nos.kill(os.getpid(), 9)")
    assert (code, "was killed by SIGKILL" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["nowhere.py"], "there is no file nowhere.py"),
        (["--steps", "0", __file__], "must be above zero"),
        (["--claims-report", "run.txt", __file__], "ends in .html, .json, .sarif"),
        (["--claims-report", "nowhere/run.json", __file__], "there is no folder"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(options, told, capfd):
    assert main(["watch", *options]) == 2
    err = capfd.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_a_model_that_is_saved_or_copied_whole_takes_nothing_of_the_watcher_along(run):
    text = loop(4, "import io, copy; torch.save(copy.deepcopy(model), io.BytesIO())")
    found = run(text)
    assert (found.ended, found.steps) == ("the script ended", 4)


@pytest.mark.slow
def test_a_launcher_s_script_is_watched(tmp_path, capfd):
    path = tmp_path / "train.py"
    path.write_text("import os\nassert os.environ['WORLD_SIZE'] == '1'\n" + loop())
    assert main(["watch", "torchrun", "--nproc-per-node", "1", str(path)]) == 0
    assert "watched torchrun: 4 optimizer steps" in capfd.readouterr().out
    assert main(["watch", "torchrun", "--nproc-per-node", "2", str(path)]) == 2
    assert "one process is watched" in capfd.readouterr().err


def test_the_page_shows_a_run(run):
    page = to_html([to_json(report_of("train.py", "conformance watch train.py", results_of(run(loop()))))])
    assert "NOT SEEN" in page
    assert "components that it does not have" not in page


def test_the_page_has_the_picture_of_a_run(tmp_path):
    seen = script_run(EPOCHS).run
    course = course_of(seen)
    words = [word for word, _, _ in course["timeline"]]
    expected = ["zero", "forward", "backward", "forward", "backward", "unscale", "clip", "step", "zero", "schedule"]
    assert words == expected
    assert [step["rate"] for step in course["steps"]][:3] == pytest.approx([1e-3, 1e-3, 9e-4])
    assert all(step["loss"] > 0 and step["norm"] > 0 for step in course["steps"])
    assert course["steps"][0]["pads"] > 0
    assert course["layers"][0][1] == max(norm for _, norm in course["layers"])
    report = report_of("<b>.py", "conformance watch", results_of(seen), course=course)
    page = to_html([to_json(report)])
    assert page.count("<polyline") == 4
    assert all(f"<b>{word}</b>" in page for word in words)
    write_reports([report], tmp_path / "run.json")
    [read] = read_reports(tmp_path / "run.json")
    assert read["course"] == json.loads(json.dumps(course))


def test_a_run_without_steps_has_no_picture(run):
    assert course_of(run("print(1)")) == {}
    assert "course" not in to_json(report_of("train.py", "", results_of(run("print(1)"))))


def test_a_loss_that_is_not_finite_has_no_place_in_the_picture(run):
    seen = run(loop().replace("    loss.backward()", "    loss = loss * float('nan')\n    loss.backward()"))
    course = course_of(seen)
    assert [step["loss"] for step in course["steps"]] == [None] * 4
    page = to_html([to_json(report_of("train.py", "", results_of(seen), course=course))])
    picture = page.partition('<section class="course"')[2].partition("</section>")[0]
    assert "learning rate" in picture
    assert "nan" not in picture


def test_a_loop_of_this_process_is_watched():
    with conformance.watching() as watch:
        exec(compile(loop().replace("    optimizer.zero_grad()\n", ""), "loop.py", "exec"), {})
    report = watch.report()
    assert [result.claim for result in report.failures] == ["run-gradients-are-cleared"]
    assert "Gradients are not cleared" in str(report)
    before = torch.nn.functional.cross_entropy
    assert "watch" not in before.__module__


def test_what_the_watcher_cannot_look_at_is_noted_and_the_script_goes_on(run, monkeypatch):
    def fails(*_):
        raise TypeError("too odd")

    monkeypatch.setattr("conformance.watch.modules.samples", fails)
    monkeypatch.setattr("conformance.watch.losses.kind_of", fails)
    found = run(loop(4))
    assert (found.ended, found.steps) == ("the script ended", 4)
    assert any("TypeError: too odd" in note for note in found.notes)


def test_taps_are_gone_after_an_error():
    names = [torch.Tensor.backward, torch.nn.functional.cross_entropy, torch.optim.SGD.zero_grad, torch.save]
    with pytest.raises(ValueError, match="mine"), conformance.watching():
        raise ValueError("mine")
    assert names == [torch.Tensor.backward, torch.nn.functional.cross_entropy, torch.optim.SGD.zero_grad, torch.save]


# --- going on from a checkpoint, and other ends ----------------------------------------------------

RESUMED = """
import sys, torch
from torch import nn
file, goes_on, forgotten = sys.argv[1], "on" in sys.argv, sys.argv[2]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
state = {"step": 0}
if goes_on:
    state = torch.load(file)
    for name, part in parts.items():
        if name != forgotten:
            part.load_state_dict(state[name])
    if forgotten != "random state":
        torch.set_rng_state(state["random"])
for step in range(state["step"], 9):
    loss = nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(3, (5,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step == 4 and not goes_on:
        states = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**states, "step": step + 1, "random": torch.get_rng_state()}, file)
"""


@pytest.mark.parametrize("forgotten", ["nothing", "model", "optimizer", "schedule", "random state"])
def test_what_going_on_from_a_checkpoint_forgets_is_named(run, tmp_path, forgotten):
    arguments = (str(tmp_path / "last.pt"), forgotten)
    whole = run(RESUMED, arguments, keeps_moments=True)
    assert (whole.saved_at(), len(whole.moments)) == (5, 9)
    again = run(RESUMED, (*arguments, "on"), keeps_moments=True)
    again.expected = whole.moments[5:]
    result = results_of(again)["run-resumed-equals-not-stopped"]
    wanted = {"nothing": Verdict.PASS, "random state": Verdict.NOTE}.get(forgotten, Verdict.FAIL)
    assert result.verdict is wanted
    assert forgotten in f"{result.diagnosis}{result.got}" or forgotten == "nothing"


@pytest.mark.deep
def test_the_resume_check_runs_the_script_again(tmp_path, capfd):
    path = tmp_path / "train.py"
    path.write_text(RESUMED)
    arguments = [str(path), str(tmp_path / "last.pt"), "optimizer"]
    assert main(["watch", "--resume-check", "on", *arguments]) == 1
    out = capfd.readouterr().out
    assert "resume check: the step after the checkpoint of step 5 was made again" in out
    assert "FAIL Going on from the checkpoint forgets: optimizer, schedule" in out


def test_watching_ends_where_an_epoch_or_an_evaluation_is_over(run):
    text = (FOLDER / "language.py").read_text()
    assert run(text, steps=None, until="epoch").ended == "an epoch was watched"
    found = run(text, steps=None, until="eval")
    assert (found.ended, found.steps) == ("an evaluation was watched", 6)


# --- labels ---------------------------------------------------------------------------------------


def found(ids, labels, counts=None, pad=None):
    """What `compare` finds for labels of the shape of the ids, all in place."""
    targets = Targets(total=labels.numel())
    place = torch.cat([torch.tensor(ids.shape), torch.arange(ids.numel())])
    counts = torch.ones(ids.numel(), dtype=torch.bool) if counts is None else counts.reshape(-1)
    compare(targets, place.numpy(), [(ids.numpy(), 99, pad)], labels.reshape(-1).numpy(), counts.numpy())
    return targets


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_shift_of_labels_is_found_in_both_layouts(offset, is_turned):
    row = torch.randint(50, (6, 20), generator=torch.Generator().manual_seed(0))
    ids, labels = row[:, 2:12], row[:, 2 + offset : 12 + offset]
    if is_turned:
        ids, labels = ids.T, labels.T
    shares = found(ids, labels).offsets
    assert shares[offset] == 1.0
    assert all(share < 0.5 for other, share in shares.items() if other != offset)


def padded(lengths, width=8):
    ids = torch.randint(3, 50, (len(lengths), width), generator=torch.Generator().manual_seed(1))
    ids[torch.arange(width) >= torch.tensor(lengths)[:, None]] = 0
    return ids


def test_padding_is_found_without_being_told():
    ids = padded([8, 5, 3, 6, 7])
    labels = torch.cat([ids[:, 1:], torch.zeros(5, 1, dtype=torch.long)], 1)
    counting = found(ids, labels)
    assert (counting.pad, counting.pads, counting.padding) == (0, 11, 11)
    left_out = found(ids, labels, labels != 0)
    assert (left_out.pads, left_out.padding) == (11, 0)


def test_rows_that_end_alike_by_chance_are_no_padding():
    ids = torch.randint(3, 50, (5, 8), generator=torch.Generator().manual_seed(2))
    ids[0, -2:], ids[1, -3:] = 7, 7
    ids[3, 2] = 7
    assert found(ids, ids).pads == 0
    assert found(torch.full((5, 8), 7), torch.full((5, 8), 7)).pads == 0


def test_what_a_loss_gets_is_told_apart_in_every_precision():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        rows = torch.randn(20, 9, generator=torch.Generator().manual_seed(3)).to(dtype)
        eps = torch.finfo(dtype).eps
        assert [kind_of(array(x), eps) for x in (rows, rows.softmax(-1), rows.log_softmax(-1))] == [
            "logits",
            "probabilities",
            "log-probabilities",
        ]
    assert kind_of(np.full((2, 3), np.nan), 1e-7) == ""

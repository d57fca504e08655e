"""The commands, as a user runs them: train, resume, translate, generate, inspect; settings; one-line errors."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
import rich.console

import minigrad as mg
from minigrad.io import load_file, save_file
from transformer import checkpoints, tasks
from transformer.cli import main
from transformer.cli.settings import DEFAULTS, HELP, Settings, collect, read_toml, to_toml
from transformer.models import GPT2, GPT2Config
from transformer.training import Report

TINY = ["--d-model", "8", "--n-heads", "2", "--n-kv-heads", "1", "--n-layers", "1", "--d-ff", "12", "--batch-size", "4"]
TINY += ["--max-len", "32", "--steps", "3", "--no-compile"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with short runs of two kinds of task."""
    folder = tmp_path_factory.mktemp("runs")
    for task in ("reverse", "text", "masked"):
        assert main(["train", task, "--out", str(folder / task), *TINY]) == 0
    return folder


def said(capsys, *arguments):
    """(exit code, standard output, standard error) of a command."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_command_learns_to_reverse_unseen_words(tmp_path, capsys):
    settings = ["--size", 3, "--d-model", 32, "--n-heads", 2, "--n-layers", 1, "--d-ff", 64, "--max-len", 8]
    settings += ["--lr", 6e-3, "--steps", 300, "--warmup", 30, "--evaluate-every", 300, "--save-every", 300]
    assert said(capsys, "train", "reverse", "--out", tmp_path, *settings)[0] == 0
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 300
    assert last["exact"] >= 0.99
    code, answers, _ = said(capsys, "translate", tmp_path, "abc", "xyq", "do", "--beams", 3)
    assert (code, answers.split()) == (0, ["cba", "qyx", "od"])


def last_figures(folder, capsys, task, *settings):
    """The last evaluation of a run of one command."""
    assert said(capsys, "train", task, "--out", folder, *settings)[0] == 0
    return json.loads((folder / "log.jsonl").read_text().splitlines()[-1])


SMALL = ["--d-model", 32, "--n-heads", 4, "--n-kv-heads", 2, "--n-layers", 1, "--d-ff", 64, "--warmup", 50]
SMALL += ["--evaluate-every", 1000, "--save-every", 1000, "--no-compile"]  # compiling takes longer than these runs
FREQUENCIES = 3.35  # nats a character, of a guess that knows how frequent each is; the most frequent is 15 % of them


@pytest.mark.slow
def test_one_command_trains_a_mixture_of_experts_that_stays_balanced(tmp_path, capsys):
    settings = ["--lr", 1e-2, "--steps", 300, "--batch-size", 8, "--max-len", 32, "--balance", 0.05]
    figures = last_figures(tmp_path, capsys, "mixture", *SMALL, *settings)
    assert figures["held_out_loss"] < FREQUENCIES - 0.25
    assert (
        figures["busiest_expert"] < 0.32
    )  # of 4: 0.26 to 0.28 with four seeds, 0.35 to 0.44 without the balancing loss
    code, text, _ = said(capsys, "generate", tmp_path, "--prompt", "the ", "--max-new-tokens", 8, "--temperature", 0)
    assert code == 0
    assert len(text) == len("the ") + 8 + 1


@pytest.mark.deep
def test_one_command_trains_bert_on_hidden_tokens(tmp_path, capsys):
    settings = ["--lr", 5e-3, "--steps", 400, "--batch-size", 32, "--max-len", 16]
    figures = last_figures(tmp_path, capsys, "masked", *SMALL, *settings)
    assert figures["held_out_loss"] < FREQUENCIES - 0.2
    assert figures["masked_accuracy"] > 0.2


@pytest.mark.deep  # a minute of training
def test_attention_makes_long_copies_possible(tmp_path, capsys):
    """Without it all of the source must pass through one state (document 000 section 2.1)."""
    settings = ["--size", 10, "--d-model", 48, "--max-len", 12, "--lr", 1e-2, "--warmup", 20, "--batch-size", 32]
    settings += ["--steps", 300, "--evaluate-every", 1000, "--save-every", 1000, "--no-compile"]
    accuracy = {
        score: last_figures(tmp_path / score, capsys, "long-copy", "--score", score, *settings)["token_accuracy"]
        for score in ("none", "dot")
    }
    assert accuracy["dot"] > 2 * accuracy["none"], accuracy


# --- attention ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_attention_of_every_layer_and_head(runs, capsys, tmp_path):
    code, printed, _ = said(capsys, "attention", runs / "text", "he 猫", "--numbers")
    assert code == 0
    assert "layers.0.attn, head 0" in printed
    assert "layers.0.attn, head 1" in printed
    labels = [line.split(" | ")[0].split() for line in printed.splitlines() if " | " in line]
    assert labels[:3] == [["h"], ["e"], ["␣"]]  # then the three bytes of 猫, which this model does not know
    assert labels[3:6] == [["e7"], ["8c"], ["ab"]]
    code, printed, _ = said(capsys, "attention", runs / "reverse", "abc", "--layer", "decoder*cross*", "--head", 1)
    assert (code, printed.count("head")) == (0, 1)
    assert printed.splitlines()[1].split() == ["a", "b", "c"]
    assert printed.splitlines()[2].startswith("<begin> | ")
    code, printed, _ = said(capsys, "attention", runs / "reverse", "abc", "--numbers", "--layer", "encoder*")
    rows = [line.split(" | ")[1].split() for line in printed.splitlines() if " | " in line]
    np.testing.assert_allclose([sum(map(float, row)) for row in rows], 1, atol=0.02)
    assert said(capsys, "attention", runs / "reverse", "abc", "-o", tmp_path / "a.svg")[0] == 0
    assert "layers.0.self_attn, head 0" in said(capsys, "attention", runs / "masked", "abc")[1]
    picture = (tmp_path / "a.svg").read_text()
    assert picture.count("cross_attn, head") == 2
    assert picture.count("self_attn, head") == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["abc", "--layer", "nothing"], "no attention module is called 'nothing': there are encoder.layers.0"),
        (["abc", "--head", "7"], "and no head 7"),
        (["abc", "-o", "a.png"], "does not end in .svg"),
        ([""], "the text is empty"),
    ],
)
def test_attention_that_cannot_be_shown_is_one_sentence(runs, capsys, words, message):
    code, _, printed = said(capsys, "attention", runs / "reverse", *words)
    assert code == 2
    assert message in printed
    assert printed.count("\n") == 1


# --- train ----------------------------------------------------------------------------------------


def test_a_run_leaves_checkpoint_log_plot_and_settings(runs):
    assert sorted(path.name for path in (runs / "text").iterdir()) == [
        "checkpoint.safetensors",
        "log.jsonl",
        "loss.svg",
        "settings.toml",
    ]
    records = [json.loads(line) for line in (runs / "text" / "log.jsonl").read_text().splitlines()]
    assert [set(record) for record in records] == [
        {"step", "loss", "lr", "grad_norm", "tokens_per_s"},
        {"step", "held_out_loss", "perplexity", "bits_per_byte"},
    ]
    assert records[1]["bits_per_byte"] == pytest.approx(records[1]["held_out_loss"] / np.log(2))  # bytes are tokens


def test_the_settings_file_of_a_run_trains_the_same_weights(runs, tmp_path):
    assert main(["train", "--config", str(runs / "reverse" / "settings.toml"), "--out", str(tmp_path / "again")]) == 0
    first, second = (load_file(f / "checkpoint.safetensors") for f in (runs / "reverse", tmp_path / "again"))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_options_override_the_file_and_the_file_the_defaults(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('task = "text"\nsteps = 7\nlr = 1\n')
    settings = collect(None, read_toml(file), {"steps": 9})
    assert (settings.task, settings.steps, settings.lr) == ("text", 9, 1)
    assert settings.batch_size == DEFAULTS["text"]["batch_size"]
    file.write_text(to_toml(settings))
    assert collect(None, read_toml(file), {}) == settings


def test_every_setting_has_an_option_and_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert set(HELP) | {"task"} == set(Settings.__dataclass_fields__)
    for name in HELP:
        assert "--" + name.replace("_", "-") in shown


@pytest.mark.parametrize("task", tasks.NAMES)
def test_every_task_has_settings_that_fit_it(task):
    settings = collect(task, {}, {"d_model": 8, "d_ff": 8, "n_layers": 1})
    made = tasks.make(task, settings, 0)
    batch = made.batch(0)
    assert batch.labels.shape[0] == settings.batch_size
    again = made.batch(0)
    np.testing.assert_array_equal(batch.labels, again.labels)
    assert made.batch(1).labels.tolist() != batch.labels.tolist()
    assert made.model(*batch.inputs).shape == (*batch.labels.shape, made.tokenizer.vocab + (task == "masked"))


def test_an_epoch_of_the_corpus_is_every_pair_once():
    pairs = [(f"{i}", "x" * (i % 9)) for i in range(70)]
    source = tasks.CorpusPairs(pairs, batch_size=7, seed=0)
    epochs = [[pair for step in range(10) for pair in source(epoch * 10 + step)] for epoch in range(2)]
    for epoch in epochs:
        assert sorted(epoch) == sorted(pairs)
    assert epochs[0] != epochs[1]


def test_a_run_may_go_on_for_longer_than_was_planned(tmp_path, capsys):
    tiny = [*TINY, "--schedule", "constant"]
    assert said(capsys, "train", "reverse", "--out", tmp_path / "short", *tiny)[0] == 0
    code, _, shown = said(capsys, "train", "--resume", tmp_path / "short", "--steps", 5)
    assert code == 0
    assert "resuming after 3 of 5 steps" in shown
    assert read_toml(tmp_path / "short" / "settings.toml")["steps"] == 5
    assert said(capsys, "train", "reverse", "--out", tmp_path / "long", *tiny, "--steps", 5)[0] == 0
    short, long = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("short", "long"))
    for name, tensor in long.items():
        np.testing.assert_array_equal(tensor, short[name], err_msg=name)


def test_a_run_is_resumed_by_its_file_too_and_says_how_when_interrupted(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("transformer.training.optimise.Updater.update", interrupted)
        code, _, shown = said(capsys, "train", "reverse", "--out", tmp_path, *TINY)
    assert code == 130
    assert shown.splitlines()[-1] == f"interrupted: continue with --resume {tmp_path}"
    code, _, shown = said(capsys, "train", "--resume", tmp_path / "checkpoint.safetensors")
    assert code == 0
    assert shown.startswith("resuming after 0 of 3 steps")


def test_inspect_shows_a_checkpoint_whose_settings_are_none(tmp_path, capsys):
    save_file({"model.weight": mg.ones(2)}, tmp_path / "odd.safetensors", {"training": '{"step": 1, "settings": [1]}'})
    code, shown, _ = said(capsys, "inspect", tmp_path / "odd.safetensors")
    assert code == 0
    assert "2 numbers in 1 tensors" in shown


def test_resuming_a_finished_run_changes_nothing(runs, capsys):
    before = (runs / "text" / "checkpoint.safetensors").read_bytes()
    code, _, shown = said(capsys, "train", "--resume", runs / "text")
    assert code == 0
    assert "resuming after 3 of 3 steps" in shown
    assert (runs / "text" / "checkpoint.safetensors").read_bytes() == before


def test_the_bar_shows_loss_speed_and_time_left(tmp_path):
    screen = io.StringIO()
    report = Report(10, tmp_path, rich.console.Console(file=screen, force_terminal=True, width=120))
    with report.running(0):
        report.advance(4, loss=1.25, tokens_per_s=12345.0)
        report.record({"step": 4, "loss": 1.25})
        report.progress.refresh()
    shown = screen.getvalue()
    for part in ("step 4/10", "loss 1.2500", "12,345 tokens/s", "left"):
        assert part in shown


# --- generate, translate, inspect -----------------------------------------------------------------


def test_generated_text_depends_on_the_seed_alone(runs, capsys):
    draw = lambda *more: said(capsys, "generate", runs / "text", "--prompt", "ROMEO:", "--max-new-tokens", 12, *more)  # noqa: E731
    code, text, _ = draw("--seed", 3)
    assert code == 0
    assert text.startswith("ROMEO:")
    assert draw("--seed", 3)[1] == text
    assert draw("--seed", 4)[1] != text
    greedy = draw("--temperature", 0, "--seed", 3)[1]
    assert draw("--temperature", 0, "--seed", 4)[1] == greedy
    assert draw("--top-k", 1)[1] == greedy
    assert draw("--top-k", 10**6, "--top-p", 1, "--min-p", 0, "--seed", 3)[1] == text


def test_a_stop_text_may_have_escapes_and_any_character(runs, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr("transformer.cli.stream_decode", lambda *args, stop: asked.append(stop) or iter(()))
    texts = ["\\n\\n", "é\\t終", "C:\\\\dir\\q", "\\u00e9\\x41"]
    assert said(capsys, "generate", runs / "text", *(part for text in texts for part in ("--stop", text)))[0] == 0
    wanted = ["\n\n", "é\t終", "C:\\dir\\q", "éA"]
    assert [bytes(token - 3 for token in stop).decode() for stop in asked[0]] == wanted  # byte b is token 3 + b


def test_texts_are_answered_from_arguments_or_lines(runs, capsys, monkeypatch):
    from_arguments = said(capsys, "translate", runs / "reverse", "ab", "cd")
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\ncd\n"))
    assert said(capsys, "translate", runs / "reverse") == from_arguments
    assert from_arguments[0] == 0
    assert len(from_arguments[1].splitlines()) == 2


def test_inspect_shows_settings_tensors_and_sizes(runs, tmp_path, capsys):
    code, shown, _ = said(capsys, "inspect", runs / "text")
    assert code == 0
    assert "after 3 steps" in shown
    assert "d_model = 8" in shown
    assert f"{'model.token_embedding.weight':60} float32   [259, 8]" in shown
    save_file({"w": mg.zeros(3, 4)}, tmp_path / "other.safetensors", {"made": "elsewhere"})
    shown = said(capsys, "inspect", tmp_path / "other.safetensors")[1]
    assert "made: elsewhere" in shown
    assert "12 numbers in 1 tensors" in shown


def test_inspect_shows_a_published_model_or_why_it_cannot_be_used(tmp_path, capsys):
    config = GPT2Config(vocab_size=11, n_positions=8, n_embd=4, n_layer=1, n_head=2)
    checkpoints.save(GPT2(config), tmp_path)
    code, shown, _ = said(capsys, "inspect", tmp_path)
    assert code == 0
    assert shown.startswith(f"{tmp_path}: GPT2LMHeadModel, here transformer.models.GPT2")
    assert "n_embd = 4" in shown
    assert f"{'token_embedding.weight':60} float32   [11, 4]" in shown
    settings = json.loads((tmp_path / "config.json").read_text())
    for changed, message in (
        ({"model_type": "rwkv"}, "model_type 'rwkv' is not known here, only gpt2, "),
        ({"vocab_size": 12}, "transformer.wte.weight has shape [11, 4] in the weights, config.json asks for [12, 4]"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**settings, **changed}))
        code, _, shown = said(capsys, "inspect", tmp_path)
        assert (code, len(shown.splitlines())) == (2, 1)
        assert message in shown


def test_the_module_runs_as_a_program(runs):
    done = subprocess.run(
        [sys.executable, "-m", "transformer", "translate", "nowhere", "a"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.startswith("transformer translate: there is no checkpoint nowhere")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_has_seen_enough_is_no_error(runs):
    command = f"{sys.executable} -m transformer inspect {runs / 'text'} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr == ""


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train", "no task was given: name one of copy, reverse"),
        ("train subtract", "there is no task 'subtract'"),
        ("train text --out {runs}/text", "holds a run already: continue it with --resume"),
        ("train --resume {runs}/text --lr 0.1", "with its own settings: give nothing else but --steps"),
        ("train --resume {runs}/text --steps 1", "has 3 steps behind it: --steps must not be below"),
        ("train --resume {runs}", "there is no checkpoint"),
        ("train --resume {runs}/text/settings.toml", "name the folder"),
        ("attention {runs}/text abc -o nowhere/a.svg", "nowhere: there is no such folder"),
        ("train --config nowhere.toml", "there is no settings file nowhere.toml"),
        ("train text --lr -1", "lr must be above 0, got -1.0"),
        ("train text --d-model 10 --n-heads 4", "must divide"),
        ("train text --vocab 100", "at least 259 ids, got 100"),
        ("train text --seed -1", "seed must not be negative, got -1"),
        ("train text --out {runs}/text/log.jsonl", "log.jsonl: File exists"),
        ("train text --dropout 1", "dropout must lie in [0, 1)"),
        ("train reverse --size 0", "size must be at least 1"),
        ("train long-copy --score cosine", "score must be one of none, dot, general, additive, got 'cosine'"),
        ("train masked --mask-rate 1", "mask_rate must lie in (0, 1), got 1.0"),
        ("train mixture --experts-per-token 5", "between 1 and n_experts, 4, got 5"),
        ("train mixture --balance -1", "balance must not be negative, got -1.0"),
        ("train text --device tpu", "'tpu' names no device"),
        ("generate {runs}/text --device mps", "does not compute on device 'mps': use 'cpu' or 'cuda'"),
        ("generate {runs}/masked", "does not continue texts, it finds hidden tokens"),
        ("train translate --max-len 8 --vocab 259", "max_len must be"),
        ("train translate --target fr", "no language 'fr'"),
        ("generate {runs}/text --prompt=", "the text is empty"),
        ("generate {runs}/text --prompt 012345678901234567890123456789012", "longer than the model's 32 positions"),
        ("generate {runs}/text --max-new-tokens 33", "leaves room for 32 new ones"),
        ("generate {runs}/text --temperature -1", "the temperature must be 0 (greedy) or above, got -1.0"),
        ("generate {runs}/text --temperature 1e-300", "the temperature must be above 0 and finite, got 1e-300"),
        ("generate {runs}/text --temperature 1e300", "the temperature must be above 0 and finite, got 1e+300"),
        ("generate {runs}/text --top-k 0", "top_k must be at least 1, got 0"),
        ("generate {runs}/text --top-p 1.5", "top_p must lie in (0, 1], got 1.5"),
        ("generate {runs}/text --min-p 2", "min_p must lie in [0, 1]"),
        ("generate {runs}/reverse", "does not continue texts, it answers: use translate"),
        ("translate {runs}/text a", "does not answer, it continues texts: use generate"),
        ("translate {runs}/reverse a --beams 0", "--beams must be from 1 to 259, the vocabulary, got 0"),
        ("translate {runs}/reverse a --beams 5000", "--beams must be from 1 to 259, the vocabulary, got 5000"),
        (
            "translate {runs}/reverse 012345678901234567890123456789012",
            "source of 33 tokens does not fit the model's 32",
        ),
        ("inspect {runs}/text/settings.toml", "is not a readable safetensors file"),
        ("inspect nowhere", "there is no checkpoint nowhere"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(runs, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, shown = said(capsys, *arguments.format(runs=runs).split())
    assert code == 2
    assert out == ""
    assert len(shown.splitlines()) == 1, shown
    assert message in shown
    assert not list(tmp_path.iterdir())  # nothing is left behind


@pytest.mark.skipif(mg.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["train text", "generate {runs}/text", "translate {runs}/reverse a"])
def test_without_a_gpu_a_sentence_says_what_is_missing(runs, command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, shown = said(capsys, *command.format(runs=runs).split(), "--device", "cuda")
    assert (code, out) == (2, "")
    assert shown == f"transformer {command.split()[0]}: {mg.cuda.why_not()}\n"
    assert not list(tmp_path.iterdir())


def test_sizes_beyond_the_memory_are_one_sentence(capsys, tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError("Unable to allocate 965. GiB")

    monkeypatch.setattr(tasks, "make", full)
    code, _, shown = said(capsys, "train", "text", "--out", tmp_path / "run")
    assert code == 2
    assert shown == "transformer train: there is not enough memory for these sizes (Unable to allocate 965. GiB)\n"


def test_an_option_that_cannot_be_read_is_one_sentence(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "text", "--steps", "many"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "transformer train: argument --steps: invalid int value: 'many' (--help shows what there is)\n"
    )


def test_an_empty_text_is_refused(runs, capsys):
    code, _, shown = said(capsys, "translate", runs / "reverse", "")
    assert code == 2
    assert "a text is empty" in shown


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("steps = ", "is not a TOML file"),
        ("learning_rate = 1.0", "there is no setting 'learning_rate'"),
        ("steps = 1.5", "the setting steps must be of type int, got 1.5"),
        ('lr = "high"', "the setting lr must be of type float, got 'high'"),
        ("compile = 1", "the setting compile must be of type bool, got 1"),
    ],
)
def test_a_bad_settings_file_is_one_sentence(content, message, tmp_path, capsys):
    (tmp_path / "bad.toml").write_text('task = "text"\n' + content)
    code, _, shown = said(capsys, "train", "--config", tmp_path / "bad.toml")
    assert code == 2
    assert message in shown

"""The commands of the pages: their programs are there and know every option, and the first tasks' commands run."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import conformance.cli
import minigrad.cli
import transformer.__main__

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
MAINS = {"minigrad": minigrad.cli.main, "conformance": conformance.cli.main, "transformer": transformer.__main__.main}
COMMAND = re.compile(
    r"(?:\$ )?(?:MINIGRAD_\w+=\w+ )?((?:minigrad|conformance|pytest) .*|python -m (?:minigrad|transformer|tools)\b.*)"
)
LATER = ("watch", "step")  # what follows these programs' script are the script's own words


def fences(page: Path, *languages: str) -> list[str]:
    """The page's blocks of these languages ("" for a block without one)."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for language, block in blocks if language in languages]


def commands(page: Path) -> list[list[str]]:
    """The words of each command of our programs on the page, from the program's name on."""
    found = []
    for block in fences(page, "", "text", "bash"):
        for line in block.splitlines():
            if match := COMMAND.match(line):
                found += [shlex.split(part, comments=True) for part in match[1].split(" && ")]
    return [words[2:] if words[:2] == ["python", "-m"] else words for words in found]


def options(words: list[str]) -> list[str]:
    """The long options of a command, without what belongs to the script that it runs."""
    if len(words) > 1 and words[1] in LATER:
        script = next((at for at, word in enumerate(words) if word.endswith(".py") or word == "-m"), len(words))
        words = words[:script]
    return [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]


@cache
def helped(program: str, command: str) -> str:
    """What a program says of a command of its."""
    if program == "pytest":
        asked = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--help"]
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        MAINS[program]([command, "--help"])
    assert ended.value.code == 0, f"{program} has no command {command}"
    return out.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_programs_know_the_options_that_a_page_shows(page):
    for words in commands(page):
        program = words[0]
        if program.startswith("tools."):
            assert importlib.util.find_spec(program), f"{' '.join(words)}: there is no such program"
        elif program == "pytest" or program in MAINS:
            if program != "pytest" and len(words) < 2:
                continue
            text = helped(program, "" if program == "pytest" else words[1])
            for option in options(words):
                assert re.search(rf"{option}(?![\w-])", text), f"{' '.join(words)}: {program} knows no {option}"


def test_commands_are_found():
    assert ["minigrad", "explain", "softmax"] in commands(ROOT / "docs" / "study.md")
    assert sum(len(commands(page)) for page in PAGES) > 120


def test_an_option_that_is_not_there_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```text\nminigrad render --exmaple gpt\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="minigrad knows no --exmaple"):
        test_the_programs_know_the_options_that_a_page_shows(page)


# --- the five first tasks: one page each, and at most three commands ------------------------------

INDEX = ROOT / "docs" / "index.md"
TASKS = re.findall(r"^\| (.*?) \| \[.*?\]\((.*?)\) \| `(.*?)` \|$", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
GITHUB = '''
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 64
    vocab_size: int = 65
    n_layer: int = 3
    n_embd: int = 16


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        return x + self.dropout(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class GPT(nn.Module):
    """As nanoGPT is written: a config, a dict of modules, a tied head, and a loss beside the logits."""

    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.block_size, config.n_embd),
            "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
        })
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(x[:, [-1], :]), None
'''


def part(page: Path, anchor: str) -> str:
    """The page, or from the heading that the anchor names to the next of its rank."""
    text = page.read_text(encoding="utf-8")
    for heading in re.finditer(r"^(#+) (.*)$", text, re.MULTILINE):
        if re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-") == anchor:
            return re.split(rf"^#{{1,{len(heading[1])}}} ", text[heading.end() :], flags=re.MULTILINE)[0]
    assert not anchor, f"{page.name} has no heading {anchor}"
    return text


def test_the_index_has_the_five_tasks():
    assert len(TASKS) == 5


@pytest.mark.parametrize(("task", "link", "command"), TASKS, ids=[task for task, _, _ in TASKS])
def test_a_task_is_a_part_of_one_page_that_shows_its_command(task, link, command):
    page, _, anchor = link.partition("#")
    text = part((INDEX.parent / page).resolve(), anchor)
    assert re.sub(r"\bSLUG$", "", command) in text


def test_a_model_from_github_is_drawn_by_three_commands(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    text = part(ROOT / "docs" / "drawing.md", "a-model-from-github")
    clone, enter, render = re.findall(r"```text\n(.*?)```", text, re.DOTALL)[0].splitlines()
    assert clone.startswith("git clone https://github.com/")
    assert enter == f"cd {clone.rpartition('/')[2]}"
    (tmp_path / "model.py").write_text(GITHUB, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert minigrad.cli.main(shlex.split(render)[1:]) == 0
    (drawn,) = tmp_path.glob("*.svg")
    picture = drawn.read_text(encoding="utf-8")
    assert "transformer.h.0–2: Block ×3" in picture
    assert "dropout" not in picture


def test_the_gradient_of_softmax_is_that_of_its_lesson(capsys):
    lesson = part(ROOT / "docs" / "lessons" / "7-softmax-layer-norm.md", "softmax")
    assert minigrad.cli.main(["explain", "softmax"]) == 0
    told = capsys.readouterr().out
    assert "∂L/∂x = y · (g − Σ(g · y, dim))" in told
    assert "central differences agree" in told
    assert "∂L/∂xⱼ = yⱼ (gⱼ − Σᵢ gᵢ yᵢ)" in lesson


# --- Python of the pages --------------------------------------------------------------------------


def given_a_model(names):
    import minigrad.nn

    names["model"] = minigrad.nn.Linear(8, 2)


def given_a_class_to_grade(names):
    import conformance

    (rubric,) = fences(ROOT / "docs" / "grading.md", "toml")
    Path("rubric.toml").write_text(rubric, encoding="utf-8")
    code = "from torch.nn import MultiheadAttention as MultiHeadAttention"
    names |= {"conformance": conformance, "code": code, "step": 3}


def given_a_training(names):
    torch = pytest.importorskip("torch")
    import conformance

    def train(model, data):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for x in data:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    data = torch.randn(24, 4, 3, generator=torch.Generator().manual_seed(0))
    names |= {"conformance": conformance, "model": torch.nn.Linear(3, 3), "train": train, "data": data}


GIVEN = {
    "README.md": None,
    "docs/core.md": None,
    "docs/cuda.md": given_a_model,
    "docs/drawing.md": None,
    "docs/grading.md": given_a_class_to_grade,
    "docs/simt.md": None,
    "docs/standin.md": None,
    "docs/watch.md": given_a_training,
}
"""What the reader has before the blocks of a page begin. Lessons and tutorials are run by tests of their own."""


SECONDS = ("docs/grading.md", "docs/watch.md")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SECONDS else []) for name in GIVEN]
)
def test_the_python_of_a_page_runs(name, tmp_path, monkeypatch):
    if name == "docs/cuda.md":
        pytest.importorskip("greenlet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINIGRAD_CUDA", "simulate")
    monkeypatch.setattr("minigrad.kernels.cuda.runtime._runtime", None)
    names = {"__name__": "page"}
    if GIVEN[name] is not None:
        GIVEN[name](names)
    for block in fences(ROOT / name, "python"):
        if "conformance.check(model)" not in block:
            exec(compile(block, name, "exec"), names)


def test_the_adapter_of_the_page_is_one():
    (block,) = [block for block in fences(ROOT / "docs" / "adapters.md", "python") if "class MySoftmax" in block]
    names: dict[str, Any] = {}
    exec(compile(block, "adapters.md", "exec"), names)
    built = names["Mine"]().build("softmax", {"dim": -1})
    assert built(x=[[0.0, 0.0]])["out"].tolist() == [[0.5, 0.5]]
    assert names["Mine"]().build("rope", {}) is None

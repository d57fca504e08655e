"""`python -m transformer train`: a run is begun or continued, by one process or by several."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minigrad.files import write_atomically
from minigrad.kernels import usable
from minigrad.locks import only_writer
from transformer import checkpoints, finetuning, tasks
from transformer.cli import processes
from transformer.cli.settings import Settings, add_options, collect, read_toml, to_toml
from transformer.cli.speaker import open_speaker, settings_of
from transformer.data import Tokenizer
from transformer.lora import adapt
from transformer.tasks import ModelSettings
from transformer.training import Trainer, checkpoint
from transformer.training.parallel import Team, join

EXAMPLES = """examples:
  python -m transformer train reverse                       words backwards, in runs/reverse
  python -m transformer train translate --target zh --out runs/zh
  python -m transformer train text --steps 5000 --d-model 192 --vocab 512
  python -m transformer train text --data book.txt --out runs/book --patience 5      one's own text, byte by byte
  python -m transformer train long-copy --score none        without attention, to compare
  python -m transformer train --config settings.toml        the same settings as a file: steps = 5000 ...
  python -m transformer train --resume runs/reverse         go on after a crash, exactly
  python -m transformer train --resume runs/text --steps 3000      go on for longer than was planned
  python -m transformer train text --device cuda            on a GPU
  python -m transformer train text --processes 4            by four processes, which share each batch
  python -m transformer train text --base runs/text --data mine.txt --lora 8 --out runs/mine      adapters only (LoRA)
  python -m transformer train --base path/to/gpt2 --data mine.txt --lora 8 --out runs/mine      of a published model
"""

_NOT_SETTINGS = {"run", "command", "arguments", "task", "config", "out", "resume", "device", "processes"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", help=f"{', '.join(tasks.NAMES)}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings; options override it")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the run is kept (runs/TASK)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="continue a run with its own settings")
    parser.add_argument("--processes", type=int, metavar="N", help="processes that share each batch (1)")
    add_options(parser)


def run(options: argparse.Namespace) -> None:
    """Train, in this process or in several. Raises SystemExit where those have said what is wrong."""
    device = usable(options.device)  # what is wrong with it is said before anything is written
    team = join()
    if team is not None and device != "cpu":
        raise ValueError(f"several processes train on the CPU: leave out --device {device}")
    if team is None and options.processes is not None:
        mpiexec = processes.check(options.processes)
        if options.processes > 1:
            _start(mpiexec, options)
            return
    given = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}
    if options.resume is not None:
        if given.keys() - {"steps"} or options.task or options.config or options.out:
            raise ValueError("--resume continues a run with its own settings: give nothing else but --steps")
        _continue(options.resume, given, device, team)
    else:
        _begin(options, given, device, team)


def _start(mpiexec: str, options: argparse.Namespace) -> None:
    folder = options.resume or options.out or Path("runs") / (options.task or "TASK")
    try:
        code = processes.run(mpiexec, options.processes, options.arguments, folder)
    except KeyboardInterrupt:
        print(f"interrupted: continue with --resume {folder}", file=sys.stderr)
        raise
    if code:
        raise SystemExit(code)


def _begin(options: argparse.Namespace, given: dict[str, Any], device: str, team: Team | None) -> None:
    file = read_toml(options.config) if options.config else {}
    base = _based(given.get("base", file.get("base", "")), given)
    task_name = options.task or file.get("task") or base.get("task")
    settings = collect(task_name, {**base, **file}, given)
    if base and settings.task != base["task"]:
        raise ValueError(
            f"{settings.base} has learned {base['task']}: train {base['task']} from it, not {settings.task}"
        )
    if settings.lora and not settings.base:
        raise ValueError("lora trains adapters beside weights that there are: name a run or a model with --base")
    if settings.data:  # so that the run is continued from any folder
        settings = dataclasses.replace(settings, data=str(Path(settings.data).resolve()))
    if settings.base:
        settings = dataclasses.replace(settings, base=str(Path(settings.base).resolve()))
    folder = options.out or Path("runs") / settings.task
    if _writes(team):
        _refuse_a_second_run(folder)
    task = _fresh(settings)
    if _writes(team):
        folder.mkdir(parents=True, exist_ok=True)
    with _held(folder, team):
        if _writes(team):
            _refuse_a_second_run(folder)  # which may have come and gone meanwhile
        _train(folder, settings, task, device, team, resume=False)


def _based(path: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """The task and the sizes of what training begins with, of none for an empty path. Raises ValueError where `given`
    has sizes of a published model, which cannot be chosen."""
    if not path:
        return {}
    folder = Path(str(path))
    sizes = {field.name for field in dataclasses.fields(ModelSettings)} - {"data", "batch_size", "dropout"}
    published = finetuning.folder_of(folder)
    if published is not None:
        chosen = (given.keys() & (sizes | {"dropout"})) - {"max_len", "mask_rate"}
        if chosen:
            raise ValueError(f"{folder} has its own {', '.join(sorted(chosen))}: leave that out")
        model = checkpoints.without_weights(published)
        window = min(ModelSettings.max_len, model.max_len) if hasattr(model, "max_len") else ModelSettings.max_len
        return {"task": finetuning.task_name(model, folder), "max_len": window}
    found = dataclasses.asdict(settings_of(checkpoint.notes(folder), folder))
    return {name: value for name, value in found.items() if name in sizes or name == "task"}


def _fresh(settings: Settings) -> tasks.Task:
    """The task with a new model, or with that of its base, of which what is not trained is frozen."""
    if settings.base and finetuning.folder_of(Path(settings.base)) is not None:
        task: tasks.Task = finetuning.begin(Path(settings.base), settings, settings.seed)
        finetuning.adapt_published(task.model, settings)
        return task
    if settings.base:
        base = Path(settings.base)
        tokenizer = Tokenizer.from_json(checkpoint.notes(base)["tokenizer"])
        task = tasks.make(settings.task, settings, settings.seed, tokenizer)
        task.model.load_state_dict(open_speaker(base, "cpu").model.state_dict())
    else:
        task = tasks.make(settings.task, settings, settings.seed)
    adapt(task.model, settings)
    return task


def _continue(path: Path, given: dict[str, Any], device: str, team: Team | None) -> None:
    file = checkpoint.locate(path)
    if file.name != checkpoint.FILE:
        raise ValueError(f"--resume continues the run in a folder, by its {checkpoint.FILE}: name the folder")
    folder = file.parent
    with _held(folder, team):
        notes = checkpoint.notes(file)
        settings = settings_of(notes, folder)
        if given:
            if given["steps"] < notes["step"]:
                raise ValueError(f"{folder} has {notes['step']} steps behind it: --steps must not be below")
            settings = dataclasses.replace(settings, **given)
        if finetuning.folder_of(folder) is not None:
            task: tasks.Task = finetuning.resume(folder, settings, settings.seed)
        else:
            tokenizer = Tokenizer.from_json(notes["tokenizer"])
            task = tasks.make(settings.task, settings, settings.seed, tokenizer)
        adapt(task.model, settings)
        if notes.get("text", task.digest) != task.digest:
            raise ValueError(f"{settings.data} is not the text that {folder} began to learn: put that one back")
        _train(folder, settings, task, device, team, resume=True)


def _refuse_a_second_run(folder: Path) -> None:
    if (folder / checkpoint.FILE).exists():
        raise ValueError(f"{folder} holds a run already: continue it with --resume {folder}, or choose another --out")


def _writes(team: Team | None) -> bool:
    return team is None or team.first


def _held(folder: Path, team: Team | None) -> contextlib.AbstractContextManager[None]:
    """The folder for nobody else, in the process that writes to it."""
    return only_writer(folder) if _writes(team) else contextlib.nullcontext()


def _train(folder: Path, settings: Settings, task: tasks.Task, device: str, team: Team | None, resume: bool) -> None:
    """Train in a folder that nobody else writes to."""
    notes = {
        "title": settings.task,
        "settings": dataclasses.asdict(settings),
        "tokenizer": task.tokenizer.to_json(),
        "text": task.digest,
    }
    model, loss = task.model.to(device), task.loss(settings.label_smoothing)
    trainer = Trainer(model, task.batch, settings, folder, task.evaluate, loss, task.pad_id, notes, team=team)
    done = trainer.resume() if resume else 0
    if not _writes(team):
        trainer.run()
        return
    write_atomically(folder / "settings.toml", [to_toml(settings).encode()])
    if isinstance(task, finetuning.PublishedTask) and not resume:
        finetuning.keep(task, folder)
    if resume:
        print(f"resuming after {done} of {settings.steps} steps", file=sys.stderr)
    size = sum(parameter.numel() for parameter in model.parameters())
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    part = "" if learned == size else f" of which {learned:,} are trained,"
    together = "" if team is None else f", by {team.size} processes"
    print(f"{settings.task}: {size:,} parameters,{part} {settings.steps} steps, in {folder}{together}", file=sys.stderr)
    try:
        trainer.run()
    except KeyboardInterrupt:
        if team is None:
            print(f"interrupted: continue with --resume {folder}", file=sys.stderr)
        raise
    if isinstance(task, finetuning.PublishedTask):
        print(f"a published folder, adapters merged: {finetuning.finish(folder)}", file=sys.stderr)
    if trainer.step < settings.steps:
        waited = f"{settings.patience} evaluations without a better held-out loss"
        print(f"stopped after {trainer.step} of {settings.steps} steps: {waited}", file=sys.stderr)

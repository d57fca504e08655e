"""The commands: train, generate, translate, perplexity, attention, inspect.

What a user can mend is one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from minigrad import Tensor
from minigrad.cuda import CudaError
from minigrad.files import write_atomically
from minigrad.io import load_file, load_metadata
from minigrad.kernels import usable
from minigrad.locks import only_writer
from minigrad.random import Generator
from transformer import checkpoints, tasks
from transformer.cli import attention, perplexity
from transformer.cli.settings import Settings, add_options, collect, read_toml, to_toml
from transformer.cli.speaker import ANSWERS, CONTINUES, STORED, Speaker, open_speaker, settings_of
from transformer.data import Tokenizer
from transformer.decoding import language_model, most_probable, sampler, stream_decode
from transformer.training import Trainer, checkpoint

TRAIN_EXAMPLES = """examples:
  python -m transformer train reverse                       words backwards, in runs/reverse
  python -m transformer train translate --target zh --out runs/zh
  python -m transformer train text --steps 5000 --d-model 192 --vocab 512
  python -m transformer train text --data book.txt --out runs/book --patience 5      one's own text, byte by byte
  python -m transformer train long-copy --score none        without attention, to compare
  python -m transformer train --config settings.toml        the same settings as a file: steps = 5000 ...
  python -m transformer train --resume runs/reverse         go on after a crash, exactly
  python -m transformer train --resume runs/text --steps 3000      go on for longer than was planned
  python -m transformer train text --device cuda            on a GPU
"""
GENERATE_EXAMPLES = """examples:
  python -m transformer generate runs/text --prompt "ROMEO:"
  python -m transformer generate runs/text --prompt "KING" --temperature 0.8 --top-k 40 --seed 7
  python -m transformer generate runs/text --prompt "KING" --temperature 0      greedily
  python -m transformer generate runs/text --prompt "JULIET:" --stop "\\n\\n"
  python -m transformer generate path/to/gpt2 --prompt "Once upon" --max-new-tokens 30      a published model
  python -m transformer generate path/to/llama --prompt "Who are you?" --chat
  python -m transformer generate path/to/gpt2 --prompt "Once upon" --weights int8      in less memory, and faster
"""
TRANSLATE_EXAMPLES = """examples:
  python -m transformer translate runs/translate "Enter new password"
  python -m transformer translate runs/reverse abcdef --beams 1
  python -m transformer translate runs/translate < sentences.txt
  python -m transformer translate path/to/marian "Good morning"       a published model
"""
INSPECT_EXAMPLES = """examples:
  python -m transformer inspect runs/text
  python -m transformer inspect model.safetensors
  python -m transformer inspect gpt2                        a published model: config.json and model.safetensors
"""
_ESCAPE = re.compile(r"\\(?:[\\nrt]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code (0; 2 for what the user can mend; 130 when interrupted)."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except BrokenPipeError:  # the reader has seen enough, as `inspect ... | head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, FloatingPointError, OSError, CudaError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None:  # the system's words, not ours
            message = f"{error.filename}: {error.strerror}"
        print(f"transformer {options.command}: {message}", file=sys.stderr)
        return 2
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        print(f"transformer {options.command}: there is not enough memory for these sizes{reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence and no usage, as for every other mistake."""
        self.exit(2, f"{self.prog.removeprefix('python -m ')}: {message} (--help shows what there is)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m transformer", description="Train small Transformers, and use them.")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="train|generate|translate|perplexity|attention|inspect"
    )

    def command(name: str, summary: str, examples: str, run: object) -> argparse.ArgumentParser:
        found = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        found.set_defaults(run=run)
        return found

    train = command("train", "train a model on a task", TRAIN_EXAMPLES, _train)
    train.add_argument("task", nargs="?", help=f"{', '.join(tasks.NAMES)}")
    train.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings; options override it")
    train.add_argument("--out", type=Path, metavar="FOLDER", help="where the run is kept (runs/TASK)")
    train.add_argument("--resume", type=Path, metavar="FOLDER", help="continue a run with its own settings")
    add_options(train)

    generate = command("generate", "continue a text with a language model", GENERATE_EXAMPLES, _generate)
    generate.add_argument("checkpoint", type=Path, help="the folder of a run or of a published model")
    generate.add_argument("--prompt", default="\n", help="text to continue (a line break)")
    generate.add_argument("--max-new-tokens", type=int, metavar="N", help="at most (as many as fit the model)")
    generate.add_argument("--temperature", type=float, default=1.0, metavar="X", help="1 is the model's; 0 is greedy")
    generate.add_argument("--top-k", type=int, metavar="N", help="draw from the N best; more than there are is all")
    generate.add_argument("--top-p", type=float, metavar="X", help="draw from the best that together reach X")
    generate.add_argument("--min-p", type=float, metavar="X", help="draw from those above X times the best")
    generate.add_argument("--repetition-penalty", type=float, default=1.0, metavar="X", help="above 1: repeat less")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT",
                          help="end after TEXT, in which \\n is a line break (repeatable)")  # fmt: skip
    generate.add_argument("--chat", action="store_true", help="the prompt is a message: use the folder's chat template")
    generate.add_argument("--system", metavar="TEXT", help="what stands before the message (implies --chat)")
    generate.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed draws the same text (0)")

    translate = command("translate", "answer with an encoder-decoder", TRANSLATE_EXAMPLES, _translate)
    translate.add_argument("checkpoint", type=Path, help="the folder of a run or of a published model")
    translate.add_argument("text", nargs="*", help="texts; the lines of the standard input where there are none")
    translate.add_argument("--beams", type=int, default=4, metavar="N", help="hypotheses side by side; 1 is greedy (4)")

    surprise = command("perplexity", "say how well a language model foresees a text", perplexity.EXAMPLES, _perplexity)
    perplexity.configure(surprise)

    heat = command("attention", "show who looks at whom while a model reads", attention.EXAMPLES, _attention)
    attention.configure(heat)

    for computing in (train, generate, translate, surprise, heat):
        computing.add_argument("--device", default="cpu", metavar="NAME", help="where to compute: cpu or cuda (cpu)")

    for speaking in (generate, translate, surprise):
        speaking.add_argument("--weights", choices=STORED, default=STORED[0],
                              help="how matrices are stored: fewer bytes are read faster (float32)")  # fmt: skip

    inspect = command("inspect", "show what a checkpoint holds", INSPECT_EXAMPLES, _inspect)
    inspect.add_argument("checkpoint", type=Path, help="folder of a run or a published model, or a safetensors file")
    return parser


# --- train ----------------------------------------------------------------------------------------

_NOT_SETTINGS = {"run", "command", "task", "config", "out", "resume", "device"}


def _train(options: argparse.Namespace) -> None:
    device = usable(options.device)  # what is wrong with it is said before anything is written
    given = {name: value for name, value in vars(options).items() if name not in _NOT_SETTINGS}
    if options.resume is not None:
        if given.keys() - {"steps"} or options.task or options.config or options.out:
            raise ValueError("--resume continues a run with its own settings: give nothing else but --steps")
        file = checkpoint.locate(options.resume)
        if file.name != checkpoint.FILE:
            raise ValueError(f"--resume continues the run in a folder, by its {checkpoint.FILE}: name the folder")
        folder = file.parent
        with only_writer(folder):
            notes = checkpoint.notes(file)
            settings, tokenizer = settings_of(notes, folder), Tokenizer.from_json(notes["tokenizer"])
            if given:
                if given["steps"] < notes["step"]:
                    raise ValueError(f"{folder} has {notes['step']} steps behind it: --steps must not be below")
                settings = dataclasses.replace(settings, **given)
            task = tasks.make(settings.task, settings, settings.seed, tokenizer)
            if notes.get("text", task.digest) != task.digest:
                raise ValueError(f"{settings.data} is not the text that {folder} began to learn: put that one back")
            _run(folder, settings, task, device, resume=True)
        return
    settings = collect(options.task, read_toml(options.config) if options.config else {}, given)
    if settings.data:  # so that the run is continued from any folder
        settings = dataclasses.replace(settings, data=str(Path(settings.data).resolve()))
    folder = options.out or Path("runs") / settings.task
    _refuse_a_second_run(folder)
    task = tasks.make(settings.task, settings, settings.seed)
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        _refuse_a_second_run(folder)  # which may have come and gone meanwhile
        _run(folder, settings, task, device, resume=False)


def _refuse_a_second_run(folder: Path) -> None:
    if (folder / checkpoint.FILE).exists():
        raise ValueError(f"{folder} holds a run already: continue it with --resume {folder}, or choose another --out")


def _run(folder: Path, settings: Settings, task: tasks.Task, device: str, resume: bool) -> None:
    """Train in a folder that nobody else writes to."""
    write_atomically(folder / "settings.toml", [to_toml(settings).encode()])
    notes = {
        "title": settings.task,
        "settings": dataclasses.asdict(settings),
        "tokenizer": task.tokenizer.to_json(),
        "text": task.digest,
    }
    model, loss = task.model.to(device), task.loss(settings.label_smoothing)
    trainer = Trainer(model, task.batch, settings, folder, task.evaluate, loss, task.pad_id, notes)
    if resume:
        print(f"resuming after {trainer.resume()} of {settings.steps} steps", file=sys.stderr)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{settings.task}: {size:,} parameters, {settings.steps} steps, in {folder}", file=sys.stderr)
    try:
        trainer.run()
    except KeyboardInterrupt:
        print(f"interrupted: continue with --resume {folder}", file=sys.stderr)
        raise
    if trainer.step < settings.steps:
        waited = f"{settings.patience} evaluations without a better held-out loss"
        print(f"stopped after {trainer.step} of {settings.steps} steps: {waited}", file=sys.stderr)


# --- generate and translate -----------------------------------------------------------------------


def _generate(options: argparse.Namespace) -> None:
    if not options.temperature >= 0:
        raise ValueError(f"the temperature must be 0 (greedy) or above, got {options.temperature}")
    if options.temperature == 0:
        choose = most_probable(options.repetition_penalty)
    else:
        choose = sampler(
            options.temperature,
            options.top_k,
            options.top_p,
            options.min_p,
            options.repetition_penalty,
            Generator(options.seed),
        )
    speaker = open_speaker(options.checkpoint, options.device, options.weights)
    speaker.must(CONTINUES, "continue texts")
    prompt = options.prompt
    if options.chat or options.system is not None:
        if speaker.words is None:
            raise ValueError(f"{options.checkpoint} has no chat template: give the prompt as it shall be read")
        said = [("system", options.system), ("user", prompt)]
        prompt = speaker.words.chat([{"role": role, "content": text} for role, text in said if text is not None])
        words, vocab = speaker.words, speaker.encode
        speaker.encode = lambda text: words.encode(text, special=False)  # the template has them
        ids, speaker.encode = speaker.read(prompt), vocab
    else:
        ids = speaker.read(prompt)
    room = speaker.model.max_len + 1 - ids.shape[1]
    usual = room if speaker.room is None else min(room, speaker.room)
    count = max(usual, 1) if options.max_new_tokens is None else options.max_new_tokens
    stop = [_ids_of(speaker, _unescaped(text)) for text in options.stop] + [[end] for end in speaker.ends]
    cache = speaker.model.new_cache(min(speaker.model.max_len, ids.shape[1] + count))
    tokens = stream_decode(language_model(speaker.model, cache), ids, count, choose, stop=stop)
    print(options.prompt, end="" if not options.chat else "\n", flush=True)
    for text in _as_text(speaker, ids.tolist()[0], (int(token) for token in tokens)):
        print(text, end="", flush=True)
    print()


def _ids_of(speaker: Speaker, text: str) -> list[int]:
    """A text's ids without the tokens that go around a whole one."""
    return speaker.encode(text) if speaker.words is None else speaker.words.encode(text, special=False)


def _unescaped(text: str) -> str:
    """Escapes (a line break as a backslash and n, ...) as the characters that they mean; all others stay."""
    return _ESCAPE.sub(lambda found: found[0].encode("ascii").decode("unicode_escape"), text)


def _as_text(speaker: Speaker, prompt: list[int], tokens: Iterable[int]) -> Iterator[str]:
    """The text of tokens as they come; a character is held back until all its bytes are there.

    Spaces between words depend on what stands before: a text is what a longer one has more than a shorter one.
    """
    written = [] if speaker.words is None else prompt[-4:]
    said = speaker.decode(written)
    held = 0
    for token in tokens:
        if token in speaker.ends:
            break
        written.append(token)
        held += 1
        text = speaker.decode(written)
        if not text.endswith("\N{REPLACEMENT CHARACTER}") or held > 3:
            yield text[len(said) :]
            said, held = text, 0
            if len(written) > 64:
                written = written[-4:]
                said = speaker.decode(written)
    yield speaker.decode(written)[len(said) :]


def _translate(options: argparse.Namespace) -> None:
    speaker = open_speaker(options.checkpoint, options.device, options.weights)
    speaker.must(ANSWERS, "answer")
    assert speaker.answer is not None
    if not 1 <= options.beams <= speaker.vocab:
        raise ValueError(f"--beams must be from 1 to {speaker.vocab}, the vocabulary, got {options.beams}")
    texts = options.text or [line.rstrip("\n") for line in sys.stdin]
    for answer in speaker.answer(texts, options.beams, None):
        print(speaker.decode(answer))


def _perplexity(options: argparse.Namespace) -> None:
    perplexity.show(open_speaker(options.checkpoint, options.device, options.weights), options)


def _attention(options: argparse.Namespace) -> None:
    attention.show(open_speaker(options.checkpoint, options.device), options)


# --- inspect --------------------------------------------------------------------------------------


def _inspect(options: argparse.Namespace) -> None:
    if (options.checkpoint / checkpoints.CONFIG).is_file():
        _inspect_published(options.checkpoint)
        return
    path = checkpoint.locate(options.checkpoint)
    tensors, metadata = load_file(path), load_metadata(path)
    if "training" in metadata:
        notes = checkpoint.notes(path)
        print(f"{path}: after {notes['step']} steps")
        settings = notes.get("settings")
        for name, value in sorted(settings.items()) if isinstance(settings, dict) else ():
            print(f"  {name} = {value!r}")
    else:
        print(path)
        for name, text in sorted(metadata.items()):
            print(f"  {name}: {text if len(text) <= 100 else text[:97] + '...'}")
    own = {name: tensor for name, tensor in tensors.items() if not name.startswith("optimizer.")}
    state = sum(math.prod(tensor.shape) for name, tensor in tensors.items() if name not in own)
    print(_table(own) + (f", {state:,} of the optimizer's state" if state else ""))


def _inspect_published(folder: Path) -> None:
    """A checkpoint of a family of `transformer.checkpoints`, which is loaded: what is shown here can be used."""
    model = checkpoints.load(folder)
    print(f"{folder}: {model.architecture()}, here transformer.models.{type(model).__name__}")
    for name, value in sorted(model.config.to_dict().items()):
        print(f"  {name} = {value!r}")
    print(_table(dict(model.named_parameters())))


def _table(tensors: Mapping[str, Tensor]) -> str:
    """A line for each tensor, and their sizes together; a tied one counts once."""
    lines = [f"{name:60} {tensor.dtype.name:9} {list(tensor.shape)}" for name, tensor in tensors.items()]
    once = {id(tensor): tensor for tensor in tensors.values()}.values()
    return "\n".join([*lines, f"{sum(math.prod(t.shape) for t in once):,} numbers in {len(once)} tensors"])

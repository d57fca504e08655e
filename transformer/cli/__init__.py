"""The commands: train, generate, translate, perplexity, attention, inspect.

What a user can mend is one sentence and exit code 2.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from minigrad import Tensor
from minigrad.cuda import CudaError
from minigrad.io import load_file, load_metadata
from minigrad.random import Generator
from transformer import checkpoints
from transformer.cli import attention, perplexity, train
from transformer.cli.speaker import ANSWERS, CONTINUES, STORED, Speaker, open_speaker
from transformer.decoding import language_model, most_probable, sampler, stream_decode
from transformer.training import checkpoint, parallel

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
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    options.arguments = arguments
    try:
        options.run(options)
    except BrokenPipeError:  # the reader has seen enough, as `inspect ... | head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, FloatingPointError, OSError, CudaError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None:  # the system's words, not ours
            message = f"{error.filename}: {error.strerror}"
        return _ended(2, f"transformer {options.command}: {message}")
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        return _ended(2, f"transformer {options.command}: there is not enough memory for these sizes{reason}")
    except KeyboardInterrupt:
        return _ended(128 + signal.SIGINT, "")
    except Exception:
        if parallel.joined():  # the others would wait for this process for ever
            parallel.end_all(1, traceback.format_exc())
        raise
    return 0


def _ended(code: int, words: str) -> int:
    parallel.end_all(code, words)
    return code


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

    training = command("train", "train a model on a task", train.EXAMPLES, train.run)
    train.configure(training)

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

    for computing in (training, generate, translate, surprise, heat):
        computing.add_argument("--device", default="cpu", metavar="NAME", help="where to compute: cpu or cuda (cpu)")

    for speaking in (generate, translate, surprise):
        speaking.add_argument("--weights", choices=STORED, default=STORED[0],
                              help="how matrices are stored: fewer bytes are read faster (float32)")  # fmt: skip

    inspect = command("inspect", "show what a checkpoint holds", INSPECT_EXAMPLES, _inspect)
    inspect.add_argument("checkpoint", type=Path, help="folder of a run or a published model, or a safetensors file")
    return parser


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

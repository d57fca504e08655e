"""`python -m transformer attention`: who looks at whom in a trained model, for every layer and head."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from minigrad import Tensor
from minigrad.io import write_atomically
from transformer import data, heatmaps, tasks
from transformer.data import BEGIN, END, PAD, Tokenizer
from transformer.decoding import evaluation
from transformer.heatmaps import Layer

EXAMPLES = """examples:
  python -m transformer attention runs/text "ROMEO: my love"
  python -m transformer attention runs/reverse abcdef --layer "decoder*cross*" --numbers
  python -m transformer attention runs/translate "Enter new password" -o attention.svg
"""
SPECIAL = {PAD: "<pad>", BEGIN: "<begin>", END: "<end>"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, help="the folder of a run, or its checkpoint file")
    parser.add_argument("text", help="what the model reads; a model that answers reads its own answer, too")
    parser.add_argument("--layer", metavar="GLOB", default="*", help="attention modules by path (all)")
    parser.add_argument("--head", type=int, metavar="N", help="one head, counted from 0 (all)")
    parser.add_argument("--numbers", action="store_true", help="weights as numbers instead of blocks")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.svg", help="draw instead of printing")


def show(task: tasks.Task, options: argparse.Namespace) -> None:
    """Print or draw what `options` ask for. Raises ValueError where there is no such layer or head."""
    if options.output is not None and options.output.suffix.lower() != ".svg":
        raise ValueError(f"{options.output} does not end in .svg, the only format of attention pictures")
    every = layers(task, options.text)
    if not every:
        raise ValueError(f"{options.checkpoint} is a model without attention modules")
    chosen = [layer for layer in every if fnmatchcase(layer.path, options.layer)]
    if not chosen:
        paths = ", ".join(layer.path for layer in every)
        raise ValueError(f"no attention module is called {options.layer!r}: there are {paths}")
    if options.head is not None:
        chosen = [layer.only(options.head) for layer in chosen]
    if options.output is not None:
        write_atomically(options.output, [heatmaps.sheet(chosen).encode()])
        print(options.output)
        return
    for layer in chosen:
        for head, weights in zip(layer.heads, layer.weights, strict=True):
            print(f"{layer.path}, head {head}")
            print(heatmaps.text(weights, layer.queries, layer.keys, options.numbers), end="\n\n")


def layers(task: tasks.Task, text: str) -> list[Layer]:
    """The attention of every layer while the model reads `text`, and its answer if it is one that answers.

    Raises ValueError for an empty text.
    """
    inputs: tuple[Tensor, ...]
    if not isinstance(task, tasks.PairsTask):
        inputs = (task.read(text),)
        source = written = labels(task.tokenizer, inputs[0].numpy()[0])
    else:
        (answer,) = task.answer_ids([text])
        written_ids = [BEGIN, *(token for token in answer if token not in SPECIAL)]
        inputs = (data.pad_batch([task.tokenizer.encode(text)]), data.pad_batch([written_ids[: task.sizes.max_len]]))
        source, written = (labels(task.tokenizer, ids.numpy()[0]) for ids in inputs)
    with evaluation(task.model), heatmaps.collecting(task.model) as maps:
        task.model(*(each.to(tasks.device_of(task.model)) for each in inputs))
    found = []
    for path, weights in maps.items():
        queries = source if path.startswith("encoder.") else written
        keys = written if path.startswith("decoder.") and path.endswith("self_attn") else source
        found.append(Layer(path, weights[0], queries, keys))
    return found


def labels(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    """What each token spells; the bytes of one that is only a part of a character."""
    found = []
    for token in map(int, ids):
        spelled = tokenizer.spelling.get(token, b"")
        try:
            found.append(SPECIAL.get(token) or spelled.decode())
        except UnicodeDecodeError:
            found.append(spelled.hex(" "))
    return found

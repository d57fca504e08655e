"""`python -m transformer attention`: who looks at whom in a trained model, for every layer and head."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from minigrad.files import write_atomically
from transformer import heatmaps
from transformer.cli.speaker import Speaker, begun
from transformer.decoding import evaluation
from transformer.heatmaps import Layer

EXAMPLES = """examples:
  python -m transformer attention runs/text "ROMEO: my love"
  python -m transformer attention runs/reverse abcdef --layer "decoder*cross*" --numbers
  python -m transformer attention runs/translate "Enter new password" -o attention.svg
  python -m transformer attention path/to/bert "he sees her" --layer "layers.0.*"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, help="the folder of a run or of a published model")
    parser.add_argument("text", help="what the model reads; a model that answers reads its own answer, too")
    parser.add_argument("--layer", metavar="GLOB", default="*", help="attention modules by path (all)")
    parser.add_argument("--head", type=int, metavar="N", help="one head, counted from 0 (all)")
    parser.add_argument("--numbers", action="store_true", help="weights as numbers instead of blocks")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.svg", help="draw instead of printing")


def show(speaker: Speaker, options: argparse.Namespace) -> None:
    """Print or draw what `options` ask for. Raises ValueError where there is no such layer or head."""
    if options.output is not None and options.output.suffix.lower() != ".svg":
        raise ValueError(f"{options.output} does not end in .svg, the only format of attention pictures")
    every = layers(speaker, options.text)
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


def layers(speaker: Speaker, text: str) -> list[Layer]:
    """The attention of every layer while the model reads `text`, and its answer if it is one that answers.

    Raises ValueError for an empty text.
    """
    inputs, source, written = begun(speaker, text)
    with evaluation(speaker.model), heatmaps.collecting(speaker.model) as maps:
        speaker.model(*inputs)
    found = []
    for path, weights in maps.items():
        queries = source if path.startswith("encoder") else written
        keys = written if path.startswith("decoder") and path.endswith("self_attn") else source
        found.append(Layer(path, weights[0], queries, keys))
    return found

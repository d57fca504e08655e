"""`python -m transformer perplexity`: how well a language model foresees a text."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad import functional as F
from transformer.cli.speaker import CONTINUES, Speaker
from transformer.decoding import evaluation

EXAMPLES = """examples:
  python -m transformer perplexity runs/text --file speech.txt
  python -m transformer perplexity path/to/gpt2 "To be, or not to be"
  python -m transformer perplexity path/to/gpt2 --file book.txt --window 512 --stride 256
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, help="the folder of a run or of a published model")
    parser.add_argument("text", nargs="?", help="what is foreseen; the standard input where nothing is given")
    parser.add_argument("--file", type=Path, metavar="FILE", help="a file with the text")
    parser.add_argument("--window", type=int, metavar="N", help="tokens read at once (as many as fit, to 1024)")
    parser.add_argument("--stride", type=int, metavar="N", help="tokens between two windows (half a window)")


def show(speaker: Speaker, options: argparse.Namespace) -> None:
    """Print the mean loss a token, the perplexity, and bits a byte. Raises ValueError where nothing is read."""
    speaker.must(CONTINUES, "continue texts")
    if options.text is not None and options.file is not None:
        raise ValueError("give a text or --file, not both")
    if options.file is not None:
        try:
            text = options.file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{options.file} is not a text in UTF-8") from None
    else:
        text = sys.stdin.read() if options.text is None else options.text
    window = min(speaker.model.max_len, 1024) if options.window is None else options.window
    if not 2 <= window <= speaker.model.max_len:
        raise ValueError(f"--window must be from 2 to {speaker.model.max_len}, what the model reads, got {window}")
    stride = max(window // 2, 1) if options.stride is None else options.stride
    if not 1 <= stride < window:
        raise ValueError(f"--stride must be from 1 to {window - 1}, below the window, got {stride}")
    ids = speaker.read(text).numpy()[0]
    if len(ids) < 2:
        raise ValueError("a text of one token has nothing to foresee: give a longer one")
    nats = losses(speaker, ids, window, stride)
    mean, size = float(nats.mean()), len(text.encode())
    print(f"tokens {len(nats)}  loss {mean:.4f} nats a token  perplexity {math.exp(min(mean, 700)):.4f}  "
          f"{nats.sum() / math.log(2) / size:.4f} bits a byte")  # fmt: skip


def losses(speaker: Speaker, ids: np.ndarray, window: int, stride: int) -> np.ndarray:
    """How surprising each token but the first is, in nats, float64 ``(T - 1,)``.

    A window is read every `stride` tokens; a token is judged in the first window that has it, so that all but the first
    window's tokens are judged after at least window - stride others.
    """
    found: list[np.ndarray] = []
    judged = 1
    with evaluation(speaker.model):
        for start in range(0, len(ids), stride):
            end = min(start + window, len(ids))
            if end > judged:
                rows = mg.from_numpy(ids[None, start:end].copy(), next(speaker.model.parameters()).device)
                logits = speaker.model(rows[:, :-1])[0].double()
                every = F.cross_entropy(logits, rows[0, 1:], None, reduction="none").numpy()
                found.append(every[judged - start - 1 :])
                judged = end
            if end == len(ids):
                break
    return np.concatenate(found)

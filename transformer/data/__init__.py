"""Data: texts that ship, tasks that are made, and tokenizers."""

from transformer.data.corpus import LANGUAGES, own_text, parallel, shakespeare
from transformer.data.synthetic import TASKS, examples, is_held_out
from transformer.data.tokenizer import BEGIN, END, PAD, Tokenizer, pad_batch, train_bpe

__all__ = [
    "BEGIN",
    "END",
    "LANGUAGES",
    "PAD",
    "TASKS",
    "Tokenizer",
    "examples",
    "is_held_out",
    "own_text",
    "pad_batch",
    "parallel",
    "shakespeare",
    "train_bpe",
]

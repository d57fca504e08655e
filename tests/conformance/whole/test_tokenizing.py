"""Tokenizers beside a model: which keep the end of a long text, which lose it, and which are not judged."""

from __future__ import annotations

import importlib.util
import sys
from textwrap import dedent

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers.tokenizing import ended, is_tokenizer
from conformance.adapters.loading import writing_no_bytecode

WORDS = """
    class WordTokenizer:
        PAD, SOT, EOT, UNK = 0, 1, 2, 3

        def __init__(self, words, context=16):
            self.table = {word: at + 4 for at, word in enumerate(sorted(set(words)))}
            self.context = context

        def __call__(self, texts):
            texts = [texts] if isinstance(texts, str) else texts
            out = torch.full((len(texts), self.context), self.PAD)
            for row, text in enumerate(texts):
                ids = [self.table.get(word, self.UNK) for word in text.split()]
                ids = KEPT
                out[row, : len(ids)] = torch.tensor(ids)
            return out
"""
RIGHT, LOST = "[self.SOT] + ids[: self.context - 2] + [self.EOT]", "([self.SOT] + ids + [self.EOT])[: self.context]"
LISTS = """
    class CharVocab:
        def __init__(self, text):
            self.ids = {c: at + 3 for at, c in enumerate(sorted(set(text)))}

        def encode(self, text, max_len=None, add_special_tokens=False):
            ids = [self.ids[c] for c in text]
            if add_special_tokens:
                ids = [1, *ids, 2]
            return {"input_ids": ids[:max_len]}
"""
PLACED = "if max_len and len(ids) > max_len:\n                ids = [*ids[: max_len - 1], 2]\n            return"
FUNCTION = """
    def tokenize(texts, vocab, context_length=77, truncate=False):
        rows = []
        for text in texts:
            ids = [vocab["<bos>"]] + [vocab[word] for word in text.split()] + [vocab["<eos>"]]
            if len(ids) > context_length:
                if not truncate:
                    raise RuntimeError(text)
                ids = ids[:context_length]
                ids[-1] = vocab["<eos>"]
            rows.append([0] * (context_length - len(ids)) + ids)
        return torch.tensor(rows)
"""
LEARNT = """
    class Tokenizer:
        def __init__(self, max_length=64):
            self.ids, self.max_length = {}, max_length

        def fit(self, texts):
            for text in texts:
                for word in text.split():
                    self.ids.setdefault(word, len(self.ids) + 5)

        def encode(self, sentence):
            return [*(self.ids[word] for word in sentence.split()), 2][: self.max_length]
"""
FORMS = {
    "words, then the end": (WORDS.replace("KEPT", RIGHT), True),
    "cut behind the end": (WORDS.replace("KEPT", LOST), False),
    "the last words": (WORDS.replace("KEPT", LOST.replace("[: self.context]", "[-self.context :]")), True),
    "no end": (WORDS.replace("KEPT", "([self.SOT] + ids)[: self.context]"), None),
    "padding for an end": (WORDS.replace("KEPT", LOST.replace("EOT", "PAD")), None),
    "nothing is cut": (WORDS.replace("KEPT", LOST.replace("[: self.context]", "")), None),
    "letters in a dict": (LISTS, False),
    "letters, an end put in": (LISTS.replace("return", PLACED), True),
    "a function of CLIP's": (FUNCTION, True),
    "the same without the end": (FUNCTION.replace("ids[-1] = vocab", "vocab"), False),
    "told texts first": (LEARNT, False),
    "told texts first, no end": (LEARNT.replace(", 2]", "]"), None),
    "what needs something else": (LEARNT.replace("self, max_length=64", "self, merges, max_length=64"), None),
}


@pytest.fixture
def said(tmp_path):
    """said(text, kind): of the tokenizer of a file, beside a model of a kind: True, False, "note" or None."""

    def made(text, kind=None):
        path = tmp_path / "tokenizers_of_a_test.py"
        path.write_text("import torch\n\n" + dedent(text))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with writing_no_bytecode():
            spec.loader.exec_module(module)
        ours = [one for one in vars(module).values() if getattr(one, "__module__", "") == path.stem]
        found = list(ended([one for one in ours if is_tokenizer(one)], kind))
        assert all(one.place and one.mend for one in found if one.trouble)
        answers = [True if one.trouble is None else not one.trouble.certain and "note" for one in found]
        return answers[0] if answers else None

    yield made
    sys.modules.pop("tokenizers_of_a_test", None)


@pytest.mark.parametrize("form", FORMS)
def test_ends_of_long_texts(said, form):
    text, expected = FORMS[form]
    assert said(text) is expected


@pytest.mark.parametrize(("kind", "expected"), [("language_model", "note"), ("", "note"), ("encoder_model", False)])
def test_a_language_model_may_read_a_piece_of_a_text(said, kind, expected):
    assert said(WORDS.replace("KEPT", LOST), kind) == expected

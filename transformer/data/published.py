"""The words of published folders: tokenizer.json, vocab.json with merges.txt, vocab.txt, sentencepiece models.

Read by the library `tokenizers`, chat templates by jinja2: `pip install "minigrad-conformance[words]"`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer.data import sentencepiece

NEEDED = 'tokenizers and chat templates of published folders need: pip install "minigrad-conformance[words]"'
FILES = "tokenizer.json, vocab.json with merges.txt, vocab.txt, or a sentencepiece model"
_MODELS = ("spiece.model", "tokenizer.model", "sentencepiece.bpe.model", "spm.model")
_BESIDE = ("source.spm", "target.spm", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
           "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json", "chat_template.jinja",
           "generation_config.json")  # fmt: skip
_BEFORE = ("llama", "mistral", "mixtral", "gemma", "gemma2", "phi3", "deepseek_v2", "opt")  # begin with their bos token
_AFTER = ("t5", "mt5", "marian")  # end with their eos token
_AROUND = ("roberta", "bart")


class Words:
    """A folder's tokenizer: text to ids and back, its special tokens, and its chat template.

    Raises ValueError (one sentence) where a file is missing or broken, ImportError's words where a library is.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        older = _table(self.folder / "special_tokens_map.json")  # where older folders name their special tokens
        self.settings = {**older, **_table(self.folder / "tokenizer_config.json")}
        self.kind = _table(self.folder / "config.json").get("model_type")
        self.tokenizer = self._read()
        self.target: Any = self.tokenizer  # of what is written, where that has a tokenizer of its own
        self.numbers: Mapping[str, int] | None = None  # ids of pieces, where the tokenizer's own are not used
        if (self.folder / "source.spm").is_file():
            self.target = sentencepiece.read(self.folder / "target.spm")
            self.numbers = _table(self.folder / "vocab.json")
            if not self.numbers or not all(type(i) is int for i in self.numbers.values()):
                raise ValueError(f"{self.folder} has source.spm and no vocab.json that gives each piece a number")
            self.pieces = {i: text for text, i in self.numbers.items()}

    def _read(self) -> Any:
        try:
            import tokenizers
        except ImportError:
            raise ValueError(NEEDED) from None
        here = self.folder
        try:
            if (here / "tokenizer.json").is_file():
                return tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))
            if (here / "source.spm").is_file():
                return sentencepiece.read(here / "source.spm")
            if (here / "vocab.json").is_file():
                return self._bytes(here)
            if (here / "vocab.txt").is_file():
                lower = bool(self.settings.get("do_lower_case", True))
                return tokenizers.BertWordPieceTokenizer(str(here / "vocab.txt"), lowercase=lower)._tokenizer
        except ValueError:
            raise
        except Exception as error:  # the library raises bare ones
            raise ValueError(f"{here}: its tokenizer cannot be read ({str(error).splitlines()[0]})") from None
        for name in _MODELS:
            if (here / name).is_file():
                return self._around(sentencepiece.read(here / name))
        raise ValueError(f"{here} has no tokenizer: {FILES} is needed to turn words into ids")

    def _bytes(self, here: Path) -> Any:
        """GPT-2's tokenizer: pairs of bytes, in the words of two files."""
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        if not (here / "merges.txt").is_file():
            raise ValueError(f"{here} has vocab.json and no merges.txt: a tokenizer of pairs of bytes needs both")
        model = models.BPE.from_file(str(here / "vocab.json"), str(here / "merges.txt"))
        found = tokenizers.Tokenizer(model)
        first = bool(self.settings.get("add_prefix_space", False))
        found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(first), decoders.ByteLevel()
        return self._around(found)

    def _around(self, found: Any) -> Any:
        """The tokenizer with the special tokens, and those that its family puts around a text."""
        from tokenizers import processors

        names = ("unk_token", "pad_token", "bos_token", "eos_token", "mask_token", "cls_token", "sep_token")
        special = [token for name in names if (token := self.special(name)) is not None]
        known = [token for token in [*special, "<s>", "</s>", "<pad>", "<|endoftext|>"] if found.token_to_id(token)
                 is not None]  # fmt: skip
        found.add_special_tokens(list(dict.fromkeys(known)))
        first = self.special("bos_token") or "<s>"
        last = self.special("eos_token") or "</s>"
        first_is = self.settings.get("add_bos_token", self.kind in (*_BEFORE, *_AROUND))
        last_is = self.settings.get("add_eos_token", self.kind in (*_AFTER, *_AROUND))
        around = [token if wanted and found.token_to_id(token) is not None else None
                  for token, wanted in ((first, first_is), (last, last_is))]  # fmt: skip
        if any(around):
            pattern = " ".join(part for part in (around[0], "$A", around[1]) if part)
            ids = [(token, found.token_to_id(token)) for token in dict.fromkeys(filter(None, around))]
            found.post_processor = processors.TemplateProcessing(single=pattern, special_tokens=ids)
        return found

    def special(self, name: str) -> str | None:
        """The text of a special token ("eos_token", ...) as the folder names it, None where it does not."""
        token = self.settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        return text if isinstance(text, str) else None

    def id(self, name: str) -> int | None:
        """The id of a special token, None where there is none."""
        text = self.special(name)
        return None if text is None else self.tokenizer.token_to_id(text)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text, with the tokens that its family puts around one unless `special` is False."""
        try:
            found = self.tokenizer.encode(text, add_special_tokens=special)
        except Exception:  # half a character, which the library cannot take
            raise ValueError("the text has no UTF-8 spelling: it holds half a character") from None
        if self.numbers is None:
            return found.ids
        unknown = self.numbers.get("<unk>", 0)
        last = [self.numbers["</s>"]] if special and "</s>" in self.numbers else []
        return [self.numbers.get(piece, unknown) for piece in found.tokens] + last

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of ids; special tokens are left out unless `special`."""
        if self.numbers is None:
            return self.target.decode([int(i) for i in ids], skip_special_tokens=not special)
        pieces = [self.pieces.get(int(i), "") for i in ids]
        hidden = () if special else ("</s>", "<pad>", "<unk>")
        return "".join(p for p in pieces if p not in hidden).replace(sentencepiece.SPACE, " ").strip()

    def spelling(self, token: int) -> str:
        """One token, as it stands in the vocabulary."""
        text = self.pieces.get(token) if self.numbers is not None else self.tokenizer.id_to_token(token)
        return f"<{token}>" if text is None else text.replace(sentencepiece.SPACE, " ").replace("Ġ", " ")

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt of a conversation (roles and contents), by the folder's template.

        Raises ValueError where the folder has none, or the template refuses the messages.
        """
        file = self.folder / "chat_template.jinja"
        template = file.read_text(encoding="utf-8") if file.is_file() else self.settings.get("chat_template")
        if isinstance(template, list):  # several by name
            template = next((each.get("template") for each in template if each.get("name") == "default"), None)
        if not isinstance(template, str):
            raise ValueError(f"{self.folder} has no chat template: give the prompt as it shall be read, without --chat")
        try:
            import jinja2
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise ValueError(NEEDED) from None

        def refuse(message: str) -> None:
            raise jinja2.TemplateError(message)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": refuse, "strftime_now": time.strftime}
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, indent=indent, ensure_ascii=False)
        names = {name: self.special(name) or "" for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
        try:
            return environment.from_string(template).render(messages=messages, add_generation_prompt=True, **names)
        except Exception as error:  # a template is a program of somebody else's
            raise ValueError(f"{self.folder}: its chat template cannot be used ({error})") from None


def copy_words(source: Path, target: Path) -> None:
    """Copy what a published folder says about its words, and how its model writes, into a folder that there is."""
    for name in (*_BESIDE, *_MODELS):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _table(path: Path) -> dict[str, Any]:
    """The table of a JSON file, empty where there is no file. Raises ValueError for what is none."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a table in JSON")
    return found

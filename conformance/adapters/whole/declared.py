"""A writer as it is declared: its name, options, text, and the settings that it reads (`Declared`)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch import nn

from conformance.adapters.whole.configs import configs_of, fields_of, is_config, is_tuple
from conformance.adapters.whole.length_probes import LengthProbes
from conformance.adapters.whole.table_probes import TableProbes
from conformance.protocol import Array

MEANINGS: dict[str, str] = {
    "count": r"(max_?|num_?|n_?)?((new|gen|generated|out(put)?|decode|target|tgt|trg|total)_)?"
    r"(tokens?|steps?|len(gth)?|words|seq_len)(_to_generate)?|n|max_out_len|horizon|n_new|num_new|max_new|limit",
    "temperature": r"temperature|temp|tau",
    "top_k": r"top_?k|k",
    "top_p": r"top_?p|nucleus(_p)?|p",
    "sample": r"(do_)?sampl(e|ing)|stochastic|use_sampling|random",
    "greedy": r"(is_|use_|do_)?greedy",
    "end": r"(tgt_|trg_)?(eos|end|stop)(_?(token|symbol|idx|id|tok|index|token_id|word|tokens|token_idx))?",
    "start": r"(tgt_|trg_)?(bos|sos|start|begin|decoder_start)(_?(symbol|idx|id|tok|index|word|token(_id(x)?)?))?",
    "pad": r"(src_|tgt_|trg_)?pad(ding)?(_?(token|idx|id|token_id|index|value))?",
    "beams": r"(num_|n_)?beams?(_?(size|width|num|count))?",
    "cached": r"use_(kv_)?cache|kv_cache|cached",
    "window": r"(max_)?(context|block|ctx)_?(size|len(gth)?|window)?|max_context",
    "length_penalty": r"alpha|len(gth)?_?(pen(alty)?|norm(ali[sz]ation)?|alpha|factor)(_\w+)?|lp",
    "repetition": r"(repetition|repeat|rep)(_?pen(alty)?)?|theta",
    "presence": r"presence(_pen(alty)?)?",
    "frequency": r"freq(uency)?(_pen(alty)?)?",
    "least": r"min_?(new_?|gen(erated)?_?|target_?|decode_?|out(put)?_?)*(tokens|len(gth)?|steps)",
    "ngram": r"no_repeat(_?n?_?grams?)?(_(size|n|len))?|block_n?grams?(_size)?|n_?gram_block(ing)?(_size)?",
    "min_p": r"min_?p(rob)?",
    "device": r"device",
}
"""Meaning -> the names that a writer's parameter has for it; the whole name, in lower case."""

_END = r"\b(eos\w*|end(ed|s)?|finished|done|stopped)\b"
_FILLED = r"\b(pad(s|ded|ding)?|pad_\w+|fill(s|ed)?)\b"
_FILLS_ENDED_ROWS = re.compile(
    rf"{_FILLED}[^.;]{{0,20}}\b(after|behind|beyond|once|past)\b[^.;]{{0,20}}{_END}|"
    rf"\b(after|behind|once|rows?|sequences?)\b[^.;]{{0,40}}{_END}[^.;]{{0,40}}{_FILLED}|"
    rf"{_END} (rows?|sequences?|sentences?|ones)\b[^.;]{{0,30}}{_FILLED}"
)
"""Words of one sentence: padding follows an end."""
_READS_END = re.compile(
    r"\b(eos|eot)(_?(id|idx|token|token_id|index))?\b|\b(end|stop)_(id|token\w*)|<(/s|eos|end)>", re.I
)
"""What a writer reads of a tokenizer that has an end sign."""


class TextModel(TableProbes, LengthProbes):
    """A running model as a writer needs it: with its tables of words, and its longest input."""


@dataclass(frozen=True)
class Declared:
    """One way in which a model writes, before it is called.

    name: that of the method or function. method: whether it is the model's own. options: meaning -> parameter. form:
    of the prompt: "(B, T)", "(1, T)", "(T)", "list", or a text of "letters" or "words". total: whether the count is
    that of all tokens. breaks: what it raises behind its first token, and at which line. tells_of: whether its first
    argument is no prompt but what forward is given beside the tokens, an image, so that it begins by itself. spelled:
    its parameters that take a tokenizer or a vocabulary.
    """

    name: str
    function: Callable[..., Any]
    method: bool
    options: Mapping[str, str]
    prompt: str
    form: str = "(B, T)"
    total: bool = False
    beam: bool = False
    breaks: str = ""
    breaks_at: str = ""
    tells_of: bool = False
    spelled: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return 2 if self.form == "(B, T)" else 1

    @property
    def place(self) -> str:
        with suppress(OSError, TypeError):
            function = inspect.unwrap(self.function)
            return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
        return ""

    @property
    def source(self) -> str:
        with suppress(OSError, TypeError):
            return inspect.getsource(inspect.unwrap(self.function))
        return ""

    @property
    def fills_ended_rows(self) -> bool:
        """Whether its docstring or its comments say that a row that has ended is filled up."""
        said = [inspect.getdoc(self.function) or "", *re.findall(r"#(.*)", self.source)]
        return bool(_FILLS_ENDED_ROWS.search(re.sub(r"\s+", " ", ". ".join(said).lower())))

    def line_of(self, *patterns: str, or_called: bool = False) -> str:
        """file:line of the writer's first line that the first pattern is found in, or the next pattern; else of its
        first line. Docstrings are left out. or_called: a function of its file that it calls may have the line, too."""
        parts = list(self._sources()) if or_called else [next(self._sources())]
        for pattern in patterns:
            for place, source in parts:
                file, _, start = place.rpartition(":")
                for number, line in enumerate(source.splitlines()):
                    if re.search(pattern, line.partition("#")[0]):
                        return f"{file}:{int(start) + number}"
        return self.place

    @property
    def sources(self) -> list[str]:
        """The source of the writer, then of the functions of its file that it calls, without docstrings."""
        return [source for _, source in self._sources()]

    def _sources(self) -> Iterator[tuple[str, str]]:
        """The first line and the source of the writer, then of the functions of its file that it calls."""
        own = inspect.unwrap(self.function)
        yield self.place, _without_docstring(self.source, own)
        holders = (getattr(own, "__globals__", {}), vars(_class_of(own)))
        for name in dict.fromkeys(re.findall(r"(\w+)\(", self.source)):
            for function in (holder[name] for holder in holders if inspect.isroutine(holder.get(name))):
                with suppress(OSError, TypeError):
                    called = inspect.unwrap(getattr(function, "__func__", function))
                    if called is not own and inspect.getsourcefile(called) == inspect.getsourcefile(own):
                        lines, start = inspect.getsourcelines(called)
                        yield f"{inspect.getsourcefile(called)}:{start}", _without_docstring("".join(lines), called)

    def has(self, option: str) -> bool:
        return option in self.options

    @property
    def counts(self) -> bool:
        return "count" in self.options

    def default(self, option: str) -> Any:
        return inspect.signature(self.function).parameters[self.options[option]].default

    def offset(self, data: Mapping[str, Array]) -> int:
        """What is added to the number of new tokens to have its count."""
        prefix = 1 if "src" in data or self.tells_of else next(iter(data.values())).shape[1]
        return prefix * self.total

    def ends(self, subject: TextModel) -> bool:
        """Whether an end token stops it: one that it is handed, that its settings name, or that a tokenizer has."""
        return (
            self.has("end") or any(self.end_settings(subject)) or bool(self.spelled and _READS_END.search(self.source))
        )

    def end_of(self, subject: TextModel) -> int | None:
        """The end token when none is handed in: the parameter's default is switched off, so that of the model's config,
        of the model, or a constant of its file, where the source names it."""
        return next((value for _, _, value in self.end_settings(subject)), None)

    def end_settings(self, subject: TextModel) -> Iterator[tuple[Any, Any, int]]:
        """Where an end token that its source names is kept: holder (a mapping or an object), its key, its value."""
        module = subject.module
        named = set(re.findall(r"\w*(?:eos|end|stop)\w*", self.source, re.IGNORECASE))
        scope = getattr(inspect.unwrap(self.function), "__globals__", {})
        for holder in [module, *_kept_by(module), scope]:
            items = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
            if isinstance(holder, KeptTuple):
                items = fields_of(holder.kept)
            for name in sorted(named & items.keys()):
                if type(items[name]) is int and re.fullmatch(MEANINGS["end"], name.lower()):
                    yield holder, name, items[name]

    def greedy_options(self) -> Iterator[tuple[str, Any]]:
        """The options that say that the best token is taken, with their values."""
        zero = r"temperature\s*(==|>|!=|<=|<)\s*\(?(0(\.0*)?(?![.\d])|1e-|eps)|(if|not) temperature\b|max\(temperature"
        own = self.options.get("temperature", "")
        if own and re.search(zero.replace("temperature", own), self.source):
            yield "temperature", 0.0
        if self.has("sample"):
            yield "sample", False
        if self.has("greedy"):
            yield "greedy", True
        if self.has("top_k"):
            yield "top_k", 1


@dataclass(frozen=True)
class KeptTuple:
    """A tuple with names that its owner keeps under a name: what sets one of its fields puts another tuple there."""

    owner: Any
    name: str

    @property
    def kept(self) -> Any:
        return getattr(self.owner.kept if isinstance(self.owner, KeptTuple) else self.owner, self.name)

    def put(self, name: str, value: Any) -> None:
        changed = self.kept._replace(**{name: value})
        if isinstance(self.owner, KeptTuple):
            self.owner.put(self.name, changed)
        else:
            object.__setattr__(self.owner, self.name, changed)


def _kept_by(module: nn.Module) -> Iterator[Any]:
    """The configs that a model keeps, and those that stand in them."""
    for config in configs_of(module):
        outer = (
            next(KeptTuple(module, n) for n, v in vars(module).items() if v is config) if is_tuple(config) else config
        )
        yield outer
        for name, part in fields_of(config).items():
            if is_tuple(part) and not isinstance(config, Mapping):
                yield KeptTuple(outer, name)
            elif is_config(part) and not isinstance(part, type) and not is_tuple(part):
                yield part


def _without_docstring(source: str, function: Any) -> str:
    said = (function.__doc__ or "").strip()
    return source.replace(said, "\n" * said.count("\n"), 1) if said else source


def _class_of(function: Any) -> type:
    """The class of its file in which a method stands; `object` for a function, or one that is not found."""
    outer = getattr(function, "__qualname__", "").rpartition(".")[0]
    found = getattr(function, "__globals__", {}).get(outer)
    return found if isinstance(found, type) else object

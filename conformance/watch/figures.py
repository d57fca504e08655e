"""Figures that a script's own functions give: spans of tags, means over classes, and what functions of a kind give.

A function is told by its name and by what it is given, taken out of its file with the imports and functions that stand
beside it, and called with small lists. What reads files, prints or trains is not called.
"""

from __future__ import annotations

import ast
import linecache
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import torch

from conformance.adapters.helpers.examining import examine
from conformance.adapters.inference.calls import tensors_in
from conformance.watch.lines import Source
from conformance.watch.stated import sources

_ACTS = re.compile(
    r"\b(open|print|input|exec|eval|subprocess|requests|urlopen|save|load\w*|write\w*|mkdir|backward|step|model|net)\b"
)
"""What a function that does more than compute says; it is not called."""
_WATCHED = "schedules-rise-in-warm-up-and-then-fall"
"""What is watched as it runs, and not asked by a call."""
_DOES_MORE = re.compile(r"\b(open|print|input|exec|eval|subprocess|requests|urlopen|save|write\w*|mkdir|backward)\b")
"""The same of functions of a kind, which may speak of steps and of models."""
_GIVEN = re.compile(r"(hyp|pred|cand|out|sys|guess|ours|got|decoded)\w*|hypotheses|y_?(hat|pred)|p|h", re.IGNORECASE)
_WANTED = re.compile(r"(ref|gold|target|truth|true|label|expected|actual|y_true|wanted)\w*|y|g|r|t", re.IGNORECASE)
_CLASSES = re.compile(r"(n|num|no)_?(of_?)?(classes|labels|cls|tags)|k|classes|labels", re.IGNORECASE)
_SPANS = re.compile(
    r"(\w*_)?(f1|prf\w*|score\w*|evaluate\w*|metrics?|entity\w*|span\w*|seqeval\w*)(_\w+)?", re.IGNORECASE
)
_UNLABELLED = re.compile(r"unlabell?ed|boundar|span_only|ignore_type|any_type|mention|detect", re.IGNORECASE)
_MACRO = re.compile(r"(\w*_)?(macro\w*|f1\w*)", re.IGNORECASE)
_OF_SPANS = re.compile(r"entit|spans?\b|chunk|[\"'][BI]-|[\"']-[\"']")
"""What a file says that compares spans of tags."""
_OF_CLASSES = re.compile(r"macro|\bfor\b")
"""What a function says that takes a mean over classes."""
_ERROR_RATE = re.compile(r"(\w*_)?([wc]er|(word|char(acter)?|token|phone(me)?)_error_rate)(_\w+)?", re.IGNORECASE)
_RMSE = re.compile(r"(\w*_)?(rmse|root_mean_squared?_error)(_\w+)?", re.IGNORECASE)
_WORDS = ["the", "small", "grey", "cat", "sat", "on", "a", "mat"]
_FORMS: tuple[Callable[[list[str]], Any], ...] = (
    lambda words: [words],
    lambda words: words,
    lambda words: [" ".join(words)],
    " ".join,
)
"""How functions take texts: several or one, as words or as they are written."""
_COUNT = 4
"""So many classes have labels."""


class Figure(NamedTuple):
    """What a function gives: its name, its line, whether it is right, what it gave and what is expected. sentence,
    mend: of one that is held to the claim of its kind."""

    name: str
    place: str
    right: bool
    got: str
    expected: str
    sentence: str = ""
    mend: str = ""


def kinds_of_spans(run: Any) -> Iterator[Figure]:
    """Functions that compare tags of spans: do spans of another kind, or of another text, count as found?"""
    gold = [["B-PER", "I-PER", "O"], ["O", "O", "B-PER"]]
    others = {
        "spans of another kind": [["B-LOC", "I-LOC", "O"], ["O", "O", "B-LOC"]],
        "the spans of the other text": [["O", "O", "B-PER"], ["B-PER", "I-PER", "O"]],
    }
    for name, place, function, given, wanted, rest in _functions(run, _SPANS, in_file=_OF_SPANS):
        if rest or _UNLABELLED.search(name):
            continue
        with suppress(Exception):  # it takes another form
            right = _numbers(function(**{given: gold, wanted: gold}))
            whole = [at for at, one in enumerate(right) if isinstance(one, float) and one in (1.0, 100.0)]
            for what, other in others.items():
                told = _numbers(function(**{given: other, wanted: gold}))
                found = [at for at in whole if at < len(told) and told[at] == right[at]]
                if whole and told:
                    yield Figure(name, place, not found, f"{right[whole[0]]:.3g} for {what}", "0")


def means_over_classes(run: Any) -> Iterator[Figure]:
    """Functions of the macro F1: does a class that is never found count?"""
    labels, guesses = [*range(_COUNT)] * 5, [0] * (5 * _COUNT)
    wanted_value, of_hits = 0.4 / _COUNT, 0.4
    for name, place, function, given, wanted, rest in _functions(run, _MACRO, itself=_OF_CLASSES):
        for make in (list, torch.tensor):
            more = dict.fromkeys(rest, _COUNT)
            with suppress(Exception):  # it takes another form
                told = _numbers(function(**{given: make(guesses), wanted: make(labels)}, **more))
                if any(math.isclose(one, wanted_value, abs_tol=1e-3) for one in told):
                    yield Figure(name, place, True, "", "")
                elif any(math.isclose(one, of_hits, abs_tol=1e-3) for one in told):
                    yield Figure(name, place, False, f"{of_hits:.3g}", f"{wanted_value:.3g}")
                break


def shares_of_errors(run: Any) -> Iterator[Figure]:
    """Functions of word or character error rates: are the errors divided by what the reference holds?"""
    for name, place, function, given, wanted, rest in _functions(run, _ERROR_RATE):
        if rest:
            continue
        for form in _FORMS:
            with suppress(Exception):  # it takes another form
                changed = [f"no{word}" for word in _WORDS]
                same, half, others, twice = (
                    _number(function(**{given: form(words), wanted: form(_WORDS)}))
                    for words in (_WORDS, _WORDS[:4] + changed[4:], changed, _WORDS * 2)
                )
                if same == 0 < half < others and twice > 0:  # words are counted, or letters
                    right = not math.isclose(twice, others / 2, rel_tol=0.1)
                    yield Figure(name, place, right, f"{twice:.3g}", f"{others:.3g}")
                    break


def roots_of_errors(run: Any) -> Iterator[Figure]:
    """Functions of the root of the mean squared error: is the root taken, and of the mean over all?"""
    for name, place, function, given, wanted, rest in _functions(run, _RMSE):
        guesses, targets = torch.zeros(2, 3), torch.tensor([[1.0] * 3, [7.0] * 3])
        for make in (torch.Tensor.clone, torch.Tensor.numpy):
            with suppress(Exception):  # it takes another form
                told = [] if rest else _numbers(function(**{given: make(guesses), wanted: make(targets)}))
                if len(told) == 1 and any(math.isclose(told[0], one, rel_tol=1e-3) for one in (5, 4, 25)):
                    yield Figure(name, place, math.isclose(told[0], 5, rel_tol=1e-3), f"{told[0]:.3g}", "5")
                    break


def of_their_kind(run: Any) -> Iterator[Figure]:
    """Functions that prepare batches, decode or measure: does each keep the claim of its kind, as beside a model?"""
    for source in sources(run):
        nodes = [node for node in source.tree.body if isinstance(node, ast.FunctionDef)]
        texts = {node.name: ast.unparse(node) for node in nodes}
        for node in nodes:
            function = _loaded(source).get(node.name)
            if callable(function) and not any(map(_DOES_MORE.search, _with_what_it_calls(node.name, texts))):
                for one in (wrong for wrong in examine([function]).wrong if wrong.claim != _WATCHED):
                    trouble, edit = one.trouble, one.edit
                    at = f"{source.place(node).rpartition(':')[0]}:{edit.line if edit else node.lineno}"
                    got, expected = str(trouble.got), str(trouble.expected)
                    said = edit.text if edit else ""
                    yield Figure(node.name, at, not trouble.certain, got, expected, trouble.sentence, said)


def wrong(rule: Callable[[Any], Iterator[Figure]]) -> Callable[[Any], list[Figure]]:
    """What a rule finds wrong, once for each function."""
    return lambda run: list({one.place: one for one in rule(run) if not one.right}.values())


# --- taking functions out of their files ----------------------------------------------------------


_ANYTHING = re.compile("")


def _functions(
    run: Any, named: re.Pattern[str], in_file: re.Pattern[str] = _ANYTHING, itself: re.Pattern[str] = _ANYTHING
) -> Iterator[tuple[str, str, Callable[..., Any], str, str, list[str]]]:
    """name, line, function, its parameters of what was given and of what was wanted, and the numbers of classes that it
    cannot do without. in_file, itself: what its file and its own text say."""
    for source in sources(run):
        texts = {one.name: ast.unparse(one) for one in source.tree.body if isinstance(one, ast.FunctionDef)}
        for node in source.tree.body:
            if not isinstance(node, ast.FunctionDef) or not named.fullmatch(node.name):
                continue
            if any(map(_ACTS.search, _with_what_it_calls(node.name, texts))) or not itself.search(texts[node.name]):
                continue
            if not in_file.search(ast.unparse(source.tree)):
                continue
            needed = _needed(node)
            rest = [name for name in needed[2:] if _CLASSES.fullmatch(name)]
            sides = _sides(needed[:2])
            if sides is None or len(rest) != len(needed[2:]):
                continue
            function = _loaded(source).get(node.name)
            if callable(function):
                yield node.name, source.place(node), function, *sides, rest


def _with_what_it_calls(name: str, texts: Mapping[str, str]) -> list[str]:
    """The texts of a function, and of those of its file that it calls, in turn."""
    reached = [name]
    for one in reached:
        reached += [other for other in texts if other not in reached and re.search(rf"\b{other}\(", texts[one])]
    return [texts[one] for one in reached]


def _needed(node: ast.FunctionDef) -> list[str]:
    """The parameters without a default."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return names[: len(names) - len(node.args.defaults)]


def _sides(names: list[str]) -> tuple[str, str] | None:
    """Which of two parameters is what was given, and which what was wanted."""
    for given, wanted in (names, names[::-1]) if len(names) == 2 else ():
        if _GIVEN.fullmatch(given) and _WANTED.fullmatch(wanted):
            return given, wanted
    return None


@cache
def _loaded(source: Source) -> dict[str, Any]:
    """The imports, functions and constants of a file, without the statements that do something. What it imports was
    imported in the run."""
    lines = linecache.getlines(source.file)
    # Without a time of change they stay known when the file is gone.
    linecache.cache[source.file] = (sum(map(len, lines)), None, lines, source.file)
    found: dict[str, Any] = {"__name__": "taken_out"}
    for node in source.tree.body:
        is_constant = isinstance(node, ast.Assign) and not any(isinstance(one, ast.Call) for one in ast.walk(node))
        if is_constant or isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef):
            with suppress(Exception):  # what it needs is not here
                exec(compile(ast.Module([node], []), source.file, "exec", dont_inherit=True), found)
    return found


def _number(made: Any) -> float:
    """The first number of a result."""
    return float(_numbers(made)[0])


def _numbers(made: Any) -> list[float | int]:
    """The numbers of a result, in its order."""
    if isinstance(made, int | float):
        return [made]
    if isinstance(made, dict):
        return [number for value in made.values() for number in _numbers(value)]
    if isinstance(made, list | tuple):
        return [number for value in made for number in _numbers(value)]
    return [float(one) for one in tensors_in(made) if one.numel() == 1]

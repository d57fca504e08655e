"""Slips of where rows end and where their places begin, that the text of a file shows by itself: ends of paths that are
read in the padding, ends that are looked for as the largest id, places that read the row of padding, places that
are counted from the edge where padding stands, and padding behind texts that are to be written on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import END, Found, Slip, all_given, assigned, called, calls, functions, unparse, walk

_ENDS_OF_PATHS = re.compile(r"self\.(\w+_)?(end|stop|final|last)(_\w+)?s?", re.IGNORECASE)


def ends_in_the_padding(tree: ast.AST) -> Found:
    """Where the score of a path's end is that of the last column, and the function is told which places are real."""
    for function in functions(tree):
        given = [one.arg for one in function.args.args]
        if not any(re.search(r"mask|length|lens\b", name) for name in given):
            continue
        for node in walk(function):
            if isinstance(node, ast.Subscript) and _ENDS_OF_PATHS.fullmatch(unparse(node.value)):
                column = re.fullmatch(r"(\w+)\[(:, -1|-1)\]", unparse(node.slice))
                if column and column[1] in given and not re.search(r"mask|length", column[1]):
                    yield unparse(node), node


_OF_WORDS = re.compile(r"(\w+_)?(ids|tokens|text|captions?|words|input)(_ids)?", re.IGNORECASE)


def ends_as_the_largest(tree: ast.AST) -> Found:
    """Where the place of the end is that of the largest id of a text, and the file says that the end is another one. A
    file that knows both ways chooses by an option."""
    if re.search(r"== (self\.|cfg\.|config\.)?\w*(eos|eot|end)_\w+|['\"]argmax['\"]", unparse(tree)):
        return
    numbers = {name: value for name, value in _numbers_given(tree) if type(value) is int}
    ends = [value for name, value in numbers.items() if END.fullmatch(name)]
    words = [value for name, value in numbers.items() if re.fullmatch(r"(\w+_)?vocab(_?size)?", name, re.IGNORECASE)]
    if not ends or not words or max(ends) >= max(words) - 1:
        return
    for function in functions(tree):
        given = [one.arg for one in function.args.args]
        for call in calls(function):
            owner = re.fullmatch(r"(\w+)\.argmax", unparse(call.func))
            if owner and owner[1] in given and _OF_WORDS.fullmatch(owner[1]):
                yield unparse(call), call


def _numbers_given(tree: ast.AST) -> Iterator[tuple[str, object]]:
    """The constants that a file, its classes and its parameters have by name."""
    for node in walk(tree):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        ):
            yield node.target.id, node.value.value
        elif isinstance(node, ast.FunctionDef):
            late = node.args.args[len(node.args.args) - len(node.args.defaults) :]
            for one, value in zip(late, node.args.defaults, strict=True):
                if isinstance(value, ast.Constant):
                    yield one.arg, value.value
        for to, value in assigned(node):
            if isinstance(to, ast.Name) and isinstance(value, ast.Constant):
                yield to.id, value.value


def places_of_padding(tree: ast.AST) -> Found:
    """Where places are counted from a mask, so that the first real one is 1, and the table that is read there keeps a
    row for padding that is not 0: the first words read this row, or padding a learned one."""
    numbers = dict(_numbers_given(tree))
    for cls in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        kept: dict[str, int] = {}
        for node in walk(cls):
            for to, value in assigned(node):
                row = next((w.value for w in getattr(value, "keywords", []) if w.arg == "padding_idx"), None)
                if called(value) == "Embedding" and row is not None and re.search(r"pos|place", unparse(to)):
                    name = unparse(row).rpartition(".")[2]
                    number = row.value if isinstance(row, ast.Constant) else numbers.get(name)
                    kept |= {unparse(to): number} if type(number) is int else {}
        for function in functions(cls):
            given = {unparse(to): value for _, to, value in all_given(function)}
            for call in calls(function):
                table = kept.get(unparse(call.func), 0)
                places = given.get(unparse(call.args[0]), call.args[0]) if call.args else None
                if table and places is not None and "cumsum" in unparse(places) and "+" not in unparse(places):
                    yield unparse(places), places


def places_from_the_edge(tree: ast.AST) -> Found:
    """Where rows are filled up in front, and the numbers of their places are those of the columns."""
    for function in functions(tree):
        given = [pair for node in walk(function) for pair in assigned(node)]
        in_front = any(
            isinstance(to, ast.Subscript) and re.search(r"\[\w+, (\w+ - len\(\w+\)|-len\(\w+\)):\]", unparse(to))
            for to, _ in given
        )
        for to, value in given if in_front else ():
            counts = re.search(r"\barange\(", unparse(value)) and not re.search(r" [-+] |cumsum|mask", unparse(value))
            if counts and re.fullmatch(r"pos(ition)?s?(_ids)?", unparse(to)):
                yield f"{unparse(to)} = {unparse(value)}", value
                break


_TWO_SIDES = re.compile(r"Seq2Seq|T5|Bart|Marian|EncoderDecoder|Pegasus")


def padded_behind_in_writing(tree: ast.AST) -> Found:
    """Where texts are filled up by a function that does it behind them unless it is told otherwise, it is not told,
    and generate gets them."""
    if _TWO_SIDES.search(unparse(tree)):
        return
    makers = {function.name for function in functions(tree) if _fills_behind_by_default(function)}
    for function in functions(tree):
        writes = [one for one in calls(function) if called(one) == "generate" and one.keywords]
        for call in calls(function) if writes and function.name not in makers else ():
            told = [*call.args, *(word.value for word in call.keywords)]
            sides = [one.value for one in told if isinstance(one, ast.Constant)]
            if called(call) in makers and "left" not in sides and True not in sides:
                yield unparse(call), call
                break


def _fills_behind_by_default(function: ast.FunctionDef) -> bool:
    late = [*function.args.args[len(function.args.args) - len(function.args.defaults) :], *function.args.kwonlyargs]
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    given = {one.arg: value.value for one, value in zip(late, defaults, strict=True) if isinstance(value, ast.Constant)}
    return any(
        (re.search(r"side", name) and value == "right") or (name in ("left", "left_pad", "pad_left") and value is False)
        for name, value in given.items()
    )


PATHS_END_IN_PADDING = Slip(
    rule=ends_in_the_padding,
    asked="where a path ends whose score counts",
    expected="at the last real place of its row",
    got="in the last column, which is padding in shorter rows",
    sentence="The score of a path's end is read in the last column, though a mask says where each row ends: of shorter "
    "rows it is the score of padding.",
    mend="tags.gather(1, lengths[:, None] - 1)",
    nothing="no end of a path was seen that is read in the padding",
)
LARGEST_FOR_END = Slip(
    rule=ends_as_the_largest,
    asked="where a text's end is looked for",
    expected="where its id is that of the end",
    got="at the largest id, which is that of some word",
    sentence="The end of a text is looked for at its largest id, and the end has a smaller one than the words: the "
    "text is read out at some word.",
    mend="(ids == end_id).int().argmax(-1)",
    nothing="no end of a text was seen that is looked for as its largest id",
)
PLACES_OF_PADDING = Slip(
    rule=places_of_padding,
    asked="which rows of a table the places of real words read",
    expected="those behind the row of padding",
    got="places that are counted from 1, without the number of that row",
    sentence="Places are counted from 1 and read a table whose row of padding is not 0: a word reads the row that "
    "never learns, and padding one that does.",
    mend="mask.cumsum(1) * mask + padding_idx",
    nothing="no places were seen that read the row of padding",
)
PLACES_FROM_THE_EDGE = Slip(
    rule=places_from_the_edge,
    asked="from where places are counted in rows that are filled up in front",
    expected="from the first real one",
    got="from the first column, which is padding",
    sentence="Rows are filled up in front, and their places are counted from the edge: one text gets other places in "
    "another batch.",
    mend="(mask.cumsum(1) - 1).clamp(min=0)",
    nothing="no places were seen that are counted from padding in front",
)
PADDED_BEHIND = Slip(
    rule=padded_behind_in_writing,
    asked="on which side texts are filled up that are to be written on",
    expected="in front of them",
    got="behind them, as is done by default",
    sentence="Texts are filled up behind and handed to generate: shorter ones are written on behind their padding.",
    mend='say "left"',
    nothing="no texts were seen that are filled up behind and written on",
)

"""Slips of labels and of what a model's own words do to the next ones, that the text of a file shows by itself: labels
that are read where the mask was written already, ends that are taken out with the padding, penalties that favour,
and prompts that are taught where replies alone are counted."""

from __future__ import annotations

import ast
import re

from conformance.slips.slip import END, PAD, Found, Slip, assigned, blocks, functions, unparse, walk

# --- labels after the mask ------------------------------------------------------------------------

_HIDES = re.compile(r"mask", re.IGNORECASE)
_LABELS = re.compile(r"(label|target|tgt|gold)s?$", re.IGNORECASE)


def labels_read_after_masking(tree: ast.AST) -> Found:
    """Where a parameter gets a second name, its places are written by that name with a sign that hides words, and
    labels are then read by the first name: both are one tensor."""
    for function in functions(tree):
        handed = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
        for block in blocks(function):
            for at, statement in enumerate(block):
                for to, given in assigned(statement):
                    if not (isinstance(to, ast.Name) and isinstance(given, ast.Name) and given.id in handed):
                        continue
                    written = _hidden_by(to.id, block[at + 1 :])
                    if written and _labels_of(given.id, block[at + 1 :], written):
                        yield unparse(statement), statement


def _hidden_by(name: str, block: list[ast.stmt]) -> int:
    """The line where places of a name are given a sign that hides; 0 where none are."""
    for statement in block:
        for to, given in assigned(statement):
            if isinstance(to, ast.Subscript) and unparse(to.value) == name and _HIDES.search(unparse(given)):
                return statement.lineno
    return 0


def _labels_of(name: str, block: list[ast.stmt], behind: int) -> bool:
    """Whether labels are made of a name behind a line, where it holds what it held before."""
    for statement in block:
        for to, given in assigned(statement):
            if unparse(to) == name:
                return False
            reads = any(isinstance(one, ast.Name) and one.id == name for one in walk(given))
            if statement.lineno > behind and _LABELS.search(unparse(to)) and reads:
                return True
    return False


# --- ends that are padding ------------------------------------------------------------------------


def ends_taken_out_with_padding(tree: ast.AST) -> Found:
    """Where labels that have the value of padding are left out, in a file that gives padding the value of the sign of
    the end, and puts that sign behind texts."""
    shared = _shared_pads(tree)
    ends = [one for one in walk(tree) if isinstance(one, ast.List) and any(END.match(_last(e)) for e in one.elts)]
    if not shared or not ends:
        return
    for node in walk(tree):
        for to, given in assigned(node):
            if not isinstance(to, ast.Subscript) or not _LABELS.search(unparse(to.value)):
                continue
            asked = to.slice
            if not isinstance(asked, ast.Compare) or not isinstance(asked.ops[0], ast.Eq):
                continue
            is_left_out = unparse(given) == "-100" or "ignore" in unparse(given).lower()
            if is_left_out and _last(asked.comparators[0]) in shared:
                yield unparse(node), node


def _last(node: ast.AST) -> str:
    """A name without its owner: ``eos_id`` of ``cfg.eos_id``."""
    return unparse(node).rpartition(".")[2]


def _shared_pads(tree: ast.AST) -> set[str]:
    """The names of padding whose value is that of the sign of the end: the same number as a constant or a default, or
    given one from the other."""
    numbers: dict[str, object] = {}
    found: set[str] = set()
    for node in walk(tree):
        given = [(node.target, node.value)] if isinstance(node, ast.AnnAssign) and node.value else assigned(node)
        for to, value in given:
            name = _last(to)
            if isinstance(value, ast.Constant) and isinstance(value.value, int):
                numbers.setdefault(name, value.value)
            elif PAD.match(name) and END.match(_last(value)):
                found.add(name)
    ends = {value for name, value in numbers.items() if END.match(name)}
    return found | {name for name, value in numbers.items() if PAD.match(name) and value in ends}


# --- penalties ------------------------------------------------------------------------------------

_PENALTY = re.compile(r"(\w+\.)*(rep(etition)?_)?penalty", re.IGNORECASE)
_LOGITS = re.compile(r"\w*logits?\b|scores?\b", re.IGNORECASE)
_ASKS_THE_SIGN = re.compile(r"(logits?|scores?)\w*(\[.*?\])? [<>]=? 0|\.sign\(|clamp|softmax\(|\* \(?\w*penalty", re.I)


def penalties_that_favour(tree: ast.AST) -> Found:
    """Where logits are divided by a penalty for repetition, whatever their sign: one below nought rises by it."""
    for function in functions(tree):
        if _ASKS_THE_SIGN.search(unparse(function)):
            continue
        for node in walk(function):
            pair: tuple[ast.expr, ast.expr] | None = None
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
                pair = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            if pair and _LOGITS.match(unparse(pair[0])) and _PENALTY.fullmatch(unparse(pair[1])):
                yield unparse(node), node


_ASKS = re.compile(r"(user_?)?(prompt|question|instruction|query)s?(_\w+)?", re.IGNORECASE)
_ANSWERS = re.compile(r"repl(y|ies)|answers?|responses?|completions?|targets?", re.IGNORECASE)
_COUNTED = re.compile(r"!= \w*(-100|ignore\w*)", re.IGNORECASE)


def prompts_taught(tree: ast.AST) -> Found:
    """Where an example of a prompt and a reply has all of its tokens as labels, and another function of the file takes
    the labels that are not left out for those of the reply."""
    counts = any(
        _COUNTED.search(unparse(one)) and _ANSWERS.search(f"{one.name} {ast.get_docstring(one) or ''}")
        for one in functions(tree)
    )
    for function in functions(tree) if counts else ():
        given = [one.arg for one in function.args.args]
        if len(given) < 2 or not _ASKS.fullmatch(given[0]) or not _ANSWERS.fullmatch(given[1]):
            continue
        for node in (one for one in walk(function) if isinstance(one, ast.Dict)):
            keys = [key.value if isinstance(key, ast.Constant) else "" for key in node.keys]
            parts = dict(zip(map(str, keys), map(unparse, node.values), strict=True))
            if parts.get("labels") and parts.get("labels") == parts.get("input_ids"):
                yield f"labels: {parts['labels']}", node


AFTER_MASKING = Slip(
    rule=labels_read_after_masking,
    asked="the words that labels are read from",
    expected="as they were before any was hidden",
    got="hidden already",
    sentence="The mask is written into the words that the labels are read from: both names are one tensor.",
    mend="hidden = ids.clone()",
    nothing="no label was seen that is read behind the mask",
)
ENDS_LEFT_OUT = Slip(
    rule=ends_taken_out_with_padding,
    asked="labels that are left out by the value of padding",
    expected="padding alone",
    got="the sign of the end, too, which has that value",
    sentence="Padding and the sign of the end are one number, and labels of it are left out: no end is taught.",
    mend="leave out what the attention mask hides: labels[attention_mask == 0] = -100",
    nothing="no label was seen that is left out by a value that the sign of the end has, too",
)
FAVOURS = Slip(
    rule=penalties_that_favour,
    asked="logits of words that were written",
    expected="lower by the penalty, also where they are below 0",
    got="divided by it, whatever their sign",
    sentence="The penalty divides logits below 0, too: these words get likelier for having been written.",
    mend="torch.where(logits > 0, logits / penalty, logits * penalty)",
    nothing="no logit was seen that is divided by a penalty whatever its sign",
)
PROMPTS = Slip(
    rule=prompts_taught,
    asked="which tokens of a prompt and its reply are labels",
    expected="those of the reply",
    got="all of them",
    sentence="All tokens of a prompt and its reply are labels, though the labels that count are taken for those of the "
    "reply: what is learned and measured is mostly the prompt.",
    mend="[-100] * len(prompt) + reply",
    nothing="no prompt was seen that is taught where replies alone are counted",
)

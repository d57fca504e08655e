"""Slips of beam searches and of drafts, that the text of a file shows by itself: the score so far, which goes into no
candidate, or into nothing of what is ranked; beams that begin as copies of each other; scores that grow with their
length; what is drawn where the word of a draft was refused."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import (
    Found,
    Slip,
    all_given,
    assigned,
    blocks,
    called,
    calls,
    functions,
    reads,
    unparse,
    walk,
)

_SCORES = re.compile(r"(log_?)?(scores?|probs?|p|lp|logp)|total|(beam_|cum_?|prev_)?(score|log_?prob)", re.IGNORECASE)


def scores_forgotten(tree: ast.AST) -> Found:
    """Where the candidates of a beam search are made of (score, tokens), and the score so far goes into none; or where
    it keeps a tensor of scores that nothing of what it ranks is computed from."""
    for function in functions(tree):
        if "beam" not in function.name.lower():
            continue
        yield from _ranked_without_scores(function)
        yield from _ranked_without_pairs(function)
        for node in walk(function):
            if not isinstance(node, ast.ListComp | ast.GeneratorExp) or not isinstance(node.elt, ast.Tuple):
                continue
            taken = [one for loop in node.generators for one in walk(loop.target) if isinstance(one, ast.Tuple)]
            pairs = [one.elts for one in taken if len(one.elts) == 2 and all(isinstance(x, ast.Name) for x in one.elts)]
            read = [node.elt, *(part for loop in node.generators for part in (loop.iter, *loop.ifs))]
            used = {one.id for part in read for one in walk(part) if isinstance(one, ast.Name)}
            for score, tokens in pairs:
                assert isinstance(score, ast.Name)
                assert isinstance(tokens, ast.Name)
                grows = any(isinstance(x, ast.BinOp) and _reads_name(x.left, tokens.id) for x in node.elt.elts)
                if _SCORES.fullmatch(score.id) and score.id not in used and grows:
                    yield f"{unparse(node.elt)} without {score.id}", node


def _statements(function: ast.FunctionDef) -> Iterator[tuple[list[ast.stmt], int, ast.stmt]]:
    """Each statement of a function, with the block that it is in and its place there."""
    return ((block, at, one) for block in blocks(function) for at, one in enumerate(block))


def _ranked_without_scores(function: ast.FunctionDef) -> Found:
    """Of each loop the call of topk, where a name of scores that begins before the loop and takes up what is ranked is
    not among what that is computed from."""
    for block, at, loop in _statements(function):
        begun = {one.id for before in block[:at] for one in _written_in(before) if _SCORES.fullmatch(one.id)}
        if not isinstance(loop, ast.For | ast.While) or not begun:
            continue
        for node in (one for one in walk(loop) if isinstance(one, ast.Call) and called(one) == "topk"):
            of = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
            if unparse(of) == "torch":
                of = node.args[0]
            kept = begun & {one.id for one in _written_in(loop)}
            if kept and not kept & _comes_from(loop, _names(of), node):
                yield f"{unparse(node)} without {min(kept)}", node


def _ranked_without_pairs(function: ast.FunctionDef) -> Found:
    """The call of topk in a loop over steps, where a list of (tokens, 0.0) begins before it, and no loop over the list
    reads the score."""
    for block, at, loop in _statements(function):
        ranking = next((one for one in walk(loop) if isinstance(one, ast.Call) and called(one) == "topk"), None)
        if not isinstance(loop, ast.For | ast.While) or ranking is None:
            continue
        for to, given in (pair for before in block[:at] for pair in assigned(before)):
            first = given.elts[0] if isinstance(given, ast.List) and len(given.elts) == 1 else None
            places = [
                number
                for number, one in enumerate(first.elts if isinstance(first, ast.Tuple) else [])
                if isinstance(one, ast.Constant) and one.value == 0 and type(one.value) is float
            ]
            if len(places) == 1 and isinstance(to, ast.Name) and not _reads_place(loop, to.id, places[0]):
                yield f"{unparse(ranking)} without the scores of {to.id}", ranking


def _reads_place(loop: ast.AST, name: str, place: int) -> bool:
    """Whether anything in a loop reads the number at a place of the tuples in a list."""
    if re.search(rf"\[{place}\]|\bsorted\(|\bmax\(|\.sort\(", unparse(loop)):
        return True
    for node in walk(loop):
        if isinstance(node, ast.For | ast.comprehension) and name in unparse(node.iter):
            targets = [one for one in walk(node.target) if isinstance(one, ast.Tuple)]
            if not targets or any(
                not unparse(one.elts[place]).startswith("_") for one in targets if place < len(one.elts)
            ):
                return True
    return False


def _written_in(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def _comes_from(loop: ast.AST, names: set[str], ranking: ast.Call) -> set[str]:
    """The names that these are computed from within a loop, but by the ranking itself: by assignments, and by what is
    done in place, ``logs += scores``, ``logs.add_(scores)``."""
    steps = [pair for node in walk(loop) for pair in assigned(node)]
    steps += [(node.target, node.value) for node in walk(loop) if isinstance(node, ast.AugAssign)]
    steps += [(node.value, node.value) for node in walk(loop) if isinstance(node, ast.Expr)]
    steps = [(to, given) for to, given in steps if not any(one is ranking for one in walk(given))]
    found: set[str] = set()
    while names - found:
        found |= names
        names = {name for to, given in steps if _names(to) & found for name in _names(given)}
    return found


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in walk(node) if isinstance(one, ast.Name)}


def _reads_name(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name


# --- beams that begin as copies -------------------------------------------------------------------

_ONE_FIRST = re.compile(r"(==|>|!=) [01]\b|first|\bnot \w*(step|started)|1e\d|e9\b", re.IGNORECASE)
"""What a search says whose first step looks at one beam only."""


def begun_as_copies(tree: ast.AST) -> Found:
    """Where the scores of as many rows as a search has beams begin with nought, all rows begin with the same word, and
    each step ranks the words of all: the first step finds each continuation as often as there are beams."""
    for function in functions(tree):
        text = unparse(function)
        if "topk" not in text or _ONE_FIRST.search(text):
            continue
        for block, at, loop in _statements(function):
            if not isinstance(loop, ast.For | ast.While):
                continue
            before = "\n".join(map(unparse, block[:at]))
            ranked = next((one for one in walk(loop) if isinstance(one, ast.Call) and called(one) == "topk"), None)
            for to, given in (pair for one in block[:at] for pair in assigned(one)):
                rows = _zeros(given)
                if ranked is None or not rows or not isinstance(to, ast.Name) or not _SCORES.fullmatch(to.id):
                    continue
                is_changed = re.search(rf"\b{to.id}(\[|\.\w+_\()", before) or "topk" in before
                copied = re.search(rf"(full|expand|repeat|repeat_interleave)\(.*\b{rows}\b", before)
                adds = re.search(
                    rf"\b{to.id}(\.unsqueeze\(\S+\)|\[[^]]*None[^]]*\]|\.view\([^)]*\)) \+ ", unparse(loop)
                )
                if adds and copied and not is_changed and re.search(rf"\b{rows}\b", unparse(ranked)):
                    yield unparse(given), given


def _zeros(node: ast.expr) -> str:
    """The last size of a tensor of noughts, where that is a name: "width" of ``torch.zeros(batch, width)``."""
    if called(node) not in ("zeros", "new_zeros"):
        return ""
    assert isinstance(node, ast.Call)
    sizes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple) else node.args
    last = sizes[-1] if sizes else None
    if len(sizes) > 1 and isinstance(last, ast.Constant) and last.value == 1:
        last = sizes[-2]
    return last.id if isinstance(last, ast.Name) else ""


# --- scores and lengths ---------------------------------------------------------------------------

_PENALTY = re.compile(r"\w*(length|len|brevity)_?(penalty|norm\w*|factor)|lp", re.IGNORECASE)


_RANKS = re.compile(r"beam|hypothes|candidate|finish|log_?p|length_?penalty|\bdef \w*rank", re.IGNORECASE)
"""What is said where answers are ranked."""


def lengths_that_multiply(tree: ast.AST) -> Found:
    """Where a sum of logarithms of probabilities is multiplied by a power of its length."""
    powers = {one.name: _powers_of(one) for one in functions(tree) if _PENALTY.fullmatch(one.name)}
    for function in (one for one in functions(tree) if _RANKS.search(unparse(one))):
        for node in walk(function):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
                continue
            for score, by in ((node.left, node.right), (node.right, node.left)):
                grows = _grows(by) if isinstance(by, ast.BinOp) else powers.get(called(by), False)
                if grows and _SCORES.fullmatch(unparse(score).rpartition(".")[2]):
                    yield unparse(node), node


def _powers_of(function: ast.FunctionDef) -> bool:
    """Whether all that a function returns are powers of lengths that grow with them."""
    returned = [one.value for one in walk(function) if isinstance(one, ast.Return)]
    return bool(returned) and all(value is not None and _grows(value) for value in returned)


def _grows(value: ast.expr) -> bool:
    """``((5 + n) / 6) ** alpha``, ``len(tokens) ** 0.6``, and not ``n ** -alpha``."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Pow)):
        return False
    is_length = re.search(r"\blen\(|length|\bn\b|size|steps?\b|\bt\b", unparse(value.left))
    falls = isinstance(value.right, ast.UnaryOp) or "-" in unparse(value.right) or unparse(value.left)[:2] == "1 "
    return bool(is_length) and not falls


def rests_of_either_sign(tree: ast.AST) -> Found:
    """Where what is drawn after a draft was refused is the difference of two distributions without its sign."""
    for function in functions(tree):
        drawn = [call for call in calls(function) if called(call) == "multinomial"]
        for _, to, given in all_given(function):
            takes_off = re.search(r"\((\w+) - (\w+)\)\.abs\(\)|\babs\((\w+) - (\w+)\)", unparse(given))
            if takes_off and isinstance(to, ast.Name) and any(reads(call, to.id) for call in drawn):
                yield f"{to.id} = {unparse(given)}", given


def scores_of_other_beams(tree: ast.AST) -> Found:
    """Where beams and their scores are picked side by side, and not by the same places."""
    for function in functions(tree):
        for node in walk(function):
            picked = {}
            for to, given in assigned(node):
                if isinstance(given, ast.Subscript):
                    picked[unparse(to)] = given
            scores = [name for name in picked if re.search(r"score|logp|total", name)]
            beams = [name for name in picked if re.search(r"beam|hyp|seq|ids|tokens", name)]
            if len(picked) == 2 and len(scores) == len(beams) == 1 and scores != beams:
                ours, theirs = (unparse(picked[one[0]].slice) for one in (beams, scores))
                if ours.isidentifier() and theirs.startswith(":"):
                    yield unparse(node), node


LENGTHS = Slip(
    rule=lengths_that_multiply,
    asked="what a sum of logarithms of probabilities does with its length",
    expected="divides by a power of it",
    got="multiplies by it",
    sentence="A sum of logarithms, which is below zero, is multiplied by its length: the longer an answer, the worse.",
    mend="score / length_penalty(n)",
    nothing="no sum of logarithms was seen that is multiplied by its length",
)
COPIES = Slip(
    rule=begun_as_copies,
    asked="the scores with which the beams of a search begin",
    expected="nought for one, and minus infinity for its copies",
    got="nought for all",
    sentence="All beams begin as equally good copies: the best continuations are kept as often as there are beams.",
    mend="scores[..., 1:] = float('-inf')",
    nothing="no beams were seen that begin as copies",
)
SCORES = Slip(
    rule=scores_forgotten,
    asked="the score of a beam that goes on",
    expected="its score so far and the next word's",
    got="the next word's alone",
    sentence="The score so far goes into no candidate: beams are ranked by their last word.",
    mend="(score + log_prob, tokens + [word])",
    nothing="no beams were seen whose score so far is forgotten",
)
EITHER_SIGN = Slip(
    rule=rests_of_either_sign,
    asked="from what is drawn where the word of a draft was refused",
    expected="what the model gives more of than the draft",
    got="the difference of both, whatever its sign",
    sentence="Where a draft is refused, words are drawn by the difference without its sign: those come back of which "
    "the draft has too much, and what is written does not follow the model.",
    mend="(p - q).clamp(min=0)",
    nothing="no rest of a draft was seen that keeps what the draft has too much of",
)
OTHER_BEAMS = Slip(
    rule=scores_of_other_beams,
    asked="by which places beams and their scores are picked",
    expected="by the same ones",
    got="beams by a list of places, scores from the front",
    sentence="Beams are picked by a list and their scores from the front: where one has ended, the others get scores "
    "that are not theirs.",
    mend="beams, scores = grown[alive], top[alive]",
    nothing="no beams were seen that get the scores of others",
)

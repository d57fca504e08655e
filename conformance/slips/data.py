"""Slips of what goes into a model and what is made of its answers, that the text of a file shows by itself: ends that
are cut off, windows that hold their target, levels turned round, softmaxes taken twice, partners of other pairs, counts
in another order, masks that stay behind, labels that are not moved on, ends that are never taught, weekdays of hours,
and rows that lose their newest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from conformance.slips.slip import Found, Slip, assigned, blocks, called, functions, unparse, walk

_END = re.compile(
    r"(\w+\.)*(\w+_)?(eos|end|stop|eot|eod)(_(id|idx|token|token_id|tok|index))?|['\"]<(/s|eos|end|eot)>['\"]", re.I
)


_PAST = re.compile(r"(\w+_)?(past|hist(ory)?|context|lookback|seen|enc(oder)?_in(put)?)(_\w+)?", re.IGNORECASE)


_FUTURE = re.compile(r"(\w+_)?(future|horizon|targets?|ahead|label)(_\w+)?", re.IGNORECASE)


_ANSWERS = re.compile(r"(y_?)?(pred\w*|hat|out(put)?s?|forecasts?|y_?hat|yhat|quantile_preds?)", re.IGNORECASE)


_TRUTH = re.compile(r"targets?|tgt|y|y_?true|true|truth|labels?|actuals?|observed|future", re.IGNORECASE)


_OF_SOFTMAX = ("softmax", "log_softmax", "cross_entropy")


# --- ends -----------------------------------------------------------------------------------------


def end_cut_off(tree: ast.AST) -> Found:
    """Where a list is put together with the sign of the end behind it, and then cut to a length: of long texts the end
    is lost. A text that goes on behind the cut has no end there: it is one where the file writes answers or titles, or
    has two sides."""
    if not any(_ENDS_BY_ITSELF.search(name) for name in _names(tree)):
        return
    of_documents = {one for node in walk(tree) if _goes_over_documents(node) for one in walk(node)}
    for node in walk(tree):
        if isinstance(node, ast.Subscript) and _is_beginning(node) and _ends(node.value) and node not in of_documents:
            yield unparse(node), node
    for function in functions(tree):
        for block in blocks(function):
            for statement, after in pairwise(block):
                made = [unparse(to) for to, given in assigned(statement) if _ends(given)]
                for _, given in assigned(after) if after not in of_documents else ():
                    if isinstance(given, ast.Subscript) and _is_beginning(given) and unparse(given.value) in made:
                        yield unparse(after), after


_ENDS_BY_ITSELF = re.compile(
    r"^(src|source|tgt|target)(_|s?$)|_(src|tgt)$|translat|summar|answer|title|repl(y|ies)|respon|caption|question",
    re.IGNORECASE,
)
"""Names of texts that end by themselves, and of the two sides of what reads one text and writes another. An encoder is
no sign of that: many a language model is made of torch's."""


def _names(tree: ast.AST) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, ast.Name | ast.arg | ast.Attribute | ast.FunctionDef | ast.ClassDef):
            yield next(str(getattr(node, key)) for key in ("id", "arg", "attr", "name") if hasattr(node, key))


def _goes_over_documents(node: ast.AST) -> bool:
    """Whether it is a loop over documents: of one that goes on behind a block, the end is rightly left out."""
    loops = node.generators if isinstance(node, ast.ListComp | ast.GeneratorExp) else [node]
    over = [unparse(one.iter) for one in loops if isinstance(one, ast.For | ast.comprehension)]
    return any(re.search(r"doc|article|passage|corpus|book|stor(y|ies)", text, re.IGNORECASE) for text in over)


def _is_beginning(node: ast.Subscript) -> bool:
    """Whether it is ``x[:n]`` for a name or attribute n: a fixed number may be a piece that is shown."""
    cut = node.slice
    if not isinstance(cut, ast.Slice) or cut.lower is not None or cut.step is not None:
        return False
    return isinstance(cut.upper, ast.Name | ast.Attribute)


def _ends(value: ast.expr) -> bool:
    """Whether it is a sum of lists whose last one is the sign of the end."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    last = value.right
    return isinstance(last, ast.List) and len(last.elts) == 1 and _END.fullmatch(unparse(last.elts[0])) is not None


# --- windows --------------------------------------------------------------------------------------


def windows_that_hold_their_target(tree: ast.AST) -> Found:
    """Where a window of the past ends behind the beginning of what is to be forecast."""
    for function in functions(tree):
        ends: dict[str, tuple[ast.expr, str]] = {}
        begins: dict[str, tuple[ast.expr, str, ast.AST]] = {}
        for node in walk(function):
            for to, given in assigned(node):
                cut = _bounds(given)
                if not isinstance(to, ast.Name) or cut is None:
                    continue
                if _PAST.fullmatch(to.id) and cut[1] is not None:
                    ends[to.id] = cut[1], _cut_from(given)
                elif _FUTURE.fullmatch(to.id) and cut[0] is not None:
                    begins[to.id] = cut[0], _cut_from(given), node
        for past, (end, series) in ends.items():
            for future, (begin, other, place) in begins.items():
                if series == other and (by := _behind(end, begin)) > 0:
                    yield f"{past} ends {by} behind the beginning of {future}", place


def _bounds(value: ast.expr) -> tuple[ast.expr | None, ast.expr | None] | None:
    """The first and the last bound of ``x[a:b]`` or ``slice(a, b)``."""
    if isinstance(value, ast.Subscript):
        last = value.slice.elts[-1] if isinstance(value.slice, ast.Tuple) and value.slice.elts else value.slice
        if isinstance(last, ast.Slice):
            return last.lower, last.upper
    if isinstance(value, ast.Call) and unparse(value.func) == "slice" and len(value.args) == 2:
        return value.args[0], value.args[1]
    return None


def _cut_from(value: ast.expr) -> str:
    """The series of which something is a cut; "" for a slice that is made by itself."""
    return unparse(value.value) if isinstance(value, ast.Subscript) else ""


def _behind(end: ast.expr, begin: ast.expr) -> int:
    """n where `end` is written as `begin` + n; 0 otherwise."""
    first, later = _with_number(begin), _with_number(end)
    return later[1] - first[1] if first[0] == later[0] else 0


def _with_number(value: ast.expr) -> tuple[str, int]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        number = value.right.value if isinstance(value.right, ast.Constant) else None
        if isinstance(number, int):
            return unparse(value.left), number if isinstance(value.op, ast.Add) else -number
    return unparse(value), 0


# --- levels ---------------------------------------------------------------------------------------


def levels_turned_round(tree: ast.AST) -> Found:
    """Where a quantile loss weighs the error of the answer minus the truth as if it were that of the truth minus the
    answer, or the other way round."""
    for function in functions(tree):
        signs = {unparse(to): _sign(given) for node in walk(function) for to, given in assigned(node)}
        for node in walk(function):
            if isinstance(node, ast.Call) and unparse(node.func).rpartition(".")[2] in ("max", "maximum"):
                error, wants = _weighed(node)
                if wants and signs.get(error, 0) == -wants:
                    yield unparse(node), node


def _sign(value: ast.expr) -> int:
    """1 for ``target - prediction``, -1 for ``prediction - target``, 0 for anything else."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return 0
    first, second = (_name(side) for side in (value.left, value.right))
    if _TRUTH.fullmatch(first) and _ANSWERS.fullmatch(second):
        return 1
    return -1 if _ANSWERS.fullmatch(first) and _TRUTH.fullmatch(second) else 0


def _name(value: ast.expr) -> str:
    """The name of a tensor that is indexed or given another shape."""
    while isinstance(value, ast.Subscript | ast.Call):
        inner = value.value if isinstance(value, ast.Subscript) else value.func
        value = inner.value if isinstance(inner, ast.Attribute) and isinstance(value, ast.Call) else inner
    return value.id if isinstance(value, ast.Name) else ""


def _weighed(call: ast.Call) -> tuple[str, int]:
    """(error, 1) of ``max(q * error, (q - 1) * error)``, (error, -1) of ``max((1 - q) * error, -q * error)``."""
    if len(call.args) != 2:
        return "", 0
    texts = sorted(unparse(one).replace(" ", "") for one in call.args)
    for sign, patterns in (
        (1, (r"\((\w[\w.\[\]:,]*)-1(?:\.0)?\)\*(\w+)", r"(\w[\w.\[\]:,]*)\*(\w+)")),
        (-1, (r"\(1(?:\.0)?-(\w[\w.\[\]:,]*)\)\*(\w+)", r"-(\w[\w.\[\]:,]*)\*(\w+)")),
    ):
        found = [re.fullmatch(pattern, text) for pattern, text in zip(patterns, texts, strict=True)]
        if all(found):
            (level, error), (other, same) = (one.groups() for one in found if one)
            if level == other and error == same:
                return error, sign
    return "", 0


# --- softmaxes ------------------------------------------------------------------------------------


def shares_taken_twice(tree: ast.AST) -> Found:
    """Where a model's forward ends with a softmax, and a method of its own takes another of what forward gives."""
    for cls in (node for node in walk(tree) if isinstance(node, ast.ClassDef)):
        methods = [one for one in cls.body if isinstance(one, ast.FunctionDef)]
        forward = next((one for one in methods if one.name == "forward"), None)
        given = [one.value for one in walk(forward) if isinstance(one, ast.Return)] if forward is not None else []
        if not given or not all(one is not None and called(one) == "softmax" for one in given):
            continue
        for method in methods:
            answers = {unparse(to) for node in walk(method) for to, value in assigned(node) if _is_answer(value)}
            for node in walk(method):
                if isinstance(node, ast.Call) and called(node) in _OF_SOFTMAX:
                    of = _given(node)
                    if of is not None and (_is_answer(of) or unparse(of) in answers):
                        yield unparse(node), node


def _is_answer(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and unparse(value.func) in ("self", "self.forward")


def _given(call: ast.Call) -> ast.expr | None:
    """What a softmax is taken of: ``x.softmax(-1)``, ``F.softmax(x, -1)``."""
    if isinstance(call.func, ast.Attribute) and not re.fullmatch(
        r"F|torch|nn\.functional|functional", unparse(call.func.value)
    ):
        return call.func.value
    return call.args[0] if call.args else None


# --- pairs ----------------------------------------------------------------------------------------

_SIDES = (("chosen", "rejected"), ("c", "r"), ("w", "l"), ("win", "lose"), ("winner", "loser"), ("pos", "neg"))
"""Names of the two sides of a preference, as parts of names."""


def partners_mixed(tree: ast.AST) -> Found:
    """Where of two models one is asked about one side of a preference and the other about its other side:
    ``policy_rejected - reference_chosen``."""
    for node in walk(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
            continue
        if not isinstance(node.left, ast.Name) or not isinstance(node.right, ast.Name):
            continue
        for sides in _SIDES:
            (first, one), (second, other) = (_side(name.id, sides) for name in (node.left, node.right))
            if one and other and one != other and first != second and _is_of_models(first, second):
                yield unparse(node), node


def _side(name: str, sides: tuple[str, str]) -> tuple[str, str]:
    """(the rest of a name, its side), as ("policy", "chosen"); the side is "" where it has none."""
    parts = name.lower().split("_")
    side = next((part for part in parts if part in sides), "")
    return "_".join(part for part in parts if part != side), side


def _is_of_models(first: str, second: str) -> bool:
    """Whether one of two names speaks of a reference, and the other of a model that learns."""
    ref = [re.search(r"ref|base|old|frozen|sft", name) is not None for name in (first, second)]
    own = [re.search(r"pol|pi|model|new|actor|train|student", name) is not None for name in (first, second)]
    return (ref[0] and own[1]) or (ref[1] and own[0])


# --- counts and masks -----------------------------------------------------------------------------

_TENSORS = ("array", "asarray", "tensor", "FloatTensor", "as_tensor")


_OF_CLASSES = re.compile(r"n|(\w+_)?(counts?|freqs?|frequenc(y|ies)|weights?|priors?|w)(_\w+)?", re.IGNORECASE)


_WEIGHS = re.compile(r"weight", re.IGNORECASE)


_MASKS = re.compile(
    r"(\w+_)?(masks?|valid|ok|keep|reply|answers?|responses?|completions?|loss_on)(_masks?)?", re.IGNORECASE
)


_WORDS = re.compile(r"(\w+[._])?(ids|input_ids|tokens|toks|labels|targets|seqs?)", re.IGNORECASE)


def counts_by_appearance(tree: ast.AST) -> Found:
    """Where counts of a Counter become numbers of classes as they stand: in the order in which classes were seen."""
    if not _WEIGHS.search(unparse(tree)):
        return
    for function in (node for node in walk(tree) if isinstance(node, ast.FunctionDef | ast.Module)):
        pairs = [pair for node in walk(function) for pair in assigned(node)]
        counters = {unparse(to) for to, given in pairs if called(given) == "Counter"}
        for to, given in pairs:
            made = called(given) in _TENSORS and isinstance(given, ast.Call) and given.args
            if not made or not _OF_CLASSES.fullmatch(unparse(to)):
                continue
            of = given.args[0]  # type: ignore[attr-defined]
            if isinstance(of, ast.Call) and unparse(of.func) in ("list", "tuple") and of.args:
                of = of.args[0]
            if called(of) == "values" and isinstance(of.func, ast.Attribute):
                counter = of.func.value
                if called(counter) == "Counter" or unparse(counter) in counters:
                    yield unparse(given), given


def masks_left_behind(tree: ast.AST) -> Found:
    """Where the logarithms of the words behind, ``ids[:, 1:]``, are multiplied by a mask of the words before,
    ``mask[:, :-1]``."""
    for function in functions(tree):
        text = unparse(function)
        behind = any(_cut(node) == "behind" and _WORDS.fullmatch(_name_of(node)) for node in walk(function))
        if not behind or ("gather" not in text and "cross_entropy" not in text):
            continue
        shifted = {_name_of(node) for node in walk(function) if _cut(node) == "behind"}
        for node in walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                for side in (node.left, node.right):
                    name = _name_of(side)
                    if _cut(side) == "before" and _MASKS.fullmatch(name) and name not in shifted:
                        yield unparse(node), node


def _cut(node: ast.AST) -> str:
    """ "behind" for ``x[:, 1:]``, "before" for ``x[:, :-1]``, of further axes all; "" for anything else."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) < 2:
        return ""
    rows, words = (unparse(one) for one in node.slice.elts[:2])
    return {"1:": "behind", ":-1": "before"}.get(words, "") if rows == ":" else ""


def _name_of(node: ast.AST) -> str:
    return unparse(node.value) if isinstance(node, ast.Subscript) else ""


# --- labels that are not moved on -----------------------------------------------------------------

_LOGITS = re.compile(r"(\w+[._])?(logits?|preds?|scores?|log_?probs?|out(put)?s?|lm_?logits)", re.IGNORECASE)


_LABELS = re.compile(r"(\w+[._])?(labels?|targets?|tokens?|(input_|token_)?ids|gold)", re.IGNORECASE)


_MOVES = re.compile(r"shift|next|causal|autoregress|\bt ?\+ ?1\b", re.IGNORECASE)


def labels_not_moved(tree: ast.AST) -> Found:
    """Where a loss that says that it teaches the next word takes the last place off the logits, and off the labels the
    last one, too: it teaches the word that was read."""
    for function in functions(tree):
        text = unparse(function)
        if not _MOVES.search(text) or not re.search(
            r"cross_entropy|nll_loss|\.gather\(|log_softmax|CrossEntropy", text
        ):
            continue
        cut = [one for one in walk(function) if isinstance(one, ast.Subscript) and _without_last(one)]
        logits = [one for one in cut if _LOGITS.fullmatch(unparse(one.value))]
        labels = [one for one in cut if _LABELS.fullmatch(unparse(one.value))]
        moved = re.search(
            r"\b(labels?|targets?|tokens?|ids|gold)\w*(\.\w+\([^)]*\))*\[[^\]]*\b[12]:|roll\(", text, re.IGNORECASE
        )
        if logits and labels and not moved:
            yield unparse(labels[0]), labels[0]


def _without_last(node: ast.Subscript) -> bool:
    """``[:, :-1]``, ``[..., :-1, :]``, ``[:-1]``: without the last place."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    ends = [one.upper for one in parts if isinstance(one, ast.Slice) and one.lower is None and one.upper is not None]
    return len(ends) == 1 and unparse(ends[0]) == "-1"


# --- calendars and histories ----------------------------------------------------------------------

_WEEKDAY = re.compile(r"(\w+_)?(dow|week_?day|day_?of_?week|wday)(_\w+)?", re.IGNORECASE)


def weekdays_of_hours(tree: ast.AST) -> Found:
    """Where the day of the week is a count of hours modulo 7, and the hour of the day is the same count modulo 24."""
    for function in functions(tree):
        hours = {
            unparse(node.left)
            for node in walk(function)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and unparse(node.right) == "24"
        }
        for node in walk(function):
            for to, given in assigned(node):
                is_seventh = (
                    isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mod) and unparse(given.right) == "7"
                )
                if is_seventh and _WEEKDAY.fullmatch(unparse(to)) and unparse(given.left) in hours:  # type: ignore[attr-defined]
                    yield unparse(node), node


def newest_cut_off(tree: ast.AST) -> Found:
    """Where rows are padded in front, since the newest stands last, and those that are too long keep their oldest."""
    for function in functions(tree):
        for node in walk(function):
            for to, given in assigned(node):
                bounds = _bounds(given)
                name = unparse(to)
                if bounds is None or bounds[0] is not None or bounds[1] is None or not isinstance(given, ast.Subscript):
                    continue
                longest = unparse(bounds[1])
                if unparse(given.value) != name or not re.fullmatch(r"[\w.]+", longest):
                    continue
                n, row = re.escape(longest), re.escape(name)
                in_front = rf"{n} - len\({row}\):\] = |\* \({n} - len\({row}\)\) \+ {row}\b"
                if re.search(in_front, unparse(function)):
                    yield unparse(node), node


_IGNORED = re.compile(r"-100|\w*ignore\w*|(\w+\.)*pad(_?(id|idx|token_id))?", re.IGNORECASE)


def ends_not_taught(tree: ast.AST) -> Found:
    """Where labels that are the sign of the end are set to what a loss leaves out: ``labels[labels == EOS] = -100``,
    ``labels.masked_fill(labels == EOS, -100)``."""
    for function in functions(tree):
        for node in walk(function):
            for labels, mask, value in _filled(node):
                if not (isinstance(mask, ast.Compare) and len(mask.ops) == 1 and isinstance(mask.ops[0], ast.Eq)):
                    continue
                sides = [mask.left, mask.comparators[0]]
                ends = [one for one in sides if _END.fullmatch(unparse(one))]
                of_itself = any(unparse(one) == labels for one in sides)
                is_label = re.search(r"label|target|tgt|gold|\by\b", labels, re.IGNORECASE)
                if ends and of_itself and is_label and _IGNORED.fullmatch(value):
                    yield unparse(node), node


def _filled(node: ast.AST) -> list[tuple[str, ast.expr, str]]:
    """Of what fills labels by a mask: the labels, the mask, and with what."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        to = node.targets[0]
        return [(unparse(to.value), to.slice, unparse(node.value))]
    if called(node) in ("masked_fill", "masked_fill_") and isinstance(node, ast.Call) and len(node.args) == 2:
        assert isinstance(node.func, ast.Attribute)
        return [(unparse(node.func.value), node.args[0], unparse(node.args[1]))]
    return []


WEEKDAYS = Slip(
    rule=weekdays_of_hours,
    asked="the day of the week of a count of hours",
    expected="the days, modulo 7",
    got="the hours, modulo 7",
    sentence="The day of the week is counted in hours: it changes every hour, and means nothing.",
    mend="hours // 24 % 7",
    nothing="no day of the week was seen that is counted in hours",
)
NEWEST = Slip(
    rule=newest_cut_off,
    asked="what a row keeps that is too long and is padded in front",
    expected="its end, which is the newest",
    got="its beginning",
    sentence="Rows are padded in front, so that the newest stands last, and long ones are cut at that end.",
    mend="row[-longest:]",
    nothing="no row was seen that is padded in front and cut at its end",
)
LAST_WORDS = Slip(
    rule=ends_not_taught,
    asked="the labels that are the sign of the end",
    expected="taught, as other words are",
    got="left out of the loss",
    sentence="The sign of the end is no label: the model never learns to end.",
    mend="leave out padding, and what follows the end: labels[inputs == EOS] = -100",
    nothing="no sign of the end was seen that is left out of the labels",
)
MOVED = Slip(
    rule=labels_not_moved,
    asked="the labels of logits whose last place is taken off",
    expected="those without the first",
    got="those without the last, too",
    sentence="Logits and labels are both cut at their end: each word is taught to be the one that was just read.",
    mend="logits[:, :-1], labels[:, 1:]",
    nothing="no labels were seen that should be moved on and are not",
)
ENDS = Slip(
    rule=end_cut_off,
    asked="the end of a text that is too long",
    expected="kept",
    got="cut off",
    sentence="The sign of the end is put behind the text before that is cut: a long text loses it, and teaches no end.",
    mend="cut first: x[: n - 1] + [EOS]",
    nothing="no sign of the end was seen that is cut off",
)
WINDOWS = Slip(
    rule=windows_that_hold_their_target,
    asked="the window of the past",
    expected="ends where the target begins",
    got="holds a part of the target",
    sentence="The window of the past ends behind the beginning of the target: what is to be forecast is handed in.",
    mend="past = series[t - n : t], future = series[t : t + m]",
    nothing="no window was seen that reaches into its target",
)
LEVELS = Slip(
    rule=levels_turned_round,
    asked="the weights of a quantile loss",
    expected="q for answers that are too low",
    got="1 - q for them",
    sentence="The sign of the error is turned round: what shall learn the level q learns the level 1 - q.",
    mend="error = target - prediction; max(q * error, (q - 1) * error)",
    nothing="no quantile loss was seen whose error has a sign that is told by names",
)
SHARES = Slip(
    rule=shares_taken_twice,
    asked="the shares of classes",
    expected="one softmax",
    got="the softmax of a softmax",
    sentence="forward gives shares already, and a softmax is taken of them: they come near to each other.",
    mend="return logits from forward",
    nothing="no softmax was seen that is taken of shares",
)
PARTNERS = Slip(
    rule=partners_mixed,
    asked="a margin against the reference",
    expected="both models asked about one answer",
    got="each about another",
    sentence="The model is asked about one answer of the pair, and the reference about the other: it is no margin.",
    mend="policy_rejected - reference_rejected",
    nothing="no margin was seen whose names tell two models and two sides",
)
COUNTS = Slip(
    rule=counts_by_appearance,
    asked="the counts of the classes",
    expected="in the order of their numbers",
    got="in the order in which they were seen",
    sentence="A Counter gives its counts in the order in which it met the classes: they belong to other classes here.",
    mend="torch.bincount(labels, minlength=n_classes)",
    nothing="no counts were seen that a Counter gives as they stand",
)
MASKS = Slip(
    rule=masks_left_behind,
    asked="the mask of the words that are scored",
    expected="shifted with them",
    got="that of the words before",
    sentence="The words that are scored are shifted, and their mask is not: each is counted by the word before it.",
    mend="mask[:, 1:] beside ids[:, 1:]",
    nothing="no mask was seen beside words that are shifted",
)

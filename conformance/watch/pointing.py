"""Which lines a mistake is said to be at: the likeliest first, never the whole file.

A check knows the event that shows a mistake. The mistake itself often stands elsewhere: labels go wrong where they are
cut out, not where the loss reads them. Each function names at most a few places, "train.py:12", the cause first.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from conformance.watch.lines import FUNCTIONS, Source, source_of
from conformance.watch.origins import DEEP, Line, Scope, argument, arguments, behind, receiver, scope_of
from conformance.watch.watcher import is_the_users, speaks_of_evaluation

MOST = 3
_CUT = re.compile(r"\[[^\]]*:|roll|shift|cat\(|flip|stack|pad\(|clone|where|scatter|-100|tensor\(")
_SHIFTED = re.compile(r"\b\d+:|:\s*-\s*\d|\[[^\]]*[+-] \d\b|roll|shift|cat\(|flip")
_AHEAD = re.compile(r"\b1:|\+ 1\b|roll\([^)]*-1")
_BEHIND = re.compile(r":\s*-\s*1\b|cat\(|roll\([^)]*[^-]1|shift")
_CUTS = re.compile(r"\.detach\(|(?<!utils)\.data\b(?!\.)|no_grad|inference_mode")
_HALTS = re.compile(_CUTS.pattern + r"|\.numpy\(|torch\.tensor\(|from_numpy|\.tolist\(|argmax|\.round\(|\.item\(")
_LABELS = ("labels", "target", "targets", "label", "y")


def first(*places: str | Iterable[str]) -> list[str]:
    """The first few places, each once."""
    flat = [one for place in places for one in ([place] if isinstance(place, str) else place)]
    return list(dict.fromkeys(one for one in flat if one))[:MOST]


def _own(loss: Any) -> list[Line]:
    """The statement that calls a loss."""
    if not loss.stack:
        return []
    source, call = source_of(loss.stack[0].code.co_filename), loss.stack[0].call()
    return [Line(source, source.statement(call))] if source and call is not None else []


def labels_of(loss: Any) -> list[Line]:
    return argument(loss.stack, 1, *_LABELS)


def _inputs_of(run: Any, loss: Any) -> list[Line]:
    """The statement that called the model before a loss, and the lines behind what it was given."""
    from conformance.watch.record import Forward

    calls = [e for e in run.events[: loss.order] if isinstance(e, Forward) and e.stack and run.parts.get(e.module)]
    if not calls:
        return []
    stack = calls[-1].stack
    source, call = source_of(stack[0].code.co_filename), stack[0].call()
    own = [Line(source, source.statement(call))] if source and call is not None else []
    return [*own, *arguments(stack)]


def _that(lines: Iterable[Line], wanted: re.Pattern[str]) -> list[str]:
    return [line.place for line in lines if wanted.search(line.text)]


def shift(run: Any, loss: Any, is_missing: bool) -> list[str]:
    """Where labels and inputs were cut apart: where a shift is missing, on the side that has none first."""
    labels, inputs = [*_own(loss), *labels_of(loss)], _inputs_of(run, loss)
    cut = _best(labels)
    fed = _best(inputs) or next(iter(inputs), None)
    is_one = cut is not None and cut in inputs and not isinstance(getattr(cut.node, "value", None), ast.Tuple)
    if is_one:  # both are of one line that does not tell them apart: the mistake is where they are handed on
        return first(loss.place, fed.place if fed else "")
    if is_missing and cut is not None and fed is not None and _AHEAD.search(cut.text) and not _BEHIND.search(fed.text):
        return first(fed.place, inputs[0].place, cut.place)
    return first(cut.place if cut else "", fed.place if fed else "", loss.place)


def _best(lines: Sequence[Line]) -> Line | None:
    """The nearest line that shifts; else the nearest that cuts."""
    found = (line for wanted in (_SHIFTED, _CUT) for line in lines if wanted.search(line.text))
    return next(found, None)


def counted(loss: Any) -> list[str]:
    """Where a loss is told what does not count: what made it, what calls it, and where its labels were filled."""
    made = [line.place for line in receiver(loss.stack) if re.search(r"EntropyLoss|NLLLoss|ignore|Smooth", line.text)]
    return first(made[:1], loss.place, _that(labels_of(loss), _FILLED))


def filled(loss: Any) -> list[str]:
    """Where labels that do not count were set, and the loss."""
    return first(_that(labels_of(loss), _FILLED)[:2], loss.place)


_FILLED = re.compile(r"-100|masked_fill|where|\[.*\] = |pad|full|clone|scatter")


def turned(loss: Any) -> list[str]:
    """Where the labels and the answers of a loss got their layout."""
    lines = [*_own(loss), *argument(loss.stack, 0, "input", "logits"), *labels_of(loss)]
    return first(_that(lines, re.compile(r"transpose|permute|\.T\b|\.t\(|mT|rearrange|movedim"))[:2], loss.place)


def answers(loss: Any) -> list[str]:
    """Where a loss got its rows from: the last lines that computed them."""
    lines = argument(loss.stack, 0, "input", "logits")
    ends = [line.place for line in lines if isinstance(line.node, ast.Return)]
    return first(ends[:1], loss.place, [line.place for line in lines])


def _learned(back: Any) -> list[Line]:
    """The lines behind what a backward pass began with."""
    if not back.stack:
        return []
    call = back.stack[0].call()
    is_method = call is not None and isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    plain = receiver(back.stack) if is_method else []
    return [line for line in [*plain, *arguments(back.stack)] if isinstance(line.node, _PLAIN)]


_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)
_DIVIDED = re.compile(r" / |/= |\bmean\b")
_COUNTED = (re.compile(r"numel|sum\(\)|count|len\("), re.compile(r"shape|size\(|mean\("))


def value(run: Any, back: Any) -> list[str]:
    """Where the loss of a backward pass got its value: a division, else the last line that computes it."""
    from conformance.watch.record import Loss

    lines = _learned(back)
    losses = [loss.place for loss in run.events[: back.order] if isinstance(loss, Loss)]
    plain = [] if _is_scaled(back) else [line.place for line in lines[:1]]
    return first(_that(lines[:4], _DIVIDED)[:1], plain, back.place, losses[-1:])


def _is_scaled(back: Any) -> bool:
    """Whether what a backward pass begins with is computed in its own statement."""
    call = back.stack[0].call() if back.stack else None
    return (
        call is not None and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, (ast.Call, ast.BinOp))
    )


def divisor(run: Any, loss: Any) -> list[str]:
    """Where the number was made by which a loss is divided, and the division."""
    from conformance.watch.record import Backward

    back = next(run.between(loss.order, len(run.events), Backward), None)
    lines = [*(_learned(back) if back is not None else []), *_own(loss)]
    divided = _that(lines, re.compile(r" / |/= |mean\("))
    counts = [place for wanted in _COUNTED for place in _that(lines, wanted) if place not in divided]
    return first(counts[:1], divided[:1], loss.place)


def distribution(loss: Any) -> list[str]:
    """Where a target distribution is filled."""
    here = [*_functions(loss)][:1]
    lines = [*reversed(labels_of(loss))]
    lines.sort(key=lambda line: not here or line.source.function(line.node) is not here[0][1])
    return first(_that(lines, re.compile(r"full|fill_|scatter|smooth|one_hot|eps")), loss.place)


def condition(event: Any) -> list[str]:
    """The `if` that an event depends on, then the event."""
    source, node = _node(event)
    if source is None or node is None:
        return first(event.place)
    around = next((n for n in source.outward(node) if isinstance(n, (ast.If, *FUNCTIONS))), None)
    return first(source.place(around) if isinstance(around, ast.If) else "", event.place)


def _node(event: Any) -> tuple[Source | None, Any]:
    """The source and the call of an event."""
    if not event.stack:
        return None, None
    return source_of(event.stack[0].code.co_filename), event.stack[0].call()


def _functions(event: Any) -> Iterator[tuple[Source, Any]]:
    """The user's functions around an event, innermost first."""
    for at in event.stack:
        source = source_of(at.code.co_filename)
        node = source.defined(at.code) if source else None
        if source and isinstance(node, FUNCTIONS[:2]):
            yield source, node


def switched(call: Any, switches: Sequence[Any]) -> list[str]:
    """Where a model was left in evaluation mode: the switch, the end of the function that made it, and the call."""
    last = switches[-1] if switches else None
    if last is None:
        return first(call.place)
    own, around = next(_functions(last), None), [*_functions(call)]
    if own is None or own in around:
        return first(last.place, call.place)
    return first(own[0].place(own[1].body[-1]), last.place, call.place)


def apart(run: Any, event: Any) -> list[str]:
    """The innermost line on the way to an event of an evaluation that training does not pass; only where the
    evaluation shares its innermost function with training."""
    from conformance.watch.record import Backward, Forward

    learning = [e for e in run.events if isinstance(e, Backward) or (isinstance(e, Forward) and e.gradients)]
    plain = [e.stack for e in learning if e.stack and e is not event]
    trained = [stack for stack in plain if not any(speaks_of_evaluation(at.code.co_name) for at in stack)]
    passed = {at.place for stack in trained for at in stack}
    if not event.stack or event.stack[0].place not in passed:
        return []
    return [at.place for at in event.stack if at.place not in passed][:1]


def evaluating(run: Any, call: Any) -> list[str]:
    """Where an evaluation begins in training mode: a switch inside it, or the line of its function, and the call."""
    from conformance.watch.record import Mode

    shared = apart(run, call)
    if shared:
        return first(shared, call.place)
    functions = [*_functions(call)]
    named = [one for one in functions if one[1].name in call.evaluating]
    around = next(iter([*named, *functions]), None)
    switches = [m for m in run.events[: call.order] if isinstance(m, Mode) and m.training and m.stack]
    inside = [m.place for m in switches if around is not None and next(_functions(m), None) == around]
    heads = [around[0].place(around[1].body[0]), around[0].place(around[1])] if around is not None else []
    return first(inside[-1:], heads[:1], call.place)


def seeded(run: Any, call: Any) -> list[str]:
    """The seed before a call, and the call."""
    from conformance.watch.record import Seed

    return first([s.place for s in run.events[: call.order] if isinstance(s, Seed)][-1:], call.place)


def batched(batch: Any) -> list[str]:
    """The line that asks for a batch, and those behind what it gives."""
    source, _ = _node(batch)
    scope = scope_of(batch.stack)
    if source is None or scope is None:
        return [batch.place]
    loops = [n for n in source.nodes if isinstance(n, ast.For) and n.lineno == batch.stack[0].line]
    lines = [line.place for loop in loops for line in behind(loop.iter, scope, (), DEEP)]
    return first(lines[:2], batch.place)


def classes(run: Any, name: str = "") -> Iterator[tuple[Source, ast.ClassDef]]:
    """The user's classes of the modules that ran; those around a parameter, innermost first, where one is named."""
    seen = set()
    for parts in run.parts.values():
        paths = [p for p in parts if not name or not p or name.startswith(f"{p}.")]
        for path in sorted(paths, key=len, reverse=bool(name)):
            found = _class(parts[path])
            if found is not None and found[1] not in seen:
                seen.add(found[1])
                yield found


def _class(cls: type) -> tuple[Source, ast.ClassDef] | None:
    forward = getattr(cls, "forward", None)
    code = getattr(forward, "__code__", None)
    source = source_of(code.co_filename) if code else None
    node = source.defined(code) if source and code else None
    owner = source.owner(node) if source and node is not None else None
    return (source, owner) if source and owner else None


def _statements(source: Source, node: ast.AST, wanted: re.Pattern[str]) -> Iterator[str]:
    """The places of the plain statements and headers in a node that have such a text."""
    for one in ast.walk(node):
        is_plain = isinstance(one, ast.stmt) and not isinstance(one, (*FUNCTIONS, ast.ClassDef))
        if is_plain and wanted.search(Line(source, one).text):  # type: ignore[arg-type]
            yield source.place(one)


def used(run: Any, numbers: Iterable[int]) -> list[str]:
    """Where the parts of some parameters are used: the line of the user's forward that names the part."""
    for number in numbers:
        path = run.parameters[number].name.split(".")
        for source, owner in classes(run, run.parameters[number].name):
            attributes = {part for part in path if not part.isdigit()}
            for one in ast.walk(owner):
                is_own = isinstance(one, ast.Attribute) and one.attr in attributes and isinstance(one.ctx, ast.Load)
                inside = source.function(one) if is_own else None
                if is_own and getattr(inside, "name", "__init__") != "__init__":
                    return [source.place(source.statement(one))]
    return []


def _last_first(run: Any, numbers: Iterable[int]) -> list[int]:
    """Parameters in the order in which their parts stand in the model, the last one first."""
    order = {path: place for parts in run.parts.values() for place, path in enumerate(parts)}
    owners = {number: run.parameters[number].name.rpartition(".")[0] for number in numbers}
    return sorted(owners, key=lambda number: order.get(owners[number], -1), reverse=True)


def dead(run: Any, weights: Iterable[int], zero: Iterable[int]) -> list[str]:
    """Where the part is used behind which gradients are zero: the last one all of whose parameters get none."""

    def owner(number: int) -> str:
        return str(run.parameters[number].name.rpartition(".")[0])

    alive = {owner(n) for n in range(len(run.parameters)) if n in run.parameters and n not in set(zero)}
    whole = [n for n in weights if owner(n) not in alive]
    return used(run, _last_first(run, whole or weights))


def halts(run: Any, numbers: Iterable[int], passes: Sequence[Any]) -> list[str]:
    """Where the graph between some parameters and the loss is cut."""
    found: list[str] = []
    numbers = _last_first(run, numbers)
    for number in numbers[:1]:
        for source, owner in classes(run, run.parameters[number].name):
            for method in owner.body:
                if isinstance(method, FUNCTIONS[:2]) and method.name != "__init__":
                    found += _statements(source, method, _HALTS)
    on_the_way = _that(_learned(passes[-1]), _CUTS) if passes else []
    return first(on_the_way, found, used(run, numbers))


def together(run: Any, names: Sequence[str]) -> list[str]:
    """The statement that names two parts at once, as one that ties them does."""
    parts = [name.rpartition(".")[0].rpartition(".")[2] for name in names]
    files = {at.code.co_filename for event in run.events for at in event.stack}
    sources = [source for source, _ in classes(run)] + [s for s in map(source_of, sorted(files)) if s]
    for source in dict.fromkeys(sources):
        for node in source.nodes:
            if isinstance(node, (ast.Assign, ast.Expr)) and "weight" in ast.unparse(node):
                text = ast.unparse(node)
                if all(re.search(rf"\b{re.escape(part)}\b", text) for part in parts):
                    return [source.place(node)]
    return []


_APPLIED = re.compile(r"masked_fill|scaled_dot_product_attention|is_causal|_mask\s*=|mask=|float\('-inf'\)|-inf")
_MADE = re.compile(r"tril|triu|subsequent|causal")
PADS = re.compile(r"pad|mask")
_WEIGHED = re.compile(r"softmax")


def hides(run: Any, probe: Any, wanted: re.Pattern[str] = _MADE) -> list[str]:
    """Where a mask is made and used in the user's model, or handed to it."""
    from conformance.watch.record import Forward

    calls = [one for one in run.of(Forward) if one.stack]
    given = arguments(calls[0].stack) if calls else []
    handed = _that(given, wanted) or _that(given, re.compile(r"\w*mask\w* ="))
    made: list[str] = []
    applied: list[str] = []
    weighed: list[str] = []
    for source, owner in classes(run):
        for method in owner.body:
            if isinstance(method, FUNCTIONS[:2]) and method.name != "__init__":
                applied += _statements(source, method, _APPLIED)
                weighed += _statements(source, method, _WEIGHED)
            if isinstance(method, FUNCTIONS[:2]):
                made += _statements(source, method, wanted)
    own = applied or weighed
    late = [place for place in weighed if place in applied]  # hidden in the softmax's own statement: after it
    return first(late[:1], handed[:1], own[:1], [p for p in made if p not in own][:1], probe.place)


_RULES = (
    ("eps inside", re.compile(r"eps")),
    ("decay", re.compile(r"decay")),
    ("beta", re.compile(r"beta")),
    ("forgets", re.compile(r"^if .*|\bnot state|len\(state|zeros")),
    ("bias correction", re.compile(r"\*\*|bias_corr|addcdiv|sqrt")),
)


def formula(step: Any, cls: type) -> list[str]:
    """Where an optimizer of the user's own computes what is wrong."""
    methods = (inspect.unwrap(getattr(cls, name)) for name in ("update", "step") if hasattr(cls, name))
    codes = (getattr(method, "__code__", None) for method in methods)
    code = next((code for code in codes if code is not None and is_the_users(code.co_filename)), None)
    source = source_of(code.co_filename) if code else None
    node = source.defined(code) if source and code else None
    owner = source.owner(node) if source and node is not None else None
    if source is None or node is None or owner is None:
        return first(step.place)
    bodies = [one for one in owner.body if isinstance(one, FUNCTIONS[:2]) and one.name != "__init__"]
    for word, wanted in _RULES:
        if word in step.rule:
            found = [place for one in bodies for place in _statements(source, one, wanted)]
            return first(found[:2], source.place(node), step.place)
    return first(source.place(node), step.place)


_COMPUTED = re.compile(r"return |\*\*|//|\bmin\(|\bmax\(| / ")


def rate(run: Any, step: Any) -> list[str]:
    """Where a rate is worked out: the function of a schedule, a line that sets group["lr"], or the optimizer."""
    for number, functions in run.rate_functions.items():
        for code in functions:
            source = source_of(code.co_filename)
            node = source.defined(code) if source else None
            if source and node is not None:
                last = node.body if isinstance(node, ast.Lambda) else node.body[-1]
                return first(source.place(last), run.schedulers.get(number, ""))
    files = dict.fromkeys(at.code.co_filename for event in run.events for at in event.stack)
    for source in filter(None, map(source_of, files)):
        for node in source.nodes:
            if isinstance(node, ast.Assign) and re.search(r"\[['\"]lr['\"]\]$", ast.unparse(node.targets[0])):
                scope = Scope(source, {})
                is_own = any(isinstance(one, ast.Constant) for one in ast.walk(node.value))
                lines = [line.place for line in behind(node.value, scope, (), 3) if _COMPUTED.search(line.text)]
                return first([] if is_own else lines[:1], source.place(node), run.optimizers[step.optimizer].place)
    return first(run.schedulers.values(), run.optimizers[step.optimizer].place)


def remade(run: Any, step: Any) -> list[str]:
    """Where a model was made anew, copied or given another part after its optimizer, and the optimizer's line."""
    from conformance.watch.record import Forward

    made = run.optimizers[step.optimizer]
    for call in (one for one in run.of(Forward) if one.stack and one.gradients and run.parts.get(one.module)):
        frames = {at.code: at for at in call.stack}
        meeting = next((at for at in made.stack if at.code in frames), None)
        if meeting is None:
            continue
        source = source_of(meeting.code.co_filename)
        around = source.defined(meeting.code) or source.tree if source else None
        here = [one for one in receiver(call.stack) if one.source.function(one.node) is around]
        later = [one.place for one in here if one.node.lineno > meeting.line]
        return first(later[-1:], meeting.place, made.place)
    return first(made.place, step.place)


def parameters(run: Any, made: Any, numbers: Iterable[int]) -> list[str]:
    """Where parameters of an optimizer were listed, and where it was made."""
    parts = [run.parameters[n].name.rpartition(".")[0].rpartition(".")[2] for n in numbers]
    lines = arguments(made.stack) if made.stack else []
    naming = [line.place for line in lines if any(part and part in line.text for part in parts)]
    return first(naming[:1], [line.place for line in lines], made.place)


def given(event: Any, position: int, *names: str) -> list[str]:
    """The lines behind a name that a call was given, then the call; what it was given as it stands is the call's."""
    call = event.stack[0].call() if event.stack else None
    is_named = call is not None and len(call.args) > position and isinstance(call.args[position], ast.Name)
    lines = [line.place for line in argument(event.stack, position, *names)] if is_named else []
    return first(lines[:2], event.place)

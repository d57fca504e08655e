"""What a script's own text says that its run cannot: whether a line steps a schedule, which flags it sets, which
counters it never begins anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.places import short
from conformance.watch.events import Snapshot, Step
from conformance.watch.lines import FUNCTIONS, Source, source_of
from conformance.watch.origins import argument
from conformance.watch.stated import sources

_NO_SCHEDULE = re.compile(r"^(?!.*(sched|lr)).*(opt|scaler|engine|env)", re.IGNORECASE)


def may_step_a_schedule(run: Any) -> bool:
    """Whether a line of the user's may be a schedule's step: one that names `step` of something else than what stepped
    an optimizer in this run. Libraries that call the user's code may step schedules themselves."""
    steps = run.of(Step)
    if not all(at.is_direct for step in steps for at in step.stack[:-1]) or not all(step.stack for step in steps):
        return True
    passed = {at.place for step in steps for at in step.stack}
    for source in sources(run):
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "step" and isinstance(node.ctx, ast.Load):
                call = source.around.get(node)
                is_call = isinstance(call, ast.Call) and call.func is node
                if (is_call and source.place(node) in passed) or _NO_SCHEDULE.search(ast.unparse(node.value)):
                    continue
                if is_call or not _is_number(source, node.attr):
                    return True
    return False


def forgotten_schedules(run: Any) -> list[str]:
    """Where functions make schedules that ran and bind them to names that nothing reads: no step, no return."""
    made = {place.partition(": ")[0].partition(" in ")[0] for place in run.schedulers.values()}
    found: list[str] = []
    for source in sources(run):
        for function in (node for node in source.nodes if isinstance(node, FUNCTIONS[:2])):
            read = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            outer = (n.names for n in ast.walk(function) if isinstance(n, (ast.Global, ast.Nonlocal)))
            read |= {name for names in outer for name in names}  # others may read these
            for one in (n for n in source.inside(function) if isinstance(n, ast.Assign)):
                names = [target.id for target in one.targets if isinstance(target, ast.Name)]
                lines = {f"{short(source.file)}:{n}" for n in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
                if names and len(names) == len(one.targets) and not {*names} & read and lines & made:
                    found.append(source.place(one))
    return found


_STEPS = re.compile(r"len\(|steps_per_epoch|num_batches|per_epoch|n_batches")
_NOAM = re.compile(
    r"\*\* \(?-\(?(0?\.5|1\.5)|\bpow\(.*-(0?\.5|1\.5)|rsqrt|\(\w+ / \(?\w+( [+] 1)?\)?\) \*\* 0?\.5|sqrt\(\w*warm\w* / "
)


_TOTALS = ("T_max", "total_steps", "total_iters", "lr_lambda")


def counts_steps(run: Any, number: int) -> bool:
    """Whether a schedule says by its making that it counts steps: by the batches of an epoch, or by the formula of
    Vaswani et al., whose argument is the number of the step."""
    stack = run.planned.get(number, ())
    call = stack[0].call() if stack else None
    if call is None:
        return False
    if any(one.arg == "steps_per_epoch" and not isinstance(one.value, ast.Constant) for one in call.keywords):
        return True
    codes = run.rate_functions.get(number, [])
    formulas = [source.defined(code) for code in codes if (source := source_of(code.co_filename)) is not None]
    texts = [ast.unparse(one) for one in formulas if one is not None]
    called = [n for source in sources(run) for n in source.nodes if isinstance(n, ast.FunctionDef)]
    texts += [ast.unparse(one) for one in called if any(re.search(rf"\b{one.name}\(", text) for text in texts)]
    if any(_NOAM.search(text) for text in texts):
        return True
    own = [ast.unparse(one.value) for one in call.keywords if one.arg in _TOTALS] + [*map(ast.unparse, call.args[1:2])]
    behind = [line.text for line in argument(stack, 1, *_TOTALS) if isinstance(line.node, (ast.Assign, ast.Expr))]
    return any(_STEPS.search(text) for text in (*own, *behind))


class Rows(NamedTuple):
    """A number of steps that counts rows. what: as it is written. place: of the statement."""

    what: str
    place: str


_PLANNED = re.compile(r"step|iter|total|updates|^t_max$", re.IGNORECASE)
_DIVIDED = (ast.Div, ast.FloorDiv)


def rows_for_batches(run: Any) -> list[Rows]:
    """The numbers of steps that are epochs times the rows of what a loader gives in batches."""
    return [found for source in sources(run) for found in _rows_for_batches(source)]


def _rows_for_batches(source: Source) -> Iterator[Rows]:
    loaders = [n for n in source.nodes if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("DataLoader")]
    batched = [n for n in loaders if _size(n) not in ("", "1")]
    sets = {ast.unparse(n.args[0]) for n in batched if n.args}
    for node in source.nodes:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult) or not batched:
            continue
        texts = [ast.unparse(node.left), ast.unparse(node.right)]
        rows = [text for text in texts if text.endswith(".dataset)") or text in {f"len({one})" for one in sets}]
        is_in_epochs = any("epoch" in text.lower() for text in texts)
        around = [node, *source.outward(node)]
        parts = around[: around.index(source.statement(node)) + 1]
        is_divided = any(isinstance(one, ast.BinOp) and isinstance(one.op, _DIVIDED) for one in parts)
        if len(rows) == 1 and rows[0].startswith("len(") and is_in_epochs and not is_divided and _is_planned(parts):
            yield Rows(ast.unparse(node), source.place(node))


def _size(loader: ast.Call) -> str:
    """The size of a loader's batches, as it is written."""
    named = [one.value for one in loader.keywords if one.arg == "batch_size"]
    return "".join(ast.unparse(one) for one in [*loader.args[1:2], *named])


def _is_planned(parts: list[Any]) -> bool:
    """Whether a part of a statement gets a name of steps: as a variable, or as what a call is given."""
    keywords = [one.arg or "" for one in parts if isinstance(one, ast.keyword)]
    targets = parts[-1].targets if isinstance(parts[-1], ast.Assign) else []
    names = keywords or [ast.unparse(one).rpartition(".")[2] for one in targets]
    return any(map(_PLANNED.search, names))


def _is_number(source: Source, name: str) -> bool:
    """Whether a file counts with an attribute of a name: `self.step += 1`, `self.step = state["step"]`."""
    bound: list[ast.expr] = [n.target for n in source.nodes if isinstance(n, ast.AugAssign)]
    bound += [target for n in source.nodes for target in _targets(n)]
    return any(getattr(one, "attr", "") == name for one in bound)


def flags(run: Any) -> list[str]:
    """Where `requires_grad` is set on something that is not taken from a list of parameters, the first one first."""
    return [source.place(node) for source in sources(run) for node in source.nodes if _is_flag(source, node)]


def _is_flag(source: Source, node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    owners = [one.value for one in node.targets if isinstance(one, ast.Attribute) and one.attr == "requires_grad"]
    loops = [one for one in source.outward(node) if isinstance(one, ast.For)]
    drawn = {n.id for one in loops if "parameters(" in ast.unparse(one.iter) for n in ast.walk(one.target)
             if isinstance(n, ast.Name)}  # fmt: skip
    return bool(owners) and not any(getattr(one, "id", "") in drawn | {"self"} for one in owners)


def misspelt(run: Any) -> list[str]:
    """Where an attribute of parameters is set whose name is nearly `requires_grad`."""
    return [
        source.place(node)
        for source in sources(run)
        for node in source.nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Attribute) and one.attr in run.misspelt for one in node.targets)
    ]


class Counter(NamedTuple):
    """A number that is counted up and compared with a patience. place: where it would begin anew."""

    name: str
    place: str


_PATIENCE = re.compile(r"patience", re.IGNORECASE)
_RESTORES = re.compile(r"load|restore|resume|setstate", re.IGNORECASE)


def counted(run: Any) -> list[str]:
    """The names that are compared with a patience."""
    return [name for source in sources(run) for name in _compared(source)]


def endless_counters(run: Any) -> list[Counter]:
    """The counters that are compared with a patience, counted up on a condition, and begun anew nowhere."""
    return [counter for source in sources(run) for counter in _endless(source)]


def _endless(source: Source) -> Iterator[Counter]:
    everywhere = [
        (node, target)
        for node in source.nodes
        for target in _targets(node)
        if not _stays(node, target) and not _RESTORES.search(getattr(source.function(node), "name", ""))
    ]
    for name in dict.fromkeys(_compared(source)):
        ups = [n for n in source.nodes if isinstance(n, ast.AugAssign) and ast.unparse(n.target) == name and _is_one(n)]
        if len(ups) != 1 or not isinstance(source.around[ups[0]], ast.If):
            continue
        attribute, up = name.rpartition(".")[2], ups[0]
        if "." in name:
            sets = [n for n, target in everywhere if isinstance(target, ast.Attribute) and target.attr == attribute]
            begun = [n for n in sets if getattr(source.function(n), "name", "") == "__init__"]
        else:
            around = source.function(up)
            loop = [n for n in source.outward(up) if isinstance(n, (ast.For, ast.While)) and n in source.inside(around)]
            sets = [n for n, target in everywhere if ast.unparse(target) == name and source.function(n) is around]
            begun = [n for n in sets if loop and loop[-1] not in source.outward(n)]
        if begun and len(begun) == len(sets):
            yield Counter(name, source.place(_other_branch(source, up)))


def _compared(source: Source) -> Iterator[str]:
    """The names that are compared with a patience."""
    for node in source.nodes:
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.Gt, ast.GtE, ast.Eq)):
            mine, limit = ast.unparse(node.left), ast.unparse(node.comparators[0])
            if _PATIENCE.search(limit) and isinstance(node.left, (ast.Name, ast.Attribute)):
                yield mine


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What an assignment binds, one by one."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]


def _stays(node: ast.AST, target: ast.expr) -> bool:
    """Whether an assignment of several binds one of them to what it is already."""
    pairs = [*zip(_targets(node), getattr(getattr(node, "value", None), "elts", []), strict=False)]
    return any(one is target and ast.unparse(one) == ast.unparse(value) for one, value in pairs)


def _is_one(node: ast.AugAssign) -> bool:
    return isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1


def _other_branch(source: Source, node: ast.stmt) -> ast.AST:
    """The first statement of the branch beside that of a statement; the statement itself where there is none."""
    around = source.around[node]
    if isinstance(around, ast.If) and around.orelse:
        return around.orelse[0] if node in around.body else around.body[0]
    return node


def names_a_rate(text: str) -> bool:
    """Whether an expression is a learning rate by its name."""
    return re.search(r"(^|[._'\"])(lr|learning_rate)\b", text) is not None


def is_restored_later(snapshot: Any) -> bool:
    """Whether a state that a module was asked for is what the script means to load when its loop is over: `best =
    model.state_dict()` under a condition, `model.load_state_dict(best)` behind the loop."""
    call = snapshot.stack[0].call() if snapshot.stack else None
    source = source_of(snapshot.stack[0].code.co_filename) if call is not None else None
    if source is None or call is None:
        return False
    statement, around = source.statement(call), source.function(call)
    loops = [node for node in source.outward(statement) if isinstance(node, (ast.For, ast.While))]
    choices = [node for node in source.outward(statement) if isinstance(node, ast.If)]
    if not isinstance(statement, ast.Assign) or _uncopied(statement.value) is not call or not choices:
        return False
    kept = statement.targets[0]
    loads = [n for n in source.nodes if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "load_state_dict"]
    loads = [one for one in loads if one.args and _is_alike(one.args[0], kept)]
    others = [n for n in source.nodes if isinstance(n, ast.Assign) and any(_is_alike(t, kept) for t in _targets(n))]
    if any(not isinstance(n.value, (ast.Constant, ast.Tuple)) and n is not statement for n in others):
        return False
    if isinstance(kept, ast.Name):
        inner = [loop for loop in loops if source.function(loop) is around]
        mine = [one for one in loads if source.function(one) is around]
        return bool(inner) and any(one.lineno > (inner[-1].end_lineno or 0) for one in mine)
    return any(source.function(one) is not around for one in loads)


def _uncopied(value: ast.expr) -> ast.expr:
    """What a shallow copy is of, which copies no tensor: ``state.copy()``, ``dict(state)``, ``copy.copy(state)``."""
    if not isinstance(value, ast.Call):
        return value
    if isinstance(value.func, ast.Attribute) and value.func.attr == "copy" and not value.args:
        return value.func.value
    is_shallow = ast.unparse(value.func) in ("dict", "copy.copy", "copy", "OrderedDict", "collections.OrderedDict")
    return value.args[0] if is_shallow and len(value.args) == 1 and not value.keywords else value


def _is_alike(first: ast.expr, second: ast.expr) -> bool:
    """Whether two expressions are one name, or one attribute of whatever."""
    if isinstance(first, ast.Attribute) and isinstance(second, ast.Attribute):
        return first.attr == second.attr
    return isinstance(first, ast.Name) and isinstance(second, ast.Name) and first.id == second.id


def gathered(run: Any) -> Any:
    """A state that a list keeps beside an older one of the same memory: `states.append(model.state_dict())`, which is
    read again; None where there is none."""
    held = [one for one in run.of(Snapshot) if one.outlived and _is_appended(one)]
    for one in held:
        older = [other for other in held if (other.of, other.place) == (one.of, one.place) and other.step < one.step]
        if one.of >= 0 and older:
            return one
    return None


def _is_appended(snapshot: Any) -> bool:
    """Whether a state is appended as it is to a list whose items are read."""
    call = snapshot.stack[0].call() if snapshot.stack else None
    source = source_of(snapshot.stack[0].code.co_filename) if call is not None else None
    if call is None or source is None:
        return False
    around = source.around.get(call)
    func = around.func if isinstance(around, ast.Call) and around.args == [call] else None
    if not isinstance(func, ast.Attribute) or func.attr != "append" or not isinstance(func.value, ast.Name):
        return False
    inside = source.inside(source.function(call))
    reads = [n for n in inside if isinstance(n, ast.Name) and n.id == func.value.id and isinstance(n.ctx, ast.Load)]
    users = (source.around[one] for one in reads)
    given = (one for one in users if not isinstance(one, ast.Call) or ast.unparse(one.func) not in ("len", "print"))
    return any(isinstance(one, (ast.Call, ast.comprehension, ast.For)) for one in given)


def is_of_a_new_module(restore: Any) -> bool:
    """Whether state was loaded into what a call in the same expression made: `Model().load_state_dict(...)`."""
    call = restore.stack[0].call() if restore.stack else None
    return call is not None and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call)

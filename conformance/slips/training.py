"""Slips of training loops that the text of a file shows by itself: gradients, clipping, what is kept, schedules,
seeds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from conformance.slips.slip import (
    FALLS,
    RISES,
    Found,
    Slip,
    assigned,
    blocks,
    called,
    calls,
    functions,
    inside,
    over_epochs,
    reads,
    unparse,
    walk,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
Loop = ast.For | ast.While

_OPTIMIZER = re.compile(r"(\w+\.)*_?\w*opt(im(izer)?s?)?\w*(\[\w+\])?", re.IGNORECASE)
_SCHEDULE = re.compile(r"(\w+\.)*\w*sched\w*", re.IGNORECASE)
_ACCUMULATES = re.compile(r"%|accum", re.IGNORECASE)


def _scopes(tree: ast.AST) -> Iterator[Function]:
    """The functions of a file, and the file itself."""
    return (node for node in walk(tree) if isinstance(node, Function))


def _loops(function: Function) -> Iterator[Loop]:
    for statement in function.body:
        yield from (node for node in inside(statement) if isinstance(node, Loop))


def _calls_of(node: ast.AST, method: str, of: re.Pattern[str] | None = None) -> list[ast.Call]:
    """The calls of a method in a node, of what is called so."""
    return [
        one
        for one in inside(node)
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr == method
        and (of is None or of.fullmatch(unparse(one.func.value)) is not None)
    ]


def _steps(node: ast.AST) -> list[ast.Call]:
    """The steps of an optimizer, also those that a gradient scaler makes."""
    scaled = [one for one in _calls_of(node, "step") if one.args and _OPTIMIZER.fullmatch(unparse(one.args[0]))]
    own = [one for one in _calls_of(node, "step", _OPTIMIZER) if not _SCHEDULE.fullmatch(_owner(one))]
    return [*own, *(one for one in scaled if one not in own)]


def _owner(call: ast.Call) -> str:
    return unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _clips(node: ast.AST) -> list[ast.Call]:
    names = ("clip_grad_norm_", "clip_grad_value_")
    found = (one for one in inside(node) if isinstance(one, ast.Call))
    return [one for one in found if unparse(one.func).rpartition(".")[2] in names]


def _flat(block: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a block, with those of its ``with`` blocks in their places."""
    return [
        inner for one in block for inner in (_flat(one.body) if isinstance(one, ast.With | ast.AsyncWith) else [one])
    ]


def _plain(statement: ast.stmt) -> bool:
    """Whether it runs whenever its block does, and once."""
    return isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign)


# --- gradients ------------------------------------------------------------------------------------


def thrown_away(tree: ast.AST) -> Found:
    """Where gradients are cleared before a step has used them: in each pass of a loop that steps after several, or
    between the backward pass and the step."""
    for function in _scopes(tree):
        for loop in _loops(function):
            yield from _cleared_each_pass(loop)
        for block in blocks(function):
            yield from _cleared_before_the_step(_flat(block))


def _cleared_each_pass(loop: Loop) -> Found:
    body = _flat(loop.body)
    clears = [call for one in body if _plain(one) for call in _calls_of(one, "zero_grad")]
    steps_now = [call for one in body if _plain(one) for call in _steps(one)]
    later = [one.test for one in body if isinstance(one, ast.If) and _steps(one)]
    waits = [test for test in later if _ACCUMULATES.search(unparse(test))]
    if clears and not steps_now and waits and any(_calls_of(one, "backward") for one in body):
        yield f"{unparse(clears[0])} in each pass, a step where {unparse(waits[0])}", clears[0]


def _cleared_before_the_step(block: list[ast.stmt]) -> Found:
    marks: list[tuple[str, ast.Call]] = []
    for one in block:
        if _plain(one):
            for what, calls in (
                ("backward", _calls_of(one, "backward")),
                ("clear", _calls_of(one, "zero_grad")),
                ("step", _steps(one)),
            ):
                marks += [(what, call) for call in calls]
    marks.sort(key=lambda mark: (mark[1].lineno, mark[1].col_offset))
    for (first, _), (second, clear), (third, _) in zip(marks, marks[1:], marks[2:], strict=False):
        if (first, second, third) == ("backward", "clear", "step"):
            yield f"{unparse(clear)} between backward() and step()", clear


def never_cleared(tree: ast.AST) -> Found:
    """Where a loop makes backward passes and steps, and nothing in the file clears gradients."""
    text = unparse(tree)
    if re.search(r"zero_grad|\.grad\s*=|grad\.(zero_|detach_)|\.zero_\(|autograd\.grad|set_to_none", text):
        return
    for function in _scopes(tree):
        for loop in _loops(function):
            body = _flat(loop.body)
            passes = [call for one in body if _plain(one) for call in _calls_of(one, "backward")]
            steps = [call for one in body if _plain(one) for call in _steps(one)]
            if passes and steps:
                yield f"{unparse(steps[0])} without zero_grad()", steps[0]


# --- clipping -------------------------------------------------------------------------------------


def clipped_too_late(tree: ast.AST) -> Found:
    """Where gradients are clipped when the step has used them."""
    for function in _scopes(tree):
        for block in blocks(function):
            flat = [one for one in _flat(block) if _plain(one)]
            for at, one in enumerate(flat):
                before, behind = flat[:at], flat[at + 1 :]
                used = next(
                    (n for n in range(at - 1, -1, -1) if _steps(before[n]) or _calls_of(before[n], "backward")), -1
                )
                is_behind = used >= 0 and bool(_steps(before[used])) and not any(map(_steps, behind))
                if _clips(one) and is_behind and any(_calls_of(other, "backward") for other in before[:used]):
                    yield f"{unparse(_clips(one)[0])} behind step()", one


# --- what is kept as the best ---------------------------------------------------------------------


def kept_by_reference(tree: ast.AST) -> Found:
    """Where the state of a model that goes on to learn is kept without a copy, and loaded again behind the loop, or
    saved there as the best one."""
    for function in _scopes(tree):
        loaded = [call for one in function.body for call in _calls_of(one, "load_state_dict")]
        saved = [call for one in function.body for call in _calls_of(one, "save")]
        for loop in _loops(function):
            learns = re.search(r"\.step\(|\.backward\(|train\w*\(|fit\w*\(|epoch", unparse(loop))
            sometimes = {one for test in walk(loop) if isinstance(test, ast.If) for one in walk(test)}
            for node in inside(loop) if learns else ():
                for to, given in assigned(node):
                    name = to.id if isinstance(to, ast.Name) else ""
                    later = [*loaded, *(saved if node in sometimes else ())]
                    again = [c for c in later if name in _states_of(c) and c.lineno > _end(loop)]
                    if name and again and _is_state(given):
                        yield f"{name} = {unparse(given)}", node


def _states_of(call: ast.Call) -> list[str]:
    """What a call that loads or saves is given first, or the values of the dict that it is given."""
    first = call.args[0] if call.args else None
    return [unparse(one) for one in (first.values if isinstance(first, ast.Dict) else [first] if first else [])]


def _end(loop: Loop) -> int:
    return loop.end_lineno or loop.lineno


def _is_state(given: ast.expr) -> bool:
    """Whether it is ``model.state_dict()``, as it is or in a new dict of the same tensors."""
    if isinstance(given, ast.DictComp):
        held = unparse(given.value)
        same = re.fullmatch(r"\w+(\.(data|detach\(\)))*", held) is not None
        return same and "state_dict()" in unparse(given.generators[0].iter)
    if isinstance(given, ast.Call) and unparse(given.func) in ("dict", "OrderedDict", "copy.copy"):
        return len(given.args) == 1 and _is_state(given.args[0])
    return isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "state_dict"


_HIGH = re.compile(r"(float|np\.float64)\(['\"]\+?inf(inity)?['\"]\)|(math|np|torch|numpy)\.inf|1e\d+|10 \*\* \d+")
_LOW = re.compile(r"-(.+)|0|0\.0")


def worst_kept(tree: ast.AST) -> Found:
    """Where what is kept as the best begins above all numbers, and only a larger one would take its place, or the other
    way round; or where a loss takes the place of a smaller best one."""
    for function in _scopes(tree):
        nodes = [node for statement in function.body for node in inside(statement)]
        given = [(unparse(to), unparse(value)) for node in nodes for to, value in assigned(node)]
        first = dict(reversed(given))
        for test in (node for node in nodes if isinstance(node, ast.If)):
            for best, written in _worse_taken(test, first):
                if sum(name == best for name, _ in given) == 2:  # what begins at -1 may be set otherwise, too
                    yield written, test


def _worse_taken(test: ast.If, first: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(the name of the best, how a worse one takes its place)."""
    if not isinstance(test.test, ast.Compare) or len(test.test.ops) != 1:
        return
    left, right, sign = test.test.left, test.test.comparators[0], test.test.ops[0]
    if not isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return
    rises = isinstance(sign, ast.Gt | ast.GtE)
    for best, new, larger in ((right, left, rises), (left, right, not rises)):
        name, taken = unparse(best), unparse(new)
        kept = any(unparse(to) == name and unparse(value) == taken for one in test.body for to, value in assigned(one))
        begins = first.get(name, "")
        high, low = _HIGH.fullmatch(begins) is not None, _LOW.fullmatch(begins) is not None
        falls, gains = FALLS.search(taken) is not None, RISES.search(taken) is not None
        lowest = begins.startswith("-") and _HIGH.fullmatch(begins[1:]) is not None
        never = (high and larger) or (lowest and not larger)
        is_best = "best" in name.lower()  # the largest loss may be asked for, too
        worse = is_best and falls != gains and falls == larger and (high or low) and not taken.startswith("-")
        if kept and (never or worse):
            yield name, f"{unparse(test.test)}, from {begins} on"


# --- schedules ------------------------------------------------------------------------------------

_EPOCHS = re.compile(r"(\w+\.)*(n_|num_|max_|total_)?epochs", re.IGNORECASE)
_LENGTHS = re.compile(r"T_max|total\w*|(num_)?training_steps|\w*steps|t_total|max_iters?")


def schedules_of_other_steps(tree: ast.AST) -> Found:
    """Where a schedule is as long as all batches of all epochs and is moved once an epoch or once a group of batches,
    or is as long as the epochs and is moved with each batch."""
    for function in _scopes(tree):
        products, schedules = _lengths(function), dict(_schedules(function))
        for outer in (loop for loop in _loops(function) if over_epochs(loop)):
            inner = [node for one in outer.body for node in inside(one) if isinstance(node, Loop)]
            in_batches = {_owner(call): call for loop in inner for call in _calls_of(loop, "step")}
            in_epochs = {_owner(call): call for call in _calls_of(outer, "step") if call not in in_batches.values()}
            in_epochs = {name: call for name, call in in_epochs.items() if name not in in_batches}
            asked = {called(one) for one in calls(outer)}
            of_others = [one for one in functions(tree) if one.name in asked]
            learns = any(_calls_of(one, "backward") for one in [*inner, *of_others])
            if not learns or any(_calls_of(one, "step", _SCHEDULE) for one in of_others):
                continue
            for name, made in schedules.items():
                counts = _counts(made, products)
                if counts == "batches" and name in in_epochs:
                    yield f"{name}.step() once an epoch, made by {_short(made)}", in_epochs[name]
                elif counts == "batches" and name in in_batches and (group := _group(in_batches[name], inner)):
                    if not _divides_a_count(function, group):
                        yield f"{name}.step() once in {group} batches, made by {_short(made)}", in_batches[name]
                elif counts == "epochs" and name in in_batches:
                    yield f"{name}.step() with each batch, made by {_short(made)}", in_batches[name]


def _group(call: ast.Call, loops: list[Loop]) -> str:
    """How many batches pass before a call, as it is written: ``accum`` of ``if (i + 1) % accum == 0``; "" for one."""
    for test in (one for loop in loops for one in walk(loop) if isinstance(one, ast.If)):
        if any(one is call for statement in test.body for one in walk(statement)):
            for one in walk(test.test):
                if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod):
                    return unparse(one.right)
    return ""


def _divides_a_count(function: Function, group: str) -> bool:
    """Whether something else than a loss is divided by the size of a group: a number of steps."""
    divisions = (
        node for node in walk(function) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv)
    )
    return any(unparse(one.right) == group and "loss" not in unparse(one.left) for one in divisions)


def _lengths(function: Function) -> set[str]:
    """The names of what is a number of epochs times a length, of what is computed of one, and of functions that read
    one."""
    found: set[str] = set()
    nodes = [node for one in function.body for node in inside(one)]
    for _ in range(3):  # warmup = total // 10, and what reads that
        for node in nodes:
            for to, given in assigned(node):
                if isinstance(to, ast.Name) and (_is_product(given) or _reads_any(given, found)):
                    found.add(to.id)
    inner = (one for node in function.body for one in walk(node) if isinstance(one, ast.FunctionDef))
    return found | {one.name for one in inner if _reads_any(one, found)}


def _reads_any(node: ast.AST, names: set[str]) -> bool:
    """Whether it computes with one of these names, or is one of them."""
    return any(isinstance(one, ast.Name) and one.id in names for one in walk(node))


def _is_product(value: ast.expr) -> bool:
    text = unparse(value)
    return (
        isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and "len(" in text and "epoch" in text.lower()
    )


def _schedules(function: Function) -> Iterator[tuple[str, ast.Call]]:
    for one in function.body:
        for node in inside(one):
            for to, given in assigned(node):
                for name in to.elts if isinstance(to, ast.Tuple) else [to]:
                    if isinstance(given, ast.Call) and _SCHEDULE.fullmatch(unparse(name)):
                        yield unparse(name), given


def _counts(made: ast.Call, products: set[str]) -> str:
    """ "batches" or "epochs", by what a schedule is told of its length; "" where that says neither."""
    given = [*made.args, *(word.value for word in made.keywords)]
    if any(_reads_any(one, products) or _is_product(one) for one in given):
        return "batches"
    lengths = [word.value for word in made.keywords if word.arg and _LENGTHS.fullmatch(word.arg)]
    if unparse(made.func).endswith("CosineAnnealingLR"):
        lengths += made.args[1:2]
    return "epochs" if any(_EPOCHS.fullmatch(unparse(one)) for one in lengths) else ""


def _short(made: ast.Call) -> str:
    text = unparse(made)
    return text if len(text) < 80 else text[:77] + "..."


def rates_in_whole_numbers(tree: ast.AST) -> Found:
    """Where the share of a warm-up that is over is divided without a rest: it is 0 until the last step."""
    for node in walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            by = re.fullmatch(r"(max\(1, )?([\w.]+_)?warm_?up\w*\)?", unparse(node.right).rpartition("self.")[2])
            if by and re.search(r"\b((\w+_)?(step|epoch|iter|iteration)(_\w+)?|it|[nsti])\b", unparse(node.left)):
                yield unparse(node), node


def plateau_turned_round(tree: ast.AST) -> Found:
    """Where ReduceLROnPlateau waits for a loss to rise, or for a share of hits to fall."""
    modes: dict[str, str] = {}
    for node in walk(tree):
        called = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        if called is not None and unparse(called.func).endswith("ReduceLROnPlateau"):
            given = [word.value for word in called.keywords if word.arg == "mode"] or called.args[1:2]
            said_so = given[0].value if given and isinstance(given[0], ast.Constant) else "" if given else "min"
            modes[unparse(node.targets[0])] = str(said_so)  # type: ignore[attr-defined]
    for node in walk(tree):
        is_step = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
        if is_step and len(node.args) == 1 and modes.get(unparse(node.func.value)):  # type: ignore[attr-defined]
            mode, said = modes[unparse(node.func.value)], unparse(node.args[0])  # type: ignore[attr-defined]
            falls, rises = (one.search(said) is not None for one in (FALLS, RISES))
            is_negative = isinstance(node.args[0], ast.UnaryOp) or said.startswith("1")  # type: ignore[attr-defined]
            if falls != rises and not is_negative and mode == ("max" if falls else "min"):
                yield f"{said} with mode={mode!r}", node


def steps_of_passes(tree: ast.AST) -> Found:
    """Where the number of a step, which a planned rate is asked for, goes up with each backward pass, the optimizer
    steps once for several, and the plan counts groups of them."""
    text = unparse(tree)
    planned = re.search(r"= .*(/|//) ?(\w+\.)?\w*accum\w*|ceil\(.*/ ?(\w+\.)?\w*accum", text)
    told: set[ast.AST] = set()
    for function in _scopes(tree) if planned else ():
        for outer in _loops(function):
            if not _steps(outer):
                continue
            asked = _asked_for_rates(outer)
            for inner in (one for one in inside(outer) if isinstance(one, Loop) and one is not outer):
                if not _calls_of(inner, "backward") or _steps(inner):
                    continue
                for node in inside(inner):
                    is_one = isinstance(node, ast.AugAssign) and unparse(node.value) == "1"
                    if is_one and node not in told and unparse(node.target) in asked:  # type: ignore[attr-defined]
                        told.add(node)
                        yield f"{unparse(node)} with each backward pass", node


def _asked_for_rates(loop: Loop) -> set[str]:
    """The names that a rate of learning is computed from: ``group["lr"] = lr_at(step, total)``."""
    found: set[str] = set()
    for node in walk(loop):
        for to, given in assigned(node):
            if re.search(r"\blr\b", unparse(to)) and isinstance(given, ast.Call):
                found |= {one.id for one in walk(given) if isinstance(one, ast.Name)}
    return found


# --- seeds ----------------------------------------------------------------------------------------

_RANDOM = re.compile(r"(random\.)?Random|(np\.|numpy\.)?(random\.)?(default_rng|RandomState)|manual_seed")
_LEARNS = re.compile(r"\w*(train|shuffl|augment|noise|batches)\w*", re.IGNORECASE)
_JUDGES = re.compile(r"val|valid|test|dev|eval|sampl|predict", re.IGNORECASE)


def epochs_alike(tree: ast.AST) -> Found:
    """Where each epoch makes a random generator anew from one seed, and hands it to what makes training batches."""
    for loop in (node for node in walk(tree) if isinstance(node, ast.For) and over_epochs(node)):
        if called(loop.iter) not in ("tqdm", "trange", "range", "count"):
            continue
        changes = {one.id for one in walk(loop.target) if isinstance(one, ast.Name)}
        for call in (one for one in walk(loop) if isinstance(one, ast.Call)):
            name = unparse(call.func)
            if not _LEARNS.fullmatch(name.rpartition(".")[2]) or _JUDGES.search(unparse(call)):
                continue
            given = [*call.args, *(word.value for word in call.keywords)]
            for made in (one for one in given if isinstance(one, ast.Call)):
                seeds = made.args[:1]
                if not seeds or not _RANDOM.fullmatch(unparse(made.func).removeprefix("torch.Generator().")):
                    continue
                if not any(isinstance(one, ast.Name) and one.id in changes for one in walk(seeds[0])):
                    yield unparse(made), made
        yield from _made_anew(loop, changes)
    yield from _drawn_from_one_seed(tree)


def _drawn_from_one_seed(tree: ast.AST) -> Found:
    """Orders of rows that a loop which learns draws with a generator of one seed each time."""
    for loop in (node for node in walk(tree) if isinstance(node, ast.For | ast.While) and _calls_of(node, "backward")):
        stored = {one.id for one in walk(loop) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        for call in (one for one in walk(loop) if called(one) in ("randperm", "permutation")):
            words = [word.value for word in call.keywords if word.arg == "generator"]  # type: ignore[attr-defined]
            for made in (one for one in words if isinstance(one, ast.Call) and called(one) == "manual_seed"):
                if not any(reads(made, name) for name in stored):
                    yield unparse(call), call


def _made_anew(loop: ast.For, changes: set[str]) -> Found:
    """Generators that a loop over epochs, which learns itself, makes from one seed and shuffles with."""
    if not _calls_of(loop, "backward"):
        return
    for statement in loop.body:
        for to, given in assigned(statement):
            if not isinstance(given, ast.Call) or not given.args or not isinstance(to, ast.Name):
                continue
            is_seeded = _RANDOM.fullmatch(unparse(given.func).removeprefix("torch.Generator()."))
            same = not any(isinstance(one, ast.Name) and one.id in changes for one in walk(given.args[0]))
            orders = rf"\b{to.id}\.(permutation|shuffle|sample)\(|randperm\([^)]*\b{to.id}\b"
            if is_seeded and same and re.search(orders, unparse(loop)):
                yield unparse(statement), statement


GRADIENTS = Slip(
    rule=thrown_away,
    asked="the gradients of the passes before a step",
    expected="all are used",
    got="cleared before the step",
    sentence="Gradients are cleared before a step has used them: what those passes taught is lost.",
    mend="Clear them once a step: behind step(), or before the first backward pass of the next one.",
    nothing="no gradients were seen that are cleared before their step",
)
OLD_GRADIENTS = Slip(
    rule=never_cleared,
    asked="the gradients of a step",
    expected="those of its own passes",
    got="the sum of all passes so far",
    sentence="Nothing clears the gradients: each step goes along the sum of all passes since the beginning.",
    mend="optimizer.zero_grad() once a step",
    nothing="no loop was seen that steps and clears no gradients",
)
CLIPPING = Slip(
    rule=clipped_too_late,
    asked="gradients that are clipped",
    expected="clipped before the step",
    got="clipped behind it",
    sentence="Gradients are clipped when the step has used them: the clipping does nothing.",
    mend="backward(), then clip, then step()",
    nothing="no gradients were seen that are clipped behind their step",
)
WHOLE = Slip(
    rule=rates_in_whole_numbers,
    asked="how the rate rises in the warm-up",
    expected="by a share in each step",
    got="a whole number of them",
    sentence="The step is divided by the warm-up without a rest: the rate is 0 until the warm-up is over.",
    mend="(step + 1) / warmup",
    nothing="no warm-up was seen that divides without a rest",
)
KEPT = Slip(
    rule=kept_by_reference,
    asked="the state that is kept",
    expected="a copy",
    got="the tensors that go on to learn",
    sentence="A state dict holds the model's own tensors: what is kept changes with every step, and is the last state.",
    mend="copy.deepcopy(model.state_dict())",
    nothing="no state was seen that is kept while its model learns on, and loaded again",
)
BEST = Slip(
    rule=worst_kept,
    asked="what is kept as the best",
    expected="the best so far",
    got="compared the wrong way round",
    sentence="The comparison stands the wrong way round: what is kept as the best is never the best.",
    mend="Less is better for a loss, from infinity on; more for a share of hits, from 0 on.",
    nothing="nothing was seen that is kept where it is the best so far",
)
SCHEDULES = Slip(
    rule=schedules_of_other_steps,
    asked="the steps of the schedule",
    expected="as many as it is made for",
    got="counted otherwise",
    sentence="The schedule is made for another number of steps than it makes: batches, groups of them and epochs are "
    "not as many.",
    mend="Step it with each batch if its length is epochs * len(loader), once a group or an epoch if it is those.",
    nothing="no schedule was seen whose length is said in batches or epochs",
)
PASSES = Slip(
    rule=steps_of_passes,
    asked="the number of the step that a rate is planned by",
    expected="that of the optimizer",
    got="counted with each backward pass",
    sentence="The step goes up with each backward pass, and the plan counts the optimizer's: it is over too soon.",
    mend="step += 1 behind optimizer.step()",
    nothing="no number of a step was seen that goes up with each backward pass",
)
PLATEAUS = Slip(
    rule=plateau_turned_round,
    asked="what the schedule waits for",
    expected="less of a loss, more of hits",
    got="the other way round",
    sentence="The schedule takes what gets better for a plateau: it lowers the rate while the model improves.",
    mend='mode="min" for a loss or an error, mode="max" for a share of hits',
    nothing="no schedule was seen that watches a measure whose name tells its direction",
)
EPOCHS = Slip(
    rule=epochs_alike,
    asked="the random numbers of an epoch",
    expected="others in each",
    got="from one seed in all",
    sentence="Each epoch makes the generator of its training batches anew from one seed: order and noise are always "
    "the same.",
    mend="make the generator once, in front of the loop",
    nothing="no generator of training batches was seen that each epoch makes anew",
)

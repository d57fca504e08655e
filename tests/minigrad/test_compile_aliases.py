"""Compiled functions and tensors that share memory: views after a change, arguments given twice, gradients alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigrad as mg
from minigrad import compile


def _both(make, calls=3):
    """What the function returns, and its tensors, after each call: eager and compiled."""
    found = []
    for wrap in (lambda function: function, compile):
        function, arguments, kept = make()
        function, seen = wrap(function), []
        for _ in range(calls):
            given = arguments()
            returned = [tensor.tolist() for tensor in function(*given)]
            seen.append((returned, [tensor.tolist() for tensor in (*given, *kept)]))
        found.append(seen)
    return found


def _view_of_an_argument():
    def function(x):
        view = x[0]
        x.add_(1)
        return view, x

    return function, lambda: [mg.ones(3)], []


def _view_that_was_changed_itself():
    def function(x):
        made = x * 2
        part = made[1:]
        part.mul_(3)
        first = part[0]
        first.add_(1)
        return made, part, first

    return function, lambda: [mg.ones(3)], []


def _view_of_what_is_captured():
    weight = mg.arange(4.0)
    views = weight[:2], weight[1:]

    def function(x):
        views[0].add_(x)
        views[1].mul_(2)
        weight[0] = x
        return views[0], views[1], weight

    return function, lambda: [mg.tensor(3.0)], [weight]


def _argument_given_twice():
    x = mg.ones(3)

    def function(a, b):
        a.add_(1)
        return a + b, b

    return function, lambda: [x, x], []


def _argument_and_its_view():
    x = mg.ones(3)

    def function(a, b):
        a.add_(1)
        return (b * 2,)

    return function, lambda: [x, x[1:]], []


def _argument_that_is_captured():
    x = mg.ones(3)

    def function(a):
        a.add_(1)
        return (x * 2,)

    return function, lambda: [x], []


def _captured_view_of_an_argument():
    x = mg.ones(3)
    view = x[1:]

    def function(a):
        view.add_(1)
        return (a * 2,)

    return function, lambda: [x], [view]


@pytest.mark.parametrize(
    "make",
    [
        _view_of_an_argument,
        _view_that_was_changed_itself,
        _view_of_what_is_captured,
        _argument_given_twice,
        _argument_and_its_view,
        _argument_that_is_captured,
        _captured_view_of_an_argument,
    ],
)
def test_a_change_is_seen_through_all_that_shares_the_memory(make):
    eager, compiled = _both(make)
    assert compiled == eager


def test_memory_that_changed_under_another_name_is_refused():
    """detach() outside gives a tensor of its own, which the trace cannot follow."""
    weight = mg.ones(3)
    other = weight.detach()

    @compile
    def function(x):
        before = other * x
        weight.add_(1)
        return before, other * x

    with pytest.raises(RuntimeError, match="shares memory with a tensor that this trace changed in place"):
        function(mg.ones(3))


def test_gradients_can_be_changed_inside_and_outside():
    """Eagerly each has memory of its own, though all of them have the same values."""
    a, b, c = (mg.ones(3, requires_grad=True) for _ in range(3))
    seed = mg.ones(3) * 5

    @compile
    def function(x):
        a.grad = b.grad = c.grad = None
        ((a + b) * x).sum().backward()
        (c * 1.0).backward(seed)
        with mg.no_grad():
            a.grad.mul_(2)

    for _ in range(2):
        function(mg.ones(3) * 3)
        assert (a.grad.tolist(), b.grad.tolist()) == ([6.0] * 3, [3.0] * 3)
        b.grad.zero_()
        c.grad.zero_()
        assert (a.grad.tolist(), seed.tolist()) == ([6.0] * 3, [5.0] * 3)


def test_equal_gradients_of_two_leaves_share_no_memory():
    a, b = (mg.ones(3, requires_grad=True) for _ in range(2))

    @compile
    def function(x):
        a.grad = b.grad = None
        ((a + b) * x).sum().backward()

    function(mg.ones(3) * 3)
    b.grad.zero_()
    assert a.grad.tolist() == [3.0] * 3


def test_a_gradient_that_is_one_number_everywhere_has_its_own_elements():
    a, b = (mg.ones(3, requires_grad=True) for _ in range(2))

    @compile
    def function():
        a.grad = b.grad = None
        (a + b).sum().backward()
        with mg.no_grad():
            a.grad[0] = 7.0

    for _ in range(2):
        function()
        b.grad[1] = 4.0
        assert (a.grad.tolist(), b.grad.tolist()) == ([7.0, 1.0, 1.0], [1.0, 4.0, 1.0])


MOVES = {  # views, copies, and what is either: that depends on the strides
    "transpose": lambda x: x.transpose(0, -1),
    "flatten": lambda x: x.reshape(-1),
    "pairs": lambda x: x.reshape(-1, 2) if x.numel() % 2 == 0 else x,
    "heads": lambda x: x.reshape(2, -1, 2) if x.numel() % 4 == 0 else x,
    "contiguous": lambda x: x.contiguous(),
    "slice": lambda x: x[1:],
    "steps": lambda x: x[..., ::2],
    "new axis": lambda x: x.unsqueeze(1),
    "double": lambda x: x * 2.0,
    "sum": lambda x: x + x.flatten()[0],
    "largest": lambda x: mg.maximum(x, x.amax(0)),
    "taken": lambda x: x[..., mg.tensor([0, 0])],
}
CHANGES = {
    "add": lambda x: x.add_(1.0),
    "mul": lambda x: x.mul_(0.5),
    "part": lambda x: x[:1].mul_(3.0),
    "set": lambda x: x.__setitem__(0, 0.25),
}
ARGUMENTS = {
    "rows": lambda x: x,
    "columns": lambda x: x.transpose(0, 1),
    "gaps": lambda x: x[:, ::2],
}
changing_programs = st.lists(st.tuples(st.sampled_from([*MOVES, *CHANGES]), st.integers(0, 99)), min_size=2, max_size=7)


def _run(program, x, weight):
    values = [x, weight * x.flatten()[0]]
    for name, which in program:
        value = values[which % len(values)]
        if name in CHANGES:
            CHANGES[name](value)
        elif value.ndim and value.numel() > 1:
            values.append(MOVES[name](value))
    return values


def _changing(program, layout):
    def make():
        weight = mg.arange(6.0).reshape(2, 3).transpose(0, 1)
        given = ARGUMENTS[layout](mg.arange(16.0).reshape(4, 4) / 8)
        return lambda x: _run(program, x, weight), lambda: [given], [weight]

    return make


@settings(deadline=None, max_examples=30)
@given(changing_programs, st.sampled_from(sorted(ARGUMENTS)))
def test_a_reshape_is_a_view_where_it_is_one_eagerly(program, layout):
    eager, compiled = _both(_changing(program, layout))
    assert compiled == eager


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.reshape(-1), x.add_(1.0))[:1],  # a copy of a transposed argument
        lambda x: (x.transpose(0, 1).reshape(-1).add_(1.0), x),  # a view of one
        lambda x: (lambda y: (y.reshape(-1), y.add_(1.0)))(x * 2.0),  # numpy keeps the order of dimensions
        lambda x: (x.transpose(0, 1).contiguous().add_(1.0), x),
        lambda x: (x.transpose(0, 1).view(-1).add_(1.0), x),
    ],
)
def test_reshapes_of_a_transposed_argument(function):
    def make():
        given = mg.arange(6.0).reshape(2, 3).transpose(0, 1)
        return function, lambda: [given], []

    eager, compiled = _both(make)
    assert compiled == eager


def test_no_plan_is_made_for_what_always_runs_eagerly():
    step = compile(lambda x: (x.reshape(-1), x.add_(1.0))[:1])
    step(mg.arange(6.0).reshape(2, 3).transpose(0, 1))
    ((plan, stages),) = step.plans.values()
    assert plan is None
    assert [name for name, _ in stages] == ["trace"]


def test_a_plan_is_used_where_no_reshape_meets_a_change_in_place():
    step = compile(lambda x: (x * 2.0).reshape(-1).add_(1.0))
    x = mg.arange(6.0).reshape(2, 3).transpose(0, 1)
    step(x)
    step.function = None
    assert step(x).tolist() == [1.0, 7.0, 3.0, 9.0, 5.0, 11.0]

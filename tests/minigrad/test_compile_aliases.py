"""Compiled functions and tensors that share memory: views after a change, arguments given twice, gradients alike."""

import pytest

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

"""Optimizers and schedules: equal to torch's over ten steps, resumable, traceable; bad settings are refused."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3}),
]


def start(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((3, 2)), rng.standard_normal(4)]


def gradients(steps=10):
    """Gradients of both parameters for each step; the second has none in the third."""
    rng = np.random.default_rng(1)
    given = [[rng.standard_normal((3, 2)), rng.standard_normal(4)] for _ in range(steps)]
    given[2][1] = None
    return given


def run(optimizer, parameters, given, make):
    for step in given:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = None if gradient is None else make(gradient)
        optimizer.step()


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_ten_steps_equal_torch(name, settings):
    torch = pytest.importorskip("torch")
    own = [nn.Parameter(p) for p in start()]
    theirs = [torch.nn.Parameter(torch.tensor(p)) for p in start()]
    run(getattr(optim, name)(own, **settings), own, gradients(), mg.tensor)
    run(getattr(torch.optim, name)(theirs, **settings), theirs, gradients(), torch.tensor)
    for a, b in zip(own, theirs, strict=True):
        np.testing.assert_allclose(a.detach(), b.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_groups_have_settings_of_their_own():
    first, second = [nn.Parameter(p) for p in start()]
    groups = [{"params": [first], "weight_decay": 0.0}, {"params": second, "lr": 0.0}]
    optimizer = optim.AdamW(groups, lr=0.1, weight_decay=0.5)
    first.grad, second.grad = mg.zeros(3, 2, dtype=mg.float64), mg.ones(4, dtype=mg.float64)
    optimizer.step()
    np.testing.assert_array_equal(first.detach(), start()[0])
    np.testing.assert_array_equal(second.detach(), start()[1])


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_resuming_from_a_state_dict_is_exact(name, settings):
    whole = [nn.Parameter(p) for p in start()]
    run(getattr(optim, name)(whole, **settings), whole, gradients(), mg.tensor)
    half = [nn.Parameter(p) for p in start()]
    first = getattr(optim, name)(half, **settings)
    run(first, half, gradients()[:5], mg.tensor)
    second = getattr(optim, name)(half, lr=7.0)
    second.load_state_dict(first.state_dict())
    run(second, half, gradients()[5:], mg.tensor)
    for a, b in zip(whole, half, strict=True):
        np.testing.assert_array_equal(a.detach(), b.detach())


def test_a_compiled_step_continues_from_a_loaded_state():
    def prepared(rate):
        parameter = nn.Parameter(mg.ones(3))
        optimizer = optim.Adam([parameter], lr=mg.tensor(rate))

        def step(x):
            optimizer.zero_grad()
            (parameter * x).square().sum().backward()
            optimizer.step()

        return parameter, optimizer, step

    x = mg.tensor([1.0, 2.0, 3.0])
    (there, first, eager), (here, second, other) = prepared(0.1), prepared(0.5)
    compiled = mg.compile(other)
    for step in (compiled, compiled, eager):
        step(x)
    with mg.no_grad():
        here.copy_(there)
    second.load_state_dict(first.state_dict())
    for step in (eager, compiled):
        step(x)
    np.testing.assert_allclose(here.detach(), there.detach(), rtol=1e-6)
    assert second.state[here]["step"].item() == 2
    first.param_groups[0]["lr"].fill_(0.0)
    assert second.param_groups[0]["lr"].item() == pytest.approx(0.1)


def test_float32_parameters_stay_float32():
    for name in ("SGD", "Adam", "AdamW"):
        parameter = nn.Parameter(mg.ones(3))
        parameter.grad = mg.ones(3)
        optimizer = getattr(optim, name)([parameter], lr=0.1)
        optimizer.step()
        assert parameter.dtype == mg.float32
        assert all(value.dtype == mg.float32 for value in optimizer.state[parameter].values() if value.ndim)
        loaded = getattr(optim, name)([parameter], lr=0.1)
        loaded.load_state_dict(optimizer.state_dict())
        for key, value in loaded.state[parameter].items():
            assert value.dtype == optimizer.state[parameter][key].dtype


def test_zero_grad_forgets_or_fills():
    parameter = nn.Parameter(mg.ones(2))
    optimizer = optim.SGD([parameter])
    parameter.grad = mg.ones(2)
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(parameter.grad, [0.0, 0.0])
    optimizer.zero_grad()
    assert parameter.grad is None


def test_a_step_with_a_closure_returns_its_loss():
    parameter = nn.Parameter(mg.ones(2))
    optimizer = optim.SGD([parameter], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (parameter * parameter).sum()
        loss.backward()
        return loss

    with mg.no_grad():  # a closure records what it computes all the same
        assert optimizer.step(closure).item() == 2.0
    np.testing.assert_array_equal(parameter.detach(), [0.0, 0.0])


def test_an_update_can_be_traced():
    parameter = nn.Parameter(np.array([1.0, 2.0]))
    rate = mg.tensor(0.1, dtype=mg.float64)
    optimizer = optim.AdamW([parameter], lr=rate)

    def update(gradient):
        parameter.grad = gradient
        optimizer.step()

    graph = mg.trace(update)(mg.ones(2, dtype=mg.float64))
    changed = {id(tensor) for tensor, _ in graph.mutations}
    state = optimizer.state[parameter]
    assert changed == {id(parameter), *(id(value) for value in state.values())}
    np.testing.assert_array_equal(parameter.detach(), [1.0, 2.0])
    assert any(array is rate.array for array in graph.constants.values())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optim.SGD([]), "no parameters"),
        (lambda: optim.SGD([mg.ones(2)], lr=-1.0), "lr must not be negative"),
        (lambda: optim.Adam([mg.ones(2)], betas=(0.9, 1.0)), "betas must lie in"),
        (lambda: optim.SGD([mg.ones(2)], nesterov=True), "needs a momentum"),
        (lambda: optim.SGD([mg.ones(2)] * 2 + [PARAMETER] * 2), "given twice"),
        (lambda: optim.SGD([{"params": [mg.ones(2)], "beta": 1}]), "no setting beta"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


PARAMETER = mg.ones(3)


def test_only_leaves_can_be_optimized():
    with pytest.raises(TypeError, match="leaf tensors only, got a computed tensor"):
        optim.SGD([mg.ones(2, requires_grad=True) * 2.0])


def test_a_state_dict_of_other_groups_is_refused():
    one, two = optim.SGD([mg.ones(2)]), optim.SGD([mg.ones(2), mg.ones(2)])
    with pytest.raises(ValueError, match=r"groups of \[2\] parameters, this SGD has groups of \[1\]"):
        one.load_state_dict(two.state_dict())


# --- schedules ------------------------------------------------------------------------------------


def rates(schedule, steps):
    found = []
    for _ in range(steps):
        found.append(schedule.get_last_lr()[0])
        schedule.step()
    return found


def test_the_documents_warm_up_from_the_first_update_on():
    optimizer = optim.Adam([mg.ones(2)], lr=123.0)
    schedule = optim.NoamSchedule(optimizer, d_model=512, warmup=4)
    expected = [512**-0.5 * min(step**-0.5, step * 4**-1.5) for step in range(1, 11)]
    assert rates(schedule, 10) == pytest.approx(expected, rel=1e-15)
    assert np.argmax(expected) == 3


def test_step_zero_is_safe():
    assert optim.noam_rate(0, 512, 4000) == 0.0


def test_cosine_with_warmup():
    schedule = optim.CosineWithWarmup(optim.SGD([mg.ones(1)], lr=2.0), warmup=4, total=12, min_ratio=0.1)
    found = rates(schedule, 15)
    assert found[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert found[8] == pytest.approx(2.0 * 0.55)
    assert found[12:] == pytest.approx([0.2] * 3)


def test_lambda_schedule_fills_a_tensor_rate_in_place():
    rate = mg.tensor(0.5)
    schedule = optim.LambdaLR(optim.SGD([mg.ones(1)], lr=rate), lambda epoch: 0.5**epoch)
    schedule.step()
    assert rate.item() == 0.25


def test_a_schedule_resumes():
    make = lambda: optim.CosineWithWarmup(optim.SGD([mg.ones(1)], lr=2.0), warmup=2, total=9)  # noqa: E731
    first = make()
    rates(first, 4)
    second = make()
    second.load_state_dict(first.state_dict())
    assert rates(second, 3) == rates(first, 3)

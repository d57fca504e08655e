"""Compiled functions: equal to eager ones, pass by pass, over random programs; what changes outside is read live."""

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs, with_gradients

import minigrad as mg
from minigrad import functional as F
from minigrad import kernels, nn
from minigrad.compiler import compile, optimise
from minigrad.compiler.fusion import MOST_INPUTS, MOST_STEPS
from minigrad.compiler.memory import Buffer, place
from minigrad.compiler.plan import Plan
from minigrad.optim import AdamW
from minigrad.tracing.nests import flatten


def values(result):
    return [r.detach().numpy() for r in result if r is not None]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(program=programs, rows=st.integers(1, 5), columns=st.integers(1, 7), seed=st.integers(0, 50))
def test_compiled_equals_eager_on_random_programs(program, rows, columns, seed):
    rng = np.random.default_rng(seed)
    a, b = (mg.tensor(rng.standard_normal((rows, columns)), requires_grad=True) for _ in range(2))
    function = with_gradients(program)
    expected = values(function(a, b))
    compiled = compile(function)
    for _ in range(2):
        for got, want in zip(values(compiled(a, b)), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_compile_is_a_function_of_the_package():
    """As README has it; the compiler is imported when something is compiled."""
    code = "import sys, minigrad as mg; assert 'minigrad.compiler' not in sys.modules; x = mg.ones(3)\n"
    code += "assert mg.compile(lambda x: x * 2 + 1)(x).tolist() == [3.0] * 3; assert callable(mg.compile)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_groups_that_would_wait_for_each_other_are_not_fused():
    """Both could grow: one by a node that needs the other, the other by a node that needs it in turn."""

    def late(x, y):
        a, b = x * 2.0, y * 3.0
        b_after_a = b + a @ a
        a_after_b = a + (b - 1.0) @ (b - 1.0)
        return a_after_b, b_after_a

    def through(x, y):
        a, b = x * 2.0, y * 3.0
        outside = b @ b
        b_after_a = b + a @ a
        return a + outside, b_after_a, b - outside

    x, y = (mg.randn(4, 4) for _ in range(2))
    for function in (late, through):
        for got, want in zip(compile(function)(x, y), function(x, y), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(program=programs, rows=st.integers(1, 5), columns=st.integers(1, 7), seed=st.integers(0, 50))
def test_every_pass_keeps_the_values(program, rows, columns, seed):
    rng = np.random.default_rng(seed)
    a, b = (mg.tensor(rng.standard_normal((rows, columns)), dtype=mg.float32, requires_grad=True) for _ in range(2))
    stages = optimise(mg.trace(with_gradients(program))(a, b))
    arrays = [a.detach().numpy(), b.detach().numpy()]
    with np.errstate(all="ignore"):
        expected = stages[0][1].run(*arrays)
        for name, graph in stages[1:]:
            for got, want in zip(graph.run(*arrays), expected, strict=True):
                if want is not None:
                    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=name)
        plan = Plan(stages[-1][1])
        flat = plan.run(arrays)
    for got, want in zip(flat, [e for e in expected if e is not None], strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def model(seed=0):
    mg.manual_seed(seed)
    params = [mg.randn(16, 8), mg.zeros(16), mg.randn(4, 16), mg.ones(8), mg.zeros(8)]
    for p in params:
        p.requires_grad_()
    return params


def loss_of(params, x, y):
    w1, b1, w2, gain, shift = params
    return F.cross_entropy(F.linear(F.gelu(F.linear(F.layer_norm(x, 8, gain, shift), w1, b1)), w2), y)


def test_a_training_step_with_adamw_follows_the_eager_one():
    rng = np.random.default_rng(0)
    batches = [(mg.randn(6, 8), mg.tensor(rng.integers(0, 4, 6))) for _ in range(8)]
    histories = []
    for wrap in (lambda f: f, compile):
        params = model()
        optimizer = AdamW(params, lr=0.01)

        def step(x, y, params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = loss_of(params, x, y)
            loss.backward()
            optimizer.step()
            return loss

        run_step = wrap(step)
        histories.append([run_step(x, y).item() for x, y in batches])
    np.testing.assert_allclose(histories[0], histories[1], rtol=1e-5)


@pytest.mark.parametrize("keep", [2, 3])
def test_heads_cut_from_one_projection(keep):
    """Gradients of slices join in one array, which attention's derivative writes into."""
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((3 * 8, 8)) * 8**-0.5  # projections of unit variance: sums of terms that do not cancel
    weight = mg.tensor(drawn, dtype=mg.float32, requires_grad=True)
    x = mg.tensor(rng.standard_normal((2, 5, 8)), dtype=mg.float32, requires_grad=True)

    def attend(x, weight):
        heads = F.linear(x, weight).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[keep - 1], is_causal=True)
        loss = (mixed.transpose(1, 2).reshape(2, 5, 8) ** 2).sum()
        return loss, *mg.grad(loss, [x, weight])

    expected = values(attend(x, weight))
    compiled = compile(attend)
    for _ in range(2):
        for got, want in zip(values(compiled(x, weight)), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=5e-5)
    ((_, stages),) = compiled.plans.values()
    assert any(node.op == "join" for node in stages[-1][1]) == (keep == 3)  # key and value in one slice overlap


def test_a_parameter_read_through_another_tensor_keeps_its_old_value_until_the_end():
    weight = mg.ones(3, requires_grad=True)
    alias = weight.detach()

    @compile
    def step(x):
        before = alias * 1.0
        with mg.no_grad():
            weight.sub_(x)
        return (before * x).sum()

    assert step(mg.tensor([1.0, 2.0, 3.0])).item() == 6
    np.testing.assert_array_equal(alias.numpy(), [0, -1, -2])


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("new", [lambda w: w * 2.0 + 1.0, lambda w: w * w[0] + 1.0, lambda w: w.T * 2.0 + 1.0])
def test_an_update_is_written_where_its_old_value_is_not_needed_any_more(new, late):
    start, x = mg.randn(4, 4, generator=mg.Generator(1)), mg.randn(4, 2, generator=mg.Generator(2))
    weight = start.clone()

    def step(x):
        value = new(weight)
        product = (weight if late else value) @ x
        weight.copy_(value)
        return product

    compiled = compile(step)
    compiled(x)
    found = []
    for run in (step, compiled):
        weight.copy_(start)
        found.append((run(x).numpy(), weight.numpy().copy()))
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_plan_is_for_one_layout_and_one_mode_of_gradients():
    doubled = compile(lambda x: (x.reshape(-1).mul_(2.0), x + 0.0)[1])
    for x, factor in ((mg.ones(2, 3), 2.0), (mg.ones(3, 2).T, 1.0)):  # of the second one, reshape makes a copy
        assert doubled(x).tolist() == [[factor] * 3] * 2
    recording = compile(lambda x: x * 2.0 if mg.is_grad_enabled() else x * 3.0)
    assert recording(mg.ones(1)).item() == 2.0
    with mg.no_grad():
        assert recording(mg.ones(1)).item() == 3.0
    gradient = compile(lambda x: mg.grad(x.square().sum(), x) if x.requires_grad else x * 0.0)
    assert gradient(mg.ones(1)).item() == 0.0
    assert gradient(mg.ones(1, requires_grad=True)).item() == 2.0


@pytest.mark.slow
def test_what_a_replay_changed_is_known_to_have_changed():
    weight, x = mg.ones(2, requires_grad=True), mg.ones(2)

    @compile
    def step(x):
        (weight * x).sum().backward()
        with mg.no_grad():
            weight.sub_(weight.grad)
        weight.grad = None

    step(x)
    product = (weight * weight).sum()
    weight.grad = mg.zeros(2)
    step(x)
    assert weight.grad is None
    with pytest.raises(RuntimeError, match="changed in place after it was saved"):
        product.backward()


def test_parameters_and_learning_rate_are_read_live():
    (weight,) = params = [mg.ones(3, requires_grad=True)]
    rate = mg.tensor(0.5)

    @compile
    def step(x):
        loss = (weight * x).sum()
        (gradient,) = mg.grad(loss, params)
        with mg.no_grad():
            weight.sub_(gradient * rate)
        return loss

    x = mg.tensor([1.0, 2.0, 3.0])
    assert step(x).item() == 6
    np.testing.assert_allclose(weight.detach().numpy(), [0.5, 0, -0.5])
    with mg.no_grad():
        weight.fill_(1.0)
    rate.fill_(0.0)
    assert step(x).item() == 6
    np.testing.assert_array_equal(weight.detach().numpy(), 1)


def test_a_cache_takes_an_entry_in_place():
    cache = mg.zeros(4, 3)

    @compile
    def append(row, position):
        cache[position] = row
        return cache.sum(0)

    with mg.no_grad():
        for i in range(4):
            total = append(mg.full((3,), i + 1.0), mg.tensor(i))
    np.testing.assert_array_equal(cache.numpy(), [[1] * 3, [2] * 3, [3] * 3, [4] * 3])
    np.testing.assert_array_equal(total.numpy(), 10)
    ((plan, _),) = append.plans.values()
    assert np.shares_memory(plan.values[plan.graph.mutations[0][1]], cache.numpy())
    append(mg.full((3,), 9.0), mg.tensor(-1))
    np.testing.assert_array_equal(cache.numpy(), [[1] * 3, [2] * 3, [3] * 3, [9] * 3])
    for outside in (4, -5):
        with pytest.raises(IndexError, match="a position to be written is out of range"):
            append(mg.full((3,), 7.0), mg.tensor(outside))


def test_new_memory_of_a_parameter_is_noticed():
    weight = mg.ones(3)
    total = compile(lambda x: (weight * x).sum())
    assert total(mg.ones(3)).item() == 3
    weight.data = mg.tensor([2.0, 2.0, 2.0])
    assert total(mg.ones(3)).item() == 6


def test_gradients_left_by_the_function_appear():
    weight = mg.ones(3, requires_grad=True)

    @compile
    def step(x):
        weight.grad = None
        (weight * x).sum().backward()

    step(mg.tensor([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(weight.grad.numpy(), [1, 2, 3])


def test_random_numbers_change_from_call_to_call_and_follow_the_seed():
    dropped = compile(lambda x: F.dropout(x, 0.5))
    x = mg.ones(50)
    mg.manual_seed(3)
    eager = [F.dropout(x, 0.5).numpy() for _ in range(3)]
    mg.manual_seed(3)
    compiled = [dropped(x).numpy() for _ in range(3)]
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_shape_is_traced_anew():
    double = compile(lambda x: x * 2)
    assert double(mg.ones(2)).shape == (2,)
    assert double(mg.ones(2, 3)).shape == (2, 3)
    assert double(mg.ones(2)).shape == (2,)
    assert len(double.plans) == 2


def test_the_plans_used_last_are_kept():
    traced = []

    def double(x):
        traced.append(len(x))
        return x * 2.0

    compiled = compile(double, keep=2)
    for size in (1, 2, 1, 3, 1, 2):
        np.testing.assert_array_equal(compiled(mg.ones(size)).numpy(), np.full(size, 2.0))
        assert len(compiled.plans) <= 2
    assert traced == [1, 2, 3, 2]  # 3 took the place of 2, which was used before 1
    with pytest.raises(ValueError, match="at least 1 plan, got 0"):
        compile(double, keep=0)


class Times:
    """An object that does not say what it holds."""

    def __init__(self, factor):
        self.factor = factor

    def __repr__(self):
        return "Times()"


def test_arguments_that_are_no_tensors_have_plans_of_their_own():
    x = mg.ones(2)
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    assert repr(first) == repr(second)
    apply = compile(lambda module, x: module(x))
    for module in (first, second, first):
        assert mg.allclose(apply(module, x), module(x))
    scale = compile(lambda times, x: x * times.factor)
    assert [scale(Times(k), x)[0].item() for k in (2.0, 3.0)] == [2.0, 3.0]
    power = compile(lambda x, k: x.long() ** k)
    assert [power(x, k).dtype for k in (1, 1.0, True)] == [mg.int64, mg.float32, mg.int64]
    times = compile(lambda x, k: x.long() * k)
    assert [times(x, k).dtype for k in (np.int64(1), np.float32(1), np.bool_(True))] == [mg.int64, mg.float32, mg.int64]
    under = compile(lambda x, k: x / k)
    assert [under(x, k)[0].item() for k in (0.0, -0.0, np.float32(0.0), np.float32(-0.0))] == [np.inf, -np.inf] * 2
    assert [under(x, np.float32("nan")).isnan().all().item() for _ in range(2)] == [True, True]
    assert len(under.plans) == 5


def test_a_missing_argument_is_told_from_a_tensor_in_its_place():
    either = compile(lambda a, b: b * 2.0 if a is None else a * 1.0)
    x = mg.ones(1)
    assert either(x, None).item() == 1.0
    assert either(None, x).item() == 2.0


def test_an_array_among_the_arguments_is_refused():
    with pytest.raises(TypeError, match="pass a tensor"):
        compile(lambda x, array: x + mg.tensor(array))(mg.ones(2), np.ones(2))


def test_a_change_of_an_argument_is_seen_by_the_caller():
    """Its values, also through a view and where the result is the argument itself; and the gradient left in it."""

    def changes(x, y):
        x[1:] += y
        x.mul_(2.0)
        return x, y.sum()

    function = compile(changes)
    for _ in range(3):
        x, y = mg.ones(3), mg.tensor([1.0, 2.0])
        out, total = function(x, y)
        assert x.tolist() == out.tolist() == [2.0, 4.0, 6.0]
        assert (y.tolist(), total.item()) == ([1.0, 2.0], 3.0)

    differentiate = compile(lambda x: (x * x).sum().backward())
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    for times in (1.0, 2.0, 3.0):
        differentiate(x)
        assert x.grad.tolist() == [2.0 * times, 4.0 * times]


def test_threads_share_a_function_of_few_plans():
    """Eight threads, plans for two shapes at a time: every result is that of its own input."""
    function = compile(lambda x: ((x @ x.T).softmax(-1) * 2.0).sum(0), keep=2)
    inputs = [mg.randn(n, 4) for n in (2, 3, 4)]
    wanted = [((x @ x.T).softmax(-1) * 2.0).sum(0).numpy() for x in inputs]

    def work(_):
        return [function(x).numpy() for x in inputs]

    with ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            for got, want in zip(results, wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5)


def test_threads_get_the_gradients_of_their_own_arguments():
    weight = mg.randn(64, 64)

    def step(x):
        ((x @ weight).tanh() @ weight).sum().backward()

    function, inputs = compile(step), [mg.randn(64, 64, requires_grad=True) for _ in range(4)]
    for x in inputs:
        step(x)

    def work(x):
        for _ in range(100):
            twin = x.detach().clone().requires_grad_()
            function(twin)
            np.testing.assert_allclose(twin.grad, x.grad, atol=1e-3)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, inputs))


def resident():
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [compile, lambda step: step], ids=["compiled", "eager"])
def test_a_thousand_steps_need_no_memory(how):
    """Neither objects nor bytes: a step frees all that it made, without the garbage collector's help."""
    layer, norm = nn.Linear(8, 8), nn.LayerNorm(8)
    optimizer = AdamW([*layer.parameters(), *norm.parameters()])

    def train(x):
        optimizer.zero_grad()
        loss = F.dropout(norm(layer(x)).relu(), 0.1).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        return loss

    step, x = how(train), mg.randn(4, 8)
    for _ in range(300):
        step(x)
    gc.collect()
    gc.disable()
    try:
        objects, growth = len(gc.get_objects()), []
        for _ in range(3):  # a leak grows every time, a heap that other tests left in pieces does not
            memory = resident()
            for _ in range(1000):
                step(x)
            growth.append(resident() - memory)
        assert len(gc.get_objects()) - objects < 20
        assert min(growth) < 2**22  # a leak of 4 kB a step
    finally:
        gc.enable()


def test_an_output_is_a_copy():
    double = compile(lambda x: x * 2)
    first = double(mg.ones(2))
    double(mg.zeros(2))
    np.testing.assert_array_equal(first.numpy(), 2)


def test_looking_at_values_is_refused():
    with pytest.raises(RuntimeError, match="traced"):
        compile(lambda x: x if x.sum() > 0 else -x)(mg.ones(2))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 10)), max_size=40))
def test_no_two_living_buffers_overlap(spans):
    buffers = [Buffer(size, start, start + length) for size, start, length in spans]
    offsets, total = place(buffers)
    for i, (a, at) in enumerate(zip(buffers, offsets, strict=True)):
        assert at % 64 == 0
        assert at + a.size <= total
        for b, there in zip(buffers[:i], offsets[:i], strict=True):
            if a.start <= b.stop and b.start <= a.stop:
                assert at + a.size <= there or there + b.size <= at


@pytest.mark.parametrize("mode", ["always", "reference"])
def test_a_replayed_plan_refuses_ids_and_targets_outside_their_range(mode):
    """The values were unknown when the step was traced; a kernel that trusted them would read and write any memory."""
    table = mg.randn(3, 4, generator=mg.Generator(0))

    def loss(ids, targets):
        return F.cross_entropy(F.embedding(ids, table), targets, ignore_index=-1)

    good = mg.tensor([0, 2]), mg.tensor([3, -1])
    with kernels.use(mode):
        compiled = compile(loss)
        assert compiled(*good).item() == pytest.approx(loss(*good).item(), rel=1e-6)
        for bad in (3, -1):
            with pytest.raises(IndexError, match=f"embedding: id {bad} is outside the vocabulary of 3"):
                compiled(mg.tensor([0, bad]), good[1])
        for bad in (4, -2):
            with pytest.raises(ValueError, match=f"cross_entropy: target {bad} is not a class id from 0 to 3"):
                compiled(good[0], mg.tensor([0, bad]))


def test_a_fused_result_overwrites_an_input_that_nothing_reads_later():
    a, b = (mg.tensor(np.random.default_rng(i).standard_normal((6, 6)), dtype=mg.float32) for i in range(2))

    def step(a, b):
        product = a @ b
        raised = mg.exp(product) * 0.5  # the product's last use: takes its place
        kept = a.transpose(0, 1) @ raised
        return kept + 1.0, kept.transpose(0, 1) * 2.0  # read twice, once turned: stays where it is

    plan = Plan(optimise(mg.trace(step)(a, b))[-1][1])
    products = [plan.values[node, 0] for node in plan.graph.nodes if node.op == "matmul"]
    fused = [plan.values[node, i] for node in plan.graph.nodes if node.op == "fused" for i in range(len(node.outputs))]
    assert [any(np.shares_memory(f, p) for f in fused) for p in products] == [True, False]
    for _ in range(2):
        for got, want in zip(plan.run([a.numpy(), b.numpy()]), step(a, b), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5)


def test_a_fused_result_overwrites_no_input_of_which_it_reads_another_view():
    a = mg.randn(6, 6, generator=mg.Generator(0))

    def step(a):
        product = a @ a
        return product * product[0] + 1.0

    np.testing.assert_allclose(compile(step)(a), step(a), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 1), (2, 1, 4), (2, 3, 1), (1, 3, 4), (2, 1, 1), (1, 1, 1), (4,)])
def test_fused_ops_spread_an_input_over_any_dimensions(shape):
    x, other = mg.randn(2, 3, 4), mg.randn(*shape)

    def step(x, other):
        return (x * 2.0 + other).square()

    np.testing.assert_allclose(compile(step)(x, other), step(x, other), rtol=1e-5, atol=1e-6)


def test_fused_kernels_do_not_grow_with_the_program():
    """Compiling one takes longer than in proportion: a sum of 300 numbers, 300 results of one array, a long formula."""

    def program(x, *numbers):
        total = x
        for i in range(200):
            total = total * 0.5 + (x if i % 2 else total.tanh())
        return total, sum(numbers[1:], numbers[0]), [x * number for number in numbers]

    rng = np.random.default_rng(0)
    arguments = [mg.tensor(rng.standard_normal(5).astype(np.float32))]
    arguments += [mg.tensor(float(value)) for value in rng.standard_normal(300)]
    after = optimise(mg.trace(program)(*arguments))[-1][1]
    fused = [node for node in after.nodes if node.op == "fused"]
    assert max(len(node.attrs["body"]) for node in fused) == MOST_STEPS
    assert max(sum(edge[0].op != "literal" for edge in node.inputs) for node in fused) == MOST_INPUTS
    (first, second, others), wanted = after.run(*arguments), flatten(program(*arguments))[0]
    for result, want in zip([first, second, *others], wanted, strict=True):
        np.testing.assert_allclose(result, want.numpy(), rtol=1e-4, atol=1e-5)

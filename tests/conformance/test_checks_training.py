"""The checks of the engine, networks, training and decoding: the reference passes, each mutant dies, oracles agree."""

from __future__ import annotations

import numpy as np
import pytest

import conformance.checks  # noqa: F401  (registers the checks)
from conformance.adapters.reference import ReferenceImplementation
from conformance.adapters.reference.engine import Engine
from conformance.check import CHECKS
from conformance.differences import differences
from conformance.draw import Draw, Pinned, Seeded
from conformance.mutants import MUTANTS
from conformance.programs import OPS, evaluate, free_names, gradients, step
from conformance.reference import decoding, engine, training
from conformance.runner import evidence_of

TOPICS = ("engine", "networks", "training", "optimization", "decoding")
CLAIMS = sorted(c for c in CHECKS if CHECKS[c].function.__module__.rpartition(".")[2] in TOPICS)
ZOO = sorted(name for name, m in MUTANTS.items() if m.topic in TOPICS)
# fmt: off
PUBLISHED = {
    "S02", "S03", "S06", "S07", "W02", "W03", "O03", "O07", "D01", "D02", "D05", "D08", "D09",
    "G01", "G04", "G05", "G08", "G10", "G12",
}
# fmt: on
"""Numbers of the published list of mutants whose component is one of these topics."""


class InDtype(ReferenceImplementation):
    """The reference computing in one dtype."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def build(self, role, config):
        return self.classes[role](config, self.dtype)


def kills(claim, mutant):
    """Whether the check of `claim` catches the mutant, by evidence or because it could not run."""
    with np.errstate(all="ignore"):
        try:
            return not evidence_of(CHECKS[claim], mutant.implementation())[0].ok
        except Exception:
            return True


# --- checks and mutants -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("claim", CLAIMS)
def test_the_reference_keeps_every_claim(claim, dtype):
    """On unseen draws too, and with every precondition met by some example."""
    bitten = {}
    draws = [Draw(Pinned()), *(Draw(Seeded(seed)) for seed in range(1000, 1000 + CHECKS[claim].examples))]
    for draw in draws:
        evidence = CHECKS[claim].function(InDtype(dtype), draw)
        assert evidence.ok, (draw.values, evidence)
        bitten = {what: held or bitten.get(what, False) for what, held in draw.bitten.items()}
    assert all(bitten.values()), bitten


@pytest.mark.parametrize("name", ZOO)
def test_every_mutant_dies_by_the_claims_it_breaks(name):
    mutant = MUTANTS[name]
    survived = [claim for claim in mutant.breaks if not kills(claim, mutant)]
    assert not survived, f"{mutant.defect} survives {survived}"


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_check_kills_a_mutant_that_breaks_its_claim(claim):
    assert any(claim in mutant.breaks for mutant in MUTANTS.values())


def test_the_published_mutants_are_here():
    assert {m.known_as for m in MUTANTS.values()} >= PUBLISHED


# --- the program language -----------------------------------------------------------------------------


def test_step_completes_its_keywords():
    assert step("y", "sum", "x", dim=1) == ("y", "sum", ("x",), {"dim": 1, "keepdim": False})


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (("y", "convolve", "x"), {}, "no op 'convolve'"),
        (("y", "add", "x"), {}, "add takes 2 tensors, got 1"),
        (("y", "cat"), {"dim": 0}, "cat takes one or more tensors, got 0"),
        (("y", "sum", "x"), {"axis": 0}, "sum has no keyword axis"),
        (("y", "softmax", "x"), {}, "softmax needs a value for dim"),
    ],
)
def test_step_refuses_what_the_language_does_not_have(arguments, keywords, message):
    with pytest.raises(ValueError, match=message):
        step(*arguments, **keywords)


def test_free_names_are_the_inputs_in_order_of_use():
    assert free_names((step("z", "matmul", "x", "w"), step("y", "add", "z", "b"))) == ("x", "w", "b")


@pytest.mark.parametrize("program", [("y", "y"), ("x",)])
def test_a_name_is_defined_once(program):
    with pytest.raises(ValueError, match="already in use"):
        free_names(tuple(step(name, "neg", "x") for name in program))


def test_every_op_is_exercised_by_the_check_of_every_op():
    from conformance.checks.engine import CASES

    assert {op for program in CASES.values() for _, op, _, _ in program} == set(OPS)


def test_an_input_without_influence_has_a_gradient_of_zeros():
    program = (step("unused", "exp", "x"), step("y", "neg", "w"))
    inputs = {"x": np.ones((2, 3)), "w": np.ones(2)}
    subject = ReferenceImplementation().build("autograd", {"program": program})
    got, params = subject.vjp(inputs, np.ones(2))
    assert params == {}
    np.testing.assert_array_equal(got["x"], np.zeros((2, 3)))
    np.testing.assert_array_equal(gradients(program, inputs)["x"], np.zeros((2, 3)))


def test_integers_and_masks_have_no_gradient():
    program = (step("rows", "index_select", "x", "i", dim=0), step("y", "masked_fill", "rows", "m", value=0.0))
    inputs = {"x": np.ones((3, 2)), "i": np.array([0, 2]), "m": np.array([True, False])}
    subject = ReferenceImplementation().build("autograd", {"program": program})
    assert set(subject.vjp(inputs, np.ones((2, 2)))[0]) == {"x"} == set(gradients(program, inputs))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_have_the_gradient_of_their_differences(seed):
    """Programs of ten steps over a pool of values, each result usable again: order, sharing and broadcasting."""
    rng = np.random.default_rng(seed)
    inputs = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=(3,)), "c": rng.normal(size=(2, 1))}
    names, program = list(inputs), []
    for i in range(10):
        op = rng.choice(["add", "mul", "sub", "tanh", "sigmoid", "gelu", "softmax", "layer_norm"])
        x, z = rng.choice(names, 2)
        if op in ("add", "mul", "sub"):
            program.append(step(f"v{i}", op, x, z))
        elif op == "softmax":
            program.append(step(f"v{i}", op, x, dim=-1))
        elif op == "layer_norm":
            program.append(step(f"v{i}", op, x, z if z == "b" else "b", "b", eps=0.5))
        else:
            program.append(step(f"v{i}", op, x))
        names.append(f"v{i}")
    program.append(step("out", "add", names[-1], names[-2]))
    used = {name: inputs[name] for name in free_names(program)}
    cotangent = rng.normal(size=evaluate(tuple(program), used).shape)
    got, _ = ReferenceImplementation().build("autograd", {"program": tuple(program)}).vjp(used, cotangent)
    for name, want in gradients(tuple(program), used, cotangent).items():
        np.testing.assert_allclose(got[name], want, rtol=1e-6, atol=1e-7)


# --- reference formulas, against hand-computed numbers -------------------------------------------------


def test_differences_restore_what_they_move():
    x = np.array([1.0, -2.0])
    np.testing.assert_allclose(differences(lambda: float(np.sum(x**3)), x), [3.0, 12.0], rtol=1e-8)
    np.testing.assert_array_equal(x, [1.0, -2.0])


@pytest.mark.parametrize("op", ["relu", "sigmoid", "tanh", "gelu", "silu"])
def test_derivatives_agree_with_differences(op):
    x = np.array([-2.0, -0.3, 0.4, 1.7])
    want = gradients((step("y", op, "x"),), {"x": x})["x"]
    np.testing.assert_allclose(engine.derivative(op, x), want, atol=1e-8)


@pytest.mark.parametrize("over", ["all", "others"])
def test_cross_entropy_gradient_agrees_with_differences(over):
    rng = np.random.default_rng(0)
    logits, targets = rng.normal(size=(4, 5)), np.array([1, 0, 4, 0])
    config = {"ignore_index": 0, "label_smoothing": 0.2, "smoothing_over": over}
    want = differences(lambda: float(training.cross_entropy(logits, targets, **config)), logits)
    np.testing.assert_allclose(training.cross_entropy_gradient(logits, targets, **config), want, atol=1e-9)


def test_smoothed_targets_of_both_conventions():
    target = np.array([2])
    np.testing.assert_allclose(training.smoothed_targets(target, 5, 0.1, "all"), [[0.02, 0.02, 0.92, 0.02, 0.02]])
    np.testing.assert_allclose(training.smoothed_targets(target, 5, 0.1, "others"), [[0.025, 0.025, 0.9, 0.025, 0.025]])


def test_momentum_and_coupled_decay_of_sgd():
    config = {"kind": "sgd", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.2, "betas": (0.9, 0.999), "eps": 1e-8}
    history = training.optimize([np.array([1.0])], [[np.array([1.0])], [np.array([0.0])]], config)
    # v1 = 1 + 0.2, w1 = 1 - 0.12; v2 = 0.6 + 0.2 * 0.88, w2 = 0.88 - 0.1 v2
    np.testing.assert_allclose(np.ravel(history), [0.88, 0.8024])


@pytest.mark.slow
def test_optimizers_agree_with_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    start, grads = rng.normal(size=(3,)), rng.normal(size=(5, 3)) * 0.1
    for kind, make in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)):
        config = {"kind": kind, "lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "momentum": 0.0, "weight_decay": 0.3}
        options = {} if kind == "sgd" else {"betas": (0.8, 0.95), "eps": 1e-3}
        w = torch.nn.Parameter(torch.tensor(start))
        optimizer = make([w], lr=0.1, weight_decay=0.3, **options)
        for g, want in zip(grads, training.optimize([start], [[g] for g in grads], config), strict=True):
            w.grad = torch.tensor(g)
            optimizer.step()
            np.testing.assert_allclose(w.detach().numpy(), want[0], rtol=1e-12)


def test_a_temperature_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="temperature must be positive"):
        decoding.sampling_probabilities(np.zeros((1, 3)), temperature=0.0)


def test_greedy_decoding_stops_without_a_model_call_too_many():
    calls = []

    def model(ids):
        calls.append(ids.shape)
        return np.eye(4)[np.minimum(ids[:, -1] + 1, 3)]

    out = decoding.greedy_decode(model, np.array([[0], [2]]), 9, eos_id=3, pad_id=0)
    np.testing.assert_array_equal(out, [[0, 1, 2, 3], [2, 3, 0, 0]])
    assert calls == [(2, 1), (2, 2), (2, 3)]


class _ReshapesMemory(Engine):
    """What is reshaped are the elements in the order of memory, whatever was transposed before."""

    def value(self, op, arguments, keywords):
        if op == "reshape":
            return np.ravel(arguments[0], order="K").reshape(keywords["shape"])
        return super().value(op, arguments, keywords)


def test_a_reshape_that_forgets_a_transposition_is_seen():
    impl = ReferenceImplementation()
    impl.classes = {**impl.classes, "autograd": _ReshapesMemory}
    assert not evidence_of(CHECKS["every-op-has-the-gradient-of-its-value"], impl)[0].ok

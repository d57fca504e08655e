"""Checks of mixtures of experts: which experts a token goes through, and what they count."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.subjects import gradient_bound, loaded, offered, sum_bound
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, same
from conformance.protocol import Array, Arrays, Subject
from conformance.reference import feed_forward as f

ROLE = "mixture_of_experts"
LOGITS = np.array([1, 2, 3, 0, -1, 0.5, 0.25, 1.5])
CHOSEN, GATES, UNNORMALISED = [2, 1], [0.7310585786, 0.2689414214], [0.5153416032, 0.1895835810]


def sizes(draw: Draw) -> dict[str, int]:
    """More experts than a token uses; every size another in the pinned example."""
    n_experts = draw.int("E", 3, 6, 5)
    return {
        "d_model": draw.int("d_model", 2, 6, 4),
        "d_ff": draw.int("d_ff", 2, 7, 6),
        "n_experts": n_experts,
        "top_k": draw.int("k", 1, n_experts - 1, 2),
    }


def draw_tokens(draw: Draw, d_model: int) -> Array:
    return draw.normal("x", (draw.int("B", 1, 3, 2), draw.int("T", 1, 5, 3), d_model))


def logits_of(params: Arrays, x: Array) -> Array:
    """The router's logits ``(B * T, E)``."""
    return x.reshape(-1, x.shape[-1]) @ params["router.weight"].T


def bound_of(subject: Subject, params: Arrays, x: Array) -> float:
    """Rounding of an expert's output (gates are at most one), and of the gates by that of their logits."""
    outputs = [f.swiglu(f.expert(params, i), x) for i in range(len(params["router.weight"]))]
    size = max(float(np.abs(out).max()) for out in outputs)
    return sum_bound(subject, x, np.array([size]), logits_of(params, x) * size)


@check("one-expert-is-its-feed-forward-network", roles=(ROLE,))
def one_expert(impl: Any, draw: Draw) -> Evidence:
    """With one expert, and one a token, the layer is that expert: a feed-forward network of the same shape."""
    config = offered(impl, ROLE, {**sizes(draw), "n_experts": 1, "top_k": 1}, renormalise=(True, False))
    subject, params = loaded(impl, draw, ROLE, **config)
    x = draw_tokens(draw, config["d_model"])
    expected = f.swiglu(f.expert(params, 0), x)
    return close("the only expert's output", subject(x=x)["out"], expected, bound_of(subject, params, x))


@check("two-experts-a-token-share-a-softmax", roles=(ROLE,))
def shared_softmax(impl: Any, draw: Draw) -> Evidence:
    """A token's experts are those of the k largest logits, weighed by their softmax; router (1, 2, 3, 0, ...) too."""
    config = offered(impl, ROLE, sizes(draw), renormalise=(True, False))
    subject, params = loaded(impl, draw, ROLE, **config)
    x = draw_tokens(draw, config["d_model"])
    tokens = x.reshape(-1, x.shape[-1])
    weights = f.gates(logits_of(params, x), config["top_k"], config["renormalise"])
    expected = f.mixture(params, tokens, weights).reshape(x.shape)

    worked, eight = loaded(impl, draw, ROLE, **{**config, "n_experts": 8, "top_k": 2})
    eight["router.weight"][:] = 0.0
    eight["router.weight"][:, 0] = LOGITS
    worked.load(eight)
    one = np.eye(1, config["d_model"])[None]
    gates = GATES if config["renormalise"] else UNNORMALISED
    two = sum(g * f.swiglu(f.expert(eight, e), one) for g, e in zip(gates, CHOSEN, strict=True))
    return all_of(
        close("gates of router logits 3 and 2", worked(x=one)["out"], two, bound_of(worked, eight, one) + 1e-9),
        close("sum of gate times expert", subject(x=x)["out"], expected, bound_of(subject, params, x)),
    )


@check("gates-of-the-chosen-experts-sum-to-one", roles=(ROLE,))
def gates_sum_to_one(impl: Any, draw: Draw) -> Evidence:
    """Where all experts are the same network the layer is that network: the gates of a token sum to one."""
    config = {**sizes(draw), "renormalise": True}
    subject, params = loaded(impl, draw, ROLE, **config)
    for name in params:
        if name.startswith("experts."):
            params[name] = params["experts.0." + name.split(".", 2)[2]]
    subject.load(params)
    x = draw_tokens(draw, config["d_model"])
    expected = f.swiglu(f.expert(params, 0), x)
    return close("a mixture of equal experts", subject(x=x)["out"], expected, bound_of(subject, params, x))


@check("experts-not-chosen-have-no-part", roles=(ROLE,), needs=(f"{ROLE}.vjp",), examples=2)
def unused_experts(impl: Any, draw: Draw) -> Evidence:
    """Other weights in the experts that no token chose change nothing, and no gradient reaches them."""
    small = {"d_model": 3, "d_ff": 2, "n_experts": draw.int("E", 3, 4, 3), "top_k": 1}
    config = offered(impl, ROLE, small, renormalise=(True, False))
    subject, params = loaded(impl, draw, ROLE, **config)
    x = draw.normal("x", (1, draw.int("T", 1, 2, 2), 3))
    before = np.asarray(subject(x=x)["out"])
    used = set(logits_of(params, x).argmax(axis=-1).tolist())
    unused = [name for name in params if name.startswith("experts.") and int(name.split(".")[1]) not in used]
    draw.bites(unused, "some expert is not chosen")
    _, gradients = subject.vjp({"x": x}, np.ones_like(x))
    reaching = np.array([np.abs(gradients[name]).max() for name in unused])
    subject.load({name: value + 1e4 * (name in unused) for name, value in params.items()})
    return all_of(
        same("the output with huge weights in the experts that are not chosen", subject(x=x)["out"], before),
        close("gradients of these experts", reaching, np.zeros(len(unused)), gradient_bound(subject, 1, 1e-3)),
    )

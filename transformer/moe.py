"""Mixture of experts: each token goes through the few feed-forward networks that a router chooses for it.

Shazeer et al. 2017; the routing and the loss that balances it as in Switch Transformers (Fedus et al. 2022) and Mixtral
(Jiang et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import Tensor, nn
from minigrad.functional import one_hot
from minigrad.ops.chosen import chosen_linear

FEW = 4  # tokens that are read through their own experts' matrices one by one


class MixtureOfExperts(nn.Module):
    """sum over the top_k experts e of p_e expert_e(x), p the router's softmax, renormalised over the chosen ones.

    normalised: whether it is; factor: times which the sum counts (DeepSeek-V2). groups (n, kept): experts stand in n
    groups, and only those of the `kept` groups with the most probable experts are chosen from.

    x ``(..., d_model)`` to the same. expert: makes one network ``(n, d_model)`` to ``(n, d_model)``; each sees only the
    tokens that were sent to it. In a trace, whose shapes must not depend on values, each sees all tokens, and those
    that were not sent to it count 0 times: the same numbers for n_experts / top_k times the work (less room for each
    would drop tokens when many choose one). A trace of up to FEW tokens without gradients, as decoding has them, reads
    the linear layers of the chosen experts only. Raises ValueError unless 1 <= top_k <= n_experts.
    """

    def __init__(
        self,
        d_model: int,
        n_experts: int,
        top_k: int,
        expert: Callable[[], nn.Module],
        normalised: bool = True,
        factor: float = 1.0,
        groups: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= top_k <= n_experts:
            raise ValueError(f"a token goes to between 1 and all {n_experts} experts, got top_k={top_k}")
        if groups is not None and (n_experts % groups[0] or not 1 <= groups[1] <= groups[0]):
            raise ValueError(f"{n_experts} experts do not stand in {groups[0]} groups of which {groups[1]} are kept")
        self.top_k, self.normalised, self.factor, self.groups = top_k, normalised, factor, groups
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(expert() for _ in range(n_experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        probabilities, chosen = self._allowed(self.router(tokens).softmax(-1)).topk(self.top_k, -1)
        gates = probabilities / probabilities.sum(-1, keepdim=True) if self.normalised else probabilities * self.factor
        if not chosen.storage.abstract:
            mixed = self._sent(tokens, chosen, gates)
        elif len(tokens) <= FEW and not mg.is_grad_enabled() and can_choose(self):
            mixed = self._read(tokens, chosen, gates)
        else:
            mixed = self._all(tokens, chosen, gates)
        return mixed.reshape(x.shape)

    def _allowed(self, probabilities: Tensor) -> Tensor:
        """0 outside of the best groups."""
        if self.groups is None:
            return probabilities
        n, kept = self.groups
        best = probabilities.unflatten(-1, (n, -1)).amax(-1).topk(kept, -1)[1]
        inside = mg.zeros(len(best), n, dtype=mg.bool, device=best.device).scatter(1, best, True)
        return probabilities.masked_fill(~inside.repeat_interleave(probabilities.shape[-1] // n, 1), 0.0)

    def _sent(self, tokens: Tensor, chosen: Tensor, gates: Tensor) -> Tensor:
        """Each expert on its own tokens: (token, choice) pairs sorted by expert, and the results sorted back."""
        assigned = chosen.numpy().reshape(-1)
        order = np.argsort(assigned, kind="stable")
        bounds = np.searchsorted(assigned[order], np.arange(len(self.experts) + 1))
        outputs = []
        for e, expert in enumerate(self.experts):
            rows = order[bounds[e] : bounds[e + 1]] // self.top_k
            if rows.size:
                outputs.append(expert(tokens.index_select(0, mg.from_numpy(rows, tokens.device))))
        back = mg.from_numpy(np.argsort(order, kind="stable"), tokens.device)
        each = mg.cat(outputs, 0).index_select(0, back).reshape(*chosen.shape, tokens.shape[-1])
        return (each * gates.unsqueeze(-1)).sum(1)

    def _all(self, tokens: Tensor, chosen: Tensor, gates: Tensor) -> Tensor:
        """Each expert on all tokens, times its gate, which is 0 for a token that did not choose it."""
        none = mg.zeros(tokens.shape[0], len(self.experts), dtype=gates.dtype, device=gates.device)
        every = none.scatter(1, chosen, gates)
        mixed = mg.zeros_like(tokens)
        for e, expert in enumerate(self.experts):
            mixed = mixed + every[:, e : e + 1] * expert(tokens)
        return mixed

    def _read(self, tokens: Tensor, chosen: Tensor, gates: Tensor) -> Tensor:
        """Each token as often as it chose, every time through another expert's layers."""
        rows = tokens.repeat_interleave(self.top_k, 0)
        each = _by_row([*self.experts], chosen.reshape(-1))(rows)
        return (each.reshape(*chosen.shape, tokens.shape[-1]) * gates.unsqueeze(-1)).sum(1)

    def extra_repr(self) -> str:
        return f"top_k={self.top_k}"


class WithShared(nn.Module):
    """A mixture of experts, plus a network that every token goes through (DeepSeek-AI 2024)."""

    def __init__(self, mixture: MixtureOfExperts, shared: nn.Module) -> None:
        super().__init__()
        self.mixture, self.shared = mixture, shared

    def forward(self, x: Tensor) -> Tensor:
        return self.mixture(x) + self.shared(x)


class _ChosenLinear(nn.Module):
    """Linear layers that are alike, of which each row takes its own."""

    def __init__(self, layers: Sequence[Any], chosen: Tensor) -> None:
        super().__init__()
        self.layers, self.chosen = layers, chosen

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.layers[0], nn.StoredLinear):
            stored = [layer.matrix for layer in self.layers]
            scales = None if stored[0].scales is None else [each.scales for each in stored]
            product = chosen_linear(x, self.chosen, [each.stored for each in stored], scales)
        else:
            product = chosen_linear(x, self.chosen, [layer.weight for layer in self.layers])
        if self.layers[0].bias is None:
            return product
        return product + mg.stack([layer.bias for layer in self.layers]).index_select(0, self.chosen)


def _by_row(modules: Sequence[nn.Module], chosen: Tensor) -> nn.Module:
    """A module like each of `modules`, which are alike, through whose number chosen[i] row i goes."""
    if isinstance(modules[0], nn.Linear | nn.StoredLinear):
        return _ChosenLinear(modules, chosen)
    made = copy(modules[0])
    for name, child in modules[0].named_children():
        if any(True for _ in child.parameters()):
            setattr(made, name, _by_row([getattr(module, name) for module in modules], chosen))
    return made


def can_choose(mixture: MixtureOfExperts) -> bool:
    """Have the experts no parameters but those of linear layers?"""
    linear = {id(p) for m in mixture.modules() if isinstance(m, nn.Linear | nn.StoredLinear) for p in m.parameters()}
    return all(id(parameter) in linear for parameter in mixture.parameters())


@contextmanager
def routing(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the router logits ``(tokens, n_experts)`` of every mixture in `model`, in the order in which they run."""
    logits: list[Tensor] = []
    handles = [
        module.router.register_forward_hook(lambda module, args, result: logits.append(result))
        for module in model.modules()
        if isinstance(module, MixtureOfExperts)
    ]
    try:
        yield logits
    finally:
        for handle in handles:
            handle.remove()


def load_balancing_loss(router_logits: Sequence[Tensor], top_k: int, real: Tensor | None = None) -> Tensor:
    """n_experts * sum_e f_e P_e: f_e how many of a token's choices go to expert e, P_e its mean probability.

    Over all tokens of all layers together (Fedus et al. 2022, equation 4); top_k where the routing is uniform, more the
    more uneven it is. real bool ``(B, T)``: tokens that count. Raises ValueError without logits.
    """
    if not router_logits:
        raise ValueError("load_balancing_loss needs the router logits of at least one layer: see routing()")
    probabilities = mg.cat([logits.softmax(-1) for logits in router_logits], 0)
    n_experts = probabilities.shape[1]
    choices = one_hot(probabilities.detach().topk(top_k, -1)[1], n_experts).sum(1).to(probabilities.dtype)
    if real is None:
        chosen, mean = choices.mean(0), probabilities.mean(0)
    else:
        counted = mg.cat([real.reshape(-1, 1)] * len(router_logits), 0).to(probabilities.dtype)
        chosen, mean = ((counted * values).sum(0) / counted.sum() for values in (choices, probabilities))
    return n_experts * (chosen * mean).sum()

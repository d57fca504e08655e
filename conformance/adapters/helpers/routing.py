"""Helpers of mixtures of experts: the loss for their balance, the loss for the size of the router's logits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown, tensor

_ROUTED = {
    "experts": r"(n_?|num_?)experts?|e",
    "k": r"(top_?)?k|num_selected|experts_per_tok(en)?|n_active",
    "chosen": (
        r"(expert_?|selected_?|chosen_?|top_?k_?)?(ind(ex|ices)|idx|ids?|experts?|choices?|assignments?|sel(ected)?)|"
        r"chosen|topk|expert_mask|mask|onehot|one_hot|dispatch"
    ),
    "probs": r"(router_?|gate_?|gating_?)?(probs?|weights|gates|scores|p|probabilities)|gates?",
    "logits": r"(router_?|gate_?|gating_?)?logits",
}


@helper(
    "balance-losses-grow-with-imbalance", r"balanc|aux(iliary)?_?loss|switch_loss|load_loss|importance", _ROUTED, ()
)
def balance(loss: Called) -> Iterator[Trouble]:
    """All tokens at one expert cost as many times more than an even spread as there are experts."""
    if not (loss.has("probs") or loss.has("logits")):
        raise OtherKind("it takes no probabilities")
    experts, tokens = 4, 16
    even_choice = torch.arange(tokens) % experts
    even = torch.full((tokens, experts), 0.1 / experts) + 0.9 * torch.nn.functional.one_hot(even_choice, experts)
    first = torch.zeros(tokens, dtype=torch.long)
    alone = torch.full((tokens, experts), 1e-4)
    alone[:, 0] = 1 - 3e-4
    forms = _forms(loss, even_choice, experts)
    if not forms:
        raise OtherKind("it gives no loss")

    def pair(form: Form) -> tuple[float, float]:
        return form(even / even.sum(-1, keepdim=True), even_choice), form(alone, first)

    value = max(forms, key=lambda form: pair(form)[1] / max(abs(pair(form)[0]), 1e-9))
    spread, crowded = pair(value)
    if crowded <= spread * 1.5:
        yield Trouble(
            (
                f"{loss.name} is not higher where one expert gets all tokens "
                f"({crowded:.4g}) than where all get as many ({spread:.4g})."
            ),
            f"about {experts * spread:.4g}",
            f"{crowded:.4g}",
        )
    elif not loss.has("chosen"):
        return
    else:
        elsewhere = value(alone, torch.ones(tokens, dtype=torch.long))
        if elsewhere > 0.5 * crowded:
            yield Trouble(
                (
                    f"{loss.name} does not multiply the share of tokens "
                    f"of an expert with the probability of the same expert."
                ),
                f"less than {spread:.4g}",
                f"{elsewhere:.4g}",
            )
        elif (
            re.search(r"switch|n_?experts \*|e \*|equation 4|eq\. ?4|times the number", loss.says)
            and not 0.9 < spread < 1.1
        ):
            yield Trouble(
                (
                    f"{loss.name} is {spread:.4g} where tokens are spread "
                    f"evenly: it is not scaled by the number of experts."
                ),
                "1 (Fedus et al. 2021, equation 4)",
                f"{spread:.4g}",
            )


Form = Callable[[Tensor, Tensor], float]


def _forms(loss: Called, chosen: Tensor, experts: int) -> list[Form]:
    """The forms of probabilities and choices in which it gives a number: with an axis for several choices of a token or
    without, in one sequence or more, or in a list with a tensor for each layer."""

    def form(one_hot: bool, several: bool, batched: bool, listed: bool) -> Form:
        def value(probs: Tensor, chosen: Tensor) -> float:
            choice = torch.nn.functional.one_hot(chosen, experts).to(probs.dtype) if one_hot else chosen
            choice = choice[:, None] if several else choice
            if batched:
                probs, choice = probs[None], choice[None]
            of_layer = {"probs": probs, "logits": probs.log(), "chosen": choice}
            given = {name: [one] for name, one in of_layer.items()} if listed else of_layer
            made = tensor(loss(**given, experts=experts, k=1))
            if made.numel() != 1 or not bool(made.isfinite()):
                raise OtherKind("it gives no loss")
            return float(made)

        return value

    name = loss.arguments.parameter_of.get("chosen", "").lower()
    one_hot = bool(re.search(r"mask|one_?hot|dispatch", name))
    probs = torch.full((len(chosen), experts), 1 / experts)
    found: list[Form] = []
    for batched, listed in ((False, False), (True, False), (False, True)):
        for several in (False, True):
            with suppress(Exception):
                one = form(one_hot, several, batched, listed)
                one(probs, chosen)
                found.append(one)
        if found:
            break
    return found


@helper("z-losses-are-squared-log-sums", r"z_?loss", {"logits": r"(router_?|gate_?)?logits|x|scores"}, ("logits",))
def z_loss(loss: Called) -> Iterator[Trouble]:
    """The mean over the tokens of the squared logarithm of the sum of exponentials."""
    logits = noise(6, 4)
    try:
        made = tensor(loss(logits=logits))
    except Exception:
        made = tensor(loss(logits=[logits]))  # of each layer
    if made.numel() != 1:
        raise OtherKind("it gives no loss")
    rows = logits.logsumexp(-1).square()
    ratio = float(made / rows.mean())
    if (
        not near(made.reshape(()), rows.mean())
        and not near(made.reshape(()), rows.sum())
        and not any(abs(ratio / c - 1) < 1e-4 for c in (1e-3, 1e-4, 0.01, 0.5))
    ):
        yield Trouble(
            f"{loss.name} is not the mean of the squared log-sum-exp of each token.", shown(rows.mean()), shown(made)
        )

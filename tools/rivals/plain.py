"""The plain properties that a good engineer tests in an afternoon.

    python -m tools.rivals.plain FILE.py:NAME KIND OUT.json

Making and calling the model is given. OUT.json is an object: property -> what is wrong, or null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from conformance.protocol import NotProvided
from tools.rivals.given import TEACHES_THE_NEXT, Given, given


def answer(model: Given, data: dict[str, Tensor]) -> Tensor:
    model.subject.module.eval()
    with torch.no_grad():
        return model.run(model.subject.module, data)["out"]


def changed(data: dict[str, Tensor], name: str, at: int) -> dict[str, Tensor]:
    """The data with another word, or other numbers, in one place."""
    other = data[name].clone()
    other[:, at] = other.roll(1, 0)[:, at] + (1 if other.is_floating_point() else 0)
    if not other.is_floating_point():
        other[:, at] = torch.where(other[:, at] == data[name][:, at], other[:, at - 1], other[:, at])
    return {**data, name: other}


def far(one: Tensor, other: Tensor, bound: float = 1e-4) -> bool:
    return not torch.allclose(one, other.to(one.dtype), rtol=bound, atol=bound * float(one.detach().abs().max()))


# --- the properties: each yields what is wrong -----------------------------------------------------


def is_finite_and_repeats_itself(model: Given) -> Iterator[str]:
    data = model.example()
    first, second = answer(model, data), answer(model, data)
    if not first.isfinite().all() or not torch.equal(first, second):
        yield "not finite, or not the same twice in evaluation mode"


def rows_are_apart(model: Given) -> Iterator[str]:
    data = model.example()
    if far(answer(model, data)[-1:], answer(model, {name: x[-1:] for name, x in data.items()})):
        yield "a row's answer depends on the rows before it"


def takes_every_length(model: Given) -> Iterator[str]:
    for length in (1, 2, 5, 16):
        if model.subject.free_length and not answer(model, model.example(2, length)).isfinite().all():
            yield f"no finite answer for length {length}"


def no_word_changes_an_earlier_answer(model: Given) -> Iterator[str]:
    data = model.example()
    before = answer(model, data)
    for at in range(1, data[model.main].shape[1]) if model.kind in TEACHES_THE_NEXT and before.ndim == 3 else ():
        if far(answer(model, changed(data, model.main, at))[:, :at], before[:, :at]):
            yield f"word {at} changes earlier answers"


def every_word_reaches_the_last_answer(model: Given) -> Iterator[str]:
    data = model.example()
    for name in data:
        for at in range(data[name].shape[1]) if data[name].ndim < 4 else ():
            one, other = answer(model, data), answer(model, changed(data, name, at))
            if torch.equal(one.flatten(1)[:, -one.shape[-1] :], other.flatten(1)[:, -one.shape[-1] :]):
                yield f"{name} {at} does not change the last answer"


def order_matters(model: Given) -> Iterator[str]:
    data = model.example()
    words = data[model.read]
    if words.ndim == 2 and not far(answer(model, data), answer(model, {**data, model.read: words.flip(1)}), 1e-6):
        yield "the words in reverse order give the same answer"
    swapped = torch.cat([words[:, 1:2], words[:, :1], words[:, 2:]], 1)
    one, other = answer(model, data), answer(model, {**data, model.read: swapped})
    if words.ndim == 2 and one.ndim == 3 and not far(one[:, -1], other[:, -1], 1e-6):
        yield "two words that change places do not change the last answer"


def padding_changes_nothing(model: Given) -> Iterator[str]:
    for name in (one.meaning for one in model.subject.calling.inputs):
        if not (padding := model.padding(name)) or not model.subject.free_length:
            continue
        data = model.example()
        extra = torch.full_like(data[name][:, :3], model.subject.pad_id or 0)
        real = torch.cat([torch.ones(data[name].shape[:2]), torch.zeros(extra.shape[:2])], 1).bool()
        before = answer(model, {**data, padding: real[:, :-3]})
        after = answer(model, {**data, name: torch.cat([data[name], extra], 1), padding: real})
        if far(before, after[:, : before.shape[1]] if before.ndim == 3 else after):
            yield f"three more tokens of padding in {name} change the answer"


def gradients_reach_every_parameter(model: Given) -> Iterator[str]:
    module = model.fresh().train()
    model.loss(module, model.example()).backward()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.any()):
            yield f"{name} gets no gradient"


def dropout_acts_in_training(model: Given) -> Iterator[str]:
    module, data = model.fresh().train(), model.example()
    dropouts = [part for part in module.modules() if isinstance(part, nn.Dropout) and part.p > 0]
    if dropouts and torch.equal(model.run(module, data)["out"], model.run(module, data)["out"]):
        yield "dropout changes nothing in training mode"


def loss_falls(model: Given) -> Iterator[str]:
    module, data = model.fresh(), model.example()
    optimizer = torch.optim.Adam((p for p in module.parameters() if p.requires_grad), lr=1e-3)
    losses = []
    for _ in range(30):
        losses.append(model.loss(module, data))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    if not losses[-1] < 0.95 * losses[0]:
        yield f"30 steps on one batch take the loss from {losses[0]:.3f} to {losses[-1]:.3f}"


def loss_is_that_of_the_next_word(model: Given) -> Iterator[str]:
    data, words = model.example(), model.example()["ids"] if model.main == "ids" else None
    if words is not None and model.subject.calling.labels and model.kind == "language_model":
        loss = model.run(model.subject.module.eval(), {**data, "labels": words})["loss"]
        out = answer(model, data)
        plain = nn.functional.cross_entropy(out.flatten(0, 1), words.flatten())
        shifted = nn.functional.cross_entropy(out[:, :-1].flatten(0, 1), words[:, 1:].flatten())
        if not any(0.999 * one < loss < 1.1 * one for one in (plain, shifted)):  # a little may be added for experts
            yield f"the loss is {loss:.4f}; of these logits and words it is {plain:.4f}, shifted {shifted:.4f}"


def state_makes_an_equal_model(model: Given) -> Iterator[str]:
    one, other, data = model.fresh().eval(), model.fresh().eval(), model.example()
    other.load_state_dict(one.state_dict())
    if far(model.run(one, data)["out"], model.run(other, data)["out"], 1e-6):
        yield "a loaded state dict gives another model"


def cache_equals_no_cache(model: Given) -> Iterator[str]:
    with suppress(NotProvided):
        steps, ids = model.subject.stepping(), model.subject.example(2, 8)["ids"]
        for pieces in ((1,) * 8, (5, 1, 1, 1), (4, 4)):
            if far(torch.tensor(steps.logits(model.subject, ids, pieces)), answer(model, {"ids": torch.tensor(ids)})):
                yield f"pieces of {pieces} with a cache give other logits than one pass"


def greedy_writing_takes_the_best_word(model: Given) -> Iterator[str]:
    with suppress(NotProvided):
        for writer in model.subject.writers():
            start = model.subject.example(writer.rows, 5, src=5)[model.read]
            written = writer.write(model.subject, {model.read: start}, 4)
            source = {"src": start} if model.subject.calling.two_sided else {}
            prefix = torch.tensor(written.prefix.copy())
            for at, word in enumerate(torch.tensor(written.new.copy()).T):
                best = answer(model, {**{n: torch.tensor(x) for n, x in source.items()}, model.main: prefix})
                scores = best[:, -1] if best.ndim == 3 else best
                if (scores.gather(1, word[:, None])[:, 0] < scores.max(1).values - 1e-4).any():
                    yield f"{writer.name}: word {at} is not the best one"
                    break
                prefix = torch.cat([prefix, word[:, None]], 1)


PROPERTIES: tuple[Callable[[Given], Iterator[str]], ...] = (
    is_finite_and_repeats_itself,
    rows_are_apart,
    takes_every_length,
    no_word_changes_an_earlier_answer,
    every_word_reaches_the_last_answer,
    order_matters,
    padding_changes_nothing,
    gradients_reach_every_parameter,
    dropout_acts_in_training,
    loss_falls,
    loss_is_that_of_the_next_word,
    state_makes_an_equal_model,
    cache_equals_no_cache,
    greedy_writing_takes_the_best_word,
)


def tried(model: Given) -> dict[str, str | None]:
    """Property -> the first thing that is wrong, or None where it holds. What a property raises is wrong, too."""
    found: dict[str, str | None] = {}
    for holds in PROPERTIES:
        torch.manual_seed(0)
        try:
            found[holds.__name__] = next(holds(model), None)
        except Exception as error:
            found[holds.__name__] = f"it raises {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(tried(given(*sys.argv[1:3]))), encoding="utf-8")

"""Checks of every whole model as it runs, whatever its design: what it repeats, forgets, uses, and refuses.

The subject is `conformance.adapters.whole.model.WholeModel`, or anything that offers the same.
"""

from __future__ import annotations

import re
import time
import warnings
from contextlib import redirect_stdout, suppress
from functools import partial
from io import StringIO
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.options import with_every_option
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, close, note, refused, true
from conformance.protocol import Array, DrawsAnew, NotProvided

FLOAT32 = 1e-6
"""How far relative to the largest number answers may be apart that are made of tables of float32 and of float64."""

_LEAVES_OUT_THE_FIRST = r"\w*mask\w*\[:, *(0|:1)\] *= *(0|0\.0|False)\b"
"""A line that hides the first token of every text: it is a mark of the start."""
_OUT_OF_RANGE = re.compile(r"clamp|clip|\brange|outside|out of|vocab|invalid|unknown", re.IGNORECASE)
"""What a model says that reads an id beyond its vocabulary as another, and does not hide it."""


def distance(one: Array, other: Array) -> float:
    """The largest difference relative to the largest number; infinite where shapes differ or a number is not finite."""
    if one.shape != other.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("inf")
    return float(np.abs(one - other).max(initial=0.0) / max(np.abs(one).max(initial=0.0), 1e-9))


def equal(what: str, subject: Any, got: Array, expected: Array, reason: str = "rounding of the same sums") -> Evidence:
    """Two answers that must be the same up to rounding."""
    return close(what, got, expected, subject.noise * max(float(np.abs(expected).max(initial=0.0)), 1e-9), reason)


def judged(subject: Any, evidence: Evidence) -> Evidence:
    """The evidence, if it says something about a sentence's own answer. Raises NotProvided where a difference is no
    mistake: answers are drawn anew, or all tokens of a batch compete for experts."""
    if not evidence.ok and subject.draws_anew:
        raise DrawsAnew
    if not evidence.ok and subject.tokens_compete:
        raise NotProvided("all tokens of a batch compete for its experts, so that they change each other's answers")
    return evidence


@check("model-evaluation-repeats-itself", roles=("module",))
@with_every_option
def evaluation_repeats_itself(impl: Any, draw: Draw) -> Evidence:
    """The same input gives the same answer in evaluation mode."""
    subject = impl.build("module", {})
    if renewed := subject.renewed:
        return true("no call makes a layer", False, got=f"{renewed[0].name} is made in each").saying(
            diagnosis=f"Each call makes {renewed[0].name} anew: its weights are drawn at random each time, so that one "
            "input gives many answers and nothing that it learns is kept.",
            place=renewed[0].place,
            mend="make the layer in __init__, and call it in forward",
        )
    inputs = subject.example()
    once = subject(**inputs)["out"]
    for _ in range(2):
        again = subject(**inputs)["out"]
        evidence = equal("the answer to the same input again", subject, again, once)
        if not evidence.ok:
            drops = subject.active_dropouts(False) or subject.drawn_masks()
            place = subject.line_of(r"\bself\.training\b")
            if not drops and place and not subject.draws_without_dropout():
                return evidence.saying(
                    diagnosis="Numbers are drawn in evaluation, and none in training: the two modes are exchanged.",
                    place=place,
                    mend="draw where self.training is True",
                )
            if not drops and (drawn := subject.drawn_though_for_training()):
                return evidence.saying(
                    diagnosis=f"{drawn.what} is meant for training, and draws in evaluation, too: one input gives many "
                    "answers.",
                    place=drawn.place,
                    mend="if not self.training: return x",
                )
            if not drops:
                return note("the answer changes from call to call in evaluation mode, without dropout", "it draws anew")
            if option := subject.asks_for_dropout():
                return note("dropout acts in evaluation mode, as an option asks for", option)
            if hidden := subject.plain_lists():
                return evidence.saying(
                    diagnosis=f"In evaluation mode dropout is active ({drops[0].what}): {hidden[0]} is a plain list, "
                    "so that the model does not know the modules in it.",
                    place=subject.made_at(hidden[0]),
                    mend="put them into an nn.ModuleList",
                )
            return evidence.saying(
                diagnosis=f"In evaluation mode dropout is active ({drops[0].what}): one input gives many answers.",
                place=drops[0].place,
                mend="use nn.Dropout in an nn.Module, or hand training=self.training to F.dropout",
            )
    return evidence


@check("model-keeps-no-state-between-calls", roles=("module",))
def keeps_no_state(impl: Any, draw: Draw) -> Evidence:
    """What was asked before does not change an answer."""
    subject = impl.build("module", {})
    inputs = subject.example(seed=1)
    once = subject(**inputs)["out"]
    others = [
        subject.example(seed=2),
        subject.example(batch=3, length=4 if subject.free_length and subject.takes(4) else None, seed=3),
    ]
    for other in others:
        subject(**other)
    again = subject(**inputs)["out"]
    return judged(subject, equal("the answer after other inputs", subject, again, once)).saying(
        diagnosis="An answer depends on what the model was called with before: something is kept between calls.",
        place=subject.place(),
    )


@check("model-drops-only-in-training", roles=("module",))
def drops_in_training(impl: Any, draw: Draw) -> Evidence:
    """A model that has dropout draws anew in training mode, and drops nothing in evaluation."""
    subject = impl.build("module", {})
    inputs = subject.example(batch=4)
    rates = subject.dropout_rates()
    active = subject.active_dropouts(True)
    if not active and not any(rate > 0 for _, rate in rates):
        raise NotProvided("it has no dropout" if not rates else "all its dropout rates are 0")
    first, second = (subject.in_training(seed, **inputs)["out"] for seed in (1, 2))
    if not active:
        awake = [(path, rate) for path, rate in rates if rate > 0 and subject.stands_in_what_runs(path)]
        if not awake:
            raise NotProvided("its dropout stands in a part that does not run here")
        path, rate = max(awake, key=lambda item: item[1])
        return true(f"dropout of {rate} acts in training mode", False, got="the same answer twice").saying(
            diagnosis=f"{path} says dropout {rate}, and nothing is dropped in training mode.",
            place=subject.made_at(path),
        )
    pieces = zip(*(subject.pieces_in_training(seed, **inputs) for seed in (1, 2)), strict=False)
    if np.array_equal(first, second) and all(np.array_equal(one, other) for one, other in pieces):
        return true("two passes in training mode differ", False, got="the same answer twice").saying(
            diagnosis="Dropout draws the same in every pass, or its result is thrown away.", place=active[0].place
        )
    still = subject.active_dropouts(False)
    if still and (option := subject.asks_for_dropout()):
        return note("dropout acts in evaluation mode, as an option asks for", option)
    return true("nothing is dropped in evaluation mode", not still, got=", ".join(d.what for d in still)).saying(
        diagnosis="Dropout is active in evaluation mode.", place=still[0].place if still else ""
    )


@check("model-has-the-layers-that-its-option-says", roles=("model",))
def layers_option(impl: Any, draw: Draw) -> Evidence:
    """With three layers a model has more parameters than with one, or computes more: shared layers run again."""
    subject = impl.build("model", {})
    if subject.line_of(r"\[\s*[\w.]*(model_type|preset|variant|arch(itecture)?|model_name)\s*\]"):
        raise NotProvided("a preset of a name may say how many layers it has")
    few, many = subject.fresh(2, n_layers=1), subject.fresh(2, n_layers=3)
    sizes = [sum(p.size for p in one.parameters().values()) for one in (few, many)]
    grows = sizes[1] != sizes[0] or many.operations() != few.operations()
    return true("three layers are more than one", grows, got=f"{sizes[1]:,} parameters with both").saying(
        diagnosis="The number of layers reaches nothing: with three the model is what it is with one.",
        place=subject.place(),
        mend="hand the number on to what makes the layers",
    )


@check("model-methods-change-the-mode-that-they-put-back", roles=("model",))
def modes_are_changed(impl: Any, draw: Draw) -> Evidence:
    """A method, or a function beside the model, that remembers the mode and puts it back switches to another one in
    between."""
    subject = impl.build("model", {})
    if not subject.remembers_modes():
        raise NotProvided("no method of its remembers the mode")
    found = subject.modes_kept()
    name, place = found[0] if found else ("", "")
    return true("a mode that is put back was changed", not found, got=f"{name} changes none").saying(
        diagnosis=f"{name} remembers the mode and puts it back, and never calls eval(): in training it drops.",
        place=place,
        mend="call eval() behind the line that remembers the mode",
    )


@check("model-dropping-keeps-the-mean", roles=("module",))
def dropping_keeps_the_mean(impl: Any, draw: Draw) -> Evidence:
    """What drops rows or numbers by itself gives on average in training what it gives in evaluation."""
    subject = impl.build("module", {})
    found = subject.unscaled_drops()
    if found is None:
        raise NotProvided("no part of its drops by itself")
    path, ratio, place = found[0] if found else ("", 1.0, "")
    return true("the mean in training is the answer in evaluation", not found, got=f"{ratio:.3g} of it").saying(
        diagnosis=f"{path} gives on average {ratio:.3g} of what it gives in evaluation: what is kept is not divided by "
        "the share that is kept.",
        place=place or subject.place(path),
        mend="x * mask / keep",
    )


@check("model-every-parameter-gets-a-gradient", roles=("module",))
def every_parameter_gets_a_gradient(impl: Any, draw: Draw) -> Evidence:
    """Every trainable parameter changes the answer, and so gets a gradient."""
    subject = impl.build("module", {})
    if not subject.positions:
        inputs = subject.example(batch=4)
    else:
        longest = subject.longest
        inputs = subject.example(batch=4, length=longest if longest and longest <= 64 else None)
    if (place := subject.written_over_at(inputs)) is not None:
        return true("the answer has gradients", False, got="a RuntimeError in backward").saying(
            diagnosis="The answer has no gradients, so that nothing can be learnt: what an operation gave, and needs "
            "for its gradient, is written over in place.",
            place=place or subject.place(),
            mend="make a new tensor, x = x / y, and not x /= y",
        )
    gradients = subject.gradients(inputs)
    if not gradients:
        raise NotProvided("it has no trainable parameters")
    largest = max((float(np.abs(g).max(initial=0.0)) for g in gradients.values() if g is not None), default=0.0)
    missing = [name for name, g in gradients.items() if g is None]
    zero = [
        name for name, g in gradients.items() if g is not None and float(np.abs(g).max(initial=0.0)) < 1e-13 * largest
    ]
    excused = subject.excused_parameters(missing + zero)
    bad = [name for name in missing + zero if name not in excused]
    for otherwise in (
        subject.reached_as_drawn,
        subject.reached_by_gaps,
        subject.reached_under_flags,
        subject.reached_in_training,
    ):
        reached = otherwise(bad, inputs) if bad else set()
        bad = [name for name in bad if name not in reached]
    if not bad and (cut := subject.columns_of_tables_read(gradients)):
        name, (read, width) = next(iter(cut.items()))
        shown = f"{read} of {width} numbers of a row"
        return true("each number of a table's rows gets a gradient", False, got=f"{name}: {shown}").saying(
            diagnosis=f"Of {name} only {shown} are read: the others are never learnt.",
            place=subject.made_at(name),
            mend="a table of biases has a column for each head: let each head read its own",
        )
    if not bad:
        return true("every trainable parameter gets a gradient", True, got=f"{len(gradients)} parameters")
    shown = ", ".join(bad[:4]) + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
    without = subject.line_of(r"@(torch\.)?(inference_mode|no_grad)\b")
    if without and len(missing) == len(gradients):
        return true("every trainable parameter gets a gradient", False, got=f"none for {shown}").saying(
            diagnosis="The answer has no gradients, so that nothing can be learnt: forward runs without them.",
            place=without,
            mend="leave the decorator to what calls the model to write or to measure",
        )
    if without and (raised := subject.raised_in_training(inputs)):
        words, place = raised
        return true("forward runs in training", False, got=words).saying(
            diagnosis="In training forward raises, and in evaluation a part of it runs without gradients: nothing is "
            "learnt there.",
            place=place or without,
            mend="let forward run in training",
        )
    if subject.reached_from_before(bad, inputs) == set(bad):
        return note("layers that are run again get no gradient where the numbers handed in want none", shown)
    if cut := subject.cut_off_at(bad[0], inputs):
        them = "it" if len(bad) == 1 else "them"
        return true("every trainable parameter gets a gradient", False, got=f"none for {shown}").saying(
            diagnosis=f"{shown}: the answer depends on {them}, and the gradient is cut off on the way: nothing is "
            "learnt there.",
            place=cut,
            mend="keep what training reads attached: detach only what a later call reads",
        )
    return true("every trainable parameter gets a gradient", False, got=f"none for {shown}").saying(
        diagnosis=f"{shown}: no answer depends on {'it' if len(bad) == 1 else 'them'}: nothing is learnt there.",
        place=subject.detached_at() or subject.made_at(bad[0]),
        mend="use it in forward, or remove it",
    )


@check("model-learns-from-its-start", roles=("module",))
def learns_from_its_start(impl: Any, draw: Draw) -> Evidence:
    """What starts at zero learns: the factor beside it does not start at zero, or stops being zero."""
    subject = impl.build("module", {})
    bad = subject.never_learnt()
    shown = ", ".join(bad[:4]) + (f" and {len(bad) - 4} more" if len(bad) > 4 else "")
    zeros = (r"(zeros?_|constant_|fill_)\([^\n]*weight", r"zeros?_\(|constant_\([^\n]*\b0(\.0*)?\)", r"zeros\(")
    return true("matrices that start at zero get a gradient in training", not bad, got=f"none for {shown}").saying(
        diagnosis=f"{shown} and what multiplies them start at zero: no gradient ever reaches them, and they never "
        "learn.",
        place=next(filter(None, map(subject.line_of, zeros)), ""),
        mend="let one of two factors that follow each other start at small random numbers",
    )


@check("matrices-start-no-larger-in-a-deeper-model", roles=("model",))
def no_larger_with_depth(impl: Any, draw: Draw) -> Evidence:
    """More layers make no matrix start with larger numbers: what adds to the residual stream starts smaller, if so."""
    subject = impl.build("model", {})
    grown = subject.larger_in_deeper_models()
    name, ratio = next(iter(grown.items()), ("", 1.0))
    said = (
        r"\*\s*\(?(\w+\.)?(sqrt|pow)\([^)\n]*(layer|depth|block)",
        r"\*\s*\([^)\n]*(layer|depth)[^)\n]*\)\s*\*\*\s*0?\.5",
    )
    return true("no matrix starts larger in a deeper model", not grown, got=f"{name}: {ratio:.3g} times").saying(
        diagnosis=f"With four times as many layers {name} starts {ratio:.3g} times as large, and so the residual "
        "stream, which grows with depth anyway, grows the more.",
        place=next(filter(None, map(subject.line_of, said)), "") or subject.place(),
        mend="std / math.sqrt(2 * n_layers) for what is added to the residual stream",
    )


@check("matrices-scaled-by-depth-start-no-larger-than-others", roles=("model",))
def scaled_by_depth(impl: Any, draw: Draw) -> Evidence:
    """What starts smaller in a deeper model, because it adds to the residual stream, starts no larger than the rest."""
    subject = impl.build("model", {})
    scaled, large = subject.too_large_for_their_depth()
    if not scaled:
        raise NotProvided("no matrix of its starts smaller in a deeper model, beside maps that do not")
    name, ratio = next(iter(large.items()), ("", 1.0))
    said = (
        r"/\s*\(?(\w+\.)*sqrt\([^\n]*(layer|depth|block|len\()",
        r"\(2(\.0)? \* [^)\n]*(layer|depth)[^)\n]*\) ?\*\* ?-0?\.5",
    )
    return true("they start no larger than other maps", not large, got=f"{name}: {ratio:.3g} times").saying(
        diagnosis=f"{name} is scaled down by the root of the depth, and starts {ratio:.3g} times as large as other "
        "maps: what is scaled is not the deviation that these have.",
        place=next(filter(None, map(subject.line_of, said)), "") or subject.place(),
        mend="0.02 / math.sqrt(2 * n_layers), where 0.02 is the deviation of the others",
    )


@check("tables-of-words-start-no-larger-than-torch-makes-them", roles=("model",))
def tables_start_small(impl: Any, draw: Draw) -> Evidence:
    """The vectors of words start no larger than three times as large as torch's embeddings do."""
    subject = impl.build("model", {})
    if not subject.token_tables():
        raise NotProvided("it reads no table of words")
    large = subject.large_tables()
    name, size = next(iter(large.items()), ("", 0.0))
    said = (r"embed\w*(\.\w+)*\.weight[^\n]*std", r"init\.normal_\([^\n]*(sqrt|\*\*)", r"init\.\w+_\([^\n]*embed")
    return true("tables of words start small", not large, got=f"{name}: a deviation of {size:.3g}").saying(
        diagnosis=f"{name} starts with a deviation of {size:.3g}: its vectors drown the positions that are added to "
        "them, and tied logits are as large.",
        place=next(filter(None, map(subject.line_of, said)), "") or subject.made_at(name) if large else "",
        mend="nn.init.normal_(embedding.weight, std=d_model ** -0.5)",
    )


@check("model-gradients-agree-with-differences", roles=("module",))
def gradients_agree_with_differences(impl: Any, draw: Draw) -> Evidence:
    """Along a random direction the answer changes as its gradient says: nothing is detached on the way."""
    subject = impl.build("module", {})
    if subject.noise > 1e-8:
        raise NotProvided("it computes in float32 somewhere, where differences are too coarse")
    inputs = subject.example(batch=2, seed=6)
    wrong, error, expected, got = subject.worst_gradient(inputs)
    evidence = close(
        "the slope along a random direction", np.array(got), np.array(expected), max(1e-4 * abs(expected), error)
    )
    if evidence.ok:
        return evidence
    if subject.rounds(wrong, inputs):
        return note(f"{wrong} is rounded, and its gradient is passed on", "quantised weights")
    plain = subject.gradients(inputs).get(wrong)
    if (plain is None or not plain.any()) and subject.reached_from_before([wrong], inputs):
        return note("layers that are run again get no gradient where the numbers handed in want none", wrong)
    return evidence.saying(
        diagnosis=f"The gradient of {wrong} is not the slope of the answer: something on the way is detached, or its "
        "backward pass is wrong.",
        place=subject.made_at(wrong),
        mend="remove .detach(), .data, no_grad() or .item() from forward",
    )


@check("model-what-it-keeps-reaches-the-answer", roles=("module",))
def buffers_reach_the_answer(impl: Any, draw: Draw) -> Evidence:
    """A table that the model keeps (of positions, of rotations) reaches its answer."""
    subject = impl.build("module", {})
    idle = subject.idle_buffers()
    if idle is None:
        raise NotProvided("it keeps no tables beside its parameters")
    path = idle[0] if idle else ""
    return true(
        "every table of numbers that it keeps changes the answer", not idle, got=", ".join(idle) or "all do"
    ).saying(
        diagnosis=f"{path} is made and never reaches the answer: positions are not added, or not applied.",
        place=subject.made_at(path) if path else "",
    )


@check("model-order-of-words-matters", roles=("model",))
def order_matters(impl: Any, draw: Draw) -> Evidence:
    """The same words in another order get another answer."""
    subject = impl.build("model", {})
    main = subject.calling.main.meaning
    if not subject.calling.main.vocab:
        raise NotProvided("its input is numbers, not words")
    for name in dict.fromkeys((main, subject.calling.inputs[0].meaning)):
        inputs = subject.example(batch=2, length=6, seed=8)
        swapped = {key: value.copy() for key, value in inputs.items()}
        swapped[name][:, [0, 2]] = swapped[name][:, [2, 0]]
        draw.bites((swapped[name] != inputs[name]).any(), "two words changed places")
        one, other = subject(**inputs)["out"], subject(**swapped)["out"]
        if subject.positions and name == main:
            keep = [i for i in range(one.shape[1]) if i not in (0, 2)]
            one, other = (
                np.concatenate([a[:, keep], b], 1) for a, b in ((one, one[:, [0, 2]]), (other, other[:, [2, 0]]))
            )
        if distance(one, other) < 10 * subject.noise:
            owned = subject.position_parts()
            if not owned:
                return note("the order of words changes nothing, and the model owns no positions", "no positions")
            return true("another order gives another answer", False, expected="another answer", got="the same").saying(
                diagnosis=f"The order of the words changes nothing, although the model has {owned[0]}.",
                place=subject.made_at(owned[0]),
            )
    return true("another order gives another answer", True)


@check("model-positions-reach-every-side", roles=("model",))
def positions_reach_every_side(impl: Any, draw: Draw) -> Evidence:
    """Where a model has positions, its attention can tell one place of a sentence of equal words from another."""
    subject = impl.build("model", {})
    if not subject.calling.main.vocab:
        raise NotProvided("its input is numbers, not words")
    told = subject.told_apart()
    if not told:
        raise NotProvided("its recorded run has no self-attention over its words")
    owned = subject.position_parts()
    blind = [name for name, tells in told.items() if not tells]
    if not blind or not owned or subject.line_of(r"(?i)\bnope\b|no (explicit )?position"):
        return note("attention tells no place from another", "no positions") if blind else true("it tells places", True)
    names = {"src": "source", "tgt": "target"}
    where = names.get(blind[0], "text")
    return true(f"places of the {where} differ", False, expected="positions", got="equal words look alike").saying(
        diagnosis=f"The {where} has no positions, although the model has {owned[0]}: all places look alike.",
        place=subject.made_at(owned[0]),
        mend=f"add positions to the embedding of the {where}",
    )


def refusal_of_one_token(subject: Any) -> str:
    """The exception with which a model refuses inputs of one token; "" for none."""
    try:
        subject(**subject.example(2, 1))
    except NotProvided:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@check("model-takes-one-token-and-its-longest-input", roles=("model",))
def takes_its_lengths(impl: Any, draw: Draw) -> Evidence:
    """One token works, and so does the longest input; a longer one is refused, not cut."""
    subject = impl.build("model", {})
    if not subject.free_length:
        raise NotProvided("it takes one length only")
    if refusal := refusal_of_one_token(subject):
        return note("an input of one token is refused", refusal)
    one = subject(**subject.example(2, 1))["out"]
    if not np.isfinite(one).all() and (line := subject.line_of(_LEAVES_OUT_THE_FIRST)):
        return note("one token is no text: forward leaves out the first, a mark of the start", line)
    return all_of(
        true("the answer to one token is finite", bool(np.isfinite(one).all()), got=one),
        true("the longest input", True, got=subject.longest if subject.longest is not None else "any"),
    )


@check("model-refuses-tokens-outside-its-vocabulary", roles=("model",))
def refuses_wrong_tokens(impl: Any, draw: Draw) -> Evidence:
    """A token id that is not in the vocabulary is refused."""
    subject = impl.build("model", {})
    wrong = [one for one in subject.calling.inputs if one.vocab]
    if not wrong:
        raise NotProvided("its input is numbers, not words")
    for one in wrong:
        inputs = subject.example()
        inputs[one.meaning][0, 1] = one.vocab
        with warnings.catch_warnings(record=True) as warned, redirect_stdout(StringIO()) as printed:
            warnings.simplefilter("always")
            evidence = refused(f"token {one.vocab} of {one.vocab}", partial(subject, **inputs))
        said = [printed.getvalue().strip(), *(str(one.message) for one in warned)]
        if not evidence.ok and (message := next((text for text in said if re.search(_OUT_OF_RANGE, text)), "")):
            return note("a token outside of the vocabulary is accepted, and the model says so", message)
        if not evidence.ok:
            last = {**inputs, one.meaning: np.minimum(inputs[one.meaning], one.vocab - 1)}
            if np.array_equal(subject(**inputs)["out"], subject(**last)["out"]):
                return evidence.saying(
                    diagnosis=f"Ids beyond the vocabulary of {one.parameter} are read as its last word.",
                    place=subject.line_of(r"clamp|clip|min\(") or subject.place(),
                    mend="let nn.Embedding refuse them",
                )
            return note("a token outside of the vocabulary is accepted", f"token {one.vocab} in {one.parameter}")
    return evidence


@check("model-state-dict-makes-an-equal-model", roles=("module",))
def state_dict_makes_an_equal_model(impl: Any, draw: Draw) -> Evidence:
    """Another model that loads the state dict gives the same answers."""
    subject = impl.build("module", {})
    other = subject.fresh(7)
    try:
        forgotten = other.load_state_of(subject)
    except NotProvided:
        raise
    except Exception as error:
        return true(
            "the state dict loads", False, expected="every key fits", got=f"{type(error).__name__}: {error}"
        ).saying(diagnosis="A new model does not take this model's state dict.", place=subject.place())
    inputs = subject.example(seed=9)
    got, expected = other(**inputs)["out"], subject(**inputs)["out"]
    evidence = equal("the answer of the loaded model", subject, got, expected)
    if not evidence.ok and distance(got, expected) < FLOAT32:
        return note("the loaded model's answers are the same to 6 digits", "a table was made anew in another precision")
    evidence = judged(subject, evidence)
    shown = ", ".join(forgotten[:4]) or "something that is no parameter and no buffer"
    return evidence.saying(
        diagnosis=f"The state dict forgets {shown}: a loaded model gives other answers.",
        place=subject.made_at(forgotten[0]) if forgotten else subject.place(),
        mend="register it as a parameter, a buffer or a submodule (nn.ModuleList, not a list)",
    )


@check("model-leaves-its-inputs-alone", roles=("module",))
def leaves_inputs_alone(impl: Any, draw: Draw) -> Evidence:
    """forward changes none of its inputs in place."""
    subject = impl.build("module", {})
    changed = subject.changed_inputs(subject.example(seed=10))
    if changed and not subject.is_whole:
        return note("a component changes what it is handed in place", ", ".join(changed))
    return true("the inputs are as they were", not changed, got=f"{', '.join(changed)} changed").saying(
        diagnosis=f"forward changes its input {', '.join(changed)} in place.",
        place=next(filter(None, changed.values()), "") or subject.place(),
        mend="make a new tensor, x = x + y, and not x += y",
    )


_QUICK = 0.2
"""Seconds of processor time that one run may take where it is made in half precision, too."""


@check("model-precisions-agree", roles=("module",))
def precisions_agree(impl: Any, draw: Draw) -> Evidence:
    """float32 gives what float64 gives, and bfloat16 stays near, without infinities."""
    subject = impl.build("module", {})
    inputs = subject.example(seed=11)
    wide = subject(**inputs)["out"]
    narrowed, began = subject.in_precision("float32"), time.process_time()
    try:
        narrow = narrowed(**inputs)["out"]
    except RuntimeError as error:
        if "dtype" in str(error) and subject.line_of(r"torch\.(double|float64)|\.double\(\)"):
            raise NotProvided("it goes over to float64 by itself") from error
        raise
    scale = max(float(np.abs(wide).max()), 1e-9)
    parts = [close("float32 beside float64", narrow, wide, 2e-3 * scale, "float32's rounding through all layers")]
    if time.process_time() - began < _QUICK:  # some processors compute convolutions of halves very slowly
        with suppress(Exception):
            half = subject.in_precision("bfloat16")(**inputs)["out"]
            parts.append(true("bfloat16 is finite", bool(np.isfinite(half).all()), got="inf or nan"))
    return judged(subject, all_of(*parts)).saying(
        diagnosis="The answer depends on the precision: a constant does not fit in it, or a sum loses digits.",
        place=subject.place(),
    )


@check("model-log-probabilities-sum-to-one", roles=("model",))
def log_probabilities(impl: Any, draw: Draw) -> Evidence:
    """Answers that a log-softmax made are the logarithms of numbers that sum to one over the classes."""
    subject = impl.build("model", {})
    place = subject.line_of(r"log_softmax\(|LogSoftmax\(")
    out = subject(**subject.example(batch=2, seed=9))["out"]
    if not place or subject.calling.layout == "(B, ...)" or out.shape[-1] < 2 or not (out <= 0).all():
        raise NotProvided("it gives no log-probabilities")
    sums = np.exp(out).sum(-1)
    return close("the sum of the probabilities", sums, np.ones_like(sums), 1e-4, "rounding").saying(
        diagnosis="The log-probabilities of one position do not sum to one: the softmax runs over another axis.",
        place=place,
        mend="log_softmax(dim=-1), the axis of the classes",
    )

"""Checks of the functions with which a model writes: generate, sample, greedy_decode, translate.

Every choice is decided by the check, so nothing here is left to chance. What a writer chose from is compared with the
model's own logits, in one pass without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true
from conformance.protocol import Array, NotProvided

KINDS = ("language_model", "sequence_to_sequence")
NEW = 6


def built(impl: Any) -> Any:
    """The language model, or the model from sequence to sequence, that it is."""
    try:
        return impl.build("language_model", {})
    except NotProvided:
        return impl.build("sequence_to_sequence", {})


def prompt(subject: Any, rows: int, seed: int = 70, length: int = 5) -> dict[str, Array]:
    """A prompt ("ids"), or a source ("src"), of random words."""
    meaning = "src" if subject.calling.two_sided else subject.calling.main.meaning
    inputs = subject.example(rows, length, seed, **{meaning: length})
    return {meaning: inputs[meaning]}


def script(subject: Any, rows: int, new: int = NEW, seed: int = 60) -> Array:
    """(rows, new) random words, all different in a row."""
    main = subject.calling.main
    rng = np.random.default_rng(seed)
    words = np.unique(subject.tokens(rng, main.meaning, (400,)))
    return np.stack([rng.permutation(words)[:new] for _ in range(rows)])


def writers(subject: Any, beam: bool = False) -> list[Any]:
    found = [w for w in subject.writers() if (w.beam == beam or (beam and w.has("beams"))) and not w.breaks]
    if not found:
        raise NotProvided("it has no function that writes" + (" by beams" if beam else ""))
    return found


def prompted(subject: Any) -> list[Any]:
    """The writers that go on with a prompt, and do not begin by themselves."""
    found = [writer for writer in writers(subject) if not writer.tells_of]
    if not found:
        raise NotProvided("what writes takes no prompt")
    return found


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def alike(scores: Array, own: Array) -> float:
    """How far scores are from logits, in the nearer of two readings: up to a constant a row, or as probabilities. Words
    that it never writes, whose scores are minus infinity, or whose probabilities are zero, are left out of a row."""
    if scores.shape != own.shape:
        return float("inf")
    scale = max(float(np.abs(own[np.isfinite(own)]).max(initial=0.0)), 1e-9)
    as_logits = np.isfinite(scores)
    found = float("inf")
    if as_logits.any():
        with np.errstate(invalid="ignore"):  # a row of nothing but words that are never written
            apart = np.abs(log_softmax(scores) - log_softmax(np.where(np.isneginf(scores), -np.inf, own)))
        found = float(apart[as_logits].max() / scale)
    if (scores >= 0).all() and (scores.sum(-1) > 0).all():
        likely = scores / scores.sum(-1, keepdims=True)
        found = min(found, float(np.abs(likely - np.exp(log_softmax(np.where(likely == 0, -np.inf, own)))).max()))
    return found


def ended(subject: Any, writer: Any, new: Array) -> Array:
    """How many tokens of each row count: those up to the first end token, or to the first padding."""
    marks = {value for value in (writer.end_of(subject), subject.pad_id) if value is not None}
    stops = np.isin(new, sorted(marks))
    first = [int(np.flatnonzero(row)[0]) + 1 if row.any() else new.shape[1] for row in stops]
    return np.array(first)


def own_logits(subject: Any, written: Any, data: dict[str, Array]) -> Iterator[Array]:
    """The model's own logits before each new token."""
    subject = subject.called_as_in(written)
    for at in range(written.new.shape[1]):
        yield subject.next_logits(np.concatenate([written.prefix, written.new[:, :at]], 1), data.get("src"))


def never_taken(written: Any, vocab: int) -> Array:
    """Tokens that its code forbids: minus infinity at the same places in every row and step of the whole vocabulary."""
    tables = [np.isneginf(step.scores).all(0) for step in written.steps if step.scores.shape[1] == vocab]
    if not tables and written.barred is not None and len(written.barred) == vocab:  # a beam's choice is no step
        tables = [written.barred]
    return np.logical_and.reduce(tables) if tables else np.zeros(vocab, bool)


def best_tokens(subject: Any, writer: Any, written: Any, data: dict[str, Array], what: str) -> Evidence:
    """Whether each new token is the best of the model's own logits, up to the end of its row."""
    counted = ended(subject, writer, written.new)
    for at, own in enumerate(own_logits(subject, written, data)):
        chosen = written.new[:, at]
        if chosen.max(initial=0) >= own.shape[1]:
            return true(what, False, expected=f"tokens below {own.shape[1]}", got=int(chosen.max()))
        forbidden = never_taken(written, own.shape[1])
        allowed = np.where(forbidden, -np.inf, own) if not forbidden.all() else own
        scale = max(float(np.abs(own).max()), 1e-9)
        missing = (allowed.max(1) - own[np.arange(len(own)), chosen]) / scale
        missing[counted <= at] = 0.0
        if missing.max() > written.noise:
            row = int(missing.argmax())
            return true(
                f"{what}: new token {at} of row {row}", False, got=int(chosen[row]), expected=int(allowed[row].argmax())
            ).saying(
                diagnosis=_of_choice(subject, written, data, at, row),
                place=written.chosen_at or place_of_choice(writer),
            )
    return true(what, True, got=f"{written.new.shape[1]} tokens in each of {len(written.new)} rows")


def place_of_choice(writer: Any) -> str:
    return str(writer.line_of(r"argmax|multinomial|topk\(|\.max\(|logits\s*=|sample\("))


def _of_choice(subject: Any, written: Any, data: dict[str, Array], at: int, row: int) -> str:
    """What a wrong token is the best of, in words."""
    prefix = np.concatenate([written.prefix, written.new[:, :at]], 1)
    chosen = int(written.new[row, at])
    said = f"New token {at + 1} is not the best by the model's own logits"
    subject = subject.called_as_in(written)
    own = subject.next_logits(prefix, data.get("src"))
    if int(own[row].argmin()) == chosen:
        return f"{said}: it is the worst."
    rows = [other for other in range(len(own)) if other != row and int(own[other].argmax()) == chosen]
    if rows:
        return f"{said}: it is the best for row {rows[0]} of the batch."
    for size in range(prefix.shape[1] - 1, 0, -1):
        if int(subject.next_logits(prefix[:, :size], data.get("src"))[row].argmax()) == chosen:
            return f"{said}: it is the best after position {size - 1}, and {prefix.shape[1] - 1} is the last."
    if written.cached and at:
        return f"{said}. It is fed with a cache: see whether cached steps give the logits of one pass."
    return said + "."


@check("generate-takes-the-best-token", roles=KINDS)
def takes_the_best(impl: Any, draw: Draw) -> Evidence:
    """Where each draw gives the likeliest token, each new token is the best of the model's own logits."""
    subject = built(impl)
    parts: list[Evidence] = []
    for writer in subject.writers():
        if writer.breaks:
            return true(
                f"{writer.name} writes more than one token", False, got=writer.breaks, expected="tokens"
            ).saying(
                diagnosis=f"{writer.name} writes one token, and breaks at the next: {writer.breaks}.",
                place=writer.breaks_at or writer.place,
            )
    for writer in writers(subject):
        data = prompt(subject, writer.rows)
        what = f"{writer.name} takes the best token"
        parts.append(best_tokens(subject, writer, writer.write(subject, data, NEW), data, what))
        if not parts[-1].ok:
            continue
        other = livelier(subject, writer, data)
        if other is None:
            parts.append(best_behind_a_script(subject, writer, data, what))
        elif other is not subject:
            parts.append(best_tokens(other, writer, writer.write(other, data, NEW), data, what))
    return all_of(*parts)


def best_behind_a_script(subject: Any, writer: Any, data: dict[str, Array], what: str) -> Evidence:
    """Whether the likeliest of what it chooses from is the best of the model's own logits, behind words of ours."""
    if not columns_are_tokens(subject, writer, data):
        return true(what, True)
    written = writer.write(subject, data, NEW, script=script(subject, writer.rows))
    for (at, own), step in zip(enumerate(own_logits(subject, written, data)), written.steps, strict=False):
        if step.scores.shape != own.shape:
            break
        forbidden = never_taken(written, own.shape[1])
        allowed = np.where(forbidden, -np.inf, own) if not forbidden.all() else own
        taken = step.scores.argmax(1)
        missing = allowed.max(1) - own[np.arange(len(own)), taken]
        if missing.max() > written.noise * max(float(np.abs(own).max()), 1e-9):
            row = int(missing.argmax())
            return true(
                f"{what}: new token {at} of row {row}", False, got=int(taken[row]), expected=int(allowed[row].argmax())
            ).saying(
                diagnosis=f"Behind words that change at each step {writer.name} chooses new token {at + 1} by other "
                "logits than the model's own of the last position.",
                place=written.chosen_at or place_of_choice(writer),
            )
    return true(what, True)


def columns_are_tokens(subject: Any, writer: Any, data: dict[str, Array]) -> bool:
    """Whether it chooses among scores in the order of the vocabulary: of sorted ones the first is always the best."""
    first = writer.write(subject, data, 1)
    scores = first.steps[0].scores if first.steps else np.zeros((1, 0))
    whole = scores.shape == (writer.rows, subject.calling.main.vocab)
    return whole and bool((scores.argmax(1) == first.new[:, 0]).all())


def livelier(subject: Any, writer: Any, data: dict[str, Array]) -> Any:
    """A copy whose best tokens differ from step to step, where this one says one token again and again: a mistake in
    which place is read would not show. The subject itself where it does well; None where no copy does."""
    first = writer.write(subject, data, 1)
    for times in (1, 2, 4, 8):
        other = subject.with_larger_matrices(times) if times > 1 else subject
        said = [first.prefix]
        for _ in range(NEW):
            whole = np.concatenate(said, 1)
            said.append(other.called_as_in(first).next_logits(whole, data.get("src")).argmax(1)[:, None])
        if min(len(np.unique(row)) for row in np.concatenate(said[1:], 1)) > 2:
            return other
    return None


@check("generate-is-greedy-where-asked", roles=KINDS)
def greedy_where_asked(impl: Any, draw: Draw) -> Evidence:
    """Temperature 0, do_sample=False, and top_k=1 take the best token, whatever is drawn."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        for option, value in writer.greedy_options():
            data = prompt(subject, writer.rows, 71)
            what = f"{writer.name} with {writer.options[option]}={value} takes the best token"
            for seed in (1, 2, 3):
                try:
                    written = writer.write(subject, data, NEW, draw=None, seed=seed, **{option: value})
                except (ValueError, AssertionError) as error:
                    parts.append(note(f"{writer.name} refuses {writer.options[option]}={value}", str(error)))
                    break
                except RuntimeError as error:
                    return true(what, False, got=f"{type(error).__name__}: {error}", expected="tokens").saying(
                        diagnosis=f"{writer.name} breaks with {writer.options[option]}={value}, which its code treats.",
                        place=writer.line_of(rf"\b{writer.options[option]}\b\s*[<>=!)]"),
                    )
                parts.append(best_tokens(subject, writer, written, data, what))
    if not parts:
        raise NotProvided("no option of its makes it greedy")
    return all_of(*parts)


@check("generate-writes-as-many-tokens-as-asked", roles=KINDS)
def as_many_as_asked(impl: Any, draw: Draw) -> Evidence:
    """One more token that is asked for is one more token; what is named new counts the new ones."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        if not writer.counts:
            continue
        data = prompt(subject, writer.rows, 72)
        asked, extra = (1, 2, 4), writer.offset(data)
        words = script(subject, writer.rows, max(asked) + 1)
        found = [writer.write(subject, data, new, script=words) for new in asked]
        name = writer.options["count"]
        if any((ended(subject, writer, one.new) < one.new.shape[1]).any() for one in found):
            raise NotProvided(f"{writer.name} meets its end token")
        counts = [one.new.shape[1] for one in found]
        answer = f"{counts} new tokens for {name} of {[n + extra for n in asked]}"
        if "new" in name:
            parts.append(
                true(f"{name} is the number of new tokens", counts == list(asked), got=answer, expected=list(asked))
            )
        elif np.diff(counts).tolist() != np.diff(asked).tolist():
            parts.append(true("one more is one more token", False, got=answer, expected="1, 2, 4 and a constant"))
        else:
            parts.append(note(f"what {name} counts", answer))
        parts[-1] = parts[-1].saying(
            diagnosis=f"{writer.name} gives {answer}.", place=writer.line_of(r"range\(|while ")
        )
    if not parts:
        raise NotProvided("it takes no number of tokens")
    return all_of(*parts)


@check("generate-gives-the-prompt-back-unchanged", roles=("language_model",))
def keeps_the_prompt(impl: Any, draw: Draw) -> Evidence:
    """What is given back begins with the prompt, or holds new tokens only; the caller's prompt is left as it was."""
    subject = built(impl)
    parts = []
    for writer in prompted(subject):
        data = prompt(subject, writer.rows, 73)
        given = next(iter(data.values()))
        words = script(subject, writer.rows)
        short, long = (writer.write(subject, data, new, script=words) for new in (1, 3))
        whole = not short.kept and short.raw.shape[1] - given.shape[1] == 1 and long.raw.shape[1] - given.shape[1] == 3
        parts.append(
            true(
                f"{writer.name} begins with the prompt",
                not whole,
                got=short.raw[0].tolist(),
                expected=given[0].tolist(),
            ).saying(diagnosis=f"{writer.name} gives back a prompt that was changed.", place=writer.place)
            if whole
            else note(f"what {writer.name} gives back", "prompt and new tokens" if short.kept else "new tokens only")
        )
    return all_of(*parts)


@check("generate-reads-the-last-tokens-of-a-long-text", roles=("language_model",))
def reads_the_last_tokens(impl: Any, draw: Draw) -> Evidence:
    """Beyond the longest input the model goes on from the last tokens, where it goes on at all."""
    subject = built(impl)
    longest = subject.longest
    if longest is None:
        raise NotProvided("no limit of its length was met")
    for writer in prompted(subject):
        data = prompt(subject, writer.rows, 74, longest - 1)
        try:
            written = writer.write(subject, data, 4, script=script(subject, writer.rows))
        except Exception as error:
            return note(f"{writer.name} stops beyond {longest} tokens", type(error).__name__)
        own = subject.called_as_in(written)
        for at, step in enumerate(written.steps[: written.new.shape[1]]):
            text = np.concatenate([written.prefix, written.new[:, :at]], 1)
            reads_a_cache = written.cached and (step.fed or 0) < longest
            if text.shape[1] <= longest or reads_a_cache or alike(step.scores, own.next_logits(text)) < written.noise:
                continue
            if alike(step.scores, own.next_logits(text[:, :longest])) < written.noise:
                return true(
                    "it goes on from the last tokens", False, got=f"the first {longest}", expected=f"the last {longest}"
                ).saying(
                    diagnosis=f"Beyond {longest} tokens {writer.name} reads the first tokens, not the last.",
                    place=writer.line_of(r":\s*[\w.]*(block|context|ctx|max)[\w.]*\s*\]|\[\s*:\s*,\s*-?:"),
                    mend="ids[:, -block_size:]",
                )
            return note(f"{writer.name} goes on in its own way beyond {longest} tokens", f"new token {at}")
    return true("it goes on from the last tokens", True)


@check("generate-leaves-the-model-as-it-was", roles=KINDS)
def leaves_the_model(impl: Any, draw: Draw) -> Evidence:
    """Writing changes no weights, and puts back the mode where its code says so."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        data = prompt(subject, writer.rows, 75)
        changed, mode = writer.left_behind(subject, data)
        remembers = writer.line_of(r"=\s*\w*\.?\w*\.training\b|=\s*\w+\.training\b") != writer.place
        if mode == "evaluation" and remembers:
            parts.append(
                true("the training mode is put back", False, expected="training mode", got="evaluation mode").saying(
                    diagnosis=f"{writer.name} remembers the training mode, and leaves the model in evaluation mode.",
                    place=writer.line_of(r"\.training\b"),
                    mend="model.train(was_training)",
                )
            )
        elif mode != "training":
            parts.append(note(f"{writer.name} leaves the model in another mode", mode))
        if remembers and writer.left_behind(subject, data, training=False)[1] == "training":
            parts.append(
                true("evaluation mode is put back", False, expected="evaluation mode", got="training mode").saying(
                    diagnosis=f"{writer.name} remembers the mode, and leaves a model that was in evaluation mode in "
                    "training mode: dropout is on afterwards.",
                    place=writer.line_of(r"\.train\("),
                    mend="model.train(was_training)",
                )
            )
        parts.append(
            true(f"{writer.name} leaves the weights", not changed, got=", ".join(changed[:3]) or "unchanged").saying(
                diagnosis=f"{writer.name} changes {', '.join(changed[:3])}.", place=writer.place
            )
        )
    return all_of(*parts)


@check("generate-does-not-remember-other-prompts", roles=KINDS)
def remembers_nothing(impl: Any, draw: Draw) -> Evidence:
    """What was written for another prompt before changes nothing."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        data, other = prompt(subject, writer.rows, 76), prompt(subject, writer.rows, 77, 7)
        words = script(subject, writer.rows)
        writer.write(subject, other, NEW, script=words)
        try:
            first, again = writer.twice(subject, data, other, words)
        except Exception as error:
            return true(f"{writer.name} writes again", False, got=f"{type(error).__name__}: {error}").saying(
                diagnosis=f"{writer.name} breaks at its second prompt or third: a cache is not emptied.",
                place=writer.place,
            )
        ok = first.raw.shape == again.raw.shape and bool((first.raw == again.raw).all())
        ok = ok and all(
            apart(one.scores, two.scores) < first.noise for one, two in zip(first.steps, again.steps, strict=False)
        )
        parts.append(
            true(
                f"{writer.name} writes the same again", ok, got=again.raw[0].tolist(), expected=first.raw[0].tolist()
            ).saying(
                diagnosis=f"What {writer.name} wrote before changes what it writes now: a cache is not emptied.",
                place=writer.place if ok else subject.fed_otherwise_at(writer, first, data) or writer.place,
            )
        )
    return all_of(*parts)


def apart(one: Array, other: Array) -> float:
    """The largest difference, relative to the largest finite number; infinite where the finite ones differ in place."""
    if one.shape != other.shape or not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    finite = np.isfinite(one)
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0) / max(np.abs(one[finite]).max(initial=0.0), 1e-9))


@check("generate-stops-at-the-end-token", roles=KINDS)
def stops_at_the_end(impl: Any, draw: Draw) -> Evidence:
    """A row ends at its end token: nothing is written behind it, and the other rows go on."""
    subject = built(impl)
    parts = []
    for writer in writers(subject):
        if writer.ends(subject):
            parts += list(_endings(subject, writer))
    if not parts:
        raise NotProvided("it has no end token")
    return all_of(*parts)


def _endings(subject: Any, writer: Any) -> Iterator[Evidence]:
    """One row by itself, then two rows of which the first ends first."""
    words = script(subject, 2)
    token = int(words[0, 1])
    words[1] = np.where(words[1] == token, words[0, 0], words[1])
    words[1, 3] = token
    place = writer.line_of(r"(?i)(eos|end|stop)\w*\b.*(==|!=)|(==|!=).*(eos|end|stop)", r"done|finished|alive")
    data = prompt(subject, writer.rows, 80)
    alone = {name: value[:1] for name, value in data.items()}
    got = writer.ended_by(subject, alone, words[:1], token).new[0]
    if len(got) == 0 or got[0] != words[0, 0]:
        yield note(f"{writer.name} does not write what is decided", got.tolist())
        return
    stops = not (len(got) == NEW and (got == words[0]).all())
    yield true(
        f"{writer.name} stops at its end token {token}", stops, got=got.tolist(), expected=words[0, :2].tolist()
    ).saying(diagnosis=f"{writer.name} goes on writing behind its end token.", place=place)
    if writer.rows > 1:
        yield _ending_of_rows(writer, subject, data, words, place)


def _ending_of_rows(writer: Any, subject: Any, data: dict[str, Array], words: Array, place: str) -> Evidence:
    token = int(words[0, 1])
    try:
        written = writer.ended_by(subject, data, words, token)
    except Exception as error:
        return note(f"{writer.name} ends one row only", type(error).__name__)
    if written.partly:
        return note(f"{writer.name} works on one row, or on those that have not ended", "rows apart")
    both = written.new[:, : words.shape[1]]  # some write one token more than they are asked for
    what = f"row 0 ends with {token} as token 2, row 1 as token 4"
    rest = both[0, 2:]
    if both.shape[1] < 3:  # the end token itself may be left out
        return true(what, False, got=both.tolist(), expected=words[:, :4].tolist()).saying(
            diagnosis=f"{writer.name} ends all rows of a batch when one of them ends.", place=place
        )
    if (rest == words[0, 2 : 2 + len(rest)]).all():
        if writer.fills_ended_rows:
            return true(what, False, got=both.tolist(), expected="padding behind the end").saying(
                diagnosis=f"A row that has ended is written on until all have: {writer.name} says that it is filled.",
                place=place,
                mend="token = token.masked_fill(finished, pad)",
            )
        return note(f"{writer.name} ends when all rows end in one step", both[0].tolist())
    if (rest != rest[0]).any() or len(np.unique(both[1, 4:])) > 1:
        return true(what, False, got=both.tolist(), expected="one filler behind the end").saying(
            diagnosis=f"A row that has ended is written on: {writer.name} forgets which rows have ended.",
            place=place,
            mend="finished = finished | (token == eos)",
        )
    wanted = words[1, :3]
    return true(what, bool((both[1, :3] == wanted).all()), got=both[1].tolist(), expected=wanted.tolist()).saying(
        diagnosis=f"The end of one row changes what {writer.name} writes in another.", place=place
    )


@check("generate-with-one-beam-is-greedy", roles=KINDS)
def beam_of_one(impl: Any, draw: Draw) -> Evidence:
    """Beam search of size 1 takes the best token in each step."""
    subject = built(impl)
    parts = []
    for writer in writers(subject, beam=True):
        if not writer.has("beams"):
            continue
        data = prompt(subject, writer.rows, 79)
        written = writer.write(subject, data, NEW, beams=1)
        parts.append(best_tokens(subject, writer, written, data, f"{writer.name} with one beam takes the best token"))
    if not parts:
        raise NotProvided("its beam search has no size")
    return all_of(*parts)

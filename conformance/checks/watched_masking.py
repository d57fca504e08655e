"""Checks of a training run: which tokens are masked and asked for, and whether the end of a text is learned."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, SURE, broken, first_of_tokens, kept, of_tokens, run_of, trained
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


def masked(run: Any) -> list[Any]:
    """The losses of masked tokens; raises NotProvided where none was seen."""
    first_of_tokens(run)
    found = [loss for loss in of_tokens(run) if loss.targets.masked and loss.targets.offsets.get(1, 0.0) < SURE]
    if not found:
        raise NotProvided("no loss of masked tokens was seen")
    return found


@check("run-masked-tokens-are-words", roles=RUN)
def masked_words(impl: Any, draw: Draw) -> Evidence:
    """The token that opens every row is not masked and asked for: it is always the same."""
    run = run_of(impl)
    losses = masked(run)
    asked = sum(loss.targets.openings for loss in losses)
    if asked < 2:
        return kept("labels of the token that opens every row", asked)
    loss = next(loss for loss in losses if loss.targets.openings)
    return broken(
        loss,
        "labels of the token that opens every row",
        0,
        asked,
        at=lambda lines: lines.drawn(run, loss),
        diagnosis="Special tokens are masked and asked for: each row opens with the same one, and nothing is learned.",
        mend="leave special tokens and padding out of what is masked",
    )


@check("run-masks-differ", roles=RUN)
def masks_differ(impl: Any, draw: Draw) -> Evidence:
    """Other places are masked in each batch."""
    run = run_of(impl)
    first = masked(run)[0]
    by_size: dict[int, list[Any]] = {}
    for loss in trained(run, first.name):
        if loss.asked and loss.place == first.place:
            by_size.setdefault(len(loss.asked), []).append(loss)
    losses = max(by_size.values(), key=len, default=[])
    if len(losses) < 3:
        raise NotProvided("no three batches of one size were seen with masked tokens")
    bits = np.array([np.unpackbits(np.frombuffer(loss.asked, np.uint8)) for loss in losses])
    shares = [(one & two).sum() / max(one.sum(), two.sum(), 1) for one, two in pairwise(bits)]
    always = float(np.median(shares))
    if always < 0.7 or bits.mean() > 0.5:
        return kept("the share of places that are masked in the next batch again", f"{always:.0%}")
    return broken(
        losses[1],
        "the share of places that are masked in the next batch again",
        f"about {bits.mean():.0%}",
        f"{always:.0%}",
        at=lambda lines: lines.drawn_again(run, losses[1]),
        diagnosis="The same places are masked in every batch: the mask is drawn once, or from the same seed each time.",
        mend="draw the mask anew for each batch",
    )


@check("run-ends-are-learned", roles=RUN)
def ends_learned(impl: Any, draw: Draw) -> Evidence:
    """Where every text ends with one token before padding, that token is asked for."""
    run = run_of(impl)
    first_of_tokens(run)
    losses = [one for one in of_tokens(run) if one.targets.ends and one.targets.offsets.get(1, 0.0) >= SURE]
    places = {loss.place for loss in losses}
    if not losses or sum(loss.targets.ends for loss in losses) < 8:
        raise NotProvided("no loss of next tokens was seen whose texts end with one token before padding")
    for place in sorted(places):
        mine = [loss for loss in losses if loss.place == place]
        if not any(loss.targets.ended for loss in mine):
            return broken(
                mine[0],
                "labels that are the token which ends every text",
                "some that count",
                0,
                at=lambda lines: lines.ending(run, mine[0]),
                diagnosis="The token that ends every text is in no label that counts: the model never learns to stop.",
                mend="leave padding out of the loss, and not the end token before it",
            )
    return kept("the token that ends texts is asked for", sum(loss.targets.ended for loss in losses))


@check("run-ends-that-are-waited-for-are-learned", roles=RUN)
def awaited_ends(impl: Any, draw: Draw) -> Evidence:
    """A token that writing stops at is asked for somewhere, where the labels are of whole texts."""
    from conformance.watch import ends

    taught, found = ends.untaught(run_of(impl))
    if found is not None:
        return broken(
            found.loss,
            f"labels with the id {found.value}, which ends a text",
            "one of each text",
            0,
            at=lambda lines: lines.first(lines.encoded(run_of(impl)), found.loss.place, found.place),
            diagnosis=f"Writing stops at the token {found.value} ({found.place}), and no label asks for it: the model "
            "never learns to stop.",
            mend="put the end token behind each text: tokens + [EOS]",
        )
    if not taught:
        raise NotProvided("no end was seen that is waited for, beside losses of whole texts")
    return kept("losses that ask for the end", taught)


@check("run-most-of-what-is-asked-is-masked", roles=RUN)
def mostly_masked(impl: Any, draw: Draw) -> Evidence:
    """Of the tokens that labels ask for, more are replaced by the mask than by other words."""
    from conformance.watch import replacing

    run = run_of(impl)
    first_of_tokens(run)
    losses = [loss for loss in of_tokens(run) if loss.targets.masks]
    masks, swaps, counted = (
        sum(getattr(loss.targets, name) for loss in losses) for name in ("masks", "swaps", "counted")
    )
    if not losses or masks < 0.2 * counted or counted < 50:
        raise NotProvided("no loss was seen that asks for tokens which a mask replaced")
    shares = f"the mask {masks / counted:.0%}, another word {swaps / counted:.0%}"
    if swaps <= 0.9 * masks:
        return kept("what stands where labels ask", shares)
    return broken(
        losses[0],
        "what stands where labels ask",
        "mostly the mask: 80% and 10% in BERT",
        shares,
        at=lambda lines: lines.first([*replacing.drawn_words(run)][:1], lines.drawn(run, losses[0])),
        diagnosis=f"Random words stand at {swaps / counted:.0%} of the places that labels ask for, the mask only at "
        f"{masks / counted:.0%}: many masks were written over.",
        mend="draw random words among the chosen places that have no mask: chosen & ~masked",
    )


@check("run-what-is-masked-is-asked", roles=RUN)
def masked_is_asked(impl: Any, draw: Draw) -> Evidence:
    """Most tokens that are replaced by the mask are asked for. Who hides more than is asked for on purpose hides what
    is asked for first: a mask that is drawn of all tokens hides both in the same share."""
    run = run_of(impl)
    losses = masked(run)
    idle, hidden, counted, tokens = (
        sum(getattr(loss.targets, name) for loss in losses) for name in ("idle", "hidden", "counted", "tokens")
    )
    if idle < 1.5 * counted or idle < 0.3 * tokens:
        return kept("masked tokens that no label asks for", f"{idle}, beside {counted} that one asks for")
    is_drawn_of_all = hidden < 0.97 * counted and abs(hidden / counted - idle / max(tokens - counted, 1)) < 0.2
    return broken(
        losses[0],
        "masked tokens that no label asks for",
        "few",
        f"{idle} of {tokens} tokens, beside {counted} that one asks for",
        at=lambda lines: lines.put(run, losses[0]),
        diagnosis=f"{idle / tokens:.0%} of all tokens are replaced by the mask, and labels ask for "
        f"{counted / tokens:.0%} only: the share to be replaced is taken of all tokens, not of the chosen ones.",
        mend="replace chosen tokens only: replaced = chosen & (torch.rand(shape) < 0.8)",
        is_certain=is_drawn_of_all,
    )


@check("run-words-are-replaced-where-asked", roles=RUN)
def replaced_where_asked(impl: Any, draw: Draw) -> Evidence:
    """Random words are put in the place of those that labels ask for, and of no others."""
    from conformance.watch import replacing

    run = run_of(impl)
    step = steps_of(run)[0]
    found = replacing.replaced_unasked(run)
    if not found:
        raise NotProvided("no words were seen that are replaced at random beside those that labels ask for")
    where, asked, place, drawn = found[0]
    return broken(
        step,
        "where words are replaced at random",
        f"among {asked}, which labels ask for",
        f"at {where}, which is drawn by itself",
        at=lambda lines: lines.first(drawn, place),
        diagnosis=f"{where} is not a part of {asked}: words are replaced that no label asks for, and their neighbours "
        "are learned from what was never written.",
        mend=f"{where} & {asked}",
    )


@check("run-masks-are-not-overwritten", roles=RUN)
def masks_stay(impl: Any, draw: Draw) -> Evidence:
    """Random words are put where no mask was put just before."""
    from conformance.watch import replacing

    run = run_of(impl)
    step = steps_of(run)[0]
    found = replacing.overwritten(run)
    if not found:
        raise NotProvided("no masks were seen that random words are written over")
    masked, random, place = found[0]
    return broken(
        step,
        "where random words are put",
        f"beside {masked}, where the mask was put",
        f"at {random}, which is drawn without regard to it",
        at=lambda lines: lines.first(place),
        diagnosis=f"{random} takes its share of {masked}, too: many of the masks become random words again.",
        mend=f"leave them out: & ~{masked}",
    )

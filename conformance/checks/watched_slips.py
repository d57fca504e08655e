"""Checks of what a training script shows by its text alone: a claim a slip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import told_slip
from conformance.checks.watched_labels import RUN
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.slips import (
    axes,
    batches,
    beams,
    data,
    fitting,
    idle,
    judging,
    labels,
    measures,
    orders,
    parts,
    results,
    states,
    steps,
    training,
)
from conformance.slips.slip import Slip

_TOLD = {
    "run-words-keep-their-numbers": orders.HASHES,
    "run-nearest-is-chosen-by-distance": orders.DISTANCES,
    "run-labels-are-cut-as-their-tokens": orders.CUTS,
    "run-last-group-is-kept": orders.GROUPS,
    "run-ranks-count-the-first-k": orders.RANKS,
    "run-schedule-is-as-long-as-it-is-stepped": training.SCHEDULES,
    "run-perplexity-has-the-base-of-its-loss": measures.PERPLEXITIES,
    "run-long-texts-have-their-end": data.ENDS,
    "run-levels-weigh-errors-by-their-sign": data.LEVELS,
    "run-margin-asks-about-one-answer": data.PARTNERS,
    "run-beams-add-their-scores": beams.SCORES,
    "run-counts-stand-by-their-classes": data.COUNTS,
    "run-mask-goes-with-the-words": data.MASKS,
    "run-loss-reads-its-mask": idle.UNREAD,
    "run-heads-are-moved-back": axes.HEADS,
    "run-new-shapes-keep-the-order-of-axes": axes.AXES,
    "run-beams-begin-with-one": beams.COPIES,
    "run-labels-of-next-words-are-moved-on": data.MOVED,
    "run-fitted-statistics-are-saved": states.UNSAVED,
    "run-columns-have-rows-of-their-own": orders.COLUMNS,
    "run-logits-are-compared-with-nought": judging.LEVELS,
    "run-better-end-of-a-measure-is-told": judging.BETTER,
    "run-each-fold-has-its-own-model": judging.FOLDS,
    "run-states-are-chosen-by-the-validation": judging.CHOSEN,
    "run-validation-ends-where-the-test-begins": judging.ENDLESS,
    "run-sums-over-a-mask-count-what-it-takes": judging.SIZES,
    "run-returns-shrink-by-rewards": judging.RETURNS,
    "run-hidden-scores-are-minus-infinity": results.NOUGHT,
    "run-paths-of-ctc-are-merged-first": results.BLANKS,
    "run-figures-in-bits-are-in-bits": measures.NATS,
    "run-long-answers-divide-by-their-length": beams.LENGTHS,
    "run-ends-stay-labels": data.LAST_WORDS,
    "run-terms-of-scores-have-one-scale": results.TERMS,
    "run-grids-have-one-order": axes.GRIDS,
    "run-boxes-scale-x-by-the-width": axes.SIDES,
    "run-words-start-at-their-first-piece": orders.PIECES,
    "run-states-are-kept-by-the-better-end": judging.STOPPED,
    "run-probabilities-are-calibrated-on-other-rows": judging.CALIBRATED,
    "run-accuracies-of-classes-are-of-their-rows": measures.OF_CLASSES,
    "run-weekdays-are-counted-in-days": data.WEEKDAYS,
    "run-long-rows-keep-their-newest": data.NEWEST,
    "run-gains-begin-with-one": results.FIRST_GAINS,
    "run-tables-of-answers-keep-the-order-of-rows": orders.SHUFFLED,
    "run-averages-get-their-own-state-back": states.OTHERS,
    "run-training-part-has-an-end": parts.UNENDING,
    "run-windows-end-before-their-target": data.WINDOWS,
    "run-results-of-methods-are-kept": results.THROWN,
    "run-pairs-count-each-time": results.PAIRS,
    "run-gains-use-the-logarithm-of-two": results.GAINS,
    "run-rows-return-to-their-order": results.SORTED,
    "run-warm-ups-meet-their-fall": results.WARM_UPS,
    "run-spans-keep-their-sentence": results.SPANS,
    "run-last-span-is-closed": results.OPEN,
    "run-whole-days-count": results.DAYS,
    "run-missed-and-false-are-counted-apart": measures.TWICE,
    "run-measures-of-writing-read-what-is-written": measures.BEGINNINGS,
    "run-merged-factors-keep-their-scale": states.MERGED,
    "run-parts-of-batches-are-read": idle.APART,
    "run-parts-share-no-rows": parts.SHARED,
    "run-validation-is-not-the-test": parts.RENAMED,
    "run-saved-weights-are-loaded": states.REBUILT,
    "run-ranks-are-of-scores": measures.RANKS,
    "run-bits-are-nats-by-the-logarithm-of-two": measures.BITS,
    "run-unions-count-each-once": measures.UNIONS,
    "run-tables-are-read-as-they-are-filled": measures.TABLES,
    "run-warm-up-rises-by-shares": training.WHOLE,
    "run-slow-averages-move-with-each-step": states.AVERAGED,
    "run-names-and-numbers-are-of-one-order": orders.NAMES,
    "run-measures-count-from-the-best": measures.FIRST,
    "run-short-answers-weigh-less": measures.BREVITY,
    "run-draws-divide-by-the-temperature": results.TEMPERATURES,
    "run-masks-of-batches-are-read": idle.VAIN,
    "run-masks-of-pairs-are-read": idle.STAYS,
    "run-tables-that-a-model-keeps-are-read": idle.BUFFERS,
    "run-steps-are-those-of-the-optimizer": training.PASSES,
    "run-what-judges-is-not-changed": batches.CHANGED,
    "run-pictures-keep-their-colours": batches.COLOURS,
    "run-orders-hold-each-row-once": batches.REPEATS,
    "run-parts-share-one-table-of-labels": batches.NUMBERED,
    "run-trainer-chooses-by-the-validation": batches.TRAINERS,
    "run-rows-do-not-find-themselves": measures.ITSELF,
    "run-groups-stay-together": parts.GROUPS,
    "run-threshold-is-not-chosen-by-the-test": parts.THRESHOLDS,
    "run-seeds-of-epochs-differ": training.EPOCHS,
    "run-states-are-copied-when-kept": training.KEPT,
    "run-split-is-by-what-it-names": parts.PROMISES,
    "run-rows-that-were-seen-are-remembered": parts.REMEMBERED,
    "run-training-part-ends-before-what-judges": parts.REACHING,
    "run-mean-and-spread-are-of-the-training-part": fitting.FITTED,
    "run-mirrored-pictures-change-sides": parts.MIRRORS,
    "run-labels-are-read-before-the-mask": labels.AFTER_MASKING,
    "run-ends-are-no-padding": labels.ENDS_LEFT_OUT,
    "run-scales-are-learned": states.UNLEARNED,
    "run-returns-reach-the-end": steps.WINDOWED,
    "run-histories-are-read-at-their-newest": steps.NEWEST_PLACE,
    "run-masks-of-heads-stay-with-their-sample": axes.MASKS_OF_HEADS,
}


def _told(slip: Slip) -> Callable[[Any, Draw], Evidence]:
    def told(impl: Any, draw: Draw) -> Evidence:
        return told_slip(impl, slip)

    told.__doc__ = f"Nothing of this is in the script: {slip.sentence}"
    return told


for _claim, _slip in _TOLD.items():
    check(_claim, roles=RUN)(_told(_slip))

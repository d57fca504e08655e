"""Mistakes that the files of a model's classes show by their text, in whatever stands beside the classes, too."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from torch import nn

from conformance.adapters.whole.class_source import file_of
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Place, Record
from conformance.slips import (
    axes,
    beams,
    bits,
    data,
    ends,
    futures,
    grids,
    labels,
    losses,
    measures,
    orders,
    results,
    retrieval,
    states,
    steps,
    training,
)

_TOLD = {
    "results-stay-the-same-in-every-process": orders.HASHES,
    "results-that-are-nearest-are-chosen-by-distance": orders.DISTANCES,
    "results-stay-beside-their-tokens": orders.CUTS,
    "results-of-the-last-group-are-kept": orders.GROUPS,
    "results-of-ranks-count-the-first-k": orders.RANKS,
    "results-of-first-numbers-are-kept": orders.STARTS,
    "attention-moves-its-heads-back": axes.HEADS,
    "results-of-new-shapes-keep-the-order-of-axes": axes.AXES,
    "results-of-long-texts-have-their-end": data.ENDS,
    "results-of-windows-end-before-their-target": data.WINDOWS,
    "results-of-levels-weigh-errors-by-their-sign": data.LEVELS,
    "results-of-shares-meet-one-softmax": data.SHARES,
    "results-of-perplexities-have-the-base-of-their-loss": bits.PERPLEXITIES,
    "results-of-margins-are-of-one-answer": data.PARTNERS,
    "results-of-beams-add-their-scores": beams.SCORES,
    "results-of-beams-begin-with-one": beams.COPIES,
    "results-of-next-words-have-labels-moved-on": data.MOVED,
    "results-of-fitted-statistics-are-saved": states.UNSAVED,
    "results-of-columns-have-rows-of-their-own": orders.COLUMNS,
    "results-of-long-answers-divide-by-their-length": beams.LENGTHS,
    "results-of-ends-are-taught": data.LAST_WORDS,
    "results-of-terms-have-one-scale": results.TERMS,
    "results-of-hidden-scores-are-minus-infinity": results.NOUGHT,
    "results-of-grids-have-one-order": axes.GRIDS,
    "results-of-boxes-scale-x-by-the-width": axes.SIDES,
    "results-of-words-start-at-their-first-piece": orders.PIECES,
    "results-of-accuracies-are-of-their-class": measures.OF_CLASSES,
    "results-of-long-rows-keep-their-newest": data.NEWEST,
    "results-of-gains-begin-with-one": results.FIRST_GAINS,
    "results-of-methods-are-kept": results.THROWN,
    "results-of-pairs-count-each-time": results.PAIRS,
    "results-of-gains-use-the-logarithm-of-two": results.GAINS,
    "results-of-rows-return-to-their-order": results.SORTED,
    "results-of-cross-entropies-are-of-logits": losses.LOGITS,
    "results-of-warm-ups-meet-their-fall": results.WARM_UPS,
    "results-of-last-spans-are-closed": results.OPEN,
    "results-missed-and-false-are-counted-apart": measures.TWICE,
    "results-of-writing-are-the-models-own": measures.BEGINNINGS,
    "results-of-ranks-are-of-scores": measures.RANKS,
    "results-of-bits-divide-by-the-logarithm-of-two": bits.BITS,
    "results-of-unions-count-each-once": measures.UNIONS,
    "results-of-tables-are-read-as-filled": measures.TABLES,
    "results-of-warm-ups-rise-by-shares": training.WHOLE,
    "results-of-measures-count-from-the-best": measures.FIRST,
    "results-of-short-answers-weigh-less": measures.BREVITY,
    "results-of-draws-divide-by-the-temperature": results.TEMPERATURES,
    "results-of-training-use-all-gradients": training.GRADIENTS,
    "results-of-training-start-from-no-gradients": training.OLD_GRADIENTS,
    "results-of-training-are-clipped-before-a-step": training.CLIPPING,
    "results-of-training-are-copied-when-kept": training.KEPT,
    "results-of-training-that-are-best-are-kept": training.BEST,
    "results-of-training-follow-their-schedule": training.SCHEDULES,
    "results-of-labels-are-read-before-hiding": labels.AFTER_MASKING,
    "results-of-ends-are-no-padding": labels.ENDS_LEFT_OUT,
    "results-of-penalties-favour-nothing": labels.FAVOURS,
    "results-of-scales-are-learned": states.UNLEARNED,
    "results-of-returns-reach-the-end": steps.WINDOWED,
    "results-of-wanted-returns-fall": steps.COUNTED_DOWN,
    "results-of-histories-are-of-their-newest": steps.NEWEST_PLACE,
    "results-of-what-hides-stays-with-its-sample": axes.MASKS_OF_HEADS,
    "results-of-paths-are-merged-first": results.BLANKS,
    "results-of-scores-have-one-temperature": retrieval.IN_PART,
    "results-of-reciprocal-ranks-are-meant": retrieval.RECIPROCALS,
    "results-of-futures-are-hidden-as-read": futures.SHOWN,
    "results-of-pooling-are-means": axes.OTHER_AXIS,
    "results-of-queues-come-behind-the-loss": retrieval.QUEUED_FIRST,
    "results-of-z-terms-are-squares": losses.Z_AS_IT_IS,
    "results-behind-a-draft-follow-the-model": beams.EITHER_SIGN,
    "results-of-rounds-read-their-own-stretch": steps.FROM_THE_BEGINNING,
    "results-of-windows-count-what-is-new": steps.COUNTED_AGAIN,
    "results-of-longer-texts-have-known-angles": steps.STRETCHED,
    "results-of-paths-end-with-their-row": ends.PATHS_END_IN_PADDING,
    "results-of-texts-are-read-at-their-end": ends.LARGEST_FOR_END,
    "results-of-places-begin-behind-padding": ends.PLACES_OF_PADDING,
    "results-of-columns-share-no-rows": orders.SLOTS_LEFT_OUT,
    "results-of-places-begin-with-the-text": ends.PLACES_FROM_THE_EDGE,
    "results-of-long-rows-have-their-last-steps": steps.OLDEST_KEPT,
    "results-of-the-future-are-of-its-times": steps.PAST_FOR_FUTURE,
    "results-of-joined-windows-are-means": steps.PLAIN_COUNTS,
    "results-of-bits-a-byte-count-bytes": bits.TOKENS_FOR_BYTES,
    "results-are-written-behind-words": ends.PADDED_BEHIND,
    "results-of-merging-hold-all-neighbours": grids.TWICE,
    "results-of-shifts-are-undone": grids.SHIFTED_TWICE,
    "results-of-folded-rows-keep-what-hides": grids.MASKS_IN_ANOTHER_ORDER,
    "results-of-lists-stay-with-their-query": grids.REGROUPED,
    "results-of-spans-end-behind-their-start": grids.BEHIND,
    "results-of-sides-have-their-own-labels": grids.SIDES_EXCHANGED,
    "results-of-runs-reach-both-edges": grids.ONE_SIDE,
    "results-of-mixtures-are-shares": losses.SHARES_FOR_LOGS,
    "results-of-losses-read-what-is-padding": losses.IN_VAIN,
    "results-of-beams-keep-their-scores": beams.OTHER_BEAMS,
}


def told_by_files(record: Record) -> Iterator[Finding]:
    """What the rules find in the files of the user's classes that ran, but in modules there that did not run."""
    classes = dict.fromkeys(base for part in record.module.modules() for base in type(part).__mro__)
    read: set[str] = set()
    for cls in classes:
        found = file_of(cls)
        if found is None or found[1] in read:
            continue
        tree, file = found
        read.add(file)
        ran = ast.Module([one for one in tree.body if not _is_another_module(one, cls, classes)], [])
        for claim, slip in _TOLD.items():
            for written, node in slip.rule(ran):
                place = Place(file, getattr(node, "lineno", 0))
                yield Finding(claim, slip.sentence, place, slip.expected, f"{slip.got}: {written}", slip.mend)


def _is_another_module(statement: ast.stmt, beside: type, ran: dict[type, None]) -> bool:
    """Whether a statement defines a module that did not run, in the file of a class."""
    name = statement.name if isinstance(statement, ast.ClassDef) else ""
    defined = getattr(sys.modules.get(beside.__module__), name, None) if name else None
    return isinstance(defined, type) and issubclass(defined, nn.Module) and defined not in ran

"""Mutants of scripts whose measures are of the wrong places or batches, whose mixtures are none, that replace words
unasked, compare rows with themselves, or keep the best weights for nothing."""

from __future__ import annotations

from conformance.mutants.script import EPOCHS, MASKED, PAIRS, TAGGING, script

_BEFORE = "    model.train()\n    return loss.item()\n"
script(
    "HitsOfTheInput",
    MASKED,
    (
        _BEFORE,
        "    hits, asked = (logits.argmax(-1) == ids).sum().item(), (labels != -100).sum().item()\n"
        "    model.train()\n    return loss.item(), hits / asked\n",
    ),
    breaks=("run-hits-are-counted-where-labels-count",),
    defect="The accuracy counts all places against the input, and is divided by the number of masked ones.",
)
script(
    "HitsOverAllPlaces",
    MASKED,
    (
        _BEFORE,
        "    right = (logits.argmax(-1) == labels).float().mean()\n"
        "    model.train()\n    return loss.item(), right.item()\n",
    ),
    breaks=("run-hits-are-counted-where-labels-count",),
    defect="The accuracy is a mean over all places, most of which are not asked for.",
)
_LOSSES = "    losses = [criterion(model(ids)[0], labels).item() for ids, _, labels in loader]\n"
script(
    "LossOfTheLastBatch",
    TAGGING,
    (_LOSSES, "    for ids, _, labels in loader:\n        loss = criterion(model(ids)[0], labels).item()\n"),
    ("    return sum(losses) / len(losses)\n", "    return loss\n"),
    breaks=("run-measures-are-of-all-batches",),
    defect="The validation loss is that of the last batch.",
)
script(
    "LossesBeginAnew",
    TAGGING,
    (
        _LOSSES,
        "    losses = []\n    for ids, _, labels in loader:\n"
        "        losses = [criterion(model(ids)[0], labels).item()]\n",
    ),
    breaks=("run-measures-are-of-all-batches",),
    defect="The list of losses begins anew with each batch.",
)
_ONE = "                loss = loss + criterion(label, labels) / ACCUMULATE\n"
_MIXED = (
    "                order, share = torch.randperm(len(labels)), 0.7\n"
    "                mixed = share * label + (1 - share) * label[order]\n"
    "                both = {}\n"
    "                loss = loss + both / ACCUMULATE\n"
)
script(
    "SharesOfTheOther",
    TAGGING,
    (
        _ONE,
        _MIXED.format("(1 - share) * criterion(mixed, labels) + share * criterion(mixed, labels[order])"),
    ),
    breaks=("run-mixtures-keep-their-shares",),
    defect="The shares of the labels are exchanged against those of what is mixed.",
)
script(
    "MixedWithItself",
    TAGGING,
    (_ONE, _MIXED.format("share * criterion(mixed, labels) + (1 - share) * criterion(mixed, labels)")),
    breaks=("run-mixtures-keep-their-shares",),
    defect="The labels of the other rows of a mixture are not asked for.",
)
script(
    "BestIsNeverLoaded",
    EPOCHS,
    ("    model.load_state_dict(best)\n", ""),
    breaks=("run-best-weights-are-read",),
    defect="The best weights are kept and never loaded: the last ones are what is evaluated.",
)
script(
    "ReplacedUnasked",
    MASKED,
    (
        "    ids[chosen] = MASK\n",
        "    ids[chosen] = MASK\n    other = (torch.rand(ids.shape, generator=draw) < 0.1) & ~chosen & (ids != PAD)\n"
        "    ids[other] = torch.randint(2, VOCAB, ids.shape, generator=draw)[other]\n",
    ),
    breaks=("run-words-are-replaced-where-asked",),
    defect="Words are replaced at random beside those that labels ask for.",
)
script(
    "MasksAreOverwritten",
    MASKED,
    (
        "    ids[chosen] = MASK\n",
        "    hidden = chosen & (torch.rand(ids.shape, generator=draw) < 0.8)\n    ids[hidden] = MASK\n"
        "    other = chosen & (torch.rand(ids.shape, generator=draw) < 0.5)\n"
        "    ids[other] = torch.randint(2, VOCAB, ids.shape, generator=draw)[other]\n",
    ),
    breaks=("run-masks-are-not-overwritten",),
    defect="Random words are put at half of the chosen places, over masks that were put there.",
)
script(
    "RowsMeetThemselves",
    PAIRS,
    (
        "        scores = model(rows[:, :6], rows[:, 6:])\n        wanted = torch.arange(len(rows))\n"
        "        loss = F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)\n",
        "        both = F.normalize(torch.cat([model.left(rows[:, :6]), model.right(rows[:, 6:])]), dim=-1)\n"
        "        scores = both @ both.T / 0.1\n"
        "        loss = F.cross_entropy(scores, (torch.arange(len(both)) + len(rows)) % len(both))\n",
    ),
    breaks=("run-rows-meet-others",),
    defect="Each row is compared with itself, too, and asked for another one.",
)
script(
    "WeighedByRealDividedByAll",
    EPOCHS,
    (
        "    return sum(loss_of(model, loss_fn, src, tgt).item() for src, tgt in loader) / len(loader)\n",
        "    total, places = 0.0, 0\n    for src, tgt in loader:\n        loss = loss_of(model, loss_fn, src, tgt)\n"
        "        total += loss.item() * (tgt[1:] != PAD).sum().item()\n        places += tgt[1:].numel()\n"
        "    return total / places\n",
    ),
    breaks=("run-mean-is-over-what-is-summed",),
    defect="The losses are weighed by the real labels, and divided by the number of all places.",
)
script(
    "RepeatedWordsCountAgain",
    EPOCHS,
    (
        "def main():\n",
        "def bleu(hyps, refs, most=2):\n    matched, total = [0] * most, [0] * most\n"
        "    for hyp, ref in zip(hyps, refs):\n        for n in range(1, most + 1):\n"
        "            said = [tuple(hyp[i : i + n]) for i in range(len(hyp) - n + 1)]\n"
        "            known = {tuple(ref[i : i + n]) for i in range(len(ref) - n + 1)}\n"
        "            matched[n - 1] += sum(one in known for one in said)\n            total[n - 1] += len(said)\n"
        "    return sum(m / max(t, 1) for m, t in zip(matched, total)) / most\n\n\ndef main():\n",
    ),
    breaks=("run-functions-keep-the-claim-of-their-kind",),
    defect="An n-gram counts as often as it is said, and not as often as the reference has it.",
)
script(
    "SpansOfAnyKind",
    EPOCHS,
    (
        "def main():\n",
        "def span_f1(gold, pred):\n"
        "    def spans(rows):\n"
        "        return {(n, i) for n, row in enumerate(rows) for i, tag in enumerate(row) if tag[0] == 'B'}\n\n"
        "    hits, wanted, found = len(spans(gold) & spans(pred)), len(spans(gold)), len(spans(pred))\n"
        "    return 2 * hits / (wanted + found)\n\n\ndef main():\n",
    ),
    breaks=("run-spans-are-told-apart",),
    defect="A span counts as found whatever kind it is taken for.",
)
script(
    "ClassesThatAreFoundAlone",
    EPOCHS,
    (
        "def main():\n",
        "def macro_f1(gold, pred, n_classes):\n    scores = []\n    for c in range(n_classes):\n"
        "        hits = sum(g == p == c for g, p in zip(gold, pred))\n        if hits:\n"
        "            scores.append(2 * hits / (list(gold).count(c) + list(pred).count(c)))\n"
        "    return sum(scores) / max(1, len(scores))\n\n\ndef main():\n",
    ),
    breaks=("run-means-over-classes-count-each",),
    defect="Classes that are never found are left out of the mean.",
)
script(
    "ErrorsByWhatWasGiven",
    EPOCHS,
    (
        "def main():\n",
        "def distance(a, b):\n    row = list(range(len(b) + 1))\n    for i, x in enumerate(a, 1):\n"
        "        before, row[0] = row[0], i\n        for j, y in enumerate(b, 1):\n"
        "            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))\n"
        "    return row[-1]\n\n\n"
        "def wer(hyp, ref):\n    return distance(hyp, ref) / max(1, len(hyp))\n\n\ndef main():\n",
    ),
    breaks=("run-errors-are-shares-of-the-reference",),
    defect="The errors are divided by the words that were given, and not by those of the reference.",
)
script(
    "MeanOfTheRootsOfRows",
    EPOCHS,
    (
        "def main():\n",
        "def rmse(pred, target):\n    return ((pred - target) ** 2).mean(1).sqrt().mean()\n\n\ndef main():\n",
    ),
    breaks=("run-roots-are-taken-of-the-mean",),
    defect="The root is taken in each row, and the mean of the roots afterwards.",
)

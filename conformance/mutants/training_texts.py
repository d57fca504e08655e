"""Mutants of training scripts whose mistake the text shows by itself, in a function that need not run."""

from __future__ import annotations

from conformance.mutants.script import EPOCHS, script

script(
    "WordsAreHashed",
    EPOCHS,
    ("def main():\n", "def number(word):\n    return 3 + hash(word) % (VOCAB - 3)\n\n\ndef main():\n"),
    breaks=("run-words-keep-their-numbers",),
    defect="Words get their numbers from Python's hash, which is another one in every process.",
)
script(
    "FirstForTheNearest",
    EPOCHS,
    (
        "def main():\n",
        "def nearest(numbers, wanted):\n    return min(numbers, key=lambda number: number - wanted)\n\n\ndef main():\n",
    ),
    breaks=("run-nearest-is-chosen-by-distance",),
    defect="What is nearest is chosen by a difference with its sign: it is the least of all.",
)
script(
    "LabelsKeepTheOtherEnd",
    EPOCHS,
    (
        "def main():\n",
        "def cut(ids, labels, longest):\n    ids = ids[-longest:]\n    labels = labels[:longest]\n"
        "    return ids, labels\n\n\ndef main():\n",
    ),
    breaks=("run-labels-are-cut-as-their-tokens",),
    defect="Of long texts the words keep their end, and the labels their beginning.",
)
script(
    "LastGroupIsLost",
    EPOCHS,
    (
        "def main():\n",
        "def groups_of(rows, most):\n    groups, group = [], []\n    for row in rows:\n"
        "        if len(group) + len(row) > most:\n            groups.append(group)\n            group = []\n"
        "        group.append(row)\n    return groups\n\n\ndef main():\n",
    ),
    breaks=("run-last-group-is-kept",),
    defect="The last group of a loop is handed on to nobody.",
)
script(
    "OnePlaceMore",
    EPOCHS,
    (
        "def main():\n",
        "def recall(scores, own, k):\n    rank = (scores > own[:, None]).sum(1)\n"
        "    return (rank <= k).float().mean()\n\n\ndef main():\n",
    ),
    breaks=("run-ranks-count-the-first-k",),
    defect="A rank that counts from 0 is a hit at k, too: k + 1 places are counted.",
)
script(
    "OneStepOfMany",
    EPOCHS,
    (
        "def main():\n",
        "def train(model, loader, optimizer, epochs):\n"
        "    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=epochs * len(loader))\n"
        "    for epoch in range(epochs):\n        for batch in loader:\n            model(batch).backward()\n"
        "            optimizer.step()\n            optimizer.zero_grad()\n        scheduler.step()\n\n\n"
        "def main():\n",
    ),
    breaks=("run-schedule-is-as-long-as-it-is-stepped",),
    defect="A schedule that is as long as all batches is stepped once an epoch.",
)
script(
    "TwoToTheLoss",
    EPOCHS,
    (
        "def main():\n",
        "def perplexity(logits, labels):\n    loss = F.cross_entropy(logits, labels)\n    return 2 ** loss.item()\n\n\n"
        "def main():\n",
    ),
    breaks=("run-perplexity-has-the-base-of-its-loss",),
    defect="The perplexity is two to a loss of natural logarithms.",
)
script(
    "EndsAreCutOff",
    EPOCHS,
    ("def main():\n", "def encoded(ids, longest, eos=2):\n    return (ids + [eos])[:longest]\n\n\ndef main():\n"),
    breaks=("run-long-texts-have-their-end",),
    defect="Texts are cut when the sign of their end stands behind them.",
)
script(
    "LevelOfTheOtherSide",
    EPOCHS,
    (
        "def main():\n",
        "def pinball(pred, target, q):\n    error = pred - target\n"
        "    return torch.maximum(q * error, (q - 1) * error).mean()\n\n\ndef main():\n",
    ),
    breaks=("run-levels-weigh-errors-by-their-sign",),
    defect="The error of a quantile loss has the other sign.",
)
script(
    "ReferenceOfTheOtherAnswer",
    EPOCHS,
    (
        "def main():\n",
        "def margin(pol_c, pol_r, ref_c, ref_r):\n    return (pol_c - ref_c) - (pol_r - ref_c)\n\n\ndef main():\n",
    ),
    breaks=("run-margin-asks-about-one-answer",),
    defect="The rejected answer is compared with what the reference says of the chosen one.",
)
script(
    "BeamsByTheirLastWord",
    EPOCHS,
    (
        "def main():\n",
        "def beam_search(live, words, k):\n"
        "    found = [(lp, seq + [word]) for (score, seq) in live for lp, word in words(seq)]\n"
        "    return sorted(found, key=lambda one: -one[0])[:k]\n\n\ndef main():\n",
    ),
    breaks=("run-beams-add-their-scores",),
    defect="Beams are ranked by their last word alone.",
)
script(
    "CountsAsTheyWereSeen",
    EPOCHS,
    (
        "def main():\n",
        "def class_weights(labels):\n    counts = torch.tensor(list(Counter(labels).values()))\n"
        "    return 1 / counts\n\n\ndef main():\n",
    ),
    breaks=("run-counts-stand-by-their-classes",),
    defect="The weights of classes are made of counts in the order in which classes were seen.",
)
script(
    "MaskOfTheWordBefore",
    EPOCHS,
    (
        "def main():\n",
        "def chances(logits, ids, reply_mask):\n    own = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])\n"
        "    return (own[..., 0] * reply_mask[:, :-1]).sum(-1)\n\n\ndef main():\n",
    ),
    breaks=("run-mask-goes-with-the-words",),
    defect="The words of an answer are counted by a mask of the words before them.",
)
script(
    "MaskThatNothingReads",
    EPOCHS,
    (
        "def main():\n",
        "def masked_loss(pred, target, mask):\n    return (pred - target).abs().mean()\n\n\ndef main():\n",
    ),
    breaks=("run-loss-reads-its-mask",),
    defect="A loss is handed a mask and does not read it.",
)
script(
    "HeadsJoinedWhereTheyStand",
    EPOCHS,
    (
        "def main():\n",
        "def attend(q, k, v, heads=2):\n    b, n, d = q.shape\n"
        "    q, k, v = (x.view(b, n, heads, d // heads).transpose(1, 2) for x in (q, k, v))\n"
        "    weights = (q @ k.transpose(2, 3)).softmax(-1)\n    return (weights @ v).reshape(b, n, d)\n\n\n"
        "def main():\n",
    ),
    breaks=("run-heads-are-moved-back",),
    defect="The heads are joined where they stand, and each position gets parts of others.",
)
script(
    "SplitOfRows",
    EPOCHS,
    (
        "def main():\n",
        "def split_by_patient(rows):\n    rows = list(rows)\n    random.shuffle(rows)\n"
        "    return rows[len(rows) // 5 :], rows[: len(rows) // 5]\n\n\ndef main():\n",
    ),
    breaks=("run-split-is-by-what-it-names",),
    defect="A split by patients draws single rows: those of one patient are on both sides.",
)
script(
    "NothingIsRemembered",
    EPOCHS,
    (
        "def main():\n",
        "def without_copies(rows):\n    seen, kept = set(), []\n    for row in rows:\n"
        "        if row not in seen:\n            kept.append(row)\n    return kept\n\n\ndef main():\n",
    ),
    breaks=("run-rows-that-were-seen-are-remembered",),
    defect="The set of rows that were seen is asked and never filled: copies stay.",
)
script(
    "TrainingReachesTheTest",
    EPOCHS,
    (
        "def main():\n",
        "def windows_of(panel):\n    train = Windows(panel, 0, panel.test_start)\n"
        "    val = Windows(panel, panel.val_start, panel.test_start)\n    return train, val\n\n\ndef main():\n",
    ),
    breaks=("run-training-part-ends-before-what-judges",),
    defect="The training windows go on to where the windows that judge end.",
)
script(
    "ScaledByAll",
    EPOCHS,
    (
        "def main():\n",
        "class Panel:\n    def __init__(self, sales):\n        self.sales, self.val_start = sales, len(sales) - 28\n"
        "        self.mean, self.std = self.sales.mean(), self.sales.std()\n\n\ndef main():\n",
    ),
    breaks=("run-mean-and-spread-are-of-the-training-part",),
    defect="Mean and spread are those of all days, and training ends before the last ones.",
)
script(
    "LeftIsRight",
    EPOCHS,
    (
        "def main():\n",
        'SIGNS = ["arrow_left", "arrow_right", "cross"]\n\n\ndef varied(picture):\n'
        "    return picture.flip(-1) if random.random() < 0.5 else picture\n\n\ndef main():\n",
    ),
    breaks=("run-mirrored-pictures-change-sides",),
    defect="Pictures are mirrored, and arrows to the left keep their label.",
)
script(
    "PairsCountOnce",
    EPOCHS,
    (
        "def main():\n",
        "def count(table, labels, predictions):\n    table[labels, predictions] += 1\n\n\ndef main():\n",
    ),
    breaks=("run-pairs-count-each-time",),
    defect="A label and a prediction that meet twice in a batch count once.",
)
script(
    "GainsOfEuler",
    EPOCHS,
    (
        "def main():\n",
        "def mean_ndcg(ranks, k):\n"
        "    ndcg = 0.0\n"
        "    for rank in ranks:\n"
        "        ndcg += (rank < k) / math.log(rank + 2)\n"
        "    return ndcg / len(ranks)\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-gains-use-the-logarithm-of-two",),
    defect="A gain is divided by a natural logarithm.",
)
script(
    "SortedAgain",
    EPOCHS,
    (
        "def main():\n",
        "def encode_all(model, texts):\n"
        "    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))\n"
        "    found = []\n"
        "    for text in [texts[i] for i in order]:\n"
        "        found.append(model(text))\n"
        "    return [found[i] for i in order]\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-rows-return-to-their-order",),
    defect="What is made of sorted rows is sorted once more, and belongs to other rows.",
)
script(
    "WarmUpOfARoot",
    EPOCHS,
    (
        "def main():\n",
        "def noam(step, warmup, d_model):\n"
        "    return d_model**-0.5 * min(step**-0.5, step * warmup**-0.5)\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-warm-ups-meet-their-fall",),
    defect="The rate rises with the root of the warm-up, far above where it falls.",
)
script(
    "FillingIsThrownAway",
    EPOCHS,
    (
        "def main():\n",
        "def hide(scores, padding):\n    scores.masked_fill(padding, -1e9)\n    return scores\n\n\ndef main():\n",
    ),
    breaks=("run-results-of-methods-are-kept",),
    defect="What masked_fill gives is thrown away.",
)
script(
    "SpansOfAllSentences",
    EPOCHS,
    (
        "def main():\n",
        "def compare(golds, preds):\n"
        "    gold, pred = set(), set()\n"
        "    for a, b in zip(golds, preds):\n"
        "        gold |= spans_of(a)\n"
        "        pred |= spans_of(b)\n"
        "    return len(gold & pred)\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-spans-keep-their-sentence",),
    defect="Spans of all sentences go into one set, without their sentence.",
)
script(
    "LastSpanIsLost",
    EPOCHS,
    (
        "def main():\n",
        "def spans_of(tags):\n"
        "    spans, start = [], None\n"
        "    for i, tag in enumerate(tags):\n"
        "        if start is not None and tag != 'I':\n"
        "            spans.append((start, i))\n"
        "            start = None\n"
        "        if tag == 'B':\n"
        "            start = i\n"
        "    return spans\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-last-span-is-closed",),
    defect="A span that goes on to the last tag is never put down.",
)
script(
    "SecondsOfTheLastDay",
    EPOCHS,
    (
        "def main():\n",
        "def age_in_days(first, last):\n    return (last - first).seconds / 86400\n\n\ndef main():\n",
    ),
    breaks=("run-whole-days-count",),
    defect="The age in days is that of the last day alone.",
)
script(
    "GroupsAreTornApart",
    EPOCHS,
    (
        "def main():\n",
        "def split_rows(count):\n"
        "    rows = [{'patient': number // 4, 'text': str(number)} for number in range(count)]\n"
        "    random.shuffle(rows)\n"
        "    return {'train': rows[count // 5 :], 'test': rows[: count // 5]}\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-groups-stay-together",),
    defect="Rows of one patient are on both sides.",
)
script(
    "ThresholdOfTheTest",
    EPOCHS,
    (
        "def main():\n",
        "def report(model, test_loader):\n"
        "    labels, scores = predict(model, test_loader)\n"
        "    threshold = best_threshold(labels, scores)\n"
        "    return measure(labels, scores > threshold)\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-threshold-is-not-chosen-by-the-test",),
    defect="The threshold is chosen by the labels of the test.",
)
script(
    "OneSeedForAllEpochs",
    EPOCHS,
    (
        "def main():\n",
        "def learn(rows, epochs):\n"
        "    for epoch in range(epochs):\n"
        "        for batch in train_batches(rows, random.Random(7)):\n"
        "            yield batch\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-seeds-of-epochs-differ",),
    defect="Each epoch draws its order from one seed.",
)
script(
    "SavedWithoutACopy",
    EPOCHS,
    (
        "def main():\n",
        "def learn(model, epochs, best):\n"
        "    for epoch in range(epochs):\n"
        "        score = train_epoch(model)\n"
        "        if score > best:\n"
        "            best, best_state = score, model.state_dict()\n"
        "    torch.save({'model': best_state}, 'best.pt')\n"
        "\n\ndef main():\n",
    ),
    breaks=("run-states-are-copied-when-kept",),
    defect="The best state is kept without a copy, and is the last one when it is saved.",
)

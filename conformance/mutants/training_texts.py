"""Mutants of training scripts whose mistake the text shows by itself, in a function that need not run."""

from __future__ import annotations

from conformance.mutants import slip_texts
from conformance.mutants.script import ANNOTATED, EPOCHS, script


def beside(name: str, text: str, claim: str, defect: str) -> None:
    """Register a script with a function of this text in front of what it runs."""
    script(name, EPOCHS, ("def main():\n", f"{text.lstrip()}\n\ndef main():\n"), breaks=(claim,), defect=defect)


beside(
    "WordsAreHashed",
    """
def number(word):
    return 3 + hash(word) % (VOCAB - 3)
""",
    "run-words-keep-their-numbers",
    "Words get their numbers from Python's hash, which is another one in every process.",
)
beside(
    "FirstForTheNearest",
    """
def nearest(numbers, wanted):
    return min(numbers, key=lambda number: number - wanted)
""",
    "run-nearest-is-chosen-by-distance",
    "What is nearest is chosen by a difference with its sign: it is the least of all.",
)
beside(
    "LabelsKeepTheOtherEnd",
    """
def cut(ids, labels, longest):
    ids = ids[-longest:]
    labels = labels[:longest]
    return ids, labels
""",
    "run-labels-are-cut-as-their-tokens",
    "Of long texts the words keep their end, and the labels their beginning.",
)
beside(
    "LastGroupIsLost",
    """
def groups_of(rows, most):
    groups, group = [], []
    for row in rows:
        if len(group) + len(row) > most:
            groups.append(group)
            group = []
        group.append(row)
    return groups
""",
    "run-last-group-is-kept",
    "The last group of a loop is handed on to nobody.",
)
beside(
    "OnePlaceMore",
    """
def recall(scores, own, k):
    rank = (scores > own[:, None]).sum(1)
    return (rank <= k).float().mean()
""",
    "run-ranks-count-the-first-k",
    "A rank that counts from 0 is a hit at k, too: k + 1 places are counted.",
)
beside(
    "OneStepOfMany",
    """
def train(model, loader, optimizer, epochs):
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        for batch in loader:
            model(batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
""",
    "run-schedule-is-as-long-as-it-is-stepped",
    "A schedule that is as long as all batches is stepped once an epoch.",
)
beside(
    "TwoToTheLoss",
    """
def perplexity(logits, labels):
    loss = F.cross_entropy(logits, labels)
    return 2 ** loss.item()
""",
    "run-perplexity-has-the-base-of-its-loss",
    "The perplexity is two to a loss of natural logarithms.",
)
beside(
    "EndsAreCutOff",
    """
def answer_of(ids, longest, eos=2):
    return (ids + [eos])[:longest]
""",
    "run-long-texts-have-their-end",
    "Texts are cut when the sign of their end stands behind them.",
)
beside(
    "LevelOfTheOtherSide",
    """
def pinball(pred, target, q):
    error = pred - target
    return torch.maximum(q * error, (q - 1) * error).mean()
""",
    "run-levels-weigh-errors-by-their-sign",
    "The error of a quantile loss has the other sign.",
)
beside(
    "ReferenceOfTheOtherAnswer",
    slip_texts.MARGIN_OF_TWO_ANSWERS,
    "run-margin-asks-about-one-answer",
    "The rejected answer is compared with what the reference says of the chosen one.",
)
beside(
    "BeamsByTheirLastWord",
    slip_texts.BEAMS_OF_THE_LAST_WORD,
    "run-beams-add-their-scores",
    "Beams are ranked by their last word alone.",
)
beside(
    "CountsAsTheyWereSeen",
    """
def class_weights(labels):
    counts = torch.tensor(list(Counter(labels).values()))
    return 1 / counts
""",
    "run-counts-stand-by-their-classes",
    "The weights of classes are made of counts in the order in which classes were seen.",
)
beside(
    "MaskOfTheWordBefore",
    """
def chances(logits, ids, reply_mask):
    own = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
    return (own[..., 0] * reply_mask[:, :-1]).sum(-1)
""",
    "run-mask-goes-with-the-words",
    "The words of an answer are counted by a mask of the words before them.",
)
beside(
    "MaskThatNothingReads",
    """
def masked_loss(pred, target, mask):
    return (pred - target).abs().mean()
""",
    "run-loss-reads-its-mask",
    "A loss is handed a mask and does not read it.",
)
beside(
    "HeadsJoinedWhereTheyStand",
    """
def attend(q, k, v, heads=2):
    b, n, d = q.shape
    q, k, v = (x.view(b, n, heads, d // heads).transpose(1, 2) for x in (q, k, v))
    weights = (q @ k.transpose(2, 3)).softmax(-1)
    return (weights @ v).reshape(b, n, d)
""",
    "run-heads-are-moved-back",
    "The heads are joined where they stand, and each position gets parts of others.",
)
beside(
    "SplitOfRows",
    """
def split_by_patient(rows):
    rows = list(rows)
    random.shuffle(rows)
    return rows[len(rows) // 5 :], rows[: len(rows) // 5]
""",
    "run-split-is-by-what-it-names",
    "A split by patients draws single rows: those of one patient are on both sides.",
)
beside(
    "NothingIsRemembered",
    """
def without_copies(rows):
    seen, kept = set(), []
    for row in rows:
        if row not in seen:
            kept.append(row)
    return kept
""",
    "run-rows-that-were-seen-are-remembered",
    "The set of rows that were seen is asked and never filled: copies stay.",
)
beside(
    "TrainingReachesTheTest",
    """
def windows_of(panel):
    train = Windows(panel, 0, panel.test_start)
    val = Windows(panel, panel.val_start, panel.test_start)
    return train, val
""",
    "run-training-part-ends-before-what-judges",
    "The training windows go on to where the windows that judge end.",
)
beside(
    "ScaledByAll",
    """
class Panel:
    def __init__(self, sales):
        self.sales, self.val_start = sales, len(sales) - 28
        self.mean, self.std = self.sales.mean(), self.sales.std()
""",
    "run-mean-and-spread-are-of-the-training-part",
    "Mean and spread are those of all days, and training ends before the last ones.",
)
beside(
    "LeftIsRight",
    """
SIGNS = ["arrow_left", "arrow_right", "cross"]


def varied(picture):
    return picture.flip(-1) if random.random() < 0.5 else picture
""",
    "run-mirrored-pictures-change-sides",
    "Pictures are mirrored, and arrows to the left keep their label.",
)
beside(
    "PairsCountOnce",
    slip_texts.PAIRS_COUNTED_ONCE,
    "run-pairs-count-each-time",
    "A label and a prediction that meet twice in a batch count once.",
)
beside(
    "GainsOfEuler",
    slip_texts.GAINS_OF_A_NATURAL_LOGARITHM,
    "run-gains-use-the-logarithm-of-two",
    "A gain is divided by a natural logarithm.",
)
beside(
    "SortedAgain",
    slip_texts.RESULTS_LEFT_SORTED,
    "run-rows-return-to-their-order",
    "What is made of sorted rows is sorted once more, and belongs to other rows.",
)
beside(
    "WarmUpOfARoot",
    slip_texts.WARM_UP_OF_A_ROOT,
    "run-warm-ups-meet-their-fall",
    "The rate rises with the root of the warm-up, far above where it falls.",
)
beside(
    "FillingIsThrownAway",
    slip_texts.FILLING_THROWN_AWAY,
    "run-results-of-methods-are-kept",
    "What masked_fill gives is thrown away.",
)
beside(
    "SpansOfAllSentences",
    """
def compare(golds, preds):
    gold, pred = set(), set()
    for a, b in zip(golds, preds):
        gold |= spans_of(a)
        pred |= spans_of(b)
    return len(gold & pred)
""",
    "run-spans-keep-their-sentence",
    "Spans of all sentences go into one set, without their sentence.",
)
beside(
    "LastSpanIsLost",
    slip_texts.LAST_SPAN_LEFT_OPEN,
    "run-last-span-is-closed",
    "A span that goes on to the last tag is never put down.",
)
beside(
    "SecondsOfTheLastDay",
    """
def age_in_days(first, last):
    return (last - first).seconds / 86400
""",
    "run-whole-days-count",
    "The age in days is that of the last day alone.",
)
beside(
    "GroupsAreTornApart",
    """
def split_rows(count):
    rows = [{'patient': number // 4, 'text': str(number)} for number in range(count)]
    random.shuffle(rows)
    return {'train': rows[count // 5 :], 'test': rows[: count // 5]}
""",
    "run-groups-stay-together",
    "Rows of one patient are on both sides.",
)
beside(
    "ThresholdOfTheTest",
    """
def report(model, test_loader):
    labels, scores = predict(model, test_loader)
    threshold = best_threshold(labels, scores)
    return measure(labels, scores > threshold)
""",
    "run-threshold-is-not-chosen-by-the-test",
    "The threshold is chosen by the labels of the test.",
)
beside(
    "OneSeedForAllEpochs",
    """
def learn(rows, epochs):
    for epoch in range(epochs):
        for batch in train_batches(rows, random.Random(7)):
            yield batch
""",
    "run-seeds-of-epochs-differ",
    "Each epoch draws its order from one seed.",
)
beside(
    "SavedWithoutACopy",
    """
def learn(model, epochs, best):
    for epoch in range(epochs):
        score = train_epoch(model)
        if score > best:
            best, best_state = score, model.state_dict()
    torch.save({'model': best_state}, 'best.pt')
""",
    "run-states-are-copied-when-kept",
    "The best state is kept without a copy, and is the last one when it is saved.",
)
beside(
    "ErrorsUnderTwoNames",
    slip_texts.ERRORS_UNDER_TWO_NAMES,
    "run-missed-and-false-are-counted-apart",
    "What is missed is counted as what is found wrongly.",
)
beside(
    "BleuBehindTheTarget",
    slip_texts.BEST_BEHIND_THE_TARGET,
    "run-measures-of-writing-read-what-is-written",
    "BLEU is that of the best words behind the words of the target.",
)
beside(
    "MergesWithoutScale",
    """
class Adapted(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a.T @ self.lora_b.T)

    def merged(self):
        self.base.weight.data += self.lora_b @ self.lora_a
        return self.base
""",
    "run-merged-factors-keep-their-scale",
    "The product of the factors is added to the weight without the scale of forward.",
)
beside(
    "SegmentsStayBehind",
    """
def answer_loss(model, batch):
    ids, labels, segments = batch
    return F.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
""",
    "run-parts-of-batches-are-read",
    "Packed texts see each other: their numbers are in the batch and reach no model.",
)
beside(
    "RanksOfDecisions",
    slip_texts.DECISIONS_RANKED,
    "run-ranks-are-of-scores",
    "AUC is that of decisions, and not of scores.",
)
beside(
    "BitsTimesALogarithm",
    slip_texts.BITS_MULTIPLIED,
    "run-bits-are-nats-by-the-logarithm-of-two",
    "Nats are multiplied by the logarithm of 2.",
)
beside(
    "UnionsCountTwice",
    slip_texts.UNION_WITH_ALL_TWICE,
    "run-unions-count-each-once",
    "A union has what is common to both twice.",
)
beside(
    "TableOfTheOtherAxis",
    slip_texts.TABLE_ALONG_THE_OTHER_AXIS,
    "run-tables-are-read-as-they-are-filled",
    "Predictions are the rows of a table whose rows are read as the truth.",
)
beside(
    "WarmUpWithoutARest",
    slip_texts.WARM_UP_IN_WHOLE_NUMBERS,
    "run-warm-up-rises-by-shares",
    "The rate is 0 until the warm-up is over.",
)
beside(
    "PartsFromOneEnd",
    """
def parts(rows, n_dev, n_test):
    return rows[n_dev + n_test :], rows[:n_dev], rows[:n_test]
""",
    "run-parts-share-no-rows",
    "The test holds the rows of the validation.",
)
beside(
    "TestCalledValidation",
    """
def choose(model, parts, judge):
    shares = {name: len(parts[name]) for name in ('train', 'val', 'test')}
    val_scores = judge(model, parts['test'])
    return val_scores.mean(), shares
""",
    "run-validation-is-not-the-test",
    "What is called the validation is the test.",
)
beside(
    "ConfigWithoutWeights",
    """
def again(model, folder):
    model.save_pretrained(folder)
    return Model(Config.from_pretrained(folder))
""",
    "run-saved-weights-are-loaded",
    "Of a saved model the config alone is loaded.",
)
beside(
    "AverageOnceAnEpoch",
    """
def follow(model, ema, batches, epochs, optimizer, decay=0.999):
    for epoch in range(epochs):
        for batch in batches:
            model(batch).backward()
            optimizer.step()
        ema.update(model, decay)
""",
    "run-slow-averages-move-with-each-step",
    "An average that keeps 0.999 of itself is moved once an epoch.",
)
beside(
    "NamesInTwoOrders",
    """
def tables(names):
    label2id = {name: number for number, name in enumerate(sorted(names))}
    id2label = {number: name for number, name in enumerate(names)}
    return label2id, id2label
""",
    "run-names-and-numbers-are-of-one-order",
    "Names get numbers in one order, and numbers names in another.",
)
beside("WorstFirst", slip_texts.WORST_FIRST, "run-measures-count-from-the-best", "Scores are sorted from the worst on.")
beside(
    "ShortAnswersGain",
    slip_texts.BREVITY_TURNED_ROUND,
    "run-short-answers-weigh-less",
    "What is too short is rewarded.",
)
beside(
    "TemperatureSharpens",
    slip_texts.TEMPERATURE_MULTIPLIED,
    "run-draws-divide-by-the-temperature",
    "Logits are multiplied by the temperature.",
)
beside(
    "AxesOutOfOrder",
    slip_texts.AXES_OUT_OF_ORDER,
    "run-new-shapes-keep-the-order-of-axes",
    "Channels and frames change places by a new shape, without a transposition.",
)
beside(
    "StepsOfPasses",
    """
def learn(model, batches, optimizer, accum, epochs, rate):
    total, step = epochs * len(batches) // accum, 0
    for start in range(0, len(batches), accum):
        optimizer.param_groups[0]["lr"] = rate(step, total)
        optimizer.zero_grad()
        for batch in batches[start : start + accum]:
            (model(batch) / accum).backward()
            step += 1
        optimizer.step()
""",
    "run-steps-are-those-of-the-optimizer",
    "The step of a planned rate goes up with each backward pass.",
)
beside(
    "FindsItself",
    """
def neighbours(vectors, labels):
    same = labels[:, None] == labels[None, :]
    return same.gather(1, (vectors @ vectors.T).argmax(1, keepdim=True)).double().mean()
""",
    "run-rows-do-not-find-themselves",
    "Each row finds itself first.",
)
beside(
    "LengthsMultiplyInTraining",
    slip_texts.LENGTHS_MULTIPLY,
    "run-long-answers-divide-by-their-length",
    "A score is multiplied by its length penalty.",
)
beside(
    "EndsAreIgnoredInTraining",
    slip_texts.ENDS_NOT_TAUGHT,
    "run-ends-stay-labels",
    "Labels that are the sign of the end are ignored.",
)
beside(
    "OneTermScaledInTraining",
    slip_texts.TERMS_SCALED_APART,
    "run-terms-of-scores-have-one-scale",
    "Only the term by contents is scaled.",
)
beside(
    "PlacesColumnByColumnInTraining",
    slip_texts.GRID_IN_TWO_ORDERS,
    "run-grids-have-one-order",
    "Patches stand row by row, and their places column by column.",
)
beside(
    "BoxesScaledByHeightFirstInTraining",
    slip_texts.BOXES_OF_THE_OTHER_SIDE,
    "run-boxes-scale-x-by-the-width",
    "Boxes are scaled by height, width, height, width.",
)
beside(
    "StartsBehindTheirPiecesInTraining",
    slip_texts.STARTS_BEHIND_PIECES,
    "run-words-start-at-their-first-piece",
    "The start of a word is noted behind its pieces.",
)
beside(
    "RanksFromOneDiscountedTwiceInTraining",
    slip_texts.GAINS_OFF_BY_ONE,
    "run-gains-begin-with-one",
    "Ranks from one are discounted as if they began with nought.",
)
beside(
    "LabelsBehindTheMaskInTraining",
    slip_texts.LABELS_BEHIND_THE_MASK,
    "run-labels-are-read-before-the-mask",
    "The mask is written into the words that the labels are read from.",
)
beside(
    "EndsLeftOutWithPaddingInTraining",
    slip_texts.ENDS_LEFT_OUT_WITH_PADDING,
    "run-ends-are-no-padding",
    "Padding has the number of the sign of the end, and labels of it are left out.",
)
beside(
    "ScaleOfAPlainTensorInTraining",
    slip_texts.SCALE_OF_A_PLAIN_TENSOR,
    "run-scales-are-learned",
    "A scale of layers is a plain tensor.",
)
beside(
    "ReturnsOfAWindowInTraining",
    slip_texts.RETURNS_OF_A_WINDOW,
    "run-returns-reach-the-end",
    "Returns to go are summed over a window.",
)
beside(
    "NewestByACountInTraining",
    slip_texts.NEWEST_BY_A_COUNT,
    "run-histories-are-read-at-their-newest",
    "The newest entry of a history that is filled up in front is looked for at the number of real ones.",
)
beside(
    "MasksByHeadsFirst",
    slip_texts.MASKS_BY_HEADS_FIRST,
    "run-masks-of-heads-stay-with-their-sample",
    "Masks of all samples are repeated as a whole for the heads.",
)
beside(
    "FocalByTheLikely",
    slip_texts.FOCAL_BY_THE_LIKELY,
    "run-focal-losses-mind-what-is-hard",
    "A focal loss weighs by a power of the probability.",
)
script(
    "CausalMaskTheOtherWayInTraining",
    ANNOTATED,
    ("class Layer(nn.Module):", f"{slip_texts.FUTURE_SHOWN.lstrip()}\n\nclass Layer(nn.Module):"),
    breaks=("run-futures-are-hidden-as-read",),
    defect="A causal mask is true for what is hidden, and attention hides what is 0.",
)

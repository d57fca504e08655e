"""Mutants of training scripts whose text shows that something else judges them, or chooses their states, than they
say."""

from __future__ import annotations

from conformance.mutants import slip_texts
from conformance.mutants.training_texts import beside

beside(
    "LogitsForShares",
    """
def hits(logits, labels):
    return ((logits >= 0.5) == labels).float().mean()
""",
    "run-logits-are-compared-with-nought",
    "Logits are compared with 0.5.",
)
beside(
    "WorstIsKept",
    """
def arguments():
    return TrainingArguments("out", load_best_model_at_end=True, metric_for_best_model="f1", greater_is_better=False)
""",
    "run-better-end-of-a-measure-is-told",
    "The state with the lowest F1 is kept as the best.",
)
beside(
    "OneModelForAllFolds",
    """
def cross_validate(folds):
    model = Model()
    scores = []
    for fold in folds:
        fit(model, fold.rest)
        scores.append(measure(model, fold.held))
    return scores
""",
    "run-each-fold-has-its-own-model",
    "One model goes on from fold to fold.",
)
beside(
    "ChosenByTheTest",
    """
def learn(model, train_rows, val_rows, test_rows):
    best = 0.0
    for epoch in range(9):
        train(model, train_rows)
        score = measure(model, test_rows)
        if score > best:
            best, state = score, copy.deepcopy(model.state_dict())
    return state, measure(model, val_rows)
""",
    "run-states-are-chosen-by-the-validation",
    "The state with the best figure of the test is kept.",
)
beside(
    "ValidationWithoutEnd",
    """
def parts(rows, first, second):
    train = [row for row in rows if row.day < first]
    val = [row for row in rows if row.day >= first]
    test = [row for row in rows if row.day >= second]
    return train, val, test
""",
    "run-validation-ends-where-the-test-begins",
    "The validation holds all of the test.",
)
beside(
    "SizeOfTheMask",
    """
def error(answers, truth, mask):
    return (answers - truth).abs()[mask].sum() / mask.numel()
""",
    "run-sums-over-a-mask-count-what-it-takes",
    "The errors at some places are divided by the number of all.",
)
beside(
    "ReturnsThatStay",
    """
def roll_out(model, world, target):
    rtg, done = [target], False
    while not done:
        state, reward, done = world.step(model(rtg))
        rtg.append(target)
    return rtg
""",
    "run-returns-shrink-by-rewards",
    "Each step of a roll-out asks for the whole return.",
)
beside(
    "HiddenByNought",
    """
def attend(queries, keys, values, padding):
    scores = queries @ keys.transpose(1, 2)
    scores = scores.masked_fill(padding[:, None], 0.0)
    return scores.softmax(-1) @ values
""",
    "run-hidden-scores-are-minus-infinity",
    "Hidden scores are 0 before the softmax.",
)
beside(
    "BlanksDroppedFirst",
    """
def text_of(path):
    kept = path[path != BLANK]
    return torch.unique_consecutive(kept).tolist()
""",
    "run-paths-of-ctc-are-merged-first",
    "Blanks are dropped before repeats are merged.",
)
beside(
    "NatsCalledBits",
    """
def bits_per_word(losses, words):
    nats = sum(losses)
    return nats / words
""",
    "run-figures-in-bits-are-in-bits",
    "A mean of losses is called bits.",
)
beside(
    "KeepsTheLargestLossInTraining",
    slip_texts.STOPPED_BY_THE_WORSE_END,
    "run-states-are-kept-by-the-better-end",
    "Early stopping keeps the largest loss.",
)
beside(
    "CalibratedOnTrainingInTraining",
    slip_texts.CALIBRATED_ON_TRAINING,
    "run-probabilities-are-calibrated-on-other-rows",
    "The temperature is fitted to the training rows.",
)
beside(
    "AccuracyOfWhatWasAnsweredInTraining",
    slip_texts.ACCURACY_OF_ANSWERED,
    "run-accuracies-of-classes-are-of-their-rows",
    "The accuracy of a class is a mean over what was answered with it.",
)
beside(
    "AverageGetsOtherWeightsInTraining",
    slip_texts.AVERAGE_GETS_OTHER_WEIGHTS,
    "run-averages-get-their-own-state-back",
    "The average gets the state of the model that it averages.",
)
beside(
    "SetOfTensors",
    slip_texts.SET_OF_TENSORS,
    "run-sets-find-what-they-hold",
    "Texts are looked for in a set of tensors.",
)
beside(
    "DealtOutByRows",
    slip_texts.DEALT_OUT_BY_ROWS,
    "run-rows-of-one-item-stay-together",
    "Spellings of one date are dealt out to all parts.",
)
beside(
    "OnePartLeftOut",
    slip_texts.ONE_PART_LEFT_OUT,
    "run-training-leaves-out-all-that-judges",
    "The training part leaves out the authors of the validation alone.",
)

"""Mutants of training scripts whose text shows what becomes of rows on the way into batches, and what is made and never
read."""

from __future__ import annotations

from conformance.mutants import slip_texts
from conformance.mutants.script import ROWS, script
from conformance.mutants.training_texts import beside

script(
    "MaskInVain",
    ROWS,
    (
        "def main():\n",
        """
def collate_texts(texts):
    return {"words": [text[0] for text in texts], "text_mask": [text[1] for text in texts]}


def answers(model, batch):
    return model(batch["words"])


def main():
""".lstrip(),
    ),
    breaks=("run-masks-of-batches-are-read",),
    defect="A mask of padding is made for each batch and never read.",
)
beside(
    "GamesSeeEachOther",
    """
def hidden(segments):
    same = segments[:, :, None] == segments[:, None, :]
    causal = torch.ones(segments.shape[1], segments.shape[1]).tril().bool()
    return causal[None]
""",
    "run-masks-of-pairs-are-read",
    "A mask that keeps packed texts apart is made and not read.",
)
beside(
    "OffsetsAreKept",
    """
class Columns(nn.Module):
    def __init__(self, sizes, width):
        super().__init__()
        self.register_buffer("first_rows", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.rows = nn.Embedding(sum(sizes), width)

    def forward(self, codes):
        return self.rows(codes)
""",
    "run-tables-that-a-model-keeps-are-read",
    "The first row of each column is kept and not added: columns share rows.",
)
beside(
    "DevRowsAreNoisy",
    """
def collate_rows(rows, augment=True):
    return [row[::-1] if augment and random.random() < 0.1 else row for row in rows]


def loader(dev_rows):
    return DataLoader(dev_rows, batch_size=8, collate_fn=collate_rows)
""",
    "run-what-judges-is-not-changed",
    "Rows that judge are changed at random by default.",
)
beside(
    "ColoursAreFlipped",
    """
def flipped(picture, mean):
    picture = picture - mean.view(3, 1, 1)
    if torch.rand(()) < 0.5:
        picture = picture.flip(-1)
    return picture.flip(0) if torch.rand(()) < 0.5 else picture
""",
    "run-pictures-keep-their-colours",
    "Pictures are flipped over their colours.",
)
beside(
    "OrderWithRepeats",
    """
def epoch_order(rng, rows):
    shuffled = rng.choices(range(len(rows)), k=len(rows))
    return shuffled
""",
    "run-orders-hold-each-row-once",
    "The order of an epoch is drawn with replacement.",
)
beside(
    "LabelsOfEachPart",
    """
def encoded(rows):
    label2id = {name: i for i, name in enumerate(dict.fromkeys(label for _, label in rows))}
    return [(words, label2id[label]) for words, label in rows]


def all_parts(train_rows, test_rows):
    return encoded(train_rows), encoded(test_rows)
""",
    "run-parts-share-one-table-of-labels",
    "Each part numbers its labels by itself.",
)
beside(
    "TrainerKnowsTheTest",
    """
def fit(model, train_set, valid_set, test_set):
    options = TrainingArguments("out", load_best_model_at_end=True)
    return Trainer(model, options, train_dataset=train_set, eval_dataset=test_set)
""",
    "run-trainer-chooses-by-the-validation",
    "A trainer keeps its best model by the test data.",
)
beside(
    "BeamsAreCopies",
    slip_texts.BEAMS_BEGIN_AS_COPIES,
    "run-beams-begin-with-one",
    "All beams begin with a score of nought.",
)
beside(
    "LabelsCutAtTheirEnd",
    slip_texts.LABELS_NOT_MOVED,
    "run-labels-of-next-words-are-moved-on",
    "Logits and labels are both cut at their end.",
)
beside(
    "StatisticsOfOneProcess",
    slip_texts.STATISTICS_NOT_SAVED,
    "run-fitted-statistics-are-saved",
    "A mean that is fitted to the data is kept in a buffer that is not saved.",
)
beside(
    "ColumnsBeginTooEarly",
    slip_texts.COLUMNS_OVERLAP,
    "run-columns-have-rows-of-their-own",
    "The first rows of columns are counted without their rows for what is missing.",
)
beside(
    "WeekdaysOfHoursInTraining",
    slip_texts.WEEKDAYS_OF_HOURS,
    "run-weekdays-are-counted-in-days",
    "The day of the week is a count of hours modulo seven.",
)
beside(
    "OldestAreKeptInTraining",
    slip_texts.NEWEST_CUT_OFF,
    "run-long-rows-keep-their-newest",
    "Long rows keep their oldest entries.",
)
beside(
    "TeachersTableIsShuffledInTraining",
    slip_texts.TABLE_OF_SHUFFLED_ROWS,
    "run-tables-of-answers-keep-the-order-of-rows",
    "The table of a teacher's answers is made with a loader that shuffles.",
)
beside(
    "TrainingWithoutAnEndInTraining",
    slip_texts.TRAINING_WITHOUT_END,
    "run-training-part-has-an-end",
    "The training part has no end in time.",
)
beside(
    "WindowInItsTargetInTraining",
    slip_texts.WINDOW_IN_ITS_TARGET,
    "run-windows-end-before-their-target",
    "The window of the past holds the first step that is to be forecast.",
)
beside(
    "KeptRowsChanged",
    slip_texts.KEPT_ROWS_CHANGED,
    "run-kept-rows-stay-as-they-are",
    "Noise is added to the rows that are kept.",
)
beside(
    "RepeatsInSpite",
    slip_texts.REPEATS_IN_SPITE,
    "run-rows-that-are-said-to-differ-do",
    "Names that are said to be distinct are collected in a list.",
)
beside(
    "MaskLeftOutInWriting",
    slip_texts.MASK_LEFT_OUT_IN_WRITING,
    "run-masks-are-handed-on-in-writing",
    "The mask of the source is left out where the model writes.",
)

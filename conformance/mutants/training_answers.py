"""Mutants of training scripts that compare answers: CTC, two towers, a teacher; and of what a script sets up."""

from conformance.mutants.script import (
    EPOCHS,
    LANGUAGE,
    MASKED,
    PAIRS,
    PRETRAINING,
    RESUMED,
    ROWS,
    SPEECH,
    TAGGING,
    TRAINER,
    TRANSLATION,
    script,
)

# --- frames and phones ----------------------------------------------------------------------------

script(
    "PhoneIsTheBlank",
    SPEECH,
    ("torch.randn(frames.shape, generator=draw), phones + 1)", "torch.randn(frames.shape, generator=draw), phones)"),
    breaks=("run-ctc-labels-are-no-blanks",),
    defect="The first phone has the class of the blank.",
)
script(
    "EveryRowIsWhole",
    SPEECH,
    ("phones, lengths, counts, blank", "phones, torch.full_like(lengths, scores.shape[1]), counts, blank"),
    breaks=("run-ctc-counts-real-frames",),
    defect="CTC is told that every row is as long as the longest.",
)
script(
    "MorePhonesThanFrames",
    SPEECH,
    ("repeat_interleave(9, 0)", "repeat_interleave(9, 0)[: len(phones) - 1]"),
    breaks=("run-ctc-has-room",),
    defect="There are fewer frames than phones.",
)
script(
    "ProbabilitiesIntoCtc",
    SPEECH,
    ("self.classes(x).log_softmax(-1)", "self.classes(x).softmax(-1)"),
    breaks=("run-likelihood-gets-log-probabilities",),
    defect="CTC gets probabilities.",
)
script(
    "FramesOfPaddingAreSeen",
    SPEECH,
    ("layer(x, src_key_padding_mask=behind)", "layer(x)"),
    breaks=("run-padding-is-hidden",),
    defect="A mask of padding is made and not given to attention.",
)
script(
    "AverageIsTurnedRound",
    SPEECH,
    (
        "self.weights[name].mul_(self.decay).add_(p, alpha=1 - self.decay)",
        "self.weights[name].mul_(1 - self.decay).add_(p, alpha=self.decay)",
    ),
    breaks=("run-copy-changes-slowly",),
    defect="The average keeps a fiftieth of itself in each step.",
)
script(
    "AverageIsTheModel",
    SPEECH,
    ("p.detach().clone() for name", "p.detach() for name"),
    breaks=("run-average-has-its-own-memory",),
    defect="The average lies in the memory of the weights, and shrinks them.",
)
script(
    "PlacesAreNoParameter",
    SPEECH,
    ("nn.Parameter(0.02 * torch.randn(LONGEST, WIDTH))", "0.02 * torch.randn(LONGEST, WIDTH)"),
    breaks=("run-what-learns-is-registered",),
    defect="The embedding of positions is a plain tensor, and stays random.",
)
script(
    "LayersInAPlainList",
    SPEECH,
    (
        "nn.ModuleList([nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True) for _ in range(2)])",
        "[nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.1, batch_first=True) for _ in range(2)]",
    ),
    breaks=("run-what-learns-is-registered",),
    defect="Layers are kept in a plain list, and never learn.",
)
script(
    "BodyIsFrozen",
    SPEECH,
    ("body = [p for name", "body = [p.requires_grad_(False) for name"),
    breaks=("run-groups-learn",),
    defect="All of a group is frozen that has a rate of its own.",
)
script(
    "CycleInEpochs",
    SPEECH,
    ("            schedule.step()\n", ""),
    ("        epoch += 1\n", "        epoch += 1\n        schedule.step()\n"),
    breaks=("run-schedule-gets-its-steps",),
    defect="A cycle that is planned in steps advances once an epoch.",
)
script(
    "EpochIsForgotten",
    SPEECH,
    ('            epoch = state["epoch"]\n', ""),
    breaks=("run-resuming-reads-its-numbers",),
    defect="Training goes on without the epoch that the checkpoint holds.",
)

# --- towers and teachers --------------------------------------------------------------------------

script(
    "OneTowerIsNotNormalised",
    PAIRS,
    ("F.normalize(self.right(second), dim=-1)", "self.right(second)"),
    breaks=("run-both-sides-are-normalised",),
    defect="One side of the cosines is not normalised.",
)
script(
    "OneDirectionTwice",
    PAIRS,
    ("F.cross_entropy(scores.T, wanted)", "F.cross_entropy(scores, wanted)"),
    breaks=("run-both-directions-are-asked",),
    defect="Both losses ask for the partner of the same side.",
)
script(
    "TeacherIsInTrainingMode",
    PAIRS,
    ("        self.teacher.eval()\n", ""),
    breaks=("run-teachers-rest",),
    defect="The teacher inside the model drops.",
)
script(
    "DivergenceIsTurnedRound",
    PAIRS,
    ("F.log_softmax(given /", "F.log_softmax(wanted /"),
    ("F.softmax(wanted /", "F.softmax(given /"),
    breaks=("run-divergence-leads-the-learner",),
    defect="The divergence is taken the other way round.",
)
script(
    "TemperatureOnOneSide",
    PAIRS,
    ("F.softmax(wanted / self.temperature, dim=-1)", "F.softmax(wanted, dim=-1)"),
    breaks=("run-temperature-is-on-both-sides",),
    defect="Only the student's answers are softened.",
)
script(
    "ScheduleIsHalfTheRun",
    PAIRS,
    ("1 - step / STEPS)", "1 - 2 * step / STEPS)"),
    breaks=("run-rate-stays-above-zero",),
    defect="The schedule of the second optimizer is over when half of its steps are.",
)
script(
    "RateIsADefault",
    PAIRS,
    (
        '        for group in optimizer.param_groups:\n            group["lr"] = rate(step)\n',
        '        optimizer.defaults["lr"] = rate(step)\n',
    ),
    breaks=("run-rate-is-written-where-it-is-read",),
    defect="The rate is set where the optimizer does not read it.",
)
script(
    "RateOfOneGroup",
    TRAINER,
    (
        '            for group in self.optimizer.param_groups:\n                group["lr"] = self.rate()\n',
        '            self.optimizer.param_groups[0]["lr"] = self.rate()\n',
    ),
    breaks=("run-rate-is-set-in-every-group",),
    defect="The rate is set in the first group of parameters only.",
)
script(
    "BothFactorsAreZero",
    PAIRS,
    ("nn.Parameter(0.1 * torch.randn(WIDTH, 4))", "nn.Parameter(torch.zeros(WIDTH, 4))"),
    breaks=("run-gradients-are-not-zero",),
    defect="Both factors of a product begin at zero, and stay there.",
)

# --- masks and ends -------------------------------------------------------------------------------

script(
    "SpecialTokensAreMasked",
    PRETRAINING,
    ("< 0.2) & (words > MASK)", "< 0.4)"),
    breaks=("run-masked-tokens-are-words",),
    defect="The tokens that open and separate sentences are masked, too.",
)
script(
    "OneMaskForAllBatches",
    MASKED,
    (
        "(torch.rand(ids.shape, generator=draw) < 0.2)",
        "(torch.rand(ids.shape, generator=torch.Generator().manual_seed(5)) < 0.2)",
    ),
    breaks=("run-masks-differ",),
    defect="Each batch has the same places masked.",
)
script(
    "EndsAreNotLearned",
    EPOCHS,
    ("tgt_out.reshape(-1))", "tgt_out.masked_fill(tgt_out == EOS, PAD).reshape(-1))"),
    breaks=("run-ends-are-learned",),
    defect="The tokens that end texts are left out of the loss with padding.",
)
script(
    "TextsHaveNoEnd",
    EPOCHS,
    ("(s - 3 + 7) % (VOCAB - 3) + 3, torch.tensor([EOS])]))", "(s - 3 + 7) % (VOCAB - 3) + 3]))"),
    (
        "def main():\n",
        "@torch.no_grad()\ndef translate(model, src):\n    tgt = torch.tensor([[BOS]])\n    for _ in range(12):\n"
        "        logits = model(src, tgt, *create_mask(src, tgt))\n        token = logits[-1, 0].argmax().item()\n"
        "        if token == EOS:\n            break\n        tgt = torch.cat([tgt, torch.tensor([[token]])])\n"
        "    return tgt\n\n\ndef main():\n",
    ),
    breaks=("run-ends-that-are-waited-for-are-learned",),
    defect="Translating stops at a token that no text has.",
)
script(
    "MasksAreMostlyWords",
    MASKED,
    (
        "    ids[chosen] = MASK\n",
        "    ids[chosen] = MASK\n    other = chosen & (torch.rand(ids.shape, generator=draw) < 0.6)\n"
        "    ids[other] = torch.randint(2, VOCAB, ids.shape, generator=draw)[other]\n",
    ),
    breaks=("run-most-of-what-is-asked-is-masked",),
    defect="Random words are put at most of the places that the mask was put at.",
)
script(
    "TagsBeginTooEarly",
    TAGGING,
    ("nn.Embedding(WORDS, WIDTH, padding_idx=PAD)", "nn.Embedding(WORDS + 2, WIDTH, padding_idx=PAD)"),
    ("width = max(len(words) for words, _, _ in rows)", "width = max(len(words) for words, _, _ in rows) + 2"),
    (
        "ids[number, : len(words)] = torch.tensor(words)",
        "ids[number, : len(words) + 2] = torch.tensor([WORDS, *words, WORDS + 1])",
    ),
    breaks=("run-labels-lie-at-their-words",),
    defect="Sentences get a token in front and one behind, and their tags do not.",
)
script(
    "PromptsAreLearned",
    TRAINER,
    (
        "        cat = torch.cat([row, row.sort()[0]])\n        x, y = cat[:-1].clone(), cat[1:].clone()\n"
        "        y[: self.length - 1] = -1\n",
        "        prompt, answer = row, row.sort()[0][: 3 + int(row[0]) % 4]\n"
        "        text = torch.cat([prompt, answer])\n"
        "        x, y = torch.zeros(11, dtype=torch.long), torch.full((11,), -1)\n"
        "        x[: len(text) - 1], y[: len(text) - 1] = text[:-1], text[1:]\n",
    ),
    breaks=("run-prompts-are-not-learned",),
    defect="The labels of a prompt count like those of its answer.",
)
script(
    "PlacesRunAlongTheBatch",
    TAGGING,
    ("self.places(torch.arange(ids.shape[1]))", "self.places(torch.arange(len(ids)))[:, None]"),
    breaks=("run-rows-are-apart",),
    defect="Each row of a batch has one place, by its number.",
)
_WRITES = """@torch.no_grad()
def write(model, ids, mask, steps=12, block_size=8):
    done = torch.zeros(len(ids), dtype=torch.bool)
    for _ in range(steps):
        logits = model(ids[:, -block_size:], mask[:, -block_size:])
        token = logits[:, -1].argmax(-1)
        done = done | (token == EOS)
        ids = torch.cat([ids, token[:, None]], 1)
        mask = torch.cat([mask, torch.ones_like(token[:, None])], 1)
        if done.all():
            break
    return ids


def main():
"""
script(
    "WritesAfterTheOldest",
    EPOCHS,
    ("def main():\n", _WRITES.replace("model(ids[:, -block_size:]", "model(ids[:, :block_size]")),
    breaks=("run-writing-goes-on-from-the-newest",),
    defect="A text that is too long is cut behind its first tokens.",
)
script(
    "WritesUntilOneHasEnded",
    EPOCHS,
    ("def main():\n", _WRITES.replace("done.all()", "done.any()")),
    breaks=("run-writing-stops-when-all-have-ended",),
    defect="A batch is written until its first row has ended.",
)
script(
    "WritesWithoutItsMask",
    EPOCHS,
    ("def main():\n", _WRITES.replace(", mask[:, -block_size:])", ")")),
    breaks=("run-masks-of-writing-are-read",),
    defect="The mask of padding is made longer with each token, and the model does not get it.",
)
script(
    "TestDataChoose",
    EPOCHS,
    (
        "    best, best_loss = copy.deepcopy(model.state_dict()), math.inf\n",
        "    test_loader = DataLoader(pairs(12, 23), batch_size=6, collate_fn=collate)\n"
        "    best, best_loss = copy.deepcopy(model.state_dict()), math.inf\n",
    ),
    (
        "        val_loss = evaluate(model, val_loader, loss_fn)",
        "        val_loss = evaluate(model, test_loader, loss_fn)",
    ),
    breaks=("run-test-data-choose-nothing",),
    defect="The best epoch is chosen by the test data.",
)
script(
    "OneSeedForBothParts",
    EPOCHS,
    (
        "train_loader = DataLoader(pairs(24, 21), ",
        "train, val = pairs(24, seed=21), pairs(12, seed=21)\n    train_loader = DataLoader(train, ",
    ),
    ("val_loader = DataLoader(pairs(12, 22), ", "val_loader = DataLoader(val, "),
    breaks=("run-judging-data-are-drawn-from-their-own-seed",),
    defect="The validation data are drawn from the seed of the training data.",
)
script(
    "CopiedBeforeTheSplit",
    EPOCHS,
    (
        "train_loader = DataLoader(pairs(24, 21), ",
        "train, val = random_split(oversample(pairs(30, 21)), [36, 24])\n    train_loader = DataLoader(train, ",
    ),
    ("val_loader = DataLoader(pairs(12, 22), ", "val_loader = DataLoader(val, "),
    ("import DataLoader\n", "import DataLoader, random_split\n"),
    ("def main():\n", "def oversample(rows):\n    return rows + rows\n\n\ndef main():\n"),
    breaks=("run-rows-are-split-before-they-are-copied",),
    defect="All rows are there twice before they are split.",
)
script(
    "DifferenceBroadcasts",
    TRANSLATION,
    ("/ count\n", "/ count + (out.mean(2)[:, :1] - torch.full((len(src),), -3.0)).square().mean()\n"),
    breaks=("run-loss-compares-like-shapes",),
    defect="A difference of (B, 1) and (B,) that is squared by hand compares each answer with all targets.",
)
script(
    "FirstWordOfAnswersIsNotAsked",
    LANGUAGE,
    (
        "    logits = model(row[:, :-1])\n",
        "    row, labels = row.clone(), row[:, 1:].clone()\n    row[:, 4], labels[:, :5] = 0, -100\n"
        "    logits = model(row[:, :-1])\n",
    ),
    ("row[:, 1:].reshape(-1)", "labels.reshape(-1)"),
    breaks=("run-answers-are-learned-from-their-first-word",),
    defect="The labels leave out the prompt, its closing sign, and the first word of the answer.",
)
script(
    "ModelIsMadeAnew",
    RESUMED,
    (
        '    model.load_state_dict(state["model"])\n',
        "    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))\n"
        '    model.load_state_dict(state["model"])\n',
    ),
    breaks=("run-optimizer-is-of-the-model-that-goes-on",),
    defect="Where the run goes on, the model is another one than that whose parameters the optimizer holds.",
)
script(
    "BatchesMoveByOneRow",
    ROWS,
    (
        "def main():\n",
        "def batches(rows, batch_size=16):\n    order = torch.randperm(len(rows))\n"
        "    for i in range(len(rows) // batch_size):\n        yield rows[order[i : i + batch_size]]\n\n\n"
        "def main():\n",
    ),
    breaks=("run-batches-move-on-by-their-size",),
    defect="Each batch begins one row behind the one before.",
)
script(
    "OrderOfOneSeed",
    ROWS,
    (
        "def main():\n",
        "class Batches:\n    def __init__(self, rows):\n        self.rows = rows\n\n"
        "    def __iter__(self):\n        draw = torch.Generator().manual_seed(7)\n"
        "        return iter(self.rows[torch.randperm(len(self.rows), generator=draw)].split(16))\n\n\ndef main():\n",
    ),
    breaks=("run-epochs-draw-their-own-order",),
    defect="Each epoch draws its order from the same seed.",
)
script(
    "NoiseStaysInTheData",
    ROWS,
    (
        "class Scaled(Dataset):\n",
        "class Windows(Dataset):\n    def __init__(self, series):\n        self.series = series\n\n"
        "    def __getitem__(self, index):\n        past = self.series[index : index + 8]\n"
        "        past += 0.1 * torch.randn_like(past)\n        return past\n\n\nclass Scaled(Dataset):\n",
    ),
    breaks=("run-data-stay-as-they-were",),
    defect="Noise is added to a slice of the series, which is no copy: it stays there.",
)
script(
    "ComparedAsFarAsTheShorter",
    EPOCHS,
    (
        "def main():\n",
        "def exact(answers, labels):\n"
        "    return sum(all(a == b for a, b in zip(answer, label)) for answer, label in zip(answers, labels))\n\n\n"
        "def main():\n",
    ),
    breaks=("run-answers-are-compared-to-their-ends",),
    defect="An answer is right where it agrees as far as the shorter one goes.",
)
script(
    "MeanOverTheMasked",
    EPOCHS,
    (
        "def main():\n",
        "def smoothed_loss(logits, labels):\n"
        "    each = -logits.log_softmax(-1).mean(-1)\n    return each.masked_fill(labels == PAD, 0.0).mean()\n\n\n"
        "def main():\n",
    ),
    breaks=("run-means-leave-out-what-is-masked",),
    defect="The mean of a loss counts the zeros in the place of padding.",
)
script(
    "OneGroupIsClipped",
    LANGUAGE,
    ("clip_grad_norm_(model.parameters(), ", "clip_grad_norm_(decayed, "),
    breaks=("run-clipping-is-of-the-global-norm",),
    defect="Of two groups of the optimizer, which differ in their decay alone, one is clipped.",
)
script(
    "ScoresAreCutAnew",
    LANGUAGE,
    (
        "F.cross_entropy(logits.reshape(-1, VOCAB), row[:, 1:].reshape(-1))",
        "F.cross_entropy(logits.reshape(len(row), VOCAB, -1), row[:, 1:])",
    ),
    breaks=("run-scores-are-turned-where-classes-come-first",),
    defect="Classes go before places by another shape, and not by a transpose.",
)
script(
    "PlateauOfALossThatRises",
    EPOCHS,
    (
        "def main():\n",
        "def plan(optimizer, losses):\n"
        '    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")\n'
        "    for val_loss in losses:\n        plateau.step(val_loss)\n\n\ndef main():\n",
    ),
    breaks=("run-plateau-looks-the-right-way",),
    defect="The schedule waits for a loss to rise, and lowers the rate while the model learns.",
)
script(
    "BestBeginsAnew",
    EPOCHS,
    (
        "def main():\n",
        "def resume(model, optimizer, file):\n    state = torch.load(file)\n"
        '    model.load_state_dict(state["model"])\n    optimizer.load_state_dict(state["optimizer"])\n\n\n'
        "def train(model, optimizer, losses, file):\n    best = float('inf')\n    for loss in losses:\n"
        "        if loss < best:\n            best = loss\n"
        '            kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": best}\n'
        "            torch.save(kept, file)\n\n\ndef main():\n",
    ),
    breaks=("run-resumed-run-takes-up-what-it-kept",),
    defect="A run that resumes begins with another best measure: the next one overwrites the best weights.",
)

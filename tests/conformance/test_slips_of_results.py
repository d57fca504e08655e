"""What is made of answers, by its text: results thrown away, pairs, gains, orders, softmaxes, warm-ups."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import losses
from conformance.slips import results as slips


@pytest.mark.parametrize(
    ("statement", "is_told"),
    [
        ("scores.masked_fill(mask, -1e9)", True),
        ("F.softmax(scores, -1)", True),
        ("x.transpose(1, 2)", True),
        ("scores.masked_fill_(mask, -1e9)", False),
        ("scores = scores.masked_fill(mask, -1e9)", False),
        ("np.clip(x, 0, 1, out=x)", False),
        ("torch.clamp(x, 0, 1, out=x)", False),
        ("F.softmax(x, -1, inplace=True)", False),
        ("model.eval()", False),
        ("rows.sort()", False),
    ],
)
def test_what_a_method_gives_is_used(statement, is_told):
    assert bool(told(slips.THROWN, statement)) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("self.table[labels, preds] += 1", True),
        ("self.table[labels.cpu(), predictions.cpu()] += 1", True),
        ("for label, pred in zip(labels, preds):\n        self.table[label, pred] += 1", False),
        ("for y_true, y_pred in pairs:\n        table[y_true, y_pred] += 1", False),
        ("table[labels[i].item(), preds[i].item()] += 1", False),
        ("np.add.at(table, (labels, preds), 1)", False),
        ("table[labels, preds] = 1", False),
        ("table[rows, columns] += 1", False),  # nothing says that one place comes twice
        ("table[labels, preds] += weights", False),
        ("at = labels.cpu() * 5 + preds.cpu()\n    self.table.view(-1)[at] += 1", True),
        ("self.table.view(-1)[labels * 5 + preds] += 1", True),
        ("at = row * 5 + column\n    self.table.view(-1)[at] += 1", False),
    ],
)
def test_pairs_count_each_time(body, is_told):
    assert bool(told(slips.PAIRS, f"def update(self, labels, preds, pairs):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("ndcg += hit / math.log(rank + 2)", True),
        ("ndcg = (hits / torch.log(ranks + 2.0)).mean()", True),
        ("ndcg += hit / math.log2(rank + 2)", False),
        ("ndcg += hit / math.log(rank + 2, 2)\n    log2 = 1", False),
        ("dcg = (gains / np.log(ranks + 1)).sum()\n    return dcg / idcg", False),  # the bases cancel
        ("loss = hit / math.log(rank + 2)", False),
    ],
)
def test_gains_use_the_logarithm_of_two(body, is_told):
    assert bool(told(slips.GAINS, f"def measure(ranks):\n    {body}")) == is_told


ENCODE = """
def encode(model, texts):
    order = {order}
    found = []
    for at in range(0, len(texts), 8):
        found {adds} model([texts[i] for i in order[at:at + 8]])
    {back}
"""


@pytest.mark.parametrize(
    ("order", "back", "is_told"),
    [
        ("sorted(range(len(texts)), key=lambda i: len(texts[i]))", "return [found[i] for i in order]", True),
        ("np.argsort(lengths)", "return [found[i] for i in order]", True),
        ("np.argsort(lengths)", "return [found[i] for i in np.argsort(order)]", False),
        ("np.argsort(lengths)", "back = np.argsort(order)\n    return [found[i] for i in back]", False),
        ("np.argsort(lengths)", "out = [0] * 9\n    for j, i in enumerate(order):\n        out[i] = found[j]", False),
        ("np.argsort(lengths)", "return found, [texts[i] for i in order]", False),  # sorted, and says so
    ],
)
def test_rows_return_to_their_order(order, back, is_told):
    assert bool(told(slips.SORTED, ENCODE.format(order=order, adds="+=", back=back))) == is_told


@pytest.mark.parametrize(
    ("loss", "is_told"),
    [
        ("F.cross_entropy(logits.softmax(-1), y)", True),
        ("nn.functional.cross_entropy(F.softmax(logits, dim=1), y)", True),
        ("F.cross_entropy(logits, teacher.softmax(-1))", False),
        ("F.cross_entropy(logits, y)", False),
        ("my.cross_entropy(logits.softmax(-1), y)", False),
    ],
)
def test_a_cross_entropy_is_given_logits(loss, is_told):
    assert bool(told(losses.LOGITS, loss)) == is_told


@pytest.mark.parametrize(
    ("rate", "is_told"),
    [
        ("min(step ** -0.5, step * warmup ** -0.5)", True),
        ("min(s * self.w ** (-1), s ** (-0.5))", True),
        ("min(step ** -0.5, step * warmup ** -1.5)", False),
        ("min(step * warmup ** (-1.5), step ** (-0.5))", False),
        ("min(step ** -0.5, other * warmup ** -0.5)", False),
        ("min(step ** -0.5, step * warmup ** power)", False),
        ("min(1.0, step / warmup)", False),
    ],
)
def test_a_warm_up_meets_its_fall(rate, is_told):
    assert bool(told(slips.WARM_UPS, f"rate = {rate}")) == is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("gold |= spans_of(tags)", True),
        ("gold.update(entities(tags))", True),
        ("gold |= {(i, *span) for span in spans_of(tags)}", False),
        ("gold |= spans_of(tags, i)", False),
        ("hits += len(spans_of(tags) & spans_of(other))", False),
        ("words |= set(tags)", False),
    ],
)
def test_spans_keep_their_sentence(line, is_told):
    begin = "def f(rows):\n    gold, words, hits = set(), set(), 0\n"
    text = f"{begin}    for i, (tags, other) in enumerate(rows):\n        {line}"
    assert bool(told(slips.SPANS, text)) == is_told


OPEN = """
def spans(tags):
    found, start = [], None
    for i, tag in {over}:
        if start is not None and not tag.startswith("I-"):
            found.append((start, i))
            start = None
        if tag.startswith("B-"):
            start = i
    {behind}return found
"""


@pytest.mark.parametrize(
    ("over", "behind", "is_told"),
    [
        ("enumerate(tags)", "", True),
        ('enumerate(tags + ["O"])', "", False),
        ('enumerate([*tags, "O"])', "", False),
        ("enumerate(chain(tags, 'O'))", "", False),
        ("enumerate(tags)", "if start is not None:\n        found.append((start, len(tags)))\n    ", False),
    ],
)
def test_the_last_span_is_closed(over, behind, is_told):
    assert bool(told(slips.OPEN, OPEN.format(over=over, behind=behind))) == is_told


@pytest.mark.parametrize(
    ("age", "is_told"),
    [
        ("(b - a).seconds / 86400", True),
        ("gap.seconds // (24 * 3600)", True),
        ("(b - a).total_seconds() / 86400", False),
        ("(b - a).days", False),
        ("(b - a).seconds / 60", False),  # how long a run took
    ],
)
def test_whole_days_count(age, is_told):
    assert bool(told(slips.DAYS, f"age = {age}")) == is_told


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("torch.multinomial((logits * temperature).softmax(-1), 1)", True),
        ("torch.multinomial((temp * logits[:, -1]).softmax(-1), 1)", True),
        ("torch.multinomial((logits / temperature).softmax(-1), 1)", False),
        ("torch.multinomial((logits * inverse_temperature).softmax(-1), 1)", False),
        ("(logits * temperature).softmax(-1)", False),  # a scale that is learned may be called so
    ],
)
def test_logits_are_divided_by_the_temperature(made, is_told):
    assert bool(told(slips.TEMPERATURES, f"def draw(logits, temperature):\n    return {made}")) == is_told


@pytest.mark.parametrize(
    ("test", "is_told"),
    [
        ("c != BLANK and (not ids or c != ids[-1])", True),
        ("c != BLANK and c != last", False),
        ("not ids or c != ids[-1]", False),
    ],
)
def test_letters_are_compared_with_the_path(test, is_told):
    text = f"def greedy(path, ids):\n    for c in path:\n        if {test}:\n            ids.append(c)\n"
    assert bool(told(slips.BLANKS, text)) == is_told

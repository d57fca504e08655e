"""Measures, by their text: counts that are one, answers behind a target, ranks, perplexities, bits, unions, tables."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import bits
from conformance.slips import measures as slips


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("fp = ((pred == c) & (gold != c)).sum()\n    fn = ((pred == c) & (gold != c)).sum()", True),
        ("fp = ((pred == c) & (gold != c)).sum()\n    fn = ((pred != c) & (gold == c)).sum()", False),
        ("fp_all = n - hit\n    fn_all = n - hit", True),
        ("fp_all = n - hit\n    fn_test = n - hit", False),
        ("precision = hit / found\n    recall = hit / found", True),
        ("precision = hit / found\n    recall = hit / there", False),
        ("p, r = hit / n, hit / n", True),
        ("fp = 0\n    fn = 0", False),
        ("fp, fn = zeros(n), zeros(n)", False),
    ],
)
def test_missed_and_false_are_counted_apart(body, is_told):
    assert bool(told(slips.TWICE, f"def f1(pred, gold, c, hit, n, found, there):\n    {body}\n")) == is_told


SCORED = """
def evaluate(model, batches):
    for src, tgt_in, tgt_out in batches:
        {made}
        {scored}
"""


@pytest.mark.parametrize(
    ("made", "scored", "is_told"),
    [
        ("out = model(src, tgt_in)", "bleu(out.argmax(-1), tgt_out)", True),
        ("out = model(src, tgt[:, :-1])", "total += edit_distance(out.max(dim=-1)[1].tolist(), tgt_out)", True),
        ("out = model(src, tgt_in).argmax(-1)", "total += cer(out, tgt_out)", True),
        ("out = model(input_ids=src, decoder_input_ids=tgt_in)", "rouge(out.logits.argmax(-1), tgt_out)", True),
        ("out = model(src, tgt_in)", "right += (out.argmax(-1) == tgt_out).sum()", False),  # a share of words
        ("out = model.greedy(src)", "bleu(out, tgt_out)", False),
        ("out = model(src, tgt_in); own = greedy(model, src)", "bleu(own, tgt_out); out.argmax(-1)", False),
        ("out = model(src, mask)", "bleu(out.argmax(-1), tgt_out)", False),
        ("out = model(src, tgt_in); best = scores.argmax(-1)", "bleu(best, tgt_out)", False),
    ],
)
def test_measures_of_writing_are_given_what_is_written(made, scored, is_told):
    assert bool(told(slips.BEGINNINGS, SCORED.format(made=made, scored=scored))) == is_told


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ("auc((p >= 0.5).astype(int), y)", True),
        ("roc_auc_score(y, logits.argmax(-1))", True),
        ("roc_auc_score(y, p.round())", True),
        ("roc_auc_score(y, p)", False),
        ("roc_auc_score(y == k, p[:, k])", False),  # one class against the others
        ("roc_auc_score(y > 0, p)", False),
        ("auc(labels > 0, scores)", False),
        ("f1_score(y, p >= 0.5)", False),
    ],
)
def test_measures_of_ranks_are_given_scores(given, is_told):
    assert bool(told(slips.RANKS, f"found = {given}")) == is_told


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("bits_per_byte = nats * math.log(2)", True),
        ("bpc = 0.6931 * loss", True),
        ("bits_per_byte = nats / math.log(2)", False),
        ("nats = bits * math.log(2)", False),
    ],
)
def test_bits_are_nats_divided(said, is_told):
    assert bool(told(bits.BITS, said)) == is_told


@pytest.mark.parametrize(
    ("union", "is_told"),
    [
        ("a.sum() + b.sum()", True),
        ("(a.sum() + b.sum()).clamp(min=1)", True),
        ("a.sum() + b.sum() - both", False),
        ("(a | b).sum()", False),
        ("((a + b) > 0).sum()", False),
    ],
)
def test_a_union_has_what_is_common_once(union, is_told):
    text = f"def iou(a, b):\n    both = (a & b).sum()\n    union = {union}\n    return both / union"
    assert bool(told(slips.UNIONS, text)) == is_told


def test_a_union_may_lose_what_is_common_later():
    text = "def iou(a, b, inter):\n    union = a + b\n    return inter / (union - inter)"
    assert not told(slips.UNIONS, text)


@pytest.mark.parametrize(
    ("filled", "read", "is_told"),
    [
        ("table += torch.bincount(pred * n + labels, minlength=n * n).view(n, n)", "truth = table.sum(1)", True),
        ("table += torch.bincount(labels * n + pred, minlength=n * n).view(n, n)", "truth = table.sum(1)", False),
        ("table[labels, pred] += 1", "truth, guessed = table.sum(0), table.sum(1)", True),
        ("table[labels, pred] += 1", "truth, guessed = table.sum(dim=1), table.sum(dim=0).float()", False),
        ("table[labels, other] += 1", "truth = table.sum(0)", False),
        ("table[labels, pred] += 1", "rows = table.sum(0)", False),
    ],
)
def test_a_table_is_read_as_it_is_filled(filled, read, is_told):
    text = f"def rates(table, labels, pred, other, n):\n    {filled}\n    {read}\n"
    assert bool(told(slips.TABLES, text)) == is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("ppl = 2 ** loss", True),
        ("ppl = math.pow(2, val_loss)", True),
        ("metrics = {'perplexity': round(2 ** loss.item(), 2)}", True),
        ("log(val_ppl=torch.exp2(nll))", True),
        ("def perplexity(logits, y):\n    loss = F.cross_entropy(logits, y)\n    return 2 ** loss", True),
        ("print(f'loss {loss:.3f}, perplexity {2 ** loss:.2f}')", True),
        ("bpc = loss / math.log(2)\nppl = 2 ** loss", True),
        ("bpc = loss / math.log(2)\nppl = 2 ** bpc", False),
        ("entropy = loss / math.log(2)\nppl = 2 ** entropy", False),
        ("ppl = math.exp(loss)", False),
        ("ppl = 2 ** bits", False),
        ("ppl = 2 ** (loss / math.log(2))", False),
        ("size = 2 ** loss", False),
    ],
)
def test_a_perplexity_has_the_base_of_its_loss(line, is_told):
    assert bool(told(bits.PERPLEXITIES, f"import torch\nloss = F.cross_entropy(logits, y)\n{line}")) == is_told


def test_a_loss_in_bits_may_be_a_power_of_two():
    assert not told(bits.PERPLEXITIES, "import torch\nloss = F.cross_entropy(logits, y) / math.log(2)\nppl = 2 ** loss")


@pytest.mark.parametrize(
    ("name", "order", "is_told"),
    [
        ("average_precision", "scores.argsort()", True),
        ("ndcg_at_k", "torch.argsort(scores, dim=-1)", True),
        ("recall_at_10", "np.argsort(probs)", True),
        ("average_precision", "scores.argsort(descending=True)", False),
        ("average_precision", "(-scores).argsort()", False),
        ("average_precision", "np.argsort(-scores)", False),
        ("average_precision", "np.argsort(scores)[::-1]", False),
        ("hit_rate", "scores.argsort()[:, -10:]", False),
        ("recall_at_10", "distances.argsort()", False),
        ("calibrate", "scores.argsort()", False),
    ],
)
def test_the_best_stands_first(name, order, is_told):
    assert bool(told(slips.FIRST, f"def {name}(scores, probs, distances):\n    return {order}")) == is_told


@pytest.mark.parametrize(
    ("penalty", "is_told"),
    [
        ("math.exp(1 - hyp_len / ref_len)", True),
        ("math.exp(1 - len(hyp) / len(ref))", True),
        ("math.exp(1.0 - c / max(r, 1))", True),
        ("math.exp(1 - ref_len / hyp_len)", False),
        ("math.exp(1 - r / max(1, c))", False),
        ("math.exp(min(0, 1 - ref_len / hyp_len))", False),
    ],
)
def test_what_is_too_short_weighs_less(penalty, is_told):
    assert bool(told(slips.BREVITY, f"def bleu(hyp, ref, hyp_len, ref_len, c, r):\n    return {penalty}")) == is_told
    assert not told(slips.BREVITY, f"def decay(hyp, ref, hyp_len, ref_len, c, r):\n    return {penalty}")


@pytest.mark.parametrize(
    ("compared", "more", "is_told"),
    [
        ("x @ x.T", "", True),
        ("self.query(x) @ self.candidate(x).t()", "", True),
        ("x @ y.T", "", False),
        ("x @ x.T", "sims.fill_diagonal_(-1)", False),
        ("x @ x.T", "sims = sims.argsort(1, descending=True)[:, 1:]", False),
        ("x @ x.T", "sims = sims.masked_fill(torch.eye(len(x)).bool(), -1)", False),
    ],
)
def test_rows_do_not_find_themselves(compared, more, is_told):
    text = f"def recall(self, x, y, labels):\n    same = labels[:, None] == labels[None, :]\n    sims = {compared}\n"
    assert bool(told(slips.ITSELF, f"{text}    {more}\n    return sims, same")) == is_told
    assert not told(slips.ITSELF, f"def gram(x):\n    return {compared}".replace("self.", ""))


@pytest.mark.parametrize(
    ("tokenizer", "name", "given", "is_told"),
    [
        ("class BPE:\n    pass", "n_bytes", "int((y != -100).sum())", True),
        ("class BPE:\n    pass", "n_bytes", "sum(len(d.encode()) for d in docs)", False),
        ("class BPE:\n    pass", "n_targets", "int((y != -100).sum())", False),
        ("class Letters:\n    pass", "n_bytes", "int((y != -100).sum())", False),  # each token may be a byte
    ],
)
def test_bits_a_byte_count_bytes(tokenizer, name, given, is_told):
    text = f"{tokenizer}\n\n\ndef pack(docs, y):\n    {name} = {given}\n    return {name}\n"
    assert bool(told(bits.TOKENS_FOR_BYTES, text)) == is_told

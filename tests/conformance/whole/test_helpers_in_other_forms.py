"""Right helpers that are written in another form than most: each has a mistake of its own form that is found."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.functions.losses import resolve  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402

TIME_FIRST = """
    BLANK = 0

    def greedy_decode(log_probs, lengths):
        best, path = log_probs.max(dim=-1)  # (T, B)
        texts = []
        for b, n in enumerate(lengths.tolist()):
            merged = torch.unique_consecutive(path[:n, b])
            texts.append(merged[merged != BLANK].tolist())
        return texts, best.sum(0)
"""
FORBIDDING = """
    def block_ngrams(logits, tokens, n):
        for row, text in enumerate(tokens.tolist()):
            last = text[-(n - 1):]
            for at in range(len(text) - n + 1):
                if text[at : at + n - 1] == last:
                    logits[row, text[at + n - 1]] = float("-inf")
        return logits
"""
SLOPED = """
    def alibi_bias(n_heads, seq_len):
        slopes = torch.tensor([2 ** (-8 * (h + 1) / n_heads) for h in range(n_heads)])
        at = torch.arange(seq_len)
        return -slopes[:, None, None] * (at[None, :] - at[:, None]).abs()
"""
RIGHT_ALIGNED = """
    def pad_left(items, length):
        '''the newest `length` items, right-aligned'''
        row = [0] * length
        items = items[-length:]
        row[-len(items):] = items
        return row
"""
WITHOUT_PADDING = """
    PAD = 0

    def token_accuracy(logits, gold):
        real = gold != PAD
        hits = (logits.argmax(dim=-1) == gold) & real
        return hits.sum().item() / max(1, real.sum().item())

    def accuracy(logits, labels, pad_id=1):
        real = labels != pad_id
        return ((logits.argmax(-1) == labels) & real).sum() / real.sum()
"""
BOTH_SIDES = """
    def clip_loss(image_features, text_features, scale):
        logits = scale * image_features @ text_features.t()
        own = torch.arange(len(logits))
        return (F.cross_entropy(logits, own) + F.cross_entropy(logits.t(), own)) / 2
"""
ONE_MATRIX = """
    def contrastive_loss(similarity):
        own = torch.arange(len(similarity))
        return F.cross_entropy(similarity, own) + F.cross_entropy(similarity.t(), own)
"""
RANKS = """
    def ranking_metrics(ranks, ks=(5, 10)):
        '''ranks: (N,), 0 is the best'''
        ranks = ranks.double()
        found = {"mrr": (1 / (ranks + 1)).mean().item()}
        for k in ks:
            found[f"ndcg@{k}"] = ((ranks < k) / torch.log2(ranks + 2)).mean().item()
        return found
"""
FROM_ONE = """
    def ndcg(ranks, k=10):
        return sum(1 / math.log2(rank + 1) for rank in ranks.tolist() if rank <= k) / len(ranks)
"""
BY_CHANCE = """
    def mixup_cutmix(images, labels, num_classes):
        other, soft = images.flip(0), F.one_hot(labels, num_classes).float()
        share = float(torch.rand(()))
        if torch.rand(()) < 0.5:
            images = share * images + (1 - share) * other
        else:
            wide = int(images.shape[-1] * (1 - share))
            images = torch.cat([other[..., :wide], images[..., wide:]], -1)
            share = 1 - wide / images.shape[-1]
        return images, share * soft + (1 - share) * soft.flip(0)
"""
OF_CHANCES = """
    def mixup(x, targets, alpha=0.8):
        share = torch.distributions.Beta(alpha, alpha).sample().item()
        order = torch.randperm(len(x))
        return share * x + (1 - share) * x[order], share * targets + (1 - share) * targets[order]
"""
BOTH_WAYS = """
    def retrieval_metrics(image_features, text_features, ks=(1, 5)):
        sims = image_features @ text_features.t()
        out = {}
        for way, s in (("i2t", sims), ("t2i", sims.t())):
            rank = (s > s.diagonal().unsqueeze(1)).sum(dim=1)
            for k in ks:
                out[f"{way}_R@{k}"] = (rank < k).float().mean().item()
            out[f"{way}_median_rank"] = rank.median().item() + 1
        return out
"""
SEVERAL_PARTNERS = """
    def retrieval_metrics(image_features, text_features, per_image=2):
        sims = image_features @ text_features.t()
        own = torch.arange(len(sims)) // per_image
        return {f"R@{k}": (sims.topk(k).indices == own[:, None]).any(1).float().mean() for k in (1, 5)}
"""
RESIZED = """
    def resize_pos_embed(pos_embed, new_grid):
        cls, patches = pos_embed[:, :1], pos_embed[:, 1:]
        side = math.isqrt(patches.shape[1])
        image = patches.reshape(1, side, side, -1).permute(0, 3, 1, 2)
        image = F.interpolate(image, size=(new_grid, new_grid), mode="bicubic", align_corners=False)
        return torch.cat([cls, image.flatten(2).transpose(1, 2)], dim=1)
"""
CONTRAST, NDCG = "contrastive-losses-prefer-the-own-partner", "ndcg-discounts-by-the-rank"
MIXED, PLACES = "mixed-samples-have-mixed-labels", "resized-positions-keep-their-features"
RETRIEVAL = "retrieval-counts-the-own-partner"
CTC, HISTORY = "paths-of-ctc-merge-repeats-and-drop-blanks", "histories-keep-the-last-items"
ACCURACY = "accuracy-is-the-share-of-right-answers"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "right", "wrong", "claim"),
    [
        (FORBIDDING, "text[at + n - 1]] =", "text[at]] =", "forbidden-words-would-repeat-an-n-gram"),
        (SLOPED, "abs()", "abs() / 2", "slopes-of-alibi-are-powers-of-one-number"),
        (TIME_FIRST, "path[:n, b]", "path[:, b]", CTC),
        (TIME_FIRST, "torch.unique_consecutive(path[:n, b])", "path[:n, b]", CTC),
        (RIGHT_ALIGNED, "row[-len(items):]", "row[:len(items)]", HISTORY),
        (WITHOUT_PADDING, "max(1, real.sum().item())", "gold.numel()", ACCURACY),
        (WITHOUT_PADDING, "& real).sum() / real.sum()", ").float().mean()", ACCURACY),
        (BOTH_SIDES, "logits.t(), own", "logits, own", CONTRAST),
        (BOTH_SIDES.replace(" / 2", ""), "logits.t(), own", "logits, own", CONTRAST),
        (ONE_MATRIX, "similarity.t(), own", "similarity, own", CONTRAST),
        (BOTH_SIDES, "F.cross_entropy(logits, own)", "F.cross_entropy(logits.softmax(-1), own)", CONTRAST),
        (ONE_MATRIX, "F.cross_entropy(similarity, own)", "F.cross_entropy(similarity.softmax(-1), own)", CONTRAST),
        (RANKS, "torch.log2(", "torch.log(", NDCG),
        (FROM_ONE, "math.log2(", "math.log(", NDCG),
        (BY_CHANCE, "share = 1 - wide /", "share = wide /", MIXED),
        (RESIZED, "image.flatten(2).transpose(1, 2)", "image.reshape(1, new_grid**2, -1)", PLACES),
        (OF_CHANCES, "share * targets + (1 - share)", "(1 - share) * targets + share", MIXED),
        (BOTH_WAYS, "s.diagonal().unsqueeze(1)", "s.diagonal()", RETRIEVAL),
        (BOTH_WAYS, "sims.t())):", "sims)):", RETRIEVAL),
        (RESIZED, "image.flatten(2).transpose(1, 2)", "image.transpose(2, 3).flatten(2).transpose(1, 2)", PLACES),
    ],
)
def test_another_form_is_right_and_its_mistake_is_found(functions, text, right, wrong, claim):
    assert right in text
    found = examine(functions(text))
    assert claim in found.tested
    assert found.wrong == []
    assert [one.claim for one in examine(functions(text.replace(right, wrong))).wrong] == [claim]


OF_SCORES = """
    def recall_metrics(scores, labels, ks=(1, 3)):
        return {f"R@{k}": (scores.topk(k).indices == labels[:, None]).any(-1).float().mean() for k in ks}
"""
MIXED_LATER = """
    def mixup(x, y, alpha=0.8):
        order, y = torch.randperm(len(x)), y.float()
        share = torch.distributions.Beta(alpha, alpha).sample().item()
        return share * x + (1 - share) * x[order], y, y[order], share
"""


@pytest.mark.parametrize("text", [SEVERAL_PARTNERS, OF_SCORES, MIXED_LATER])
def test_forms_that_are_not_known_are_left_alone(functions, text):
    found = examine(functions(text))
    assert not found.tested
    assert not found.wrong


def test_a_loss_that_shares_its_rest_out_among_other_words_is_not_asked_with_two(functions):
    (smoothed,) = functions("""
        def smoothed_cross_entropy(logits, target, eps=0.1):
            logp = logits.log_softmax(-1)
            truth = torch.full_like(logp, eps / (logits.shape[-1] - 2))
            truth.scatter_(1, target[:, None], 1.0 - eps)
            return -(truth * logp).sum(-1).mean()
    """)
    compute = resolve(smoothed)[0].make(
        {"label_smoothing": 0.1, "smoothing_over": "others", "ignore_index": None, "reduction": "mean"}
    )
    labels = torch.zeros(4, dtype=torch.long)
    assert compute(False, logits=torch.zeros(4, 5), targets=labels)
    with pytest.raises(NotProvided, match="of two it has none"):
        compute(False, logits=torch.zeros(4, 2), targets=labels)


def test_a_function_that_only_pads_leaves_it_to_its_callers_to_cut(functions):
    text = """
        def pad_left(row, length):
            return [0] * (length - len(row)) + row
    """
    found = examine(functions(text))
    assert HISTORY in found.tested
    assert found.wrong == []
    assert examine(functions(text.replace("[0] * (length - len(row)) + row", "row + [0] * (length - len(row))"))).wrong
    (cuts,) = examine(functions(text.replace("pad_left", "pad_or_truncate"))).wrong
    assert "10 items where 6" in cuts.trouble.sentence


def test_a_loss_of_probabilities_gets_probabilities(functions):
    (loss,) = functions("""
        def nll(probs, target):
            gold = probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            real = (target != 0).float()
            return (-(gold + 1e-12).log() * real).sum() / real.sum()
    """)
    (served,) = resolve(loss)
    assert served.fits
    assert served.facts[0].value.endswith("probabilities")
    compute = served.make({"label_smoothing": 0.0, "smoothing_over": "all", "ignore_index": 0, "reduction": "mean"})
    logits, labels = torch.randn(4, 5), torch.tensor([1, 0, 3, 4])
    wanted = torch.nn.functional.cross_entropy(logits, labels, ignore_index=0)
    assert torch.allclose(compute(False, logits=logits, targets=labels)["out"], wanted, atol=1e-5)


@pytest.mark.slow
def test_a_cosine_that_goes_on_after_its_last_step_is_a_note(functions):
    text = """
        def cosine_warmup(step, warmup, total):
            if step < warmup:
                return step / max(1, warmup)
            p = (step - warmup) / max(1, total - warmup)
            return 0.5 * (1 + math.cos(math.pi * p))
    """
    (goes_on,) = examine(functions(text)).wrong
    assert (goes_on.trouble.sentence, goes_on.trouble.certain) == (
        "cosine_warmup rises again after its last step.",
        False,
    )
    (short,) = examine(functions(text.replace("math.pi * p", "0.7 * math.pi * p"))).wrong
    assert short.trouble.certain
    assert "at its last step" in short.trouble.sentence


CONSTANTS = """
        warmup_iters, max_iters, lr_decay_iters = 200, 5000, 5000
        learning_rate, min_lr = 6e-4, 6e-5

        def get_lr(it):
            if it < warmup_iters:
                return learning_rate * (it + 1) / (warmup_iters + 1)
            if it > lr_decay_iters:
                return min_lr
            ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
            return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)
    """


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (("", ""), ""),
        (("(it - warmup_iters) / (lr_decay_iters - warmup_iters)", "it / lr_decay_iters"), "does not rise to 1"),
        (("(it + 1) / (warmup_iters + 1)", "it / max_iters"), "and then jumps to 1"),
        (("return min_lr + 0.5 *", "return 0.5 *"), "does not rise to 1"),
        (("math.pi * ratio", "math.pi * ratio**2"), "half-way down a cosine"),
    ],
)
def test_settings_of_a_schedule_may_be_constants_of_its_file(functions, mistake, says):
    found = examine(functions(CONSTANTS.replace(*mistake)))
    assert list(found.tested) == ["schedules-rise-in-warm-up-and-then-fall"]
    assert [says in one.trouble.sentence for one in found.wrong] == [True] * bool(says)


INVERSE = """
        def inverse_sqrt_lr(step, peak, warmup_steps):
            return peak * min(step / warmup_steps, (warmup_steps / step) ** 0.5)
    """


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (("", ""), ""),
        (("warmup_steps / step", "1 / step"), "does not rise to"),
        (("(warmup_steps / step)", "(step / warmup_steps)"), "does not rise to"),
        (("peak * min", "peak * max"), "does not rise to"),
    ],
)
def test_a_rate_without_a_last_step_rises_in_its_warm_up(functions, mistake, says):
    found = examine(functions(INVERSE.replace(*mistake)))
    assert list(found.tested) == ["schedules-rise-in-warm-up-and-then-fall"]
    assert [says in one.trouble.sentence for one in found.wrong] == [True] * bool(says)


def test_a_schedule_for_an_optimizer_is_told_where_it_ends(functions):
    text = """
        def build_scheduler(optimizer, *, warmup_steps, total_steps, minimum_ratio):
            def multiplier(step):
                if step < warmup_steps:
                    return (step + 1) / warmup_steps
                progress = min((step - warmup_steps) / max(total_steps - warmup_steps - 1, 1), 1.0)
                cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
                return minimum_ratio + (1.0 - minimum_ratio) * cosine
            return torch.optim.lr_scheduler.LambdaLR(optimizer, multiplier)
    """
    right = examine(functions(text))
    assert (list(right.tested), right.wrong) == (["schedules-rise-in-warm-up-and-then-fall"], [])
    (wrong,) = examine(functions(text.replace("0.5 * (1.0", "(1.0"))).wrong
    assert "does not rise to 1" in wrong.trouble.sentence


@pytest.mark.parametrize(
    ("warm_up", "fall", "jumps"),
    [
        ("step / max(1, warmup)", "(total - step) / max(1, total - warmup)", False),
        ("(step + 1) / max(1, warmup)", "(total - step) / max(1, total - warmup)", False),
        ("step / max(1, warmup)", "(total - step) / max(1, total)", True),
        ("(step + 1) / max(1, warmup)", "(total - step) / max(1, total)", True),
    ],
)
def test_a_fall_begins_where_the_warm_up_ends(functions, warm_up, fall, jumps):
    text = f"""
        def warmup_then_down(step, warmup, total):
            if step < warmup:
                return {warm_up}
            return max(0.0, {fall})
    """
    found = examine(functions(text))
    assert list(found.tested) == ["schedules-rise-in-warm-up-and-then-fall"]
    assert [one.trouble.sentence.endswith("it jumps.") for one in found.wrong] == [True] * jumps


def test_accuracy_leaves_out_what_a_constant_of_the_file_names(functions):
    text = """
        IGNORE = -100

        def mlm_accuracy(logits, labels):
            keep = labels != IGNORE
            hits = (logits.argmax(-1) == labels) & keep
            return hits.sum().float() / keep.sum().clamp(min=1)
    """
    assert examine(functions(text)).wrong == []
    (wrong,) = examine(functions(text.replace("keep.sum().clamp(min=1)", "labels.numel()"))).wrong
    assert "counts labels that are left out" in wrong.trouble.sentence


MASKING_TOLD_OF_PADDING = """
def mask_tokens(input_ids, attention_mask, mask_token_id, vocab_size, special_ids=(), mlm_probability=0.15):
    \"\"\"80% become [MASK], 10% a random token, 10% stay.\"\"\"
    def coin(probability):
        return torch.rand(input_ids.shape) < probability

    candidates = attention_mask.bool()
    for special_id in special_ids:
        candidates = candidates & (input_ids != special_id)
    chosen = coin(mlm_probability) & candidates
    labels = input_ids.masked_fill(~chosen, -100)
    corrupted = input_ids.clone()
    replaced = chosen & coin(0.8)
    corrupted[replaced] = mask_token_id
    randomized = chosen & ~replaced & coin(0.5)
    corrupted[randomized] = torch.randint(vocab_size, input_ids.shape)[randomized]
    return corrupted, labels
"""


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("", "", ""),
        pytest.param(
            "masked_fill(~chosen", "masked_fill(~candidates", "teaches 89% of the words", marks=pytest.mark.slow
        ),
        pytest.param(
            "chosen & ~replaced & coin", "chosen & coin", "of the selected words the mask", marks=pytest.mark.slow
        ),
        ("coin(mlm_probability) & candidates", "coin(mlm_probability)", "that the attention mask hides: padding"),
    ],
)
def test_a_function_that_masks_words_may_be_told_of_padding(functions, right, wrong, said):
    found = examine(functions(MASKING_TOLD_OF_PADDING.replace(right, wrong) if right else MASKING_TOLD_OF_PADDING))
    assert list(found.tested) == ["masked-words-are-what-is-taught"]
    assert [said in str(one.trouble) for one in found.wrong] == [True] * bool(said)


EXAMPLES = """
    from typing import NamedTuple

    IGNORE = -100

    class Example(NamedTuple):
        input_ids: list
        labels: list

    def make_example(question_ids, answer_ids, eos_id=2):
        ids = question_ids + answer_ids + [eos_id]
        return Example(ids, [IGNORE] * len(question_ids) + ids[len(question_ids):])

    def collate(examples, pad_id=0):
        longest = max(len(e.input_ids) for e in examples)
        labels = [e.labels + [IGNORE] * (longest - len(e.labels)) for e in examples]
        ids = [e.input_ids + [pad_id] * (longest - len(e.input_ids)) for e in examples]
        mask = [[1] * len(e.input_ids) + [0] * (longest - len(e.input_ids)) for e in examples]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels), "attention_mask": torch.tensor(mask)}

    def lm_loss(logits, labels):
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)

    def get_entities(labels):
        found, start = set(), None
        for at, tag in enumerate(labels):
            if start is not None and not tag.startswith("I-"):
                found.add((start, at - 1, labels[start][2:]))
                start = None
            if tag.startswith("B-"):
                start = at
        if start is not None:
            found.add((start, len(labels) - 1, labels[start][2:]))
        return found
"""


@pytest.mark.parametrize(
    ("right", "wrong", "claim"),
    [
        ("[IGNORE] * len(question_ids) + ids[len(question_ids):]", "ids", ""),  # all of the text is taught
        ("ids[len(question_ids):]", "answer_ids + [IGNORE]", "labels-of-examples-are-the-answer"),
        ("[IGNORE] * (longest", "[pad_id] * (longest", "labels-are-padded-with-what-the-loss-ignores"),
        ("if start is not None:", "if False:", "spans-of-tags-are-all-found"),
    ],
)
def test_examples_batches_and_spans_of_other_forms(functions, right, wrong, claim):
    assert examine(functions(EXAMPLES)).wrong == []
    assert right in EXAMPLES
    assert [one.claim for one in examine(functions(EXAMPLES.replace(right, wrong))).wrong] == ([claim] if claim else [])


TWO_TEXTS = """
    def make_example(source, target, bos_id=1, eos_id=2):
        return {"input_ids": source, "decoder_input_ids": [bos_id] + target, "labels": target + [eos_id]}

    def build_pair(prompt, answer, eos_id=2):
        ids = prompt + answer + [eos_id]
        labels = [-100] * len(prompt) + ids[len(prompt):]
        return ids[:-1], labels[1:]
"""


def test_two_texts_and_labels_one_place_ahead_are_right_examples(functions):
    assert examine(functions(TWO_TEXTS)).wrong == []
    late = TWO_TEXTS.replace(
        "[-100] * len(prompt) + ids[len(prompt):]", "[-100] * (len(prompt) + 1) + ids[len(prompt) + 1:]"
    )
    [found] = examine(functions(late)).wrong
    assert found.claim == "labels-of-examples-are-the-answer"


LEFT_PADDED = """
    def collate(pairs, pad=0):
        rows = [[1] + list(p) + list(a) + [2] for p, a in pairs]
        width = max(map(len, rows))
        tokens, labels = torch.full((len(rows), width), pad), torch.full((len(rows), width), -100)
        for i, (row, (prompt, _)) in enumerate(zip(rows, pairs)):
            left = width - len(row)
            tokens[i, left:] = torch.tensor(row)
            labels[i, left:] = tokens[i, left:]
            labels[i, : left + 1 + len(prompt)] = -100
        return tokens, labels
"""


def test_padding_in_front_of_a_prompt_is_counted_with_it(functions):
    assert examine(functions(LEFT_PADDED)).wrong == []
    [found] = examine(functions(LEFT_PADDED.replace("left + 1 + len", "1 + len"))).wrong
    assert found.claim == "labels-of-examples-are-the-answer"
    assert examine(functions(LEFT_PADDED.replace(": left + 1 + len(prompt)", ":left"))).wrong == []  # it teaches both


CUT_TARGETS = """
    EOS = 2

    def make_batch(articles, headlines, max_src=40, max_tgt=24):
        src = [list(a)[:max_src] for a in articles]
        tgt = [list(h)[: max_tgt - 1] + [EOS] for h in headlines]
        pad = lambda rows: torch.tensor([r + [0] * (max(map(len, rows)) - len(r)) for r in rows])
        return pad(src), pad(tgt)
"""


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("list(h)[: max_tgt - 1] + [EOS]", False),
        ("(list(h) + [EOS])[:max_tgt]", True),
        ("list(h)[:max_tgt]", False),  # no target has an end sign
        ("list(h) + [EOS]", False),  # none is cut
    ],
)
def test_a_target_that_is_cut_keeps_its_end(functions, made, is_told):
    assert CUT_TARGETS.count("list(h)[: max_tgt - 1] + [EOS]") == 1
    found = examine(functions(CUT_TARGETS.replace("list(h)[: max_tgt - 1] + [EOS]", made))).wrong
    assert [one.claim for one in found] == ["targets-of-a-batch-have-their-end"] * is_told


OF_ONE_ROW = """
    def masked_softmax(scores, mask):
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=1)
"""


def test_a_masked_softmax_of_one_row_of_keys_is_right(functions):
    found = examine(functions(OF_ONE_ROW))
    assert "a-masked-softmax-gives-hidden-scores-nothing" in found.tested
    assert found.wrong == []


SEEN = """
    def masked_softmax(X, valid_lens):
        if valid_lens is None:
            return X.softmax(-1)
        if valid_lens.dim() == 1:
            valid_lens = valid_lens.repeat_interleave(X.shape[1])
        flat = X.reshape(-1, X.shape[-1])
        hidden = torch.arange(X.shape[-1])[None] >= valid_lens.reshape(-1)[:, None]
        flat = flat.masked_fill(hidden, -1e6)
        return flat.reshape(X.shape).softmax(-1)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (">=", ">", "is not the softmax of the scores"),
        ("return flat.reshape(X.shape).softmax(-1)", "out = flat.softmax(-1)\n        out[hidden] = 0\n"
        "        return out.reshape(X.shape)", "cannot be trained through"),
    ],
)  # fmt: skip
def test_a_masked_softmax_sees_what_it_shall_and_can_be_trained_through(functions, right, wrong, says):
    assert examine(functions(SEEN)).wrong == []
    [found] = examine(functions(SEEN.replace(right, wrong))).wrong
    assert says in found.trouble.sentence


ONE_SIDE = """
    def clip_loss(image_features, text_features, temperature=0.07):
        \"\"\"The symmetric loss of CLIP.\"\"\"
        a, b = F.normalize(image_features, dim=-1), F.normalize(text_features, dim=-1)
        return F.cross_entropy(a @ b.t() / temperature, torch.arange(len(a)))
"""


@pytest.mark.parametrize(("says", "is_told"), [("symmetric", True), ("one-sided", False)])
def test_a_loss_of_one_side_that_says_it_has_both_is_told(functions, says, is_told):
    assert bool(examine(functions(ONE_SIDE.replace("symmetric", says))).wrong) is is_told


MIXED = """
    import numpy as np

    def mixup(images, labels, alpha=0.4):
        lam = np.random.beta(alpha, alpha)
        order = torch.randperm(len(images))
        return lam * images + (1.0 - lam) * images[order], labels, labels[order], lam

    def mixup_loss(logits, labels_a, labels_b, lam, smoothing=0.1):
        loss_a = F.cross_entropy(logits, labels_a, label_smoothing=smoothing)
        loss_b = F.cross_entropy(logits, labels_b, label_smoothing=smoothing)
        return lam * loss_a + (1.0 - lam) * loss_b

    def mixup_criterion(criterion, pred, y_a, y_b, lam):
        return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)
"""
EXCHANGED = {"return lam * images + (1.0 - lam) * images[order]": "return (1.0 - lam) * images + lam * images[order]"}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"return lam * loss_a + (1.0 - lam) * loss_b": "return (1.0 - lam) * loss_a + lam * loss_b"}, ["mixup_loss"]),
        ({"return lam * criterion": "return (1 - lam) * criterion", "+ (1 - lam)": "+ lam"}, ["mixup_criterion"]),
        (EXCHANGED, ["mixup", "mixup_loss", "mixup_criterion"]),  # of the first one it is a note
    ],
)
def test_a_loss_of_mixed_samples_weighs_labels_as_what_mixes_them(functions, changes, wrong):
    text = MIXED
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    found = [one for one in examine(functions(text)).wrong if one.claim == "mixed-samples-have-mixed-labels"]
    assert sorted(one.function for one in found) == sorted(wrong)

"""Helpers that are losses: masked errors, quantiles, soft labels, pairs of scores, triplets, focal losses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, near, noise, shown, tensor

_PREDICTED = r"pred(s|icted|ictions?)?|y_?(hat|pred)|out(puts?)?|forecasts?|x|recon|preds?_?actions?|action_preds|input"
_TARGET = r"targets?|labels?|y(_true)?|truth|actions?|future|actual|gold|t|true"


@helper(
    "masked-errors-are-means-over-what-is-real",
    r"loss|mse|mae|l1|l2|error",
    {
        "mask": r"(attention_|valid_|pad_?|padding_)?mask|valid|keep|weights?",
        "target": _TARGET,
        "predicted": _PREDICTED,
    },
    ("predicted", "target", "mask"),
)
def masked_error(loss: Called) -> Iterator[Trouble]:
    """Numbers in masked places change nothing, and more of them change nothing."""
    if re.search(r"cross_entropy|nll|log_softmax|softplus|logsigmoid|ctc", loss.source):
        raise OtherKind("it is a loss of classes")
    name = loss.arguments.parameter_of["mask"].lower()
    if "weight" in name or not re.search(r"mask|valid|keep|pad", name):
        raise OtherKind("it weighs its rows, or masks nothing")
    real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    given = 1 - real if "pad" in name else real
    predicted, target = noise(2, 5, 3), noise(2, 5, 3, seed=1)
    for form in (
        given,
        given.float(),
        given.bool(),
        given[..., None].float(),
        given[..., None].expand(2, 5, 3).float(),
    ):
        with suppress(Exception):
            value = tensor(loss(predicted=predicted, target=target, mask=form))
            if value.numel() == 1:
                break
    else:
        raise OtherKind("it gives no loss")
    hidden = (real == 0)[..., None]
    moved = tensor(loss(predicted=torch.where(hidden, predicted + 3, predicted), target=target, mask=form))
    if not near(moved, value):
        yield Trouble(
            f"{loss.name} counts what is masked: other numbers there give another loss.", shown(value), shown(moved)
        )
        return
    longer = [torch.cat([part, part[:, -1:]], 1) for part in (predicted, target, form)]
    more = tensor(loss(predicted=longer[0], target=longer[1], mask=longer[2]))
    is_sum = near(
        tensor(
            loss(
                predicted=predicted.repeat(2, 1, 1),
                target=target.repeat(2, 1, 1),
                mask=form.repeat(2, *[1] * (form.dim() - 1)),
            )
        ),
        2 * value,
    )
    if not near(more, value) and not is_sum:
        yield Trouble(
            f"{loss.name} is no mean over what is real: one masked place more gives another loss.",
            shown(value),
            shown(more),
        )


@helper(
    "quantile-losses-are-lowest-at-the-quantile",
    r"quantile|pinball",
    {
        "levels": r"quantiles?|qs?|tau|taus|levels?|alpha",
        "real": r"(\w+_)?(ok|mask|valid|observed|known|keep)",
        "predicted": _PREDICTED,
        "target": _TARGET,
    },
    ("predicted", "target"),
)
def pinball(loss: Called) -> Iterator[Trouble]:
    """An error above costs 1 - q, one below q, a unit."""
    if not loss.has("levels"):
        raise OtherKind("its levels are its own")
    target = torch.zeros(4)
    real = {"real": torch.ones(4, dtype=torch.bool)} if loss.has("real") else {}
    for levels, wide in (([0.9], True), (0.9, False), (torch.tensor([0.9]), True)):
        values = []
        with suppress(Exception):
            for predicted in (torch.full((4,), -1.0), torch.full((4,), 1.0)):
                shaped = predicted[:, None] if wide else predicted
                values.append(float(tensor(loss(predicted=shaped, target=target, levels=levels, **real)).mean()))
        if len(values) == 2:
            break
    else:
        raise OtherKind("it gives no loss")
    below, above = values
    if abs(below - 0.9) > 1e-4 or abs(above - 0.1) > 1e-4:
        if abs(below - 9 * above) < 1e-4 and above > 0:
            return  # summed or scaled in another way
        yield Trouble(
            (
                f"{loss.name}: at the level 0.9 a forecast that is 1 too "
                f"low costs {below:.4g}, one that is 1 too high {above:.4g}."
            ),
            "0.9 and 0.1",
            f"{below:.4g} and {above:.4g}",
        )
    elif re.search(r"isnan|isfinite|nan_to_num", loss.source):
        missing = torch.tensor([0.0, float("nan"), 0.0, float("nan")])
        given = torch.ones(4, 1) if wide else torch.ones(4)
        given[1::2] = 7.0
        got = tensor(loss(predicted=given, target=missing, levels=levels, **real)).mean()
        if abs(float(got) - above) > 1e-4:
            yield Trouble(
                f"{loss.name} counts targets that are missing: they pull what is forecast.",
                f"{above:.4g}, as without them",
                f"{float(got):.4g}",
                at=(r"return .*\.mean\(", r"\.sum\("),
                mend="(loss * known).sum() / known.sum()",
            )


@helper(
    "soft-labels-are-weighed-by-their-share",
    r"soft_?(target_?)?(cross_?entropy|ce|loss|label)|cross_?entropy_(with_)?soft|mixup_(loss|criterion)",
    {
        "smoothing": r"(label_?)?smooth(ing)?|eps(ilon)?",
        "target": _TARGET + r"|soft(_targets?)?|probs?|p",
        "logits": r"logits?|pred(s|ictions?)?|x|out(puts?)?|input",
    },
    ("logits", "target"),
)
def soft_labels(loss: Called) -> Iterator[Trouble]:
    """The mean over the rows of - sum of target times log-probability; smoothed labels sum to one, too."""
    logits = noise(4, 5)
    target = noise(4, 5, seed=2).softmax(-1)
    made = tensor(loss(logits=logits, target=target))
    if made.numel() not in (1, 4):
        raise OtherKind("it gives no loss")
    binary = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    if any(near(made, one) for one in (binary.mean(), binary.sum(), binary.sum(-1).mean(), binary.mean(-1))):
        raise OtherKind("it is a binary cross-entropy")
    rows = -(target * logits.log_softmax(-1)).sum(-1)
    wanted = [rows] if made.numel() == 4 else [rows.mean(), rows.sum()]
    if not any(near(made.reshape(one.shape), one) for one in wanted):
        yield Trouble(
            f"{loss.name} is not the cross-entropy with the soft labels, as a mean over the rows.",
            shown(wanted[0]),
            shown(made),
        )
    elif loss.has("smoothing"):
        smoothed = tensor(loss(logits=torch.zeros_like(logits), target=target, smoothing=0.2)).reshape(-1)
        is_sum = made.numel() == 1 and near(made.reshape(()), rows.sum())
        share = float(smoothed[0]) / math.log(5) / (4 if is_sum else 1)
        if abs(share - 1) > 1e-4:
            yield Trouble(
                f"{loss.name}: labels that are smoothed by 0.2 sum to {share:.3g}.",
                "1",
                f"{share:.3g}",
                at=(r"smooth\w*\b.*\+|\+.*smooth", r"eps"),
                mend="divide the share by the number of classes: target * (1 - eps) + eps / n",
            )


@helper(
    "losses-of-pairs-prefer-the-true-one",
    r"bce|bpr|pairwise|rank(ing|net|_loss)|margin|sampled|negative|hinge|triplet",
    {
        "margin": r"margin|m|delta",
        "true": r"pos(itive)?(_?(logits?|scores?|pred(s|ictions)?))?|pos_?sim|true_(logits|scores)",
        "false": r"neg(ative)?s?(_?(logits?|scores?|pred(s|ictions)?))?|neg_?sim|false_(logits|scores)",
        "items": r"pos(_?(seq|items?|ids|labels?))?|targets?|labels?|items?|seq",
        "mask": r"mask|valid|keep|istarget",
    },
    ("true", "false"),
)
def true_and_false(loss: Called) -> Iterator[Trouble]:
    """A higher score of the true one lowers the loss, a higher one of the false raises it; padding has no gradient."""
    called = {meaning: loss.arguments.parameter_of[meaning].lower() for meaning in ("true", "false")}
    if not re.search("pos|true", called["true"]) and not re.search("neg|false", called["false"]):
        raise OtherKind("its parameters speak of no true and no false items")
    items = torch.tensor([[3, 4, 0], [5, 6, 7]])
    real = items != 0
    true, false = noise(2, 3).requires_grad_(), noise(2, 3, seed=1).requires_grad_()
    made = loss.arguments.call(loss.function, true=true, false=false, items=items, mask=real, margin=10.0)
    if not isinstance(made, Tensor) or made.numel() != 1:
        raise OtherKind("it gives no loss")
    of_true, of_false = torch.autograd.grad(made, (true, false), allow_unused=True)
    of_true = torch.zeros_like(true) if of_true is None else of_true
    of_false = torch.zeros_like(false) if of_false is None else of_false
    judges_padding = loss.has("items") or loss.has("mask")
    if bool((of_true[real] > 1e-7).any()) or not bool((of_true[real] < -1e-7).any()):
        yield Trouble(
            f"{loss.name}: a higher score of the true item does not lower the loss.",
            "a negative slope",
            shown(of_true[real]),
        )
    elif bool((of_false[real] < -1e-7).any()) or not bool((of_false[real] > 1e-7).any()):
        yield Trouble(
            f"{loss.name}: a higher score of the false item does not raise the loss.",
            "a positive slope",
            shown(of_false[real]),
        )
    elif judges_padding and (of_true[~real].any() or of_false[~real].any()):
        yield Trouble(f"{loss.name} teaches padding.", 0, shown(of_true[~real]))


@helper(
    "triplets-draw-the-positive-near",
    r"triplet",
    {
        "margin": r"margin|m|alpha",
        "anchor": r"a(nchors?)?(_?(emb(eddings?)?|vec(tors?)?|out(put)?))?|quer(y|ies)|q",
        "positive": r"p(os(itives?)?)?(_?(emb(eddings?)?|vec(tors?)?|out(put)?))?",
        "negative": r"n(eg(atives?)?)?(_?(emb(eddings?)?|vec(tors?)?|out(put)?))?",
    },
    ("anchor", "positive", "negative"),
)
def triplets(loss: Called) -> Iterator[Trouble]:
    """A positive beside the anchor and a negative opposite to it cost less than the other way round."""
    anchor = F.normalize(noise(4, 8), dim=-1)
    near, far = (F.normalize(side * anchor + 0.05 * noise(4, 8, seed=1), dim=-1) for side in (1, -1))
    values = []
    for positive, negative in ((near, far), (far, near)):
        made = tensor(loss(anchor=anchor, positive=positive, negative=negative, margin=0.3))
        if made.numel() not in (1, 4) or not made.isfinite().all():
            raise OtherKind("it gives no loss of vectors")
        values.append(float(made.mean()))
    right, wrong = values
    if right >= wrong:
        yield Trouble(
            f"{loss.name}: a positive beside its anchor and a negative opposite to it cost {right:.4g}, the other way "
            f"round {wrong:.4g}.",
            f"less than {wrong:.4g}",
            f"{right:.4g}",
        )


@helper(
    "focal-losses-weigh-what-is-known-less",
    r"focal",
    {
        "gamma": r"gamma|focus(ing)?",
        "alpha": r"alpha",
        "target": _TARGET,
        "logits": r"logits?|input|x|pred(s|ictions?)?|outputs?",
    },
    ("logits", "target"),
)
def focal(loss: Called) -> Iterator[Trouble]:
    """The loss falls faster than the cross-entropy as an answer gets surer: its share of that is smaller."""
    classes, labels = torch.tensor([[0.5, 0.0, 0.0], [3.0, 0.0, 0.0]]), torch.zeros(2, dtype=torch.long)
    scores, ones = torch.tensor([0.5, 3.0]), torch.ones(2)
    of_classes, of_one = F.cross_entropy(classes, labels, reduction="none"), F.softplus(-scores)
    for logits, target, plain in ((classes, labels, of_classes), (scores, ones, of_one)):
        with suppress(Exception):
            made = [tensor(loss(logits=logits[n : n + 1], target=target[n : n + 1], gamma=2.0)) for n in range(2)]
            if all(one.numel() == 1 and one.isfinite().all() and float(one) > 0 for one in made):
                unsure, sure = (float(one) / float(usual) for one, usual in zip(made, plain, strict=True))
                break
    else:
        raise OtherKind("it gives no loss of logits")
    if not re.search(r"\*\*|\.pow\(|torch\.pow", loss.source):
        raise OtherKind("it raises nothing to a power")
    if sure > 1.001 * unsure:  # with an exponent of 0 they are alike
        yield Trouble(
            f"{loss.name}: of the cross-entropy a sure answer costs {sure:.4g}, an unsure one {unsure:.4g}.",
            f"less than {unsure:.4g}",
            f"{sure:.4g}",
        )

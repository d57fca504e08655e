"""Helpers that cut texts: batches with their labels, rows of a long text, shifted labels, numbers of positions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD
from conformance.adapters.helpers.collating import FORMS
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, parts, shown, tensor

_TEXT = r"data|source|src|text|tokens?|ids|corpus|stream|x|seq(uence)?"
_LENGTH = r"block_?(size|len(gth)?)|bptt|(seq|context|ctx)_?(len(gth)?|size)?|context_length|length|t|max_?len|n_ctx"
_BATCH = r"b|bs|bsz|n_?batch|batch|(batch_?|n_)(size|rows)"


@helper(
    "batches-of-text-are-labelled-with-the-next-word",
    r"(get|make|next|sample|random|draw)_?(text_?)?batch|^batch$|get_(chunk|window|example|pair)|make_(pairs?|examples?)",
    {"at": r"i|start|offset|pos(ition)?|idx|step|at", "length": _LENGTH, "batch": _BATCH, "text": _TEXT,
     "generator": r"generator|gen|g|rng"},
    ("text",),
)  # fmt: skip
def next_words(batch: Called) -> Iterator[Trouble]:
    """On the text 0, 1, 2, ... each label is the input plus one."""
    flat = torch.arange(120)
    for text in (flat, flat.reshape(4, 30), flat.reshape(4, 30).t().contiguous()):
        with suppress(Exception):
            made = batch(text=text, length=6, batch=4, at=5, generator=None)
            words, labels = _pair(made)
            break
    else:
        raise OtherKind("it gives no inputs and labels")
    if words.numel() != labels.numel():
        raise OtherKind("there is not a label for each input")
    away = labels.reshape(-1) - words.reshape(-1)
    if bool((away == 1).all()):
        return
    if not any(bool((words.diff(dim=axis) == 1).all()) for axis in range(words.dim())):
        raise OtherKind("its inputs are no pieces of the text that it is given: it may read another one")
    unshifted = bool((away == 0).all())
    elsewhere = re.search(r":\s*-1\]|,\s*1\s*:\]|\[1:\]|shift", batch.file.replace(batch.source, ""))
    said = re.search(r"shift|next|further|ahead|follow", batch.says)
    how = "the inputs themselves" if unshifted else f"{shown(away.unique())} places behind the inputs"
    yield Trouble(
        f"{batch.name} labels each word with another one than the next: the labels are {how}.",
        "inputs plus one on the text 0, 1, 2, ...", shown(labels),
        certain=not unshifted or not elsewhere or bool(said),
    )  # fmt: skip


def _pair(made: Any) -> tuple[Tensor, Tensor]:
    found = [
        part for part in parts(made) if isinstance(part, Tensor) and part.numel() > 1 and not part.is_floating_point()
    ]
    if len(found) != 2:
        raise OtherKind("it gives no pair of texts")
    return found[0], found[1]


@helper(
    "rows-of-a-long-text-are-contiguous",
    r"batchify|to_rows|make_rows|fold_text|reshape_text|into_(rows|batches|columns)",
    {"batch": _BATCH, "text": _TEXT},
    ("text", "batch"),
)
def contiguous_rows(rows: Called) -> Iterator[Trouble]:
    """Cut into 4 rows, the text 0, 1, 2, ... goes on by one along the time, in every row."""
    made = tensor(rows(text=torch.arange(103), batch=4))
    if made.dim() != 2 or 4 not in made.shape or min(made.shape) != 4:
        raise OtherKind("it gives no rows of a text")
    time = made if made.shape[0] == 4 else made.t()
    if bool((time.diff(dim=1) == 1).all()) and len(set(time[:, 0].tolist())) == 4:
        return
    yield Trouble(
        f"{rows.name} tears the text apart: along the time its words do not follow each other.",
        "0, 1, 2, 3, ... in the first row", shown(time[0]),
    )  # fmt: skip


@helper(
    "decoder-inputs-are-the-labels-one-place-later",
    r"shift(ed)?_?(tokens?_?)?(to_the_)?right|right_?shift|(make|prepare|build)_(decoder|dec)_inputs?",
    {
        "pad": PAD,
        "start": r"(decoder_?)?(start|bos|go|sos)(_?(token|id|idx|symbol))*(_id)?",
        "ids": r"labels?|ids|input_ids|targets?|tgt|x|tokens?|y",
    },
    ("ids",),
)
def shifted_right(shift: Called) -> Iterator[Trouble]:
    """The start token, and then the labels but for the last."""
    labels = torch.arange(5, 17).reshape(2, 6)
    given: dict[str, Any] = {"pad": 1, "start": 2}
    made = tensor(shift(ids=labels, **given))
    if made.dim() != 2 or len(made) != 2:
        raise OtherKind("it gives no text for each row")
    kept = labels[:, : made.shape[1] - 1].double()
    if made.shape[1] not in (6, 7) or not bool((made[:, 1:] == kept).all()):
        yield Trouble(
            f"{shift.name} does not give the labels one place later.",
            f"a start token, then {shown(kept[0])}", shown(made[0]),
        )  # fmt: skip
    elif shift.has("start") and not bool((made[:, 0] == 2).all()):
        yield Trouble(f"{shift.name} does not begin with the start token.", 2, shown(made[:, 0]))
    elif "-100" in shift.source + shift.says:
        ignored = labels.clone()
        ignored[0, 3:] = -100
        again = tensor(shift(ids=ignored, **given))
        if bool((again == -100).any()):
            yield Trouble(f"{shift.name} leaves -100, which is no token, in the decoder's input.", "padding", -100)


@helper(
    "numbers-of-positions-count-the-real-words",
    r"position_?ids|make_positions|(create|get|build|compute)_positions|positions_from",
    {"pad": PAD, "mask": r"(attention_|attn_)?mask", "ids": r"(input_)?ids|tokens?|x|inputs?|seq"},
    (),
)
def counted_positions(positions: Called) -> Iterator[Trouble]:
    """The real words of a row have consecutive numbers, whatever padding and other rows there are."""
    if not (positions.has("ids") or positions.has("mask")):
        raise OtherKind("it takes no text")
    pad = 1 if positions.has("pad") else positions.number(PAD, 1)
    ids = torch.tensor([[5, 6, 7, 8, pad, pad], [9, 8, 7, 6, 5, 4], [5, 5, pad, pad, pad, pad]])
    real = ids != pad
    made = tensor(positions(ids=ids, mask=real.long(), pad=pad))
    if made.shape != ids.shape:
        raise OtherKind("it gives no number for each word")
    steps = made.diff(dim=1)[real[:, 1:]]
    firsts = made[:, 0]
    if not bool((steps == 1).all()) or len(set(firsts.tolist())) != 1:
        yield Trouble(
            f"{positions.name}: the real words of a row are not counted one by one.",
            "numbers that grow by one, from the same first number in every row", shown(made),
        )  # fmt: skip
    elif positions.has("ids") and re.search(r"cumsum", positions.source) and _has_pad_row(positions, made, real, pad):
        yield Trouble(
            f"{positions.name}: a real word has the number {pad}, which is that of padding.",
            f"real words from {pad + 1} on", shown(made[0]),
        )  # fmt: skip


def _has_pad_row(positions: Called, made: Tensor, real: Tensor, pad: int) -> bool:
    """Whether the row of padding is given to a word, although positions count from behind it."""
    counts_behind = re.search(r"padding_?idx|pad(ding)?_?id", positions.source.lower()) or "pad" in positions.says
    return bool(counts_behind) and "padding_idx" in positions.file and bool((made[real] == pad).any())


PADDED = 10
"""So many of 100 words are padding, for a function that is told."""


@helper(
    "masked-words-are-what-is-taught",
    r"(mask(ed|ing)?|hide|noise)_?(tokens|inputs|words|ids|batch|lm|language|collat)|mlm|corrupt|apply_mask(ing)?$",
    {
        "vocab": r"vocab(_size|_len)?|n_vocab|num_tokens|v",
        "attention": r"(attention|attn)_?masks?",
        "mask_id": r"mask_?(token)?_?(id|idx|index)?|mask_token_id",
        "special": r"special(_tokens?)?_?(ids?|mask)?|specials|never",
        "rate": r"(mlm_?|mask(ing)?_?)?(prob(ability)?|rate|ratio|p)|p",
        "generator": r"generator|rng|g",
        "pad": PAD,
        "ids": r"ids|input_ids|inputs?|tokens?|x|batch|seq(uence)?s?|examples|features|samples|items|texts",
    },
    ("ids",),
)
def masked_words(mask: Called) -> Iterator[Trouble]:
    """Labels stand where a word was selected; special words never are; of the selected 80 % become the mask."""
    constants = {name: value for name, value in mask.settings.items() if type(value) is int}
    own_mask = next(
        (value for name, value in constants.items() if re.fullmatch(r"mask(_(id|idx|token(_id)?))?", name)), None
    )
    if not mask.has("mask_id") and own_mask is None:
        raise OtherKind("nothing shows which word is the mask")
    masked_as = own_mask if own_mask is not None else 3
    special = {
        value
        for name, value in constants.items()
        if re.fullmatch(r"(pad|bos|eos|cls|sep|mask)(_(id|idx|token(_id)?))?", name)
    }
    unknown = {value for name, value in constants.items() if re.fullmatch(r"unk(_(id|idx|token(_id)?))?", name)}
    lists = (v for name, v in mask.settings.items() if name.startswith("special") and isinstance(v, (list, tuple, set)))
    special |= {value for values in lists for value in values if type(value) is int}
    vocab = mask.number(r"(n_)?vocab(_size)?", 1000)
    vocab = 1000 if mask.has("vocab") else vocab
    count = mask.number(r"(n|num)_?special\w*", 0)  # the first words of the vocabulary
    low = max([*special, *unknown, masked_as, count or 4]) + 1
    if vocab - low < 20:
        raise OtherKind("its vocabulary is too small")
    ids = (torch.rand(100, 100, generator=torch.Generator().manual_seed(3)) * (vocab - low)).long() + low
    ids[:, 0] = min(special - {masked_as}, default=ids[0, 0])
    signs = [word for word in range(1, count) if word not in {masked_as, *unknown}][-1:]  # an unknown word is a word
    ids[:, 1 : 1 + len(signs)] = torch.tensor(signs, dtype=ids.dtype)
    attention = torch.ones_like(ids)
    attention[:, -PADDED:] = 0
    given = {
        "vocab": vocab, "mask_id": masked_as, "pad": 0, "rate": 0.3, "generator": torch.Generator().manual_seed(1),
        "attention": attention,
    }  # fmt: skip
    if mask.has("special"):
        handed = {**given, "special": [0, 1, 2, masked_as]}
        with suppress(OtherKind):
            _masked(mask, ids, handed)
            given, special = handed, special | {0}
            ids[:, 0] = 0
    given_to_model, labels = _masked(mask, ids, given)
    taught, changed = labels >= 0, given_to_model != ids
    name = mask.name
    if not 0.02 < taught.double().mean() < 0.6 and not bool((changed & ~taught).any()):
        yield Trouble(
            f"{name} teaches {float(taught.double().mean()):.0%} of the words.",
            "the share that is selected, such as 15 %",
            f"{float(taught.double().mean()):.0%}",
        )
    elif bool((changed & ~taught).any()):
        yield Trouble(
            f"{name} changes words that have no label: labels and masked words are not the same places.",
            "labels where words are masked",
            f"{int((changed & ~taught).sum())} masked words without a label",
        )
    elif not bool((labels[taught] == ids[taught]).all()):
        yield Trouble(
            f"{name}: a label is not the word that stood there.", "the words before masking", shown(labels[taught])
        )
    elif mask.has("attention") and bool(taught[:, -PADDED:].any()):
        yield Trouble(
            f"{name} masks words that the attention mask hides: padding.",
            "padding as it is",
            f"{int(taught[:, -PADDED:].sum())} of {100 * PADDED} hidden words are selected",
        )
    elif special - {masked_as} and bool((taught_specials := taught[:, : 1 + len(signs)]).any()):
        yield Trouble(
            f"{name} masks special words.",
            "special words as they are",
            f"{int(taught_specials.sum())} of {taught_specials.numel()} special words are selected",
        )
    elif (trouble := _around_sentences(mask, ids, constants, given)) is not None:
        yield trouble
    else:
        yield from _shares(mask, ids, given_to_model, taught, masked_as, low, vocab)


def _masked(mask: Called, ids: Tensor, given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The masked words and the labels, of a matrix of words or of a list of texts. Raises OtherKind."""
    for form in (None, *FORMS):
        with suppress(Exception):
            made = parts(mask(ids=ids if form is None else [form(text) for text in ids.tolist()], **given))
            found = [part for part in made if isinstance(part, Tensor) and part.shape == ids.shape]
            labels = next(part for part in found if bool((part < 0).any()))
            return next(part for part in found if part is not labels and len(part.unique()) > 2), labels
    raise OtherKind("it gives no masked text and labels of which some are left out")


def _around_sentences(
    mask: Called, words: Tensor, constants: Mapping[str, int], given: Mapping[str, Any]
) -> Trouble | None:
    """What is wrong where texts begin with the sign of a class and end with that of a sentence."""

    def sign(name: str) -> int | None:
        return next((v for key, v in constants.items() if re.fullmatch(rf"{name}(_(id|idx|token(_id)?))?", key)), None)

    ids = words.clone()
    handed = mask.has("special")  # the caller says which words are special
    named = () if handed else ((0, sign("cls")), (-1, sign("sep")))
    signs = {at: token for at, token in named if token is not None}
    for at, token in signs.items():
        ids[:, at] = token
    _, labels = _masked(mask, ids, given)
    selected = sum(int((labels[:, at] >= 0).sum()) for at in signs)
    if not selected:
        return None
    return Trouble(
        f"{mask.name} masks special words, the signs around sentences: [CLS] or [SEP].",
        "special words as they are",
        f"{selected} of {100 * len(signs)} such signs are selected",
    )


def _shares(
    mask: Called, ids: Tensor, given: Tensor, taught: Tensor, masked_as: int, low: int, vocab: int
) -> Iterator[Trouble]:
    after, before = given[taught], ids[taught]
    to_mask = float((after == masked_as).double().mean())
    redrawn = after[(after != masked_as) & (after != before)]
    others = len(redrawn) / len(after)
    bound = 6 * (0.25 / len(after)) ** 0.5
    as_bert = r"80|0\.8\b|0\.10?\b|bert"
    if to_mask > 0.99 and not re.search(as_bert, mask.source.lower()):
        return
    if abs(to_mask - 0.8) > bound and re.search(as_bert, mask.source.lower()):
        yield Trouble(f"{mask.name} makes {to_mask:.0%} of the selected words the mask.", "80 %", f"{to_mask:.0%}")
    elif abs(others - 0.1) > bound and others + to_mask > 0.5:
        yield Trouble(f"{mask.name} makes {others:.0%} of the selected words random ones.", "10 %", f"{others:.0%}")
    elif len(redrawn) > 40 and float(redrawn.max()) < low + 0.8 * (vocab - low):
        yield Trouble(
            f"{mask.name} draws random words of a part of the vocabulary only.",
            f"words up to {vocab - 1}",
            f"words up to {int(redrawn.max())}",
        )


@helper(
    "relative-buckets-are-those-of-t5",
    r"bucket",
    {
        "bidirectional": r"bidirectional|bidir|two_way|both",
        "buckets": r"(num_|n_)?buckets?|relative_attention_num_buckets",
        "distance": r"max_?(dist(ance)?|exact.*)|relative_attention_max_distance",
        "relative": r"rel(ative)?(_?pos(itions?)?)?|distance|d|n|diff|delta",
    },
    ("relative",),
)
def relative_buckets(bucket: Called) -> Iterator[Trouble]:
    """The buckets of T5, for keys before and behind the query."""
    relative = torch.arange(-200, 201)
    buckets = 32 if bucket.has("buckets") else bucket.number(_BUCKETS, 32)
    furthest = (128,) if bucket.has("distance") else (bucket.number(_DISTANCE, 0),)
    for two_way in (True, False) if bucket.has("bidirectional") else (bucket_is_two_way(bucket),):
        given = {"bidirectional": two_way, "buckets": buckets, "distance": 128}
        made = tensor(bucket(relative=relative, **given))
        if made.shape != relative.shape:
            raise OtherKind("it gives no bucket for each distance")
        if not bucket.has("buckets") and int(made.max()) >= buckets:
            raise OtherKind("it has more buckets than T5")
        said = (two_way,) if bucket.has("bidirectional") else (two_way, not two_way)  # where it is used is not known
        forms = [
            _t5(sign * relative, one, buckets, far)
            for one, sign, far in product(said, (1, -1), furthest if furthest[0] else _FURTHEST)
        ]
        expected = min(forms, key=lambda form: int((made != form).sum()))
        if int((made != expected).sum()) > 6:
            at = int((made != expected).nonzero()[0])
            yield Trouble(
                f"{bucket.name}: a key {int(relative[at])} places from the query is in another bucket than in T5.",
                int(expected[at]), int(made[at]),
            )  # fmt: skip
            return


_BUCKETS = r"(\w*_)?(num_?|n_?)?buckets?"
_DISTANCE = r"(\w*_)?max_?(dist(ance)?|exact\w*)"
_FURTHEST = (32, 64, 100, 128, 200, 256, 512, 1024)
"""From so far on all keys share a bucket, where a function says that nowhere."""


def bucket_is_two_way(bucket: Called) -> bool:
    return not re.search(r"causal|unidirectional|decoder", bucket.says)


def _t5(relative: Tensor, two_way: bool, buckets: int = 32, furthest: int = 128) -> Tensor:
    """Raffel et al. 2020, section 2.1, as their code computes it."""
    found = torch.zeros_like(relative)
    if two_way:
        buckets //= 2
        found, away = (relative > 0).long() * buckets, relative.abs()
    else:
        away = (-relative).clamp(min=0)
    exact = buckets // 2
    growth = torch.log(away.clamp(min=1).float() / exact) / torch.log(torch.tensor(furthest / exact))
    far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
    return (found + torch.where(away < exact, away, far)).double()


@helper(
    "key-heads-are-repeated-in-place",
    r"repeat_?(kv|heads?|keys)|expand_kv|kv_repeat",
    {"times": r"n_?rep(eats?)?|groups?|n|times|n_groups|num_.*|rep", "x": r"x|kv|hidden_states|k|t|keys?|tensor"},
    ("x", "times"),
)
def repeated_heads(repeat: Called) -> Iterator[Trouble]:
    """Head i of the result is head i // n of the input."""
    x = noise(2, 3, 5, 4)
    made = tensor(repeat(x=x, times=2))
    sides = [axis for axis in (1, 2) if made.shape[axis] == 2 * x.shape[axis]]
    if made.dim() != 4 or len(sides) != 1:
        raise OtherKind("it does not repeat heads")
    if not torch.equal(made, x.double().repeat_interleave(2, sides[0])):
        yield Trouble(
            f"{repeat.name} repeats the heads as a whole, so a query head meets the key head of another group.",
            "heads 0, 0, 1, 1, 2, 2", "heads in another order",
        )  # fmt: skip

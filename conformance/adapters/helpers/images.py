"""Helpers of images: patches and back, mixed samples, branches that are dropped."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conformance.adapters.functions.arguments import read
from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, noise, parts, shown, tensor
from conformance.adapters.inference.facts import Unresolved

_IMAGES = r"images?|imgs?|x|pixels|pixel_values|inputs?|batch"
_SIDE = r"(patch_?)?size|p|patch|ps"
_DRAWS = 12
"""How often what mixes samples is asked: one that chooses between two ways takes both, but for once in 2,000 times."""
_PIXELS = 32
_SAMPLES = 5
"""The side of images that are mixed. A box of whole pixels differs from its share by up to two rows of it."""
_OF_THE_FIRST = re.compile(r"(share|weight|part|lam\w*)\W+(of|for)\W+(the\W+)?(first|original)")


@helper(
    "patchify-gives-pieces-of-the-image",
    r"(^|_)patchify|to_patches|(make|extract|split_into|image_to|img_to|get)_?patch(es)?",
    {"side": _SIDE, "images": _IMAGES},
    ("images", "side"),
)
def pieces(patchify: Called) -> Iterator[Trouble]:
    """A patch holds the pixels of one square, and the squares are in the order of reading."""
    blocks = torch.arange(6.0).reshape(2, 3).repeat_interleave(4, 0).repeat_interleave(4, 1)
    images = torch.stack([blocks, blocks + 100])[None].repeat(2, 1, 1, 1)  # (2, 2, 8, 12)
    made = tensor(patchify(images=images, side=4))
    made = made.reshape(2, 6, 32) if made.dim() == 2 and made.shape[0] == 12 else made
    if made.dim() != 3 or made.shape[:2] != (2, 6):
        raise OtherKind("it gives no row for each patch")
    squares = made.remainder(100)
    if not bool((squares == squares[..., :1]).all()):
        yield Trouble(
            f"{patchify.name} mixes pixels of several squares in one patch.",
            "the pixels of one square",
            shown(squares[0, 0].unique()),
        )
    elif not bool((squares[..., 0] == torch.arange(6.0)).all()):
        yield Trouble(
            f"{patchify.name} gives the patches in another order than that of reading.",
            "0, 1, 2, 3, 4, 5",
            shown(squares[0, :, 0]),
            certain=bool(re.search(r"left to right|row.major|top to bottom|raster", patchify.says)),
        )


@helper(
    "patches-are-put-back-where-they-were",
    r"un_?patchify|(from|un|fold|join|merge)_?patches|patches_to_(image|img)",
    {
        "side": _SIDE,
        "channels": r"(n_?|num_?|in_)?(channels?|chans|c)",
        "height": r"h(eight)?|rows",
        "width": r"w(idth)?|cols",
        "patches": r"patches|x|tokens|rows|inputs?",
    },
    ("patches", "side"),
)
def put_together(unpatchify: Called) -> Iterator[Trouble]:
    """What was cut by the function of the same file is the image again."""
    module = sys.modules.get(unpatchify.function.__module__)
    cut = next(
        (
            value
            for name, value in vars(module).items()
            if re.search(r"^(?!un).*patchify|to_patches", name) and callable(value)
        ),
        None,
    )
    if cut is None:
        raise OtherKind("its file has no function that cuts an image")
    square = noise(2, 3, 8, 8)
    images = square if not unpatchify.has("height") else noise(2, 3, 8, 12)
    patches = cut(images.clone(), 4)
    height, width = images.shape[2:]
    for given in ({"height": height, "width": width}, {"height": height // 4, "width": width // 4}):
        with suppress(Exception):
            made = tensor(unpatchify(patches=patches, side=4, channels=3, **given))
            if made.shape == images.shape:
                break
    else:
        raise OtherKind("it gives no image")
    if not torch.allclose(made, images.double(), atol=1e-6):
        yield Trouble(
            f"{unpatchify.name} does not give back the image that {cut.__name__} cut.",
            "the image",
            f"{int((made - images).abs().gt(1e-6).sum())} of {images.numel()} pixels differ",
        )


_MIXES, _SHARE = r"mix_?up|cut_?mix", r"lam(bda)?|lmbda|ratio"
_OF_MIXING = {
    "share": _SHARE,
    "alpha": r"alpha|beta|a",
    "classes": r"(n_?|num_?)(classes|labels)|c",
    "order": r"perm(utation)?|idx|index|indices|order",
    "labels": r"y|labels?|targets?|t",
    "images": _IMAGES,
}


@helper("mixed-samples-have-mixed-labels", _MIXES, _OF_MIXING, ("images", "labels"))
def mixed(mix: Called) -> Iterator[Trouble]:
    """Each sample counts in the labels as much as in the image, however often it is asked: what it does may be a matter
    of chance. Where both labels and one share are given, it may be the share of either: the caller knows."""
    wrong, exchanged = list[tuple[Tensor, Tensor]](), True
    for seed in range(_DRAWS):
        image, labels, other = _shares(mix, seed)
        exchanged = exchanged and other is not None and _agree(image, other)
        if not _agree(image, labels):
            wrong.append((image, labels))
            if not exchanged:
                break
    if not wrong:
        return
    in_image, in_labels = wrong[-1]
    worst = int((in_image - in_labels).abs().amax(1).argmax())
    yield Trouble(
        f"{mix.name}: a sample counts in the labels otherwise than in the image."
        + " The share that it gives is that of its second labels." * exchanged,
        shown(in_image[worst]),
        shown(in_labels[worst]),
        certain=not exchanged or _OF_THE_FIRST.search(mix.says) is not None,
    )


_LABEL = r"(y|labels?|targets?|t)_?"


@helper(
    "mixed-samples-have-mixed-labels",
    rf"({_MIXES}|mix(ed)?)\w*(loss|criterion|objective)|(loss|criterion)\w*mix",
    {
        "share": _SHARE,
        "first": rf"{_LABEL}(a|1|one|first)",
        "second": rf"{_LABEL}(b|2|two|second)",
        "criterion": r"criterion|loss_?(fn|func|function)|crit",
        "logits": r"logits|preds?|predictions?|outputs?|scores",
    },
    ("logits", "first", "second", "share"),
)
def loss_of_mixed(loss: Called) -> Iterator[Trouble]:
    """A loss of both labels weighs each as what mixes samples in its file does."""
    logits = torch.zeros(2, 3, requires_grad=True)
    given: dict[str, Any] = {"first": torch.zeros(2, dtype=torch.long), "second": torch.ones(2, dtype=torch.long)}
    value = loss(logits=logits, share=0.7, criterion=F.cross_entropy, **given)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise OtherKind("it gives no loss")
    gradient = torch.autograd.grad(value, logits)[0].sum(0)
    prefers_first = bool(gradient[0] < gradient[1])
    is_of_first = _gives_the_first_share(loss)
    if prefers_first is not is_of_first:
        one, other = ("second", "first") if is_of_first else ("first", "second")
        yield Trouble(
            f"{loss.name} weighs the {one} labels by the share of the {other} samples.",
            f"{loss.arguments.parameter_of['share']} for the {other} labels",
            f"for the {one} ones",
            at=(r"return\b.*\*", r"=.*\*"),
            mend="give each label the weight of its own sample",
        )


def _gives_the_first_share(loss: Called) -> bool:
    """Whether what mixes samples in the same file gives the share of the samples as they came. Raises OtherKind where
    nothing does, or it cannot be told."""
    for name, function in loss.scope.items():
        if inspect.isfunction(function) and re.search(_MIXES, name.lower()) and "loss" not in name.lower():
            with suppress(Unresolved, OtherKind):
                mix = Called(function, read(function, _OF_MIXING, ("images", "labels")))
                shares = [_shares(mix, seed) for seed in range(_DRAWS)]
                for is_first, at in ((True, 1), (False, 2)):
                    if all((side := one[at]) is not None and _agree(one[0], side) for one in shares):
                        return is_first
    raise OtherKind("nothing beside it mixes samples")


def _agree(in_image: Tensor, in_labels: Tensor) -> bool:
    return bool(torch.allclose(in_image, in_labels, atol=2 / _PIXELS))


def _shares(mix: Called, seed: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """How much each of five samples counts in each image that is made, and in its labels; and in these if the share is
    that of the second ones, None where it gives no two. Labels are classes, or where no mixture comes of these, rows of
    chances. Raises OtherKind."""
    classes = torch.arange(_SAMPLES)
    try:
        return _shares_of(mix, seed, classes)
    except OtherKind:
        return _shares_of(mix, seed, torch.eye(_SAMPLES)[classes])


def _shares_of(mix: Called, seed: int, of_samples: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same with such labels. Raises OtherKind."""
    count = _SAMPLES
    images = torch.eye(count)[:, :, None, None].expand(count, count, _PIXELS, _PIXELS).contiguous()
    order = torch.tensor([1, 2, 3, 4, 0])
    given: dict[str, Any] = {"share": 0.7, "alpha": 0.4, "classes": count, "order": order}
    made = parts(mix.from_seed(seed, images=images, labels=of_samples, **given))
    tensors = [part for part in made if isinstance(part, Tensor)]
    image = next((part for part in tensors if part.shape == images.shape), None)
    if image is None:
        raise OtherKind("it gives no images")
    in_image = image.double().mean((2, 3))
    soft = [part for part in tensors if part.dim() == 2 and len(part) == count <= part.shape[1]]
    if of_samples.dim() == 2 and len(soft) != 1:
        raise OtherKind("it gives no mixture of chances")
    if soft:  # an object knows its own number of classes, which may be larger
        floor, wide = float(soft[0].min()), soft[0].shape[1]  # smoothing gives every class a share of it
        return in_image, ((soft[0].double() - floor) / (1 - wide * floor))[:, :count], None
    hard = [part for part in tensors if part.shape == (count,) and not part.is_floating_point()]
    share = [part for part in made if isinstance(part, float) or (isinstance(part, Tensor) and part.numel() == 1)]
    if len(hard) == 1:
        hard = [torch.arange(count), hard[0]]
    if len(hard) != 2 or len(share) != 1:
        raise OtherKind("it gives no labels of both samples")
    first, second = (torch.eye(count, dtype=torch.float64)[one] for one in hard)
    lam = float(share[0])
    return in_image, lam * first + (1 - lam) * second, (1 - lam) * first + lam * second


@helper(
    "dropped-branches-keep-the-mean",
    r"drop_?path|stochastic_depth|drop_connect|drop_branch",
    {
        "training": r"train(ing)?|is_training",
        "rate": r"p|drop(_?(prob|path|rate|p))?|rate|prob",
        "x": r"x|inputs?|tensor|h",
    },
    ("x", "rate"),
)
def dropped(drop: Called) -> Iterator[Trouble]:
    """Samples lose their branch at the rate, the others are scaled up; in evaluation nothing happens."""
    x = torch.ones(4000, 2, 3)
    made = tensor(drop(x=x, rate=0.2, training=True))
    if made.shape != x.shape:
        raise OtherKind("it gives another shape")
    lost = float((made[:, 0, 0] == 0).double().mean())
    kept = made[made != 0]
    if abs(lost - 0.2) > 0.05:
        yield Trouble(f"{drop.name} loses {lost:.0%} of the samples at a rate of 20 %.", "20 %", f"{lost:.0%}")
    elif not bool((made.std((1, 2)) < 1e-6).all()):
        return  # by numbers: dropout
    elif len(kept) and abs(float(kept.mean()) - 1.25) > 0.01 and not re.search(r"scale_by_keep", drop.source):
        yield Trouble(f"{drop.name} does not scale up what is kept: the mean falls.", "1.25", shown(kept.mean()))
    elif drop.has("training") and not torch.equal(tensor(drop(x=x, rate=0.2, training=False)), x.double()):
        yield Trouble(f"{drop.name} drops in evaluation, too.", "nothing", "something")

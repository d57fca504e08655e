"""Sizes of a model by the names that people give them: what a name means, a small value for it, and how the sizes of a
large model are scaled down together.

The exact names are those of `inference.construct`; a name that is not among them is read by its parts
(``encoder_hid_dim``, ``nlayers_dec``).
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from conformance.adapters.absent_gpu import on_processor
from conformance.adapters.inference.names import meanings

MAX_PARAMETERS = 3_000_000
"""A model with more is made at smaller sizes."""
MAX_WIDE_PARAMETERS = 50_000_000
"""A model with more, which no option makes smaller, computes in its own precision, and is copied when earlier copies
are gone: few fit in the memory."""
MAX_VOCAB, MAX_LENGTH, MAX_LAYERS, MAX_SIDE = 211, 64, 2, 64
"""What sizes that are scaled down are at most: tokens, positions, layers, sides of images in whole patches."""
HEAD_WIDTHS = (8, 4, 2)
"""Widths of one head that scaling aims at, in this order, until the model is small enough."""

WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
_VOCABS = ("vocab", "src_vocab", "tgt_vocab")

_PARTS: tuple[tuple[str, str], ...] = (
    (r"drop", "dropout"),
    (r"learn(ing)?_?rate", "learning_rate"),
    (r"mask(ed|s|ing)?_?(width|size|len)", "masked"),
    (r"activation|^act(_(?!dim|size|num)|$)", "activation"),
    (r"^norm_(layer|class|cls)$", "norm"),
    (r"mult|ratio|expan|factor|multiple", "multiplier"),
    (r"(^|_)eps|epsilon", "eps"),
    (r"batch|(^|_)bsz$|(^|_)bs$", "batch"),
    (r"(^|_)ignored?_?(index|idx|id|label)$", "ignored"),
    (
        r"(aux|loss|z|balance|router|codebook|commit(ment)?|entropy|kl|reg|contrastive|distill)(_\w+)?"
        r"_(weight|coeff?|lambda|cost)$",
        "share",
    ),
    (r"^max_\w+_(idx|id|index)$", "classes"),  # a table has one row more
    (r"(^|_)(idx|id|index|pad|bos|eos|sos|unk)$", "id"),
    (r"(^|_)(types?|segments?|token_types?)_", "types"),
    (r"^(use|is|with|has|do|add|tie|share)_|bias|causal|_first$|^flash", "flag"),
    (r"^(n|num)_?(src|source)$", "src_vocab"),
    (r"^(n|num)_?(tgt|trg|target)$", "tgt_vocab"),
    (r"(src|source|enc).*(vocab|voc|tokens?)|(vocab|voc).*(src|source)", "src_vocab"),
    (r"(tgt|trg|target|dec).*(vocab|voc|tokens?)|(vocab|voc).*(tgt|trg|target)", "tgt_vocab"),
    (r"^(item|word|node|entity|product|movie|song)s?_?(num|count)$|^(n|num)_?(items|words|entities)$", "vocab"),
    (r"voc|^n?_?tokens?$|num_tokens|n_tokens|^v$|char", "vocab"),
    (r"kv_?heads|key_value_heads|query_groups|kv_?groups", "n_kv_heads"),
    (r"head.*(dim|size|width)|(dim|size|width|d)_?(per_)?head|^d_?[qkv]$|^d_?(key|value|query)$", "d_k"),
    (r"head", "n_heads"),
    (r"img|image|height|^hw$", "image"),
    (r"patch", "patch"),
    (r"^(in|num|n|img|image)?_?(channels?|chans)$|in_chan", "channels"),
    (r"^(enc|dec|c)_in$", "channels"),
    (r"^c_out$|class|label|categor", "classes"),
    (r"expert", "experts"),
    (r"top_?k|active", "top_k"),
    (r"kernel", "kernel"),
    (r"len|positions|ctx|context|block_size|window|max_seq|seq_?size|^t$|max_pos", "max_len"),
    (r"^(n|num|nb|number).*(layer|block)|layers$|blocks$|depth|^n$|stacks$", "n_layers"),
    (r"ffn?|^pf_|mlp|feed_?forward|inner|intermediate|nhid|filter", "d_ff"),
    (r"dim|hid|emb|width|model|units|feature|ninp|size|channel|^d$|^c$|^e$|d_|(^|_)state$", "d_model"),
    (r"(^|_)p(rob)?$|rate$", "dropout"),
    (r"theta|base|freq", "base"),
    (r"scale|temperature|alpha|gamma|std|gain|beta", "scale"),
    (r"device", "device"),
    (r"dtype", "dtype"),
)

SMALL: dict[str, Any] = {
    **{"d_model": 32, "n_heads": 4, "n_kv_heads": 2, "d_ff": 64, "d_k": 8, "d_v": 8, "max_len": 32, "n_layers": 2},
    **{"vocab": 37, "src_vocab": 37, "tgt_vocab": 41, "dropout": 0.1, "multiplier": 2, "eps": 1e-5, "id": 0},
    **{"types": 2, "flag": True, "image": 32, "patch": 8, "channels": 3, "classes": 5, "experts": 4, "top_k": 2},
    **{"kernel": 3, "base": 10000.0, "scale": 1.0, "activation": "relu", "bias": True, "norm_first": True},
    **{"batch": 4, "pad_id": 0, "tied": False, "batch_first": True, "causal": False, "layer_idx": 0, "d_out": 32},
    **{"ff_ratio": 2, "drop_path": 0.0, "bos_id": 1, "eos_id": 2, "multiple": 8, "smoothing": 0.1, "model_type": ""},
    **{"device": torch.device("cpu"), "dtype": torch.float32, "parallel": False, "norm": nn.LayerNorm},
    **{"ignored": -100, "share": 0.01, "learning_rate": 1e-3},
}
"""Meaning -> what a constructor gets that needs it where nothing shows a value."""

_ORDINAL = re.compile(r"(^|_)(idx|id|index|pad|bos|eos|sos|unk|cls|sep|mask)(_(token|idx|id|index))*$")


class Unknown(Exception):
    """Syntax does not tell this value."""


def meaning(name: str) -> str | None:
    """What a size or option is, by its name; None where the name says nothing."""
    if known := meanings(name):
        return known[0]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return next((option for pattern, option in _PARTS if re.search(pattern, snake)), None)


def small(name: str, annotation: Any = inspect.Parameter.empty) -> Any:
    """A small value for what `name` means. Raises Unknown."""
    what = meaning(name)
    value = SMALL.get(what) if what else None
    if what == "activation" and re.search(r"Module|Callable", str(annotation)):
        return nn.ReLU() if "ype[" not in str(annotation) else nn.ReLU
    if annotation in (bool, "bool") and not isinstance(value, bool):
        return False
    if value is None:
        raise Unknown(name)
    if annotation in (int, "int") and not isinstance(value, int):
        return 2
    return value


class Sized(int):
    """A size that has been scaled, or is computed from one: it is not scaled again."""


class Sizing:
    """Values by their names, on the way into constructors: `changes` by meaning are put in, and with a `head_width`
    sizes are scaled down together, by what `seen` of an earlier attempt holds. What passes is noted in `seen`, what
    was put in, in `changed`, and what was scaled, in `scaled`. smallest: with a `head_width`, the name of the smallest
    variant for the name of each ("gpt2-xl" -> "gpt2"). small_images: the sides of images are scaled, too. named: texts,
    switches and numbers by the exact name of an option, put in for others.
    """

    def __init__(
        self,
        changes: Mapping[str, Any] | None = None,
        head_width: int = 0,
        seen: Mapping[str, set[int]] | None = None,
        smallest: Mapping[str, str] | None = None,
        small_images: bool = False,
        named: Mapping[str, str | bool | float] | None = None,
    ) -> None:
        self.changes = dict(changes or {})
        self.head_width = head_width
        self.known = seen or {}
        self.seen: dict[str, set[int]] = {}
        self.changed: set[str] = set()
        self.scaled: dict[str, tuple[Any, Any]] = {}
        self.smallest = smallest or {}
        self.small_images = small_images
        self.named = dict(named or {})
        self._ids: dict[int, int] = {}
        self._factor = _width_factor(self.known, head_width) if head_width else 1

    def with_changes(self, changes: Mapping[str, Any], named: Mapping[str, str | bool | float] | None = None) -> Sizing:
        """The same sizes for another construction, with these options put in."""
        named = {**self.named, **(named or {})}
        return Sizing(changes, self.head_width, self.known, self.smallest, self.small_images, named)

    @property
    def puts_in(self) -> bool:
        """Whether any option gets another value than its own."""
        return bool(self.changes or self.named)

    def of(self, name: str, value: Any) -> Any:
        """The value that goes in under this name; the processor in the place of a GPU that is not there."""
        if isinstance(value, (str, torch.device)) and (processor := on_processor(value)) is not value:
            return processor
        if name in self.named and type(value) is type(self.named[name]):
            self.changed.add(name)
            return self.named[name]
        if self.head_width and isinstance(value, str) and self.smallest.get(value, value) != value:
            self.scaled[name] = (value, self.smallest[value])
            return self.smallest[value]
        option = meaning(name)
        if option == "dropout" and isinstance(value, (int, float)) and not 0 <= value <= 1:
            return value  # no share of numbers: something else that is called p or rate
        changed = self.changes.get(option or "")
        if changed is not None and (value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))):
            self.changed.add(str(option))
            return Sized(changed) if type(changed) is int else changed
        if changed is not None and option == "n_layers" and _counts_stages(value):
            self.changed.add(option)
            return type(value)([Sized(changed)] * len(value))
        if type(value) in (list, tuple) and option is not None and all(type(item) is int for item in value):
            return self._each(name, option, value)
        if type(value) is not int or option is None:
            return value
        if value < 0 and option in _VOCABS:  # "defined later, by the tokenizer"
            return Sized(SMALL[option])
        self.seen.setdefault(option, set()).add(value)
        if not self.head_width or value <= 0:
            return value
        small = self._scaled(name, option, value)
        if small != value:
            self.scaled[name] = (value, small)
            return Sized(small)
        return value

    def _each(self, name: str, option: str, values: Any) -> Any:
        """A list of sizes, such as one for each stage; one for each layer is cut where the layers are fewer. Of heads
        the first stage has the fewest, and the narrowest width."""
        if option == "n_layers" and not _counts_stages(values):
            return values  # layers are told by these numbers, and not counted
        self.seen.setdefault(option, set()).update({min(values)} if option == "n_heads" and values else values)
        if not self.head_width:
            return values
        most = MAX_SIDE // 2 if len(values) == 3 else MAX_SIDE  # three sides are those of a volume
        small = [self._scaled(name, option, value, most) if value > 0 else value for value in values]
        one_each = option not in ("n_layers", "image", "patch", "kernel") and len(values) > MAX_LAYERS
        if one_each and len(values) in self.known.get("n_layers", ()):
            small = small[:MAX_LAYERS]
        if small == list(values):
            return values
        self.scaled[name] = (values, type(values)(small))
        return type(values)(map(Sized, small))

    def _scaled(self, name: str, option: str, value: int, most: int = MAX_SIDE) -> int:
        if option in WIDTHS:
            return value // self._factor if value // self._factor >= self.head_width else value
        if option in _VOCABS:
            return min(value, MAX_VOCAB)
        if option == "max_len":
            return min(value, MAX_LENGTH)
        if option == "n_layers":
            return min(value, MAX_LAYERS)
        if option == "image" and self.small_images:
            step = math.lcm(*(patch for patch in self.known.get("patch", ()) if patch > 0))
            return min(value, -(-most // step) * step)
        if value >= MAX_VOCAB and _ORDINAL.search(name.lower()):  # a token's number must stay in the vocabulary
            return self._ids.setdefault(value, MAX_VOCAB - 1 - len(self._ids))
        return value


def _counts_stages(value: Any) -> bool:
    """Whether it is a list of how many layers each stage has: numbers that rise only tell layers apart."""
    is_of_numbers = type(value) in (list, tuple) and len(value) > 0 and all(type(item) is int for item in value)
    return is_of_numbers and (len(value) == 1 or sorted(set(value)) != list(value))


def _width_factor(seen: Mapping[str, set[int]], head_width: int) -> int:
    """By what all widths are divided: the largest number that divides the widths of the heads and leaves each at least
    `head_width`; without heads, that leaves the widths at least four times that. What is less already is no width."""
    heads = {h for h in seen.get("n_heads", ()) if h > 0} or {1}
    least = head_width if "n_heads" in seen else 4 * head_width
    of_heads = [width // h for width in seen.get("d_model", ()) for h in heads if width % h == 0]
    limits = [(width, least) for width in of_heads if width >= least]
    limits += [(width, head_width) for o in ("d_k", "d_v") for width in seen.get(o, ()) if width >= head_width]
    common = math.gcd(*(width for width, _ in limits))
    fitting = [f for f in range(1, common + 1) if common % f == 0 and all(w // f >= low for w, low in limits)]
    even = [f for f in fitting if not any(width // f % 2 for width, _ in limits)]
    return max(even or fitting or [1])


def plain(value: Any) -> Any:
    """The value without our marks, as it goes into the user's code."""
    if isinstance(value, Sized):
        return int(value)
    if type(value) in (list, tuple, set):
        return type(value)(plain(item) for item in value)
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    return value

"""What the parameters of forward are called in the field: data, read by `searching`.

A name proposes a meaning. Whether the model can be run so decides.
"""

from __future__ import annotations

import re

_WORDS: dict[str, str] = {
    "types": r"token_?types?(_ids?)?|segments?(_(ids?|info|labels?|tokens?))?|seg(_ids?)?|type_ids?|sent(ence)?_ids?",
    "positions": (
        r"position(s|_ids?)?|pos(_ids?|itions?)?|input_pos(itions?)?|cache_positions?|"
        r"(src|source|tgt|trg|target|word|token|tok|seq|item)_pos(itions?|_ids?)?"
    ),
    "offset": (
        r"start_pos(ition)?|offset|past_len(gth)?|(pos|position|seq|cache)_offset|start(_index)?|cur_pos|cache_len"
    ),
    "cache": (
        r"(kv_?)?caches?|kv|past(_(kv|kvs|key_values?|state|caches?))?|layer_past|pasts|kv_caches?|"
        r"(past_)?layer_states?|((past|prev|previous|segment|xl)_)?(mems|memories)"
    ),
    "chosen": r"(masked?|pred(iction)?|predicted|mlm|masked_lm)_?(pos|positions?|ind(ex|ices)|idx|ids_pos)",
    "marks": r"\w*(time_?)?(mark|stamp)s?(_\w+)?|time_features",
    "ahead": r"(n|num)_?(future|ahead|forecasts?)(_(steps|patches|points))?|(forecast_)?horizon|steps_ahead",
    "lengths": (
        r"(?!prefix|prompt)(.*_)?(lengths?|lens|valid_lens?|valid_lengths?|seq_lens?|"
        r"(n|num)_(tokens|frames|points|words|nodes|atoms|steps|real|valid|regions|objects|boxes|patches|items|turns))"
    ),
    "labels": (
        r"labels?|(lm|mlm|masked_lm|next_token)_labels?|targets?_(labels?|out(put)?)|gold|y_true|(tgt|trg)_(y|out)"
    ),
    "source": (
        r"src|source|enc(oder)?_(in|inp|inputs?|ids|tokens?|x)|(src|source|encoder|enc)_(ids?|tokens?|seq|input(s|_ids)?|"
        r"sequence|x|words)|inp_(tokens|ids|seq)|x_enc|src_input|inputs?_enc(oder)?|question|article"
    ),
    "target": (
        r"tgt|trg|target|targets|dec(oder)?_(in|inp|inputs?|ids|tokens?|x)|(tgt|trg|target|decoder|dec)_(ids?|tokens?|seq|in|"
        r"input(s|_ids)?|sequence|x|words)|gold_(tokens|ids|seq)|prev_output_tokens|x_dec|"
        r"inputs?_dec(oder)?|summary|y|y_in|outputs?_so_far"
    ),
}
MEANINGS = {meaning: re.compile(words) for meaning, words in _WORDS.items()}
"""Meaning -> the names that it goes by; the whole name, in lower case, must match. The first meaning that fits wins."""

PREFIX = re.compile(r"(prefix|prompt|context|instruction)_?(len(gth)?s?|size|lens|n_tokens)")
"""Parameters that say how many tokens at the start are given, and not written by the model."""

MAY_BE_LABELS = re.compile(r"targets?|tgt|trg|y|labels?|next_(tokens?|ids)")
"""Names of an optional second input that are labels when the model embeds one sequence only."""

WORD_LABELS = re.compile(r"((masked_)?(lm|words?|tokens?)|mlm|next_tokens?)_?(labels?|targets?)")
"""Names of labels of words, where there are labels of whole texts beside them."""

STEPS = re.compile(r"time_?steps?")
"""Names of the numbers of steps, where each step of a sequence has one."""

TIMES = re.compile(r"days?|dates?|(time_?)?stamps?|times|hours|minutes|seconds|(event|visit|purchase)_(times|days)")
"""Names of when each step of a sequence was: numbers that rise."""

PLACES = re.compile(
    r"((un)?masked?|visible|keep|kept|patch|token|context|target|query|gather|shuffle|restore|pos(ition)?)?_?"
    r"(idxs?|indices|index(es)?|perm(utation)?)"
)
"""Names of the places of a sequence that are taken out of it: no two of them are the same."""

IMAGES = re.compile(r"(\w+_)?(im(age)?s?|imgs?|pictures?|pixels?|pixel_values|photos?)")
"""Names of images: what has a height and a width."""

SCORED = re.compile(r"(\w+_)?(labels?|loss|score[sd]?)_masks?")
"""Names of masks that say which places have a label, beside another mask: they hide no word."""

FOLDED = r"\b{0}\.(flatten\(0, *1\)|(view|reshape)\(-1, *{0}\.(size\(-1\)|shape\[-1\])\))"
"""Code that makes one batch of the lists of texts that a parameter holds."""

MAKES_CAUSAL = re.compile(r"(causal|subsequent|look_?ahead|future)_?mask|mask_?future", re.IGNORECASE)
"""Names of functions that make the mask of the future."""

FLAGS = re.compile(
    r"(return|output|use|need|is|do|with|train(ing)?|causal|verbose|inference|average)(_.*|$)|.*_(only|grad)"
)
"""Names of switches, which keep their default, or are off."""


def meaning_of(name: str) -> str:
    """The meaning that the name of a forward parameter proposes: a key of MEANINGS, "mask", "flag", or "" for none."""
    lower = name.lower().strip("_")
    for meaning in ("labels", "chosen"):  # masked_lm_labels and masked_positions are no masks
        if MEANINGS[meaning].fullmatch(lower):
            return meaning
    if (
        "mask" in lower
        or KEEPS_BY_NAME.fullmatch(lower)
        or lower.endswith(("attn_bias", "attention_bias", "attn_bias"))
    ):
        return "mask"
    for meaning, names in MEANINGS.items():
        if names.fullmatch(lower):
            return meaning
    return "flag" if FLAGS.fullmatch(lower) else ""


def called_after(name: str, other: str) -> bool:
    """Whether something is called after another input, as feat_lengths after feats."""
    return bool(re.match(rf"{re.escape(other.lower().rstrip('s'))}s?_", name.lower()))


def side_of(name: str) -> str:
    """Which keys the mask of this name hides: "source", "target", "memory" (the source, from the target), or ""."""
    lower = name.lower()
    sides = [
        ("memory", r"memory|cross|enc_?dec|dec_?enc|src_tgt|e_mask_for_d|context"),
        ("source", r"src|source|enc|^e_|^x_"),
        ("target", r"tgt|trg|target|dec|^d_|look|causal|subsequent|future|^y_|autoreg"),
    ]
    return next((side for side, words in sides if re.search(words, lower)), "")


PADDING_MASK = re.compile(r"pad|key_mask|^attention_mask$|^input_mask$|^enc_mask$|valid|^attn_mask_1d$")
"""Names of masks that say which tokens are real, one number a token."""

HIDES_BY_NAME = re.compile(r"key_padding_mask")
"""Masks that torch's documentation defines: True hides."""

KEEPS_BY_NAME = re.compile(r"^attention_mask$|^input_mask$|^(is_)?(valid|real)$")
"""Masks that Hugging Face's documentation defines, and those whose name says it: 1 keeps."""

_FAMILIES = (
    (re.compile(r"att(entio)?n|attend|mha|msa"), "attention"),
    (re.compile(r"feed_?forward|ffn|mlp(?!\w*head$)|position_?wise(_?fc)?"), "feed-forward"),
    (re.compile(r"norm"), "norm"),
    (re.compile(r"position(?!_?wise)|pos_?(enc|emb)|rotary|rope|sinusoid"), "positions"),
)
_ONE_OPERATION = re.compile(
    r"(attention|linear|dense|embedding|conv(olution)?|dropout|activation|pooling|input|output|projection|fc)_?layer$|"
    r"(linear|dense|conv(olution)?|fc|projection)_?block$"
)
"""Names of layers that hold no others."""
FAMILIES = frozenset({"attention", "norm", "feed-forward", "blocks"})
"""What a recorded run can show of a component, as `inside().seen` calls it."""


def families_of(cls: str) -> frozenset[str]:
    """What a run must show, one of these, before a component of this class name counts as tested: attention of an
    attention; any of FAMILIES of a layer or a stack. The last word decides: PreNorm. Of a name that promises nothing
    that a claim speaks of (DropPath), "modules": what holds of any module is its core."""
    found = [(m.end(), family) for pattern, family in _FAMILIES for m in pattern.finditer(cls.lower())]
    holds = re.search(r"layer$|block$|encoder|decoder", cls.lower()) and not _ONE_OPERATION.search(cls.lower())
    if holds and not any(family == "positions" for _, family in found):
        return FAMILIES
    return frozenset({max(found)[1]}) if found else FAMILIES | {"modules"}

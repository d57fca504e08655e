"""The statement of the user's file that a failure is about, where a check can only name the line at which it shows.

A claim has its words: that a token sees the future is said by a line with `tril` or a comparison, and not by the one
that fills the scores. From the line that the check names, statements are followed to the nearest that has these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.definitions import Statement, unread
from conformance.places import file_and_line


@dataclass(frozen=True)
class Rule:
    """claims: of which claims, a pattern. words: what the line has that they are about. says: for which diagnoses. at:
    from which lines. way: where it is looked for: "behind", what the line reads; "later" in its function; "return",
    the function's last; "labels", what the loss in it is taught."""

    claims: str
    words: str = ""
    says: str = ""
    at: str = ""
    way: str = "behind"


_TRIANGLE = (
    r"^(?!.*(logits|prob|top_?[kp])).*(tri[lu]|<=|>=|[^-=<]>[^>]|<[^<]|is_causal|subsequent|causal=|look_?ahead)"
)
"""A line that says which keys are hidden. Scores of words are compared where a text is written."""
_NUMBER = r"inf\b|\d[eE]\d|finfo|\.min\b|\.tiny|\.eps|-\s*\d{2}"

RULES = (
    Rule(r"(language-model|sequence-model-target)-is-causal", _TRIANGLE, at=r"mask|fill|where|bias|=="),
    Rule("attention-mask-hides-completely", _NUMBER),
    Rule(
        "attention-rotation-keeps-lengths|attention-rotated-scores-depend-on-distance",
        r"(?=.*(freq|sin|cos|emb|(?<![a-z])ang|theta|rot|pos|phase)).*(repeat|interleave|tile\(|stack\()"
        r"|cat\(\s*[\[(]\s*\w*(freq|sin|cos|emb|ang|theta)",
    ),
    Rule(r".*padding-changes-nothing", r"pad\w*\s*=\s*None", r"not hidden", at=r"pad\w*\s*=\s*None"),
    Rule("blocks-have-their-own-parameters", r"ModuleList|\]\s*\*|\*\s*\["),
    Rule("losses-teach-no-padding", r"ignore_index|CrossEntropyLoss|cross_entropy|nll_loss|NLLLoss"),
    Rule("losses-get-what-they-are-made-for", r"softmax|sigmoid|\.exp\("),
    Rule("losses-for-balance-teach-the-router", r"detach|no_grad|\.data\b|\.item\(", way="later"),
    Rule("(language-model-loss|losses)-teach(es)?-(the-next-word|the-next-token|every-word)", way="labels"),
    Rule("losses-stay-the-same-with-more-padding", way="labels"),
    Rule("losses-leave-padding-out-of-the-mean", r"\bmean\(|\.sum\(|\s/\s", way="later"),
    Rule("losses-count-the-words-that-a-mask-marks", r"mask|weight|keep|real|valid", way="later"),
    Rule("generate-stops-at-the-end-token", r"\bany\(|\ball\(", says="when one of them ends", way="later"),
    Rule("generate-leaves-the-model-as-it-was", says="in evaluation mode", way="return"),
    Rule("generate-takes-the-best-token", r"\[[^\]]*-?\b\d+\b", says="it is the best (after position|for row)"),
    Rule(
        "generate-with-top-p-keeps-the-token-that-crosses-p",
        r"masked_fill|scatter|\]\s*=\s*(-|float)",
        "other tokens than the best",
        way="later",
    ),
    Rule("generate-with-top-p-keeps-the-token-that-crosses-p", r"[^-]>|<", "crosses p is dropped", way="later"),
    Rule(
        "model-optimizer-treats-norms-apart",
        r"[\"']weight_decay[\"']\s*:|weight_decay=.*\[|\bwd\b",
        at=r"weight_decay|\bdef ",
        way="later",
    ),
    Rule("masked-words-are-what-is-taught", r"bernoulli|\brand\(|rand_like|uniform|random", "special", way="later"),
    Rule("dropped-branches-keep-the-mean", way="return"),
    Rule("decoder-inputs-are-the-labels-one-place-later", r"\[[^\]]*:[^\]]*\]\s*=[^=]|roll\(|cat\(|\bpad\("),
    Rule("cached-steps-give-the-logits-of-one-pass", r"self\.\w+\s*\+?=\s*[^\d\s=]", r"^Step [3-9]", at="arange|:"),
    Rule("layer-norm-eps-stands-inside-the-root", r"\beps|epsilon|1e-", at=r"\bdef ", way="later"),
    Rule("(layer|rms)-norm-.*", r"\.(std|var|pow|norm)\(|\*\*\s*2|sqrt", at=r"\bdef ", way="later"),
    Rule("(attention|multi-head)-scale.*", r"sqrt|\*\*\s*\(?-?0?\.5|scale", at=r"\bdef ", way="later"),
    Rule("attention-softmax-runs-over-the-keys", r"softmax", at=r"\bdef ", way="later"),
    Rule(
        "model-every-parameter-gets-a-gradient|model-what-it-keeps-reaches-the-answer|results-that-are-computed-are-used",
        says=r"^(?!The answer has no gradients|In training )",  # whose place is known
        at=r"\w\.\w+\s*(:[^=]*)?=|register_|\(",
        way="unread",
    ),
)


def blamed(place: str, claim: str, diagnosis: str) -> str:
    """The place to name in a failure of a claim: the same, or that of the statement which it is about."""
    found = file_and_line(place)
    if found is None:
        return place
    rule = next((r for r in RULES if re.fullmatch(r.claims, claim) and re.search(r.says, diagnosis)), None)
    start = Statement(*found)
    if rule is None or not start.line_with(rule.at):
        return place
    line = next(_lines(start, rule), 0)
    return f"{found[0]}:{line}" if line else place


def _lines(start: Statement, rule: Rule) -> Iterator[int]:
    if rule.way == "return":
        yield start.last_return().line
    elif rule.way == "unread":
        found = unread(start.file)
        yield from found if len(found) == 1 else []
    elif rule.way == "labels":
        made = start.argument(1, "target")
        yield from [made.line] if made is not None else []
    else:
        statements = start.behind() if rule.way == "behind" else start.later()
        yield from filter(None, (one.line_with(rule.words) for one in statements))

"""Cross-entropy, plain or with label smoothing, as a function or as a module.

What a loss teaches is read from its gradient: softmax minus the distribution that each row is taught, over the number
of rows that count. That tells the smoothing's convention, the padding and the reduction without a formula of the loss.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.adapters.functions.arguments import PAD, VOCAB, Arguments, read
from conformance.adapters.functions.roles import LOGITS, TARGETS
from conformance.adapters.functions.subjects import Served, agrees, constants, file_of, first_tensor, noise, source_of
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.whole.watching import Watching
from conformance.protocol import NotProvided

WORDS = {
    "pad": PAD,
    "eps": r"(label_?)?smooth(ing)?(_?(value|eps|epsilon|factor|rate))?|eps(ilon)?|ls|alpha|e",
    "reduction": r"reduction|reduce",
    "mask": r".*mask.*",
    "vocab": VOCAB,
    "logits": LOGITS,
    "targets": TARGETS,
}
FAR = -1e4
"""The logit of a class that no row has: its probability is 0 in float32."""
V, ROWS = 7, 6

SHIFTED = "(B, T, V) and (B, T), which it shifts"
"""It is given the tokens themselves: logits at t are taught token t + 1. Only where they are called tokens."""
TOKENS = r".*(ids|idx|tok(en)?s?|seq(uence)?s?|labels?|x|words|events|notes|chars)"

_WEIGHT = r"(^|_)(z|aux|weight|coef\w*|lambda|lam|gamma|beta|penalty|entropy|confidence)(_|$)"
"""Names of the weights of what a loss adds to its cross-entropy."""

ONE_HOT = "(N, V) and (N, V), ones and zeros"
"""Its targets are distributions, as those of a contrast are."""

Form = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
FORMS: dict[str, Form] = {
    "(N, V) and (N,)": (lambda x: x, lambda t: t),
    "(B, T, V) and (B, T)": (lambda x: x[None], lambda t: t[None]),
    "(B, V, T) and (B, T)": (lambda x: x.t()[None], lambda t: t[None]),
    SHIFTED: (lambda x: F.pad(x, (0, 0, 0, 1))[None], lambda t: F.pad(t, (1, 0))[None]),
    ONE_HOT: (lambda x: x, lambda t: t),
}
"""How logits (N, V) and targets (N,) are handed over."""

_SHIFTS_SCORES = re.compile(r"\[((:|\.\.\.), ?)?:-1(, ?:)?\]")
_SHIFTS_LABELS = re.compile(r"\[((:|\.\.\.), ?)?1:\]")
_ANOTHER_TERM = re.compile(r"(?s)cross_entropy\(.*logsumexp")
"""A cross-entropy of torch's, and a term beside it, such as the square of the logarithm of the sum."""
_SQUARES = re.compile(r"mse|l1_loss|huber|squared|\*\* ?2|\.pow\(2\)")
"""What a loss with branches says that may be another one: of errors."""
RAW, LOGARITHMS, PROBABILITIES = "logits", "log-probabilities", "probabilities"
SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    RAW: lambda x: x,
    LOGARITHMS: lambda x: x.log_softmax(-1),
    PROBABILITIES: lambda x: x.softmax(-1),
}
"""What it takes, made of logits."""


@dataclass(frozen=True)
class Loss:
    """How a loss is called. made: builds the callable from settings by meaning. scale: what it takes, one of SCALES.

    divides: 'mean', 'sum' or 'none' of its rows. over: 'all', 'others' or 'real' (neither label nor padding). eps:
    its own smoothing where it cannot be set. pad: its own padding where it cannot be set. divergence: the entropy of
    the targets is taken off, as the Kullback-Leibler divergence does. pad_is_word: its padding must be a word. hides:
    its mask marks what does not count.
    """

    found: Any
    build: Arguments | None
    call: Arguments
    form: str = "(N, V) and (N,)"
    scale: str = RAW
    divides: str = "mean"
    over: str = "all"
    eps: float = 0.0
    pad: int | None = None
    divergence: bool = False
    pad_is_word: bool = False
    hides: bool = False

    @property
    def name(self) -> str:
        return self.call.name if self.build is None else self.build.name

    def takes(self, meaning: str) -> bool:
        return self.call.has(meaning) or (self.build is not None and self.build.has(meaning))

    def value(
        self, logits: Tensor, targets: Tensor, pad: int | None = None, training: bool = False, **settings: Any
    ) -> Tensor:
        """What it returns for logits (N, V) and targets (N,). settings: eps, reduction; those it does not take go.

        Raises NotProvided where a loss that shares the rest out among other words has none, with two classes."""
        logits_in, targets_in = FORMS[self.form]
        given = SCALES[self.scale](logits)
        options = {**settings, "vocab": logits.shape[1]}
        if self.takes("pad"):
            if pad is not None:
                options["pad"] = pad
            elif not self.pad_is_word:
                options["pad"] = -100  # its default may be a word that is a label here
            elif not self._has_default("pad"):
                options["pad"] = 0
        if self.form == ONE_HOT:
            targets = F.one_hot(targets, logits.shape[1]).to(logits.dtype)
        values = {"logits": logits_in(given), "targets": targets_in(targets)}
        if self.call.has("mask"):
            kept = torch.ones_like(targets, dtype=torch.bool) if pad is None else targets != pad
            # of shifted labels the word in front of the first one is real
            marked = F.pad(kept, (1, 0), value=True)[None] if self.form == SHIFTED else targets_in(kept)
            values["mask"] = ~marked if self.hides else marked
        try:
            called = self.found if self.build is None else self.build.call(self.found, **options)
            if self.build is not None and isinstance(called, nn.Module):
                called.train(training)
            result = self.call.call(called, **values, **options)
            if result is None and settings.get("reduction") and self.takes("reduction"):
                raise NotProvided(f"{self.name} returns nothing for the reduction {settings['reduction']}")
            return first_tensor(result)
        except ZeroDivisionError as error:
            if logits.shape[1] > 2:
                raise
            raise NotProvided(f"{self.name} divides by the number of other classes; of two it has none") from error

    def _has_default(self, meaning: str) -> bool:
        for function, arguments in ((self.found, self.build), (self.found, self.call)):
            if arguments is not None and arguments.has(meaning):
                with_default = inspect.signature(function).parameters.get(arguments.parameter_of[meaning])
                return with_default is not None and with_default.default is not inspect.Parameter.empty
        return False

    def taught(self, logits: Tensor, targets: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
        """The loss (summed), and the distributions that the rows are taught, times what each row counts."""
        leaf = logits.clone().requires_grad_()
        loss = self.value(leaf, targets, **settings)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        rows = 1.0 if self.divides in ("sum", "none") else 1.0 / len(targets)
        return loss.detach(), logits.softmax(-1) * rows - gradient


def resolve(found: Any) -> list[Served]:
    """A loss as the role cross_entropy. Raises Unresolved when it runs on no form of logits and targets."""
    loss = _signature(found)
    logits, targets = 2.0 * noise(ROWS, V), torch.tensor([1, 4, 2, 6, 3, 5])
    rows = F.cross_entropy(logits, targets, reduction="none")
    ran: list[Loss] = []
    reasons: list[str] = []
    exact: Loss | None = None
    pads = (False, True) if loss.takes("pad") else (False,)
    marks = (False, True) if _may_hide(found, loss) else (False,)
    calls = dict.fromkeys(map(tuple, ({**loss.call.fixed, **_more_terms(loss)}.items(), loss.call.fixed.items())))
    for fixed, form, scale, is_word, hides in product(calls, _forms(loss), _inputs(found, loss), pads, marks):
        call = replace(loss.call, fixed=dict(fixed))
        candidate = replace(loss, call=call, form=form, scale=scale, pad_is_word=is_word, hides=hides)
        try:
            got = candidate.value(logits, targets, eps=0.0)
            if candidate.takes("pad") and not is_word:  # that label is an index to some
                candidate.value(logits, targets.index_fill(0, torch.tensor([1]), -100), pad=-100, eps=0.0)
            candidate = replace(candidate, divides=_divides(candidate, got, logits, targets))
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
            continue
        if got.ndim and got.numel() != ROWS:
            reasons.append(f"it returns {tuple(got.shape)}")
            continue
        ran.append(candidate)
        wanted = {"none": rows, "sum": rows.sum(), "mean": rows.mean()}[candidate.divides]
        if agrees(got.reshape(wanted.shape) if got.numel() == wanted.numel() else got, wanted):
            exact = candidate
            break
    if not ran:
        raise Unresolved(f"{loss.name} runs on logits and targets in no form: {reasons[0]}")
    if exact is None and not re.fullmatch(f"{TARGETS}|{TOKENS}", loss.call.parameter_of["targets"].lower()):
        raise Unresolved(f"{loss.name} is no cross-entropy of logits and the numbers of classes in any form")
    chosen = exact or ran[0]
    text = source_of(found)
    if exact is None and all(one.search(text) for one in (_SHIFTS_SCORES, _SHIFTS_LABELS, _ANOTHER_TERM)):
        raise Unresolved(f"{loss.name} adds a term to a cross-entropy that shifts its labels: it is no loss of rows")
    if exact is None and _SQUARES.search(text) and not _takes_logarithms(chosen, logits, targets):
        raise Unresolved(f"{loss.name} takes no logarithm where it ran, and no softmax: it is no cross-entropy there")
    facts = [Fact("inputs", f"{chosen.form} {chosen.scale}", _how(exact))]
    facts.append(
        Fact(
            "reduction",
            chosen.divides,
            "twice the rows give " + ("as much" if chosen.divides == "mean" else "twice as much")
            if chosen.divides != "none"
            else "a loss for each row",
        )
    )
    chosen, more = _padding(chosen)
    facts += more
    chosen, more, smooth = _smoothing(chosen)
    facts += more
    fits = smooth if smooth is not None else exact is not None
    return [Served("cross_entropy", partial(_make, chosen), facts, fits)]


class _Logarithms(Watching):
    """Whether a run takes a logarithm, an exponential or a softmax."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.partition(".")[0]
        self.seen = self.seen or re.search(r"softmax|logsumexp|nll|^(log|log1p|log2|exp|expm1)$", name) is not None
        return func(*args, **(kwargs or {}))


def _takes_logarithms(loss: Loss, logits: Tensor, targets: Tensor) -> bool:
    """Whether a cross-entropy can have run: of a loss with branches, in the one that runs."""
    with suppress(Exception), _Logarithms() as ran:
        replace(loss, scale=RAW).value(logits, targets, eps=0.0)
    return ran.seen


def _how(exact: Loss | None) -> str:
    return "it gives - log P(target) so" if exact else "it runs so"


def _signature(found: Any) -> Loss:
    if not isinstance(found, type):
        return Loss(found, None, read(found, WORDS, ("logits", "targets")))
    cls: type[nn.Module] = found
    data = {key: words for key, words in WORDS.items() if key not in ("logits", "targets")}
    build = read(found, data)
    return Loss(found, build, read(cls.forward, WORDS, ("logits", "targets")))


def _more_terms(loss: Loss) -> dict[str, float]:
    """The weights of what else the loss may add, all 0, as they are called: a z-loss, an entropy, a focus."""
    if loss.build is not None:
        return {}
    known = {*loss.call.parameter_of.values()}
    more = [p for p in inspect.signature(loss.found).parameters.values() if p.name not in known]
    return {p.name: 0.0 for p in more if type(p.default) is float and re.search(_WEIGHT, p.name.lower())}


def _may_hide(found: Any, loss: Loss) -> bool:
    """Whether its mask may mark padding: by its name, or by its code, which speaks of infinity as additive masks do."""
    if not loss.call.has("mask"):
        return False
    says = re.search(r"pad|ignore", loss.call.parameter_of["mask"].lower())
    return bool(says or re.search(r"(?<![a-z])-?inf(?![a-z])|inf_?mask", source_of(found).lower()))


def _inputs(found: Any, loss: Loss) -> tuple[str, ...]:
    """What it may take: logits alone when its parameter is called so, and never where it is called probabilities."""
    name = loss.call.parameter_of["logits"].lower()
    if "logit" in name:
        return (RAW,)
    if re.search(r"prob", name) and not re.search(r"log", name):
        return (PROBABILITIES, LOGARITHMS)
    said = re.search(r"log_?p|lprob", name) or re.search(r"kldiv|kl_div|nll_?loss|log_?prob", source_of(found).lower())
    return (RAW, LOGARITHMS) if said else (RAW,)


def _forms(loss: Loss) -> list[str]:
    """The forms that it may take: what is called targets is shifted inside only where the code cuts both so."""
    targets, logits = (loss.call.parameter_of[name] for name in ("targets", "logits"))
    cuts = rf"\b{logits}\[(:|\.\.\.), ?:-1", rf"\b{targets}\[(:|\.\.\.), ?1:"
    text = source_of(loss.found)
    may_shift = re.fullmatch(TOKENS, targets.lower()) or all(re.search(cut, text) for cut in cuts)
    return [form for form in FORMS if may_shift or form != SHIFTED]


def _divides(loss: Loss, got: Tensor, logits: Tensor, targets: Tensor) -> str:
    """Mean or sum over the rows: what twice the rows do."""
    if got.numel() == len(targets) and got.ndim:
        return "none"
    twice = loss.value(torch.cat([logits, logits]), torch.cat([targets, targets]), eps=0.0)
    return "sum" if abs(float(twice / got) - 2.0) < 0.25 else "mean"


# --- padding --------------------------------------------------------------------------------------


def _padding(loss: Loss) -> tuple[Loss, list[Fact]]:
    """The label that the loss leaves out by itself: the one whose row gets no gradient."""
    if loss.takes("pad") or loss.call.has("mask"):
        parameter = (loss.build or loss.call).parameter_of.get("pad") or loss.call.parameter_of.get("pad", "mask")
        return loss, [Fact("padding", f"by {parameter}", "its parameter")]
    logits = noise(3, V)
    silent = []
    for label in (*range(V), -100):
        targets = torch.tensor([label, 1 if label != 1 else 2, 3 if label != 3 else 4])
        leaf = logits.clone().requires_grad_()
        try:
            (gradient,) = torch.autograd.grad(loss.value(leaf, targets, eps=0.0).sum(), leaf)
        except Exception:  # it has no such label
            continue
        if not gradient[0].any() and gradient[1].any():
            silent.append(label)
    by_torch = silent == [-100] and "reduction" in source_of(loss.found)
    if by_torch and not re.search(r"-100|ignore|pad", file_of(loss.found), re.IGNORECASE):
        return loss, [Fact("padding", "none", "torch leaves -100 out, and its file gives no such label")]
    if not silent:
        return loss, [Fact("padding", "none", "every label is taught")]
    named = list(constants(loss.found, r"(.*_)?pad(_.*)?").values())
    pad = silent[0]
    doubtful = bool(named) and pad != -100 and pad not in named
    return replace(loss, pad=pad), [Fact("padding", pad, "a row with this label has no gradient", doubtful)]


# --- label smoothing ------------------------------------------------------------------------------


def _smoothing(loss: Loss) -> tuple[Loss, list[Fact], bool | None]:
    """Over which words the smoothing spreads, from what the other words are taught; None where there is none."""
    settable = loss.takes("eps")
    pad = 0 if loss.takes("pad") else loss.pad
    logits, targets = noise(ROWS, V), torch.tensor([1, 4, 2, 6, 3, 5])
    if pad is not None and 0 < pad < V:
        targets[targets == pad] = 0
    try:
        _, taught = (
            loss.taught(logits, targets, eps=0.1, pad=pad) if settable else loss.taught(logits, targets, pad=pad)
        )
    except Exception:  # it has no gradient
        return loss, [], None
    taught = taught * (ROWS if loss.divides == "mean" else 1)
    others = [c for c in range(V) if c != pad]
    label = taught[torch.arange(ROWS), targets]
    rest = torch.stack(
        [row[[c for c in others if c != t]].mean() for row, t in zip(taught, targets.tolist(), strict=True)]
    )
    spread = float(rest.mean())
    if abs(spread) < 1e-6:
        fact = [Fact("label smoothing", "none", "the words that are no label are not taught", True)] if settable else []
        return loss, fact, False if settable else None
    on_pad = float(taught[:, pad].abs().max()) if pad is not None and pad >= 0 else 1.0
    eps = 0.1 if settable else 0.0
    if not settable:
        eps = float(
            1 - label.mean() + (rest.mean() if on_pad > 1e-6 and abs(1 - label.mean() - spread * (V - 1)) > 1e-4 else 0)
        )
    shares = {"real": eps / (V - 2), "others": eps / (V - 1), "all": eps / V}
    over = min(shares, key=lambda name: abs(shares[name] - spread))
    if over == "real" and on_pad > 1e-6:
        over = "others"
    wanted = distribution(targets, V, eps, over, pad if pad is not None else -1)
    fits = bool(torch.allclose(taught, wanted, atol=1e-4))
    if not settable and not fits:
        return loss, [Fact("label smoothing", "none", "what the other words are taught is no smoothing", True)], False
    loss = replace(loss, over=over, eps=0.0 if settable else eps)
    divergence = _is_divergence(loss, logits, targets, wanted, eps if settable else None, pad)
    words = {"all": "all words", "others": "the other words", "real": "the other words but padding"}[over]
    facts = [Fact("label smoothing", f"over {words}", f"each is taught {spread:.4f} for {eps:.3g}", not fits)]
    if not settable:
        facts.append(Fact("smoothing", round(eps, 6), "it has no parameter for it"))
    if divergence:
        facts.append(Fact("loss", "Kullback-Leibler divergence", "it is the cross-entropy less the targets' entropy"))
    return replace(loss, divergence=divergence), facts, fits


def distribution(targets: Tensor, classes: int, eps: float, over: str, pad: int = -1) -> Tensor:
    """What smoothing teaches, (N, V): 1 - eps on the label, the rest over all, the others, or the others but `pad`."""
    one_hot = F.one_hot(targets, classes).float()
    if over == "all":
        return one_hot * (1 - eps) + eps / classes
    spread = (1 - one_hot) * eps / (classes - (2 if over == "real" else 1))
    if over == "real":
        spread[:, pad] = 0.0
    return one_hot * (1 - eps) + spread


def _entropy(wanted: Tensor) -> Tensor:
    return -torch.xlogy(wanted, wanted).sum(-1)


def _is_divergence(
    loss: Loss, logits: Tensor, targets: Tensor, wanted: Tensor, eps: float | None, pad: int | None
) -> bool:
    """Whether its value is the cross-entropy less the entropy: nearer to that than to the cross-entropy."""
    settings: dict[str, Any] = {} if eps is None else {"eps": eps}
    got = float(loss.value(logits, targets, pad=pad, **settings).sum())
    rows = 1 if loss.divides != "mean" else 1 / len(targets)
    full = float(-(wanted * logits.log_softmax(-1)).sum()) * rows
    less = full - float(_entropy(wanted).sum()) * rows
    return abs(got - less) < 1e-3 * max(1.0, abs(less)) < abs(got - full)


# --- serving --------------------------------------------------------------------------------------


def _row_by_row(loss: Loss, training: bool, logits: Tensor, targets: Tensor) -> dict[str, Any]:
    """The loss of each row of what gives their mean or sum: the other rows are as sure of their labels as can be, and
    add nothing."""
    sure = torch.full_like(logits, FAR).scatter(1, targets[:, None], 0.0)
    settings: dict[str, Any] = {"eps": 0.0} if loss.takes("eps") else {}
    rows = []
    for at in range(len(targets)):
        here = torch.arange(len(targets), device=targets.device)[:, None] == at
        rows.append(loss.value(torch.where(here, logits, sure), targets, training=training, **settings).sum())
    each = torch.stack(rows)
    return {"out": each * len(targets) if loss.divides == "mean" else each}


def _make(loss: Loss, config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
    """Raises NotProvided for what the loss has not."""
    name, eps, ignored = loss.name, config["label_smoothing"], config["ignore_index"]
    if eps and not loss.takes("eps") and abs(eps - loss.eps) > 1e-6:
        raise NotProvided(f"{name} has no label smoothing of {eps:g}")
    if not eps and loss.eps:
        raise NotProvided(f"{name} always smooths with {loss.eps:g}")
    over = {"real": "others"}.get(loss.over, loss.over)
    if eps and config["smoothing_over"] != over:
        raise NotProvided(f"{name} does not spread the smoothing over {config['smoothing_over']}")
    if ignored is not None and loss.pad is None and not loss.takes("pad") and not loss.call.has("mask"):
        raise NotProvided(f"{name} leaves no label out")
    wanted = config["reduction"]
    if wanted == "none" and loss.divides != "none" and not loss.takes("reduction"):
        leaves_a_word_out = (loss.pad is not None and loss.pad >= 0) or loss.pad_is_word
        if eps or ignored is not None or loss.divergence or leaves_a_word_out:
            raise NotProvided(f"{name} gives the {loss.divides} of its rows only")
        return partial(_row_by_row, loss)

    def compute(training: bool, logits: Tensor, targets: Tensor) -> dict[str, Any]:
        if targets.is_floating_point():  # the caller exchanged the two
            return {"out": loss.value(logits, targets)}
        kept = torch.ones_like(targets, dtype=torch.bool) if ignored is None else targets != ignored
        given, labels, pad = _with_padding(loss, logits, targets, ignored, bool(eps))
        settings: dict[str, Any] = {"eps": eps} if loss.takes("eps") else {}
        if loss.takes("reduction"):
            settings["reduction"] = wanted
        got = loss.value(given, labels, pad=pad, training=training, **settings)
        own = wanted if loss.takes("reduction") else loss.divides
        if loss.divergence and eps:
            entropy = _entropy(
                distribution(labels.clamp(0), given.shape[1], eps, loss.over, pad if pad is not None else -1)
            )
            entropy = torch.where(kept, entropy, 0.0)
            got = got + {"none": entropy, "sum": entropy.sum(), "mean": entropy.sum() / kept.sum()}[own]
        if own == "none":
            rows = got.reshape(-1)
            return {"out": rows if wanted == "none" else rows.sum() if wanted == "sum" else rows.sum() / kept.sum()}
        if own != wanted:
            got = got * kept.sum() if wanted == "sum" else got / kept.sum()
        return {"out": got}

    return compute


def _with_padding(
    loss: Loss, logits: Tensor, targets: Tensor, ignored: int | None, smooth: bool
) -> tuple[Tensor, Tensor, int | None]:
    """Logits, labels and padding as the loss takes them.

    A loss whose padding is a word of its own, and one that smooths over the real words, gets one word more: no row has
    it, and the labels that a claim leaves out become it.
    """
    if not loss.takes("pad") and (loss.pad or 0) > logits.shape[1]:
        if smooth:
            raise NotProvided(f"{loss.name} leaves the label {loss.pad} out, and here are {logits.shape[1]} words only")
        logits = _with_words(logits, int(loss.pad or 0))
    if loss.over == "real" and smooth:
        pad = 0 if loss.takes("pad") else int(loss.pad or 0)
        return (*_inserted(logits, targets, pad, ignored), pad)
    if loss.takes("pad") and loss.pad_is_word and (ignored is None or ignored < 0):
        if smooth:  # a word more would be smoothed over, too: the padding is a word that no row has for its label
            free = next((c for c in range(logits.shape[1]) if not bool((targets == c).any())), None)
            if free is None:
                raise NotProvided(f"{loss.name} always leaves a label out, and here every word is one")
            return logits, targets if ignored is None else torch.where(targets == ignored, free, targets), free
        return (*_inserted(logits, targets, 0, ignored), 0)
    if loss.takes("pad") or loss.call.has("mask") or loss.pad is None or loss.pad == ignored:
        return logits, targets, ignored
    if loss.pad == -100:
        labels = targets if ignored is None else torch.where(targets == ignored, -100, targets)
        return logits, labels, loss.pad
    if smooth and loss.over in ("all", "others") and (ignored is None or ignored < 0):
        raise NotProvided(f"{loss.name} always leaves the label {loss.pad} out")
    if ignored is not None and 0 <= ignored < logits.shape[1]:
        logits = _with_words(logits, loss.pad + 1)
        order = torch.arange(logits.shape[1])
        order[ignored], order[loss.pad] = loss.pad, ignored
        return logits[:, order], order[targets], loss.pad
    return (*_inserted(logits, targets, loss.pad, ignored), loss.pad)


def _inserted(logits: Tensor, targets: Tensor, pad: int, ignored: int | None) -> tuple[Tensor, Tensor]:
    """One word more at `pad`, which no row has; labels that are left out become it."""
    far = _with_words(logits, logits.shape[1] + 1)[:, -1:]
    given = torch.cat([logits[:, :pad], far, logits[:, pad:]], dim=1)
    labels = targets + (targets >= pad)
    return given, labels if ignored is None else torch.where(targets == ignored, pad, labels)


def _with_words(logits: Tensor, many: int) -> Tensor:
    """With words at the end that no row has, until they are so many."""
    missing = max(many - logits.shape[1], 0)
    far = torch.full((len(logits), missing), FAR, dtype=logits.dtype) + logits.detach().amin(-1, keepdim=True)
    return torch.cat([logits, far], dim=1)

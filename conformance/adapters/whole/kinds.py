"""What a model is meant to be, read from evidence of intent and never from the behaviour that is then judged.

A GPT without a mask and a bidirectional masked model are the same function, token ids to logits. Names, buffers,
options and methods say which one its author wrote.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType

import torch
from torch import nn

from conformance.adapters.inference.facts import Fact
from conformance.adapters.whole.calling import Calling
from conformance.adapters.whole.chained import has_two_stacks
from conformance.adapters.whole.class_source import heading_of, source_of
from conformance.adapters.whole.configs import settings_of
from conformance.adapters.whole.decoding import taking_a_model, writes_word_by_word
from conformance.adapters.whole.layouts import ONE_ANSWER
from conformance.adapters.whole.names import MAKES_CAUSAL, meaning_of
from conformance.adapters.whole.usage import surroundings
from conformance.adapters.whole.used_functions import text_of, used_functions

KINDS = ("language_model", "masked_language_model", "sequence_to_sequence", "encoder_model", "classifier")

_CAUSAL = r"gpt|causal|decoder|autoreg|llama|lmhead|mistral|mixtral|gemma|qwen|mamba|xlnet|charlm|next_?token"
_OF_LANGUAGE = r"language_?model|(?<!masked_)(?<![a-z])lm(?![a-z])"
"""Names that are a causal model's unless a word of _TWO_WAY stands beside them: PerceiverLM."""
_TWO_WAY = r"bert|mlm|masked_?(l|tok|word)|bidirect|electra|cloze|encoder_?only|encoderfor|perceiver(?!_?ar)"
_CAUSAL_CODE = (
    r"\btril\b|\btriu\b|causal(?! ?= ?False)|subsequent|look_?ahead|autoregress|next[ _-]token|attend.{0,20}future"
)
_TWO_WAY_CODE = (
    r"(?<![a-z])mlm(?![a-z])|masked[ _-](l(anguage|m)|(token|word)s? (pre|model))|mask_token|mask_idx?\b"
    r"|(?<![\w)\]])[\[<]mask[\]>]"  # the token, and not numbers[mask]
    r"|bidirectional"
)
_TWO_WAY_METHODS = re.compile(
    r"(^|_)mlm(_|$)|fill_?mask|unmask|mask_(some_|random_)?(tokens|words|ids)$|masked_l(m|anguage)"
)
_SHIFTED_SCORES = re.compile(r"(logits|scores|out\w*|self\(\w+)\[((:|\.\.\.), ?)?:-1(, ?:)?\]\)?")
_SHIFTED_LABELS = re.compile(r"(labels?|targets?|\w*ids|\w*tokens|notes|events|items|y|x)\[((:|\.\.\.), ?)?1:\]")
_NEXT_WORDS = (
    r"(\w+)\[(?:(?::|\.\.\.), ?)?:-1\](?s:.{1,200}?)\b\1\[(?:(?::|\.\.\.), ?)?1:\]"  # x[:-1] and, near it, x[1:]
    r"|\[(\w+) ?\+ ?1 ?: ?(\2 ?\+ ?[\w.]+ ?\+ ?1|\2 ?\+ ?1 ?\+ ?[\w.]+)\]"  # data[i + 1 : i + 1 + block_size]
)
_LAST_WORD = r"\[:, ?-1(, ?:)?\](?s:.{1,1500}?)(multinomial|argmax|topk|Categorical)\("
_SWITCHES = {
    "bidirectional": ("masked_language_model", "language_model"),
    "causal": ("language_model", "masked_language_model"),
    "is_causal": ("language_model", "masked_language_model"),
    "autoregressive": ("language_model", "masked_language_model"),
    "is_decoder": ("language_model", ""),
}
"""Names of options that a model keeps -> the kind that it is where they are True, and where they are False."""


_ARCHITECTURES = (_CAUSAL.replace("|decoder", ""), _TWO_WAY)
"""Names that also a sentence may say: a BERT's may speak of decoders."""


def kind_of(module: nn.Module, calling: Calling) -> tuple[str, list[Fact]]:
    """The kind of a model, and its evidence; "" when the evidence is absent or contradictory."""
    one_answer = calling.layout in ONE_ANSWER
    if calling.two_sided and one_answer and calling.outputs != calling.main.vocab:
        return "classifier", [Fact("kind", "classifier", f"two sequences of tokens in, {calling.layout} out")]
    if calling.two_sided:
        return "sequence_to_sequence", [Fact("kind", "sequence to sequence", "it embeds two sequences of tokens")]
    if not calling.main.vocab:
        kind = "classifier" if one_answer else "encoder_model"
        return kind, [Fact("kind", kind.replace("_", " "), f"numbers in, {calling.layout} out")]
    of_words = calling.outputs in (calling.main.vocab, _words_of(module))
    if not of_words and not (_writes_fewer(module, calling) and _chosen_kind(module) == "language_model"):
        kind = "classifier" if one_answer else "encoder_model"
        return kind, [
            Fact("kind", kind.replace("_", " "), f"token ids in, {calling.layout} out with {calling.outputs} numbers")
        ]
    if calling.labels and has_two_stacks(module):
        why = (
            "it has an encoder and a decoder, and the decoder reads labels: give forward the target's words as an input"
        )
        return "", [Fact("kind", "open", why, doubtful=True)]
    if meaning_of(calling.main.parameter) == "source" and "target" in map(meaning_of, calling.fixed):
        why = "it has a target, too, which is the same for every sample here: state both with --claims-input"
        return "", [Fact("kind", "open", why, doubtful=True)]
    causal, two_way = _evidence(module)
    chosen = _stronger(causal, two_way)
    if not chosen:
        return "", [
            Fact(
                "kind",
                "open",
                f"for a language model speaks {_list(causal)}; for a masked language model {_list(two_way)}: "
                "say which with @language_model or @masked_language_model",
                doubtful=True,
            )
        ]
    evidence = causal if chosen == "language_model" else two_way
    return chosen, [Fact("kind", chosen.replace("_", " "), "; ".join(text for _, text in evidence[:3]))]


def _evidence(module: nn.Module) -> tuple[list[Evidence], list[Evidence]]:
    """What speaks for a language model, and what for a masked one."""
    causal, two_way = list(_said(module, _CAUSAL, _CAUSAL_CODE)), list(_said(module, _TWO_WAY, _TWO_WAY_CODE))
    causal += [*_built(module), *_shifted(module), *_switched(module, "language_model")]
    two_way += [*_masking(module), *_switched(module, "masked_language_model")]
    around = list(_around(module)) if not causal and not two_way else []
    causal += [(0, text) for is_causal, text in around if is_causal]
    two_way += [(0, text) for is_causal, text in around if not is_causal]
    return causal, two_way


def _chosen_kind(module: nn.Module) -> str:
    return _stronger(*_evidence(module))


def _writes_fewer(module: nn.Module, calling: Calling) -> bool:
    """Whether it scores all words of its table but the last few, such as a start and padding, which it never writes."""
    heads = [part for part in module.modules() if isinstance(part, nn.Linear) and part.out_features == calling.outputs]
    return 0 < calling.main.vocab - calling.outputs <= 4 and any(part.in_features != calling.outputs for part in heads)


def _words_of(module: nn.Module) -> int:
    """How many words the model or its config says that there are: its table may have more rows. 0 when neither does."""
    said = (items.get("vocab_size") for items in settings_of(module))
    return next((size for size in said if isinstance(size, int)), 0)


Evidence = tuple[int, str]
"""How strong (4: the model's own name, 3: the first line of its file, or a method that only one kind has, 2: what it is
made of, 1: words in its source, 0: what stands around it), and what."""


def _names(pattern: str, name: str) -> bool:
    """Whether a class name says what the pattern of names, _CAUSAL or _TWO_WAY, means."""
    words = _words(name)
    of_language = pattern is _CAUSAL and re.search(_OF_LANGUAGE, words) and not re.search(_TWO_WAY, words)
    return bool(of_language or re.search(pattern, words))


def _said(module: nn.Module, names: str, code: str) -> Iterator[Evidence]:
    cls: type = type(module)
    if _names(names, cls.__name__):
        # LM alone is a name of both, as in ProteinLM: what stands at the top of the file weighs more
        yield 4 if re.search(names, _words(cls.__name__)) else 2, f"the class is called {cls.__name__}"
    if re.search(code, (cls.__doc__ or "") if cls.__module__.split(".")[0] != "torch" else "", re.IGNORECASE):
        yield 2, "its docstring says so"
    heading = heading_of(cls).partition("\n")[0]
    if re.search(code, heading, re.IGNORECASE):
        yield 3, "the first line of its file says so"
    elif found := re.search(names, heading, re.IGNORECASE):
        yield 1, f"the first line of its file says {found.group(0)!r}"
    for part in dict.fromkeys(base for held in module.modules() for base in type(held).__mro__):
        source = source_of(part)
        if source is None:
            continue
        if part is not cls and _names(names, re.sub(r"(?i)lm_?head$", "", part.__name__)):  # BERT has one, too
            yield 1, f"a part is called {part.__name__}"
        found = re.search(code, source[0], re.IGNORECASE)
        if found:
            yield 1, f"{part.__name__} says {found.group(0)!r}"
    for function in used_functions(cls):
        if found := re.search(code, text_of(function), re.IGNORECASE):
            yield 1, f"{function.__name__}, which it calls, says {found.group(0)!r}"


def _words(name: str) -> str:
    """A class name in lower case; capitals that begin a word keep a gap, so that LM is found in MyLM and in MyMoELM,
    but not in MyMLM."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"(?<=[A-Z])(?<![MI])LM$", "_LM", apart).lower()


def _built(module: nn.Module) -> Iterator[Evidence]:
    """A method that generates, and buffers that are triangles."""
    for name in ("generate", "sample", "generate_text", "greedy_decode", "next_token"):
        if inspect.isroutine(getattr(module, name, None)):
            yield 2, f"it has a method {name}"
            break
    else:
        for name, method in inspect.getmembers(type(module), inspect.isfunction):
            if method.__module__ == type(module).__module__ and writes_word_by_word(method):
                yield 2, f"its method {name} writes word by word"
                break
    for name, buffer in module.named_buffers():
        if buffer.layout is not torch.strided:
            continue
        square = buffer.squeeze()
        if square.ndim == 2 and square.shape[0] == square.shape[1] > 1 and _is_triangle(square):
            yield 2, f"the buffer {name} is a triangle"
            break


def _masking(module: nn.Module) -> Iterator[Evidence]:
    """A method that hides words, finds hidden ones, or is the loss of these; or such a function of its file."""
    for name, _ in inspect.getmembers(type(module), inspect.isroutine):
        if _TWO_WAY_METHODS.search(name) and not hasattr(nn.Module, name):
            yield 3, f"it has a method {name}"
            break
    home = vars(sys.modules.get(type(module).__module__, object()))
    for name, one in home.items():
        is_own = isinstance(one, FunctionType) and one.__module__ == type(module).__module__
        if is_own and _TWO_WAY_METHODS.search(name):
            yield 2, f"its file has a function {name}"
            break


def _shifted(module: nn.Module) -> Iterator[Evidence]:
    """A loss that compares the scores of each position with the label behind it: its own, or one of a function of its
    file that takes the model."""
    cls: type = type(module)
    found = source_of(cls)
    taking = [one for _, one in taking_a_model(module) if isinstance(one, FunctionType)]
    for text in [found[0] if found else "", *map(text_of, (*used_functions(cls), *taking))]:
        scores, labels = _SHIFTED_SCORES.search(text), _SHIFTED_LABELS.search(text)
        if scores and labels:
            yield 2, f"its loss compares {scores.group(0)} with {labels.group(0)}"
            break


def _switched(module: nn.Module, kind: str) -> Iterator[Evidence]:
    """What boolean attributes of the model itself say for a kind."""
    for name, (when_true, when_false) in _SWITCHES.items():
        value = vars(module).get(name)
        if type(value) is bool and (when_true if value else when_false) == kind:
            yield 2, f"{name} is {value}"


def _around(module: nn.Module) -> Iterator[tuple[bool, str]]:
    """What the docstrings of its parts, the files that use it or feed it, and its repository's name say: whether that
    is a language model, and what."""
    parts: list[type] = list(dict.fromkeys(type(held) for held in module.modules()))
    for part in (one for one in parts if source_of(one) is not None):
        for is_causal, names in zip((True, False), _ARCHITECTURES, strict=True):
            if found := re.search(names, (inspect.getdoc(part) or "").lower()):
                yield is_causal, f"the docstring of {part.__name__} says {found.group(0)!r}"
    if source_of(parts[0]) is None:
        return
    home = sys.modules[parts[0].__module__]
    makers = [name for name, one in vars(home).items() if isinstance(one, FunctionType) and MAKES_CAUSAL.search(name)]
    for name in makers[:1]:
        yield True, f"its file makes masks by {name}"
    found_in = surroundings(home)
    if "site-packages" in found_in.path.parts:
        return
    for source in found_in.sources:
        if source.path.parent != found_in.path.parent and parts[0].__name__ not in source.text:
            continue
        for pattern, what in ((_NEXT_WORDS, "pairs words with the next ones"), (_LAST_WORD, "writes on from the last")):
            if found := re.search(pattern, source.text):
                yield True, f"{source.path.name} {what}: {found.group(0).splitlines()[0]}"
        if found := re.search(_TWO_WAY_CODE, source.text, re.IGNORECASE):
            yield False, f"{source.path.name} says {found.group(0)!r}"
    for is_causal, names in zip((True, False), _ARCHITECTURES, strict=True):
        if re.search(names, found_in.root.name.lower()):
            yield is_causal, f"its folder is called {found_in.root.name}"


def _is_triangle(square: torch.Tensor) -> bool:
    marks = square == square[0, -1]  # what the future is marked by
    future = torch.ones_like(marks).triu(1)
    return bool(torch.equal(marks, future) or torch.equal(marks, future.T))


def _stronger(causal: Iterable[Evidence], two_way: Iterable[Evidence]) -> str:
    for strength in (4, 3, 2, 1, 0):
        one, other = (any(s == strength for s, _ in side) for side in (causal, two_way))
        if one != other:
            return "language_model" if one else "masked_language_model"
        if one and strength == 4:
            return ""
    return ""


def _list(evidence: list[Evidence]) -> str:
    return ", ".join(text for _, text in evidence[:3]) or "nothing"

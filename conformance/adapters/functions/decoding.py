"""Decoders that take the model: greedy decoding and beam search, run on a model that says what a claim asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.functions.arguments import PAD, Arguments, read
from conformance.adapters.functions.roles import MODEL
from conformance.adapters.functions.sampling import drawn
from conformance.adapters.functions.scripted import ANSWERS, Scripted
from conformance.adapters.functions.subjects import Served, constants, noise
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.protocol import NotProvided

EOS = r"(.*_)?(eos|end|stop)(_?(id|idx|index|token|token_id|symbol|tok|of_sentence))?"
START = r"(.*_)?(bos|sos|start)(_?(id|idx|index|token|token_id|symbol|tok))?"
WORDS = {
    "model": MODEL,
    "source": r"src|source|(src|source|encoder)_(ids|seq|tokens?|input(_ids)?)",
    "source_mask": r"(src|source|encoder)_(padding_)?mask|mask|src_key_padding_mask|e_mask",
    "start": START,
    "eos": EOS,
    "pad": PAD,
    "ids": r"idx|ids|(input|prompt|start|context)_?(ids|tokens)?|tokens?|x|prefix|inp(uts?)?|seq|text",
    "new": (
        r"(max_?|n_?|num_?)?(new|gen(erate(d)?)?|generation)(_?(tokens|len(gth)?|steps|words))?|"
        r"(n_|num_|max_)?(steps|words|tokens)|n"
    ),
    "total": r"max_?(seq_?|output_?|decode_?|tgt_?|target_?)?len(gth)?|length|max_t|limit|seq_len",
    "temperature": r"temp(erature)?|tau",
    "top_k": r"top_?k",
    "top_p": r"top_?p|nucleus(_p)?",
    "sample": r"do_sample|sampl(e|ing)",
    "greedy": r"greedy|deterministic",
    "beams": r"beams?(_?(size|width|num|k))?|(num|n)_beams|k|width|b",
    "penalty": r"length_?(penalty|alpha|norm)|alpha|lp|len_penalty",
    "context": r"block_size|context_(len(gth)?|size)|max_context",
    "vocab": r"(tgt_)?vocab(_size)?|n_vocab",
}
NEVER = -1e4
"""The logit of a word that only the function's own tokens take: it is never chosen."""
V, LIMIT = 8, 6


@dataclass(frozen=True)
class Decoder:
    """How a decoder is called. options: what makes it greedy. total: its limit counts the prompt; extra: tokens that it
    writes beside its limit. own: its tokens eos, pad and start, where it does not take them. batches: it takes more
    than one text. returns_prompt: its answer begins with the prompt.
    """

    function: Callable[..., Any]
    arguments: Arguments
    answer: str = ANSWERS[0]
    sequence_first: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    total: bool = False
    own: tuple[tuple[str, int], ...] = ()
    batches: bool = True
    returns_prompt: bool = True

    def takes(self, meaning: str) -> bool:
        return self.arguments.has(meaning)

    def has(self, meaning: str) -> bool:
        return self.takes(meaning) or meaning in dict(self.own)

    def run(self, next_logits: Callable[[Tensor], Tensor], ids: Tensor, limit: int, **tokens: Any) -> Tensor:
        """(B, T + new) of the prompt and what it wrote, in the function's own tokens."""
        model = Scripted(next_logits, self.answer, self.sequence_first).eval()
        length = limit + ids.shape[1] if self.total else limit
        source = torch.arange(3 * len(ids)).reshape(len(ids), 3) + 2
        values: dict[str, Any] = {
            "model": model,
            "ids": ids.t() if self.sequence_first else ids,
            "source": source.t() if self.sequence_first else source,
            "source_mask": torch.ones(len(ids), 1, 3, dtype=torch.bool),
            "new": length,
            "total": length,
            "start": int(ids[0, 0]),
            "context": 1 << 12,
            **dict(self.options),
            **{name: token for name, token in tokens.items() if token is not None},
        }
        if self.takes("eos") and tokens.get("eos") is None and not self._has_default("eos"):
            values["eos"] = -1
        made = self.arguments.call(self.function, **values)
        made = made[0] if isinstance(made, tuple) else made
        text = torch.as_tensor(made)
        if text.is_floating_point():
            raise TypeError("it returns no tokens")
        text = text[None] if text.ndim == 1 else text.t() if self.sequence_first else text
        if not self.returns_prompt:
            text = torch.cat([ids, text], 1)
        return text

    def _has_default(self, meaning: str) -> bool:
        name = self.arguments.parameter_of[meaning]
        return inspect.signature(self.function).parameters[name].default is not inspect.Parameter.empty


def resolve(function: Callable[..., Any]) -> list[Served]:
    """The function as greedy_decode or beam_search. Raises Unresolved when it runs on no model that is known."""
    role = "beam_search" if "beam" in function.__name__.lower() else "greedy_decode"
    arguments = read(function, WORDS, ("model", "ids"))
    own = {
        m: v
        for m, p in (("eos", EOS), ("pad", PAD), ("start", START))
        if not arguments.has(m)
        for v in _own(function, p)
    }
    first = Decoder(function, arguments, own=tuple(own.items()))
    reasons: list[str] = []
    ran: list[tuple[Decoder, bool]] = []
    tried = product(ANSWERS, (False, True), _greedy_options(arguments, role))
    for answer, sequence_first, options in tried:
        decoder = replace(first, answer=answer, sequence_first=sequence_first, options=options)
        try:
            decoder, greedy = _measured(decoder)
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
            continue
        ran.append((decoder, greedy))
        if greedy:
            break
    if not ran:
        raise Unresolved(f"{arguments.name} does not run on a model that returns logits: {reasons[0]}")
    decoder, greedy = ran[-1] if ran[-1][1] else ran[0]
    facts = [
        Fact("model", f"returns {decoder.answer}{', texts (T, B)' if decoder.sequence_first else ''}", "it runs so"),
        Fact(
            "limit", "counts the prompt" if decoder.total else "counts the new tokens", "what a model without end gives"
        ),
    ]
    if decoder.options:
        shown = ", ".join(f"{arguments.parameter_of[name]}={value}" for name, value in decoder.options)
        facts.append(Fact("greedy", shown, "it takes the most probable token so", not greedy))
    facts += [Fact(name, token, "a constant of its file") for name, token in decoder.own]
    return [Served(role, partial(_make, role, decoder), facts, greedy)]


def _own(function: Callable[..., Any], pattern: str) -> list[int]:
    return list(constants(function, pattern).values())[:1]


def _greedy_options(arguments: Arguments, role: str) -> Iterator[tuple[tuple[str, Any], ...]]:
    """What may make a decoder greedy, of the options that it has."""
    flags = {"sample": False, "greedy": True, "beams": 1}
    always = {name: value for name, value in flags.items() if arguments.has(name)}
    choices: list[dict[str, Any]] = [{}]
    if arguments.has("top_k"):
        choices.insert(0, {"top_k": 1, "temperature": 1.0})
    if arguments.has("temperature"):
        choices.insert(0, {"temperature": 0.0})
    for choice in choices:
        yield tuple({**always, **{k: v for k, v in choice.items() if arguments.has(k)}}.items())


def _measured(decoder: Decoder) -> tuple[Decoder, bool]:
    """What its limit counts, whether it returns the prompt and takes batches; and whether it is greedy."""
    table = noise(V + 8, V + 8, seed=3)
    for name, token in decoder.own:
        if name == "eos":
            table[:, token] = NEVER
    table[:, max(dict(decoder.own).get("eos", 0), V) + 1 :] = NEVER

    def next_logits(text: Tensor) -> Tensor:
        return table[text[:, -1].clamp(0, len(table) - 1)]

    prompt = torch.tensor([[4, 5]]) if decoder.takes("ids") else torch.tensor([[dict(decoder.own).get("start", 4)]])
    pad = {"pad": 0} if decoder.takes("pad") else {}
    with drawn() as draws:
        text = decoder.run(next_logits, prompt, LIMIT, **pad)
    if draws and not decoder.options:
        raise Unresolved("it draws its tokens, and no option makes it greedy")
    start = prompt.shape[1]
    if text.shape[1] < start or not torch.equal(text[:, :start], prompt):
        decoder = replace(decoder, returns_prompt=False)
    else:
        decoder = replace(decoder, total=abs(text.shape[1] - LIMIT) < abs(text.shape[1] - LIMIT - start))
    expected = prompt
    for _ in range(LIMIT):
        expected = torch.cat([expected, next_logits(expected).argmax(-1, keepdim=True)], 1)
    text = decoder.run(next_logits, prompt, LIMIT, **pad)
    common = min(text.shape[1], expected.shape[1])
    greedy = common > start and torch.equal(text[:, :common], expected[:, :common])
    try:
        both = decoder.run(next_logits, prompt.repeat(2, 1), LIMIT, **pad)
        decoder = replace(decoder, batches=len(both) == 2)
    except Exception:  # one text at a time
        decoder = replace(decoder, batches=False)
    return decoder, greedy


# --- serving --------------------------------------------------------------------------------------


def _make(role: str, decoder: Decoder, config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
    """Raises NotProvided for what the decoder has not."""
    name, eos, pad = decoder.arguments.name, config["eos_id"], config.get("pad_id", 0)
    if eos is not None and not decoder.has("eos"):
        raise NotProvided(f"{name} knows no end of a text")
    options = dict(decoder.options)
    if role == "beam_search":
        if not decoder.takes("beams"):
            raise NotProvided(f"{name} has no number of beams")
        options["beams"] = config["beams"]
        if config["length_penalty"] and not decoder.takes("penalty"):
            raise NotProvided(f"{name} has no length penalty")
        options["penalty"] = config["length_penalty"]
        options = {key: value for key, value in options.items() if decoder.takes(key)}
    running = replace(decoder, options=tuple(options.items()))

    def compute(training: bool, next_logits: Callable[[Any], Any], ids: Tensor) -> dict[str, Any]:
        if len(ids) > 1 and eos is not None and not (decoder.batches and decoder.has("pad")):
            raise NotProvided(f"{name} has no padding for texts that end early")
        if len(ids) > 1 and not decoder.batches:  # without an end they are equally long
            return {"out": torch.cat([compute(training, next_logits, row[None])["out"] for row in ids])}
        names = Names(decoder, int(torch.as_tensor(next_logits(ids.numpy())).shape[-1]), eos, pad)
        if hasattr(next_logits, "lengths"):
            next_logits.lengths.clear()
        prompt = names.forth[ids]
        given = (
            prompt
            if decoder.takes("ids")
            else torch.full((len(ids), 1), dict(decoder.own).get("start", int(prompt[0, 0])))
        )

        def whole(text: Tensor) -> Tensor:
            """The text as the claim knows it: a decoder that takes one start token is told no other prompt."""
            begins = text.shape[1] > 0 and torch.equal(text[:, :1], given[:, :1])
            return torch.cat([prompt, text[:, 1:]], 1) if begins and not decoder.takes("ids") else text

        def asked(text: Tensor) -> Tensor:
            return names.logits(torch.as_tensor(next_logits(names.back(whole(text)).numpy())))

        tokens: dict[str, Any] = {"eos": None if eos is None else int(names.forth[eos])}
        if decoder.takes("pad"):
            tokens["pad"] = int(names.forth[pad])
        text = running.run(asked, given, config["max_new_tokens"], **tokens)
        return {"out": names.back(whole(text))}

    return compute


class Names:
    """The claim's tokens in the decoder's numbers: its end and its padding are constants of its file.

    Words that only the decoder has are never probable.
    """

    def __init__(self, decoder: Decoder, words: int, eos: int | None, pad: int) -> None:
        own = {name: number for name, number in decoder.own if name != "start"}
        fixed: dict[int, int] = {}
        if "eos" in own and eos is not None:
            fixed[eos] = own["eos"]
        if "pad" in own and own["pad"] not in fixed.values():
            fixed.setdefault(pad, own["pad"])
        free = (number for number in range(words + 8 + max(own.values(), default=0)) if number not in own.values())
        self.forth = torch.tensor([fixed[w] if w in fixed else next(free) for w in range(words)])
        self.size = max(int(self.forth.max()), *own.values(), *dict(decoder.own).values()) + 1 if decoder.own else words
        self._back = torch.full((self.size,), pad)
        self._back[self.forth] = torch.arange(words)

    def back(self, text: Tensor) -> Tensor:
        return self._back[text]

    def logits(self, given: Tensor) -> Tensor:
        logits = torch.full((len(given), self.size), NEVER, dtype=torch.float64)
        logits[:, self.forth] = given.double()
        return logits.float()

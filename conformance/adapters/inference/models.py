"""What is found out about whole models, from token ids to logits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from conformance.adapters.inference import parameters as p
from conformance.adapters.inference.calls import Call, output_of
from conformance.adapters.inference.facts import Unresolved
from conformance.adapters.inference.fit import fit
from conformance.adapters.inference.parts import VOCABULARY
from conformance.adapters.inference.probes import TK, TQ, B, randomise
from conformance.adapters.inference.resolution import Resolution
from conformance.adapters.inference.stacks import decoder_lm_layouts, encoder_decoder_layouts


def resolve_language_model(found: Resolution, module: nn.Module) -> None:
    """Whether the head is tied, which pairing of RoPE, the eps of the norms, and whether the length is limited."""
    cached = found.role == "cached_decoder_lm"
    if "tied" in found.constructor.known:
        found.settings["tied"] = False
        module = found.make(found.settings)
    layouts = list(decoder_lm_layouts(module, found.settings))
    if "tied" not in found.constructor.known:
        found.settings["tied"] = found.fixed["tied"] = not any("lm_head.weight" in layout for _, layout in layouts)
        found.say("head", "tied" if found.fixed["tied"] else "of its own", "whether it is the token table's parameter")
    found.probe_eps(module)
    ids = np.random.default_rng(1).integers(0, found.settings["vocab"], (B, TQ))
    inputs: dict[str, Any] = {"ids": ids, "chunks": _chunks(found, layouts, ids)} if cached else {"ids": ids}
    fits = fit(found, layouts, inputs)
    if not fits and found.conventions.call.masks and _sees_the_future(found, inputs):
        raise _masked_by_its_caller(found)
    if not cached and _has_no_limit(found):
        found.attributes["longest"] = "any"
        found.say("longest input", "any", "max_len + 1 tokens pass, and nothing that it holds has max_len rows")


def _has_no_limit(found: Resolution) -> bool:
    """Whether a model takes more than max_len tokens and holds no table of that many rows, or has no such option."""
    if "max_len" not in found.constructor.known:
        return True
    limit = found.settings["max_len"]
    try:
        subject = found.subject(found.settings, found.conventions)
        subject(ids=np.ones((1, limit + 1), np.int64))
    except Exception:  # it has a limit, or is another model
        return False
    return not any(limit in tensor.shape for tensor in (*subject.module.parameters(), *subject.module.buffers()))


def _chunks(found: Resolution, layouts: list[tuple[str, p.Layout]], ids: np.ndarray) -> tuple[int, ...]:
    """A prompt and two steps, in which positions that start again show; steps alone where a prompt is refused."""
    chunks = (TQ - 2, 1, 1)
    subject = found.subject(found.settings, found.conventions.with_layout(layouts[0][1]))
    try:
        subject(ids=ids, chunks=chunks)
    except Exception:
        return (1,) * TQ
    return chunks


def looks_ahead(model: nn.Module) -> bool:
    """Whether a model from tokens to logits lets the last token change what is said before it."""
    model.eval()
    randomise(model)
    ids = torch.arange(2 * TQ).reshape(2, TQ) % VOCABULARY
    changed = torch.cat([ids[:, :-1], ids[:, :1]], 1)
    try:
        call = Call(type(model), "decoder_lm")
        with torch.no_grad():
            before, after = (output_of(call(model, {"ids": x}), (2, TQ, VOCABULARY))[:, :-1] for x in (ids, changed))
    except Exception:  # it is no such model
        return False
    return float((after - before).abs().max()) > 1e-6


def resolve_encoder_decoder(found: Resolution, module: nn.Module) -> None:
    """Which token is the padding."""
    rng = np.random.default_rng(1)
    sides = {"src": (found.settings["src_vocab"], TK), "tgt": (found.settings["tgt_vocab"], TQ)}
    ids = {name: rng.integers(2, vocab, (B, length)) for name, (vocab, length) in sides.items()}
    ids["src"][0, -2:] = ids["tgt"][1, -1:] = found.settings["pad_id"]
    if not fit(found, encoder_decoder_layouts(module, found.settings), ids) and found.conventions.call.masks:
        raise _masked_by_its_caller(found)


def _sees_the_future(found: Resolution, inputs: dict[str, Any]) -> bool:
    """Whether the last token changes what is said before it; a model that cannot be run counts as one."""
    last = inputs["ids"].copy()
    last[:, -1] = (last[:, -1] + 1) % found.settings["vocab"]
    subject = found.subject(found.settings, found.conventions, random=True)
    try:
        before, after = (subject(**{**inputs, "ids": ids})["out"][:, :-1] for ids in (inputs["ids"], last))
    except Exception:
        return True
    return float(np.abs(after - before).max()) > 1e-6


def _masked_by_its_caller(found: Resolution) -> Unresolved:
    """The roles of whole models hide padding and future by themselves: others would fail for what they leave to it."""
    call = found.conventions.call
    inputs = " and ".join(name for meaning, name in call.names.items() if meaning in ("ids", "src", "tgt"))
    return Unresolved(
        f"without {', '.join(call.masks)} {found.cls.__name__} hides not what the role hides: write a subclass whose "
        f"forward takes {inputs} alone and makes the masks"
    )

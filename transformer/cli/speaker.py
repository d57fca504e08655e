"""What the commands that use a model are given: a model with its words, of a run of ours or of a published folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import minigrad as mg
from minigrad import Tensor
from minigrad.kernels import usable
from minigrad.ops.stored import KINDS
from transformer import checkpoints, data, finetuning, tasks
from transformer.cli.settings import Settings, collect
from transformer.data import BEGIN, END, PAD, Tokenizer
from transformer.data.published import Words
from transformer.decoding import beam_decode, greedy_decode, translator
from transformer.lora import adapt, merge
from transformer.models.base import CausalLM, Seq2Seq
from transformer.quantization import quantize
from transformer.training import checkpoint

SPECIAL = {PAD: "<pad>", BEGIN: "<begin>", END: "<end>"}
STORED = ("float32", *KINDS)  # what weights are stored as, the usual one first
LONGEST = 200  # new tokens of a published model, unless more are asked for
CONTINUES, ANSWERS = "continues texts: use generate", "answers: use translate"
HEARS = "hears frames of sound, and reads no text: use inspect, or `transformer.decoding.translator` in Python"


@dataclass
class Speaker:
    """A model that reads and writes words.

    encode: a text's ids, with the tokens that go around one (for a prompt: that go before it). answer: ids of the
    answers to texts, by so many beams, of at most so many tokens (as many as fit where None). begin: with what an
    answer begins; ends: what ends a text. room: how many tokens are written unless it is said. chat: a prompt out of a
    message.
    """

    path: Path
    model: Any
    purpose: str
    vocab: int
    encode: Callable[[str], list[int]]
    decode: Callable[[Iterable[int]], str]
    spelling: Callable[[int], str]
    answer: Callable[[Sequence[str], int, int | None], list[list[int]]] | None = None
    begin: int = 0
    ends: Sequence[int] = field(default_factory=tuple)
    room: int | None = None
    words: Words | None = None

    def read(self, text: str) -> Tensor:
        """The text as ids ``(1, T)``, where the model is.

        Raises ValueError for an empty one, for unknown ids, and where the model reads no text.
        """
        if self.purpose == HEARS:
            raise ValueError(f"{self.path} {HEARS}")
        ids = self.encode(text)
        if not ids:
            raise ValueError("the text is empty: give at least one character")
        if max(ids) >= self.vocab:
            raise ValueError(
                f"{self.path}: its tokenizer gives the token {max(ids)}, and the model has {self.vocab}: they do not "
                "belong together"
            )
        return mg.tensor([ids], device=tasks.device_of(self.model))

    def must(self, purpose: str, what: str) -> None:
        """Raise ValueError unless the model does what the command asks for."""
        if self.purpose != purpose:
            raise ValueError(f"{self.path} does not {what}, it {self.purpose}")


def open_speaker(path: Path, device: str, weights: str = STORED[0]) -> Speaker:
    """The model of a run, or of a folder with config.json, its weights stored as one of STORED. Raises ValueError where
    it or the device cannot be used."""
    device = usable(device)
    fewer = None if weights == STORED[0] else weights
    if fewer is not None and device != "cpu":
        raise ValueError(f"--weights {fewer} are read on the CPU only: leave out --device {device}, or --weights")
    if (path / checkpoints.CONFIG).is_file():
        return _published(path, path, checkpoints.load(path, weights=fewer), device)
    if path.is_dir() and not (path / checkpoint.FILE).is_file():
        raise FileNotFoundError(
            f"{path} holds no model: neither {checkpoint.FILE}, which `python -m transformer train` writes, nor "
            f"{checkpoints.CONFIG} of a published one"
        )
    speaker = _trained(path, device)
    if fewer is not None:
        quantize(speaker.model, fewer)
    return speaker


# --- runs -----------------------------------------------------------------------------------------


def settings_of(notes: dict, path: Path) -> Settings:
    """The settings that a checkpoint notes. Raises ValueError for one that `train` did not write."""
    found = notes.get("settings")
    if not isinstance(found, dict) or "tokenizer" not in notes:
        raise ValueError(f"{path} does not say its settings: it was not written by `python -m transformer train`")
    return collect(found.get("task"), found, {})


def _trained(path: Path, device: str) -> Speaker:
    notes = checkpoint.notes(path)
    settings = settings_of(notes, path)
    published = finetuning.folder_of(path)
    if published is not None:
        return _published(path, published, finetuning.trained(path, settings), device)
    settings = replace(settings, data="")  # a model is used without the text that it learned
    task = tasks.make(settings.task, settings, settings.seed, Tokenizer.from_json(notes["tokenizer"]))
    adapt(task.model, settings)
    task.model.load_state_dict(checkpoint.model_weights(path))
    merge(task.model)
    task.model.to(device)
    words = task.tokenizer

    def spelling(token: int) -> str:
        """What a token spells; the bytes of one that is only a part of a character."""
        spelled = words.spelling.get(token, b"")
        try:
            return SPECIAL.get(token) or spelled.decode()
        except UnicodeDecodeError:
            return spelled.hex(" ")

    found = Speaker(path, task.model, task.purpose, words.vocab, words.encode, words.decode, spelling)
    if isinstance(task, tasks.PairsTask):
        found.answer, found.begin, found.ends = task.answer_ids, BEGIN, (END,)
    return found


# --- published folders ----------------------------------------------------------------------------


def _published(path: Path, published: Path, model: Any, device: str) -> Speaker:
    """The model at `path`, with the words of the folder `published`."""
    if device != "cpu":
        model.to(device)
    words = Words(published)
    if isinstance(model, CausalLM):
        purpose = CONTINUES
    elif isinstance(model, Seq2Seq):
        purpose = ANSWERS if model.reads_ids else HEARS
    else:
        purpose = "reads texts and writes none: use attention or inspect"
    found = Speaker(path, model, purpose, model.config.vocab_size, words.encode, words.decode, words.spelling)
    found.words, found.room, settings = words, LONGEST, model.config.extra
    named = checkpoints.generation(published).get("eos_token_id", settings.get("eos_token_id"))
    ends = named if isinstance(named, list) else [words.id("eos_token") if named is None else named]
    if not all(end is None or type(end) is int for end in ends):
        raise ValueError(f"{published}: eos_token_id must be a token's id or a list of them, got {named!r}")
    found.ends = [end for end in ends if end is not None]
    if purpose == ANSWERS:
        begin = settings.get("decoder_start_token_id", model.config.pad_token_id)
        if type(begin) is not int or not 0 <= begin < model.config.vocab_size:
            raise ValueError(
                f"{path}: config.json does not say with which of its {model.config.vocab_size} tokens answers begin "
                f"(decoder_start_token_id), got {begin!r}"
            )
        found.begin = begin
        found.answer = lambda texts, beams, longest: _answers(found, texts, beams, longest)
    return found


def _answers(speaker: Speaker, texts: Sequence[str], beams: int, longest: int | None) -> list[list[int]]:
    """The answers to texts one by one, from the first token on up to the end."""
    found = []
    room = min(speaker.model.max_len, LONGEST) if longest is None else longest
    for text in texts:
        begin = mg.tensor([[speaker.begin]], device=tasks.device_of(speaker.model))
        next_logits = translator(speaker.model, speaker.read(text), speaker.model.new_cache(room + 1))
        end = speaker.ends[0] if speaker.ends else None
        if beams == 1:
            written = greedy_decode(next_logits, begin, room, end, stop=[[each] for each in speaker.ends[1:]])
        else:
            written = beam_decode(next_logits, begin, room, beams, 1.0, end)
        found.append(written.tolist()[0])
    return found


def begun(speaker: Speaker, text: str) -> tuple[list[Tensor], list[str], list[str]]:
    """What the model is called with to see it read `text` (and write its answer), and both as labels."""
    source = speaker.read(text)
    if speaker.answer is None:
        labels = [speaker.spelling(token) for token in source.tolist()[0]]
        return [source], labels, labels
    (answer,) = speaker.answer([text], 1, None)
    kept = [token for token in answer[1:] if token not in speaker.ends and token != PAD]
    written = [speaker.begin, *kept][: speaker.model.max_len]
    ids = data.pad_batch([written]).to(source.device)
    read, wrote = ([speaker.spelling(token) for token in each.tolist()[0]] for each in (source, ids))
    return [source, ids], read, wrote

"""Folders as they are published: a small model of a family with real tokenizer files, trained on the plays here."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

tokenizers = pytest.importorskip("tokenizers")

from tokenizers import decoders, models, pre_tokenizers, processors, trainers  # noqa: E402

import minigrad as mg  # noqa: E402
from transformer import data  # noqa: E402
from transformer.checkpoints import FAMILIES, save  # noqa: E402

TEXT = data.shakespeare()[:20_000]
LINES = TEXT.splitlines()
SIZE = 320
CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def pairs_of_bytes(special):
    found = tokenizers.Tokenizer(models.BPE())
    found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    found.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=SIZE, special_tokens=special,
                                                         initial_alphabet=alphabet))  # fmt: skip
    return found


def protobuf(number, value):
    """One field of a message: a whole number, a float or bytes."""

    def varint(n):
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def sentencepiece_model(specials=("<pad>", "</s>", "<unk>")):
    """The bytes of a unigram model, and its pieces in order."""
    found = tokenizers.Tokenizer(models.Unigram())
    found.pre_tokenizer = pre_tokenizers.Metaspace()
    found.train_from_iterator(
        LINES, trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", special_tokens=["<unk>"])
    )
    pieces = [(text, score) for text, score in json.loads(found.to_str())["model"]["vocab"] if text != "<unk>"]
    kinds = [(text, 0.0, 2 if text == "<unk>" else 3) for text in specials] + [(t, s, 1) for t, s in pieces]
    body = b"".join(
        protobuf(1, protobuf(1, text.encode()) + protobuf(2, float(score)) + protobuf(3, kind))
        for text, score, kind in kinds
    )
    return body + protobuf(2, protobuf(3, 1)), [text for text, _, _ in kinds]


def model_files(family, folder, **settings):
    kind = FAMILIES[family]
    mg.manual_seed(3)
    model = kind(kind.config_class.from_dict(settings)).eval()
    rng = np.random.default_rng(3)
    with mg.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(mg.tensor((0.3 * rng.standard_normal(parameter.shape)).astype(np.float32)))
    save(model, folder)


def write(folder, name, content):
    (folder / name).write_text(json.dumps(content))


ROTARY = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64}  # fmt: skip
SEQ2SEQ = {"d_model": 24, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
           "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
           "max_position_embeddings": 40}  # fmt: skip


def gpt2(folder):
    found = pairs_of_bytes(["<|endoftext|>"])
    found.save(str(folder / "tokenizer.json"))
    model_files("gpt2", folder, vocab_size=SIZE, n_positions=40, n_embd=24, n_layer=2, n_head=4, eos_token_id=0)


END = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False, "rstrip": False,
       "single_word": False, "special": True}  # fmt: skip


def llama(folder):
    """tokenizer.json that puts <s> first, and a template of conversations."""
    found = pairs_of_bytes(["<s>", "</s>"])
    found.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    found.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": END, "chat_template": CHAT}
    write(folder, "tokenizer_config.json", config)
    model_files("llama", folder, vocab_size=SIZE, **ROTARY, eos_token_id=1)
    write(folder, "generation_config.json", {"eos_token_id": [1, 5]})


def mixtral(folder):
    """vocab.json with merges.txt."""
    pairs_of_bytes(["<s>", "</s>"]).model.save(str(folder))
    write(folder, "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>"})
    model_files("mixtral", folder, vocab_size=SIZE, **ROTARY, num_local_experts=3, eos_token_id=1)


def qwen2(folder):
    """tokenizer.json without a first token, and the template of conversations as a file of its own."""
    pairs_of_bytes(["<|endoftext|>", "<|im_end|>"]).save(str(folder / "tokenizer.json"))
    write(folder, "tokenizer_config.json", {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    (folder / "chat_template.jinja").write_text(CHAT)
    model_files("qwen2", folder, vocab_size=SIZE, **ROTARY, eos_token_id=1)


def gpt_neox(folder):
    pairs_of_bytes(["<|endoftext|>"]).save(str(folder / "tokenizer.json"))
    sizes = {name: value for name, value in ROTARY.items() if name != "num_key_value_heads"}
    model_files("gpt_neox", folder, vocab_size=SIZE, **{**sizes, "hidden_size": 32}, eos_token_id=0)


def opt(folder):
    """vocab.json with merges.txt, and the end token in front of a text."""
    pairs_of_bytes(["<pad>", "</s>"]).model.save(str(folder))
    write(folder, "special_tokens_map.json", {"bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"})
    model_files("opt", folder, vocab_size=SIZE, hidden_size=24, ffn_dim=20, num_hidden_layers=2, num_attention_heads=4,
                max_position_embeddings=40, pad_token_id=0, eos_token_id=1)  # fmt: skip


def gemma(folder):
    """A sentencepiece model, and a first token."""
    content, pieces = sentencepiece_model(("<pad>", "<eos>", "<bos>", "<unk>"))
    (folder / "tokenizer.model").write_bytes(content)
    write(folder, "tokenizer_config.json", {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"})
    model_files("gemma", folder, vocab_size=len(pieces), **ROTARY, head_dim=6, pad_token_id=0, eos_token_id=1)


def bart(folder):
    pairs_of_bytes(["<s>", "<pad>", "</s>"]).model.save(str(folder))
    write(folder, "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"})
    model_files("bart", folder, vocab_size=SIZE, **SEQ2SEQ, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2)


def t5(folder):
    """A sentencepiece model, and a vocabulary of the model that is larger than the tokenizer's, as T5 has it."""
    content, _ = sentencepiece_model()
    (folder / "spiece.model").write_bytes(content)
    write(folder, "tokenizer_config.json", {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})
    model_files("t5", folder, vocab_size=256, d_model=24, d_kv=6, d_ff=20, num_layers=1, num_heads=4, eos_token_id=1,
                decoder_start_token_id=0)  # fmt: skip


def marian(folder):
    """Two sentencepiece models, whose pieces have their numbers in vocab.json."""
    content, pieces = sentencepiece_model(("</s>", "<unk>"))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(content)
    numbers = {piece: i for i, piece in enumerate([*reversed(pieces), "<pad>"])}
    write(folder, "vocab.json", numbers)
    size = len(numbers)
    model_files("marian", folder, vocab_size=size, **SEQ2SEQ, pad_token_id=size - 1, eos_token_id=numbers["</s>"],
                decoder_start_token_id=size - 1)  # fmt: skip


def bert(folder):
    found = tokenizers.BertWordPieceTokenizer()
    found.train_from_iterator(LINES, vocab_size=SIZE, show_progress=False)
    found.save_model(str(folder))
    model_files("bert", folder, vocab_size=SIZE, hidden_size=24, num_hidden_layers=1, num_attention_heads=4,
                intermediate_size=16, max_position_embeddings=40)  # fmt: skip


MAKE = {each.__name__: each for each in (gpt2, llama, mixtral, qwen2, gpt_neox, opt, gemma, bart, t5, marian, bert)}
CONTINUE = ("gpt2", "llama", "mixtral", "qwen2", "gpt_neox", "opt", "gemma")
ANSWER = ("bart", "t5", "marian")


def make(parent):
    """All of them, in folders of their names."""
    for name, build in MAKE.items():
        (parent / name).mkdir()
        build(parent / name)
    return parent

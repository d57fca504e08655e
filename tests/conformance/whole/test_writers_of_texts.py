"""Functions that write behind a text, with a tokenizer or a vocabulary of the suite: right and wrong ones."""

from zlib import crc32

import pytest

torch = pytest.importorskip("torch")

import conformance.checks  # noqa: F401, E402
from conformance.adapters.whole.spelling import TEXT, Spelling, TornApart, is_handed  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import GPT, TRANSLATOR  # noqa: E402
from conformance.mutated import pointed_at  # noqa: E402
from conformance.runner import run_check  # noqa: E402

BEST, COUNT, TEMPERATURE, END = (
    "generate-takes-the-best-token",
    "generate-writes-as-many-tokens-as-asked",
    "generate-divides-logits-by-temperature",
    "generate-stops-at-the-end-token",
)

STYLES = {
    # a tokenizer with tensors, as those of transformers have it
    "tensors": (
        GPT,
        "tokenizer, prompt, max_new_tokens=20, temperature=1.0",
        'ids = tokenizer(prompt, return_tensors="pt").input_ids\n'
        "    for _ in range(max_new_tokens):\n"
        "        logits = model(ids)[0][:, -1] / temperature\n"
        "        chosen = torch.multinomial(logits.softmax(-1), 1)\n"
        "        if chosen.item() == tokenizer.eos_token_id:\n            break\n"
        "        ids = torch.cat([ids, chosen], 1)\n"
        "    return tokenizer.decode(ids[0], skip_special_tokens=True)",
        [TEMPERATURE, COUNT, END],
        (("/ temperature", "* temperature"), [TEMPERATURE]),
    ),
    # a prompt first, then lists
    "lists": (
        GPT,
        "prompt, tok, max_new_tokens=20",
        "ids = tok.encode(prompt)\n"
        "    for _ in range(max_new_tokens):\n"
        "        ids.append(model(torch.tensor([ids]))[0][0, -1].argmax().item())\n"
        "    return tok.decode(ids)",
        [BEST, COUNT],
        (("[0][0, -1]", "[0][0, -2]"), [BEST]),
    ),
    # two tables of letters
    "letters": (
        GPT,
        "stoi, itos, text, max_new_tokens=20",
        "ids = torch.tensor([[stoi[c] for c in text]])\n"
        "    for _ in range(max_new_tokens):\n"
        "        ids = torch.cat([ids, model(ids)[0][:, -1:].argmax(-1)], 1)\n"
        '    return "".join(itos[int(i)] for i in ids[0])',
        [BEST, COUNT],
        ((".argmax(-1)", ".argmin(-1)"), [BEST]),
    ),
    # letters that are looked for, behind an empty context
    "letters in a window": (
        GPT,
        "start_text, max_new_tokens, stoi, itos",
        "ids = torch.zeros(1, model.block_size, dtype=torch.long)\n"
        "    for c in start_text:\n"
        "        if c in stoi:\n            ids = torch.cat([ids[:, 1:], torch.tensor([[stoi[c]]])], 1)\n"
        "    written = list(start_text)\n"
        "    for _ in range(max_new_tokens):\n"
        "        chosen = torch.multinomial(model(ids)[0][:, -1].softmax(-1), 1)\n"
        "        written.append(itos[chosen.item()])\n"
        "        ids = torch.cat([ids[:, 1:], chosen], 1)\n"
        '    return "".join(written)',
        [BEST, COUNT],
        (("[:, -1].softmax", "[:, -2].softmax"), [BEST]),
    ),
    # two functions
    "functions": (
        GPT,
        "encode, decode, prompt, max_new_tokens=20",
        "ids = torch.tensor(encode(prompt))[None]\n"
        "    for _ in range(max_new_tokens - 1):\n"
        "        ids = torch.cat([ids, model(ids)[0][:, -1:].argmax(-1)], 1)\n"
        "    return decode(ids[0].tolist())",
        [BEST],
        (("[:, -1:]", "[:, :1]"), [BEST]),
    ),
    # two vocabularies, signs by their names, and only what was written
    "vocabularies": (
        TRANSLATOR,
        "sentence, src_vocab, tgt_vocab, max_len=10",
        "src = torch.tensor([[src_vocab[word] for word in sentence.split()]])\n"
        '    tgt = torch.tensor([[tgt_vocab["<sos>"]]])\n'
        "    for _ in range(max_len):\n"
        "        chosen = model(src, tgt)[:, -1:].argmax(-1)\n"
        '        if chosen.item() == tgt_vocab["<eos>"]:\n            break\n'
        "        tgt = torch.cat([tgt, chosen], 1)\n"
        '    return " ".join(tgt_vocab.lookup_tokens(tgt[0, 1:].tolist()))',
        [BEST, END],
        (("[:, -1:].argmax", "[:, :1].argmax"), [BEST]),
    ),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("is_right", [True, False])
def test_what_writes_behind_a_text_is_judged(style, is_right):
    specimen, parameters, body, kept, (edit, broken) = STYLES[style]
    assert edit[0] in body
    body = body if is_right else body.replace(*edit)
    source = f"{specimen.source}\n\n@torch.no_grad()\ndef complete_text(model, {parameters}):\n    {body}\n"
    source = source.replace("def generate(", "def _generate(").replace("def translate(", "def _translate(")
    source = source.replace("def beam_search(", "def _beam_search(").replace("def search_", "def _search_")
    implementation = pointed_at(specimen, source, f"texts_{crc32(f'{style}{is_right}'.encode())}.py")
    for claim in kept if is_right else broken:
        assert run_check(CHECKS[claim], implementation, "quick").verdict.name == ("PASS" if is_right else "FAIL"), claim


@pytest.mark.parametrize("in_letters", [True, False])
def test_a_text_is_its_tokens(in_letters):
    spelling = Spelling(30, in_letters, end=5)
    text = spelling.text([7, 0, 29, 7])
    assert spelling.tokens(text) == spelling.encode(text) == [7, 0, 29, 7]
    assert spelling.encode(text).ids == spelling(text).input_ids == spelling(spelling.tokenize(text)) == [7, 0, 29, 7]
    assert spelling(text, return_tensors="pt")["attention_mask"].shape == (1, 4)
    assert spelling.decode(torch.tensor([7, 5])) == spelling.decode([7]) == spelling[7]  # the end is no word of a text
    assert spelling.token_to_id("[EOS]") == spelling.eos_token_id == spelling.stoi["</s>"] == 5
    assert spelling.get("nothing") is None
    assert "nothing" not in spelling
    assert len(spelling) == spelling.vocab_size == 30
    with pytest.raises(TornApart, match="is a piece of a word"):
        _ = spelling[spelling.text([1, 2])]
    with pytest.raises(AttributeError, match="hands in has no merges"):
        _ = spelling.merges


def test_what_is_a_text_or_a_tokenizer_is_told_by_its_name():
    assert all(map(is_handed, ["tokenizer", "src_vocab", "stoi", "idx2word", "encode", "tok"]))
    assert not any(map(is_handed, ["tokens", "max_new_tokens", "encoder", "encoded", "ids"]))
    assert all(map(TEXT.fullmatch, ["prompt", "sentence", "text", "start_text", "src_sentence"]))
    assert not any(map(TEXT.fullmatch, ["ids", "tokens", "x"]))

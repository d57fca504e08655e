"""The commands on published folders, words in and words out; one sentence for each folder that cannot be used."""

import json
import math
import shutil

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from published_folders import ANSWER, CONTINUE, LINES, MAKE, make
from test_cli import said

import minigrad as mg
import transformer as tf
from minigrad import functional as F
from transformer.cli.speaker import open_speaker

SENTENCE = "Before we proceed any further, hear me speak."


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return make(tmp_path_factory.mktemp("published"))


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr("transformer.cli.speaker.LONGEST", 12)


@pytest.fixture
def spoiled(folders, tmp_path):
    """A copy of the folders, to be spoiled."""
    return shutil.copytree(folders, tmp_path / "copy")


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", MAKE)
def test_what_is_read_comes_back(folders, family):
    words = tf.AutoTokenizer.from_pretrained(folders / family)
    for line in [SENTENCE, *LINES[:20]]:
        expected = line.lower() if family == "bert" else line
        got = words.decode(words.encode(line))
        assert "".join(got.split()) == "".join(expected.split())
        if family in CONTINUE:
            assert got == line
    around = {
        "llama": (0, None),
        "mixtral": (0, None),
        "opt": (1, None),
        "gemma": (2, None),
        "bart": (0, 2),
        "t5": (None, 1),
        "marian": (None, -2),
    }
    first, last = around.get(family, (None, None))
    ids, bare = words.encode(SENTENCE), words.encode(SENTENCE, special=family == "marian")
    if first is not None:
        assert (ids[0], words.encode(SENTENCE, special=False)[0] == first) == (first, False)
    if family in ("bart", "t5"):
        assert (ids[-1], bare[-1] == last) == (last, False)


def test_a_sentencepiece_model_cuts_as_its_own_library_does(tmp_path):
    library = pytest.importorskip("sentencepiece")
    from transformer.data import sentencepiece

    (tmp_path / "text.txt").write_text("\n".join(LINES[:400]))
    for kind, more in (
        ("unigram", {}),
        ("bpe", {}),
        ("bpe", {"byte_fallback": True}),
        ("unigram", {"byte_fallback": True}),
    ):
        library.SentencePieceTrainer.train(
            input=str(tmp_path / "text.txt"), model_prefix=str(tmp_path / "m"), model_type=kind, minloglevel=2,
            vocab_size=450 if more else 200, user_defined_symbols=["<tag>"], **more,
        )  # fmt: skip
        theirs = library.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
        ours = sentencepiece.read(tmp_path / "m.model")
        for line in [*LINES[:200], "two  spaces ", "ﬁ ligature", "a<tag>b", "猫 x"]:
            assert ours.encode(line).ids == theirs.encode(line), (kind, more, line)
            if theirs.unk_id() not in theirs.encode(line):  # which it shows as two question marks
                assert ours.decode(theirs.encode(line)) == theirs.decode(theirs.encode(line)), line


def test_a_conversation_becomes_a_prompt(folders):
    words = tf.AutoTokenizer.from_pretrained(folders / "llama")
    prompt = words.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    assert prompt == "<s>[system] Be brief.\n[user] Hello\n[assistant]"
    with pytest.raises(ValueError, match="no such role"):
        words.chat([{"role": "bad", "content": ""}])


TEMPLATE = """{%- set found = namespace(text="") %}
{%- for m in messages %}
    {%- if loop.index > 2 %}{% break %}{% endif %}
    {{- m.role | upper + ": " + m.content | trim + eos_token }}
{% endfor %}
{{- messages | tojson }}{{ strftime_now("%Y") }}
{% if add_generation_prompt %}ASSISTANT:{% endif %}"""


@pytest.mark.slow
def test_a_template_gives_what_the_other_library_makes_of_it(spoiled):
    transformers = pytest.importorskip("transformers")
    folder = spoiled / "llama"
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    said = [{"role": role, "content": f" <{role}> & 猫 "} for role in ("system", "user", "assistant")]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    expected = theirs.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert tf.AutoTokenizer.from_pretrained(folder).chat(said) == expected


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{{ messages[9].content.x }}", "{{ ().__class__.__mro__ }}",
                                      "{% for i in range(10**9) %}x{% endfor %}", "{% for %}"])  # fmt: skip
def test_a_template_that_breaks_is_one_sentence(spoiled, template):
    folder = spoiled / "llama"
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ValueError, match="its chat template cannot be used") as refused:
        tf.AutoTokenizer.from_pretrained(folder).chat([{"role": "user", "content": "Hello"}])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", [*CONTINUE, *ANSWER])
def test_the_other_library_reads_the_same_ids(folders, family):
    transformers = pytest.importorskip("transformers")
    if family in ("t5", "marian"):
        pytest.importorskip("google.protobuf")
    if family in ("mixtral", "opt", "gemma"):  # whose classes there read these files otherwise
        return
    theirs = transformers.AutoTokenizer.from_pretrained(folders / family)
    ours = tf.AutoTokenizer.from_pretrained(folders / family)
    for line in LINES[:30]:
        assert ours.encode(line) == theirs(line)["input_ids"]


# --- the commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", CONTINUE)
def test_generate_continues_words(folders, capsys, family):
    arguments = ["generate", folders / family, "--prompt", SENTENCE, "--max-new-tokens", 8, "--temperature", 0]
    code, text, errors = said(capsys, *arguments)
    assert (code, errors) == (0, "")
    words, model = tf.AutoTokenizer.from_pretrained(folders / family), tf.AutoModel.from_pretrained(folders / family)
    ids = words.encode(SENTENCE)
    out = tf.greedy_decode(tf.language_model(model), mg.tensor([ids]), 8).tolist()[0]
    speaker = open_speaker(folders / family, "cpu")
    new = out[len(ids) :]
    new = new[: next((i for i, token in enumerate(new) if token in speaker.ends), len(new))]
    assert text == words.decode([*ids, *new]) + "\n"
    assert said(capsys, *arguments[:-2], "--seed", 4)[1] == said(capsys, *arguments[:-2], "--seed", 4)[1]


def test_generate_answers_a_message(folders, capsys):
    arguments = ["generate", folders / "llama", "--prompt", "Hello", "--chat", "--system", "Be brief.",
                 "--max-new-tokens", 3]  # fmt: skip
    code, text, _ = said(capsys, *arguments)
    assert code == 0
    assert text.startswith("Hello\n")


@pytest.mark.slow
@pytest.mark.parametrize("family", ANSWER)
def test_translate_answers_in_words(folders, capsys, family):
    for beams in (1, 3):
        code, text, errors = said(capsys, "translate", folders / family, SENTENCE, "Speak.", "--beams", beams)
        assert (code, errors) == (0, "")
        assert text.count("\n") >= 2
    speaker = open_speaker(folders / family, "cpu")
    src = speaker.read("Speak.")
    begin = mg.tensor([[speaker.begin]])
    out = tf.greedy_decode(tf.translator(speaker.model, src), begin, 30, speaker.ends[0]).tolist()[0]
    (answer,) = speaker.answer(["Speak."], 1, 30)
    assert answer == out


def test_perplexity_is_that_of_the_models_own_losses(folders, capsys):
    code, text, _ = said(capsys, "perplexity", folders / "gpt2", SENTENCE)
    words, model = tf.AutoTokenizer.from_pretrained(folders / "gpt2"), tf.AutoModel.from_pretrained(folders / "gpt2")
    ids = words.encode(SENTENCE)
    with mg.no_grad():
        loss = F.cross_entropy(model(mg.tensor([ids[:-1]]))[0], mg.tensor(ids[1:])).item()
    figures = dict(zip(text.split()[::2], text.split()[1::2], strict=False))
    assert code == 0
    assert figures["tokens"] == str(len(ids) - 1)
    assert float(text.split("perplexity ")[1].split()[0]) == pytest.approx(math.exp(loss), rel=1e-3)


def test_windows_judge_every_token_once(folders):
    from transformer.cli.perplexity import losses

    speaker = open_speaker(folders / "gpt2", "cpu")
    ids = speaker.read(" ".join(LINES[:8])).numpy()[0]
    for window, stride in ((40, 20), (40, 39), (7, 3), (2, 1)):
        assert len(losses(speaker, ids, window, stride)) == len(ids) - 1
    whole = losses(speaker, ids[:40], 40, 20)
    np.testing.assert_allclose(losses(speaker, ids[:40], 20, 7)[:19], whole[:19], rtol=1e-4)


@pytest.mark.parametrize("family", MAKE)
def test_attention_and_inspect_know_every_folder(folders, capsys, family):
    code, text, errors = said(capsys, "attention", folders / family, "Speak to me.", "--numbers")
    assert (code, errors) == (0, "")
    for row in ([*map(float, line.split(" | ")[1].split())] for line in text.splitlines() if " | " in line):
        assert abs(sum(row) - 1) <= 0.0051 * len(row)  # of numbers with two digits
    assert (family in ANSWER) == ("cross_attn" in text)
    code, text, _ = said(capsys, "inspect", folders / family)
    assert code == 0
    assert "numbers in" in text


# --- what cannot be used --------------------------------------------------------------------------


def drop(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def put(name, content):
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def setting(name, **values):
    def change(folder):
        path = folder / name
        path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **values}))

    return change


def nothing(folder):
    pass


BAD = [
    ("generate {}/nowhere", nothing, "there is no checkpoint"),
    ("generate {}", nothing, "holds no model: neither checkpoint.safetensors"),
    ("generate {}/gpt2/config.json", nothing, "is not a readable safetensors file"),
    ("generate {}/gpt2/model.safetensors", nothing, "holds tensors but no training"),
    ("generate {}/gpt2 --prompt=", nothing, "the text is empty"),
    ("generate {}/gpt2 --prompt=x --chat", nothing, "has no chat template"),
    ("generate {}/gpt2 --prompt=x --system=y", nothing, "has no chat template"),
    ("generate {}/gpt2 --prompt=x --max-new-tokens=99", nothing, "leaves room for 40 new ones"),
    ("generate {}/gpt2 --prompt=x --max-new-tokens=-1", nothing, "must not be negative"),
    ("generate {}/gpt2 --prompt=x --temperature=-1", nothing, "the temperature must be 0"),
    ("generate {}/gpt2 --prompt=x --top-k=0", nothing, "top_k must be at least 1"),
    ("generate {}/gpt2 --prompt=x --stop=", nothing, "a stop sequence needs at least one token"),
    ("generate {}/gpt2 --prompt=x --device=moon", nothing, "moon"),
    ("generate {}/bart --prompt=x", nothing, "does not continue texts, it answers: use translate"),
    ("generate {}/bert --prompt=x", nothing, "reads texts and writes none"),
    ("generate {}/gpt2 --prompt=x", drop("tokenizer.json"), "has no tokenizer: tokenizer.json, vocab.json"),
    ("generate {}/gpt2 --prompt=x", put("tokenizer.json", "{"), "its tokenizer cannot be read"),
    ("generate {}/gpt2 --prompt=x", put("tokenizer.json", "[]"), "its tokenizer cannot be read"),
    ("generate {}/gpt2 --prompt=x", put("tokenizer.json", b"\xff\xfe"), "its tokenizer cannot be read"),
    ("generate {}/gpt2 --prompt=x", drop("model.safetensors"), "model.safetensors is missing"),
    ("generate {}/gpt2 --prompt=x", put("model.safetensors", b"x" * 40), "is not a readable safetensors file"),
    ("generate {}/gpt2 --prompt=x", setting("config.json", model_type="xlnet"), "'xlnet' is not known here"),
    ("generate {}/gpt2 --prompt=x", setting("config.json", n_layer=9), "the weights have no transformer.h.8"),
    ("generate {}/gpt2 --prompt=x", put("config.json", "{"), "config.json is not JSON"),
    ("generate {}/mixtral --prompt=x", drop("merges.txt"), "has vocab.json and no merges.txt"),
    ("generate {}/mixtral --prompt=x", put("vocab.json", "{}"), "its tokenizer cannot be read"),
    ("generate {}/mixtral --prompt=x", put("merges.txt", "a b c d e\nq"), "its tokenizer cannot be read"),
    ("generate {}/mixtral --prompt=x", put("tokenizer_config.json", "[]"), "is not a table in JSON"),
    ("generate {}/llama --prompt=x --chat", setting("tokenizer_config.json", chat_template="{% if"), "cannot be used"),
    ("generate {}/llama --prompt=x --chat", setting("tokenizer_config.json", chat_template=7), "has no chat template"),
    ("generate {}/llama --prompt=x --chat", setting("tokenizer_config.json", chat_template="{{ a.b.c }}"), "cannot be"),
    ("generate {}/llama --prompt=x", put("generation_config.json", "3"), "is not a table of settings"),
    ("translate {}/t5 x", put("spiece.model", b""), "is not a sentencepiece model"),
    ("translate {}/t5 x", put("spiece.model", b"\x0a\xff\xff\xff"), "is not a sentencepiece model"),
    ("translate {}/t5 x", put("spiece.model", "hello, this is text"), "is not a sentencepiece model"),
    ("translate {}/t5 x --beams=0", nothing, "--beams must be from 1 to"),
    ("translate {}/marian x", drop("target.spm"), "target.spm"),
    ("translate {}/marian x", drop("vocab.json"), "vocab.json"),
    (
        "translate {}/bart x",
        setting("config.json", decoder_start_token_id=None, pad_token_id=None),
        "does not say with",
    ),
    ("translate {}/t5 x", setting("config.json", decoder_start_token_id=9999), "of its 256 tokens answers begin"),
    ("translate {}/marian x", setting("vocab.json", a="b"), "no vocab.json that gives each piece a number"),
    ("generate {}/gpt2 --prompt=x", setting("config.json", eos_token_id="end"), "eos_token_id must be a token's id"),
    ("translate {}/gpt2 x", nothing, "does not answer, it continues texts: use generate"),
    ("perplexity {}/gpt2 x", nothing, "a text of one token has nothing to foresee"),
    ("perplexity {}/gpt2 x --file=y", nothing, "give a text or --file, not both"),
    ("perplexity {}/gpt2 --file={}/nowhere.txt", nothing, "nowhere.txt"),
    ("perplexity {}/gpt2 --file={}/gpt2/model.safetensors", nothing, "is not a text in UTF-8"),
    ("perplexity {}/gpt2 xyz --window=1", nothing, "--window must be from 2 to 40"),
    ("perplexity {}/gpt2 xyz --window=99", nothing, "--window must be from 2 to 40"),
    ("perplexity {}/gpt2 xyz --window=8 --stride=8", nothing, "--stride must be from 1 to 7"),
    ("perplexity {}/bart xyz", nothing, "does not continue texts, it answers"),
    ("attention {}/gpt2 xyz --layer=none", nothing, "no attention module is called 'none'"),
    ("attention {}/gpt2 xyz --head=9", nothing, "no head 9"),
    ("attention {}/bert xyz -o a.png", nothing, "does not end in .svg"),
    ("attention {}/marian xyz", put("source.spm", b"\x00\x00"), "is not a sentencepiece model"),
    ("inspect {}/gpt2", put("config.json", "{}"), "model_type None is not known here"),
]


@pytest.mark.parametrize(("command", "spoil", "message"), BAD, ids=[f"{c[0]}-{i}" for i, c in enumerate(BAD)])
def test_what_cannot_be_used_is_one_sentence(spoiled, capsys, command, spoil, message):
    words = [word.replace("{}", str(spoiled)) for word in command.split()]
    folder = next((spoiled / name for name in MAKE if f"{{}}/{name}" in command), spoiled)
    spoil(folder)
    code, text, errors = said(capsys, *words)
    assert code == 2, (text, errors)
    assert message in errors
    assert errors.count("\n") == 1
    assert len(errors) < 600


def test_a_tokenizer_of_another_model_is_noticed(spoiled, capsys):
    shutil.copy(spoiled / "gpt2" / "tokenizer.json", spoiled / "bert")
    (spoiled / "bert" / "vocab.txt").unlink()
    setting("config.json", vocab_size=320)(spoiled / "bert")
    ids = tf.AutoTokenizer.from_pretrained(spoiled / "gpt2").encode("the")
    speaker = open_speaker(spoiled / "gpt2", "cpu")
    speaker.vocab = max(ids)
    with pytest.raises(ValueError, match="they do not belong together"):
        speaker.read("the")

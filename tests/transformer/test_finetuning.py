"""Published models learn a text: adapters, all weights, or a part; what they leave is a published folder again."""

import json

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from published_folders import TEXT, make

import minigrad as mg
from minigrad.io import load_file
from transformer.auto import AutoModel
from transformer.cli import main
from transformer.cli.speaker import open_speaker
from transformer.lora import LoRALinear
from transformer.training import checkpoint

QUICK = ["--batch-size", "4", "--warmup", "1", "--no-compile", "--lr", "0.01"]


def said(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = make(tmp_path_factory.mktemp("published"))
    (folder / "mine.txt").write_text(TEXT[:6000])
    return folder


def train(capsys, folders, family, out, *more, steps=3):
    base = ("--base", folders / family, "--data", folders / "mine.txt")
    code, _, words = said(capsys, "train", *base, *QUICK, *more, "--steps", steps, "--out", out)
    assert code == 0, words
    return words


def logits(model, ids):
    with mg.no_grad():
        return model(mg.tensor(ids)).numpy()


def the_other_librarys(folder, ids):
    """Its logits of a folder, which must have every key and no other; None where there is no such library."""
    try:
        import torch
        import transformers
    except ImportError:
        return None
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    with torch.no_grad():
        return model.eval()(torch.tensor(ids)).logits.numpy()


@pytest.mark.parametrize(("family", "task"), [("gpt2", "text"), ("llama", "text"), ("bert", "masked")])
def test_adapters_of_a_published_model_are_trained_and_saved_as_one(folders, family, task, tmp_path, capsys):
    out = tmp_path / "run"
    words = train(capsys, folders, family, out, "--lora", 4)
    assert f"{task}: " in words
    assert "of which" in words
    trained = checkpoint.model_weights(out)
    assert any(tensor.numpy().any() for name, tensor in trained.items() if name.endswith("lora_B"))
    state = {name for name in load_file(out / checkpoint.FILE) if name.endswith("exp_avg")}
    assert len(state) == sum("lora_" in name for name in trained)  # the optimizer's is of the adapters alone

    ids = [[5, 9, 31, 7, 40]]
    model = open_speaker(out, "cpu").model
    assert not any(isinstance(module, LoRALinear) for module in model.modules())
    saved = AutoModel.from_pretrained(out / "published")
    np.testing.assert_allclose(logits(saved, ids), logits(model, ids), rtol=1e-6, atol=1e-7)
    before = AutoModel.from_pretrained(folders / family)
    assert not np.allclose(logits(before, ids), logits(saved, ids), atol=1e-4)
    theirs = the_other_librarys(out / "published", ids)
    if theirs is not None:
        np.testing.assert_allclose(logits(saved, ids), theirs, rtol=1e-4, atol=1e-4)


def test_a_run_needs_its_base_no_more_and_goes_on(folders, tmp_path, capsys):
    """In one go, or stopped and continued when the base is gone: the same bits; it writes, and can be a base itself."""
    import shutil

    shutil.copytree(folders / "llama", tmp_path / "base")
    shutil.copy(folders / "mine.txt", tmp_path / "mine.txt")
    train(capsys, folders, "llama", tmp_path / "whole", "--lora", 2, "--schedule", "constant", steps=5)
    train(capsys, tmp_path / "base" / "..", "base", tmp_path / "run", "--lora", 2, "--schedule", "constant")
    shutil.rmtree(tmp_path / "base")
    code, _, words = said(capsys, "train", "--resume", tmp_path / "run", "--steps", 5)
    assert code == 0, words
    whole, parts = (checkpoint.model_weights(tmp_path / name) for name in ("whole", "run"))
    for name, tensor in whole.items():
        np.testing.assert_array_equal(parts[name].numpy(), tensor.numpy(), err_msg=name)
    texts = [said(capsys, "generate", place, "--prompt", "the cat", "--max-new-tokens", 6, "--temperature", 0)
             for place in (tmp_path / "run", tmp_path / "run" / "published")]  # fmt: skip
    assert texts[0] == texts[1]
    assert texts[0][0] == 0
    assert said(capsys, "generate", tmp_path / "run", "--prompt", "a", "--chat", "--max-new-tokens", 2,
                "--weights", "int8")[0] == 0  # fmt: skip
    assert said(capsys, "perplexity", tmp_path / "run", "the cat sat on the mat")[0] == 0
    assert said(capsys, "attention", tmp_path / "run", "the cat", "--layer", "layers.0*")[0] == 0
    assert said(capsys, "inspect", tmp_path / "run" / "published")[0] == 0
    train(capsys, tmp_path, "run", tmp_path / "again", "--lora", 2)


def test_all_of_a_published_model_or_a_part_is_trained(folders, tmp_path, capsys):
    words = train(capsys, folders, "gpt2", tmp_path / "all")
    assert "of which" not in words
    train(capsys, folders, "gpt2", tmp_path / "part", "--frozen", "embedding|positions|layers.0")
    before, everything, part = (
        load_file(folder / "model.safetensors")
        for folder in (folders / "gpt2", tmp_path / "all" / "published", tmp_path / "part" / "published")
    )
    for key, tensor in before.items():
        assert not np.array_equal(everything[key].numpy(), tensor.numpy()), key
        frozen = ".wte." in key or ".wpe." in key or ".h.0." in key
        assert np.array_equal(part[key].numpy(), tensor.numpy()) == frozen, key


BAD = [
    ("gpt2", ["--d-model", 32], "has its own d_model: leave that out"),
    ("gpt2", ["--vocab", 300, "--dropout", 0.1], "has its own dropout, vocab: leave that out"),
    ("gpt2", ["masked"], "has learned text: train text from it, not masked"),
    ("gpt2", ["--max-len", 41], "reads 40 tokens: max_len must not be above, got 41"),
    ("gpt2", ["--lora", 2, "--lora-layers", "lm_head"], "is one matrix with the embeddings"),
    ("gpt2", ["--lora", 2, "--lora-layers", "c_attn"], "are none of the linear layers: k_proj"),
    ("t5", [], "is a T5ForConditionalGeneration: only models that continue texts or find hidden tokens learn"),
    ("marian", ["text"], "is a MarianMTModel: only models that continue texts or find hidden tokens learn"),
    ("gpt2", ["reverse"], "has learned text: train text from it, not reverse"),
    ("gpt2", ["--data", "/nowhere.txt"], "there is no file or folder /nowhere.txt"),
    ("wordless", [], "has no tokenizer: tokenizer.json"),
    ("torn", [], "is not a readable safetensors file"),
    ("short", [], "is held out, has"),
    ("alien", [], "model_type 'alien' is not known here"),
]


@pytest.mark.parametrize(("family", "options", "message"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_trained_on_is_one_sentence(folders, family, options, message, tmp_path, capsys):
    import shutil

    base = tmp_path / family
    shutil.copytree(folders / (family if family in ("gpt2", "t5", "marian") else "gpt2"), base)
    if family == "wordless":
        (base / "tokenizer.json").unlink()
    elif family == "torn":
        (base / "model.safetensors").write_bytes(b"torn")
    elif family == "alien":
        (base / "config.json").write_text(json.dumps({"model_type": "alien"}))
    (tmp_path / "short.txt").write_text("too short")
    text = tmp_path / "short.txt" if family == "short" else folders / "mine.txt"
    data = [] if "--data" in options else ["--data", text]
    code, _, words = said(capsys, "train", *QUICK, "--base", base, *data, *options, "--out", tmp_path / "run")
    assert code == 2
    assert message in words
    assert words.count("\n") == 1
    assert not (tmp_path / "run").exists()

"""Models with weights in fewer bytes: equal to those of the rounded weights, from files, by commands; perplexity."""

import json

import numpy as np
import pytest
from slow import one_in
from small_families import DECODERS, MAKE, SEQ2SEQ, small
from test_cli import said

import minigrad as mg
from minigrad import nn
from minigrad.io import load_file, save_file
from minigrad.ops.stored import KINDS
from transformer import AutoModel, checkpoints, quantize
from transformer.decoding import greedy_decode, language_model, translator
from transformer.models import GPT2, GPT2Config, Llama, LlamaConfig
from transformer.quantization import is_quantized, matrices

RNG = np.random.default_rng(0)
IDS, SOURCE = RNG.integers(2, 19, (2, 7)), RNG.integers(2, 19, (2, 5))


def logits_of(model, family, eager):
    """(logits of the last token, tokens written greedily)."""
    if family in DECODERS:
        step, ids = language_model(model, model.new_cache(20), eager=eager), mg.tensor(IDS)
    else:
        step, ids = translator(model, mg.tensor(SOURCE), model.new_cache(20), eager=eager), mg.full((2, 1), 2)
    written = greedy_decode(step, ids, 8)
    return step(written).numpy(), written.numpy()


def run(model):
    ids = mg.tensor(IDS)
    with mg.no_grad():
        return (model(ids, ids) if hasattr(model, "decode") else model(ids)).numpy()


def rounded(model, kind):
    """The model with the values of the stored weights, in float32."""
    weights = {id(each): nn.Stored(each, kind).weight for each in matrices(model)}
    with mg.no_grad():
        for each in matrices(model):
            each.copy_(weights[id(each)])
    return model


SAME = [(family, "int8") for family in [*DECODERS, *SEQ2SEQ]] + [("gpt2", "bfloat16"), ("bart", "bfloat16")]


@pytest.mark.parametrize(("family", "kind"), one_in(4, SAME))
def test_every_family_computes_as_with_the_rounded_weights(family, kind):
    wanted, written = logits_of(rounded(small(family).float(), kind), family, True)
    stored = quantize(small(family).float(), kind)
    for eager in (True, False):
        found, text = logits_of(stored, family, eager)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
        np.testing.assert_array_equal(text, written)


def test_a_tied_head_and_its_table_are_stored_once_and_other_tables_stay():
    tied, apart = (
        quantize(Llama(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=8, num_hidden_layers=1,
                                   num_attention_heads=2, tie_word_embeddings=tie)), "int8")
        for tie in (True, False)
    )  # fmt: skip
    assert tied.token_embedding.matrix is tied.lm_head.matrix
    assert isinstance(apart.token_embedding, nn.Embedding)
    sizes = [sum(p.numel() * p.element_size() for p in model.parameters()) for model in (tied, apart)]
    assert sizes[1] - sizes[0] == 4 * 40 * 16  # the table in float32


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    mg.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=97, n_positions=32, n_embd=16, n_layer=2, n_head=2))
    checkpoints.save(model, tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("halves", [False, True])
def test_a_folder_is_loaded_in_fewer_bytes(folder, kind, halves):
    file = folder / "model.safetensors"
    if halves:
        save_file({name: value.to(mg.bfloat16) for name, value in load_file(file).items()}, file)
    model, whole = AutoModel.from_pretrained(folder, weights=kind), checkpoints.load(folder)
    assert {p.dtype for name, p in model.named_parameters() if name.endswith(".stored")} == {np.dtype(kind)}
    assert {p.dtype for name, p in model.named_parameters() if not name.endswith(".stored")} == {mg.float32}
    ids = mg.tensor(IDS)
    np.testing.assert_allclose(model(ids).detach(), rounded(whole, kind)(ids).detach(), rtol=1e-4, atol=1e-5)


def test_bfloat16_of_a_file_is_not_copied(tmp_path):
    model = Llama(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=8, num_hidden_layers=1,
                              num_attention_heads=2, tie_word_embeddings=False))  # fmt: skip
    checkpoints.save(model.to(mg.bfloat16), tmp_path)
    found = checkpoints.load(tmp_path, weights="bfloat16")
    owner = found.lm_head.matrix.stored.detach().numpy()
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    assert not isinstance(owner, np.ndarray), "its memory is not the file's"


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", one_in(4, MAKE))
def test_what_is_stored_in_fewer_bytes_is_saved_and_loaded_as_it_is(family, kind, tmp_path):
    model = quantize(small(family).float(), kind)
    checkpoints.save(model, tmp_path / "first")
    again = checkpoints.load(tmp_path / "first", weights=kind)
    assert is_quantized(again)
    np.testing.assert_array_equal(run(again), run(model))
    checkpoints.save(again, tmp_path / "second")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    plain = checkpoints.load(tmp_path / "first")
    assert is_quantized(plain) == (kind == "int8")
    np.testing.assert_allclose(run(plain), run(model), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_other_library_reads_int8_of_an_untied_model(family, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    model = quantize(small(family).float(), "int8")
    checkpoints.save(model, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor(IDS.tolist())).logits.float().numpy()
    np.testing.assert_allclose(run(model), expected, rtol=1e-4, atol=1e-4)


def test_the_other_library_finds_no_wrong_weights_in_int8_of_a_tied_one(tmp_path):
    checkpoints.save(quantize(small("gpt2").float(), "int8"), tmp_path)
    keys = load_file(tmp_path / "model.safetensors")
    assert {"transformer.wte.weight_int8", "transformer.wte.weight_scale"} <= keys.keys()
    assert not [key for key, tensor in keys.items() if key.endswith(".weight") and tensor.ndim > 1 and "wpe" not in key]


@pytest.fixture
def in_int8(tmp_path):
    checkpoints.save(quantize(small("llama").float(), "int8"), tmp_path)
    return tmp_path


def changed(folder, change):
    arrays = {name: value.numpy().copy() for name, value in load_file(folder / "model.safetensors").items()}
    change(arrays)
    save_file(arrays, folder / "model.safetensors")


KEY = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda arrays: arrays.update({f"{KEY}_scale": arrays[f"{KEY}_scale"][:-1]}), r"has shape \[23, 1\]"),
        (lambda arrays: arrays[f"{KEY}_scale"].__setitem__(0, np.nan), "no int8 rows with finite scales"),
        (lambda arrays: arrays.update({KEY: arrays[KEY].astype(np.float32)}), "no int8 rows with finite scales"),
        (lambda arrays: arrays.pop(f"{KEY}_scale"), "are int8 without a scale"),
        (lambda arrays: arrays.pop(KEY), r"the weights have no model.layers.0.self_attn.q_proj.weight"),
        (lambda arrays: arrays.update({"x.weight_scale": np.ones((3, 1))}), "the weights have x.weight_scale"),
    ],
    ids=range(6),
)
def test_int8_that_cannot_be_read_is_one_sentence(in_int8, change, sentence):
    changed(in_int8, change)
    with pytest.raises(checkpoints.CheckpointError, match=sentence) as refused:
        checkpoints.load(in_int8)
    assert "\n" not in str(refused.value)


def test_int8_is_nothing_else(in_int8):
    with pytest.raises(ValueError, match="holds int8 already"):
        checkpoints.load(in_int8, weights="bfloat16")
    with pytest.raises(ValueError, match="computed in float32, not in float64"):
        checkpoints.load(in_int8, mg.float64)
    config = json.loads((in_int8 / "config.json").read_text())
    for method in ({"quant_method": "gptq", "bits": 4}, "awq", {**config["quantization_config"], "format": "pack"}):
        (in_int8 / "config.json").write_text(json.dumps({**config, "quantization_config": method}))
        with pytest.raises(checkpoints.CheckpointError, match="are not read here, only those in the format"):
            checkpoints.load(in_int8)


# --- bad input ------------------------------------------------------------------------------------


def test_what_cannot_be_quantized_is_one_sentence_and_changes_nothing(folder):
    model = small("gpt2")
    for given, error, sentence in (
        ("int4", ValueError, "stored as int8 or bfloat16, got 'int4'"),
        ("int8", TypeError, "this model is in float64: call model.float"),
    ):
        with pytest.raises(error, match=sentence):
            quantize(model, given)
    model.float()
    with mg.no_grad():
        model.layers[1].feed_forward.linear2.weight[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"layers\.1\.feed_forward\.linear2\.weight: a matrix with infinite"):
        quantize(model, "int8")
    assert not is_quantized(model)
    with mg.no_grad():
        model.layers[1].feed_forward.linear2.weight[0, 0] = 0.0
    quantize(model, "int8")
    with pytest.raises(ValueError, match="stored in fewer bytes already"):
        quantize(model, "bfloat16")
    with pytest.raises(ValueError, match="stored as int8 or bfloat16, got 'q4'"):
        AutoModel.from_pretrained(folder, weights="q4")
    with pytest.raises(ValueError, match="computed in float32, not in float64"):
        AutoModel.from_pretrained(folder, mg.float64, "int8")
    arrays = {name: value.numpy().copy() for name, value in load_file(folder / "model.safetensors").items()}
    arrays["transformer.h.0.mlp.c_fc.weight"][0, 0] = np.inf
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(checkpoints.CheckpointError, match=r"linear1\.weight: a matrix with infinite"):
        AutoModel.from_pretrained(folder, weights="int8")


def test_a_command_says_what_it_cannot_store(folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        said(capsys, "generate", folder, "--weights", "int3")
    assert stopped.value.code == 2
    assert "argument --weights: invalid choice: 'int3'" in capsys.readouterr().err


# --- what it costs --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_trained_model_foresees_almost_as_well(tmp_path, capsys):
    """A model that learned bytes: perplexity within 0.2 % for int8, and within 0.5 % for bfloat16."""
    run = tmp_path / "run"
    settings = ["--d-model", 64, "--n-heads", 4, "--n-layers", 1, "--d-ff", 128, "--steps", 150, "--vocab", 260]
    settings += ["--evaluate-every", 1000, "--save-every", 150, "--batch-size", 16, "--no-compile"]
    assert said(capsys, "train", "text", "--out", run, *settings)[0] == 0
    text = "Before we proceed any further, hear me speak. Speak, speak. You are all resolved rather to die. " * 4
    found = {}
    for weights in ("float32", *KINDS):
        code, line, _ = said(capsys, "perplexity", run, text, "--weights", weights)
        assert code == 0
        found[weights] = float(line.split("perplexity ")[1].split()[0])
        code, written, _ = said(capsys, "generate", run, "--prompt", "ROMEO", "--weights", weights,
                                "--max-new-tokens", 5, "--temperature", 0)  # fmt: skip
        assert code == 0
        assert written.startswith("ROMEO")
    print(json.dumps(found))
    assert found["float32"] < 20
    assert found["int8"] == pytest.approx(found["float32"], rel=2e-3)
    assert found["bfloat16"] == pytest.approx(found["float32"], rel=5e-3)

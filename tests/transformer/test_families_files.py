"""Checkpoint folders: what is written and read, and one clear sentence for each file that cannot be used."""

import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from slow import one_in
from small_families import MAKE, small

import minigrad as mg
import transformer.checkpoints as checkpoints
from minigrad import functional as F
from minigrad import nn, optim
from minigrad.io import load_file, save_file
from transformer.checkpoints import FAMILIES, CheckpointError, load, save
from transformer.models.gpt2 import GPT2, GPT2Config
from transformer.models.llama import Llama, LlamaConfig

IDS = mg.tensor([[2, 3, 4, 5], [6, 7, 8, 2]])


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of a small GPT-2."""
    save(small("gpt2"), tmp_path / "gpt2")
    return tmp_path / "gpt2"


def change_config(folder, **settings):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content.update(settings)
    path.write_text(json.dumps({name: value for name, value in content.items() if value != "REMOVED"}))


def change_weights(folder, change):
    path = folder / "model.safetensors"
    arrays = {key: tensor.numpy() for key, tensor in load_file(path).items()}
    change(arrays)
    save_file(arrays, path)


def run(model):
    with mg.no_grad():
        return (model(IDS, IDS) if hasattr(model, "decode") else model(IDS)).numpy()


# --- what works -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", MAKE)
def test_saved_and_loaded_models_give_the_same_numbers(family, tmp_path):
    model = small(family)
    save(model, tmp_path)
    again = load(tmp_path, mg.float64)
    np.testing.assert_array_equal(run(model), run(again))
    assert not any(module.training for module in again.modules())
    assert again.config.to_dict() == {
        **model.config.to_dict(),
        "architectures": [model.architecture()],
        "dtype": "float64",
    }
    np.testing.assert_allclose(run(load(tmp_path)), run(model), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("head", ["masked-lm", "classification", "tagging", None])
def test_bert_is_saved_with_its_head(head, tmp_path):
    config = small("bert").config
    config = type(config).from_dict({**config.to_dict(), "id2label": {"0": "no", "1": "yes", "2": "maybe"}})
    model = type(small("bert"))(config, head).eval()
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.head == head
    np.testing.assert_array_equal(run(again), run(model))
    width = {"masked-lm": (2, 4, 19), "classification": (2, 3), "tagging": (2, 4, 3), None: (2, 4, 12)}
    assert run(again).shape == width[head]


def test_bert_without_a_head_can_pool():
    bert = small("bert")
    pooled = type(bert)(bert.config, None, pooled=True).eval()
    x = pooled(IDS)
    expected = np.tanh(x.detach().numpy()[:, 0] @ pooled.pooler.weight.detach().numpy().T)
    np.testing.assert_allclose(pooled.pool(x).detach(), expected, rtol=1e-4, atol=1e-6)


def test_a_tied_matrix_is_stored_once_and_stays_tied(folder):
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    again = load(folder)
    assert again.lm_head.weight is again.token_embedding.weight


def test_a_head_of_its_own_wins_over_tying(folder):
    def own_head(arrays):
        arrays["lm_head.weight"] = arrays["transformer.wte.weight"] * 2

    change_weights(folder, own_head)
    again = load(folder, mg.float64)
    np.testing.assert_array_equal(again.lm_head.weight.detach(), again.token_embedding.weight.detach() * 2)


def test_a_file_of_the_bare_model_has_no_prefix(folder):
    def bare(arrays):
        for key in list(arrays):
            arrays[key.removeprefix("transformer.")] = arrays.pop(key)

    before = run(load(folder))
    change_weights(folder, bare)
    np.testing.assert_array_equal(run(load(folder)), before)


def test_old_names_of_bert_are_understood(tmp_path):
    save(small("bert"), tmp_path)
    before = run(load(tmp_path))

    def older(arrays):
        for key in list(arrays):
            new = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            arrays[new] = arrays.pop(key)
        arrays["cls.predictions.decoder.bias"] = arrays["cls.predictions.bias"].copy()
        arrays["cls.seq_relationship.weight"] = np.ones((2, 12))
        arrays["bert.embeddings.position_ids"] = np.arange(24)[None]

    change_weights(tmp_path, older)
    np.testing.assert_array_equal(run(load(tmp_path)), before)


def test_weights_may_be_spread_over_files(folder):
    before, path = run(load(folder)), folder / "model.safetensors"
    arrays = {key: tensor.numpy() for key, tensor in load_file(path).items()}
    places = {key: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, key in enumerate(arrays)}
    for name in set(places.values()):
        save_file({key: array for key, array in arrays.items() if places[key] == name}, folder / name)
    path.unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    np.testing.assert_array_equal(run(load(folder)), before)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002.safetensors is missing"):
        load(folder)


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/model.safetensors", "..", 3, "weights.bin"])
def test_an_index_may_not_point_out_of_its_folder(folder, place):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": place}}))
    with pytest.raises(CheckpointError, match="does not say which file in its folder"):
        load(folder)


def test_settings_that_are_not_ours_survive(folder):
    change_config(folder, eos_token_id=7, task_specific_params={"a": 1})
    save(load(folder), folder)
    content = json.loads((folder / "config.json").read_text())
    assert content["eos_token_id"] == 7
    assert content["task_specific_params"] == {"a": 1}
    assert content["model_type"] == "gpt2"


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gpt2", {"n_head": 12, "n_layer": 12, "n_embd": 768, "n_positions": 1024, "tie_word_embeddings": True}),
        ("bert", {"num_attention_heads": 12, "hidden_size": 768, "layer_norm_eps": 1e-12, "tie_word_embeddings": True}),
        ("llama", {"num_attention_heads": 32, "hidden_size": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}),
        ("mixtral", {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5}),
        ("t5", {"num_heads": 8, "d_kv": 64, "layer_norm_epsilon": 1e-6, "tie_word_embeddings": True}),
        (
            "modernbert",
            {
                "num_attention_heads": 12,
                "hidden_size": 768,
                "norm_eps": 1e-5,
                "local_attention": 128,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                },
            },
        ),
        ("bart", {"encoder_attention_heads": 16, "decoder_attention_heads": 16, "tie_word_embeddings": True}),
        ("marian", {"encoder_attention_heads": 16, "pad_token_id": 58100, "tie_word_embeddings": True}),
    ],
)
def test_what_a_config_leaves_out_is_what_hugging_face_takes(family, settings):
    """Published files say little: a config.json holds what differs from that library's defaults."""
    config = checkpoints.FAMILIES[family].config_class.from_dict({})
    assert {name: getattr(config, name) for name in settings} == settings


def test_the_outputs_of_mt5_are_never_scaled():
    config_class = checkpoints.FAMILIES["mt5"].config_class
    assert not config_class().scale_decoder_outputs
    assert not config_class.from_dict({"scale_decoder_outputs": True}).scale_decoder_outputs


def test_older_files_say_rope_theta_and_rope_scaling(tmp_path):
    save(small("llama"), tmp_path)
    change_config(tmp_path, rope_parameters="REMOVED", rope_theta=123.0, rope_scaling={"type": "linear", "factor": 4.0})
    config = load(tmp_path).config
    assert config.rope_parameters["rope_theta"] == 123.0
    assert config.interpolation() == 4.0


def test_older_files_say_which_layers_of_modernbert_see_everything_and_the_bases_of_both_kinds(tmp_path):
    save(small("modernbert"), tmp_path)
    assert load(tmp_path).windows == [None, 3]
    older = {"global_attn_every_n_layers": 1, "global_rope_theta": 123.0, "local_rope_theta": 45.0}
    change_config(tmp_path, rope_parameters="REMOVED", layer_types="REMOVED", **older)
    model = load(tmp_path)
    assert model.windows == [None, None]
    assert [table["rope_theta"] for table in model.config.rope_parameters.values()] == [123.0, 45.0]
    assert model.layers[1].self_attn.rope.base == 123.0
    assert {name: model.config.to_dict()[name] for name in older} == older
    change_config(tmp_path, rope_scaling={"type": "linear", "factor": 4.0})
    assert [found for found, _ in load(tmp_path).config.scalings().values()] == [4.0, 4.0]


def test_a_crash_while_saving_leaves_the_old_files(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def crash(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk is full"):
        save(small("gpt2"), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_only_families_are_saved(tmp_path):
    with pytest.raises(TypeError, match=r"only models of the families gpt2, .* got Linear"):
        save(nn.Linear(2, 3), tmp_path)


# --- what does not --------------------------------------------------------------------------------


def refused(folder, message):
    with pytest.raises(CheckpointError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_folder_without_files(tmp_path):
    refused(tmp_path, "config.json is missing: a checkpoint is a folder with config.json and model.safetensors")
    refused(tmp_path / "nowhere", "config.json is missing")


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "model.safetensors is missing")


def test_files_that_are_folders(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    refused(folder, "model.safetensors cannot be read")
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    refused(folder, "config.json cannot be read")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1, 2]", "is not a table"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_config_that_is_no_table(folder, content, message):
    (folder / "config.json").write_bytes(content)
    refused(folder, message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model_type": "xlnet"},
            "model_type 'xlnet' is not known here, only gpt2, opt, gpt_neox, phi, llama, mistral, mixtral, qwen2",
        ),
        ({"model_type": "REMOVED"}, "model_type None is not known"),
        ({"model_type": ["gpt2"]}, r"model_type \['gpt2'\] is not known"),
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "GPT2DoubleHeadsModel.* of gpt2 are not built here"),
        ({"architectures": "GPT2LMHeadModel"}, "architectures 'GPT2LMHeadModel' of gpt2"),
        ({"model_type": "x" * 10**6}, "model_type 'xxxxx"),
        ({"n_layer": [0] * 10**5}, "n_layer must be a whole number"),
        ({"n_layer": -1}, "n_layer must be a whole number, at least 1, got -1"),
        ({"n_layer": 2.5}, "n_layer must be a whole number"),
        ({"n_layer": True}, "n_layer must be a whole number"),
        ({"n_layer": None}, "n_layer must be a whole number"),
        ({"n_layer": 10**30}, "n_layer must be a whole number"),
        ({"n_embd": "12"}, "n_embd must be a whole number"),
        ({"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon must be a number"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be bool"),
        ({"activation_function": "mish"}, "no activation 'mish'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "is True, and gpt2 is built here with False only"),
        ({"n_head": 5}, "n_heads must divide d_model"),
        ({"attn_pdrop": 2.0}, "probability must lie in"),
        ({"n_layer": 10**9}, "no transformer.h.999999999.mlp.c_fc.weight, which config.json asks for"),
        ({"n_layer": 1}, r"the weights have transformer.h.1.*, of which config.json says nothing"),
        ({"vocab_size": 10**9}, r"transformer.wte.weight has shape \[19, 12\] .* asks for \[1000000000, 12\]"),
        ({"n_positions": 25}, r"transformer.wpe.weight has shape \[24, 12\] .* asks for \[25, 12\]"),
        ({"n_inner": 10**9}, r"c_fc.weight has shape \[12, 48\] .* asks for \[12, 1000000000\]"),
        ({"n_embd": 24}, r"wte.weight has shape \[19, 12\] .* asks for \[19, 24\]"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_config_with_impossible_settings(folder, settings, message):
    change_config(folder, **settings)
    refused(folder, message)


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("llama", {"num_key_value_heads": 4}, r"k_proj.weight has shape \[8, 12\]"),
        ("llama", {"rope_parameters": {"rope_type": "ntk", "rope_theta": 1.0}}, "RoPE of type 'ntk' is not built"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "rope_theta": "x"}},
            "rope_theta of rope_parameters must be a number above 0",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 9.0}},
            "low_freq_factor of rope_parameters",
        ),
        ("llama", {"rope_parameters": "REMOVED", "rope_scaling": 3}, "rope_scaling must be a table"),
        ("mixtral", {"num_experts_per_tok": 9}, "between 1 and all 4 experts, got top_k=9"),
        ("mixtral", {"num_local_experts": 10**8}, r"gate.weight has shape \[4, 12\]"),
        ("bert", {"position_embedding_type": "relative_key"}, "built here with 'absolute' only"),
        ("bert", {"id2label": ["a"]}, "id2label must be dict or NoneType"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling is 'max', not cls or mean"),
        ("modernbert", {"layer_types": ["full_attention"]}, "for each of 2 layers"),
        ("modernbert", {"layer_types": ["full_attention", "chunked"]}, "one of full_attention, sliding_attention"),
        ("modernbert", {"global_attn_every_n_layers": 0}, "must be a whole number, at least 1, got 0"),
        ("modernbert", {"num_hidden_layers": 10**9}, "no model.layers.999999999.mlp.Wi.weight"),
        ("modernbert", {"rope_parameters": 3}, "rope_parameters must have a table for each of full_attention"),
        ("modernbert", {"rope_parameters": {"rope_type": "default"}}, "rope_parameters must have a table for each"),
        ("modernbert", {"rope_parameters": {"full_attention": 3}}, "rope_parameters of full_attention must be a table"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
            "of full_attention must be a table, and turn whole heads",
        ),
        (
            "modernbert",
            {"rope_parameters": {"sliding_attention": {"rope_type": "ntk"}}},
            "RoPE of type 'ntk' is not built",
        ),
        ("modernbert", {"num_attention_heads": 5}, "n_heads must divide d_model"),
        ("modernbert", {"num_attention_heads": 12}, "d_head must be even"),
        ("t5", {"feed_forward_proj": "gated-mish"}, "no activation 'mish'"),
        ("t5", {"num_decoder_layers": 3}, "no decoder.block.2"),
        ("t5", {"relative_attention_num_buckets": 9}, r"relative_attention_bias.weight has shape \[8, 3\]"),
        ("bart", {"max_position_embeddings": 10**9}, r"embed_positions.weight has shape \[26, 12\]"),
        ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 5}, r"\[19, 12\].* \[5, 12\]"),
        ("marian", {"pad_token_id": 99}, "padding_idx 99 is outside the table of 19 rows"),
    ],
    ids=str,
)
def test_settings_that_a_family_cannot_have(family, settings, message, tmp_path):
    save(small(family), tmp_path)
    change_config(tmp_path, **settings)
    refused(tmp_path, message)


def test_a_missing_tensor_is_named(folder):
    change_weights(folder, lambda arrays: arrays.pop("transformer.h.1.ln_2.bias"))
    refused(folder, "the weights have no transformer.h.1.ln_2.bias, which config.json asks for")


def test_an_unknown_tensor_is_named(folder):
    change_weights(folder, lambda arrays: arrays.update({"score.weight": np.ones(3)}))
    refused(folder, "the weights have score.weight, of which config.json says nothing")


def test_a_misshapen_tensor_is_named(folder):
    change_weights(folder, lambda arrays: arrays.update({"transformer.h.0.attn.c_attn.bias": np.ones(35)}))
    refused(folder, r"transformer.h.0.attn.c_attn.bias has shape \[35\] in the weights, config.json asks for \[36\]")


def test_two_names_of_one_tensor_that_differ(tmp_path):
    save(small("t5"), tmp_path)
    change_weights(tmp_path, lambda arrays: arrays.update({"encoder.embed_tokens.weight": np.ones((19, 11))}))
    refused(tmp_path, "should be one tensor, and their values differ")


@pytest.mark.parametrize("size", [0, 5, 8, 200, -1])
def test_truncated_weights(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    refused(folder, "is not a readable safetensors file")


def test_weights_whose_header_lies(folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes((2**62).to_bytes(8, "little") + data[8:])
    refused(folder, "is not a readable safetensors file")


def test_every_parameter_of_every_family_has_a_name():
    for family in MAKE:
        model = small(family)
        names = [name for rule in checkpoints._rules(model) for name in rule.ours]
        assert sorted(names) == sorted(model.state_dict()), family


def test_loading_draws_no_random_numbers(folder):
    mg.manual_seed(5)
    expected = mg.randn(3).numpy()
    mg.manual_seed(5)
    load(folder)
    np.testing.assert_array_equal(mg.randn(3), expected)


@pytest.mark.parametrize("family", MAKE)
def test_training_mode_drops_and_evaluation_does_not(family):
    model = small(family)
    np.testing.assert_array_equal(run(model), run(model))
    dropping = any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())
    assert dropping == (family in ("gpt2", "opt", "bert", "roberta", "distilbert", "t5", "t5-gated", "mt5", "bart",
                                   "marian"))  # fmt: skip
    model.train()
    assert np.isfinite(run(model)).all()
    assert np.array_equal(run(model), run(model)) != dropping


@pytest.mark.parametrize("family", one_in(4, MAKE))
def test_every_family_fits_a_batch(family):
    mg.manual_seed(0)
    model = MAKE[family]().train()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(25):
        logits = model(IDS, IDS) if hasattr(model, "decode") else model(IDS)
        loss = F.cross_entropy(logits.reshape(-1, 19), IDS.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("family", MAKE)
@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (np.zeros((2, 0), np.int64), ValueError, "at least one token"),
        (np.zeros(3, np.int64), ValueError, r"must be \(B, T\)"),
        (np.zeros((2, 3)), TypeError, "must be token ids"),
        (np.full((2, 3), 19), IndexError, "19"),
    ],
    ids=["empty", "one row", "floats", "outside the vocabulary"],
)
def test_ids_that_are_none_are_refused(family, ids, error, message):
    model = small(family)
    with pytest.raises(error, match=message) as caught:
        model(mg.tensor(ids), IDS[:, :3]) if hasattr(model, "decode") else model(mg.tensor(ids))
    assert "\n" not in str(caught.value)


# --- memory ---------------------------------------------------------------------------------------


def test_a_loaded_model_is_changed_and_saved_over_its_own_file(tmp_path):
    save(small("llama").float(), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    model = load(tmp_path)
    with mg.no_grad():
        model.lm_head.weight.mul_(2.0)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    expected = run(model)
    save(model, tmp_path)
    np.testing.assert_array_equal(run(model), expected)
    np.testing.assert_array_equal(run(load(tmp_path)), expected)


LOADING = """
import sys
import numpy as np
from transformer.checkpoints import load

def peak():
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

before = peak()
model = load(sys.argv[1])
sum(float(parameter.detach().numpy().sum()) for parameter in model.parameters())  # everything is looked at
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say how much memory was used")
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_loading_takes_about_as_much_memory_as_the_file_has_bytes(family, tmp_path):
    """GPT-2's matrices are stored turned round, and are copied; LLaMA's are used where they lie."""
    if family == "gpt2":
        model = GPT2(GPT2Config(vocab_size=5000, n_embd=512, n_layer=8, n_head=8))
    else:
        sizes = {"vocab_size": 5000, "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8}
        model = Llama(LlamaConfig(**sizes, num_hidden_layers=8))
    save(model, tmp_path)
    size = os.path.getsize(tmp_path / "model.safetensors")
    assert size > 1e8
    output = subprocess.run(
        [sys.executable, "-c", LOADING, tmp_path], check=True, capture_output=True, text=True
    ).stdout
    assert int(output) <= 1.3 * size


# --- a declaration is short -----------------------------------------------------------------------


def lines_of_code(path):
    """Lines that are neither empty, nor comments, nor of docstrings."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    holders = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    told = {line for node in holders if ast.get_docstring(node) is not None
            for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)}  # fmt: skip
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(text.strip()) and text.strip()[0] != "#" and number not in told for number, text in lines)


@pytest.mark.parametrize(
    "path", sorted({Path(inspect.getfile(cls)) for cls in FAMILIES.values()}), ids=lambda p: p.name
)
def test_a_declaration_has_at_most_80_lines_of_code(path):
    assert lines_of_code(path) <= 80

"""Configurations drawn field by field: what one library saves, the other reads whole, in both directions."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("transformers")

from generated_families import settings
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as runs
from reference_families import assert_close, result, torch, transformers

import minigrad as mg
from minigrad.io import load_file
from transformer.checkpoints import FAMILIES, CheckpointError, _family, load, save

BARE = ("GPT2Model", "BartModel", "MarianModel", "T5Model", "MT5Model", "WhisperModel")
"""Without a head, where ours always have one."""
OUR_OWN = ("T5WithLMHeadModel", "BertForPreTraining")  # old names, and a head of two of which we have one


def ours(content, seed):
    """A model of these settings with random weights."""
    family, arguments = _family(content)
    model = family(family.config_class.from_dict(content), **arguments).eval()
    rng = np.random.default_rng(seed)
    with mg.no_grad():
        for parameter in model.parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
            centre = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(mg.tensor((centre + spread * rng.standard_normal(parameter.shape)).astype(np.float32)))
    return model


def logits(model, rng):
    """(ours, what the other library is called with, shape of what is compared) on random ids without padding."""
    config = model.config
    if hasattr(config, "image_size"):
        size = config.image_size
        images = rng.standard_normal((2, config.num_channels, size, size)).astype(np.float32)
        return model(mg.tensor(images)), {"pixel_values": images}
    pad = getattr(config, "pad_token_id", None)
    if hasattr(config, "num_mel_bins"):
        frames = rng.standard_normal((2, config.num_mel_bins, 2 * config.max_source_positions)).astype(np.float32)
        targets = rng.choice(config.vocab_size, (2, 4))
        return model(mg.tensor(frames), mg.tensor(targets)), {"input_features": frames, "decoder_input_ids": targets}
    allowed = [i for i in range(config.vocab_size) if i != pad]
    ids = rng.choice(allowed, (2, 5))
    if hasattr(model, "decode"):
        targets = rng.choice(allowed, (2, 4))
        return model(mg.tensor(ids), mg.tensor(targets)), {"input_ids": ids, "decoder_input_ids": targets}
    return model(mg.tensor(ids)), {"input_ids": ids}


def theirs(folder, **more):
    """The other library's model of a folder, which must have every key and no other."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True, **more)
    headless = {"pooler.dense.weight", "pooler.dense.bias"}  # which BertModel has and nothing of ours needs
    assert not info["missing_keys"] - headless
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def arrays(folder):
    return {key: tensor.numpy() for key, tensor in load_file(folder / "model.safetensors").items()}


def same(one, other):
    assert {name for name in one if "pooler" not in name} == {name for name in other if "pooler" not in name}
    for key in one.keys() & other.keys():
        np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def part(found, value):
    """Of a table, and the tables in it, what `value` has names for."""
    return {name: part(found[name], own) if isinstance(own, dict) else found[name] for name, own in value.items()}


def check(content, seed, tmp_path):
    """Save here, read there, save there, read here, save here: equal logits, equal tensors, no key more or less."""
    more = {"experts_implementation": "eager"} if content["model_type"] in ("mixtral", "deepseek_v2") else {}
    model = ours(content, seed)
    save(model, tmp_path / "first")
    back = theirs(tmp_path / "first", **more)
    got, call = logits(model, np.random.default_rng(seed))
    with torch.no_grad():
        out = back(**{name: torch.tensor(ids) for name, ids in call.items()})
    assert_close(got.detach(), result(out), 5e-4, "logits")
    back.save_pretrained(tmp_path / "second", safe_serialization=True)
    again = load(tmp_path / "second")
    save(again, tmp_path / "third")
    same(arrays(tmp_path / "first"), arrays(tmp_path / "third"))
    for field in dataclasses.fields(model.config):  # the other library writes out what None stands for
        value = getattr(model.config, field.name)
        two_labels = field.name == "id2label" and value is not None and len(value) == 2  # its default, not written
        if field.name == "sliding_window" and not getattr(model.config, "use_sliding_window", True):
            continue  # which the other library then leaves out
        if field.name != "extra" and value is not None and not two_labels:
            found = getattr(again.config, field.name)
            if field.name == "rope_parameters":  # of which it writes out more
                found = part(found, value)
            assert found == value, field.name


def fresh(content, seed, tmp_path):
    """What the other library makes of the settings, saves, and reads again after us: the same tensors."""
    torch.manual_seed(seed)
    more = {"experts_implementation": "eager"} if content["model_type"] in ("mixtral", "deepseek_v2") else {}
    kind = getattr(transformers, content["architectures"][0])
    made = {k: v for k, v in content.items() if k not in ("architectures", "model_type")}
    if made.get("head_dim", 0) is None:
        made["head_dim"] = made["hidden_size"] // made["num_attention_heads"]  # its RoPE asks for a number
    if made.get("num_key_value_heads", 0) is None:  # which not all of its classes take
        made["num_key_value_heads"] = made["num_attention_heads"]
    model = kind(kind.config_class(**made, **more))
    model.save_pretrained(tmp_path / "first", safe_serialization=True)
    if content["architectures"][0] in BARE and not model.config.tie_word_embeddings:
        with pytest.raises(CheckpointError, match=r"no (lm_head|proj_out).weight"):
            load(tmp_path / "first")
        return
    save(load(tmp_path / "first"), tmp_path / "second")
    back = theirs(tmp_path / "second", **more)
    whole, prefix = back.state_dict(), f"{back.base_model_prefix}."
    for name, tensor in model.state_dict().items():
        if "pooler" not in name:
            assert torch.equal(tensor, whole.get(prefix + name, whole.get(name))), name


CASES = [(family, way) for family in FAMILIES for way in (check, fresh)]


def examine(family, way, examples, tmp_path_factory):
    @runs(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(content=settings(family))
    def run(content):
        if content["architectures"][0] in OUR_OWN:
            content = {**content, "architectures": [next(iter(FAMILIES[family].architectures))]}
        way(content, len(str(content)), tmp_path_factory.mktemp(family))

    run()


@pytest.mark.parametrize(("family", "way"), CASES)
def test_a_few_configurations_go_there_and_back(family, way, tmp_path_factory):
    examine(family, way, 2, tmp_path_factory)


@pytest.mark.deep  # minutes
@pytest.mark.parametrize(("family", "way"), CASES)
def test_three_hundred_configurations_go_there_and_back(family, way, tmp_path_factory):
    examine(family, way, 300, tmp_path_factory)

"""Whisper: the reference library's numbers and words, its cache, and frames and files that it cannot read."""

import json

import numpy as np
import pytest

import minigrad as mg
import transformer.checkpoints as checkpoints
from minigrad import functional as F
from minigrad import optim
from transformer import AutoModel
from transformer.checkpoints import CheckpointError, load, save
from transformer.cli import main
from transformer.decoding import beam_decode, greedy_decode, translator
from transformer.models.whisper import Whisper, WhisperConfig

RNG = np.random.default_rng(0)
SIZES = {"vocab_size": 23, "num_mel_bins": 5, "d_model": 12, "encoder_layers": 2, "decoder_layers": 3,
         "encoder_attention_heads": 2, "decoder_attention_heads": 3, "encoder_ffn_dim": 14, "decoder_ffn_dim": 10,
         "max_source_positions": 6, "max_target_positions": 16, "pad_token_id": 0}  # fmt: skip
FRAMES, IDS = RNG.standard_normal((3, 5, 12)), RNG.integers(1, 23, (3, 7))
OTHER = {"tie_word_embeddings": False, "activation_function": "relu", "scale_embedding": True, "encoder_layers": 1}
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def small():
    """A model in float64, its weights far from their small starting values."""
    model, rng = Whisper(WhisperConfig(**SIZES)).double().eval(), np.random.default_rng(3)
    with mg.no_grad():
        for parameter in model.parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.2
            parameter.copy_(mg.tensor((parameter.ndim == 1) + spread * rng.standard_normal(parameter.shape)))
    return model


def reference(dtype, **settings):
    """The library's model with random weights that float32 has, its table of places included."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.WhisperConfig(**{**SIZES, **settings}, decoder_start_token_id=1, bos_token_id=1,
                                        eos_token_id=2, begin_suppress_tokens=None)  # fmt: skip
    theirs = transformers.WhisperForConditionalGeneration(config).double().eval()
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for parameter in theirs.parameters():
            centre, spread = float(parameter.ndim == 1), 0.3 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            values = centre + spread * rng.standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return torch, theirs.to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("settings", [{}, OTHER], ids=["usual", "other"])
def test_logits_and_gradients_equal_the_librarys(settings, dtype, tmp_path):
    torch, theirs = reference(dtype, **settings)
    from reference_families import assert_gradients_equal

    theirs.save_pretrained(tmp_path)
    ours, bound = load(tmp_path, getattr(mg, dtype)), 1e-4 if dtype == "float32" else 1e-9
    frames = FRAMES.astype(dtype)
    out = theirs(torch.from_numpy(frames), decoder_input_ids=torch.tensor(IDS))
    got, expected = ours(mg.tensor(frames), mg.tensor(IDS)), out.logits
    np.testing.assert_allclose(got.detach(), expected.detach(), rtol=0, atol=bound * expected.abs().max().item())
    memory = ours.encode(mg.tensor(frames))[0].detach()
    state = out.encoder_last_hidden_state.detach()
    np.testing.assert_allclose(memory, state, rtol=0, atol=bound * state.abs().max().item())
    seed = RNG.standard_normal(tuple(expected.shape)).astype(dtype)
    expected.backward(torch.from_numpy(seed))
    got.backward(mg.tensor(seed))
    assert_gradients_equal(ours, theirs, tmp_path, bound)


def test_what_we_save_the_library_loads(tmp_path):
    torch, theirs = reference("float32")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    with mg.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(1.25)
    save(ours, tmp_path / "ours")
    back, info = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    frames = FRAMES.astype(np.float32)
    expected = back.eval()(torch.from_numpy(frames), decoder_input_ids=torch.tensor(IDS)).logits.detach()
    got = ours(mg.tensor(frames), mg.tensor(IDS)).detach()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * expected.abs().max().item())
    again = load(tmp_path / "ours")
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value, again.state_dict()[name])


@pytest.mark.parametrize("beams", [1, 3])
def test_what_it_writes_equals_the_librarys(beams, tmp_path):
    torch, theirs = reference("float32", tie_word_embeddings=False)
    theirs.save_pretrained(tmp_path)
    ours, frames = load(tmp_path), FRAMES.astype(np.float32)
    theirs.generation_config = type(theirs.generation_config)(decoder_start_token_id=1, bos_token_id=1, pad_token_id=0)
    expected = theirs.generate(torch.from_numpy(frames), max_new_tokens=9, do_sample=False, num_beams=beams)
    start = mg.full((3, 1), 1, dtype=mg.int64)
    for eager in (False, True):
        next_logits = translator(ours, mg.tensor(frames), ours.new_cache(10), eager)
        got = greedy_decode(next_logits, start, 9) if beams == 1 else beam_decode(next_logits, start, 9, beams)
        np.testing.assert_array_equal(got[:, 1:], expected)
    assert len(np.unique(expected)) > 2


def test_a_prompt_of_several_tokens_is_continued_by_plans_as_without():
    model, prompt = small().float(), mg.tensor(IDS[:, :3])
    found = [greedy_decode(translator(model, mg.tensor(FRAMES).float(), cache), prompt, 9).numpy()
             for cache in (model.new_cache(12), None)]  # fmt: skip
    np.testing.assert_array_equal(*found)
    assert found[0].shape == (3, 12)


@pytest.mark.parametrize("chunks", [(7,), (1,) * 7, (3, 1, 2, 1)], ids=str)
def test_chunks_through_a_cache_equal_the_whole(chunks):
    model, start, parts = small(), 0, []
    with mg.no_grad():
        memory = model.encode(mg.tensor(FRAMES))
        cache = model.new_cache(9)
        for size in chunks:
            parts.append(model.decode(mg.tensor(IDS[:, start : start + size]), *memory, cache))
            start += size
        np.testing.assert_allclose(mg.cat(parts, 1), model.decode(mg.tensor(IDS), *memory), **TIGHT)


@pytest.mark.parametrize("weights", ["int8", "bfloat16"])
def test_it_is_used_in_fewer_bytes(weights, tmp_path):
    save(small().float(), tmp_path)
    frames, ids = mg.tensor(FRAMES).float(), mg.tensor(IDS)
    with mg.no_grad():
        expected = load(tmp_path)(frames, ids).numpy()
        model = load(tmp_path, weights=weights)
        got = model(frames, ids)
        save(model, tmp_path / "fewer")
        np.testing.assert_array_equal(load(tmp_path / "fewer", weights=None)(frames, ids).numpy().shape, got.shape)
    np.testing.assert_allclose(got, expected, rtol=0, atol=0.05 * np.abs(expected).max())


def test_it_learns_which_words_belong_to_which_frames():
    mg.manual_seed(0)
    model, frames, ids = Whisper(WhisperConfig(**SIZES)), mg.tensor(FRAMES).float(), mg.tensor(IDS)
    optimizer = optim.AdamW(model.parameters(), lr=3e-2)
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(frames, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.0


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_of_its_rates_drops_in_training_only(rate):
    mg.manual_seed(0)
    model, frames, ids = Whisper(WhisperConfig(**SIZES, **{rate: 0.5})), mg.tensor(FRAMES).float(), mg.tensor(IDS)
    assert not np.array_equal(model(frames, ids).detach(), model(frames, ids).detach())
    model.eval()
    np.testing.assert_array_equal(model(frames, ids).detach(), model(frames, ids).detach())


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda model: model(mg.zeros(1, 5, 11), mg.tensor([[1]])), r"frames must be \(B, 5, 12\), got \[1, 5, 11\]"),
        (lambda model: translator(model, mg.zeros(1, 12, 5)), r"frames must be \(B, 5, 12\), got \[1, 12, 5\]"),
        (lambda model: model(mg.zeros(1, 5, 12), mg.ones(1, 17, dtype=mg.int64)), "do not fit a table of 16 rows"),
        (lambda model: Whisper(WhisperConfig(**{**SIZES, "d_model": 9})), "d must be even"),
        (lambda model: Whisper(WhisperConfig(**{**SIZES, "decoder_attention_heads": 5})), "n_heads must divide"),
    ],
    ids=["length", "turned round", "too many tokens", "odd width", "heads"],
)
def test_frames_and_sizes_that_do_not_fit_are_refused(run, message):
    with pytest.raises(ValueError, match=message):
        run(small().float())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder_layerdrop": 0.1}, "encoder_layerdrop is 0.1, and whisper is built here with 0.0 only"),
        ({"decoder_layerdrop": 0.1}, "decoder_layerdrop is 0.1"),
        ({"apply_spec_augment": True}, "apply_spec_augment is True"),
        (
            {"architectures": ["WhisperForAudioClassification"]},
            "architectures .* of whisper are not built here, only WhisperForConditionalGeneration",
        ),
        ({"activation_function": "mish"}, "no activation 'mish'"),
        ({"num_mel_bins": 80}, r"conv1.weight has shape \[12, 5, 3\] .* asks for \[12, 80, 3\]"),
        ({"max_source_positions": 10**9}, r"encoder.embed_positions.weight has shape \[6, 12\]"),
        ({"max_target_positions": 10**9}, r"decoder.embed_positions.weight has shape \[16, 12\]"),
        ({"decoder_layers": 4}, "no model.decoder.layers.3"),
        ({"decoder_layers": 2}, "of which config.json says nothing"),
    ],
    ids=str,
)
def test_files_that_it_cannot_read_are_refused(settings, message, tmp_path):
    save(small(), tmp_path)
    config = tmp_path / "config.json"
    content = WhisperConfig.from_dict(SIZES).to_dict() | settings
    config.write_text(json.dumps({"architectures": ["WhisperForConditionalGeneration"], **content}))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("command", ["generate {} --prompt x", "translate {} x", "attention {} x"])
def test_commands_that_read_texts_say_that_it_hears(command, tmp_path, capsys):
    save(small(), tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx\n")
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "eos_token_id": 2, "decoder_start_token_id": 1}))
    assert main(command.format(tmp_path).split()) == 2
    assert "hears frames of sound, and reads no text" in capsys.readouterr().err


def test_inspect_shows_it(tmp_path, capsys):
    save(small(), tmp_path)
    assert main(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "WhisperForConditionalGeneration, here transformer.models.Whisper" in text
    assert isinstance(AutoModel.from_pretrained(tmp_path), Whisper)


def test_every_parameter_has_a_name():
    model = small()
    assert sorted(name for rule in checkpoints._rules(model) for name in rule.ours) == sorted(model.state_dict())


def test_what_a_config_leaves_out_is_what_hugging_face_takes():
    config = WhisperConfig.from_dict({})
    assert (config.num_mel_bins, config.max_source_positions, config.max_target_positions) == (80, 1500, 448)
    assert (config.d_model, config.vocab_size, config.pad_token_id) == (384, 51865, 50256)

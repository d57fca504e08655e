"""Adapters and frozen parts: the formula, what is trained and what stays, the commands, a sentence for each mistake."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.io import load_file
from transformer.cli import main
from transformer.cli.speaker import open_speaker
from transformer.lora import AdaptSettings, LoRALinear, adapt, merge
from transformer.models import DecoderLM
from transformer.training import checkpoint

TINY = ["--d-model", "16", "--n-heads", "2", "--n-kv-heads", "1", "--n-layers", "1", "--d-ff", "24", "--max-len", "12"]
QUICK = ["--batch-size", "4", "--warmup", "1", "--no-compile", "--lr", "0.01"]
RHYME = "the cat sat on the mat, the rat sat on the cat. \n" * 40


def said(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().err


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-5), (np.float64, 1e-13)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_the_formula_with_its_gradients_and_merged(dtype, bound, bias):
    rng = np.random.default_rng(0)
    layer = nn.Linear(5, 7, bias, dtype=np.dtype(dtype)).requires_grad_(False)
    adapted = LoRALinear(layer, 3, 12.0)
    x, a, b, g = (rng.standard_normal(shape).astype(dtype) for shape in [(2, 4, 5), (3, 5), (7, 3), (2, 4, 7)])
    w = layer.weight.numpy()
    before = adapted(mg.tensor(x)).detach().numpy()
    np.testing.assert_allclose(before, layer(mg.tensor(x)).detach().numpy(), rtol=bound)  # B is zero
    with mg.no_grad():
        adapted.lora_A.copy_(mg.tensor(a))
        adapted.lora_B.copy_(mg.tensor(b))
    expected = x @ (w + 4.0 * b @ a).T + (layer.bias.numpy() if bias else 0)
    out = adapted(mg.tensor(x))
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=bound, atol=10 * bound)
    out.backward(mg.tensor(g))
    np.testing.assert_allclose(adapted.lora_A.grad.numpy(), 4 * np.einsum("bto,or,bti->ri", g, b, x), atol=50 * bound)
    np.testing.assert_allclose(adapted.lora_B.grad.numpy(), 4 * np.einsum("bto,ri,bti->or", g, a, x), atol=50 * bound)
    assert layer.weight.grad is None
    plain = adapted.merged()
    assert type(plain) is nn.Linear
    np.testing.assert_allclose(plain(mg.tensor(x)).detach().numpy(), expected, rtol=bound, atol=10 * bound)
    np.testing.assert_array_equal(layer.weight.numpy(), w)


def test_only_adapters_are_left_to_train_and_a_merged_model_computes_the_same():
    mg.manual_seed(0)
    model = DecoderLM(19, 16, 2, 1, 2, 24, 12, 0.0).eval()
    names = set(model.state_dict())
    adapt(model, AdaptSettings(lora=2, lora_layers="(q|v|down)_proj"))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len(trained) == 2 * 2 * 3
    assert set(model.state_dict()) - names == trained
    with mg.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("lora_B"):
                parameter.normal_()
    ids = mg.tensor([[1, 2, 3, 4]])
    adapted = model(ids).detach().numpy()
    merge(model)
    assert set(model.state_dict()) == names
    np.testing.assert_allclose(model(ids).detach().numpy(), adapted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    (folder / "rhyme.txt").write_text(RHYME)
    assert main(["train", "text", *TINY, *QUICK, "--steps", "3", "--out", str(folder / "run"),
                 "--data", str(folder / "rhyme.txt")]) == 0  # fmt: skip
    return folder / "run"


def test_one_command_trains_adapters_on_a_run_and_the_run_speaks_by_itself(base, tmp_path, capsys):
    out = tmp_path / "tuned"
    command = ["train", "--base", base, "--lora", 4, "--data", base.parent / "rhyme.txt", *QUICK, "--out", out]
    code, words = said(capsys, *command, "--steps", 4)
    assert code == 0, words
    assert "of which 224 are trained" in words  # 4 (16 + 16) beside q_proj, and 4 (16 + 8) beside v_proj
    before, after = checkpoint.model_weights(base), checkpoint.model_weights(out)
    for name, tensor in before.items():
        np.testing.assert_array_equal(after[name].numpy(), tensor.numpy())
    assert any(tensor.numpy().any() for name, tensor in after.items() if name.endswith("lora_B"))
    state = [name for name in load_file(out / checkpoint.FILE) if name.endswith("exp_avg")]
    assert len(state) == 4  # of the optimizer: the adapters' alone
    assert said(capsys, "train", "--resume", out, "--steps", 6)[0] == 0
    speaker = open_speaker(out, "cpu")
    assert not any(isinstance(module, LoRALinear) for module in speaker.model.modules())
    assert said(capsys, "generate", out, "--max-new-tokens", 3, "--weights", "int8")[0] == 0


def test_what_is_frozen_stays(base, tmp_path, capsys):
    out = tmp_path / "part"
    data = base.parent / "rhyme.txt"
    assert said(capsys, "train", "--base", base, "--frozen", "embedding|attn", "--data", data, *QUICK, "--steps", 2,
                "--out", out)[0] == 0  # fmt: skip
    before, after = checkpoint.model_weights(base), checkpoint.model_weights(out)
    for name, tensor in before.items():
        frozen = "embedding" in name or "attn" in name or name == "lm_head.weight"  # which is the embedding
        assert np.array_equal(after[name].numpy(), tensor.numpy()) == frozen, name


BAD = [
    (["--lora", -1], "lora, a rank, must be from 1 to 4096"),
    (["--lora", 5000], "lora, a rank, must be from 1 to 4096"),
    (["--lora", 2, "--lora-alpha", 0], "lora_alpha must be above 0"),
    (["--lora", 2, "--lora-alpha", "nan"], "lora_alpha must be above 0"),
    (["--lora", 2, "--lora-layers", "("], "lora_layers must be a regular expression"),
    (["--lora", 2], "name a run or a model with --base"),
    (["--base", "{base}", "--lora", 2, "--lora-layers", "query"], "are none of the linear layers: down_proj"),
    (["--lora", 2, "--frozen", "attn"], "adapters are all that lora trains"),
    (["--lora", 2, "--precision", "bfloat16"], "in float32 only"),
    (["--frozen", "["], "frozen must be a regular expression"),
    (["--frozen", "nobody"], "is found in no name of a parameter"),
    (["--frozen", "."], "nothing is left to train"),
    (["--base", "/nowhere"], "there is no checkpoint /nowhere"),
    (["--base", "{base}", "--d-model", 32], "does not fit DecoderLM"),
    (["--base", "{base}", "masked"], "has learned text: train text from it, not masked"),
    (["--lora", "many"], "invalid int value"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_adapted_is_one_sentence(base, options, message, tmp_path, capsys):
    given = [str(option).format(base=base) for option in options]
    task = [] if "masked" in given else ["text"]
    try:
        code, words = said(capsys, "train", *task, *(QUICK if "{base}" in options else [*TINY, *QUICK]), *given,
                           "--steps", 1, "--out", tmp_path / "run")  # fmt: skip
    except SystemExit as ended:  # of argparse
        code, words = ended.code, capsys.readouterr().err
    assert code == 2
    assert message in words
    assert words.count("\n") == 1
    assert not (tmp_path / "run").exists()

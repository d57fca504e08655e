"""ViT: the reference library's numbers, and images that it cannot read."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import functional as F
from minigrad import optim
from transformer.checkpoints import CheckpointError, load, save
from transformer.models.vit import ViT, ViTConfig
from transformer.patches import Patches

RNG = np.random.default_rng(0)
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 14, "image_size": 11,
         "patch_size": 4, "num_channels": 2}  # fmt: skip
IMAGES = RNG.standard_normal((3, 2, 11, 11))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ViTModel"])
def test_logits_and_gradients_equal_the_librarys(kind, dtype, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from reference_families import assert_gradients_equal

    torch.manual_seed(0)
    config = transformers.ViTConfig(**SIZES, num_labels=5, qkv_bias=kind == "ViTModel", layer_norm_eps=1e-3)
    theirs = getattr(transformers, kind)(config).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.from_numpy(RNG.standard_normal(tuple(parameter.shape)).astype(np.float32) * 0.3))
    theirs = theirs.to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path)
    ours, bound = load(tmp_path, getattr(mg, dtype)), 1e-4 if dtype == "float32" else 1e-9
    out = theirs(torch.from_numpy(IMAGES.astype(dtype)))
    expected = out.logits if "logits" in out else out.last_hidden_state
    got = ours(mg.tensor(IMAGES.astype(dtype)))
    np.testing.assert_allclose(got.detach(), expected.detach(), rtol=0, atol=bound * expected.abs().max().item())
    seed = RNG.standard_normal(tuple(expected.shape)).astype(dtype)
    expected.backward(torch.from_numpy(seed))
    got.backward(mg.tensor(seed))
    assert_gradients_equal(ours, theirs, tmp_path, bound)


def test_a_patch_is_a_convolution_whose_steps_are_as_wide_as_its_square():
    patches = Patches(2, 4, 5).double()
    got = patches(mg.tensor(IMAGES)).detach().numpy()
    assert got.shape == (3, 4, 5)
    square = IMAGES[1, :, 4:8, 0:4]
    expected = (patches.weight.detach().numpy() * square).sum((1, 2, 3)) + patches.bias.detach().numpy()
    np.testing.assert_allclose(got[1, 2], expected, rtol=1e-12)


@pytest.mark.parametrize("head", ["classification", None])
def test_it_is_saved_with_its_head(head, tmp_path):
    model = ViT(ViTConfig(**SIZES, id2label={"0": "cat", "1": "dog", "2": "none"}), head).eval()
    save(model, tmp_path)
    again, images = load(tmp_path), mg.tensor(IMAGES).float()
    assert again.head == head
    np.testing.assert_array_equal(again(images).detach(), model(images).detach())
    assert again(images).shape == ((3, 3) if head else (3, 5, 12))


def test_it_learns_to_tell_images_apart():
    mg.manual_seed(0)
    model, labels, images = ViT(ViTConfig(**SIZES)), mg.tensor([0, 1, 1]), mg.tensor(IMAGES).float()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(25):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: ViT(ViTConfig(**SIZES))(mg.zeros(1, 2, 8, 8)), r"images must be \(B, 2, 11, 11\), got \[1, 2, 8, 8\]"),
        (lambda: ViT(ViTConfig(**{**SIZES, "patch_size": 12})), "patches of 12 pixels do not fit an image of 11"),
        (lambda: ViT(ViTConfig(**SIZES), "tagging"), "head must be 'classification' or None, got 'tagging'"),
        (lambda: ViT(ViTConfig(**{**SIZES, "num_attention_heads": 5})), "n_heads must divide d_model"),
        (lambda: ViTConfig.from_dict({**SIZES, "image_size": [8, 8]}), "image_size must be a whole number"),
    ],
)
def test_bad_sizes_are_refused(run, message):
    with pytest.raises(ValueError, match=message):
        run()


def test_a_file_of_another_size_is_refused(tmp_path):
    save(ViT(ViTConfig(**SIZES)), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"patch_size": 4', '"patch_size": 3'))
    with pytest.raises(CheckpointError, match=r"projection.weight has shape \[12, 2, 4, 4\]"):
        load(tmp_path)

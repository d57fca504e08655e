"""Whole models that only look broken: empty parameters, patches longer than a sentence, stacks that run again."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from wholes import Whole  # noqa: E402

from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

HEAD = "import torch.nn.functional as F\n"


@pytest.fixture
def whole(made: Callable[..., Any]) -> Callable[..., Any]:
    """whole("Net", "class Net...") is the running model that is made of a class of this text."""
    from conformance.adapters.whole.model import whole_model

    return lambda name, text: whole_model(made(name, HEAD + dedent(text)))


EMPTY = """
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 8), nn.Parameter(torch.empty(16, 8))
        self.register_buffer("cache", torch.empty(4, 4))
        self.kept, self.limit = torch.empty(3), float("-inf") * torch.ones(2)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe[: ids.size(1)] + self.cache.sum() + self.kept.sum()
        return x.cumsum(1) @ self.wte.weight.T
"""


def test_parameters_that_are_left_empty_are_filled_the_same_way_each_time(made):
    net = made("GPT", EMPTY)
    first, second, other = net.fresh(0), net.fresh(0), net.fresh(1)
    assert first.wpe.isfinite().all()
    assert 0 < first.wpe.std() < 0.1
    assert torch.equal(first.wpe, second.wpe)
    assert not torch.equal(first.wpe, other.wpe)
    assert first.cache.eq(0).all()
    assert first.kept.eq(0).all()
    assert first.limit.isneginf().all()
    assert torch.get_deterministic_debug_mode() == 0
    assert torch.empty(2, 2).shape == (2, 2)


def test_weights_that_the_user_gives_are_not_filled(tmp_path):
    from conformance.adapters import _find, _load, parse
    from conformance.adapters.whole.making import made_of

    path = tmp_path / "given_subject.py"
    path.write_text(
        f"import torch\nfrom torch import nn\n{EMPTY}\nnet = GPT()\nnn.init.constant_(net.wpe, float('nan'))\n"
    )
    spec = parse(f"{path}:net")
    assert made_of(_find(_load(spec, ()), spec), spec).fresh().wpe.isnan().all()


PATCHES = """
class PatchLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.of_patch, self.dead = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Parameter(torch.ones(3))
        self.head = nn.Linear(8, 20)

    def forward(self, ids):
        x = self.words(ids)
        x = x.cumsum(1)
        whole = x[:, 15:-1:16]
        for at in range(whole.size(1)):
            after = torch.arange(ids.size(1))[:, None] > 16 * at + 15
            x = x + after * self.of_patch(whole[:, at])[:, None]
        return self.head(x)
"""


def test_what_reads_whole_patches_is_reached_by_a_longer_input_and_what_nothing_reads_is_not(whole):
    found = whole("PatchLM", PATCHES)
    wanted = ["of_patch.weight", "of_patch.bias", "dead"]
    assert found.excused_parameters(wanted) == {"of_patch.weight", "of_patch.bias"}


AGAIN = """
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.drop = nn.Embedding(20, 8), nn.Dropout(0.5)
        self.saved = None

    def forward(self, ids):
        if not self.training and torch.is_grad_enabled():
            raise TypeError("expected a torch.ByteTensor, but got NoneType")
        return self.drop(self.wte(ids)).cumsum(1) @ self.wte.weight.T
"""


def test_what_goes_backward_in_training_only_does_so_without_dropout(whole):
    found = whole("GPT", AGAIN)
    inputs = found.example(2, 5)
    first, second = found.gradients(inputs), found.gradients(inputs)
    assert (first["wte.weight"] == second["wte.weight"]).all()
    assert not found.module.training


def test_an_error_of_both_modes_is_that_of_evaluation(whole):
    found = whole("GPT", AGAIN.replace("not self.training and ", "").replace('"expected', 'f"{self.training} expected'))
    with pytest.raises(TypeError, match="False expected"):
        found.gradients(found.example(2, 5))


def test_required_masks_that_may_be_none_are_tried_as_padding(whole):
    found = whole(
        "Translator",
        """
        class Translator(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.head = nn.Embedding(20, 8), nn.Embedding(24, 8), nn.Linear(8, 24)

            def forward(self, enc_x, dec_x, enc_mask, dec_mask):
                a, b = self.a(enc_x), self.b(dec_x)
                if enc_mask is not None:
                    a = a.masked_fill(enc_mask.bool()[..., None], 0)
                if dec_mask is not None:
                    b = b.masked_fill(dec_mask.bool()[..., None], 0)
                return self.head(b.cumsum(1) + a.sum(1, keepdim=True))
        """,
    )
    assert found.kind == "sequence_to_sequence"
    assert found.padding_of("src") == "mask"
    told = "\n".join(map(str, found.facts))
    assert "enc_mask = bool, True = hidden, (B, Tk)" in told


def test_a_model_that_compares_the_samples_of_a_batch_has_no_answer_of_a_sample(whole):
    from conformance.adapters.inference.facts import Unresolved

    with pytest.raises(Unresolved, match="a number for each pair of samples"):
        whole(
            "Clip",
            """
            class Clip(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.patches, self.words = nn.Conv2d(3, 8, 8, 8), nn.Embedding(20, 8)

                def forward(self, image, text):
                    return self.patches(image).flatten(2).mean(2) @ self.words(text).mean(1).T
            """,
        )


def test_two_classes_are_no_two_samples(whole):
    found = whole(
        "Net",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 2)

            def forward(self, ids):
                return self.head(self.words(ids).mean(1))
        """,
    )
    assert (found.kind, found.calling.outputs) == ("classifier", 2)


def test_a_film_has_frames_before_or_behind_its_channels(whole):
    text = """
        class Video(nn.Module):
            def __init__(self, num_frames=4, dim=8):
                super().__init__()
                self.num_frames, self.patches, self.head = num_frames, nn.Linear(3 * 64, dim), nn.Linear(dim, 5)

            def forward(self, x):
                b, t, c, h, w = SHAPE
                assert t == self.num_frames and c == 3
                return self.head(self.patches(x.reshape(b, -1, 3 * 64)).mean(1))
    """
    assert whole("Video", text.replace("SHAPE", "x.shape")).calling.main.shape[:2] == (4, 3)
    assert whole("Video", text.replace("SHAPE", "x.transpose(1, 2).shape")).calling.main.shape[:2] == (3, 4)


def test_what_ran_as_a_model_and_is_nothing_else_is_kept(tmp_path):
    from conformance.adapters import resolve

    path = tmp_path / "series_subject.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Series(nn.Module):\n"
        "    def __init__(self, feature_size=8):\n        super().__init__()\n"
        "        self.encoder_layer = nn.TransformerEncoderLayer(feature_size, 4, 16)\n"
        "        self.inp, self.decoder = nn.Linear(1, feature_size), nn.Linear(feature_size, 1)\n\n"
        "    def forward(self, src):\n        return self.decoder(self.encoder_layer(self.inp(src)))\n"
    )
    assert resolve(f"{path}:Series").kind == "encoder_model"


@pytest.mark.parametrize(
    ("name", "encoder", "kind"),
    [
        ("encoder", "nn.Sequential(nn.Sequential(nn.Linear(8, 8)))", "sequence_to_sequence"),
        ("encoder", "nn.Sequential(nn.Linear(8, 8))", "language_model"),  # a map or a head may be called so, too
        ("encoder", "nn.Identity()", "language_model"),
        ("sequence", "nn.Sequential(nn.Sequential(nn.Linear(8, 8)))", "language_model"),
    ],
)
def test_a_decoder_that_is_fed_from_labels_is_no_language_model_where_it_has_an_encoder(whole, name, encoder, kind):
    text = f"""
class Writer(nn.Module):
    "Autoregressive: a summary of its source."
    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(20, 8)
        self.{name}, self.decoder = {encoder}, nn.Sequential(nn.Sequential(nn.Linear(8, 20)))

    def forward(self, src, labels):
        words = torch.nn.functional.pad(labels[:, :-1], (1, 0))
        logits = self.decoder(self.shared(words) + self.{name}(self.shared(src)).mean(1, keepdim=True))
        return logits, torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels)
"""
    assert whole("Writer", text).kind == kind


CLAMPS = """
import warnings

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(20, 8)

    def forward(self, ids):
        if ids.max() > 19:
            warnings.warn("ids are clamped" if {says} else "something else")
        return self.wte(ids.clamp(max=19)).cumsum(1) @ self.wte.weight.T
"""


@pytest.mark.parametrize(("says", "expected"), [(True, "NOTE"), (False, "FAIL")])
def test_a_model_that_says_that_it_reads_ids_as_others_is_not_blamed(whole, says, expected):
    subject = Whole(whole("GPT", CLAMPS.format(says=says)))
    assert run_check(CHECKS["model-refuses-tokens-outside-its-vocabulary"], subject, "quick").verdict.name == expected

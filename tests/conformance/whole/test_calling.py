"""Models of the field's styles, each small: how each is called, and what is said where none can be."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters import SpecificationError, resolve  # noqa: E402

HEAD = "import torch.nn.functional as F\n"


@pytest.fixture
def whole(made: Callable[..., Any]) -> Callable[..., Any]:
    """whole("Net", "class Net...") is the running model that is made of a class of this text."""
    from conformance.adapters.whole.model import whole_model

    return lambda name, text: whole_model(made(name, HEAD + dedent(text)))


def test_the_first_reason_is_told_with_the_line_to_write(tmp_path):
    path = tmp_path / "odd_subject.py"
    odd = "class Odd(nn.Module):\n    def __init__(self, widget: str):\n        super().__init__()\n"
    path.write_text(f"from torch import nn\n{odd}")
    with pytest.raises(SpecificationError) as caught:
        resolve(f"{path}:Odd")
    assert "nothing shows what widget of Odd should be" in str(caught.value)
    assert "Odd(widget=...)" in str(caught.value)
    assert str(caught.value).count("UNRESOLVED") == 1


def test_a_search_that_takes_long_ends_with_the_reason(monkeypatch):
    from conformance.adapters.whole.searching import calling_of

    class Slow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.calls = torch.nn.Linear(24, 24), 0

        def forward(self, signal):
            self.calls += 1
            raise RuntimeError("none of these")

    calls = []
    for seconds in (20.0, 0.0):
        monkeypatch.setattr("conformance.adapters.whole.searching.SECONDS", seconds)
        slow = Slow()
        with pytest.raises(SpecificationError, match="Slow cannot be called: RuntimeError: none of these"):
            calling_of(slow)
        calls.append(slow.calls)
    assert calls[1] < calls[0] / 2


# --- tokens ---------------------------------------------------------------------------------------

LAST_ONLY = """
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, idx, targets=None):
        x = self.wte(idx).cumsum(1)
        if targets is None:
            return self.head(x[:, [-1]]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.reshape(-1, 20), targets.reshape(-1), ignore_index=-1)
"""


def test_a_model_that_answers_for_the_last_token_only_without_targets_gets_some(whole):
    found = whole("GPT", LAST_ONLY)
    assert found.calling.layout == "(B, T, V)"
    assert not found.last_only
    assert found(**found.example(2, 5))["out"].shape == (2, 5, 20)


def test_a_model_that_answers_for_the_last_token_with_targets_too_stays_so(whole):
    found = whole("GPT", LAST_ONLY.replace("if targets is None", "if True"))
    assert found.calling.layout == "(B, 1, V)"
    assert found.last_only


TRANSLATOR = """
class Translator(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.src, self.tgt = nn.Embedding(20, d), nn.Embedding(23, d)
        self.cross = nn.MultiheadAttention(d, 2, batch_first=True)
        self.own = nn.MultiheadAttention(d, 2, batch_first=True)
        self.fc = nn.Linear(d, 23)

    def encode(self, src, src_mask):
        return self.src(src) * src_mask[..., None]

    def decode(self, encoder_output, src_mask, tgt, tgt_mask):
        x = self.tgt(tgt)
        x = x + self.own(x, x, x, attn_mask=~tgt_mask.bool().expand(1, x.shape[1], x.shape[1])[0])[0]
        return x + self.cross(x, encoder_output, encoder_output, key_padding_mask=~src_mask.bool())[0]

    def project(self, x):
        return self.fc(x)
"""


def test_a_model_without_a_forward_is_called_by_encode_decode_and_project(whole):
    text = TRANSLATOR.replace("self.src(src) * src_mask[..., None]", "self.src(src)")
    text = text.replace(", key_padding_mask=~src_mask.bool()", "").replace(".expand(1,", "[0].expand(1,")
    found = whole("Translator", text)
    assert found.kind == "sequence_to_sequence"
    assert [(one.parameter, one.vocab) for one in found.calling.inputs] == [("src", 20), ("tgt", 23)]
    assert found(**found.example(2, 5))["out"].shape == (2, 5, 23)
    assert "decode" in found.place() or "model.py" in found.place()
    again = found.fresh()
    assert again(**again.example(2, 5))["out"].shape == (2, 5, 23)


CHATTER = """
class Chatter(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(20, d), nn.Parameter(torch.randn(32, d)), nn.Linear(d, 20)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 32, batch_first=True), 1)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 2, 32, batch_first=True), 1)

    def forward(self, X, Y, X_mask, Y_mask, foresee_mask):
        memory = self.encoder(self.words(X) + self.places[: X.shape[1]], src_key_padding_mask=X_mask)
        x = self.words(Y) + self.places[: Y.shape[1]]
        padding = dict(tgt_key_padding_mask=Y_mask, memory_key_padding_mask=X_mask)
        return self.out(self.decoder(x, memory, tgt_mask=foresee_mask, tgt_is_causal=True, **padding))
"""


def test_masks_are_what_the_layers_of_torch_call_them(whole):
    found = whole("Chatter", CHATTER)
    made = {mask.parameter: mask.how for mask in found.calling.masks}
    assert made["foresee_mask"] == "bool, True = hidden, (Tq, Tk)"
    assert made["X_mask"] == made["Y_mask"] == "bool, True = hidden, (B, Tk)"
    assert "attention" in found.inside().seen


def test_a_run_that_only_the_fast_path_stands_is_not_an_error(whole):
    from conformance.protocol import NotProvided

    text = CHATTER.replace(", foresee_mask):", "):").replace("tgt_mask=foresee_mask", "tgt_mask=None")
    found = whole("Chatter", text)
    with pytest.raises(
        NotProvided, match="runs only on torch's fast path, and else raises RuntimeError: Need attn_mask"
    ):
        found.inside()


def test_what_fails_before_it_reads_its_mask_is_not_run_with_every_mask(made):
    from conformance.adapters.inference.facts import Unresolved
    from conformance.adapters.whole.searching import calling_of

    text = """
        class Wrong(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.runs, self.reads = nn.Linear(8, 8), 0, False
            def forward(self, x, mask):
                self.runs += 1
                hidden = mask.bool() if self.reads else mask
                return self.linear(x).view(5, 5), hidden
    """
    runs, refusals = [], []
    for reads in (True, False):
        wrong = made("Wrong", dedent(text)).fresh().eval()
        wrong.reads = reads
        with pytest.raises(Unresolved, match=r"shape '\[5, 5\]'") as caught:
            calling_of(wrong)
        runs.append(wrong.runs)
        refusals.append(str(caught.value))
    assert runs[1] < runs[0] / 4, runs
    assert refusals[0] == refusals[1]


def test_a_mask_whose_default_breaks_is_given(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte, self.fc = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, input_ids, attention_mask=None, masked_lm_labels=None):
                hidden = (1.0 - attention_mask.unsqueeze(1).to(self.fc.weight.dtype)) * -1e9
                x = self.wte(input_ids)
                return self.fc((x @ x.transpose(1, 2) + hidden).softmax(-1) @ x)
    """
    found = whole("Net", text)
    assert [mask.parameter for mask in found.calling.masks] == ["attention_mask"]


# --- numbers --------------------------------------------------------------------------------------

PATCHES = """
class Net(nn.Module):
    def __init__(self, in_c=3, img_size=24, patch=8, dim=16):
        super().__init__()
        self.in_c, self.patch = in_c, patch
        self.emb = nn.Linear(in_c * patch**2, dim)
        self.pos = nn.Parameter(torch.randn(1, (img_size // patch) ** 2, dim))
        self.fc = nn.Linear(dim, 5)

    def forward(self, x):
        b, c, h, w = x.shape
        p = self.patch
        x = x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * p)
        return self.fc((self.emb(x) + self.pos).mean(1))
"""


def test_images_have_the_size_that_the_constructor_says(whole):
    found = whole("Net", PATCHES)
    assert found.calling.main.shape == (3, 24, 24)
    assert found.kind == "classifier"


def test_images_have_the_size_that_the_table_of_positions_covers(whole):
    text = PATCHES.replace("img_size", "extent").replace("in_c", "colours")
    assert whole("Net", text).calling.main.shape == (3, 24, 24)


def test_volumes_and_images_with_the_channels_last_are_found(whole):
    volume = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv3d(2, 4, 4, stride=4)
                self.fc = nn.Linear(4, 5)

            def forward(self, volume):
                return self.fc(self.conv(volume).mean((2, 3, 4)))
    """
    assert whole("Net", volume).calling.main.shape[0] == 2
    last = """
        class Net(nn.Module):
            def __init__(self, input_channels=3):
                super().__init__()
                self.fc = nn.Linear(input_channels + 2, 5)

            def forward(self, data):
                b, h, w, c = data.shape
                rows = torch.linspace(-1, 1, h)[None, :, None, None].expand(b, h, w, 1).to(data.dtype)
                return self.fc(torch.cat([data, rows, rows], -1).mean((1, 2)))
    """
    assert whole("Net", last).calling.main.shape[-1] == 3


def test_a_diffusion_model_is_given_a_step_and_a_class_for_each_image(whole):
    text = """
        class Net(nn.Module):
            def __init__(self, in_channels=4, size=16):
                super().__init__()
                self.conv = nn.Conv2d(in_channels, 8, 3, padding=1)
                self.steps, self.classes = nn.Linear(1, 8), nn.Embedding(10, 8)
                self.back = nn.Conv2d(8, in_channels, 3, padding=1)

            def forward(self, x, t, y):
                shift = self.steps(t[:, None].to(x.dtype)) + self.classes(y)
                return self.back(F.gelu(self.conv(x) + shift[:, :, None, None]))
    """
    found = whole("Net", text)
    assert found.calling.main.shape == (4, 16, 16)
    assert found.calling.layout == "(B, ...)"
    inputs = found.example(3)
    out = found(**inputs)["out"]
    assert out.shape == (3, 4 * 16 * 16)
    assert found(x=inputs["x"][2:])["out"] == pytest.approx(out[2:])  # a sample has one answer wherever it stands


def test_a_speech_model_is_given_frames_and_their_number(whole):
    text = """
        class Net(nn.Module):
            def __init__(self, num_classes=5, input_dim=20):
                super().__init__()
                self.conv = nn.Conv2d(1, 4, 3, padding=1)
                self.fc = nn.Linear(4 * input_dim, num_classes)

            def forward(self, inputs, input_lengths):
                x = self.conv(inputs.unsqueeze(1)).permute(0, 2, 1, 3).flatten(2)
                keep = torch.arange(x.shape[1])[None] < input_lengths[:, None]
                return self.fc(x * keep[..., None])
    """
    found = whole("Net", text)
    assert found.calling.main.shape == (None, 20)
    assert found.kind == "encoder_model"


def test_the_attempt_that_came_furthest_is_what_a_refusal_quotes(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 4)

            def forward(self, x):
                if x.ndim != 4:
                    raise ValueError("images, please")
                raise RuntimeError(f"no images of {x.mul(2).add(1).sin().shape[1:]}")
    """
    with pytest.raises(SpecificationError, match=r"RuntimeError: no images of .*\[3, 32, 32\]"):
        whole("Net", text)


def test_a_refusal_names_the_user_s_line_where_an_operation_failed(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte = nn.Embedding(20, 8)
                self.fc = nn.Linear(9, 20)

            def forward(self, tokens):
                return self.fc(self.wte(tokens))
    """
    with pytest.raises(SpecificationError, match=r"shapes cannot be multiplied .* in forward: return self.fc\("):
        whole("Net", text)


def test_a_time_series_model_is_given_marks_of_time(whole):
    text = """
        class Net(nn.Module):
            def __init__(self, enc_in=7):
                super().__init__()
                self.values, self.marks = nn.Linear(enc_in, 8), nn.Embedding(13, 8)
                self.back = nn.Linear(8, enc_in)

            def forward(self, x_enc, x_mark_enc, x_dec, x_mark_dec):
                read = self.values(x_enc) + self.marks(x_mark_enc.long()[..., 0])
                written = self.values(x_dec) + self.marks(x_mark_dec.long()[..., 3])
                return self.back(read.mean(1, keepdim=True) + written)
    """
    found = whole("Net", text)
    assert found.calling.main.parameter == "x_enc"
    assert found.calling.layout == "(B, T, V)"
    inputs = found.example(3)
    out = found(**inputs)["out"]
    assert found(x=inputs["x"][2:])["out"] == pytest.approx(out[2:])
    assert found.twin(torch.float32)(**inputs)["out"] == pytest.approx(out, rel=1e-3, abs=1e-3)


def test_a_copy_that_is_made_later_is_made_once_and_shares_nothing(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)

            def forward(self, ids):
                return self.out(self.words(ids))
    """
    found = whole("Net", text)
    later = found.later_twin()
    assert "module" not in vars(later)
    assert (later.kind, later.known) == (found.kind, found.known)
    module = later.module
    assert later.module is module is not found.module
    held = [{p.data_ptr() for p in one.module.parameters()} for one in (found, later, later.later_twin())]
    assert not held[0] & held[1]
    assert not held[1] & held[2]


def test_the_axis_of_time_of_a_series_is_the_one_that_is_free(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = nn.Conv1d(8, 16, 3, padding=1), nn.Linear(16, 4)

            def forward(self, x):
                return self.fc(self.conv(x.transpose(1, 2)).transpose(1, 2))
    """
    assert whole("Net", text).calling.main.shape == (None, 8)
    channels_first = text.replace("x.transpose(1, 2)", "x", 1)
    main = whole("Net", channels_first).calling.main
    assert (main.shape, main.channels_first) == ((None, 8), True)


def test_a_model_that_shortens_its_input_gets_enough_of_it(whole):
    text = """
        class Net(nn.Module):
            def __init__(self, input_dim=20, num_classes=5):
                super().__init__()
                self.conv = nn.Conv1d(input_dim, 8, 4, stride=4)
                self.own, self.fc = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, num_classes)

            def forward(self, inputs, input_lengths):
                x = self.conv(inputs.transpose(1, 2)).transpose(1, 2)
                return self.fc(self.own(x, x, x)[0])
    """
    found = whole("Net", text)
    gradients = found.gradients(found.example(2))
    assert all(gradient is not None and abs(gradient).max() > 0 for gradient in gradients.values())


def test_the_row_of_padding_has_no_gradient_and_no_slope_is_asked_of_it(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte, self.kinds = nn.Embedding(20, 8), nn.Embedding(3, 8, padding_idx=0)
                self.fc = nn.Linear(8, 20)

            def forward(self, x, segment_label):
                return self.fc(self.wte(x) + self.kinds(segment_label))
    """
    found = whole("Net", text)
    name, error, slope, told = found.worst_gradient(found.example(2))
    assert abs(slope - told) <= max(error, 1e-4 * abs(slope)), name


def test_token_types_that_a_model_was_made_without_are_not_missed(whole):
    from conformance.checks.sequence_models import token_types_matter
    from conformance.protocol import NotProvided

    text = """
        class Net(nn.Module):
            def __init__(self, with_types={}):
                super().__init__()
                self.wte, self.fc = nn.Embedding(20, 8), nn.Linear(8, 20)
                self.token_types = nn.Embedding(2, 8) if with_types else None

            def forward(self, input_ids, token_type_ids=None):
                return self.fc(self.wte(input_ids))
    """

    class Implementation:
        def __init__(self, subject):
            self.subject = subject

        def build(self, role, config):
            return self.subject

    with pytest.raises(NotProvided, match="no table of token types"):
        token_types_matter(Implementation(whole("Net", text.format(False))), None)
    assert not token_types_matter(Implementation(whole("Net", text.format(True))), None).ok


def test_a_mask_that_is_kept_as_a_parameter_stays_as_it_is(whole):
    text = """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte, self.fc = nn.Embedding(20, 8), nn.Linear(8, 20)
                self.hidden = nn.Parameter(torch.full((6, 6), float("-inf")).triu(1), requires_grad=False)

            def forward(self, idx):
                x = self.wte(idx)
                length = x.shape[1]
                scores = x @ x.transpose(1, 2) + self.hidden[:length, :length]
                return self.fc(scores.softmax(-1) @ x)
    """
    found = whole("Net", text)
    assert abs(found(**found.example(2, 6))["out"]).max() < 1e6


@pytest.mark.parametrize(
    ("switch", "kind"),
    [
        ("bidirectional=False", "language_model"),
        ("bidirectional=True", "masked_language_model"),
        ("is_causal=True", "language_model"),
    ],
)
def test_a_switch_that_the_model_keeps_tells_its_kind(whole, switch, kind):
    name = switch.partition("=")[0]
    text = f"""
        class FutureMask(nn.Module):
            def forward(self, x):
                return torch.ones(x.shape[1], x.shape[1]).triu(1)

        class Net(nn.Module):
            def __init__(self, {switch}):
                super().__init__()
                self.{name} = {name}  # else it is bidirectional
                self.wte, self.mask, self.head = nn.Embedding(20, 8), FutureMask(), nn.Linear(8, 20)
                self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

            def forward(self, x):
                return self.head(self.layer(self.wte(x)))
    """
    assert whole("Net", text).kind == kind


COUNTED = """
class Tagger(nn.Module):
    def __init__(self, vocab_size=20, n_tags=3):
        super().__init__()
        self.wte, self.head = nn.Embedding(vocab_size, 8), nn.Linear(8, n_tags)

    def forward(self, ids, lengths):
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        x = self.wte(ids) * real[..., None]
        return self.head(x.sum(1) / lengths[:, None])
"""


def test_lengths_count_the_real_tokens_of_a_padded_batch(whole):
    found = whole("Tagger", COUNTED)
    assert dict(found.calling.lengths) == {"lengths": found.calling.inputs[0].meaning}
    assert found.padding_of("ids") == "lengths"
    inputs = found.example(2, 5)
    shorter = {**inputs, "padding": inputs["ids"] >= 0}
    shorter["padding"][0, 3:] = False
    alone = found(ids=inputs["ids"][:1, :3])["out"]
    assert found(**shorter)["out"][0] == pytest.approx(alone[0], abs=1e-6)


def test_a_mask_of_padding_has_a_number_for_each_token_where_several_forms_run(whole):
    subject = whole(
        "Sentences",
        """
        class Sentences(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok, self.mix, self.out = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 6)

            def forward(self, ids, attention_mask):
                n, t = ids.shape
                real = attention_mask.to(self.out.weight.dtype)
                weights = (real.view(n, 1, t) - 1) * 1e4 + torch.zeros(n, t, t)
                x = self.tok(ids)
                x = x + weights.softmax(-1) @ self.mix(x)
                w = real.unsqueeze(2)
                return x @ self.out.weight.t(), (x * w).sum(1) / w.sum(1)
        """,
    )
    assert [mask.axes for mask in subject.calling.masks] == [2]


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("Protein masked language model.", "masked_language_model"),
        ("Writes proteins.", "language_model"),
        ("A masked language model and a causal one.", "language_model"),  # it speaks of both, so of none
    ],
)
def test_the_first_line_of_a_file_says_more_than_lm_in_a_name(whole, heading, kind):
    text = f"""
__doc__ = "{heading}"

class ProteinLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, ids):
        return self.head(self.tok(ids))
"""
    assert whole("ProteinLM", text).kind == kind


def test_what_is_called_after_a_source_has_its_words(whole):
    subject = whole(
        "Copier",
        """
        class Copier(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, src, src_ext, tgt_in):
                scores = self.tok(tgt_in) @ self.tok(src).transpose(1, 2)
                index = src_ext[:, None].expand(scores.shape)
                return self.head(self.tok(tgt_in)).scatter_add(2, index, scores.softmax(-1))
        """,
    )
    assert subject.kind == "sequence_to_sequence"
    assert [(one.meaning, one.parameter) for one in subject.calling.inputs] == [("src", "src"), ("tgt", "tgt_in")]

"""What forward takes beside plain token ids: places to answer at, ids that it fills up, data with odd names."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

HEAD = "import torch.nn.functional as F\n"


@pytest.fixture
def whole(made: Callable[..., Any]) -> Callable[..., Any]:
    """whole("Net", "class Net...") is the running model that is made of a class of this text."""
    from conformance.adapters.whole.model import whole_model

    return lambda name, text: whole_model(made(name, HEAD + dedent(text)))


def test_a_masked_model_is_asked_at_every_position(whole):
    found = whole(
        "BERT",
        """
        class BERT(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.types = nn.Embedding(20, 8), nn.Embedding(2, 8)
                self.head = nn.Linear(8, 20)

            def forward(self, input_ids, segment_ids, masked_pos):
                x = self.words(input_ids) + self.types(segment_ids)
                x = x + x.mean(1, keepdim=True)
                chosen = masked_pos[:, :, None].expand(-1, -1, x.size(-1))
                return self.head(torch.gather(x, 1, chosen)), x[:, 0]
        """,
    )
    assert found.kind == "masked_language_model"
    assert found(**found.example(2, 5))["out"].shape == (2, 5, 20)


@pytest.mark.parametrize("side", ["(0, pad)", "(pad, 0)"])
def test_ids_that_are_filled_up_to_whole_windows_are_still_ids(whole, side):
    found = whole(
        "WindowGPT",
        f"""
        class WindowGPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, ids):
                pad = -ids.size(1) % 4
                x = self.words(F.pad(ids, {side}, value=0).reshape(len(ids), -1, 4)).flatten(1, 2)
                x = x[:, pad:] if {side}[0] else x[:, :ids.size(1)]
                return self.head(x.cumsum(1))
        """,
    )
    assert found.calling.main.vocab == 20
    assert found.kind == "language_model"


def test_what_is_called_a_mask_is_the_data_where_nothing_else_is(whole):
    found = whole(
        "Net",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 5)

            def forward(self, masked_img):
                return self.head(self.patches(masked_img).flatten(2).mean(2))
        """,
    )
    assert found.kind == "classifier"
    assert found.calling.main.parameter == "masked_img"


SPOKEN = """
class SpeechToText(nn.Module):
    def __init__(self, n_mels=16, frames=20, vocab=37, d=8):
        super().__init__()
        self.conv = nn.Conv1d(n_mels, d, 3, stride=2, padding=1)
        self.register_buffer("places", torch.randn(frames, d))
        self.register_buffer("kept", torch.eye(4).to_sparse())
        self.words, self.attn = nn.Embedding(vocab, d), nn.MultiheadAttention(d, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(d, 2, batch_first=True)

    def forward(self, mel, tokens):
        sound = self.conv(mel).transpose(1, 2)
        assert sound.shape[1:] == self.places.shape, "incorrect audio shape"
        sound, x = sound + self.places, self.words(tokens)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attn(x, x, x, attn_mask=hidden)[0]
        x = x + self.cross(x, sound, sound)[0]
        return x @ self.words.weight.T
"""


def test_tokens_beside_frames_of_sound_are_called_with_the_same_sound_for_every_sample(whole):
    found = whole("SpeechToText", SPOKEN)
    assert found.kind == "language_model"
    assert found.calling.main.parameter == "tokens"
    assert "mel = numbers (16, 40), the same for every sample" in "\n".join(map(str, found.facts))
    assert found(**found.example(3, 5))["out"].shape == (3, 5, 37)
    assert found.torch_dtype is torch.float64
    assert found.changed_inputs(found.example()) == {}  # the sound is of the model's precision, too


PADDED = """
class Translator(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=8, src_pad_idx=None, tgt_pad_idx=None):
        super().__init__()
        self.src_pad_idx, self.tgt_pad_idx = src_pad_idx, tgt_pad_idx
        self.a, self.b = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.head = nn.Linear(d_model, tgt_vocab)

    def forward(self, src, tgt):
        real = (src != self.src_pad_idx).unsqueeze(-1)
        return self.head(self.b(tgt).cumsum(1) + (self.a(src) * real).sum(1, keepdim=True))
"""


def test_a_model_that_cannot_be_called_as_it_was_made_is_made_with_ids_in_the_place_of_none(tmp_path):
    from conformance.adapters import resolve

    path = tmp_path / "padded_subject.py"
    path.write_text("import torch\nfrom torch import nn\n" + PADDED)
    found = resolve(f"{path}:Translator")
    assert found.kind == "sequence_to_sequence"
    assert "ids in the place of None" in "\n".join(found.notes)


def test_green_parts_of_a_model_that_cannot_be_run_do_not_hide_it(tmp_path):
    from conformance.adapters import resolve

    broken = PADDED.replace("return self.head", "assert len(src) == 77, 'odd batch'\n        return self.head")
    path = tmp_path / "broken_subject.py"
    path.write_text("import torch\nfrom torch import nn\n" + broken)
    found = resolve(f"{path}:Translator")
    assert found.kind is None
    assert found.untested[0].startswith("only parts of Translator were tested")
    assert "odd batch" in found.untested[0] or "unsqueeze" in found.untested[0]
    assert "broken_subject.py:" in found.untested[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("TinyLM", "language_model"), ("PerceiverLM", "masked_language_model"), ("PerceiverArLM", "language_model")],
)
def test_a_word_for_models_that_look_both_ways_outvotes_a_bare_lm(whole, name, kind):
    found = whole(
        name,
        f"""
        class {name}(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, ids):
                x = self.words(ids)
                return self.head(x + x.mean(1, keepdim=True))
        """,
    )
    assert found.kind == kind


@pytest.mark.parametrize("result", ["Output(None, scores, x)", "dict(hidden=x, logits=scores)"])
def test_what_is_called_logits_is_the_answer(whole, result):
    found = whole(
        "BertClassifier",
        f"""
        @dataclass
        class Output:
            loss: object
            logits: torch.Tensor
            hidden_states: torch.Tensor

        class BertClassifier(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

            def forward(self, input_ids):
                x = self.words(input_ids)
                scores = self.head(x.mean(1))
                return {result}
        """,
    )
    assert found.kind == "classifier"
    assert found.calling.outputs == 3
    assert found(**found.example(2, 5))["out"].shape == (2, 3)


# --- inputs in one ----------------------------------------------------------------------------------

PACKED = """
class BatchBERT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.types = nn.Embedding(20, 8), nn.Embedding(2, 8)
        self.head = nn.Linear(8, 20)

    def forward(self, batch):
        READ
        x = self.words(ids) + (0 if types is None else self.types(types))
        real = torch.ones_like(ids) if mask is None else mask
        x = x + (x * real[..., None]).sum(1, keepdim=True) / real.sum(1)[:, None, None]
        logits = self.head(x)
        return {"logits": logits} if labels is None else {
            "logits": logits, "loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten())}
"""
READS = {
    "items": "ids, types = batch['input_ids'], batch['token_type_ids']\n"
    "        mask, labels = batch.get('attention_mask'), batch['labels'] if 'labels' in batch else None",
    "attributes": "ids, types, mask, labels = batch.input_ids, batch.token_type_ids, batch.attention_mask, None",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_inputs_may_come_packed_in_one(whole, read):
    found = whole("BatchBERT", PACKED.replace("READ", read))
    assert found.kind == "masked_language_model"
    assert found.calling.main.parameter == "input_ids"
    assert found.padding_of("ids") == "mask"
    assert "batch = {input_ids = token ids of 20" in "\n".join(map(str, found.facts))
    inputs = found.example(2, 5)
    assert found(**inputs)["out"].shape == (2, 5, 20)
    assert ("loss" in found(**inputs, labels=inputs["ids"])) == ("labels" in read and "batch.get" in read)


def test_a_tensor_is_no_packed_input():
    from torch import nn

    from conformance.adapters.whole.batches import packed_in

    class Net(nn.Module):
        def forward(self, x, flag=False):
            return x.transpose(0, 1) + x.shape[0] + x[0] + x.mT

    assert packed_in(Net()) == ("", {}, False)
    assert packed_in(nn.Linear(2, 2)) == ("", {}, False)
    assert packed_in(nn.MultiheadAttention(2, 1)) == ("", {}, False)


def test_optional_inputs_that_forward_cannot_do_without_are_given(whole):
    """As Hugging Face's models: all default to None, and one of each side is needed."""
    found = whole(
        "Writer",
        """
        class Writer(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)
                self.mixer = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

            def forward(self, input_ids=None, decoder_input_ids=None, labels=None, memory=None):
                if decoder_input_ids is None and labels is not None:
                    decoder_input_ids = labels.roll(1, 1)
                if memory is None:
                    memory = self.mixer.encoder(self.words(input_ids))
                hidden = self.words(decoder_input_ids)
                square = nn.Transformer.generate_square_subsequent_mask(hidden.size(1))
                return self.head(self.mixer.decoder(hidden, memory, square))
        """,
    )
    assert [one.parameter for one in found.calling.inputs] == ["input_ids", "decoder_input_ids"]


def test_two_optional_inputs_of_different_forms_are_both_given(whole):
    found = whole(
        "Rows",
        """
        class Rows(nn.Module):
            def __init__(self, sizes, n_floats=5):
                super().__init__()
                self.tables = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
                self.slopes = nn.Parameter(torch.ones(n_floats, 8))
                layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
                self.stack = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
                self.answer = nn.Linear(8, 3)

            def forward(self, floats=None, kinds=None):
                looked_up = [table(kinds[:, at]) for at, table in enumerate(self.tables)]
                x = torch.cat([floats[..., None] * self.slopes, torch.stack(looked_up, 1)], 1)
                return self.answer(self.stack(x)[:, 0])
        """,
    )
    given = found.calling.beside
    assert (given["floats"].sizes[1:], given["kinds"].dtype) == ((5,), "int")
    assert given["kinds"].sizes[1] >= 3


@pytest.mark.parametrize(("name", "kind"), [("TinyMoELM", "language_model"), ("TinyMLM", "masked_language_model")])
def test_a_name_that_ends_in_capitals_says_what_it_is(whole, name, kind):
    text = f"""
        class {name}(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, ids):
                return self.head(self.words(ids).cumsum(1))
    """
    assert whole(name, text).kind == kind


def test_a_count_that_is_called_after_sound_counts_its_frames(whole):
    subject = whole(
        "Scribe",
        """
        class Scribe(nn.Module):
            "Autoregressive: writes what is said."
            def __init__(self):
                super().__init__()
                self.sound, self.words, self.head = nn.Linear(5, 8), nn.Embedding(20, 8), nn.Linear(8, 20)
                self.places = nn.Embedding(50, 8)

            def forward(self, feats, feat_lengths, chars):
                real = (torch.arange(feats.shape[1]) < feat_lengths[:, None]).unsqueeze(-1)
                heard = (self.sound(feats) * real).sum(1, keepdim=True) / feat_lengths[:, None, None]
                return self.head(self.words(chars) + self.places(torch.arange(chars.shape[1])) + heard)
        """,
    )
    inputs = subject.example(2, 6, seed=1)
    first = {name: value[:, :3] for name, value in inputs.items()}
    assert abs(subject(**inputs)["out"][:, :3] - subject(**first)["out"]).max() < 1e-6


def test_a_mask_of_a_picture_that_would_hide_all_of_it_is_none(whole):
    """Attention that hides every key gives zeros in torch: the answer is no nan, and no picture changes it."""
    found = whole(
        "Detector",
        """
        class Detector(nn.Module):
            def __init__(self, num_classes=5, d=8):
                super().__init__()
                self.see, self.queries = nn.Conv2d(3, d, 8, 8), nn.Embedding(4, d)
                self.attend, self.head = nn.MultiheadAttention(d, 2, batch_first=True), nn.Linear(d, num_classes)

            def forward(self, images, pixel_mask):
                seen = self.see(images)
                mask = F.interpolate(pixel_mask[:, None].float(), size=seen.shape[-2:]).squeeze(1).bool().flatten(1)
                seen = seen.flatten(2).transpose(1, 2)
                queries = self.queries.weight.expand(len(images), -1, -1)
                h = self.attend(queries, seen, seen, key_padding_mask=mask, need_weights=False)[0]
                return [{"logits": self.head(h)}, {"logits": self.head(2 * h)}]
        """,
    )
    (mask,) = found.calling.masks
    assert "True = hidden" in mask.how
    one, other = (found(**found.example(seed=seed))["out"] for seed in (0, 1))
    assert abs(one - other).max() > 0


def test_several_inputs_are_found_beside_a_mask_that_forward_requires(whole):
    found = whole(
        "Decider",
        """
        class Decider(nn.Module):
            def __init__(self, state_dim=4, act_dim=2, d=8):
                super().__init__()
                self.time, self.state = nn.Embedding(50, d), nn.Linear(state_dim, d)
                self.action, self.gain = nn.Linear(act_dim, d), nn.Linear(1, d)
                self.layers = nn.ModuleList([nn.TransformerEncoderLayer(d, 2, 16, 0.0, batch_first=True)])
                self.out = nn.Linear(d, act_dim)

            def forward(self, timesteps, states, actions, returns_to_go, traj_mask):
                B, T, _ = states.shape
                parts = self.gain(returns_to_go), self.state(states), self.action(actions)
                x = torch.stack(parts, 2) + self.time(timesteps)[:, :, None]
                x, real = x.reshape(B, 3 * T, -1), traj_mask.bool().repeat_interleave(3, 1)
                future = torch.ones(3 * T, 3 * T, dtype=torch.bool).triu(1)
                for layer in self.layers:
                    x = layer(x, future, src_key_padding_mask=~real)
                return self.out(x.reshape(B, T, 3, -1)[:, :, 1])
        """,
    )
    assert found.calling.main.parameter == "states"
    assert [mask.parameter for mask in found.calling.masks] == ["traj_mask"]


def test_two_series_of_two_widths_are_found_beside_masks_of_rows_of_scores(whole):
    found = whole(
        "Mover",
        """
        class Layer(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.q, self.kv, self.out = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

            def forward(self, x, memory, mask):
                q, (k, v) = self.q(x).unflatten(2, (4, -1)).transpose(1, 2), self.kv(memory).chunk(2, -1)
                k, v = (part.unflatten(2, (4, -1)).transpose(1, 2) for part in (k, v))
                scores = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(mask.unsqueeze(1) == 0, -1e9)
                return x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

        class Mover(nn.Module):
            def __init__(self, enc_inp_size=2, dec_inp_size=3, d=16):
                super().__init__()
                self.encoder, self.decoder, self.cross = (nn.ModuleList([Layer(d)]) for _ in range(3))
                self.seen, self.next = nn.Linear(enc_inp_size, d), nn.Linear(dec_inp_size, d)
                self.head = nn.Linear(d, dec_inp_size)

            def forward(self, src, tgt, src_mask, tgt_mask):
                x, y = self.seen(src), self.next(tgt)
                for layer in self.encoder:
                    x = layer(x, x, src_mask)
                for layer, cross in zip(self.decoder, self.cross):
                    y = cross(layer(y, y, tgt_mask), x, src_mask)
                return self.head(y)
        """,
    )
    assert found.calling.main.parameter == "tgt"
    assert found.calling.beside["src"].sizes[-1] == 2
    assert {mask.parameter for mask in found.calling.masks} == {"src_mask", "tgt_mask"}


SIZE_OF_ITS_CALLER = """
class Reader(nn.Module):
    def __init__(self, config, vocab_size=None):
        super().__init__()
        self.table = nn.Embedding(vocab_size, config.d_model)
        self.head = nn.Linear(config.d_model, config.num_classes)

    def forward(self, ids):
        return self.head(self.table(ids).mean(1))
"""


def test_a_size_that_callers_hand_over_in_the_place_of_none_is_given(made):
    found = made("Reader", SIZE_OF_ITS_CALLER)
    assert found.fresh().table.num_embeddings == 37
    assert "sizes in the place of None" in "\n".join(str(fact) for fact in found.facts)
    found = made(
        "Reader",
        SIZE_OF_ITS_CALLER.replace("config, vocab_size=None", "d_model, num_classes, vocab_size=None").replace(
            "config.", ""
        ),
    )
    assert found.fresh().table.num_embeddings == 37

"""Several inputs of different forms: what each is given is found by running, or said in a line to be corrected."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.stated import Shape  # noqa: E402
from conformance.adapters.whole.beside import beside  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402


def stack(width: int = 8) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(width, 2, 8, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


class Weather(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.load, self.weather, self.hour = nn.Linear(1, 8), nn.Linear(3, 8), nn.Embedding(24, 8)
        self.site, self.stack = nn.Embedding(5, 8), stack()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x = self.load(batch["load"]) + self.weather(batch["weather"]) + self.hour(batch["hour"])
        return self.stack(x + self.site(batch["site"]).unsqueeze(1))


class Odd(Weather):
    def forward(self, load: Tensor, weather: Tensor) -> Tensor:
        x = self.load(load) + self.weather(weather)
        raise RuntimeError(f"no widget {tuple(x.shape)}")


def test_every_input_of_a_dict_gets_its_own_form():
    calling = calling_of(Weather())
    forms = {name: (shape.sizes[2:], shape.dtype) for name, shape in calling.beside.items()}
    assert forms == {
        "load": ((1,), "float"),
        "weather": ((3,), "float"),
        "hour": ((), "int"),
        "site": ((), "int"),
    }
    assert len(calling.beside["site"].sizes) == 1
    assert calling.main.parameter == "load"
    assert calling.main.shape == (None, 1)
    assert calling.takes_several_kinds


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Weather()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.net(batch)


def test_a_dict_that_is_handed_on_to_a_part_is_read_there():
    assert set(calling_of(Wrapped()).beside) == {"load", "weather", "hour", "site"}


def test_what_stands_beside_follows_the_length_of_the_main_input():
    calling = calling_of(Weather())
    given = calling.arguments({"x": torch.zeros(3, 11, 1)})["batch"]
    assert given["weather"].shape == (3, 11, 3)
    assert given["hour"].shape == (3, 11)
    assert given["site"].shape == (3,)


def test_where_no_form_helps_the_line_says_every_input_in_the_forms_that_came_furthest():
    with pytest.raises(Unresolved) as caught:
        calling_of(Odd())
    assert "no widget" in str(caught.value)
    assert "--claims-input 'load=2x" in str(caught.value)
    assert "x1,weather=2x" in str(caught.value)


def test_what_stands_beside_is_the_same_for_every_sample_and_in_its_beginning_for_every_length():
    long, short = (beside(Shape("states", (2, n, 3), "float")) for n in (9, 5))
    assert torch.equal(long[0], long[1])
    assert torch.equal(long[:, :5], short)
    assert beside(Shape("hours", (2, 4), "int")).tolist() == [[1, 0, 1, 0]] * 2


def test_a_loss_only_is_said_with_what_to_write():
    class Loss(Weather):
        def forward(self, load: Tensor, weather: Tensor) -> Tensor:
            return self.stack(self.load(load) + self.weather(weather)).square().mean()

    with pytest.raises(Unresolved, match=r"Loss.forward gives a loss only.*def forward\(self, ids\): return"):
        calling_of(Loss())


class Answers(nn.Module):
    """Words about regions: 0 is padding of the words, a count tells that of the regions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.region, self.box = nn.Embedding(30, 8), nn.Linear(5, 8), nn.Linear(4, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.read, self.look = (nn.TransformerEncoder(layer, 1, enable_nested_tensor=False) for _ in range(2))
        self.answer = nn.Linear(8, 11)

    def forward(self, question: Tensor, regions: Tensor, boxes: Tensor, n_regions: Tensor) -> Tensor:
        """question (B, L) ids, regions (B, R, F), boxes (B, R, 4), n_regions (B,); scores (B, answers)"""
        unreal = torch.arange(regions.shape[1]) >= n_regions[:, None]
        seen = self.look(self.region(regions) + self.box(boxes), src_key_padding_mask=unreal)
        read = self.read(self.words(question), src_key_padding_mask=question == 0)
        return self.answer(seen.masked_fill(unreal[..., None], 0).sum(1) * read.mean(1))


def test_a_count_is_a_whole_number_and_padding_of_one_input_is_not_that_of_another():
    calling = calling_of(Answers().eval())
    assert calling.lengths == {"n_regions": "x"}
    assert calling.grows_together
    assert calling(Answers().eval(), {"x": torch.randn(2, 6, 5)})["out"].isfinite().all()


class Towers(nn.Module):
    """Two texts in a dict, each with its length."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.stack = nn.Embedding(29, 8), stack()

    def tower(self, ids: Tensor, lengths: Tensor) -> Tensor:
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        x = self.stack(self.words(ids), src_key_padding_mask=~real)
        return (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return self.tower(batch["a"], batch["a_len"]), self.tower(batch["b"], batch["b_len"])


def test_what_is_called_the_length_of_an_input_counts_all_of_it():
    given = calling_of(Towers()).arguments({"ids": torch.ones(3, 9, dtype=torch.long)})["batch"]
    assert given["a_len"].tolist() == [9] * 3
    assert given["b_len"].tolist() == [given["b"].shape[1]] * 3


class AllOpen(nn.Module):
    """No input is required by itself: the source or what was made of it, and what is written or labels."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(29, 8), nn.Linear(8, 29)
        self.model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, input_ids=None, labels=None, decoder_input_ids=None, encoder_states=None):
        if encoder_states is None:
            encoder_states = self.model.encoder(self.words(input_ids))
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("labels or decoder_input_ids")
            decoder_input_ids = labels.roll(1, 1)
        future = torch.ones(decoder_input_ids.shape[1], decoder_input_ids.shape[1], dtype=torch.bool).triu(1)
        return self.head(self.model.decoder(self.words(decoder_input_ids), encoder_states, tgt_mask=future))


def test_two_sides_are_found_where_forward_requires_neither():
    calling = calling_of(AllOpen().eval())
    assert [(one.meaning, one.parameter) for one in calling.inputs] == [
        ("src", "input_ids"),
        ("tgt", "decoder_input_ids"),
    ]


class Observed(nn.Module):
    """Vectors with gaps at uneven times, and the times that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.ask, self.stack = nn.Linear(2 * 5, 8), nn.Linear(1, 8), nn.ModuleList([stack()])
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, values: Tensor, times: Tensor, seen: Tensor, future: Tensor) -> Tensor:
        values = torch.where(seen, values, torch.zeros_like(values))
        rows, steps, _ = values.shape
        gone = ~seen.any(-1)
        x = self.read(torch.cat([values, seen.float()], -1)) + self.ask(times.reshape(rows, steps, 1))
        memory = self.stack[0](x, src_key_padding_mask=gone)
        return self.attend(self.ask(future[..., None]), memory, memory, key_padding_mask=gone)[0]


def test_what_is_true_of_each_number_is_a_mask_of_padding():
    """Values and what is told of them get their width together; what need not be as long gets another length."""
    calling = calling_of(Observed())
    steps = calling.beside["values"].sizes[1]
    assert calling.beside["seen"] == Shape("seen", (2, steps, 5), "bool")
    assert calling.beside["times"].sizes[:2] == (2, steps)
    assert calling.beside["future"].sizes[1] != steps
    (mask,) = calling.masks
    assert (mask.parameter, calling.main.parameter, calling.main.shape) == ("seen", "values", (None, 5))
    padding = torch.tensor([[True, True, False]])
    assert mask.make({"x": torch.zeros(1, 3, 5), "padding": padding}).tolist() == [
        [[True] * 5, [True] * 5, [False] * 5]
    ]


def test_what_is_told_of_each_number_of_vectors_is_true_of_all():
    assert beside(Shape("seen", (2, 4, 3), "bool")).all()
    assert not beside(Shape("edges", (2, 4, 4), "bool")).all()

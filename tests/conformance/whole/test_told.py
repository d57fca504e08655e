"""What the code says of the shapes of its inputs: documentation, unpacked shapes, comparisons, patterns, calls."""

from __future__ import annotations

import sys
import weakref

import pytest

torch = pytest.importorskip("torch")
from noted_file import Sensors  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.caller_masks import with_padding_mask  # noqa: E402
from conformance.adapters.whole.entries import is_for_another_method  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.adapters.whole.shapes import shapes_told  # noqa: E402
from conformance.adapters.whole.told import Told, told_by_forward  # noqa: E402
from conformance.adapters.whole.told_by_calls import told_by_calls  # noqa: E402
from conformance.adapters.whole.usage import surroundings  # noqa: E402


class Documented(nn.Module):
    def forward(self, frames: Tensor, ids: Tensor, pad: Tensor) -> Tensor:
        """frames: (B, T, n_mels) of sound; ids (batch, words), long; pad: (B, T) bool, True where there is none"""
        return frames


class Commented(nn.Module):
    def forward(self, xy, present=None):
        # xy: (B, agents, obs_len, 2) places
        return xy


class Returning(nn.Module):
    def forward(
        self,
        states,  # (batch, steps) ids
        groups,  # (batch,) of a user
    ):
        """
        Args:
            states: what was seen
            groups: of users

        Returns:
            logits: (batch, steps, n_items)
        """
        return states


class Features(nn.Module):
    def __init__(self, n_features: int = 5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_features, 8))

    def forward(
        self,
        x: Tensor,  # (B, N)
        missing_mask: Tensor | None = None,  # (B, N), 1 where there is none
    ) -> Tensor:  # (B, N, d)
        tokens = x.unsqueeze(-1) * self.weight
        return tokens if missing_mask is None else tokens * (1.0 - missing_mask.float().unsqueeze(-1))


class Alone(nn.Module):
    """Point clouds (batch, points, 3) -> scores."""

    def forward(self, cloud):
        return cloud


class Turned(nn.Module):
    def forward(self, src):
        """src: (seq_len, batch, d_model)"""
        return src


class Checked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.context, self.n_channels = 96, 7

    def forward(self, x):
        b, t, c = x.shape  # noqa: RUF059
        assert t == self.context and c == self.n_channels, x.shape  # noqa: PT018
        return x


class Raising(nn.Module):
    bands = 20

    def forward(self, text, mels):
        if mels.dim() != 3:
            raise ValueError("three axes")
        if mels.shape[-1] != self.bands:
            raise ValueError("bands")
        text = text.float()
        b, t, d, e = text.shape  # noqa: RUF059
        return mels


class Rearranging(nn.Module):
    def forward(self, video):
        return rearrange(video, "b c (f p) h w -> b f (p c) h w", p=2)  # noqa: F821


class Silent(nn.Module):
    def forward(self, x, y):
        return x + y


def test_documentation_says_axes_and_dtypes():
    assert told_by_forward(Documented(), ["frames", "ids", "pad"]) == {
        "frames": Told(("B", "T", "n_mels")),
        "ids": Told(("batch", "words"), "int"),
        "pad": Told(("B", "T"), "bool"),
    }


def test_a_comment_is_documentation():
    assert told_by_forward(Commented(), ["xy", "present"]) == {"xy": Told(("B", "agents", "obs_len", 2))}


def test_a_comment_behind_a_parameter_speaks_of_it():
    assert told_by_forward(Features(), ["x", "missing_mask"]) == dict.fromkeys(["x", "missing_mask"], Told(("B", "N")))


def test_what_is_said_of_the_answer_speaks_of_no_parameter():
    told = told_by_forward(Returning(), ["states", "groups"])
    assert (told["states"].axes, told["groups"].axes) == (("batch", "steps"), ("batch",))


def test_numbers_are_tried_before_whole_numbers_that_no_table_reads():
    calling = calling_of(Features())
    assert (calling.main.shape, calling.main.length, calling.masks) == ((None,), 5, ())


def test_the_docstring_of_a_class_speaks_of_the_only_input():
    assert told_by_forward(Alone(), ["cloud"]) == {"cloud": Told(("batch", "points", 3))}


def test_of_a_sequence_before_its_batch_only_the_number_of_axes_is_taken():
    assert told_by_forward(Turned(), ["src"]) == {"src": Told(("", "", ""))}


def test_what_an_assert_compares_is_read_from_the_module():
    assert told_by_forward(Checked(), ["x"]) == {"x": Told(("b", 96, 7))}


def test_what_raises_tells_a_size_and_what_is_computed_before_tells_nothing():
    assert told_by_forward(Raising(), ["text", "mels"]) == {"mels": Told(("", "", 20))}


def test_a_pattern_of_rearrange_tells_the_axes():
    assert told_by_forward(Rearranging(), ["video"]) == {"video": Told(("b", "c", "", "h", "w"))}


def test_code_that_says_nothing_tells_nothing():
    assert told_by_forward(Silent(), ["x", "y"]) == {}


def test_shapes_follow_the_names_of_axes():
    options = {"n_mels": 20, "obs_len": 8}
    module = nn.Linear(5, 5)
    assert shapes_told(["T", "n_mels"], module, options) == [(None, 20)]
    assert shapes_told(["obs_len", 2], module, options) == [(8, 2), (None, 2)]
    assert shapes_told(["N", "N"], module, options)[0] == (None, None)
    assert all(first == second for _, first, second in shapes_told([3, "H", "W"], module, {"image_size": 64}))
    assert shapes_told([3, "H", "W"], module, {"image_size": 64})[0] == (3, 64, 64)


CALLED = """
class Config:
    pass

class Net(nn.Module):
    def __init__(self, width=16, context=12, classes=3):
        super().__init__()
        self.head = nn.Linear(width, classes)

    def forward(self, x, when, seen=None):
        return self.head(x)
"""

USES = """
import torch
from model import Net

B, T = 4, 10
net = Net(width=6, context=T).eval()
x = torch.randn(B, T, 6).cumsum(1) * 2
out = net(x, torch.arange(T).unsqueeze(0).expand(B, T), seen=torch.rand_like(x) > 0.1)
"""


def test_calls_show_axes_by_the_options_of_their_values(made):
    module = made("Net", CALLED, {"use.py": USES}).fresh()
    home = sys.modules[type(module).__module__]
    assert told_by_calls(module, surroundings(home), ["x", "when", "seen"]) == {
        "x": Told(("batch", "context", "width"), "float"),
        "when": Told(("batch", "context"), "int"),
        "seen": Told(("batch", "context", "width"), "bool"),
    }


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("torchinfo", "(4, 10, 6)"),
        ("torchinfo", "input_size=[4, 10, 6]"),
        ("torchsummary", "(10, 6)"),
        ("torchsummaryX", "torch.zeros(4, 10, 6)"),
        ("torchinfo", "input_data=torch.zeros(4, 10, 6)"),
    ],
)
def test_a_table_of_layers_shows_the_axes_of_the_first_input(made, package, call):
    start = f"import torch\nfrom {package} import summary\nfrom model import Net\n"
    use = f"{start}net = Net(width=6)\nsummary(net, {call})\n"
    module = made("Net", CALLED, {"use.py": use}).fresh()
    found = told_by_calls(module, surroundings(sys.modules[type(module).__module__]), ["x", "when", "seen"])
    assert found == {"x": Told(("batch", "length", "width"), "float" if "zeros" in call else "")}


@pytest.mark.parametrize(
    "call",
    ["net(load())", "net(*batch)", "other(torch.zeros(2, 3))", "net(torch.tensor([1, 2]))", "summary(net, load())"],
)
def test_calls_that_show_no_shape_tell_nothing(made, call):
    module = made("Net", CALLED, {"use.py": f"from model import Net\nnet = Net()\nout = {call}\n"}).fresh()
    assert told_by_calls(module, surroundings(sys.modules[type(module).__module__]), ["x", "when", "seen"]) == {}


def stack(width: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(width, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


class Forecaster(nn.Module):
    """Its length is fixed, and its statistics stand beside the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.context, self.channels = 20, 7
        self.embed, self.stack, self.head = nn.Linear(4, 8), stack(8), nn.Linear(40, 12)
        self.register_buffer("levels", torch.rand(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, t, c = x.shape
        assert t == self.context and c == self.channels  # noqa: PT018
        mean = x.mean(1, keepdim=True).detach()
        z = self.embed((x - mean).transpose(1, 2).reshape(b * c, 5, 4))
        return self.head(self.stack(z).flatten(1)).view(b, c, 4, 3).transpose(1, 2), mean

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return ((self(x)[0] - y[..., None]) * self.levels).mean()


def test_sizes_that_a_forward_asserts_are_given_and_statistics_are_no_answer():
    calling = calling_of(Forecaster())
    assert calling.main.shape == (20, 7)
    assert (calling.layout, calling.outputs) == ("(B, ...)", 4 * 7 * 3)


def test_a_table_that_only_a_loss_reads_is_not_the_answers():
    assert is_for_another_method(Forecaster(), "levels")


class Kept(Forecaster):
    def forward(self, x: Tensor) -> Tensor:
        return self.shifted(x)

    def shifted(self, x: Tensor) -> Tensor:
        return x + self.levels


def test_a_table_that_forward_leads_to_is_the_answers():
    assert not is_for_another_method(Kept(), "levels")


class Molecule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.steps = nn.Embedding(20, 8), nn.Embedding(7, 1)
        self.blocks = nn.ModuleList([nn.Linear(8, 8)])

    def forward(self, atoms: Tensor, distances: Tensor) -> Tensor:
        """atoms (B, N): kinds, distances (B, N, N): steps between two atoms"""
        weights = self.steps(distances.clamp(max=6)).squeeze(-1).softmax(-1)
        return self.blocks[0](weights @ self.atoms(atoms)).mean(1)


def test_numbers_of_pairs_stand_beside_a_sequence_and_are_none():
    calling = calling_of(Molecule())
    assert calling.main.parameter == "atoms"
    assert calling.beside["distances"].sizes[1:] == (6, 6)
    assert calling.beside["distances"].dtype == "int"


class Spans(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.stack, self.span = nn.Embedding(30, 8), stack(8), nn.Linear(8, 2)

    def forward(self, ids: Tensor, n_words: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden = None if n_words is None else torch.arange(ids.shape[1]) >= n_words[:, None]
        start, end = self.span(self.stack(self.table(ids), src_key_padding_mask=hidden)).unbind(-1)
        return start, end


def test_a_score_for_each_position_is_no_row_of_classes():
    calling = calling_of(Spans())
    assert (calling.layout, calling.outputs) == ("(B, T)", 1)


class Hoarder(nn.Module):
    """Every attempt makes a tensor and fails."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.blocks = nn.Embedding(9, 8), nn.ModuleList([nn.Linear(8, 8)])
        self.made: list[weakref.ref[Tensor]] = []

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        large = torch.zeros(100)
        self.made.append(weakref.ref(large))
        raise ValueError("nothing fits")


def test_failed_attempts_hold_no_tensors():
    module = Hoarder()
    with pytest.raises(Unresolved, match="cannot be called: ValueError: nothing fits"):
        calling_of(module)
    assert module.made
    assert all(ref() is None for ref in module.made)


class Averaging(nn.Module):
    """Its mask hides tokens from the attention, and its mean counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.q, self.k, self.v = nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.table(x)
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.head((x + scores.softmax(-1) @ self.v(x)).mean(1))


def test_a_mask_that_hides_from_attention_alone_is_one_of_padding():
    module = Averaging().eval()
    [mask] = with_padding_mask(module, calling_of(module)).masks
    assert mask.parameter == "mask"
    assert "may attend" in mask.how


class FiveWords(nn.Module):
    """Its positions are written out: no other length than five runs."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.out = nn.Embedding(30, 8), nn.Embedding(9, 8), nn.Linear(8, 30)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.words(ids) + self.places(torch.tensor([[1, 2, 3, 4, 0]])))


def test_a_length_that_an_error_speaks_of_is_tried():
    calling = calling_of(FiveWords())
    assert (calling.main.length, calling.main.vocab) == (5, 30)


class Masks(nn.Module):
    """Its methods say the shapes of the masks that they give, not of the words that they take."""

    def __init__(self):
        super().__init__()
        self.words, self.written = nn.Embedding(19, 8), nn.Embedding(17, 8)
        self.model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        self.head = nn.Linear(8, 17)

    def mask_of_source(self, src):
        """(B, 1, 1, S): hide padding in the source."""
        return src == 0

    def mask_of_target(self, tgt):
        """(B, 1, T, T): hide padding and the future."""
        return torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)

    def forward(self, src, tgt):
        hidden = self.mask_of_source(src)
        given = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        out = self.model(self.words(src), self.written(tgt), tgt_mask=self.mask_of_target(tgt), **given)
        return self.head(out)


class Misled(Masks):
    def forward(self, src, tgt):
        """src: (B, S, d_model), tgt: (B, T, d_model)"""
        return super().forward(src, tgt)


def test_what_a_method_gives_is_no_shape_of_its_input():
    assert told_by_forward(Masks(), ["src", "tgt"]) == {}


@pytest.mark.parametrize("cls", [Masks, Misled])
def test_words_of_two_sides_are_tried_whatever_is_said_of_their_shapes(cls):
    calling = calling_of(cls().eval())
    assert [(one.meaning, one.vocab) for one in calling.inputs] == [("src", 19), ("tgt", 17)]


def test_comments_at_the_top_of_a_file_and_behind_fields_say_axes():
    assert told_by_forward(Sensors(), ["values", "seen", "future", "labels", "of"]) == {
        "values": Told(("b", "t", "c")),
        "seen": Told(("b", "t", "c"), "bool"),
        "future": Told(("B", "F")),
    }


class Chooses(nn.Module):
    def forward(self, x, here, gone):
        return torch.where(here, x, 0.0) * ~gone


def test_what_chooses_and_whose_opposite_is_taken_is_true_or_false():
    assert told_by_forward(Chooses(), ["x", "here", "gone"]) == dict.fromkeys(["here", "gone"], Told((), "bool"))

"""Positions that share a vector and images that are put together wrongly are named; right designs near them are not."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters.whole.pixels import pixel_findings  # noqa: E402
from conformance.adapters.whole.place_vectors import place_findings  # noqa: E402
from conformance.adapters.whole.record import record  # noqa: E402

SHARED, PIXELS = "positions-are-told-apart", "patches-are-answered-where-they-were"


class Grid(nn.Module):
    """Tokens (B, 16, 8) with the positions that a function makes."""

    def __init__(self, codes, more=None):
        super().__init__()
        self.embed, self.mix = nn.Linear(5, 8), nn.Linear(8, 8)
        self.register_buffer("pos", codes)
        self.register_buffer("of_time", more)

    def forward(self, x):
        x = self.embed(x) + self.pos
        return self.mix(x if self.of_time is None else x + self.of_time)


ROWS, COLUMNS = torch.arange(4).repeat_interleave(4), torch.arange(4).repeat(4)
HALF = torch.linspace(-1, 1, 16).reshape(4, 4)
BOTH = torch.cat((HALF[ROWS], HALF[COLUMNS]), 1)
TWICE = torch.cat((HALF[ROWS], HALF[ROWS]), 1)
WIDE = torch.cat((HALF, -HALF), 1)


def said(model, *inputs):
    with torch.no_grad():
        run = record(model, lambda: model(*inputs))
    return [finding.claim for finding in (*place_findings(run), *pixel_findings(run))]


@pytest.mark.parametrize(
    ("codes", "more", "expected"),
    [
        (BOTH[None], None, []),
        (BOTH, None, []),
        (TWICE[None], None, [SHARED]),
        (WIDE[ROWS][None], WIDE[COLUMNS][None] ** 3, []),  # two tables, which tell all places together
        (torch.cat((torch.zeros(2, 8), BOTH[2:])), None, []),  # tokens that belong to no place
        (torch.cat((BOTH[:15], BOTH[:1])), None, []),  # two alike, by whatever choice
    ],
)
def test_places_that_share_a_vector_are_named(codes, more, expected):
    found = said(Grid(codes, more), torch.randn(2, 16, 5))
    assert [claim for claim in found if claim == SHARED] == expected


class Words(nn.Module):
    """Words of a given size, put together with sines by a function of both and sqrt(d)."""

    def __init__(self, size, together):
        super().__init__()
        self.words, self.mix, self.together = nn.Embedding(9, 16), nn.Linear(16, 16), together
        nn.init.normal_(self.words.weight, std=size)
        self.register_buffer("pe", torch.sin(torch.arange(6)[:, None] * 10 ** -torch.linspace(0, 3, 16)))

    def forward(self, ids):
        return self.mix(self.together(self.words(ids), self.pe[: ids.shape[1]], 16**0.5))


SCALED = "positions-are-added-to-scaled-words"


@pytest.mark.parametrize(
    ("size", "together", "expected"),
    [
        (0.25, lambda words, places, root: words * root + places, []),
        (0.1, lambda words, places, root: (words + places) * root, [SCALED]),
        (0.25, lambda words, places, root: (words + places) * 0.5, []),  # some other factor
        (1.0, lambda words, places, root: (words + places) * root, []),  # words as large as the positions
    ],
)
def test_positions_that_are_scaled_as_small_words_are_named(size, together, expected):
    assert [claim for claim in said(Words(size, together), torch.arange(6)[None]) if claim == SCALED] == expected


class Image(nn.Module):
    """Images (B, 3, 8, 8) in patches of 2 x 2, in windows if asked, and back by a function of (B, 16, 12)."""

    def __init__(self, together, windows=False):
        super().__init__()
        self.together, self.windows = together, windows
        self.cut = nn.Conv2d(3, 8, 2, stride=2)
        self.norm, self.inner, self.out = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 12)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        if self.windows:
            x = x.view(-1, 2, 2, 2, 2, 8).transpose(2, 3).reshape(-1, 4, 8)
        x = x + self.inner(self.norm(x))
        if self.windows:
            x = x.view(-1, 2, 2, 2, 2, 8).transpose(2, 3).reshape(-1, 16, 8)
        return self.together(self.out(x))


def channels_last(x):
    return x.view(-1, 4, 4, 2, 2, 3).permute(0, 5, 1, 3, 2, 4).reshape(-1, 3, 8, 8)


def by_shuffle(x):
    return nn.functional.pixel_shuffle(x.transpose(1, 2).reshape(-1, 12, 4, 4), 2)


def labels(x):
    return x.transpose(1, 2).reshape(-1, 12, 4, 4)


def by_fold(x):
    return nn.functional.fold(x.transpose(1, 2), (8, 8), 2, stride=2)


def scattered(x):
    return x.view(-1, 4, 4, 2, 2, 3).permute(0, 5, 1, 2, 3, 4).reshape(-1, 3, 8, 8)


def turned(x):
    return x.view(-1, 4, 4, 2, 2, 3).permute(0, 5, 2, 4, 1, 3).reshape(-1, 3, 8, 8)


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize(
    ("together", "expected"),
    [(channels_last, []), (by_shuffle, []), (labels, []), (by_fold, []), (scattered, [PIXELS]), (turned, [PIXELS])],
)
def test_an_answer_whose_patches_stand_elsewhere_is_named(together, expected, windows):
    assert said(Image(together, windows), torch.randn(2, 3, 8, 8)) == expected


class Told(nn.Module):
    """Places (B, T) are handed in, beside the tokens; or each place is the half of its number."""

    def __init__(self):
        super().__init__()
        self.embed, self.pos_emb, self.mix = nn.Linear(5, 8), nn.Embedding(8, 8), nn.Linear(8, 8)

    def forward(self, x, places=None):
        if places is None:
            places = torch.arange(x.shape[1]).div(2, rounding_mode="floor").expand(len(x), -1)
        return self.mix(self.embed(x) + self.pos_emb(places))


def test_places_that_the_caller_makes_may_be_the_same():
    model, x = Told(), torch.randn(2, 6, 5)
    with torch.no_grad():
        handed = record(model, lambda: model(x, (torch.arange(6) % 2).expand(2, -1).clone()))
        own = record(model, lambda: model(x))
    assert [[one.claim for one in place_findings(run)] for run in (handed, own)] == [[], [SHARED]]

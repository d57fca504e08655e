"""Attention as pictures: weights are those that the model used; text and SVG show them, with labels of any script."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import minigrad as mg
from transformer.attention import MultiHeadAttention
from transformer.heatmaps import BLOCKS, WEIGHTS, Layer, collecting, sheet, svg, text
from transformer.masks import causal_mask
from transformer.models import EncoderDecoder

SCRIPTS = ["猫", "الكتاب", "नमस्ते", "a", " the", "\n", "👩‍🔬", "averyveryverylongtoken", "\u202eevil", "<b>&"]


def test_collected_weights_are_those_of_the_modules():
    mg.manual_seed(0)
    attention = MultiHeadAttention(8, 2).eval()
    x = mg.randn(1, 5, 8)
    mask = causal_mask(5)
    _, weights = attention(x, x, x, mask, need_weights=True)
    with collecting(attention) as maps:
        out = attention(x, x, x, mask)
    (found,) = maps.values()
    np.testing.assert_array_equal(found, weights.numpy())
    assert found.shape == (1, 2, 5, 5)
    np.testing.assert_array_equal(out.detach().numpy(), attention(x, x, x, mask).detach().numpy())
    assert "forward" not in attention.__dict__


def test_every_layer_of_a_model():
    model = EncoderDecoder(11, 13, d_model=8, n_heads=2, n_layers=2, d_ff=16).eval()
    source, target = mg.tensor(np.ones((1, 4), np.int64)), mg.tensor(np.ones((1, 3), np.int64))
    before = model(source, target).detach().numpy()
    with collecting(model) as maps:
        after = model(source, target).detach().numpy()
    np.testing.assert_array_equal(before, after)
    assert {path.split(".")[0] for path in maps} == {"encoder", "decoder"}
    assert sorted(w.shape for w in maps.values()) == [(1, 2, 3, 3)] * 2 + [(1, 2, 3, 4)] * 2 + [(1, 2, 4, 4)] * 2
    for weights in maps.values():
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_the_forward_comes_back_after_an_error():
    attention = MultiHeadAttention(8, 2)
    with pytest.raises(ZeroDivisionError), collecting(attention):
        raise ZeroDivisionError
    assert "forward" not in attention.__dict__


def test_a_notebook_shows_the_picture():
    weights = np.ones((1, 1, 1))
    for drawn in (svg(weights, ["a"]), sheet([Layer("attention", weights, ["a"], ["a"])])):
        assert drawn._repr_html_() == drawn
        assert drawn.startswith("<svg")


def test_text_is_darker_where_the_weight_is_larger():
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.25, 0.65]])
    lines = text(weights, ["a", "b", "c"]).splitlines()
    assert lines[0].split() == ["a", "b", "c"]
    assert lines[1] == "a | ██"
    assert lines[2] == "b | ▒▒ ▒▒"
    assert lines[3] == "c |    ░░ ▓▓"
    for weight in np.linspace(0, 1, 11):
        shown = text(np.array([[weight]]), ["x"]).splitlines()[1][4:5] or " "
        assert BLOCKS.index(shown) == min(int(weight * 5), 4)
    assert "0.65" in text(weights, ["a", "b", "c"], numbers=True)
    assert "?" in text(np.array([[np.nan]]), ["x"])


def test_columns_align_for_any_script():
    lines = text(np.eye(len(SCRIPTS)), SCRIPTS).splitlines()
    bars = {columns(line.split("|")[0]) for line in lines[1:]}
    assert len(bars) == 1
    assert "\u202e" not in "".join(lines)
    assert "␣the" in lines[0]


def columns(line):
    import unicodedata

    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in line
    )


def test_svg_is_well_formed_and_shows_every_weight():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(len(SCRIPTS)), (5, 3))
    root = ET.fromstring(svg(weights, SCRIPTS[:3], SCRIPTS, titles=[f"L0 <{i}>" for i in range(5)]))
    tag = "{http://www.w3.org/2000/svg}"
    cells = [rect for rect in root.iter(f"{tag}rect") if rect.find(f"{tag}title") is not None]
    assert len(cells) == 5 * 3 * len(SCRIPTS)
    told = [float(cell.find(f"{tag}title").text.rsplit(": ", 1)[1]) for cell in cells]
    np.testing.assert_allclose(told, weights.ravel(), atol=5e-4)
    dark = [int(cell.get("fill")[1:3], 16) for cell in cells]
    assert dark[int(np.argmax(told))] == min(dark)
    texts = "".join(e.text or "" for e in root.iter(f"{tag}text"))
    assert "猫" in texts
    assert "नमस्ते" in texts
    assert "<b>&" in texts


def test_labels_have_to_fit():
    with pytest.raises(ValueError, match=r"\[2, 2\] need 3 queries by 3 keys"):
        text(np.eye(2), ["a", "b", "c"])
    with pytest.raises(ValueError, match="1 heads need 1 titles"):
        svg(np.eye(2), ["a", "b"], titles=["x", "y"])


def test_a_sheet_shows_layers_below_each_other():
    rng = np.random.default_rng(0)
    layers = [
        Layer("encoder.0", rng.dirichlet(np.ones(4), (2, 4)), list("abcd"), list("abcd")),
        Layer("decoder.0.cross", rng.dirichlet(np.ones(4), (6, 3)), SCRIPTS[:3], list("abcd")),
    ]
    root = ET.fromstring(sheet(layers))
    tag = "{http://www.w3.org/2000/svg}"
    assert sum(1 for cell in root.iter(f"{tag}rect") if cell.find(f"{tag}title") is not None) == 2 * 16 + 6 * 12
    texts = [text.text for text in root.iter(f"{tag}text")]
    assert [text for text in texts if text.startswith("encoder")] == ["encoder.0, head 0", "encoder.0, head 1"]
    assert ET.fromstring(sheet([layers[1].only(5)])).find(f".//{tag}text").text == "decoder.0.cross, head 5"
    with pytest.raises(ValueError, match="no head 6"):
        layers[1].only(6)


def test_a_lone_mark_gets_something_to_stand_on():
    assert text(np.eye(1), ["\u0301"]).splitlines()[1].startswith("◌\u0301 |")


def test_a_picture_says_which_colour_is_which_weight():
    weights = np.array([[0.0, 0.05], [0.5, 1.0]])
    cells = re.findall(r'fill="(#[0-9a-f]{6})" stroke="#e4e8ee" stroke-width', svg(weights, "ab"))
    scale = dict(zip(WEIGHTS, re.findall(r'fill="(#[0-9a-f]{6})" stroke="#e4e8ee"/>', svg(weights, "ab")), strict=True))
    assert cells == [scale[weight] for weight in weights.reshape(-1)]

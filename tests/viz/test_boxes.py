"""The boxes of a picture: how many there are where nothing is asked for, their size, and their title inside."""

import xml.etree.ElementTree as ET

import pytest

import minigrad as mg
from minigrad import nn
from minigrad.viz import layout, style
from minigrad.viz.dotfile import dot
from minigrad.viz.picture import picture
from minigrad.viz.svgfile import svg
from minigrad.viz.view import View

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.skipif(not layout.engines(), reason="needs graphviz")
def test_a_box_has_the_size_it_was_given_and_its_title_inside():
    shown = picture(View(mg.trace(lambda x: x.exp())(mg.ones(2))))
    given = {round(w, 1) for _, _, w, _ in layout.place(dot(shown, layout=True)).boxes.values()}
    groups = [g for g in ET.fromstring(svg(shown)).iter(f"{SVG}g") if g.get("class", "").startswith("box")]
    assert {float(group.find(f"{SVG}rect").get("width")) for group in groups} == given
    for group in groups:
        title = float(next(text.get("y") for text in group.iter(f"{SVG}text") if text.get("class") == "title"))
        assert title - style.TITLE >= float(group.find(f"{SVG}rect").get("y"))


def test_a_module_is_opened_where_fifteen_boxes_are_seen_then_and_not_where_sixteen():
    class Several(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.count = count

        def forward(self, x):
            for _ in range(self.count):
                x = x.exp()
            return x

    class Whole(Several):
        def __init__(self, count):
            super().__init__(7)
            self.inner = Several(count)

        def forward(self, x):
            return self.inner(super().forward(x))

    counts = [len(picture(View(mg.trace(Whole(count))(mg.ones(2)))).boxes) for count in range(4, 10)]
    assert counts == [13, 14, 15, 10, 10, 10]

"""The page of a large graph in a browser: only what is in the window is drawn, and in slices."""

import pytest
from in_browser import count, settled

import minigrad as mg
from minigrad.state import scope
from tools import browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(browser.missing()), reason=f"not installed: {browser.missing()}"),
]
ENTER = "\ue007"

MADE = """
const make = document.createElementNS.bind(document), asked = window.requestAnimationFrame, made = [];
document.createElementNS = (...given) => { made[made.length - 1]++; return make(...given); };
const frame = () => { made.push(0); asked(frame); };
frame();
window.made = made;
"""
"""Counts the elements that are made in each frame."""


def test_what_stays_keeps_its_elements_when_a_module_opens(page):
    page.run("document.getElementById('less').click(); document.getElementById('more').click()")
    settled(page).run("document.getElementById('fit').click()")
    held = "[...document.querySelectorAll('.box, .frame, .name')]"
    before = count(page, ".box, .frame, .name")
    page.run(f"window.held = new Map({held}.map(e => [e.dataset.id + e.className.baseVal.split(' ')[0], e]))")
    page.press("/")
    page.press(*"linear add", ENTER)  # opens what is around the first hit
    page.run("document.getElementById('fit').click()")
    assert count(page, ".box, .frame, .name") > before
    same, other = page.run(
        f"const now = {held}.map(e => [window.held.get(e.dataset.id + e.className.baseVal.split(' ')[0]), e]);"
        "return [now.filter(([was, e]) => was === e).length, now.filter(([was, e]) => was && was !== e).length]"
    )
    assert other == 0
    assert same > before / 2


def test_a_frame_has_an_end_and_what_is_left_comes_in_the_next(page):
    """By a clock that goes on by a millisecond whenever it is read. The graph is busy until all is drawn."""
    page.run("document.getElementById('less').click()")
    settled(page).run(
        MADE + "let clock = 0; performance.now = () => ++clock;"
        "for (let i = 0; i < 4; i++) document.getElementById('more').click()"
    )
    settled(page).run("document.getElementById('fit').click()")
    boxes = count(page, ".box")
    made = [n for n in page.run("return window.made") if n]
    assert boxes > 60
    assert len(made) > boxes / 10
    assert max(made) <= 8 * 6, "no frame makes more than the boxes for which it has time"


@pytest.fixture
def large(chrome, tmp_path):
    """A page with 2,000 boxes, all of them open."""

    def chain(x):
        for i in range(100):
            with scope(f"block{i}", "Block"):
                for _ in range(10):
                    x = (x * 1.5).tanh()
        return x

    path = tmp_path / "large.html"
    path.write_text(mg.trace(chain)(mg.ones(2)).html(), encoding="utf-8")
    chrome.open(path)
    for _ in range(2):
        chrome.run("document.getElementById('more').click()")
    yield settled(chrome)
    chrome.run("document.getElementById('fit').click()")
    assert count(chrome, ".box") > 2000
    assert chrome.errors() == []


@pytest.mark.slow
def test_to_open_one_of_two_thousand_boxes_makes_what_is_new_in_the_window(large):
    large.press("/", *"block50", ENTER)
    large.run("document.getElementById('graph').focus()")
    assert count(large, ".frame.chosen") == 1
    module = large.run("return document.querySelector('.frame.chosen').dataset.id")
    assert count(large, ".box") < 100
    large.press(ENTER)
    assert count(large, ".box.chosen") == 1
    assert large.run("return document.querySelector('.box.chosen').dataset.id") == module
    settled(large).run(MADE)
    large.press(ENTER)
    settled(large)
    assert 40 < large.run("return window.made.reduce((a, b) => a + b)") < 400  # all of them are 14,000
    assert large.run("return document.querySelector('.frame.chosen').dataset.id") == module


@pytest.mark.slow
def test_many_boxes_are_drawn_in_slices(large):
    large.run(MADE + "document.getElementById('fit').click()")
    assert count(large, ".box") > 2000
    made = [n for n in large.run("return window.made") if n]
    assert len(made) > 1
    assert sum(made) > 8000


FRAMES = """
const asked = window.requestAnimationFrame, stage = document.getElementById('graph'), spent = [];
let script = 0, rectangles = 0;
const timed = f => (...given) => { const t = performance.now(); f(...given); script += performance.now() - t; };
window.requestAnimationFrame = f => asked(timed(f));
const fill = CanvasRenderingContext2D.prototype.fillRect;
CanvasRenderingContext2D.prototype.fillRect = function (...given) { rectangles++; fill.apply(this, given); };
const turn = i => timed(() => stage.dispatchEvent(
  new WheelEvent('wheel', {deltaY: i % 20 < 10 ? 60 : -60, clientX: 500, clientY: 400, cancelable: true})))();
return new Promise(done => {
  const frame = () => asked(() => {
    spent.push(script); script = 0;
    if (spent.length > 60) return done([spent.sort((a, b) => a - b)[30], rectangles]);
    turn(spent.length); frame();
  });
  frame();
});
"""
"""Milliseconds of scripting in a frame while one zooms (the median of 60), and how often a box of the map is drawn."""


@pytest.mark.slow
def test_a_frame_of_two_thousand_boxes_takes_less_than_16_ms_of_scripting(large):
    large.run("document.getElementById('more').click(); document.getElementById('more').click()")
    spent, rectangles = settled(large).run(FRAMES)
    assert spent < 16  # 0.7 ms
    assert rectangles == 0, "the map is drawn when boxes change, not in each frame"

"""The page of a graph in a browser: it opens, closes, finds, steps to the gradients, and can be read at any size."""

import numpy as np
import pytest
from in_browser import boxes, count, settled, titles, whole
from pages import hostile_graph, numbers, training

import minigrad as mg
from tools import browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(browser.missing()), reason=f"not installed: {browser.missing()}"),
]
ENTER, ESCAPE, DOWN = "\ue007", "\ue00c", "\ue015"


def test_expand_and_collapse(page):
    page.run("document.getElementById('less').click()")
    closed = boxes(page)
    assert "▸ Model" in titles(page)
    page.run("document.getElementById('graph').focus()")
    box = page.run(
        "const r = document.querySelector('.box.module.forward rect').getBoundingClientRect();"
        "return [r.x + r.width / 2, r.y + r.height / 2]"
    )
    page.click(*box)
    page.press(ENTER)
    opened = boxes(page)
    assert opened > closed
    assert any("×4" in title for title in titles(page))
    assert count(page, ".frame.backward") == 2  # the backward side opened with it
    page.press(ENTER)
    assert boxes(page) == closed
    page.click(*box, times=2)
    assert boxes(page) == opened
    for _ in range(6):
        page.run("document.getElementById('more').click()")
    assert whole(page, "return whole.querySelectorAll('.box.module').length") == 0
    assert boxes(page) > opened


def test_search_opens_what_hides_the_hit(page):
    page.run("document.getElementById('less').click()")
    settled(page).press("/")
    page.press(*"layers.2 matmul")
    found = page.run("return document.getElementById('found').textContent")
    assert int(found.split()[0]) > 0
    page.press(ENTER)
    assert count(page, ".box.chosen") == 1
    assert page.run("return document.querySelector('.box.chosen .title').textContent") == "matmul"
    beside = """
      const [b, s] = ['.box.chosen', '#graph'].map(name => document.querySelector(name).getBoundingClientRect());
      return Math.abs(b.x + b.width / 2 - s.x - s.width / 2);"""
    assert page.run(beside) < 5, "in the middle of the room that the panel leaves"
    assert "matmul" in page.run("return document.querySelector('#panel h2').textContent")
    page.press(ESCAPE)
    assert count(page, ".chosen") == 0


@pytest.mark.slow
def test_stepping_to_the_end_shows_autograds_gradients(page, traced):
    model, x, graph = traced
    training(model)(x)
    page.run("document.getElementById('graph').focus()")
    total = int(page.run("return document.getElementById('slider').max"))
    assert total == len(graph.visits)
    arrived = {}
    for _ in range(total):
        page.press("]")
        for title, text in page.run(
            "const title = document.querySelector('#panel h2').textContent;"
            "return [...document.querySelectorAll('.arrived')].map(e => [title, e.textContent])"
        ):
            arrived[title.split(": ", 1)[1]] = text
        assert count(page, ".now") >= 1
    assert page.run("return document.getElementById('position').textContent") == f"{total} of {total}"
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(numbers(arrived[name]), parameter.grad.numpy().ravel(), rtol=1e-4, atol=1e-5)
    assert count(page, ".wait") == 0
    page.press("[")
    assert page.run("return document.querySelector('#panel').textContent").count("waiting (frontier)") == 1


def test_a_step_opens_its_module_and_ties_its_op_to_the_rule(page):
    page.run("document.getElementById('less').click()")
    settled(page).run("document.getElementById('fit').click()")
    closed = titles(page)
    page.run("document.getElementById('graph').focus()")
    tied = set()
    for _ in range(12):
        page.press("]")
        ends = page.run("return [...document.querySelectorAll('.box.now')].map(e => e.className.baseVal)")
        assert all("module" not in end for end in ends)
        ways = {"backward" in end for end in ends}
        assert count(page, "#near .tie") > 0 or ways == {False}
        tied |= ways if count(page, "#near .tie") else set()
        assert page.wait(
            "const r = document.getElementById('graph').getBoundingClientRect();"
            "return [...document.querySelectorAll('.box.now')].every(e => { const b = e.getBoundingClientRect();"
            "return b.left >= r.left && b.right <= r.right && b.top >= r.top && b.bottom <= r.bottom; })"
        )
    assert tied == {False, True}
    page.run("document.getElementById('follow').click()")
    page.run("document.getElementById('fit').click()")
    assert titles(page) == closed
    assert count(page, ".box.module.now") > 0
    before = count(page, "#arrows .tie")
    page.run("document.getElementById('ties').click()")
    assert before == 0 < count(page, "#arrows .tie")


ZOOM = """
document.getElementById('graph').dispatchEvent(
  new WheelEvent('wheel', {deltaY: arguments[0], clientX: 500, clientY: 400, cancelable: true}));
return document.getElementById('graph').classList.contains('far');
"""


def test_small_print_goes_while_zooming_out_and_comes_back_at_rest(page):
    assert page.run(ZOOM, 2000)
    assert page.run(ZOOM, -2000)
    rest = "return new Promise(done => setTimeout(() => done(document.getElementById('graph').className), 400))"
    assert page.run(rest) == ""


def test_an_address_can_name_a_step_a_search_and_a_theme(page, traced, tmp_path):
    address = (tmp_path / "page.html").resolve().as_uri()
    page._call("POST", "/url", {"url": f"{address}#step=3&theme=dark"})
    assert page.run("return document.getElementById('position').textContent").startswith("3 of ")
    assert page.run("return document.documentElement.classList.contains('dark')")
    ground = "return getComputedStyle(document.body).backgroundColor"
    dark = page.run(ground)
    page.run("document.getElementById('theme').click()")
    assert page.run(ground) != dark
    page._call("POST", "/url", {"url": f"{address}#search=layers.2+matmul&theme=light"})
    assert "matmul" in page.run("return document.querySelector('#panel h2').textContent")
    assert not page.run("return document.documentElement.classList.contains('dark')")


def test_an_address_with_a_strange_step_and_a_theme_of_ones_own_are_kept(page, tmp_path):
    address = (tmp_path / "page.html").resolve().as_uri()
    dark = "return document.documentElement.classList.contains('dark')"
    position = "return document.getElementById('position').textContent"
    for asked, shown in (("2.5", "2 of "), ("x", "0 of "), ("-3", "0 of ")):
        page._call("POST", "/url", {"url": f"{address}#step={asked}"})
        assert page.run(position).startswith(shown)
    before = page.run(dark)
    page.run("document.getElementById('theme').click(); location.hash = 'step=4'")
    page.run("return new Promise(done => setTimeout(done, 100))")
    assert page.run(position).startswith("4 of ")
    assert page.run(dark) is not before


def test_keys_go_on_working_after_a_button_of_the_panel(page):
    """The panel's buttons make way for what they show, and the focus goes to the graph instead of nowhere."""
    page.run("document.getElementById('graph').focus()")
    page.press(DOWN)
    page.run("const b = document.querySelector('#panel button'); b.focus(); b.click()")
    assert page.run("return document.activeElement.id") == "graph"


def test_every_button_has_a_name_in_words(page):
    names = page.run("return [...document.querySelectorAll('header button, footer button')].map("
                     "b => b.getAttribute('aria-label') || b.textContent)")  # fmt: skip
    assert all(name.replace(" ", "").isalpha() for name in names)


def test_keys_of_steps_do_nothing_where_there_are_none(chrome, tmp_path):
    path = tmp_path / "forward.html"
    path.write_text(mg.trace(lambda x: (x * 2.0).exp())(mg.ones(2)).html(), encoding="utf-8")
    chrome.open(path)
    chrome.run("document.getElementById('graph').focus()")
    chrome.press(DOWN)
    chosen = "return document.querySelector('.chosen')?.dataset.id"
    before = chrome.run(chosen)
    for key in "][p":
        chrome.press(key)
        assert chrome.run(chosen) == before is not None
    assert chrome.errors() == []


def test_colours_are_readable_in_both_themes(page):
    """Text and its ground differ by at least 4.5 to 1 (WCAG AA), in light and in dark."""
    measure = """
        const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const light = colour => {
          const [r, g, b] = colour.match(/\\d+/g).slice(0, 3).map(v => linear(v / 255));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
        };
        const ratio = (a, b) => Math.max(light(a) / light(b), light(b) / light(a));
        const worst = [];
        for (const dark of [false, true]) {
          document.documentElement.classList.toggle("dark", dark);
          for (const box of document.querySelectorAll(".box")) for (const text of box.querySelectorAll("text"))
            worst.push(ratio(getComputedStyle(text).fill, getComputedStyle(box.querySelector("rect")).fill));
        }
        return Math.min(...worst);"""
    assert page.run(measure) >= 4.5


def test_keys_walk_and_no_name_becomes_markup(chrome, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(hostile_graph().html(), encoding="utf-8")
    chrome.open(path)
    for _ in range(3):
        chrome.run("document.getElementById('more').click()")
    settled(chrome).run("document.getElementById('graph').focus()")
    seen = set()
    for _ in range(6):
        chrome.press(DOWN)
        seen.add(chrome.run("return document.querySelector('.chosen')?.dataset.id"))
    assert len(seen) > 3
    assert count(chrome, "img") == 0
    assert any(
        "<img src=x" in title
        for title in chrome.run("return [...document.querySelectorAll('text')].map(e => e.textContent)")
    )
    assert chrome.errors() == []


# --- how it looks --------------------------------------------------------------------------------------------

PASSING = """
const boxes = [...whole.querySelectorAll('.box')].map(g => {
  const [x, y] = g.getAttribute('transform').match(/-?[\\d.]+/g).map(Number), r = g.querySelector('rect');
  return {id: g.dataset.id, x, y, w: +r.getAttribute('width'), h: +r.getAttribute('height')};
});
const through = [];
for (const path of whole.querySelectorAll('#arrows path')) {
  const length = path.getTotalLength();
  for (let i = 1; i < 40; i++) {
    const p = path.getPointAtLength(length * i / 40);
    for (const b of boxes) if (b.id !== path.dataset.from && b.id !== path.dataset.to
        && p.x > b.x + 2 && p.x < b.x + b.w - 2 && p.y > b.y + 2 && p.y < b.y + b.h - 2)
      through.push([path.dataset.from, path.dataset.to, b.id].join(' '));
  }
}
return [...new Set(through)];
"""
"""The lines that run through a box which is not at one of their ends: line's ends and the box."""

SMALLEST = """
const stage = document.getElementById('graph').getBoundingClientRect();
return Math.min(...[...document.querySelectorAll('.box .title')].map(e => e.getBoundingClientRect())
  .filter(r => r.width && r.x > stage.x && r.right < stage.right && r.y > stage.y && r.bottom < stage.bottom)
  .map(r => r.height));
"""


PLACES = """
const D = JSON.parse(document.getElementById('data').textContent), at = {}, wrong = [];
const side = (r, name) => Number(r.getAttribute(name));
for (const g of whole.querySelectorAll('.box, .frame')) {
  const [x, y] = (g.getAttribute('transform') || '0,0').match(/-?[\\d.]+/g).map(Number), r = g.querySelector('rect');
  const left = x + side(r, 'x'), top = y + side(r, 'y'), closed = g.classList.contains('box');
  at[g.dataset.id] = {left, top, right: left + side(r, 'width'), bottom: top + side(r, 'height'), closed};
}
let moved = 0, parted = 0;
for (const scope of Object.values(D.scopes)) {
  if (!(scope.members[0] in at)) continue;
  const inside = scope.members.map(m => at[m]), items = scope.members.map(m => D.cards[m] || D.scopes[m]);
  const rows = scope.rows.map(row => row.map(i => inside[i]));
  rows.forEach((row, i) => {
    if (row.some((b, j) => j && b.left - row[j - 1].right < scope.gap - 0.2)) wrong.push('a row overlaps');
    const upper = rows[i - 1];
    if (upper && Math.min(...row.map(b => b.top)) <= Math.max(...upper.map(b => b.bottom))) wrong.push('rows overlap');
  });
  const shifts = inside.map((b, i) => (b.left + b.right) / 2 - items[i].box[0]);
  if (Math.max(...shifts) - Math.min(...shifts) < 0.1) continue;
  moved++;
  const lines = (i, end) => scope.pairs.filter(pair => pair[end] === i).length;
  for (const [a, b] of scope.pairs)
    if (lines(a, 0) === 1 && lines(b, 1) === 1 && Math.abs(shifts[a] - shifts[b]) > 1) parted++;
  if (inside.every(b => b.closed)) wrong.push('closed boxes moved');
}
return [wrong, moved, parted];
"""
"""What is wrong with the places of boxes and frames in their scopes; in how many scopes something moved aside; how many
pairs that only stand above each other did not move together."""


@pytest.mark.parametrize("example", ["encoder-layer", "encoder-decoder"])
def test_boxes_stand_where_they_were_put_and_make_room_for_what_is_open(chrome, tmp_path, example):
    from minigrad.cli import main

    path = tmp_path / "page.html"
    assert main(["render", "--example", example, "--backward", "-o", str(path)]) == 0
    chrome.open(path)
    for _ in range(3):
        wrong, moved, parted = whole(chrome, PLACES)
        assert wrong == []
        assert moved > 0
        assert parted == 0
        chrome.run("document.getElementById('more').click()")
    chrome.run("document.getElementById('less').click()")
    assert whole(chrome, PLACES) == [[], 1, 0]  # the sides, which are open, stand further apart
    assert chrome.errors() == []


@pytest.fixture
def sized(chrome):
    """Makes the window as wide as asked; afterwards as it was."""
    yield lambda width, height=900: chrome.resize(width, height)
    chrome.resize(1400, 900)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["encoder-layer", "encoder-decoder", "multi-head-attention"])
def test_no_line_runs_through_a_box(chrome, tmp_path, example):
    from minigrad.cli import main

    path = tmp_path / "page.html"
    assert main(["render", "--example", example, "-o", str(path)]) == 0
    chrome.open(path)
    for _ in range(3):
        assert whole(chrome, PASSING) == []
        chrome.run("document.getElementById('more').click()")
    assert chrome.errors() == []


ALONG = """
const frames = [...whole.querySelectorAll('.frame')].map(g => [...g.getAttribute('transform').match(/-?[\\d.]+/g),
  ...['width', 'height'].map(name => g.firstChild.getAttribute(name))].map(Number)), along = [];
for (const path of whole.querySelectorAll('#arrows path'))
  for (const part of path.getAttribute('d').matchAll(/([-\\d.]+),([-\\d.]+) L\\1,([-\\d.]+)/g)) {
    const [x, from, to] = part.slice(1).map(Number), low = Math.min(from, to), high = Math.max(from, to);
    for (const [left, top, width, height] of frames) for (const edge of [left, left + width])
      if (Math.abs(x - edge) < 4 && Math.min(high, top + height) - Math.max(low, top) > 20)
        along.push([path.dataset.from, path.dataset.to, x, edge].join(' '));
  }
return along;
"""
"""The lines whose upright part runs along the border of a frame, where it looks like a part of the frame."""


@pytest.mark.parametrize("example", ["encoder-decoder", pytest.param("gpt-train-step", marks=pytest.mark.slow)])
def test_no_line_runs_along_the_border_of_a_frame(chrome, tmp_path, example):
    from minigrad.cli import main

    path = tmp_path / "page.html"
    assert main(["render", "--example", example, "-o", str(path)]) == 0
    chrome.open(path)
    ways = "return [...whole.querySelectorAll('#arrows path')].map(p => p.getAttribute('d'))"
    assert any(" L" in way for way in whole(chrome, ways))
    for _ in range(2):
        assert whole(chrome, ALONG) == []
        chrome.run("document.getElementById('more').click()")


def test_names_of_frames_lie_above_the_lines(page):
    order = page.run("return [...document.querySelectorAll('#world > g')].map(g => g.id)")
    assert order.index("names") > max(order.index("arrows"), order.index("near"))
    assert count(page, "#names .name") == count(page, ".frame") > 0


@pytest.mark.slow
def test_a_narrow_window_begins_where_the_forward_pass_does(page, sized, tmp_path):
    sized(400)
    page.open(tmp_path / "page.html")
    seen = """
      const stage = document.getElementById('graph').getBoundingClientRect();
      return [...document.querySelectorAll('.box.input')].some(e => {
        const r = e.getBoundingClientRect();
        return r.width && r.x >= stage.x && r.right <= stage.right && r.y >= stage.y && r.bottom <= stage.bottom; });
    """
    assert page.wait(seen)
    resting = (
        "return !document.getElementById('map').hidden && document.getElementById('map').classList.contains('resting')"
    )
    assert page.wait(resting)


@pytest.mark.parametrize("width", [1400, 1000, 400])
def test_it_opens_at_a_size_that_can_be_read(page, sized, tmp_path, width):
    sized(width)
    page.open(tmp_path / "page.html")
    page.run("window.dispatchEvent(new Event('resize'))")
    assert page.run(SMALLEST) >= 9
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def test_what_fits_is_fitted_again_when_the_window_changes(page, sized):
    page.run("document.getElementById('fit').click()")
    sized(700)
    inside = """
      const stage = document.getElementById('graph').getBoundingClientRect();
      return [...document.querySelectorAll('.frame rect')].every(e => {
        const r = e.getBoundingClientRect();
        return r.x >= stage.x && r.right <= stage.right && r.y >= stage.y && r.bottom <= stage.bottom; });
    """
    assert page.wait(inside)


def test_the_map_shows_where_one_is_and_leads_elsewhere(page):
    hidden = "return document.getElementById('map').hidden"
    page.run("document.getElementById('fit').click()")
    assert page.wait(hidden)
    for _ in range(9):
        page.press("+")
    assert page.wait(f"return !({hidden[7:]})")
    place = "return document.getElementById('world').style.transform"
    before = page.run(place)
    box = page.run("const r = document.getElementById('map').getBoundingClientRect(); return [r.x + 5, r.y + 5]")
    page.click(*box)
    assert page.run(place) != before


def test_flow_shows_what_leads_to_a_box_and_what_it_leads_to(page):
    page.run("document.getElementById('less').click(); document.getElementById('more').click()")
    settled(page).run("document.getElementById('flow').click()")
    page.press("/")
    page.press(*"head linear")
    page.press(ENTER)
    assert count(page, ".box.above") > 0
    assert count(page, ".box.below") > 0
    assert count(page, ".box.chosen.above, .box.chosen.below") == 0
    page.press(ESCAPE)
    assert count(page, ".box.above, .box.below") == 0


def test_lines_say_what_they_carry(page):
    page.run("document.getElementById('less').click(); document.getElementById('more').click()")
    assert whole(page, "return whole.querySelectorAll('#arrows path:not(.tie, :has(title))').length") == 0
    said = "return [...whole.querySelectorAll('#arrows title')].map(e => e.textContent)"
    assert "f32[4, 3]" in whole(page, said)
    assert count(page, ".shape") == 0
    page.press("/")
    page.press(*"head linear")
    page.press(ENTER)
    assert count(page, ".shape") > 0
    assert "f32[4, 3]" in page.run("return [...document.querySelectorAll('.shape')].map(e => e.textContent)")
    covered = """
      const boxes = [...document.querySelectorAll('.box')].map(e => e.getBoundingClientRect());
      const apart = (b, r) => b.left >= r.right || b.right <= r.left || b.top + 1 >= r.bottom || b.bottom - 1 <= r.top;
      const free = r => boxes.every(b => !b.width || apart(b, r));
      return [...document.querySelectorAll('.shape')].filter(e => !free(e.getBoundingClientRect())).length;"""
    assert page.run(covered) == 0


def test_hits_are_listed_and_a_click_leads_to_one(page):
    page.press("/")
    page.press(*"matmul")
    listed = page.run("return document.querySelectorAll('#panel button').length")
    assert listed == int(page.run("return document.getElementById('found').textContent").split()[0])
    page.run("document.querySelector('#panel button').click()")
    assert "matmul" in page.run("return document.querySelector('.box.chosen .title').textContent")
    page.press(ESCAPE)
    assert count(page, "#panel *") == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_view_is_saved_as_a_picture_of_its_own(page, tmp_path, theme):
    page.run(f"document.documentElement.classList.toggle('dark', {str(theme == 'dark').lower()})")
    page.run("document.getElementById('fit').click()")
    boxes, lines = count(page, ".box"), count(page, "#arrows path")
    for _ in range(10):
        page.run(ZOOM, -240)
    assert count(page, ".box") < boxes, "what is outside of the window is not in the page, but in the picture"
    whole(page, "")
    assert page.run("return window.named").endswith(".svg")
    assert count(page, ".box") < boxes
    picture = tmp_path / "view.svg"
    picture.write_text(page.run("return window.picture"), encoding="utf-8")
    page.open(picture)
    assert (count(page, ".box"), count(page, "#arrows path")) == (boxes, lines)
    fill = page.run("return getComputedStyle(document.querySelector('.box.op rect')).fill")
    assert fill == {"light": "rgb(255, 255, 255)", "dark": "rgb(34, 41, 52)"}[theme]


def test_the_slider_of_passes_shows_each_stage(chrome, tmp_path):
    from minigrad.compiler import optimise
    from minigrad.viz.passfile import write_passes
    from minigrad.viz.picture import Options

    stages = optimise(mg.trace(lambda x: ((x @ x).tanh() + (x @ x).tanh()).sum())(mg.ones(3, 3)))
    (tmp_path / "passes.html").write_text(write_passes(stages, Options()), encoding="utf-8")
    chrome.open(tmp_path / "passes.html")
    shown = "return document.getElementById('name').textContent"
    assert chrome.run(shown) == "trace"
    for name, _ in stages[1:]:
        chrome.run("document.getElementById('next').click()")
        assert chrome.run(shown) == name
        assert count(chrome, "main svg .box") > 0
    chrome.run("const s = document.getElementById('slider'); s.value = s.max; s.oninput({target: s})")
    assert chrome.run(shown) == "memory"
    assert count(chrome, ".memory .value") > 0
    assert chrome.run("return document.documentElement.scrollWidth <= innerWidth")
    assert chrome.errors() == []

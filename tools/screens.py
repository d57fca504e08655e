"""Look at every page and picture as a reader sees it: `python -m tools.screens build/site docs/pictures`.

Each is opened in chromium at three widths and in both themes. Measured is where its boxes and letters lie:

- a page that is wider than its window;
- text that lies over other text;
- text that a box cuts off where nobody can scroll;
- a picture that did not load, and text of a picture that leaves it.

What is found is printed, one line each, and the exit code is 1. `--shots FOLDER` keeps the screenshots, to look at.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tools.browser import Browser, missing

WIDTHS = (1400, 1000, 400)
THEMES = ("light", "dark")
HEIGHT = 900
KINDS = (".html", ".svg")

MEASURE = """
const found = [], root = document.documentElement, isPicture = root.tagName === 'svg';
const say = (what, text) => found.push(what + ': ' + text.trim().replace(/\\s+/g, ' ').slice(0, 60));
const shown = element => {
  const style = getComputedStyle(element);
  return style.visibility !== 'hidden' && style.display !== 'none' && Number(style.opacity) > 0.05;
};
if (!isPicture && root.scrollWidth > innerWidth + 1) {
  const widest = [...document.body.querySelectorAll('*')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.right > innerWidth + 1 && box.width > 0 && shown(e);
  })[0];
  say('wider than its window', widest ? widest.tagName + ' ' + (widest.textContent || '') : '');
}
for (const image of document.images)
  if (image.complete && image.naturalWidth === 0) say('did not load', image.src);
const scope = isPicture ? root : document.querySelector('article') || document.body;
const lines = [], walk = document.createTreeWalker(scope, NodeFilter.SHOW_TEXT), range = document.createRange();
while (walk.nextNode()) {
  const node = walk.currentNode, parent = node.parentElement;
  if (!node.data.trim() || !parent.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
  if (!parent.getBoundingClientRect().width) continue;  // not displayed: a range in an SVG has boxes all the same
  if (parent.closest(`title, desc, style, script, nav, .headerlink, [aria-hidden=true],
                      details:not([open]) > :not(summary)`)) continue;
  range.selectNodeContents(node);
  for (const box of range.getClientRects())
    if (box.width > 1 && box.height > 1) lines.push({node, box, parent});
  let box = parent;
  while (!isPicture && box !== document.body && getComputedStyle(box).display === 'inline') box = box.parentElement;
  if (!isPicture && getComputedStyle(box).overflowX === 'hidden' && box.scrollWidth > box.clientWidth + 1)
    say('cut off', node.data);
}
const inside = (line) => {  // what a box that scrolls does not show just now is nowhere
  for (let e = line.parent; e && e !== document.body; e = e.parentElement) {
    const style = getComputedStyle(e);
    if (style.overflowX === 'visible' && style.overflowY === 'visible') continue;
    const box = e.getBoundingClientRect();
    if (line.box.left >= box.right - 1 || line.box.right <= box.left + 1) return false;
    if (line.box.top >= box.bottom - 1 || line.box.bottom <= box.top + 1) return false;
  }
  return true;
};
const seen = isPicture ? lines : lines.filter(inside);
seen.sort((a, b) => a.box.top - b.box.top);
for (let i = 0; i < seen.length; i++) {
  const a = seen[i].box;
  for (let j = i + 1; j < seen.length && seen[j].box.top < a.bottom - 1; j++) {
    const b = seen[j].box;
    if (seen[i].node === seen[j].node) continue;
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    const share = width * height / Math.min(a.width * a.height, b.width * b.height);
    if (width > 2 && height > 2 && share > 0.25) say('text over text', seen[i].node.data + ' / ' + seen[j].node.data);
  }
}
if (isPicture) {
  const {left, right, top, bottom} = root.getBoundingClientRect();
  for (const {node, box} of lines)
    if (box.left < left - 1 || box.right > right + 1 || box.top < top - 1 || box.bottom > bottom + 1)
      say('leaves the picture', node.data);
}
return [...new Set(found)];
"""


@dataclass(frozen=True)
class View:
    """One file as one reader sees it."""

    file: Path
    width: int
    theme: str

    def __str__(self) -> str:
        return f"{self.file} at {self.width} px, {self.theme}"


def views(places: Sequence[Path]) -> list[View]:
    """Every page and picture of files and folders. A picture has one width of its own."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*")))]
    return [
        View(file, width, theme)
        for file in files
        if file.suffix in KINDS
        for width in (WIDTHS if file.suffix == ".html" else WIDTHS[:1])
        for theme in THEMES
    ]


def look(browser: Browser, view: View, shots: Path | None = None) -> list[str]:
    """What is wrong with a view, in words."""
    browser.resize(view.width, HEIGHT)
    browser.open(view.file)
    browser.wait("return document.readyState === 'complete' && [...document.images].every(image => image.complete)")
    found: list[str] = browser.run(MEASURE)
    if shots is not None:
        browser.screenshot(shots / f"{view.file.parent.name}-{view.file.stem}-{view.width}-{view.theme}.png")
    return found


def findings(chosen: Sequence[View], shots: Path | None = None) -> Iterator[tuple[View, list[str]]]:
    """Each view, with what is wrong with it. A site remembers the theme of a first visit: each has its own browser."""
    for theme in THEMES:
        browser = Browser()
        try:
            browser.theme(theme)
            for view in chosen:
                if view.theme == theme:
                    yield view, look(browser, view, shots)
        finally:
            browser.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.screens", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="+", type=Path, metavar="FILE|FOLDER")
    parser.add_argument("--shots", type=Path, metavar="FOLDER", help="keep a screenshot of each view here")
    arguments = parser.parse_args(argv)
    for place in arguments.places:
        if not place.exists():
            parser.error(f"{place} is not there: build the site first (python -m tools.site)")
    chosen = views(arguments.places)
    if not chosen:
        parser.error(f"no {' or '.join(KINDS)} file lies in {', '.join(map(str, arguments.places))}")
    if lacking := missing():
        parser.error(f"{lacking} is needed: apt-get install chromium chromium-driver")
    if arguments.shots:
        arguments.shots.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("looking", total=len(chosen))
        for view, found in findings(chosen, arguments.shots):
            wrong += bool(found)
            for line in found:
                print(f"{view}: {line}")
            progress.advance(task)
    print(f"{len(chosen)} views, {wrong} with something wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

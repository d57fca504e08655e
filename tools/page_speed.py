"""How long the scripts of a large page work in one frame: `python -m tools.page_speed` (chromium and chromedriver).

Two pages with all their boxes open: 2,000 ops in 100 modules, and a training step of GPT-2 small. On each, modules are
opened and closed, words are searched, the window is zoomed and dragged. Chromium's own trace says how much processor
time the scripts take between two paints, so that other programs disturb little. Printed is a Markdown table: the most
of one frame.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import minigrad as mg
from minigrad.cli import main as minigrad
from minigrad.state import scope
from tools.browser import Browser, missing

SCRIPTS = {"FunctionCall", "FireAnimationFrame", "EventDispatch", "TimerFire"}
"""What chromium calls the work of scripts."""
PAINTS = {"Layerize", "Commit"}
"""What ends a frame."""
TIMES = 5
GRAPH = "document.getElementById('graph')"
SETTLED = (
    f"return new Promise(done => {{ let n = 0; const look = () => {GRAPH}.getAttribute('aria-busy') === 'true' ? "
    "(n = 0, setTimeout(look, 20)) : ++n > 10 ? done(1) : setTimeout(look, 20); look(); })"
)
PRESS = "{}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', bubbles: true, cancelable: true}}))"
CHOOSE = (
    f"const graph = {GRAPH}; graph.setPointerCapture = () => {{}};"
    "const all = [...document.querySelectorAll('.frame')], one = all[all.length >> 1].dataset.id;"
    "const at = document.querySelector(`#names [data-id='${one}']`);"
    "for (const kind of ['pointerdown', 'pointerup'])"
    "  at.dispatchEvent(new PointerEvent(kind, {bubbles: true, clientX: 500, clientY: 400, pointerId: 1}))"
)
ZOOM = (
    f"let n = 0; const turn = () => {{ {GRAPH}.dispatchEvent(new WheelEvent('wheel',"
    "{deltaY: n % 60 < 30 ? 60 : -60, clientX: 500, clientY: 400, cancelable: true}));"
    "if (++n < 120) requestAnimationFrame(turn); }; requestAnimationFrame(turn);"
    "return new Promise(done => setTimeout(done, 3000))"
)
DRAG = (
    f"let n = 0; const send = (kind, x, y) => {GRAPH}.dispatchEvent(new PointerEvent(kind,"
    "{bubbles: true, clientX: x, clientY: y, pointerId: 1})); send('pointerdown', 500, 400);"
    "const pull = () => { send('pointermove', 500 - n * 12, 400 - n * 15);"
    "if (++n < 60) requestAnimationFrame(pull); else send('pointerup', 0, 0); };"
    "requestAnimationFrame(pull); return new Promise(done => setTimeout(done, 2000))"
)
SEARCH = "const field = document.getElementById('search'); field.value = 'mul'; field.dispatchEvent(new Event('input'))"


class Traced(Browser):
    """A browser that keeps a trace of what its pages do."""

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        if path == "/session":
            wanted = body["capabilities"]["alwaysMatch"]
            wanted["goog:loggingPrefs"] = {"browser": "ALL", "performance": "ALL"}
            traced = {"enableNetwork": False, "enablePage": False, "traceCategories": "devtools.timeline"}
            wanted["goog:chromeOptions"]["perfLoggingPrefs"] = traced
        return super()._call(method, path, body)

    def frames(self, script: str, later: bool = True) -> list[float]:
        """The milliseconds of scripting in each frame while a script, and what it starts, is done."""
        self._events()
        self.run(f"setTimeout(() => {{ {script} }})" if later else script)
        self.run(SETTLED)
        events = sorted(self._events(), key=lambda event: event.get("ts", 0))
        threads = {event["tid"] for event in events if event["name"] == "FireAnimationFrame"}
        found, now, end = [], 0.0, 0
        for event in events:
            if event.get("tid") not in threads:
                continue
            if event["name"] in PAINTS:
                found.append(now / 1000)
                now = 0.0
            elif event["name"] in SCRIPTS and "tdur" in event and event["ts"] >= end:  # not what stands inside another
                now += event["tdur"]
                end = event["ts"] + event["dur"]
        return [*found, now / 1000]

    def _events(self) -> list[dict[str, Any]]:
        """What was traced since the last time. It comes in pieces, and late."""
        found = []
        for _ in range(3):
            time.sleep(0.2)
            for entry in self._call("POST", "/se/log", {"type": "performance"}):
                message = json.loads(entry["message"])["message"]
                if message["method"] == "Tracing.dataCollected":
                    found.append(message["params"])
        return found


def chain(x: mg.Tensor) -> mg.Tensor:
    for i in range(100):
        with scope(f"block{i}", "Block"):
            for _ in range(10):
                x = (x * 1.5).tanh()
    return x


def pages(folder: Path) -> list[Path]:
    ops, gpt = folder / "ops.html", folder / "gpt-train-step.html"
    ops.write_text(mg.trace(chain)(mg.ones(2)).html(), encoding="utf-8")
    with redirect_stdout(sys.stderr):
        minigrad(["render", "--example", gpt.stem, "-o", str(gpt)])
    return [ops, gpt]


def measured(browser: Traced, page: Path) -> dict[str, float]:
    """What is done on a page -> the most milliseconds of a frame."""
    browser.open(page)
    browser.run(SETTLED)
    found: dict[str, float] = {}

    def note(what: str, script: str, later: bool = True) -> None:
        found[what] = max(found.get(what, 0.0), *browser.frames(script, later))

    for _ in range(4):
        note("open one more level everywhere", "document.getElementById('more').click()")
    note("show everything", "document.getElementById('fit').click()")
    browser.run(CHOOSE)
    browser.run(SETTLED)
    for _ in range(2 * TIMES):
        note("open or close a module", PRESS.format(GRAPH, "Enter"))
    note("search", SEARCH)
    for _ in range(TIMES):
        note("search", PRESS.format("window", "n"))
    note("zoom", ZOOM, later=False)
    note("drag", DRAG, later=False)
    return found


def table(rows: list[dict[str, float]]) -> str:
    lines = ["| with all boxes open | milliseconds |", "|---|---|"]
    return "\n".join([*lines, *(f"| {what} | {max(row[what] for row in rows):.0f} |" for what in rows[0])])


def main() -> int:
    if missing():
        print(f"python -m tools.page_speed: not installed: {missing()}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("writing two pages", total=3)
        written = pages(Path(folder))
        browser = Traced()
        try:
            rows = []
            for page in written:
                progress.update(bar, advance=1, description=f"measuring {page.name}")
                rows.append(measured(browser, page))
        finally:
            browser.close()
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

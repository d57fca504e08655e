"""Colours and type of pictures: one palette for every writer. Fills are light, so that black text reads on paper.

An SVG has a second, dark one (`DARK`) for viewers that ask for it."""

from __future__ import annotations

from minigrad.viz.picture import Box

FONT = "Helvetica"
FAMILY = "Helvetica, Arial, 'Liberation Sans', 'Noto Sans', 'Noto Sans CJK SC', 'DejaVu Sans', sans-serif"
TITLE, LINE, FRAME = 11.0, 8.5, 9.0  # type sizes: a box's title, its other lines, a frame's label
OVALS = ("input", "parameter", "constant", "output", "gradient", "update")

SOURCES = {  # kind -> fill, stroke
    "input": ("#dbe9fb", "#3f74b5"),
    "parameter": ("#fdf0cd", "#b98a1d"),
    "constant": ("#efefef", "#8c8c8c"),
    "output": ("#ddf1e0", "#3f8f55"),
    "gradient": ("#fbe3db", "#bf5f43"),
    "update": ("#e6f2dc", "#6a9443"),
}
OPS = {  # side -> fill, stroke of an op, fill of a closed module
    "forward": ("#ffffff", "#7c889c", "#e9eef8"),
    "backward": ("#fffaf8", "#c07e69", "#fae6df"),
    "optimizer": ("#fcfdfa", "#7ea05f", "#e9f2df"),
}
FRAMES = {"forward": ("#b3bfd4", "#f8fafd"), "backward": ("#deb8ac", "#fefaf8"), "optimizer": ("#bed0ab", "#fafcf7")}
LINES = {  # kind -> colour, dashed
    "data": ("#56627a", False),
    "gradient": ("#b4563b", False),
    "saved": ("#d3a483", True),
    "update": ("#8aa86e", False),
    "tie": ("#c3b4d6", True),
}
MEANINGS = {  # kind -> what the legend says
    "data": "value",
    "gradient": "gradient",
    "saved": "value that the derivative reads",
    "tie": "derivative of",
    "update": "update",
}
ALARM = "#d40000"
MADE, GONE = "made", "gone"  # marks of boxes that only one of two graphs has: green in the second, red in the first
MARKS = {MADE: "#1a7f37", GONE: "#b4351f"}
DARK = """\
.ground { fill: #14171d; }
text { fill: #e7ebf2; }
.line { fill: #b3bccb; }
.frame { fill: #9aa5b8; }
.alarm { fill: #ff6b6b; }
.scope.forward rect { fill: #191d25; stroke: #3d475b; }
.scope.backward rect { fill: #201a19; stroke: #6b4a40; }
.scope.optimizer rect { fill: #191e16; stroke: #4c5c3c; }
.halo.forward { stroke: #191d25; }
.halo.backward { stroke: #201a19; }
.halo.optimizer { stroke: #191e16; }
.box.forward rect { fill: #222934; stroke: #8b98b0; }
.box.backward rect { fill: #2d2422; stroke: #d08c74; }
.box.optimizer rect { fill: #222a1f; stroke: #8fb36d; }
.box.module.forward rect { fill: #2b3648; }
.box.module.backward rect { fill: #46302a; }
.box.module.optimizer rect { fill: #303f28; }
.box.input rect { fill: #1f3a5c; stroke: #6d9fdc; }
.box.parameter rect { fill: #4a3d17; stroke: #d2a743; }
.box.constant rect { fill: #333841; stroke: #8c8c8c; }
.box.output rect { fill: #1e4029; stroke: #63b37a; }
.box.gradient rect { fill: #57301f; stroke: #d98a6f; }
.box.update rect { fill: #2c3d1f; stroke: #8fb36d; }
.box.alarmed rect { stroke: #ff5c5c; }
.box.made rect { stroke: #57c878; }
.box.gone rect { stroke: #ff8a70; }
.box.heated text { fill: #1c2330; }
.arrow.data path, .legend .data { stroke: #94a1ba; }
.arrow.gradient path, .legend .gradient { stroke: #dd8468; }
.arrow.saved path, .legend .saved { stroke: #a87d5d; }
.arrow.update path, .legend .update { stroke: #8aa86e; }
.arrow.tie path, .legend .tie { stroke: #9a86c0; }
.arrow.data polygon { fill: #94a1ba; }
.arrow.gradient polygon { fill: #dd8468; }
.arrow.saved polygon { fill: #a87d5d; }
.arrow.update polygon { fill: #8aa86e; }
.arrow.tie polygon { fill: #9a86c0; }"""
COLD, HOT = (0x4C, 0x86, 0xC6), (0xD9, 0x5B, 0x3D)


def frame(side: str) -> tuple[str, str]:
    """Stroke and fill of an open scope."""
    return FRAMES[side]


def colours(box: Box) -> tuple[str, str]:
    """Fill and stroke of a box; a heat tints it instead of its kind."""
    fill, stroke = SOURCES.get(box.kind) or (OPS[box.side][2 if box.kind == "module" else 0], OPS[box.side][1])
    if box.heat is not None:
        fill = tint(box.heat)
    return fill, ALARM if box.alarm else stroke


def tint(heat: float) -> str:
    """The colour of a root mean square whose log10 is `heat`: blue (-4 and less) over white to red (4 and more)."""
    strength = max(-1.0, min(1.0, heat / 4))
    target = HOT if strength > 0 else COLD
    return "#" + "".join(f"{round(255 + (part - 255) * 0.55 * abs(strength)):02x}" for part in target)

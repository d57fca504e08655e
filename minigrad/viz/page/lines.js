/* Lines between boxes: which are drawn, and how they go around what stands between. */
let drawn = [];  /* the lines as they stand, for the window to show or hide */
function arrows() {  /* all but those that would only clutter: these appear beside the box that is chosen */
  const asked = {saved: $("saved").checked, tie: $("ties").checked};
  lines($("arrows"), "", (a, b, kind) => asked[kind] ?? !(kind === "update" && item(a).side === "forward"));
}
function nearby() {  /* of the chosen box, or of a step: what ties its op to the ops of the rule, and their gradients */
  const now = new Set(acting().map(visible));
  const ofStep = (a, b, kind) => kind === "tie" ? now.has(a) && now.has(b) : kind === "gradient" && (now.has(a) || now.has(b));
  lines($("near"), " near", chosen ? (a, b) => a === chosen || b === chosen : ofStep);
}
function lines(parent, style, wanted) {
  parent.replaceChildren();
  drawn = drawn.filter(part => part.parent !== parent);
  const done = new Map();
  const line = (a, b, kind, shape) => {
    const key = `${a} ${b} ${kind}`, s = shown.get(a), t = shown.get(b);
    if (!s || !t || a === b || !wanted(a, b, kind)) return;
    if (done.has(key)) return shape && done.get(key).add(shape);
    done.set(key, new Set(shape ? [shape] : []));
    const d = course(a, b, s, t), xs = [...d.matchAll(/(-?[\d.]+),/g)].map(m => +m[1]);
    const g = make("path", {class: `arrow ${kind}${style}`, d, "data-from": a, "data-to": b}, parent), x = Math.min(s.x, t.x, ...xs), y = Math.min(s.y, t.y);
    g.key = key;
    drawn.push({g, parent, x, y, w: Math.max(s.x + s.w, t.x + t.w, ...xs) - x, h: Math.max(s.y + s.h, t.y + t.h) - y});
  };
  for (const [a, b, kind, shape] of D.wires) line(visible(a), visible(b), kind, shape);
  for (const id in D.cards) if (D.cards[id].partner) line(visible(D.cards[id].partner), visible(id), "tie");
  for (const s of D.steps) if (s.kept) line(visible(s.node), visible(s.kept), "tie");
  for (const path of parent.querySelectorAll("path")) carried(path, done.get(path.key), style);
}
function carried(path, shapes, style) {  /* what a line carries: as a tip, and in letters on the lines of the chosen box */
  if (!shapes.size) return;
  const text = shapes.size > 2 ? `${shapes.size} shapes` : [...shapes].join(", ");
  make("title", {}, path, text);
  if (!style) return;
  const from = shown.get(path.dataset.from), up = shown.get(path.dataset.to).y < from.y, at = {x: from.x + from.w / 2, y: up ? from.y - 9 : from.y + from.h + 15};
  const said = [...path.parentNode.querySelectorAll("text")].some(e => e.textContent === text && Number(e.getAttribute("x")) === at.x && Number(e.getAttribute("y")) === at.y);
  if (!said) make("text", {class: "shape", ...at}, path.parentNode, text);
}
function course(a, b, s, t) {  /* from box to box: around what stands between, or down, up, or to the side */
  const sx = s.x + s.w / 2, tx = t.x + t.w / 2, d = around(a, b, s, t);
  if (d) return d;
  if (t.y >= s.y + s.h) { const sy = s.y + s.h, m = (t.y - sy) / 2; return `M${sx},${sy} C${sx},${sy + m} ${tx},${t.y - m} ${tx},${t.y}`; }
  if (t.y + t.h <= s.y) { const ty = t.y + t.h, m = (s.y - ty) / 2; return `M${sx},${s.y} C${sx},${s.y - m} ${tx},${ty + m} ${tx},${ty}`; }
  const r = tx > sx, from = r ? s.x + s.w : s.x, to = r ? t.x : t.x + t.w, m = (to - from) / 2, ay = s.y + s.h / 2, by = t.y + t.h / 2;
  return `M${from},${ay} C${from + m},${ay} ${to - m},${by} ${to},${by}`;
}

/* --- lines that pass boxes: such a line, a residual connection for one, goes around them in a lane beside. A box in a
   module that holds neither end of the line counts as large as that module: the line stays outside of it --- */
const BAND = 60, LANE = 8;
let bands = new Map();  /* boxes by the bands of height that they stand in */
let borders = [];  /* the upright sides of frames */
function intoBands() {
  borders = [...frames.values()].flatMap(f => [f.x, f.x + f.w].map(x => ({x, y0: f.y, y1: f.y + f.h})));
  bands = new Map();
  for (const [id, at] of shown) for (let i = Math.floor(at.y / BAND); i <= Math.floor((at.y + at.h) / BAND); i++)
    bands.has(i) ? bands.get(i).push([id, at]) : bands.set(i, [[id, at]]);
}
function standing(x0, y0, x1, y1, but) {  /* the boxes in a rectangle */
  const found = new Set();
  for (let i = Math.floor(y0 / BAND); i <= Math.floor(y1 / BAND); i++) for (const [id, at] of bands.get(i) || [])
    if (!but.includes(id) && at.x < x1 && at.x + at.w > x0 && at.y < y1 && at.y + at.h > y0) found.add(at);
  return [...found];
}
function around(a, b, s, t) {
  const up = t.y + t.h <= s.y, sx = s.x + s.w / 2, tx = t.x + t.w / 2, ends = [a, b];
  const ours = new Set([...ancestors(a), ...ancestors(b)]);
  const whole = box => ancestors(box.id).filter(p => frames.has(p) && !ours.has(p)).reduce((_, p) => frames.get(p), box);
  if (!up && t.y < s.y + s.h) return null;  /* side by side */
  const [from, to] = up ? [s.y, t.y + t.h] : [s.y + s.h, t.y], mid = (from + to) / 2;
  const at = u => {  /* a point of the plain curve */
    const v = 1 - u, p = [v * v * v, 3 * v * v * u, 3 * v * u * u, u * u * u];
    return [p[0] * sx + p[1] * sx + p[2] * tx + p[3] * tx, p[0] * from + p[1] * mid + p[2] * mid + p[3] * to];
  };
  const crossed = new Set(), parts = Math.min(400, Math.max(16, Math.round(Math.abs(to - from) / 10)));
  for (let i = 1; i < parts; i++) { const [x, y] = at(i / parts); standing(x - 3, y - 1, x + 3, y + 1, ends).forEach(box => crossed.add(whole(box))); }
  if (!crossed.size) return null;
  const lanes = [1, -1].map(side => {  /* right of all that is crossed, or left */
    let lane = side > 0 ? Math.max(...[...crossed].map(c => c.x + c.w)) + LANE : Math.min(...[...crossed].map(c => c.x)) - LANE;
    for (let i = 0; i < 40; i++) {
      const hit = standing(lane - 4, Math.min(from, to) + 14, lane + 4, Math.max(from, to) - 14, ends).map(whole);
      const border = hit.length ? null : borders.find(e => Math.abs(e.x - lane) < 5 && Math.min(e.y1, Math.max(from, to)) - Math.max(e.y0, Math.min(from, to)) > 10);
      if (border) lane = border.x + side * 6;
      else if (!hit.length) return lane;
      else lane = side > 0 ? Math.max(...hit.map(c => c.x + c.w)) + LANE : Math.min(...hit.map(c => c.x)) - LANE;
    }
    return lane;
  });
  const lane = Math.abs(lanes[0] - sx) + Math.abs(lanes[0] - tx) <= Math.abs(lanes[1] - sx) + Math.abs(lanes[1] - tx) ? lanes[0] : lanes[1];
  const turn = Math.min(22, Math.abs(to - from) / 3), y = up ? -1 : 1;
  const free = (x, begin, way) => {  /* from where on, that way, nothing stands between x and the lane for the height of a turn */
    for (let i = 0; i < 10; i++) {
      const hit = standing(Math.min(x, lane) - 3, Math.min(begin, begin + way * turn), Math.max(x, lane) + 3, Math.max(begin, begin + way * turn), ends);
      if (!hit.length) return begin;
      begin = way > 0 ? Math.max(...hit.map(c => c.y + c.h)) + 2 : Math.min(...hit.map(c => c.y)) - 2;
    }
    return begin;
  };
  let leave = free(sx, from, y), reach = free(tx, to, -y);
  if ((reach - leave) * y < 2 * turn) { leave = from; reach = to; }
  const bend = turn * 0.6, into = leave + y * turn, out = reach - y * turn;
  return `M${sx},${from} L${sx},${leave} C${sx},${leave + y * bend} ${lane},${into - y * bend} ${lane},${into} L${lane},${out} C${lane},${out + y * bend} ${tx},${reach - y * bend} ${tx},${reach} L${tx},${to}`;
}

/* Lines between boxes: which are there, and how they go around what stands between. */
let drawn = [];  /* the lines that are there, those of the chosen box first */
let asked = {};  /* of lines that are to be listed, once the boxes are painted: which */
function arrows() {  /* all but those that would only clutter: these appear beside the box that is chosen */
  const on = {saved: $("saved").checked, tie: $("ties").checked};
  ask("arrows", (a, b, kind) => on[kind] ?? !(kind === "update" && item(a).side === "forward"));
}
function nearby() {  /* of the chosen box, or of a step: what ties its op to the ops of the rule, and their gradients */
  const now = new Set(acting().map(visible));
  const ofStep = (a, b, kind) => kind === "tie" ? now.has(a) && now.has(b) : kind === "gradient" && (now.has(a) || now.has(b));
  ask("near", chosen ? (a, b) => a === chosen || b === chosen : ofStep);
}
function ask(layer, wanted) {
  for (const line of drawn) if (line.layer === layer) hide(line);
  drawn = drawn.filter(line => line.layer !== layer);
  asked[layer] = wanted;
  soon();
}
function list(layer) {
  const found = new Map(), wanted = asked[layer];
  delete asked[layer];
  const line = (a, b, kind, shape) => {
    if (a === b || !wanted(a, b, kind)) return;
    const key = `${a} ${b} ${kind}`, s = shown.get(a), t = shown.get(b);
    if (!s || !t) return;
    const y = Math.min(s.y, t.y), h = Math.max(s.y + s.h, t.y + t.h) - y;
    if (!found.has(key)) found.set(key, {a, b, kind, layer, s, t, y, h, shapes: new Set()});
    if (shape) found.get(key).shapes.add(shape);
  };
  for (const [a, b, kind, shape] of D.wires) line(visible(a), visible(b), kind, shape);
  for (const id in D.cards) if (D.cards[id].partner) line(visible(D.cards[id].partner), visible(id), "tie");
  for (const s of D.steps) if (s.kept) line(visible(s.node), visible(s.kept), "tie");
  drawn = layer === "near" ? [...found.values(), ...drawn] : [...drawn, ...found.values()];
}
function route(line) {  /* how a line goes, when it comes into the window. Until then only its height is known */
  const {s, t} = line;
  line.d = course(line.a, line.b, s, t);
  const xs = [...line.d.matchAll(/(-?[\d.]+),/g)].map(m => +m[1]);
  line.x = Math.min(s.x, t.x, ...xs);
  line.w = Math.max(s.x + s.w, t.x + t.w, ...xs) - line.x;
}
function stroke(line) {  /* with what it carries: as a tip, and in letters on the lines of the chosen box */
  const near = line.layer === "near", path = make("path", {class: `arrow ${line.kind}${near ? " near" : ""}`, d: line.d, "data-from": line.a, "data-to": line.b});
  const {s, t} = line, text = line.shapes.size > 2 ? `${line.shapes.size} shapes` : [...line.shapes].join(", ");
  line.elements = [[path, line.layer]];
  if (!text) return;
  make("title", {}, path, text);
  line.said = `${text} ${s.id} ${t.y < s.y}`;
  if (near && !drawn.some(other => other.elements?.length > 1 && other.said === line.said))
    line.elements.push([make("text", {class: "shape", x: s.x + s.w / 2, y: t.y < s.y ? s.y - 9 : s.y + s.h + 15}, null, text), "names"]);
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
const LANE = 8, BEND = [];  /* BEND: how far to the side a plain curve has come, after each thousandth of its height */
for (let i = 0; i <= 1e4; i++) { const u = i / 1e4; BEND[Math.round(1000 * u * (1.5 - 1.5 * u + u * u))] ??= u * u * (3 - 2 * u); }
let borders = [];  /* the upright sides of frames */
/* The boxes that are hit, but for two. A frame that is missed holds none. With our own frames named, others count as one. */
function standing(hit, but, ours, scope = D.scopes[D.root], found = []) {
  for (const {at} of scope.inside) {
    if (!hit(at) || but.includes(at.id)) continue;
    const inner = D.scopes[at.id];
    if (!at.opened) found.push(at);
    else if (!ours || ours.has(at.id)) standing(hit, but, ours, inner, found);
    else if (holds(hit, inner)) found.push(at);
  }
  return found;
}
const holds = (hit, scope) => scope.inside.some(({at}) => hit(at) && (!at.opened || holds(hit, D.scopes[at.id])));
const within = (x0, y0, x1, y1) => at => at.x < x1 && at.x + at.w > x0 && at.y < y1 && at.y + at.h > y0;
function around(a, b, s, t) {
  const up = t.y + t.h <= s.y, sx = s.x + s.w / 2, tx = t.x + t.w / 2, ends = [a, b];
  if (!up && t.y < s.y + s.h) return null;  /* side by side */
  const [from, to] = up ? [s.y, t.y + t.h] : [s.y + s.h, t.y], low = Math.min(from, to), high = Math.max(from, to);
  const ours = new Set([...ancestors(a), ...ancestors(b)]);
  const curve = y => sx + (tx - sx) * BEND[Math.round(1000 * (y - from) / (to - from))];
  const crossed = standing(at => {
    if (at.y >= high || at.y + at.h <= low) return false;
    const x0 = curve(Math.max(at.y, low)), x1 = curve(Math.min(at.y + at.h, high));
    return Math.max(x0, x1) + 3 > at.x && Math.min(x0, x1) - 3 < at.x + at.w;
  }, ends, ours);
  if (!crossed.length) return null;
  const lanes = [1, -1].map(side => {  /* right of all that is crossed, or left */
    let lane = side > 0 ? Math.max(...crossed.map(c => c.x + c.w)) + LANE : Math.min(...crossed.map(c => c.x)) - LANE;
    for (let i = 0; i < 40; i++) {
      const hit = standing(within(lane - 4, low + 14, lane + 4, high - 14), ends, ours);
      const border = hit.length ? null : borders.find(e => Math.abs(e.x - lane) < 5 && Math.min(e.y1, high) - Math.max(e.y0, low) > 10);
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
      const hit = standing(within(Math.min(x, lane) - 3, Math.min(begin, begin + way * turn), Math.max(x, lane) + 3, Math.max(begin, begin + way * turn)), ends);
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

/* The tree of scopes and cards, and where each stands when some scopes are open. */
const D = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const $ = id => document.getElementById(id);
const stage = $("graph"), world = $("world"), panel = $("panel");
const item = id => D.cards[id] || D.scopes[id];
const isScope = id => id in D.scopes;
const open = new Set(D.open);
let chosen = null, view = {x: 20, y: 20, k: 1}, shown = new Map(), frames = new Map(), step = 0, hits = [], hit = -1;
let whole = true;  /* everything is in the window, as fit left it */

/* --- the tree: wires belong to the innermost scope that holds both ends, and join two of its members --- */
const ancestors = id => { const chain = []; for (let p = item(id).parent; p; p = item(p).parent) chain.push(p); return chain; };
const between = {}, readers = {}, sources = {};
for (const id in D.scopes) between[id] = [];
for (const [a, b, kind] of D.wires) {
  (readers[a] ||= []).push(b); (sources[b] ||= []).push(a);
  const up = [a, ...ancestors(a)], down = [b, ...ancestors(b)];
  let i = up.length - 1, j = down.length - 1;
  while (i > 0 && j > 0 && up[i - 1] === down[j - 1]) { i--; j--; }
  if (up[i] === down[j] && i > 0 && j > 0 && kind !== "saved") between[up[i]].push([up[i - 1], down[j - 1]]);
}
let seenAs = new Map();  /* id -> the box that shows it, while nothing opens or closes */
const visible = id => {
  let at = seenAs.get(id);
  if (at === undefined) { at = id; for (const p of ancestors(id)) if (!open.has(p)) at = p; seenAs.set(id, at); }
  return at;
};

/* --- layout: longest path in layers, each layer ordered and placed by where its neighbours stand --- */
const measure = text => { let w = 0; for (const c of text) w += c.charCodeAt(0) > 0x2e7f ? 1.9 : 1; return w; };
function size(id) {
  const it = item(id), title = isScope(id) ? measure(it.title) * 7.8 + 34 : measure(it.title) * 6.9 + 18;
  const lines = it.lines.reduce((w, line) => Math.max(w, measure(line) * 5.6 + 14), 0);
  return {w: Math.max(54, title, lines), h: 22 + 12 * it.lines.length};
}
function layout(id) {
  const scope = D.scopes[id], members = scope.members, cells = new Map();
  for (const m of members) cells.set(m, isScope(m) && open.has(m) ? layout(m) : size(m));
  if (id === D.root && D.sides.length) return sideBySide(members, cells);
  const index = new Map(members.map((m, i) => [m, i])), layer = new Map(members.map(m => [m, 0]));
  const before = new Map(members.map(m => [m, []])), after = new Map(members.map(m => [m, []]));
  for (const [a, b] of between[id]) if (index.get(a) < index.get(b)) { before.get(b).push(a); after.get(a).push(b); }
  for (const m of members) for (const p of before.get(m)) layer.set(m, Math.max(layer.get(m), layer.get(p) + 1));
  for (const m of [...members].reverse())  /* what only feeds others stands right above its first reader */
    if (!before.get(m).length && after.get(m).length) layer.set(m, Math.min(...after.get(m).map(r => layer.get(r))) - 1);
  const least = Math.min(0, ...layer.values()), rows = [];
  for (const m of members) (rows[layer.get(m) - least] ||= []).push(m);
  const lines = [];
  for (const row of rows) if (row) for (let i = 0; i < row.length; i += 12) lines.push(row.slice(i, i + 12));
  const x = new Map(), gap = 16;
  const place = (row, near) => {
    const wish = m => { const n = near.get(m).filter(p => x.has(p)); return n.length ? n.reduce((s, p) => s + x.get(p), 0) / n.length : (x.get(m) ?? 0); };
    const wishes = new Map(row.map(m => [m, wish(m)]));
    row.sort((a, b) => wishes.get(a) - wishes.get(b) || index.get(a) - index.get(b));
    let right = -Infinity, drift = 0;
    for (const m of row) { const w = cells.get(m).w / 2, at = Math.max(wishes.get(m), right + gap + w); x.set(m, at); right = at + w; drift += at - wishes.get(m); }
    for (const m of row) x.set(m, x.get(m) - drift / row.length);
  };
  for (const row of lines) place(row, before);
  for (const row of [...lines].reverse()) place(row, after);
  for (const row of lines) place(row, before);
  const pad = 16, head = id === D.root ? 0 : 20, tall = lines.map(row => Math.max(...row.map(m => cells.get(m).h)));
  const left = Math.min(0, ...members.map(m => x.get(m) - cells.get(m).w / 2)), up = scope.side === "backward";
  let y = head + pad, total = tall.reduce((s, h) => s + h + 26, 0), width = 0;
  const placed = [];
  lines.forEach((row, i) => {
    for (const m of row) {
      const c = cells.get(m), at = x.get(m) - left - c.w / 2 + pad;
      const top = up ? head + pad + total - 26 - (y - head - pad) - tall[i] + (tall[i] - c.h) / 2 : y + (tall[i] - c.h) / 2;
      placed.push({id: m, x: at, y: top, cell: c}); width = Math.max(width, at + c.w);
    }
    y += tall[i] + 26;
  });
  return {w: Math.max(width + pad, measure(scope.title) * 6.2 + 24), h: y - 26 + pad, inside: placed};
}
function sideBySide(members, cells) {
  let x = 0, h = 0; const inside = [];
  for (const m of members) { const c = cells.get(m); inside.push({id: m, x, y: 0, cell: c}); x += c.w + 50; h = Math.max(h, c.h); }
  for (const p of inside) p.y = D.scopes[p.id]?.side === "optimizer" ? 0 : h - p.cell.h > 0 ? (h - p.cell.h) / 2 : 0;
  return {w: x, h, inside};
}

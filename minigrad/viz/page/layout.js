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

/* --- the tree --- */
const ancestors = id => { const chain = []; for (let p = item(id).parent; p; p = item(p).parent) chain.push(p); return chain; };
const readers = {}, sources = {};
for (const [a, b] of D.wires) { (readers[a] ||= []).push(b); (sources[b] ||= []).push(a); }
let seenAs = new Map();  /* id -> the box that shows it, while nothing opens or closes */
const visible = id => {
  const parent = item(id).parent;
  if (!parent) return id;
  let seen = seenAs.get(id);
  if (!seen) { const around = visible(parent); seen = around === parent && open.has(parent) ? id : around; seenAs.set(id, seen); }
  return seen;
};

/* --- layout: rows and places were computed for closed boxes when the page was written (minigrad/viz/arrangement.py). What
   is open is larger than its box: its row gets higher, its neighbours move aside, and what is joined to them moves along --- */
const above = {}, below = {};
for (const scope of Object.values(D.scopes)) {
  scope.inside = scope.members.map(item);
  scope.rows = scope.rows.map(row => row.map(i => scope.members[i]));
  for (const [a, b] of scope.pairs.map(pair => pair.map(i => scope.members[i]))) { (below[a] ||= []).push(b); (above[b] ||= []).push(a); }
}
function turn(id, on) {  /* opens or closes: all around it is laid out anew */
  on ? open.add(id) : open.delete(id);
  for (const around of [id, ...ancestors(id)]) delete D.scopes[around].laid;
}
const layout = id => D.scopes[id].laid ||= lay(id);
function lay(id) {
  const scope = D.scopes[id], beside = id === D.root && D.sides.length, cells = new Map();
  for (const m of scope.members) cells.set(m, isScope(m) && open.has(m) ? layout(m) : {w: item(m).box[1], h: item(m).box[2]});
  const x = places(scope, cells), left = Math.min(...scope.members.map(m => x.get(m) - cells.get(m).w / 2));
  const pad = beside ? 0 : 16, head = id === D.root ? 0 : 20, inside = [];
  let y = head + pad, width = 0;
  for (const row of scope.rows) {
    const tall = Math.max(...row.map(m => cells.get(m).h));
    for (const m of row) {
      const cell = cells.get(m), at = x.get(m) - cell.w / 2 - left + pad, top = beside && item(m).side === "optimizer" ? 0 : (tall - cell.h) / 2;
      inside.push({id: m, x: at, y: y + top, cell});
      width = Math.max(width, at + cell.w);
    }
    y += tall + 26;
  }
  return {w: Math.max(width + pad, scope.frame), h: y - 26 + pad, inside};
}
function places(scope, cells) {  /* the centres of all members: where they were put, and moved by what is open among them */
  const x = new Map(scope.members.map(m => [m, item(m).box[0]]));
  if (!scope.members.some(m => cells.get(m).inside)) return x;
  const moved = new Map();
  const place = (row, near) => {
    let right = -Infinity, drift = 0;
    for (const m of row) {
      const n = (near[m] || []).filter(p => moved.has(p)), by = n.length ? n.reduce((s, p) => s + moved.get(p), 0) / n.length : moved.get(m) ?? 0;
      const wish = item(m).box[0] + by, w = cells.get(m).w / 2, at = Math.max(wish, right + scope.gap + w);
      x.set(m, at); right = at + w; drift += at - wish;
    }
    for (const m of row) { x.set(m, x.get(m) - drift / row.length); moved.set(m, x.get(m) - item(m).box[0]); }
  };
  for (const row of scope.rows) place(row, above);
  for (const row of [...scope.rows].reverse()) place(row, below);
  for (const row of scope.rows) place(row, above);
  return x;
}

/* What is drawn, what is in the window, what is chosen, and the backward pass in steps. */
/* --- drawing --- */
function make(name, attrs, parent, text) {
  const e = document.createElementNS(SVG, name);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== undefined) e.textContent = text;
  parent?.appendChild(e);
  return e;
}
function draw() {  /* where everything stands now. What was there keeps its elements. Whoever draws then chooses or marks */
  const begin = performance.now(), tree = layout(D.root), old = {shown, frames};
  world.setAttribute("width", tree.w); world.setAttribute("height", tree.h);
  shown = new Map(); frames = new Map(); seenAs = new Map();
  const put = (cell, dx, dy) => {
    for (const p of cell.inside) {
      const opened = Boolean(p.cell.inside), was = opened ? old.frames : old.shown, at = was.get(p.id) || {id: p.id, opened};
      was.delete(p.id);
      (opened ? frames : shown).set(p.id, at);
      item(p.id).at = at;
      Object.assign(at, {x: dx + p.x, y: dy + p.y, w: p.cell.w, h: p.cell.h});
      if (opened) put(p.cell, at.x, at.y);
    }
  };
  put(tree, 0, 0);
  old.shown.forEach(hide); old.frames.forEach(hide);
  extent = shown.size || frames.size ? bounds([...shown.values(), ...frames.values()]) : null;
  borders = [...frames.values()].flatMap(f => [f.x, f.x + f.w].map(x => ({x, y0: f.y, y1: f.y + f.h})));
  arrows();
  chartSoon();
  spent = performance.now() - begin;
}
function frame(at) {
  const g = make("g", {"data-id": at.id});
  make("rect", {rx: 7}, g);
  at.elements = [[g, "frames"], [make("text", {class: "name", "data-id": at.id, x: 9, y: 15}, null, `▾ ${D.scopes[at.id].title}`), "names"]];
}
function box(at) {
  const it = item(at.id), module = isScope(at.id), g = make("g", {"data-id": at.id});
  make("rect", {rx: module || it.kind === "op" ? 4 : at.h / 2}, g);
  make("text", {class: "title", x: at.w / 2, y: 15}, g, (module ? "▸ " : "") + it.title);
  it.lines.forEach((line, i) => make("text", {class: "small", x: at.w / 2, y: 28 + 12 * i}, g, line));
  at.elements = [[g, "boxes"]];
}
function settle(at) {  /* where it stands, how large it is, and how it looks */
  const g = at.elements[0][0], look = dress(at);
  if (moved(at)) for (const [e] of at.elements) e.setAttribute("transform", `translate(${at.x},${at.y})`);
  if (at.look !== look) g.setAttribute("class", look);
  if (grown(at)) { g.firstChild.setAttribute("width", at.w); g.firstChild.setAttribute("height", at.h); }
  at.made = {x: at.x, y: at.y, w: at.w, h: at.h};
  at.look = look; at.marks = marks;
}
const moved = at => at.made?.x !== at.x || at.made.y !== at.y;
const grown = at => at.made?.w !== at.w || at.made.h !== at.h;
const settled = at => at.marks === marks && !moved(at) && !grown(at);

/* --- the window: only what lies in it is in the page, and all frames. In each frame of the screen, elements are made, moved
   and dressed for a few milliseconds, until all are right. Until then the graph says that it is busy --- */
const SLICE = 6;
let painting = 0, spent = 0, saving = null;  /* spent: milliseconds, by what came before in the same frame */
let room = stage.getBoundingClientRect();  /* kept: to ask for it here would lay out all that is about to change */
function soon() {
  if (!painting) stage.setAttribute("aria-busy", true);
  painting ||= requestAnimationFrame(paint);
}
function attach(part, make) {
  if (!part.elements) make(part);
  if (!part.on) for (const [e, layer] of part.elements) $(layer).appendChild(e);
  part.on = true;
}
function hide(part) {
  if (part.on) for (const [e] of part.elements) e.remove();
  part.on = false;
}
function paint() {
  painting = 0;
  const x0 = -view.x / view.k, y0 = -view.y / view.k, x1 = x0 + room.width / view.k, y1 = y0 + room.height / view.k;
  const inside = a => saving || a.opened || a.y < y1 && a.y + a.h > y0 && (a.x === undefined || a.x < x1 && a.x + a.w > x0);
  const end = performance.now() + Math.max(1, SLICE - spent), all = [...frames.values(), ...shown.values()];
  let over = false;
  const late = () => over ||= performance.now() > end;
  for (const at of all)
    if (!inside(at)) { if (at.on && moved(at)) hide(at); }
    else if (!(at.on && settled(at)) && !late()) { attach(at, at.opened ? frame : box); settle(at); }
  for (const layer in asked) if (!late()) list(layer);
  const lined = saving || !stage.classList.contains("farther"), ready = [];  /* lines come all at once: each takes long to paint */
  for (const line of drawn) if (!line.on && (lined || line.layer === "near") && inside(line) && (line.elements || !late())) {
    if (!line.d) route(line);
    if (!line.elements && inside(line)) stroke(line);
    if (line.elements) ready.push(line);
  }
  if (!over) for (const line of ready) attach(line);
  for (const part of [...drawn, ...all]) if (part.on && !inside(part) && !late()) hide(part);
  spent = 0;
  locate();
  if (over) return soon();
  stage.setAttribute("aria-busy", false);
  saving?.();
}
let resting = 0;
function detail(rest) {  /* what is too small to read goes at once, and comes back when the zoom rests: painting it takes longer than a frame */
  for (const [name, limit] of [["far", 0.55], ["farther", 0.4]])
    if (rest || view.k < limit) stage.classList.toggle(name, view.k < limit);
  soon();
}
let still = 0;
function move(zooming) {
  map.classList.remove("resting");  /* in a narrow window the map is there while one moves, and then makes way for what lies under it */
  clearTimeout(still);
  still = setTimeout(() => map.classList.add("resting"), 1500);
  clearTimeout(resting);
  detail(!zooming);
  if (zooming) resting = setTimeout(detail, 150, true);
  world.style.transform = `translate3d(${view.x}px, ${view.y}px, 0) scale(${view.k})`;  /* 3d: a layer of its own */
}
function zoom(factor, cx, cy) {
  const k = Math.min(4, Math.max(0.02, view.k * factor));
  view = {x: cx - (cx - view.x) * k / view.k, y: cy - (cy - view.y) * k / view.k, k};
  whole = false;
  move(true);
}
const bounds = all => ({
  x0: Math.min(...all.map(a => a.x)), y0: Math.min(...all.map(a => a.y)),
  x1: Math.max(...all.map(a => a.x + a.w)), y1: Math.max(...all.map(a => a.y + a.h)),
});
function aim({x0, y0, x1, y1}, k) {
  view = {x: (room.width - (x0 + x1) * k) / 2, y: (room.height - (y0 + y1) * k) / 2, k};
}
function overview() {  /* everything, and how large it is when all of it is in the window */
  const b = extent;
  return {b, k: Math.min(1.6, (room.width - 40) / (b.x1 - b.x0), (room.height - 40) / (b.y1 - b.y0))};
}
function fit() {
  if (!extent) return;
  const {b, k} = overview();
  aim(b, k);
  whole = true;
  move();
}
const LEGIBLE = 0.8, READABLE = 1;
function arriveAt() {  /* as it opens: everything, if it can be read so; else where the forward pass begins, in full size */
  if (!shown.size) return fit();
  const {b, k} = overview();
  if (k >= LEGIBLE) return fit();
  const forward = [...shown.values()].filter(a => item(a.id).side === "forward"), first = forward.length ? forward : [...shown.values()];
  const x = first.reduce((sum, a) => sum + a.x + a.w / 2, 0) / first.length * READABLE, narrow = (b.x1 - b.x0) * READABLE < room.width;
  view = {x: narrow ? (room.width - (b.x0 + b.x1) * READABLE) / 2 : room.width / 2 - x, y: 12 - b.y0 * READABLE, k: READABLE};
  whole = false;
  move();
}
function center(id, always) {
  const at = shown.get(id) || frames.get(id), r = room;
  if (!at) return;
  if (view.k < 0.5) view.k = 0.8;
  const x = view.x + (at.x + at.w / 2) * view.k, y = view.y + (at.y + Math.min(at.h, 60) / 2) * view.k;
  if (always || x < 60 || y < 30 || x > r.width - 60 || y > r.height - 30) { view.x += r.width / 2 - x; view.y += r.height / 2 - y; whole = false; }
  move();
}
function look(ids) {  /* all of them, readable and in the window: with no more movement than that takes */
  const all = ids.map(id => shown.get(id)).filter(Boolean), r = room, margin = 30;
  if (!all.length) return;
  const b = bounds(all), far = view.k < 0.5;
  const most = Math.min((r.width - 2 * margin) / (b.x1 - b.x0), (r.height - 2 * margin) / (b.y1 - b.y0));
  const inside = view.x + b.x0 * view.k > margin && view.y + b.y0 * view.k > margin && view.x + b.x1 * view.k < r.width - margin && view.y + b.y1 * view.k < r.height - margin;
  if (inside && !far) return;
  aim(most < 0.4 ? bounds([all[0]]) : b, Math.min(far ? 0.8 : view.k, Math.max(most, 0.4)));
  whole = false;
  move();
}

/* --- the view as a picture --- */
function picture() {  /* the boxes as they stand open now, whole, as an SVG file in the page's colours */
  const b = bounds([...shown.values(), ...frames.values(), ...drawn]), root = world.cloneNode(true), pad = 12;
  root.setAttribute("xmlns", SVG);
  root.removeAttribute("style");
  root.setAttribute("viewBox", `${b.x0 - pad} ${b.y0 - pad} ${b.x1 - b.x0 + 2 * pad} ${b.y1 - b.y0 + 2 * pad}`);
  root.setAttribute("width", b.x1 - b.x0 + 2 * pad); root.setAttribute("height", b.y1 - b.y0 + 2 * pad);
  root.setAttribute("class", document.documentElement.className);
  const style = document.createElementNS(SVG, "style");
  style.textContent = `${document.querySelector("style").textContent} svg { background: var(--back); font: 13px system-ui, sans-serif; position: static; }`;
  root.insertBefore(style, root.firstChild);
  return new XMLSerializer().serializeToString(root);
}
/* --- choosing, opening, closing --- */
function reach(id, next) {  /* every box that a line leads to from this one, or from what stands in it */
  const inside = c => isScope(c) ? D.scopes[c].members.flatMap(inside) : [c], seen = new Set(), waiting = inside(id);
  while (waiting.length) for (const n of next[waiting.pop()] || []) if (!seen.has(n)) { seen.add(n); waiting.push(n); }
  const found = new Set([...seen].map(visible));
  found.delete(id);
  return found;
}
let marks = {};
function mark() {  /* what the looks of boxes tell: the chosen one, what leads to it and what it leads to, hits, the step */
  const on = chosen && $("flow").checked, seen = ids => new Set(ids.map(visible));
  stage.classList.toggle("flowing", Boolean(on));
  marks = {
    above: on ? reach(chosen, sources) : new Set(), below: on ? reach(chosen, readers) : new Set(),
    hit: seen(hits), now: seen(acting()), wait: seen(frontier()), done: seen(D.steps.slice(0, step).map(s => s.node)),
  };
  soon();
}
function dress(at) {
  const it = item(at.id), id = at.id, has = name => marks[name].has(id), chose = id === chosen ? " chosen" : "";
  if (at.opened) return `frame ${it.side}${chose}`;
  const step = has("now") ? " now" : has("wait") ? " wait" : has("done") ? " done" : "";
  const found = ["above", "below", "hit"].filter(has).map(name => ` ${name}`).join("");
  return `box ${isScope(id) ? "module" : it.kind} ${it.side}${it.alarm ? " alarm" : ""}${chose}${step}${found}`;
}
function choose(id, keep) {
  chosen = id;
  nearby(); mark();
  told(() => id ? describe(id) : step ? tell() : panel.replaceChildren());
  if (id) center(id, keep);
}
function told(tell) {  /* a panel that opens or closes changes the room at once */
  const empty = !panel.firstChild;
  tell();
  if (empty !== !panel.firstChild) room = stage.getBoundingClientRect();
}
function twins(id) {  /* a scope and those that mirror it on the other sides */
  const main = D.scopes[id].mirror || id;
  return [main, ...Object.keys(D.scopes).filter(s => D.scopes[s].mirror === main)];
}
function toggle(id) {
  if (!isScope(id) || id === D.root) return;
  const opening = !open.has(id), at = shown.get(id) || frames.get(id), x = at && view.x + at.x * view.k, y = at && view.y + at.y * view.k;
  for (const s of twins(id)) turn(s, opening);
  draw();
  const now = shown.get(id) || frames.get(id);
  if (at && now) { view.x = x - now.x * view.k; view.y = y - now.y * view.k; move(); }  /* it stays where it was */
  choose(id);
}
function reveal(id) {
  const closed = ancestors(id).filter(p => !open.has(p));
  if (closed.length) { closed.forEach(p => turn(p, true)); draw(); }
  choose(id, true);
}
function every(opening) {
  const ids = Object.keys(D.scopes).filter(s => s !== D.root && !D.sides.includes(s));
  if (opening) ids.filter(s => !open.has(s) && ancestors(s).every(p => open.has(p))).forEach(s => turn(s, true));
  else ids.forEach(s => turn(s, false));
  stage.setAttribute("aria-busy", true);
  layout(D.root);  /* of all modules at once it takes as long as a frame has: the rest is done in the next one */
  requestAnimationFrame(() => requestAnimationFrame(() => { draw(); choose(null); arriveAt(); }));
}

/* --- the panel --- */
const add = (tag, text, parent = panel) => { const e = document.createElement(tag); e.textContent = text; parent.appendChild(e); return e; };
function links(title, ids, most = 24) {
  const all = [...new Set(ids)];
  if (!all.length) return;
  add("h3", title);
  for (const id of all.slice(0, most)) { const b = add("button", item(id).title + (D.cards[id]?.lines[0] ? `  ${D.cards[id].lines[0]}` : "")); b.onclick = () => { reveal(id); stage.focus(); }; }
  if (all.length > most) add("p", `and ${all.length - most} more`);
}
function describe(id) {
  const it = item(id);
  panel.replaceChildren();
  panel.dataset.shows = id;
  add("h2", it.title);
  if (isScope(id)) {
    add("p", [it.path, it.side].filter(Boolean).join(", "));
    it.lines.forEach(line => add("p", line));
    const b = add("button", open.has(id) ? "Collapse (Enter)" : "Expand (Enter)"); b.onclick = () => { toggle(id); stage.focus(); };
    links("inside", it.members);
    if (it.mirror) links("belongs to", [it.mirror]);
  } else {
    add("p", [it.name !== it.title ? it.name : "", it.kind, it.side].filter(Boolean).join(", "));
    for (const name in it.about) { add("h3", name); add("pre", it.about[name]); }
    if (it.value) { add("h3", "value"); add("pre", it.value).className = "value"; }
    links("reads", sources[id] || []); links("read by", readers[id] || []);
    if (it.partner) links("part of the derivative of", [it.partner]);
    links("its derivative", Object.keys(D.cards).filter(c => D.cards[c].partner === id));
  }
  if (it.parent && it.parent !== D.root) links("in", [it.parent]);
}

/* --- the backward pass --- */
function frontier() {
  const waiting = new Set();
  D.steps.slice(0, step).forEach(s => { waiting.delete(s.node); s.left.forEach(l => l.to && waiting.add(l.to)); });
  return [...waiting];
}
const acting = () => { const s = D.steps[step - 1]; return s ? [s.node, ...s.made, ...(s.kept ? [s.kept] : [])] : []; };  /* the op and its rule's, or a leaf and its gradient */
const followed = new Set();
function follow() {  /* modules open for a step that is inside, and close behind it */
  const wanted = new Set($("follow").checked ? acting().flatMap(ancestors) : []);
  const close = [...followed].filter(id => !wanted.has(id)), more = [...wanted].filter(id => !open.has(id));
  for (const id of close) { followed.delete(id); turn(id, false); }
  for (const id of more) { followed.add(id); turn(id, true); }
  if (close.length || more.length) draw();
}
function go(n) {
  if (!D.steps.length) return;
  step = Math.max(0, Math.min(D.steps.length, Math.trunc(n)));
  $("slider").value = step;
  $("slider").setAttribute("aria-valuetext", step ? `step ${step}: ${item(D.steps[step - 1].node).title}` : "before the backward pass");
  $("position").textContent = `${step} of ${D.steps.length}`;
  chosen = null;
  const before = whole;
  told(tell);  /* first: the panel takes room */
  follow(); nearby(); mark();
  if (before) fit();
  look([...new Set(acting().map(visible))]);
}
function tell() {
  panel.replaceChildren();
  delete panel.dataset.shows;
  const s = D.steps[step - 1];
  if (!s) return;
  add("h2", `Step ${step}: ${item(s.node).kind === "op" ? item(s.node).title : item(s.node).name}`);
  add("p", [item(s.node).about?.line, item(s.node).lines[0]].filter(Boolean).join(", "));
  add("h3", "gradient that has arrived");
  s.arrived.forEach(a => { const e = add("pre", a.value ?? (a.card ? item(a.card).lines[0] : "")); e.className = "arrived"; e.dataset.node = s.node; });
  if (s.leaf) add("p", "A leaf: this is its gradient.");
  else if (s.rule.length) { add("h3", "the rule (VJP)"); add("pre", s.rule.join("\n")); }
  for (const l of s.left) {
    add("h3", `to ${l.to ? item(l.to).title : "an input"}${l.count > 1 ? `, contribution ${l.count}` : ""}`);
    if (l.value ?? l.card) add("pre", l.value ?? item(l.card).lines[0]);
    if (l.total) { add("h3", "accumulated there so far"); add("pre", l.total); }
  }
  if (s.made.length) links("the ops of this rule", s.made);
  links("waiting (frontier)", frontier());
}

/* --- search --- */
const text = {};
for (const id of [...Object.keys(D.scopes), ...Object.keys(D.cards)]) {
  const it = item(id);
  const around = ancestors(id).map(p => `${D.scopes[p].path} ${D.scopes[p].title}`);
  if (id !== D.root) text[id] = [it.title, it.path || "", ...around, it.name || "", ...it.lines, ...Object.values(it.about || {})].join(" ").toLowerCase();
}
function search(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  hits = wanted.length ? Object.keys(text).filter(id => wanted.every(w => text[id].includes(w))) : [];
  hit = -1;
  $("found").textContent = wanted.length ? `${hits.length} found` : "";
  if (wanted.length || panel.dataset.shows === "hits") told(() => { panel.replaceChildren(); panel.dataset.shows = "hits"; links("found", hits, 100); });
  if (!wanted.length && panel.dataset.shows === "hits") delete panel.dataset.shows;
  mark();
}
function nextHit(by) {
  if (!hits.length) return;
  hit = (hit + by + hits.length) % hits.length;
  $("found").textContent = `${hit + 1} of ${hits.length}`;
  reveal(hits[hit]);
}

/* --- mouse and keys --- */
let drag = null;
stage.addEventListener("pointerdown", e => { drag = {x: e.clientX, y: e.clientY, vx: view.x, vy: view.y, moved: false, target: e.target.closest("[data-id]")}; stage.setPointerCapture(e.pointerId); });
stage.addEventListener("pointermove", e => {
  if (!drag) return;
  const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
  if (Math.abs(dx) + Math.abs(dy) > 4) { drag.moved = true; stage.classList.add("grabbing"); }
  if (drag.moved) { view.x = drag.vx + dx; view.y = drag.vy + dy; whole = false; move(); }
});
stage.addEventListener("pointerup", () => {
  stage.classList.remove("grabbing");
  if (drag && !drag.moved) { const t = drag.target; t ? choose(t.dataset.id) : choose(null); }
  drag = null;
});
stage.addEventListener("pointercancel", () => { drag = null; stage.classList.remove("grabbing"); });
stage.addEventListener("dblclick", () => { if (chosen) toggle(chosen); });
stage.addEventListener("wheel", e => { e.preventDefault(); zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.0015)), e.clientX - room.left, e.clientY - room.top); }, {passive: false});
function walk(dx, dy) {  /* the nearest box in a direction */
  const all = new Map([...shown, ...[...frames].map(([id, a]) => [id, {...a, h: 18}])]);
  if (!chosen || !all.has(chosen)) return choose([...shown.keys()][0]);
  const mid = a => [a.x + a.w / 2, a.y + a.h / 2], [x, y] = mid(all.get(chosen));
  let best = null, least = Infinity;
  for (const [id, a] of all) {
    const [ax, ay] = mid(a), along = (ax - x) * dx + (ay - y) * dy, across = Math.abs((ax - x) * dy) + Math.abs((ay - y) * dx);
    if (id !== chosen && along > 1 && along + 3 * across < least) { least = along + 3 * across; best = id; }
  }
  if (best) choose(best);
}
const KEYS = {
  ArrowDown: () => walk(0, 1), ArrowUp: () => walk(0, -1), ArrowLeft: () => walk(-1, 0), ArrowRight: () => walk(1, 0),
  Enter: () => chosen && toggle(chosen), " ": () => chosen && toggle(chosen),
};
const ANYWHERE = {
  "/": () => $("search").focus(), "0": fit, "+": () => zoom(1.25, stage.clientWidth / 2, stage.clientHeight / 2),
  "=": () => zoom(1.25, stage.clientWidth / 2, stage.clientHeight / 2), "-": () => zoom(0.8, stage.clientWidth / 2, stage.clientHeight / 2),
  "]": () => go(step + 1), "[": () => go(step - 1), p: () => play(), "?": () => told(keys), n: () => nextHit(1), N: () => nextHit(-1),
  Escape: () => { search(""); $("search").value = ""; choose(null); stage.focus(); },
};
function keys() {
  panel.replaceChildren();
  delete panel.dataset.shows;
  add("h2", "Keys");
  for (const [k, what] of [["arrows", "to the nearest box in that direction"], ["Enter", "open or close a module"], ["/", "search; Enter: next hit"],
    ["n  N", "next, previous hit"], ["[  ]", "step back, forward through the backward pass"], ["p", "play it"], ["+  -  0", "zoom in, out, show everything"], ["Esc", "choose nothing"]]) {
    const p = add("p", ""); add("kbd", k, p); p.append(" ", what);
  }
  add("p", "Drag to move, wheel to zoom, double click to open or close. Dashed lines: values saved for the backward pass.");
}
addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = e.target === $("search");
  if (typing) { if (e.key === "Enter") nextHit(e.shiftKey ? -1 : 1); else if (e.key === "Escape") ANYWHERE.Escape(); return; }
  const act = (e.target === stage || e.target === document.body) && KEYS[e.key] || ANYWHERE[e.key];
  if (act) { e.preventDefault(); act(); }
});
let timer = null;
function play() {
  if (!D.steps.length) return;
  if (timer) { clearInterval(timer); timer = null; }
  else { if (step >= D.steps.length) go(0); timer = setInterval(() => step < D.steps.length ? go(step + 1) : play(), 700); }
  $("play").textContent = timer ? "stop" : "play";
}
$("search").oninput = e => search(e.target.value);
$("more").onclick = () => every(true);
$("less").onclick = () => every(false);
$("fit").onclick = fit;
$("flow").onchange = mark;
$("save").onclick = () => { saving = save; soon(); };
function save() {
  saving = null;
  const link = document.createElement("a");
  const address = URL.createObjectURL(new Blob([picture()], {type: "image/svg+xml"}));
  link.setAttribute("href", address);
  link.download = `${document.title.replace(/^.*: /, "").replace(/[^\w.-]+/g, "-")}.svg`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  soon();
}
for (const id of ["saved", "ties"]) { $(id).onchange = arrows; $(id).parentElement.hidden = !D.sides.length; }
$("follow").onchange = () => go(step);
$("help").onclick = () => told(keys);
$("back").onclick = () => go(step - 1);
$("next").onclick = () => go(step + 1);
$("play").onclick = play;
$("slider").oninput = e => go(+e.target.value);
function dark(on) { document.documentElement.classList.toggle("dark", on); chartSoon(); }
$("theme").onclick = () => dark(!document.documentElement.classList.contains("dark"));
$("player").hidden = !D.steps.length;
$("slider").max = D.steps.length;
$("position").textContent = `0 of ${D.steps.length}`;
draw();
mark();
arriveAt();
dark(matchMedia("(prefers-color-scheme: dark)").matches);
addEventListener("hashchange", arrive);
new ResizeObserver(() => { room = stage.getBoundingClientRect(); chosen ? center(chosen) : move(); }).observe(stage);
addEventListener("resize", () => { room = stage.getBoundingClientRect(); if (whole) fit(); });
arrive();
function arrive() {  /* an address can name a place: page.html#step=12&theme=dark&search=softmax */
  const asked = new URLSearchParams(location.hash.slice(1)), words = asked.get("search");
  if (asked.has("theme")) dark(asked.get("theme") === "dark");
  if (words) { $("search").value = words; search(words); nextHit(1); }
  if (asked.has("step")) go(Number(asked.get("step")) || 0);
}

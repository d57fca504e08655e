/* A small map of all boxes, with the part that is in the window. */
const map = $("map"), pen = map.getContext("2d"), small = document.createElement("canvas");
let scaled = null;  /* of the map: how far the whole is made smaller, and where it begins */
let extent = null;  /* of all boxes and frames */
let charting = 0;
const chartSoon = () => { clearTimeout(charting); charting = setTimeout(chart, 40); };  /* in a frame of its own, in which colours are known */
function chart() {  /* all boxes small: drawn once for as long as nothing opens or closes, and the theme stays */
  if (!extent) return;
  const {x0, y0, x1, y1} = extent, k = Math.min(map.width / (x1 - x0), map.height / (y1 - y0)), ink = getComputedStyle(document.documentElement);
  scaled = {k, x: x0 - (map.width / k - (x1 - x0)) / 2, y: y0 - (map.height / k - (y1 - y0)) / 2, focus: ink.getPropertyValue("--focus")};
  small.width = map.width; small.height = map.height;
  const draft = small.getContext("2d");
  let last;
  for (const a of shown.values()) {
    const side = item(a.id).side;
    if (side !== last) draft.fillStyle = ink.getPropertyValue(`--${last = side}`);
    draft.fillRect((a.x - scaled.x) * k, (a.y - scaled.y) * k, Math.max(1.5, a.w * k), Math.max(1.5, a.h * k));
  }
  locate();
}
function locate() {  /* the map, and on it the part in the window; no map where everything is in the window */
  const r = room, inWindow = (x, y) => view.x + x * view.k >= 0 && view.y + y * view.k >= 0 && view.x + x * view.k <= r.width && view.y + y * view.k <= r.height;
  map.hidden = whole || !extent || !scaled || inWindow(extent.x0, extent.y0) && inWindow(extent.x1, extent.y1);
  if (map.hidden) return;
  const k = scaled.k;
  pen.clearRect(0, 0, map.width, map.height);
  pen.drawImage(small, 0, 0);
  pen.strokeStyle = scaled.focus; pen.lineWidth = 2;
  pen.strokeRect((-view.x / view.k - scaled.x) * k, (-view.y / view.k - scaled.y) * k, r.width / view.k * k, r.height / view.k * k);
}
function byMap(e) {
  const box = map.getBoundingClientRect(), shrunk = map.width / box.width;
  const x = (e.clientX - box.left) * shrunk / scaled.k + scaled.x, y = (e.clientY - box.top) * shrunk / scaled.k + scaled.y;
  view.x = room.width / 2 - x * view.k; view.y = room.height / 2 - y * view.k;
  move();
}
map.addEventListener("pointerdown", e => { e.stopPropagation(); map.setPointerCapture(e.pointerId); byMap(e); });
map.addEventListener("pointermove", e => { if (e.buttons) { e.stopPropagation(); byMap(e); } });
map.addEventListener("pointerup", e => e.stopPropagation());

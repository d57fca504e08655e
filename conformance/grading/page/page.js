"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const view = document.getElementById("view");
const ROWS = 100;  // of a table at first; more when asked for
const byId = new Map(data.submissions.map(one => [one.id, one]));
const mistakes = data.mistakes.map(row => Object.fromEntries(data.fields.map((name, at) => [name, row[at]])));
const ranked = [...data.submissions].sort((a, b) => b.score - a.score || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
const told = mistake => mistake.diagnosis || mistake.what || mistake.message;
const number = (value, digits) => value.toFixed(digits);

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function link(kind, ...ids) {
  return element("a", ids[0], {href: "#" + [kind, ...ids].map(encodeURIComponent).join("/")});
}

/* A table of which rows are drawn as they are asked for. headings: names; those that begin with "#" are of numbers. */
function table(headings, rows, draw) {
  const box = element("div"), made = element("table"), head = made.createTHead().insertRow(), body = made.createTBody();
  for (const name of headings) {
    head.append(element("th", name.replace("#", ""), name[0] === "#" ? {class: "number"} : {}));
  }
  let shown = 0;
  const more = element("button", "more");
  more.onclick = () => {
    for (const row of rows.slice(shown, shown + ROWS)) {
      const line = body.insertRow();
      draw(row).forEach((value, at) => {
        const cell = line.insertCell();
        if (headings[at][0] === "#") cell.className = "number";
        cell.append(value instanceof Node ? value : String(value));
      });
    }
    shown = Math.min(shown + ROWS, rows.length);
    more.hidden = shown === rows.length;
    more.textContent = `more (${rows.length - shown} left)`;
  };
  more.onclick();
  box.append(made, more);
  return box;
}

function ranking() {
  const words = element("input", undefined, {placeholder: "filter by id or mistake", id: "filter"});
  const groups = element("select", undefined, {id: "group"}), place = element("div");
  groups.append(element("option", "all groups", {value: ""}));
  for (const name of [...new Set(data.submissions.map(one => one.group))].filter(Boolean).sort()) {
    groups.append(element("option", name, {value: name}));
  }
  const text = new Map(ranked.map(one =>
    [one, [one.id, one.refused, ...one.mistakes.map(at => `${mistakes[at].claim} ${told(mistakes[at])}`)]
      .join(" ").toLowerCase()]));
  const draw = () => {
    const wanted = words.value.toLowerCase();
    const rows = ranked.filter(one => (!groups.value || one.group === groups.value) && text.get(one).includes(wanted));
    place.replaceChildren(
      element("p", `${rows.length} submissions`, {class: "quiet", id: "count"}),
      table(["#points", "id", "group", "#kept", "#broken", "first mistake, or why not tested"], rows, one => [
        number(one.score * one.points, 2), link("one", one.id), one.group, one.kept, one.mistakes.length,
        one.refused || (one.mistakes.length ? told(mistakes[one.mistakes[0]]) : "")]));
  };
  words.oninput = groups.onchange = draw;
  draw();
  return [words, groups, place];
}

function groups() {
  const found = new Map();
  for (const one of data.submissions) found.set(one.group, [...(found.get(one.group) || []), one]);
  const middle = list => list.map(one => one.score * one.points).sort((a, b) => a - b)[list.length >> 1];
  const mean = list => list.reduce((sum, one) => sum + one.score * one.points, 0) / list.length;
  return [table(["group", "#submissions", "#mean points", "#median", "#without a mistake"], [...found].sort(),
    ([name, list]) => [name || "(none)", list.length, number(mean(list), 2), number(middle(list), 2),
      list.filter(one => !one.mistakes.length && !one.refused).length])];
}

/* key -> who has it, the most frequent first */
function counted(keys) {
  const found = new Map();
  for (const one of ranked) {
    for (const key of new Set(keys(one))) {
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(one);
    }
  }
  return [...found].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
}

function some(list) {
  const cell = element("span");
  list.slice(0, 8).forEach(one => cell.append(link("one", one.id), " "));
  if (list.length > 8) cell.append(`and ${list.length - 8} more`);
  return cell;
}

const claims = () => [table(["#broken by", "claim", "what it says", "who"],
  counted(one => one.mistakes.map(at => mistakes[at].claim)),
  ([claim, list]) => [list.length, claim, data.says[claim] || "", some(list)])];

/* Submissions that break the same claims in the same words have one cluster. */
const clusters = () => [table(["#submissions", "mistakes", "who"],
  counted(one => one.mistakes.length ? [one.mistakes.map(at => told(mistakes[at])).sort().join("\n")] : []),
  ([words, list]) => [list.length, words.split("\n").slice(0, 4).join("; "), some(list)])];

function report(one) {
  const box = element("section");
  box.append(element("h2", one.id), element("p", `${number(one.score * one.points, 2)} of ${one.points} points, ` +
    `${one.kept} claims kept, ${one.mistakes.length} broken`));
  if (one.refused) box.append(element("p", one.refused));
  for (const reason of one.reasons) box.append(element("p", reason, {class: "quiet"}));
  for (const mistake of one.mistakes.map(at => mistakes[at])) {
    const part = element("div", undefined, {class: "mistake"});
    part.append(element("p", told(mistake)));
    const rest = {at: mistake.place, mend: mistake.mend, expected: mistake.expected, got: mistake.got,
      claim: `${mistake.claim}: ${data.says[mistake.claim] || ""}`};
    for (const [name, value] of Object.entries(rest)) {
      if (value) part.append(element("p", `${name}: ${value}`, {class: "quiet"}));
    }
    box.append(part);
  }
  return box;
}

function compare(first, second) {
  const pair = element("div", undefined, {class: "pair"});
  const choose = [first, second].map((id, at) => {
    const input = element("input", undefined, {placeholder: at ? "second id" : "first id", id: `side${at}`});
    input.value = id || "";
    input.onchange = () => location.hash = "#" + ["compare", ...choose.map(c => c.value)].map(encodeURIComponent).join("/");
    return input;
  });
  for (const id of [first, second]) {
    pair.append(byId.has(id) ? report(byId.get(id)) : element("p", id ? `there is no submission ${id}` : ""));
  }
  return [...choose, pair];
}

function show() {
  const [kind, ...ids] = (location.hash.slice(1) || "ranking").split("/").map(decodeURIComponent);
  const views = {ranking, groups, claims, clusters, compare: () => compare(...ids),
    one: () => byId.has(ids[0]) ? [report(byId.get(ids[0]))] : [element("p", `there is no submission ${ids[0]}`)]};
  view.replaceChildren(...(views[kind] || ranking)());
  for (const a of document.querySelectorAll("nav a")) {
    a.toggleAttribute("aria-current", a.hash === "#" + kind);
  }
}

addEventListener("hashchange", show);
show();

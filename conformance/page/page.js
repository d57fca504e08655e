"use strict";
// Filters and regroups the claims of the page; everything that is shown stands in its HTML already.

const by = (id) => document.getElementById(id);
const claims = [...document.querySelectorAll(".claim")];
const errata = [...document.querySelectorAll(".erratum")];
const chips = [...document.querySelectorAll(".chip")];
const texts = new Map([...claims, ...errata].map((row) => [row, row.textContent.toLowerCase()]));
const titles = Object.fromEntries([...by("document").options].map((option) => [option.value, option.text]));

const keys = {
  verdict: (claim) => claim.dataset.verdicts.split("|").join(" / "),
  topic: (claim) => claim.dataset.topic,
  document: (claim) => {
    const first = claim.dataset.documents.split(" ")[0];
    return titles[first] || first;
  },
};

function regroup() {
  const key = keys[by("group").value];
  const groups = new Map();
  for (const claim of claims) {
    if (!groups.has(key(claim))) groups.set(key(claim), []);
    groups.get(key(claim)).push(claim);
  }
  const names = [...groups.keys()];
  if (by("group").value !== "verdict") names.sort();
  by("claims").replaceChildren(...names.map((name) => section(name, groups.get(name))));
  apply();
}

function section(name, rows) {
  const group = document.createElement("section");
  group.className = "group";
  const heading = document.createElement("h2");
  heading.append(name + " ", document.createElement("small"));
  group.append(heading, ...rows);
  return group;
}

function matches(row, wanted) {
  const { topic, documents } = row.dataset;
  const [text, chosenTopic, chosenDocument] = ["text", "topic", "document"].map((id) => by(id).value);
  const verdicts = (row.dataset.verdicts || "").split("|");
  return (
    text.toLowerCase().split(/\s+/).every((word) => texts.get(row).includes(word)) &&
    (!chosenTopic || topic === chosenTopic) &&
    (!chosenDocument || documents.split(" ").includes(chosenDocument)) &&
    (!wanted.length ||
      !row.matches(".claim") ||
      wanted.some((verdict) => verdicts.includes(verdict) || (verdict === "differs" && new Set(verdicts).size > 1)))
  );
}

function apply() {
  const wanted = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((c) => c.dataset.verdict);
  for (const row of texts.keys()) row.hidden = !matches(row, wanted);
  const shown = claims.filter((claim) => !claim.hidden).length;
  by("shown").textContent = shown === claims.length ? `${shown} claims` : `${shown} of ${claims.length} claims`;
  by("nothing").hidden = shown > 0;
  for (const group of document.querySelectorAll(".group, #errata")) {
    const left = group.querySelectorAll("details:not([hidden])").length;
    group.hidden = !left;
    group.querySelector("h2 small").textContent = left;
  }
}

function reveal() {
  const claim = by(decodeURIComponent(location.hash.slice(1)));
  if (!claim || !claim.matches(".claim")) return;
  if (claim.hidden) by("filters").reset();
  claim.open = true;
  claim.scrollIntoView();
}

function move(step) {
  const visible = [...document.querySelectorAll(".claim:not([hidden]) > summary, .erratum:not([hidden]) > summary")];
  const next = visible[visible.indexOf(document.activeElement) + step];
  if (next) next.focus();
}

for (const chip of chips) {
  chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    apply();
  });
}
by("filters").addEventListener("submit", (event) => event.preventDefault());
by("filters").addEventListener("reset", () => {
  for (const chip of chips) chip.setAttribute("aria-pressed", "false");
  setTimeout(regroup); // the fields are emptied only after this event
});
for (const id of ["text", "topic", "document"]) by(id).addEventListener("input", apply);
by("group").addEventListener("input", regroup);
by("unfold").addEventListener("click", () => {
  const open = by("unfold").textContent === "Unfold";
  by("unfold").textContent = open ? "Fold" : "Unfold";
  for (const claim of claims) claim.open = open && !claim.hidden;
});
for (const line of document.querySelectorAll(".replay")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(line.textContent);
    button.textContent = "Copied";
  });
  line.after(button);
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") document.activeElement.blur();
  if (event.target.matches("input, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    by("text").focus();
  }
  if (event.key === "j") move(1);
  if (event.key === "k") move(-1);
});
window.addEventListener("hashchange", reveal);
apply();
reveal();

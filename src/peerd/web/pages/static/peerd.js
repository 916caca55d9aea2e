// Makes pages live, and adds what HTML alone cannot do. Every page works without it.
"use strict";

const ROOT = document.body.dataset.root;
const PAUSE = 1500; // milliseconds between two readings of a page, at the least
const POLL = 15000; // milliseconds after which a live page is read again without an event
const byId = (id) => document.getElementById(id);
const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

// ---------------------------------------------------------------- times

const localTime = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium", timeStyle: "medium",
});
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function units(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const whole = Math.floor(seconds);
  for (const [large, small, name, rest] of [[86400, 3600, "d", "h"], [3600, 60, "h", "min"], [60, 60, "min", ""]]) {
    if (whole < large) continue;
    const part = Math.floor((whole % large) / small);
    return `${Math.floor(whole / large)} ${name}` + (part ? ` ${part} ${rest}` : "");
  }
}

function showTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    const utc = time.dataset.ago === undefined ? time.textContent : time.title.replace(/ \|.*/, "");
    time.title = `${utc.replace(/ UTC$/, "")} UTC | ${localTime.format(at)} ${zone}`;
  }
  tickAges(within);
}

function tickAges(within) {
  for (const time of within.querySelectorAll("time[data-ago]")) {
    const past = (Date.now() - new Date(time.dateTime)) / 1000;
    const text = past >= 0 ? `${units(past)} ago` : `in ${units(-past)}`;
    if (time.textContent !== text) time.textContent = text;
  }
}

// ---------------------------------------------------------------- live pages

const live = { etag: null, timer: null, last: 0, busy: false, again: false, source: null, lostAt: null };

async function readAgain() {
  if (document.hidden || byId("dialog").open) return schedule(PAUSE);
  if (live.busy) { live.again = true; return; }
  live.busy = true;
  live.again = false;
  try {
    const headers = { "X-Peerd-Live": "1" };
    if (live.etag) headers["If-None-Match"] = live.etag;
    const answer = await fetch(location.href, { headers, redirect: "manual", signal: AbortSignal.timeout(20000) });
    if (answer.type === "opaqueredirect" || answer.status === 401) return lost("Your login has ended. Load the page again to log in.");
    const isPage = answer.ok || answer.status === 422; // a filter that cannot be is shown with why
    if (answer.status !== 304 && !isPage) throw new Error(`status ${answer.status}`);
    found();
    if (isPage) {
      live.etag = answer.headers.get("etag");
      replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    loadParts();
  } catch (error) {
    lost("The server does not answer. What you see is old.");
  } finally {
    live.busy = false;
    live.last = Date.now();
    schedule(live.again ? PAUSE : POLL);
  }
}

function schedule(wait) {
  clearTimeout(live.timer);
  live.timer = setTimeout(readAgain, Math.max(wait, live.last + PAUSE - Date.now()));
}

// A part is replaced where its HTML has changed. What the viewer has opened, checked or focused in it stays so.
function replaceParts(read) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const fresh = read.getElementById(part.id);
    if (!fresh) continue;
    showTimes(fresh);
    if (fresh.innerHTML === part.innerHTML) continue;
    const opened = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
    const closed = new Set([...part.querySelectorAll("details:not([open])[id]")].map((one) => one.id));
    const checked = new Set([...part.querySelectorAll("input[type=checkbox]:checked")].map((one) => one.value));
    const current = part.querySelector("tr.current")?.id;
    const focused = part.contains(document.activeElement) ? document.activeElement.id || document.activeElement.getAttribute("href") : null;
    const scrolled = [...part.querySelectorAll("[data-keep-scroll]")].map((one) => [one.id, one.scrollTop, one.scrollLeft]);
    const before = new Map([...part.querySelectorAll("tr[id]")].map((row) => [row.id, row.textContent]));
    part.replaceChildren(...document.importNode(fresh, true).childNodes);
    for (const one of part.querySelectorAll("details[id]")) {
      if (opened.has(one.id)) one.open = true;
      if (closed.has(one.id)) one.open = false;
    }
    for (const box of part.querySelectorAll("input[type=checkbox]")) if (checked.has(box.value)) box.checked = true;
    if (current) byId(current)?.classList.add("current");
    for (const [id, top, left] of scrolled) byId(id)?.scrollTo(left, top);
    for (const row of part.querySelectorAll("tr[id]")) {
      if (before.has(row.id) && before.get(row.id) !== row.textContent) row.classList.add("changed");
    }
    if (focused) [...part.querySelectorAll("[id], a[href]")].find((one) => one.id === focused || one.getAttribute("href") === focused)?.focus({ preventScroll: true });
    countSelected();
  }
}

// Parts whose content takes a while are read on their own: the page is there before them.
const LOADED_FOR = 5000; // milliseconds
let loadedAt = 0;

async function loadParts() {
  if (Date.now() - loadedAt < LOADED_FOR) return;
  loadedAt = Date.now();
  for (const part of document.querySelectorAll("[data-load]")) {
    const answer = await fetch(part.dataset.load).catch(() => null);
    if (!answer?.ok) continue;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
    if (fresh && fresh.innerHTML !== part.innerHTML) part.replaceChildren(...document.importNode(fresh, true).childNodes);
    loadedAt = Date.now();
  }
}

function lost(text) {
  if (!live.lostAt) live.lostAt = new Date();
  const banner = byId("lost");
  const message = `${text} Since ${live.lostAt.toLocaleTimeString()}; trying again.`;
  if (banner.textContent !== message) banner.textContent = message;
  banner.hidden = false;
  byId("live-state").textContent = "";
}

function found() {
  if (live.lostAt) byId("lost").hidden = true;
  live.lostAt = null;
  byId("live-state").textContent = "live";
}

function watch() {
  if (document.body.dataset.live === undefined) return;
  const query = document.body.dataset.live;
  live.source = new EventSource(`${ROOT}/api/v1/events${query ? `?${query}` : ""}`);
  for (const kind of ["task", "queue", "node", "alert", "reset"]) {
    live.source.addEventListener(kind, () => { live.again = true; if (!live.busy) schedule(0); });
  }
  live.source.onerror = () => {
    // The browser connects again by itself unless the answer was no stream: then the page is read on its own.
    if (live.source.readyState === EventSource.CLOSED) setTimeout(() => { live.source.close(); watch(); }, POLL);
  };
  schedule(POLL);
}

// ---------------------------------------------------------------- dialogs

async function openDialog(address) {
  const dialog = byId("dialog");
  try {
    const answer = await fetch(address, { headers: { "X-Peerd-Dialog": "1" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const confirm = page.getElementById("confirm");
    if (!answer.ok || !confirm) throw new Error("no form");
    confirm.classList.remove("card");
    const back = confirm.querySelector("input[name=back]");
    if (back) back.value = location.pathname.slice(ROOT.length) + location.search;
    dialog.replaceChildren(document.importNode(confirm, true));
    dialog.showModal();
    dialog.querySelector("input:not([type=hidden]), select, textarea, button")?.focus();
  } catch (error) {
    location.href = address;
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-dialog]");
  if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey) { event.preventDefault(); openDialog(link.href); }
  if (event.target.closest("dialog [data-close]")) { event.preventDefault(); byId("dialog").close(); }
  const copy = event.target.closest("[data-copy]");
  if (copy) navigator.clipboard?.writeText(byId(copy.dataset.copy).textContent).then(() => { copy.textContent = "Copied"; });
});

document.addEventListener("submit", (event) => {
  for (const button of event.target.querySelectorAll("button:not([name])")) setTimeout(() => { button.disabled = true; });
});
addEventListener("pageshow", () => { for (const button of document.querySelectorAll("button:disabled")) button.disabled = false; });

// ---------------------------------------------------------------- selections and small forms

function countSelected() {
  const count = document.querySelectorAll("input[data-row]:checked").length;
  for (const one of document.querySelectorAll("[data-selected]")) one.textContent = count;
  for (const one of document.querySelectorAll("[data-needs-selection]")) one.disabled = count === 0;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  if (event.target.matches("input[data-all]")) {
    for (const box of document.querySelectorAll("input[data-row]")) box.checked = event.target.checked;
  }
  if (event.target.matches("input[data-row], input[data-all]")) countSelected();
});

// ---------------------------------------------------------------- log lines, as they are written

const MOST_TEXT = 4000; // characters of a message or a value, as on the server
// Control characters, marks of direction, what has no width and halves of characters are written as their numbers, by
// the rule of the server (quoting.py).
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|\p{Surrogate}/gu;

function escaped(found) {
  const number = found.charCodeAt(0).toString(16);
  return number.length > 2 ? `\\u${number.padStart(4, "0")}` : `\\x${number.padStart(2, "0")}`;
}

function visible(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const shown = text.slice(0, MOST_TEXT).replace(INVISIBLE, escaped);
  return text.length > MOST_TEXT ? `${shown}…` : shown;
}

function followLog(log) {
  const source = new EventSource(log.dataset.follow);
  const state = byId("live-state");
  source.addEventListener("line", (event) => {
    const line = JSON.parse(event.data);
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
    const row = document.createElement("div");
    const time = document.createElement("span");
    time.className = "soft";
    time.textContent = `${line.at.slice(11, 19)} ${line.level.padEnd(8)} `;
    row.append(time, visible(line.message));
    for (const [name, value] of Object.entries(line.fields ?? {})) {
      row.append(" ", Object.assign(document.createElement("span"), { className: "soft", textContent: `${visible(name)}=${visible(value)}` }));
    }
    log.append(row);
    byId("log-count").textContent = Number(byId("log-count").textContent) + 1;
    if (atEnd) log.scrollTop = log.scrollHeight;
  });
  source.addEventListener("end", () => source.close());
  source.onopen = () => { state.textContent = "live"; };
}

// ---------------------------------------------------------------- keyboard

const KEYS = [
  ["/", "filter or find"], ["j / k", "next or previous row"], ["Enter", "open the row"], ["x", "select the row"],
  ["g then o t q n s", "overview, tasks, queues, nodes, schedules"], ["Esc", "close"], ["?", "this help"],
];
const PLACES = { o: "/", t: "/tasks", q: "/queues", n: "/nodes", s: "/schedules", a: "/alerts", b: "/bulk", l: "/limits" };
let awaitsPlace = false;

function moveRow(step) {
  const rows = [...document.querySelectorAll("table.rows tbody tr[id]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("current"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step))];
  rows[at]?.classList.remove("current");
  next.classList.add("current");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a[href]") || next).focus({ preventScroll: true });
}

function focusFilter() {
  const field = document.querySelector("[data-filter]") || byId("find");
  field?.focus();
  field?.select?.();
}

function showKeys() {
  const dialog = byId("dialog");
  const title = Object.assign(document.createElement("h2"), { id: "confirm-title", textContent: "Keys" });
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [key, text] of KEYS) {
    const term = document.createElement("dt");
    term.append(Object.assign(document.createElement("code"), { textContent: key }));
    list.append(term, Object.assign(document.createElement("dd"), { textContent: text }));
  }
  const close = Object.assign(document.createElement("button"), { textContent: "Close", type: "button" });
  close.dataset.close = "";
  dialog.replaceChildren(title, list, close);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || byId("dialog").open) return;
  if (awaitsPlace) {
    awaitsPlace = false;
    if (event.key in PLACES) { location.href = ROOT + PLACES[event.key]; return; }
  }
  const current = document.querySelector("tr.current");
  switch (event.key) {
    case "/": focusFilter(); break;
    case "j": moveRow(1); break;
    case "k": moveRow(-1); break;
    case "x": current?.querySelector("input[data-row]")?.click(); break;
    case "Enter": if (event.target === current) current.querySelector("a[href]")?.click(); else return; break;
    case "g": awaitsPlace = true; break;
    case "?": showKeys(); break;
    default: return;
  }
  event.preventDefault();
});

// ---------------------------------------------------------------- start

showTimes(document);
countSelected();
document.querySelector(".side")?.scrollTo((document.querySelector(".side [aria-current]")?.offsetLeft ?? 0) - 40, 0);
setInterval(() => { if (!document.hidden) tickAges(document); }, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden && document.body.dataset.live !== undefined) schedule(0); });
for (const log of document.querySelectorAll("[data-follow]")) followLog(log);
loadParts();
watch();

// Requests the documents of the page repeatedly, and shows them.

import { acts, known, neededFor } from "./acts.js";
import { asked, dagPath, runPath } from "./address.js";
import { brokers } from "./brokers.js";
import { isOpen, sentence } from "./dialog.js";
import { focusOn, later, make, renew } from "./dom.js";
import { findings } from "./findings.js";
import { followTheme, uiLink } from "./links.js";
import { pairs } from "./pairs.js";
import { plan, shortNames } from "./plan.js";
import { answered, search } from "./search.js";
import { drains, roll } from "./roll.js";
import { ask, Refusal } from "./server.js";
import { clusters, strip, tick, waits } from "./strip.js";
import { timeline } from "./timeline.js";

/** @import { Links, Overview, RunAnswer, Status, Timeline } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @import { Page, Sent } from "./dialog.js" */

const VERSION = 1;
const { base = "" } = document.documentElement.dataset;
const page = element("page");
const live = element("live");
const note = element("note");
const updates = /** @type {HTMLInputElement} */ (element("updates"));
const { dag, run } = asked(base, location);
/** @type {Map<string, HTMLElement>} */
const sections = new Map();
/** @type {{ view?: Overview, time?: Timeline }} */
const last = {};
let serverAhead = 0;
let announced = "";
let waiting = 0;
let reading = 0;
let asking = 0;
let heard = "";
/** @type {Sent | null} - until its outcome is known, also after a reload */
let sent = JSON.parse(sessionStorage.getItem(`sent ${dag}`) ?? "null");

/** @type {Page} */
const acting = { base, dag, now: serverNow, present: () => last.view, follow };

const why = search(base, dag, (found, part) => {
  const { view } = last;
  return view && answered(found, part, view, known(view, acting).buttons);
});

/** @param {string} id */
function element(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no #${id}`);
  return node;
}

function serverNow() {
  return Date.now() + serverAhead;
}

/** @type {(name: string, kind?: "section" | "header" | "nav", attributes?: Record<string, string>) => HTMLElement} */
function section(name, kind = "section", attributes = {}) {
  const section = sections.get(name) ?? make(kind, { class: name, ...attributes });
  if (!sections.has(name)) page.append(section);
  sections.set(name, section);
  return section;
}

function width() {
  return Math.max(300, Math.min(1160, page.clientWidth - 32));
}

/** @param {unknown} problem */
function report(problem) {
  const refusal = problem instanceof Refusal ? problem : null;
  if (!refusal) console.error(problem);
  const stale = refusal?.status === 0 ? " The page shows earlier data." : "";
  // The result of validation is kept for longer than the other files of a run.
  const result = run && refusal?.status === 404 &&
    make("a", { href: `${base}${runPath(dag, run)}/validation` }, "Its validation result");
  note.replaceChildren(refusal?.message ?? String(problem), stale, " ", result || "");
  note.hidden = false;
}

/** @param {Overview} view */
function show(view) {
  if (view.version !== VERSION) location.reload();
  last.view = view;
  serverAhead = Date.parse(view.status.now) - Date.now();
  const { status, links, of_one_run: past } = view;
  announce(status);
  document.title = `${status.cluster}: ${status.state}`;
  renew(section("strip", "header"), { ...status, now: "" }, () => strip(status, !past));
  const now = uiLink(`${links.dag}/plugin/pulsar-balance-dag`, "See it now");
  if (past) renew(section("of-run", "header"), links, () => make("p", {}, "The cluster as this run saw it. ", now));
  const needed = neededFor(view, serverNow());
  const banner = section("attention", "section", { "aria-label": "Waits for a person" });
  renew(banner, needed, () => waits(status, known(view, acting).buttons));
  renew(section("acts", "section", { "aria-label": "Actions" }), needed, () => acts(view, acting));
  section("sent", "section", { "aria-label": "The last request" });
  showLoad(view);
  renew(section("search"), !past && links.dag, () => past || !links.dag ? [] : searchBox());
  if (why.field.value) why.again();
  section("time");
  renew(section("validation"), [view.findings, view.validated, view.sampled_at, links], () => findings(view));
  renew(section("links", "nav", { "aria-label": "In Airflow" }), links, () => linked(links));
  tick(serverNow());
  openNamed(new URLSearchParams(location.hash.slice(1)).get("act"));
}

/** @param {string | null} act - to which a link in the list of clusters leads, until its form has opened */
function openNamed(act) {
  if (!act) return;
  history.replaceState(null, "", location.pathname + location.search);
  focusOn(`act ${act}…`);
  /** @type {HTMLElement} */ (document.activeElement).click();
}

function searchBox() {
  const label = make("label", {}, "Find a bundle, namespace, topic or broker ", why.field);
  return [make("h2", {}, "Why a bundle stays"), label, why.found];
}

/** @param {Event} event - a click on a broker shows its bundles */
function lookUp({ target }) {
  const broker = target instanceof Element && target.closest("[data-broker]");
  if (!broker || last.view?.of_one_run) return;
  why.field.value = broker.getAttribute("data-broker") ?? "";
  why.again();
  why.field.focus();
}

/** @param {Overview} view */
function showLoad(view) {
  const short = shortNames(view);
  const labels = view.brokers.map(({ name, label }) => [name, label]);
  renew(section("brokers"), [view.brokers, view.lines, view.middle, width()], () => brokers(view, width()));
  const examined = [view.pairs, view.close_pairs, view.hits, view.firing, view.sampled_at];
  renew(section("pairs"), [examined, labels], () => pairs(view, short));
  renew(section("roll"), view.roll, () => roll(view.roll));
  renew(section("drains"), [view.drains, labels], () => drains(view.drains, short));
  const plans = { awaiting: "Plan awaiting approval", plan: "Plan", last: "Last run that moved bundles" };
  for (const name of /** @type {(keyof typeof plans)[]} */ (Object.keys(plans))) {
    const documents = `${base}${dagPath(dag)}`;
    renew(section(name), [view[name], labels], () => plan(view[name], short, plans[name], view.links.dag, documents));
  }
}

/** @param {Links} links */
function linked({ dag, run, log, requests }) {
  const named = { DAG: dag, "latest run": run, "its log": log, "people's requests": requests };
  const known = Object.entries(named).filter(([, path]) => path);
  return make("p", { class: "more" }, known.map(([text, path]) => [uiLink(path, text), " "]));
}

/**
 * Announce changes to a screen reader, but not the passing seconds.
 * @param {Status} status
 */
function announce({ cluster, state, sentence, attention: waits, in_force: force }) {
  const asked = waits.map(({ text }) => text).join(" ");
  const key = `${state} ${asked} ${force}`;
  if (key === announced) return;
  announced = key;
  live.textContent = `${cluster}: ${state}. ${asked} ${sentence} ${force}`;
}

/** @param {Sent} request */
function follow(request) {
  remember(request);
  refreshAnswer().catch(report);
}

/** @param {Sent | null} request */
function remember(request) {
  sent = request;
  sessionStorage.setItem(`sent ${dag}`, JSON.stringify(request));
}

/** Show the outcome of the request that was sent last, until it is final. */
async function refreshAnswer() {
  const request = sent;
  if (!request) return;
  /** @type {RunAnswer} */
  const answer = await ask(`${base}${runPath(request.dag, request.run)}/answer`);
  if (request !== sent) return;
  renew(section("sent"), [request, answer], () => sentence(request, answer, base));
  const said = `${request.name}: ${answer.state} ${answer.text}`;
  const changed = said !== heard;
  heard = said;
  if (changed) live.textContent = said;
  clearTimeout(asking);
  if (isOpen(answer)) {
    asking = later(2, () => updates.checked && refreshAnswer().catch(report));
  } else {
    if (answer.state !== "awaiting approval") remember(null);
    if (changed && updates.checked) refresh().catch(report);
  }
}

/** @param {Timeline} data */
function showTime(data) {
  last.time = data;
  renew(section("time"), [{ ...data, begin: "", end: "" }, width()], () => timeline(data, width()));
}

async function refreshTime() {
  /** @type {Timeline} */
  const data = await ask(`${base}${dagPath(dag)}/timeline`);
  showTime(data);
  clearTimeout(reading);
  if (data.unread) reading = setTimeout(() => refreshTime().catch(report), 500);
}

/** Refresh the page, and return the seconds until the next request. */
async function refresh() {
  if (!dag) return await refreshClusters();
  /** @type {Overview} */
  const view = await ask(`${base}${dagPath(dag)}/overview${run && `?run_id=${encodeURIComponent(run)}`}`);
  // Automatic updates were disabled meanwhile.
  if (last.view && !updates.checked) return 15;
  show(view);
  await refreshAnswer();
  if (view.of_one_run) return 15;
  await refreshTime();
  return Math.min(15, Math.max(3, view.status.interval_seconds / 4));
}

async function refreshClusters() {
  /** @type {Status[]} */
  const all = await ask(`${base}/clusters`);
  if (all[0]) serverAhead = Date.parse(all[0].now) - Date.now();
  renew(section("all"), all.map((status) => ({ ...status, now: "" })), () => clusters(all, base));
  return 10;
}

async function again() {
  let seconds = 10;
  try {
    seconds = await refresh();
    note.hidden = true;
    document.getElementById("untitled")?.remove();
  } catch (problem) {
    report(problem);
    if (problem instanceof Refusal && problem.status === 403) seconds = 60;
  }
  page.setAttribute("aria-busy", "false");
  tick(serverNow());
  clearTimeout(waiting);
  waiting = later(seconds, renewed);
}

function renewed() {
  if (updates.checked) again();
}

followTheme();
new ResizeObserver(() => {
  if (last.view) show(last.view);
  if (last.time) showTime(last.time);
}).observe(page);
updates.addEventListener("change", renewed);
page.addEventListener("click", lookUp);
setInterval(() => updates.checked && tick(serverNow()), 1000);
again();

// Asks for the documents of the page again and again, and shows them.

import { acts } from "./acts.js";
import { brokers } from "./brokers.js";
import { clusters } from "./clusters.js";
import { make, renew } from "./dom.js";
import { findings } from "./findings.js";
import { followTheme, uiLink } from "./links.js";
import { followOrder, orderList, ordersShown } from "./orders.js";
import { pairs } from "./pairs.js";
import { plan } from "./plan.js";
import { figures, strip, tick } from "./strip.js";
import { timeline } from "./timeline.js";

const VERSION = 1;
const { base } = document.documentElement.dataset;
const page = document.getElementById("page");
const asked = decodeURIComponent(location.pathname.slice(`${base}/page`.length + 1));
const run = /^pulsar_(rebalance|by_hand)__/.test(asked) ? new URLSearchParams(location.search).get("run_id") ?? "" : "";
const dag = dagOf(asked);
const live = document.getElementById("live");
const sections = new Map();
const note = document.getElementById("note");
let offset = 0;
let shownSpan = "hour";
let announced = "";
let reading = 0;
const last = {};

// Every DAG of a cluster leads to its page; plans made by hand have runs of their own.
function dagOf(id) {
  const found = /^pulsar_([a-z_]+?)__(.+)$/.exec(id);
  return found && !(run && found[1] === "by_hand") ? `pulsar_rebalance__${found[2]}` : id;
}

function section(name, kind = "section") {
  if (!sections.has(name)) {
    const made = make(kind, { class: name });
    sections.set(name, made);
    page.append(made);
  }
  return sections.get(name);
}

async function ask(path) {
  const answer = await fetch(`${base}${path}`, { headers: { Accept: "application/json" }, cache: "no-store" })
    .catch(() => ({ status: 0, json: () => ({}) }));
  if (answer.ok) return answer.json();
  const said = await answer.json().catch(() => ({}));
  const problem = new Error(typeof said.detail === "string" ? said.detail : `The server answered ${answer.status}.`);
  problem.status = answer.status;
  throw problem;
}

function tell(problem) {
  if (problem.status === undefined) console.error(problem);
  const words = { 401: "Your login has expired: load the page anew and sign in.", 403: "You may not read this DAG." };
  const text = words[problem.status] ??
    (problem.status ? problem.message : "The web server does not answer. What is shown is from before.");
  // What a run found is kept for longer than its other files.
  const kept = run && problem.status === 404 &&
    make(
      "a",
      { href: `${base}/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}/validation` },
      "Its validation result",
    );
  note.replaceChildren(...[text, " ", kept].filter(Boolean));
  note.hidden = false;
}

function width() {
  return Math.max(300, Math.min(1160, page.clientWidth - 32));
}

function show(view) {
  if (view.version !== VERSION) location.reload();
  offset = Date.parse(view.status.now) - Date.now();
  const labels = new Map(view.brokers.map((broker) => [broker.name, broker.label]));
  const { now: _now, ...status } = view.status;
  const present = !view.of_one_run;
  announce(view.status);
  document.title = `${view.status.cluster}: ${view.status.state}`;
  renew(section("strip", "header"), status, () => [strip(view.status), figures(view.status, { live: present })]);
  if (present) {
    renew(
      section("acts", "nav"),
      [view.acts, view.status.strategy],
      () => acts(view, base, () => Date.now() + offset, follow),
    );
    showOrders();
  }
  if (view.of_one_run) {
    renew(section("of-run"), view.links, () =>
      make(
        "p",
        {},
        "This is how one run saw the cluster. ",
        uiLink(`${view.links.dag}/plugin/pulsar-balance-dag`, "As it is now"),
      ));
  }
  renew(section("brokers"), [view.brokers, view.lines, view.middle, width()], () => brokers(view, width()));
  renew(
    section("pairs"),
    [view.pairs, view.close_pairs, view.hits, view.firing, view.sampled_at],
    () => pairs(view, labels),
  );
  const address = (plan) => plan && `${view.links.dag}/runs/${encodeURIComponent(plan.run_id)}`;
  renew(
    section("awaiting"),
    [view.awaiting, labels.size],
    () => plan(view.awaiting, labels, { title: "Plan that waits for approval", address: address(view.awaiting) }),
  );
  renew(
    section("plan"),
    [view.plan, labels.size],
    () => plan(view.plan, labels, { title: "Plan", address: address(view.plan) }),
  );
  renew(
    section("last"),
    [view.last, labels.size],
    () => plan(view.last, labels, { title: "Last run that moved bundles", address: address(view.last) }),
  );
  section("time");
  renew(section("validation"), [view.findings, view.validated, view.links], () => findings(view));
  renew(
    section("links"),
    view.links,
    () =>
      make(
        "p",
        { class: "more" },
        [["DAG", "dag"], ["newest run", "run"], ["its log", "log"]]
          .filter(([, name]) => view.links[name]).map(([text, name]) => [uiLink(view.links[name], text), " "]),
      ),
  );
  last.view = view;
  tick(offset);
}

// For a screen reader: what it is, once it is another; not each second that goes by.
function announce({ cluster, state, sentence, in_force: force }) {
  const key = `${state} ${force}`;
  if (key === announced) return;
  announced = key;
  live.textContent = `${cluster}: ${state}. ${sentence} ${force}`;
}

function showOrders() {
  const place = section("orders");
  if (!place.hasAttribute("role")) {
    place.setAttribute("role", "log");
    place.setAttribute("aria-label", "What was asked for here");
  }
  renew(place, ordersShown(), () => orderList(base));
}

function follow(order) {
  followOrder(order, ask, showOrders, () => refresh().catch(tell));
}

function showTime(data) {
  last.time = data;
  const { begin: _begin, end: _end, ...rest } = data;
  renew(section("time"), [rest, width()], () =>
    timeline(data, width(), (span) => {
      shownSpan = span;
      refreshTime().catch(tell);
    }));
}

async function refreshTime() {
  const data = await ask(`/dags/${encodeURIComponent(dag)}/timeline?span=${shownSpan}`);
  if (data.span === shownSpan) showTime(data);
  clearTimeout(reading);
  if (data.unread) reading = setTimeout(() => refreshTime().catch(tell), 500);
}

async function refresh() {
  if (!dag) {
    const all = await ask("/clusters");
    if (all.length) offset = Date.parse(all[0].now) - Date.now();
    renew(section("all"), all.map(({ now: _now, ...rest }) => rest), () => clusters(all, base));
    return 10;
  }
  const view = await ask(`/dags/${encodeURIComponent(dag)}/overview${run ? `?run_id=${encodeURIComponent(run)}` : ""}`);
  show(view);
  if (view.of_one_run) return 15;
  await refreshTime();
  return Math.min(15, Math.max(3, view.status.interval_seconds / 4));
}

async function again() {
  let seconds = 10;
  try {
    seconds = await refresh();
    note.hidden = true;
  } catch (problem) {
    tell(problem);
    if (problem.status === 403) seconds = 60;
  }
  page.setAttribute("aria-busy", "false");
  tick(offset);
  setTimeout(again, (document.hidden ? 4 : 1) * seconds * 1000);
}

followTheme();
new ResizeObserver(() => {
  if (last.view) show(last.view);
  if (last.time) showTime(last.time);
}).observe(page);
setInterval(() => tick(offset), 1000);
again();

// The status of a cluster: the strip at the top of its page, and its card in the list of clusters.

import { make } from "./dom.js";
import { moment, points, span } from "./texts.js";

/** @import { Status } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */

/** @type {(status: Status, live: boolean) => Child} */
export function strip({ tone, state, cluster, sentence, in_force: force, collected_at: at, ...status }, live) {
  const fresh = { "data-fresh": status.fresh_until };
  const word = make("span", { class: `word ${tone}`, ...fresh }, state);
  const dot = make("span", { class: `dot ${tone}`, "aria-hidden": "true", ...fresh });
  const run = status.running_since
    ? figure("run under way", make("span", { "data-since": status.running_since }), "time since the run began")
    : figure("next run", make("span", { "data-until": status.next_run_at ?? "" }), "time until the next run starts");
  const name = make("span", { class: "cluster" }, cluster);
  return [
    make("div", { class: "state" }, dot, make("h1", {}, word, name)),
    make("p", { class: "sentence" }, sentence),
    force && make("p", { class: "force" }, force),
    make(
      "dl",
      { class: "values" },
      figure(status.predicted ? "predicted range" : "range", points(status.score_range), "hottest minus coldest score"),
      at && figure("data", make("span", { "data-since": at }), "age of the latest data"),
      live && (status.running_since || status.next_run_at) && run,
      figure("mode", status.mode, "what the rebalancer may do"),
      figure("strategy", status.strategy, "the shedder that chooses bundles"),
    ),
  ];
}

/** @type {(name: string, value: Child, title: string) => HTMLElement} */
function figure(name, value, title) {
  return make("div", { title }, make("dt", {}, name), make("dd", {}, value));
}

/**
 * Update ages between two answers of the server; nothing stays green once its data is too old for that.
 * @param {number} now - by the server's clock, milliseconds
 */
export function tick(now) {
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-since], [data-until]"))) {
    const text = age(node.dataset, now);
    if (node.textContent !== text) node.textContent = text;
  }
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".good[data-fresh]"))) {
    if (now > Date.parse(node.dataset.fresh ?? "")) node.classList.replace("good", "idle");
  }
}

/**
 * Return the time since a moment; or the time until one after `before`, and `over` once it has passed.
 * @param {DOMStringMap} data
 * @param {number} now - milliseconds
 */
export function age({ since, until, before = "", over = "due" }, now) {
  const seconds = since ? (now - Date.parse(since)) / 1000 : (Date.parse(until ?? "") - now) / 1000;
  if (Number.isNaN(seconds)) return "–";
  return until && seconds < 1 ? over : before + span(seconds);
}

/**
 * Return what waits for a person, since when, and what leads to the acts that help.
 * @type {(status: Pick<Status, "attention">, help: (acts: string[]) => Child) => Child}
 */
export function waits({ attention }, help) {
  return attention.map(({ text, since, acts }) => {
    const when = since && [` Since ${moment(since)}, `, make("span", { "data-since": since }), "."];
    return make("div", {}, make("p", {}, make("b", {}, text), when), help(acts));
  });
}

/** @type {(all: Status[], base: string) => Child} */
export function clusters(all, base) {
  const hint = "No clusters to show: the clusters file lists none, or you may not read their DAGs.";
  const cards = all.map((status) => make("li", {}, card(status, base)));
  return [
    make("h1", { class: "title" }, "Pulsar clusters"),
    cards.length ? make("ul", { class: "clusters" }, cards) : make("p", { class: "empty" }, hint),
  ];
}

/** @type {(status: Status, base: string) => Child} */
function card({ dag_id: dag, cluster, state, tone, sentence, in_force: force, collected_at: at, ...status }, base) {
  const range = status.predicted ? "predicted range" : "range";
  const age = at && [", data ", make("span", { "data-since": at }), " old"];
  const fresh = { "data-fresh": status.fresh_until };
  const href = `${base}/page/${encodeURIComponent(dag)}`;
  const link = (/** @type {string} */ act) => {
    const key = { "data-key": `${dag} ${act}`, "aria-label": `${act}… ${cluster}` };
    return make("a", { href: `${href}#${new URLSearchParams({ act })}`, ...key }, `${act}…`);
  };
  const shown = make(
    "a",
    { href, "data-key": dag, class: tone },
    make("span", { class: `dot ${tone}`, "aria-hidden": "true", ...fresh }),
    make("b", {}, cluster),
    make("span", { class: `word ${tone}`, ...fresh }, state),
    make("span", { class: "sentence" }, sentence),
    force && make("span", { class: "sentence warn" }, force),
    make("span", { class: "more" }, `mode ${status.mode}, ${range} ${points(status.score_range)}`, age),
  );
  return [shown, make("div", { class: "attention" }, waits(status, (acts) => acts.map(link)))];
}

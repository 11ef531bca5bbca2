// A card for each cluster that the user may read.

import { make } from "./dom.js";
import { moment, points } from "./texts.js";

/** @import { Status } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */

/** @type {(all: Status[], base: string) => Child} */
export function clusters(all, base) {
  const hint = "No clusters to show: the clusters file lists none, or you may not read their DAGs.";
  const cards = all.map((status) => make("li", {}, card(status, base)));
  return [
    make("h1", { class: "title" }, "Pulsar clusters"),
    cards.length ? make("ul", { class: "clusters" }, cards) : make("p", { class: "empty" }, hint),
  ];
}

/** @type {(status: Status, base: string) => HTMLElement} */
function card({ dag_id: dag, cluster, state, tone, sentence, attention, in_force: force, ...status }, base) {
  const range = status.predicted ? "predicted range" : "range";
  const age = make("span", { "data-since": status.collected_at ?? "" });
  const fresh = { "data-fresh": status.fresh_until };
  return make(
    "a",
    { href: `${base}/page/${encodeURIComponent(dag)}`, "data-key": dag, class: tone },
    make("span", { class: `dot ${tone}`, "aria-hidden": "true", ...fresh }),
    make("b", {}, cluster),
    make("span", { class: `word ${tone}`, ...fresh }, state),
    attention.map(({ text, since }) =>
      make("b", { class: "sentence warn" }, text, since && ` Since ${moment(since)}.`)
    ),
    make("span", { class: "sentence" }, sentence),
    force && make("span", { class: "sentence warn" }, force),
    make("span", { class: "more" }, `mode ${status.mode}, ${range} ${points(status.score_range)}, data `, age, " old"),
  );
}

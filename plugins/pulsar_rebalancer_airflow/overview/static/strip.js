// The strip at the top: one word, one sentence, and the figures that matter.

import { make, points, span } from "./dom.js";

export function strip(status) {
  return [
    make(
      "div",
      { class: "state" },
      make("span", { class: `dot ${status.tone}`, "aria-hidden": "true" }),
      make(
        "h1",
        {},
        make("span", { class: `word ${status.tone}` }, status.state),
        make("span", { class: "cluster" }, status.cluster),
      ),
    ),
    make("p", { class: "sentence" }, status.sentence),
    status.in_force && make("p", { class: "force" }, status.in_force),
  ];
}

export function figures(status, { live }) {
  const judged = status.score_range !== null;
  return make(
    "dl",
    { class: "figures" },
    figure("range", judged ? points(status.score_range) : "–", "points between the hottest and the coldest broker"),
    figure("deviation", judged ? points(status.deviation) : "–", "standard deviation of the scores, points"),
    figure("data", make("span", { "data-since": status.collected_at }), "age of the newest data"),
    live && figure("next run", make("span", { "data-until": status.next_run_at }), "when the next run starts"),
    figure("mode", status.mode, "what the rebalancer may do"),
    figure("strategy", status.strategy, "which shedder chooses bundles"),
  );
}

function figure(name, value, title) {
  return make("div", { title }, make("dt", {}, name), make("dd", {}, value));
}

// Ages go on between two answers of the server, by its clock.
export function tick(offset) {
  const now = Date.now() + offset;
  for (const node of document.querySelectorAll("[data-since], [data-until]")) {
    const { since, until } = node.dataset;
    const seconds = since ? (now - Date.parse(since)) / 1000 : (Date.parse(until) - now) / 1000;
    let text = "–";
    if (Number.isFinite(seconds)) text = until && seconds < 1 ? node.dataset.over ?? "now" : span(seconds);
    if (node.textContent !== text) node.textContent = text;
  }
}

// All clusters that the user may read, a card each.

import { make, points } from "./dom.js";

export function clusters(all, base) {
  if (!all.length) {
    return make(
      "p",
      { class: "empty" },
      "There is no cluster that you may read: the clusters file has none yet, or their DAGs are not yours.",
    );
  }
  return [
    make("h1", { class: "title" }, "Pulsar clusters"),
    make("ul", { class: "clusters" }, all.map((status) => card(status, base))),
  ];
}

function card(status, base) {
  return make(
    "li",
    {},
    make(
      "a",
      { href: `${base}/page/${encodeURIComponent(status.dag_id)}`, "data-key": status.dag_id, class: status.tone },
      make("span", { class: `dot ${status.tone}`, "aria-hidden": "true" }),
      make("b", {}, status.cluster),
      make("span", { class: `word ${status.tone}` }, status.state),
      make("span", { class: "sentence" }, status.sentence),
      status.in_force && make("span", { class: "sentence warn" }, status.in_force),
      make(
        "span",
        { class: "more" },
        `mode ${status.mode}, range ${points(status.score_range)}, data `,
        make("span", { "data-since": status.collected_at }),
        " old",
      ),
    ),
  );
}

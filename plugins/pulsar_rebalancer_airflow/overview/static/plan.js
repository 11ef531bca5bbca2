// A plan: what moves, whom it disturbs, what stays and why, and what became of it.

import { make, moment, points, several, traffic } from "./dom.js";
import { uiLink } from "./links.js";

export function plan(view, labels, { title, address }) {
  if (!view) return [];
  return [
    make(
      "h2",
      {},
      title,
      make(
        "small",
        {},
        ` made at ${moment(view.collected_at)}, `,
        make("span", { "data-since": view.collected_at }),
        " ago, hash ",
        make("code", { title: view.hash }, view.hash.slice(0, 12)),
        view.by && ` · ${view.by}`,
        !view.verdict && ` · may be carried out until ${moment(view.until)}`,
      ),
    ),
    view.bundles > 0 && amounts(view),
    progress(view),
    prediction(view),
    view.bundles > 0 && moves(view, labels),
    view.brokers.length > 0 && ends(view, labels),
    stay(view),
    address && make("p", { class: "more" }, uiLink(address, "The run in Airflow")),
  ];
}

function amounts(view) {
  return make(
    "p",
    {},
    `Total: ${several(view.bundles, "bundle")} with ${traffic(view.traffic, view.measure)}; `,
    `${several(view.topics, "topic")} and ${several(view.clients, "client")} look for the new broker.`,
  );
}

function progress(view) {
  if (!view.done && !view.under_way) {
    return view.verdict && view.bundles > 0 && make("p", { class: "verdict" }, view.verdict_meaning);
  }
  const failed = view.failed ? `, ${view.failed} not where planned` : "";
  return make(
    "div",
    { class: "progress" },
    make("progress", { max: view.bundles, value: view.done, "aria-label": "bundles done" }),
    make(
      "span",
      {},
      `${view.done} of ${view.bundles} done${failed}`,
      view.ended_at ? `, ended at ${moment(view.ended_at)}` : "",
    ),
  );
}

function prediction(view) {
  if (view.predicted_range === null || !view.bundles) return null;
  const cell = (name, figure, kind) =>
    make("div", { class: kind }, make("dt", {}, name), make("dd", {}, points(figure)));
  return make(
    "dl",
    { class: "ranges" },
    cell("range before", view.range_before),
    cell("predicted", view.predicted_range, "predicted"),
    view.measured.map(({ minutes, score_range }) => cell(`after ${minutes} min`, score_range, "measured")),
  );
}

function moves(view, labels) {
  const short = (name) => make("span", { title: name }, labels.get(name) ?? name);
  const row = (move) =>
    make(
      "tr",
      { class: move.ok === false ? "failed" : "" },
      make("th", { scope: "row" }, move.bundle),
      make("td", {}, short(move.source)),
      make("td", {}, short(move.destination)),
      make("td", {}, traffic(move.traffic, view.measure)),
      make("td", {}, move.topics),
      make("td", {}, move.clients),
      make("td", { class: "text" }, move.why),
      make("td", { class: "text" }, outcome(move)),
    );
  const head = ["bundle", "from", "to", "rate", "topics", "clients", "reason", "outcome"];
  return [
    make(
      "div",
      {
        class: "scroll",
        "data-key": `moves ${view.folder}`,
        tabindex: 0,
        role: "region",
        "aria-label": "Bundles of the plan",
      },
      make(
        "table",
        {},
        make(
          "thead",
          {},
          make("tr", {}, head.map((text, n) => make("th", { scope: "col", class: n > 5 ? "text" : "" }, text))),
        ),
        make("tbody", {}, view.moves.map(row)),
      ),
    ),
    view.more > 0 && make("p", { class: "more" }, `and ${several(view.more, "bundle")} more`),
  ];
}

function ends(view, labels) {
  const row = ({ name, before, after }) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", title: name }, labels.get(name) ?? name),
      make("td", {}, points(before)),
      make("td", {}, points(after)),
      make("td", {}, `${after < before ? "" : "+"}${points(after - before)}`),
    );
  const head = ["broker", "score before", "predicted after", "change"];
  return make(
    "details",
    { "data-key": `ends ${view.folder}` },
    make("summary", { "data-key": `ends of ${view.folder}` }, "Prediction for each broker"),
    make(
      "div",
      {
        class: "scroll",
        "data-key": `ends table ${view.folder}`,
        tabindex: 0,
        role: "region",
        "aria-label": "Scores before and after, by broker",
      },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, view.brokers.map(row)),
      ),
    ),
  );
}

function outcome(move) {
  if (!move.outcome) return "";
  const seconds = move.seconds ? `, ${points(move.seconds)} s` : move.ok ? ", < 0.1 s" : "";
  return make(
    "span",
    { title: [move.meaning, move.error].filter(Boolean).join("\n") },
    `${move.ok ? "✓" : "✗"} ${move.outcome}${seconds}`,
  );
}

function stay(view) {
  if (!view.stay.length) return null;
  const all = view.stay.reduce((sum, { count }) => sum + count, 0);
  return make(
    "details",
    { "data-key": `stay ${view.folder}` },
    make("summary", { "data-key": `stay of ${view.folder}` }, `${several(all, "bundle")} stay, and why`),
    make(
      "ul",
      { class: "stay" },
      view.stay.map(({ reason, meaning, count }) =>
        make("li", {}, make("b", {}, count.toLocaleString("en")), ` ${meaning} `, make("code", {}, reason))
      ),
    ),
  );
}

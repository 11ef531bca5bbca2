// Brokers from the hottest to the coldest: as a chart, and as a table.

import { chart, range, remarks } from "./broker_chart.js";
import { folded, make, table } from "./dom.js";
import { points, several, traffic, words } from "./texts.js";

/** @import { BrokerView, Overview } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */

/** @type {(view: Overview, width: number) => Child} */
export function brokers(view, width) {
  if (!view.brokers.length) return [make("h2", {}, "Brokers"), make("p", { class: "empty" }, "No data yet.")];
  const resources = Object.keys(view.brokers.find((broker) => broker.score !== null)?.resources ?? {});
  // Only some strategies keep averages.
  const known = (/** @type {"average" | "average_throughput"} */ name) =>
    view.brokers.some((broker) => broker[name] !== null);
  const all = table("brokers scroll", "All brokers", view.brokers, [
    { title: "broker", cell: ({ name }) => make("button", { type: "button", "data-broker": name }, name) },
    { title: "score", cell: ({ score }) => points(score) },
    ...resources.map((name) => ({
      title: words(name),
      /** @param {BrokerView} broker */
      cell: ({ resources, deciding }) => make(name === deciding ? "b" : "span", {}, points(resources[name])),
    })),
    { title: "half hour", cell: range },
    { title: "predicted", cell: ({ after }) => points(after) },
    { title: "average", cell: ({ average }) => points(average), shown: known("average") },
    {
      title: "average rate",
      cell: ({ average_throughput: rate }) => traffic(rate),
      shown: known("average_throughput"),
    },
    { title: "traffic", cell: ({ msg_throughput: rate }) => traffic(rate) },
    { title: "bundles", cell: ({ bundles }) => bundles },
    { title: "remark", cell: (broker) => remarks(broker).join(" "), kind: "text" },
  ]);
  return [
    make("h2", {}, "Brokers ", make("small", {}, counted(view))),
    chart(view, width),
    legend(view),
    folded("brokers", "All brokers as a table", all),
  ];
}

/** @param {Overview} view */
export function counted({ brokers, middle }) {
  const drained = brokers.filter((broker) => broker.drained).length;
  const out = brokers.filter((broker) => broker.left_out && !broker.drained).length;
  const facts = [
    middle !== null && `mean ${points(middle)} %`,
    drained && `${drained} drained`,
    out && `${out} left out`,
  ];
  return [several(brokers.length, "broker"), ...facts.filter(Boolean)].join(" · ");
}

/** @param {Overview} view */
function legend({ brokers, middle, lines }) {
  /** @type {(kind: string, text: string) => HTMLElement} */
  const entry = (kind, text) => make("li", {}, make("i", { class: `key ${kind}` }), text);
  const widths = lines.map(({ lower, upper }) => points(upper - lower, 0)).join(" and ");
  return make(
    "ul",
    { class: "legend" },
    brokers.some((broker) => broker.after !== null) && entry("after", "predicted"),
    middle !== null && entry("mean", "mean"),
    lines.length > 1 && entry("band", `no move needed within the thresholds (${widths} points)`),
  );
}

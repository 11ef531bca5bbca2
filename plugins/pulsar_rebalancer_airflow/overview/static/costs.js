// What a strategy has learned about the bundles of one broker, read on demand.

import { dagPath } from "./address.js";
import { folded, make, table } from "./dom.js";
import { ask } from "./server.js";
import { points } from "./texts.js";

/** @import { CostView } from "./documents.d.ts" */
/** @import { Column } from "./elements.d.ts" */

/**
 * @param {string[]} brokers
 * @param {(broker: string) => Promise<CostView[]>} read
 */
export function costs(brokers, read) {
  const shown = make("div", { role: "status" });
  const choice = make(
    "select",
    {},
    make("option", { value: "" }, "Choose a broker"),
    brokers.map((name) => make("option", { value: name }, name)),
  );
  choice.addEventListener("change", async () => {
    const broker = choice.value;
    const known = broker ? await read(broker).catch((problem) => String(problem.message)) : "";
    if (broker === choice.value) shown.replaceChildren(typeof known === "string" ? known : listed(broker, known));
  });
  return folded("costs", "What bundles cost", make("label", {}, "The largest bundles of ", choice), shown);
}

/**
 * Return a function that reads what is known about a broker's bundles.
 * @param {string} base
 * @param {string} dag
 * @returns {(broker: string) => Promise<CostView[]>}
 */
export function costReader(base, dag) {
  return (broker) => ask(`${base}${dagPath(dag)}/costs?broker=${encodeURIComponent(broker)}`);
}

/**
 * @param {string} broker
 * @param {CostView[]} bundles
 */
export function listed(broker, bundles) {
  if (!bundles.length) return make("p", { class: "empty" }, "Nothing is known yet about this broker's bundles.");
  /** @type {Column<CostView>[]} */
  const columns = [
    { title: "bundle", cell: ({ bundle }) => bundle },
    { title: "points now", cell: ({ now }) => points(now) },
    { title: "points, mean of an hour", cell: ({ hour }) => points(hour) },
    { title: "relative cost", cell: ({ cost, doubt }) => `${cost.toFixed(2)} ± ${doubt.toFixed(2)}` },
  ];
  return table(`costs ${broker}`, "What bundles cost", columns, bundles);
}

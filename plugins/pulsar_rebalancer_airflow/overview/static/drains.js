// Drained brokers: who ordered it, how far it is, and the bundles that are left.

import { make } from "./dom.js";
import { stayTable } from "./plan.js";
import { several } from "./texts.js";

/** @import { DrainView } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @import { Short } from "./plan.js" */

/** @type {(all: DrainView[], short: Short) => Child} */
export function drains(all, short) {
  if (!all.length) return [];
  const items = all.map((drain) => [
    make("p", {}, make("b", {}, short(drain.broker)), ` ${drain.drained} — ${left(drain)}`),
    drain.left.length > 0 && stayTable(drain.broker, drain.left, drain.left.length + drain.more, short),
  ]);
  return [make("h2", {}, "Drained brokers"), items];
}

/** @param {DrainView} drain */
export function left({ bundles, moving, gone, left, more }) {
  if (bundles === null) return "its bundles are not known yet.";
  if (!bundles) return "no bundle is left.";
  const stay = left.length + more;
  if (stay) return `${stay} of ${several(bundles, "bundle")} left:`;
  if (moving) return `${several(moving, "bundle")} ${moving === 1 ? "leaves" : "leave"} with this run.`;
  const arrived = bundles - gone;
  return [
    gone && `${several(gone, "bundle")} ${gone === 1 ? "has" : "have"} left`,
    arrived && `${several(arrived, "bundle")} just arrived; a later run moves ${arrived === 1 ? "it" : "them"}`,
  ].filter(Boolean).join("; ") + ".";
}

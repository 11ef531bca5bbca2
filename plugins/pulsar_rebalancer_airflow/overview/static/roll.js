// The rolling restart: which broker is in which phase, what it waits for, and how many brokers are done.

import { make } from "./dom.js";

/** @import { RollView } from "./documents.d.ts" */

/** @param {RollView | null} shown */
export function roll(shown) {
  if (!shown) return [];
  const { text, done, total } = shown;
  const bar = make("progress", { value: done, max: total, "aria-label": "brokers done" });
  return [make("h2", {}, "Rolling restart"), make("p", {}, bar, ` ${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`)];
}

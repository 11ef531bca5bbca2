// Scores before a plan and predicted after it, as bars.

import { draw, make } from "./dom.js";
import { points } from "./texts.js";

/** @import { EndView } from "./documents.d.ts" */
/** @import { Short } from "./plan.js" */

/**
 * @param {EndView[]} ends
 * @param {Short} short
 */
export function bars(ends, short) {
  const most = Math.max(100, ...ends.map(({ before, after }) => Math.max(before, after)));
  /**
   * @param {string} kind
   * @param {number} score
   * @param {number} y
   */
  const bar = (kind, score, y) => draw("rect", { class: kind, x: 0, y, width: 100 * score / most, height: 6 });
  const rows = ends.map(({ name, before, after }) => {
    const text = `${points(before)} → ${points(after)} %`;
    const size = { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" };
    const drawn = draw("svg", size, bar("score-before", before, 0), bar("score-after", after, 8));
    return make("li", {}, make("span", {}, short(name)), drawn, make("span", {}, text));
  });
  return make("ul", { class: "ends", "aria-label": "Score of each broker before and predicted after" }, rows);
}

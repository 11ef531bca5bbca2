// Scores before a plan, predicted after it and measured ten minutes later, as bars.

import { draw, make } from "./dom.js";
import { points } from "./texts.js";

/** @import { EndView } from "./documents.d.ts" */
/** @import { Short } from "./plan.js" */

/**
 * @param {EndView[]} ends
 * @param {Short} short
 */
export function bars(ends, short) {
  const most = Math.max(100, ...ends.flatMap(({ before, after, measured }) => [before, after, measured ?? 0]));
  /**
   * @param {string} kind
   * @param {number} score
   * @param {number} y
   */
  const bar = (kind, score, y) => draw("rect", { class: kind, x: 0, y, width: 100 * score / most, height: 6 });
  const rows = ends.map((end) => {
    const { name, before, after, measured } = end;
    const text = `${points(before)} → ${points(after)} %`;
    const size = { viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" };
    const later = measured === null ? [] : bar("score-measured", measured, 16);
    const drawn = draw("svg", size, bar("score-before", before, 0), bar("score-after", after, 8), later);
    const note = make("small", { title: end.dropped }, compared(end));
    return make("li", {}, make("span", {}, short(name)), drawn, make("span", {}, text, " ", note));
  });
  const also = ends.some(({ measured }) => measured !== null) ? ", and measured ten minutes later" : "";
  const label = `Score of each broker before, predicted after${also}`;
  return make("ul", { class: "ends", "aria-label": label }, rows);
}

/**
 * Return how the measured score differs from the prediction, apart from what all brokers have in common.
 * @param {Pick<EndView, "measured" | "error" | "dropped">} end
 */
export function compared({ measured, error, dropped }) {
  if (dropped) return "not compared";
  if (measured === null || error === null) return "";
  return `measured ${points(measured)} %, ${error < 0 ? "" : "+"}${points(error)}`;
}

// Common parts of both charts: margins, the axis of scores, horizontal lines and captions.

import { draw } from "./dom.js";

/** @import { Child } from "./elements.d.ts" */

export const LEFT = 34;
export const RIGHT = 10;
const STEP = 20;

/**
 * Return the end of an axis that shows these scores.
 * @type {(scores: (number | null)[], least: number) => number}
 */
export function ceiling(scores, least) {
  return Math.ceil(Math.max(least, ...scores.map((score) => score ?? 0)) / STEP) * STEP;
}

/**
 * Return a function that places a score: at `bottom` for 0, at `top` for the ceiling `end` and above.
 * @type {(bottom: number, top: number, end: number) => (score: number) => number}
 */
export function scale(bottom, top, end) {
  return (score) => bottom - ((bottom - top) * Math.min(score, end)) / end;
}

/** @type {(kind: string, width: number, y: number, ...children: Child[]) => SVGElement} */
export function level(kind, width, y, ...children) {
  return draw("line", { class: kind, x1: LEFT, x2: width - RIGHT, y1: y, y2: y }, children);
}

/** @type {(kind: string, x: number, y: number, text: string, anchor?: "start" | "middle" | "end") => SVGElement} */
export function caption(kind, x, y, text, anchor = "middle") {
  return draw("text", { class: kind, x, y, "text-anchor": anchor }, text);
}

/** @type {(end: number, step: number, width: number, y: (score: number) => number) => Child} */
export function axis(end, step, width, y) {
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, n) => n * step).map((score) => [
    level(score ? "grid" : "base", width, y(score)),
    caption("tick", LEFT - 6, y(score) + 4, String(score), "end"),
  ]);
}

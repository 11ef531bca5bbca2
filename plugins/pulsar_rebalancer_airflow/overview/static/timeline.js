// The last hour: the range of scores with its gaps, and what happened.

import { axis, caption, ceiling, LEFT, level, RIGHT, scale } from "./chart.js";
import { draw, folded, make } from "./dom.js";
import { moment, points, several } from "./texts.js";

/** @import { Event, Timeline } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @typedef {{ at: number, range: number | null }} Judged */

const TOP = 14;
const FLOOR = 118;
const HEIGHT = 150;
const UNFOLDED = 5;
const ANCHORS = /** @type {const} */ (["start", "middle", "middle", "middle", "end"]);
/** By kind, so that events differ not only by colour. */
const MARKS = /** @type {Record<string, string>} */ ({ moved: "▲", failed: "×", order: "◆" });

/** @type {(data: Timeline, width: number) => Child} */
export function timeline(data, width) {
  const { events, points: runs, unread } = data;
  const reading = unread > 0 && `, loading, ${several(unread, "run")} left`;
  const earlier = events.slice(UNFOLDED);
  return [
    make("h2", {}, "The last hour ", make("small", {}, "range of scores in points", reading)),
    runs.length ? chart(data, width) : make("p", { class: "empty" }, "No runs in the last hour."),
    list(events.slice(0, UNFOLDED)),
    earlier.length > 0 && folded("events", several(earlier.length, "earlier event"), list(earlier)),
  ];
}

/** @param {Event[]} events */
function list(events) {
  const item = (/** @type {Event} */ { at, kind, text }) =>
    make("li", { class: kind }, make("time", { datetime: at }, moment(at)), ` ${MARKS[kind]} ${text}`);
  return events.length > 0 && make("ol", { class: "events" }, events.map(item));
}

/** @type {(data: Timeline, width: number) => SVGElement} */
function chart(data, width) {
  const { begin, end: until, events, low_threshold: low, high_threshold: high } = data;
  const [first, last] = [Date.parse(begin), Date.parse(until)];
  const x = (/** @type {number} */ at) => LEFT + (width - LEFT - RIGHT) * (at - first) / (last - first);
  const size = { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT };
  const end = ceiling([high, ...data.points.map(({ range }) => range)], 20);
  const y = scale(FLOOR, TOP, end);
  const runs = data.points.map(({ at, range }) => ({ at: Date.parse(at), range }));
  const failed = runs.filter(({ range }) => range === null);
  const line = (/** @type {Judged[]} */ part) => part.map(({ at, range }) => `${x(at)} ${y(range ?? 0)}`).join("L");
  /** @type {(kind: string, at: number, y: number) => SVGElement} */
  const mark = (kind, at, y) => caption(`mark ${kind}`, x(at), y, MARKS[kind] ?? "");
  const time = (/** @type {number} */ share) =>
    new Date(first + (last - first) * share).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return draw(
    "svg",
    { class: "timeline", ...size, role: "img", "aria-label": spoken(data) },
    axis(end, end / 2, width, y),
    low !== null && level("threshold low", width, y(low)),
    high !== null && level("threshold high", width, y(high)),
    // The end makes a single run a dot.
    stretches(runs).map((part) => draw("path", { class: "range", d: `M${line(part)}h2` })),
    failed.map(({ at }) => mark("failed", at, TOP - 2)),
    events.map((event) => ({ ...event, at: Date.parse(event.at) }))
      .filter(({ at }) => !failed.some((run) => run.at === at))
      .map(({ kind, at }) => mark(kind, at, FLOOR + 12)),
    ANCHORS.map((anchor, n) => caption("tick", x(first + (last - first) * n / 4), HEIGHT - 6, time(n / 4), anchor)),
  );
}

/**
 * Return the runs in parts, without those that failed: no line joins what a failure or a long gap divides.
 * @param {Judged[]} runs
 */
export function stretches(runs) {
  const steps = runs.slice(1).map(({ at }, n) => at - (runs[n]?.at ?? 0)).sort((one, other) => one - other);
  const longest = 5 * (steps[Math.floor(steps.length / 2)] ?? 0);
  /** @type {Judged[][]} */
  const parts = [[]];
  runs.forEach((run, n) => {
    if (run.range === null || run.at - (runs[n - 1]?.at ?? run.at) > longest) parts.push([]);
    if (run.range !== null) parts.at(-1)?.push(run);
  });
  return parts.filter((part) => part.length);
}

/** @param {Timeline} data */
export function spoken({ points: runs }) {
  const ranges = runs.flatMap(({ range }) => range ?? []);
  const failed = several(runs.length - ranges.length, "run");
  const most = `The range of scores was at most ${points(Math.max(...ranges))} points; ${failed} failed.`;
  return ranges.length ? most : "No run judged any broker.";
}

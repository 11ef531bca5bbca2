// The range of scores over an hour, a day or a month, with what was moved and what went wrong.

import { axis, caption, ceiling, LEFT, level, RIGHT, scale } from "./chart.js";
import { draw, make } from "./dom.js";
import { points, several } from "./texts.js";

/** @import { Bucket, Timeline } from "./documents.d.ts" */
/** @typedef {{ at: number, x: number, lowest: number, highest: number }} Judged - a bucket whose brokers were judged */
/** @typedef {keyof typeof FACTS} Fact */

const TOP = 10;
const FLOOR = 118;
const HEIGHT = 150;
const SPANS = ["hour", "day", "month"];
/** Noun, what happened, and the mark in the chart, so that facts differ not only by colour. */
const FACTS = {
  runs: ["run", "", ""],
  moved: ["bundle", "moved", "▲"],
  split: ["bundle", "split permanently", "▲"],
  failed: ["move or split", "failed", "▼"],
  blocked: ["failed validation", "", "×"],
  broken: ["failed run", "", "!"],
  paused: ["run", "paused or held back", "‖"],
};
/** Facts of a whole bucket, in the order in which they are drawn. */
const BANDS = /** @type {Fact[]} */ (["paused", "blocked", "broken"]);

/**
 * @param {Timeline} data
 * @param {number} width
 * @param {(span: string) => void} choose
 */
export function timeline(data, width, choose) {
  const tabs = SPANS.map((span) => {
    const state = { "data-key": `span ${span}`, "aria-pressed": String(span === data.span) };
    return make("button", { type: "button", ...state, onclick: () => choose(span) }, span);
  });
  const reading = data.unread > 0 && make("small", {}, `loading, ${several(data.unread, "run")} left`);
  const group = make("div", { class: "tabs", role: "group", "aria-label": "Time span" }, tabs);
  const none = !data.buckets.length && make("p", { class: "empty" }, `No runs in the last ${data.span}.`);
  return [
    make("div", { class: "row" }, make("h2", {}, "Range of scores ", reading), group),
    none || [chart(data, width), make("ul", { class: "legend" }, summary(data.buckets).map(entry))],
  ];
}

/** @param {{ mark: string, text: string }} fact */
function entry({ mark, text }) {
  return make("li", {}, mark && make("b", { "aria-hidden": "true" }, mark), text);
}

/**
 * @param {Timeline} data
 * @param {number} width
 */
function chart(data, width) {
  const { x, y, end, each } = frame(data, width);
  const middle = (/** @type {Bucket} */ { at }) => x(Date.parse(at)) + each / 2;
  const judged = data.buckets.flatMap((bucket) => {
    const { at, lowest, highest } = bucket;
    return lowest === null || highest === null ? [] : [{ at: Date.parse(at), x: middle(bucket), lowest, highest }];
  });
  /**
   * @param {string} name
   * @param {number | null} score
   */
  const threshold = (name, score) =>
    score !== null &&
    level(`threshold ${name}`, width, y(score), draw("title", {}, `${name} threshold ${score}`));
  return draw(
    "svg",
    {
      class: "timeline",
      viewBox: `0 0 ${width} ${HEIGHT}`,
      width,
      height: HEIGHT,
      role: "img",
      "aria-label": spoken(data),
    },
    axis(end, end / 2, width, y),
    BANDS.map((fact) =>
      data.buckets.filter((bucket) => bucket[fact]).map((bucket) =>
        draw(
          "rect",
          { class: fact, x: middle(bucket) - each / 2, width: each, y: TOP, height: FLOOR - TOP },
          draw("title", {}, counted(fact, [bucket])),
        )
      )
    ),
    data.buckets.map((bucket, n) => {
      const marks = begun(bucket, data.buckets[n - 1]).map((fact) => FACTS[fact][2]);
      return marks.length > 0 && caption("mark", middle(bucket), TOP - 1, marks.join(""));
    }),
    threshold("low", data.low_threshold),
    threshold("high", data.high_threshold),
    stretches(judged, data.seconds).map((stretch) => ranges(stretch, y)),
    data.buckets.filter(({ moved, split, failed }) => moved || split || failed).map((bucket) => {
      const names = happened(["moved", "split", "failed"], [bucket]);
      const title = draw("title", {}, names.map((name) => counted(name, [bucket])).join(", "));
      const [kind, shape] = bucket.failed
        ? ["moved failed", `${FLOOR + 11}l5 -8h-10z`]
        : ["moved", `${FLOOR + 3}l5 8h-10z`];
      return draw("path", { class: kind, d: `M${middle(bucket)} ${shape}` }, title);
    }),
    times(data, x),
  );
}

/**
 * Return the scales of times and scores, the end of the axis, and the width of a bucket.
 * @param {Timeline} data
 * @param {number} width
 */
export function frame({ begin, end, seconds, high_threshold: threshold, buckets }, width) {
  const [first, last] = [Date.parse(begin), Date.parse(end)];
  const perMillisecond = (width - LEFT - RIGHT) / (last - first);
  const most = ceiling([threshold, ...buckets.map(({ highest }) => highest)], 20);
  return {
    x: (/** @type {number} */ time) => LEFT + (time - first) * perMillisecond,
    y: scale(FLOOR, TOP, most),
    end: most,
    each: Math.max(1.5, seconds * 1000 * perMillisecond),
  };
}

/**
 * Return the buckets in groups, split at gaps of more than five buckets.
 * @param {Judged[]} judged
 * @param {number} seconds - of a bucket
 */
export function stretches(judged, seconds) {
  /** @type {Judged[][]} */
  const parts = [];
  for (const bucket of judged) {
    const latest = parts.at(-1);
    const before = latest?.at(-1);
    if (latest && before && bucket.at - before.at <= seconds * 5000) latest.push(bucket);
    else parts.push([bucket]);
  }
  return parts;
}

/**
 * @param {Judged[]} stretch
 * @param {(score: number) => number} y
 */
function ranges(stretch, y) {
  const middle = (/** @type {Judged} */ { lowest, highest }) => y((lowest + highest) / 2);
  if (stretch.length === 1) {
    return stretch.map((only) => draw("circle", { class: "single", cx: only.x, cy: middle(only), r: 3 }));
  }
  const line = stretch.map((bucket) => `${bucket.x} ${middle(bucket)}`);
  const there = stretch.map(({ x, highest }) => `${x} ${y(highest)}`);
  const back = stretch.map(({ x, lowest }) => `${x} ${y(lowest)}`).reverse();
  return [
    draw("path", { class: "area", d: `M${[...there, ...back].join("L")}Z` }),
    draw("path", { class: "range", d: `M${line.join("L")}` }),
  ];
}

/**
 * @param {Timeline} data
 * @param {(time: number) => number} x
 */
function times({ begin, end, span }, x) {
  /** @type {Intl.DateTimeFormatOptions} */
  const format = span === "month" ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" };
  return [0, 0.25, 0.5, 0.75, 1].map((share) => {
    const at = Date.parse(begin) * (1 - share) + Date.parse(end) * share;
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    return caption("tick", x(at), HEIGHT - 6, new Date(at).toLocaleString("en-GB", format), anchor);
  });
}

/** @param {Timeline} data */
export function spoken({ span, buckets }) {
  const ranges = buckets.flatMap(({ highest }) => highest ?? []);
  const most = `The range of scores was at most ${points(Math.max(...ranges))} points.`;
  return `The last ${span}: ${ranges.length ? most : "No run judged any broker."}`;
}

/**
 * Return the facts that begin with a bucket.
 * @param {Bucket} bucket
 * @param {Bucket | undefined} before
 */
export function begun(bucket, before) {
  return BANDS.filter((fact) => bucket[fact] && !before?.[fact]);
}

/**
 * Return what happened, each with its mark in the chart.
 * @param {Bucket[]} buckets
 */
export function summary(buckets) {
  const rest = /** @type {Fact[]} */ (Object.keys(FACTS)).filter((name) => name !== "runs");
  /** @type {Fact[]} */
  const names = ["runs", ...happened(rest, buckets)];
  return names.map((name) => ({ mark: FACTS[name][2] ?? "", text: counted(name, buckets) }));
}

/**
 * @param {Fact[]} names
 * @param {Bucket[]} buckets
 */
function happened(names, buckets) {
  return names.filter((name) => buckets.some((bucket) => bucket[name]));
}

/**
 * @param {Fact} name
 * @param {Bucket[]} buckets
 */
function counted(name, buckets) {
  const [noun = "", rest] = FACTS[name];
  const count = buckets.reduce((sum, bucket) => sum + bucket[name], 0);
  return `${several(count, noun)} ${rest}`.trim();
}

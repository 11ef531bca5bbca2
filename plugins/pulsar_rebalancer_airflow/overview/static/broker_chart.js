// Brokers as bars.

import { axis, caption, ceiling, LEFT, level, RIGHT, scale } from "./chart.js";
import { draw } from "./dom.js";
import { points, several, words } from "./texts.js";

/** @import { BrokerView, Overview } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @typedef {{ broker: BrokerView, x: number }} Bar - `x`: its middle */
/** @typedef {(score: number) => number} Scale */

const TOP = 38;
const BOTTOM = 228;
const NARROWEST = 30;
const WIDEST = 90;

/** @type {(view: Overview, width: number) => SVGElement} */
export function chart(view, width) {
  const { bars, slot, rest } = places(view.brokers, width);
  const end = ceiling(view.brokers.flatMap(({ score, after }) => [score, after]), 40);
  const y = scale(BOTTOM, TOP, end);
  const longest = Math.max(...bars.map(({ broker }) => broker.label.length)) * 6.3;
  const turned = longest > slot - 4;
  const names = turned ? Math.min(longest, 120) * 0.72 + 14 : 20;
  const height = BOTTOM + names + 6;
  const size = { viewBox: `0 0 ${width} ${height}`, width, height };
  return draw(
    "svg",
    { class: "brokers", ...size, role: "img", "aria-label": spoken(view.brokers) },
    axis(end, end > 100 ? 40 : 20, width, y),
    thresholds(view, width, y),
    rest && others(rest, y),
    bars.map((bar) => drawn(bar, slot, y, turned)),
  );
}

/**
 * Return where brokers are drawn: all as bars, or the hottest and the coldest with a strip of the rest between them.
 * @param {BrokerView[]} brokers
 * @param {number} width
 * @returns {{ bars: Bar[], slot: number, rest: { brokers: BrokerView[], from: number, to: number } | null }}
 */
export function places(brokers, width) {
  const room = width - LEFT - RIGHT;
  /** @type {(some: BrokerView[], begin: number, slot: number) => Bar[]} */
  const row = (some, begin, slot) => some.map((broker, n) => ({ broker, x: begin + slot * (n + 0.5) }));
  if (brokers.length * NARROWEST <= room) {
    const slot = Math.min(WIDEST, room / brokers.length);
    return { bars: row(brokers, LEFT + (room - slot * brokers.length) / 2, slot), slot, rest: null };
  }
  const side = Math.max(2, Math.floor((room * 0.36) / NARROWEST));
  const [from, to] = [LEFT + NARROWEST * side, width - RIGHT - NARROWEST * side];
  const bars = [...row(brokers.slice(0, side), LEFT, NARROWEST), ...row(brokers.slice(-side), to, NARROWEST)];
  return { bars, slot: NARROWEST, rest: { brokers: brokers.slice(side, -side), from: from + 10, to: to - 10 } };
}

/** @param {BrokerView[]} brokers */
export function spoken(brokers) {
  const judged = brokers.filter((broker) => broker.score !== null);
  const [hottest, coldest] = [judged.at(0), judged.at(-1)];
  if (!hottest || !coldest) return "No broker reports its load.";
  const ends = `${hottest.label} is the hottest with ${points(hottest.score)} percent, ` +
    `${coldest.label} the coldest with ${points(coldest.score)}`;
  return `Scores of ${several(brokers.length, "broker")}: ${ends}. The table below lists all.`;
}

/** @type {(view: Overview, width: number, y: Scale) => Child} */
function thresholds({ lines, middle }, width, y) {
  // The widest first, so that it does not cover the others.
  const drawn = [...lines].reverse().map(({ name, lower, upper }, n) => {
    const [top, bottom] = [y(upper), y(lower)];
    if (lower === upper) {
      return [level("limit", width, top), caption("tick", width - RIGHT, top - 4, `${name} ${points(upper)}`, "end")];
    }
    const title = draw("title", {}, `${name}: ${points(upper - lower)} points around the mean`);
    const place = { x: LEFT, width: width - LEFT - RIGHT, y: top, height: bottom - top };
    return draw("rect", { class: `band band${n}`, ...place }, title);
  });
  return [drawn, middle !== null && level("mean", width, y(middle))];
}

/** @type {(bar: Bar, slot: number, y: Scale, turned: boolean) => Child} */
function drawn({ broker, x }, slot, y, turned) {
  return draw(
    "g",
    { class: `broker ${broker.band}${broker.left_out ? " left-out" : ""}`, "data-broker": broker.name },
    draw("title", {}, described(broker)),
    broker.score === null ? caption("value", x, y(0) - 6, "?") : load(broker, broker.score, x, slot, y),
    named(broker.label, x, y(0) + 14, turned),
  );
}

/** @type {(broker: BrokerView, score: number, x: number, slot: number, y: Scale) => Child} */
function load({ deciding, after }, score, x, slot, y) {
  const wide = Math.min(38, slot * 0.62);
  const place = after !== null && { x1: x - wide / 2 - 4, x2: x + wide / 2 + 4, y1: y(after), y2: y(after) };
  return [
    column("score", x - wide / 2, wide, score, y),
    place && draw("line", { class: "after", ...place }),
    caption("value", x, y(score) - 6, points(score, slot < 34 ? 0 : 1)),
    slot >= 70 && caption("counts", x, y(score) - 19, words(deciding)),
  ];
}

/** @type {(kind: string, x: number, width: number, score: number, y: Scale, ...children: Node[]) => SVGElement} */
function column(kind, x, width, score, y, ...children) {
  return draw("rect", { class: kind, x, width, y: y(score), height: y(0) - y(score) }, children);
}

/** @type {(label: string, x: number, y: number, turned: boolean) => Child} */
function named(label, x, y, turned) {
  const text = label.length > 18 ? `…${label.slice(-17)}` : label;
  if (!turned) return caption("name", x, y + 2, text);
  const place = { x: x + 4, y, transform: `rotate(-42 ${x + 4} ${y})` };
  return draw("text", { class: "name", "text-anchor": "end", ...place }, text);
}

/** @type {(rest: { brokers: BrokerView[], from: number, to: number }, y: Scale) => Child} */
function others({ brokers, from, to }, y) {
  const step = (to - from) / brokers.length;
  const width = Math.max(0.6, step * 0.8);
  return draw(
    "g",
    { class: "rest" },
    brokers.map((broker, n) => {
      const title = draw("title", {}, described(broker));
      return column(`score ${broker.band}`, from + step * n, width, broker.score ?? 0, y, title);
    }),
    caption("tick", (from + to) / 2, y(0) + 16, `${brokers.length} more`),
  );
}

/**
 * Return what is known about a broker, one fact per line.
 * @param {BrokerView} broker
 */
export function described(broker) {
  const score = broker.score === null ? "no report" : `score ${points(broker.score)} %, ${words(broker.deciding)}`;
  return [broker.name, score, ...remarks(broker)].join("\n");
}

/** @param {BrokerView} broker */
export function range({ lowest, highest }) {
  return lowest === null ? "–" : `${points(lowest)} to ${points(highest)}`;
}

/** @param {BrokerView} broker */
export function remarks({ left_out: out, drained }) {
  return drained ? [`drained ${drained}`] : out ? [`left out: ${out}`] : [];
}

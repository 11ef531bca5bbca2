// Pairs whose gap counts, with their hits as dots; under other strategies the brokers that were examined.

import { folded, make } from "./dom.js";
import { points, several } from "./texts.js";

/** @import { HitsView, Overview, PairView } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */

const UNFOLDED = 6;
const MOST_DOTS = 12;

/** @type {(view: Overview, short: (name: string) => Child) => Child} */
export function pairs(view, short) {
  const { pairs, close_pairs: close, hits } = view;
  if (!pairs.length && !close) return [];
  /** @param {PairView[]} some */
  const list = (some) => make("ol", { class: "pairs" }, some.map((pair) => row(pair, view, short)));
  const noun = view.status.pairing ? "pair" : "broker";
  const folds = pairs.slice(UNFOLDED);
  return [
    heading(noun, pairs.length, close),
    hits && make("p", { class: "hits" }, "Runs in a row that found the cluster unbalanced: ", dots("cluster", hits)),
    pairs.length > 0 && list(pairs.slice(0, UNFOLDED)),
    folds.length > 0 && folded("pairs", several(folds.length, `more ${noun}`), list(folds)),
  ];
}

/** @type {(noun: string, count: number, close: number) => Child} */
function heading(noun, count, close) {
  if (!count) {
    const text = `${several(close, noun)} examined: no move needed.`;
    return [make("h2", {}, noun === "pair" ? "Pairs" : "Brokers"), make("p", { class: "empty" }, text)];
  }
  const others = close > 0 && make("small", {}, ` ${several(close, `other ${noun}`)}: no move needed`);
  return make("h2", {}, noun === "pair" ? "Pairs too far apart" : "Brokers examined", others);
}

/** @type {(pair: PairView, view: Overview, short: (name: string) => Child) => HTMLElement} */
function row(pair, view, short) {
  const { source, destination, gap } = pair;
  const arrow = make("span", { class: "arrow", role: "img", "aria-label": "to" }, " → ");
  return make(
    "li",
    { class: pair.band },
    make("div", { class: "who" }, short(source), destination && destination !== source && [arrow, short(destination)]),
    make("div", { class: "gap" }, gap === null ? "" : `${points(gap)} apart`),
    make("div", { class: "hits" }, Object.entries(pair.hits).map(([kind, hits]) => dots(kind, hits))),
    make("div", { class: "soon" }, pair.fired ? "fired" : soon(fireTime(pair, view), view.firing, pair.overdue)),
    pair.explanation && make("p", { class: "why" }, pair.explanation),
  );
}

/** @type {(at: string | null, firing: string, overdue: string) => Child} */
function soon(at, firing, overdue) {
  const words = { "data-before": `${firing} in about `, "data-over": `${firing} ${overdue}` };
  return at && make("span", { "data-until": at, ...words });
}

/**
 * Return when a pair fires if its gap stays; null if unknown.
 * @param {Pick<PairView, "seconds_to_fire">} pair
 * @param {Pick<Overview, "firing" | "sampled_at" | "of_one_run">} view
 */
export function fireTime({ seconds_to_fire: seconds }, { firing, sampled_at: sampled, of_one_run: past }) {
  if (seconds === null || !sampled || !firing || past) return null;
  return new Date(Date.parse(sampled) + seconds * 1000).toISOString();
}

/** @type {(kind: string, hits: HitsView) => HTMLElement} - dots, or text if there are too many to count */
function dots(kind, { have, need }) {
  const text = `${Math.min(have, need)} of ${several(need, `${kind} hit`)}`;
  if (need > MOST_DOTS) return make("span", { class: "pips" }, text);
  const drawn = "●".repeat(Math.min(have, need)) + "○".repeat(Math.max(0, need - have));
  const image = make("span", { role: "img", title: text, "aria-label": text }, drawn);
  return make("span", { class: `pips ${kind}` }, image, make("small", {}, kind));
}

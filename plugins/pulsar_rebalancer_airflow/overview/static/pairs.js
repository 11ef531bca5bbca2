// Pairs whose gap counts, with their hits as pips; with another strategy the brokers that it looked at.

import { draw, make, points, several } from "./dom.js";

const FIRST = 6;

export function pairs(view, labels) {
  const counting = view.status.strategy === "AvgShedder";
  const noun = counting ? "pair" : "broker";
  const rest = view.close_pairs
    ? `${several(view.close_pairs, `other ${noun}`)} ${view.close_pairs === 1 ? "needs" : "need"} nothing`
    : "";
  const title = make(
    "h2",
    {},
    counting ? "Pairs that differ too much" : "What was looked at",
    make("small", {}, ` ${rest}`),
  );
  const whole = view.hits &&
    make("p", { class: "hits" }, "The whole cluster out of balance: ", pips("cluster", view.hits));
  if (!view.pairs.length) {
    if (!view.close_pairs) return [];
    return [
      make("h2", {}, counting ? "Pairs" : "Brokers looked at"),
      make("p", { class: "empty" }, `${several(view.close_pairs, noun)} looked at: none needs anything.`),
      whole,
    ];
  }
  const list = (some) => make("ol", { class: "pairs" }, some.map((pair) => row(pair, labels, view)));
  const more = view.pairs.slice(FIRST);
  return [
    title,
    whole,
    list(view.pairs.slice(0, FIRST)),
    more.length > 0 &&
    make(
      "details",
      { "data-key": "pairs" },
      make("summary", { "data-key": "more pairs" }, several(more.length, `more ${noun}`)),
      list(more),
    ),
  ];
}

function row(pair, labels, view) {
  const short = (name) => labels.get(name) ?? name;
  const both = pair.destination && pair.destination !== pair.source
    ? [
      make("span", { title: pair.source }, short(pair.source)),
      make("span", { class: "arrow", "aria-label": "to" }, " → "),
      make("span", { title: pair.destination }, short(pair.destination)),
    ]
    : make("span", { title: pair.source }, short(pair.source));
  return make(
    "li",
    { class: pair.band },
    make("div", { class: "who" }, both),
    make("div", { class: "gap" }, pair.gap === null ? "" : `${points(pair.gap)} apart`),
    make("div", { class: "hits" }, Object.entries(pair.hits).map(([kind, hits]) => pips(kind, hits))),
    make("div", { class: "soon" }, soon(pair, view)),
    make("p", { class: "why" }, pair.explanation || pair.meaning),
  );
}

function soon(pair, { firing, sampled_at: sampled, of_one_run: past }) {
  if (pair.fired) return "fired";
  if (pair.seconds_to_fire === null || !firing || past) return "";
  const at = new Date(Date.parse(sampled) + pair.seconds_to_fire * 1000).toISOString();
  return [`${firing} in about `, make("span", { "data-until": at, "data-over": "a moment" })];
}

// Beyond a dozen a number says more than circles.
function pips(kind, { have, need }) {
  const said = `${Math.min(have, need)} of ${need} ${kind} hits`;
  if (need > 12) return make("span", { class: "pips" }, said);
  const circles = Array.from(
    { length: need },
    (_, n) => draw("circle", { cx: 6 + n * 13, cy: 6, r: 4.5, class: n < have ? "full" : "open" }),
  );
  return make(
    "span",
    { class: `pips ${kind}` },
    draw(
      "svg",
      { viewBox: `0 0 ${need * 13} 12`, width: need * 13, height: 12, role: "img", "aria-label": said },
      draw("title", {}, said),
      circles,
    ),
    make("small", {}, kind),
  );
}

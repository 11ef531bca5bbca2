// A plan and its outcome: what moves, which clients notice, what stays and why.

import { folded, make, table } from "./dom.js";
import { uiLink } from "./links.js";
import { ask } from "./server.js";
import { moment, points, several, traffic } from "./texts.js";

/** @import { MoveView, OutcomeView, Overview, PlanView, SplitView, StayView } from "./documents.d.ts" */
/** @import { Child, Column } from "./elements.d.ts" */
/** @typedef {(name: string) => Child} Short - name of a broker */

const DRAINED = "No bundle moves now. Once the plan is carried out, the drained brokers get no more bundles.";
const PERMANENT = "A split is permanent: Pulsar cannot merge bundles.";

/** @type {(view: PlanView | null, short: Short, title: string, dag: string, documents: string) => Child} */
export function plan(view, short, title, dag, documents) {
  if (!view) return [];
  const { folder, bundles, splits, brokers, unknown, run_id: run } = view;
  return [
    make("h2", {}, title, make("small", {}, origin(view))),
    unknown.length > 0 && make("p", { class: "warn" }, `No bundle matches: ${unknown.join(", ")}.`),
    (bundles + splits.length > 0 || view.has_effect) && make("p", {}, `${amounts(view)} ${predicted(view)}`),
    view.client_gap && make("p", { class: "client-gap" }, view.client_gap),
    progress(view),
    splitList(view),
    bundles > 0 && moves(view, short),
    brokers.length > 0 && folded(`ends ${folder}`, "Prediction per broker", ends(view, short)),
    stay(view, `${documents}/plans/${encodeURIComponent(folder)}/stay`, short),
    aboutSplits(view),
    run && make("p", { class: "more" }, uiLink(`${dag}/runs/${encodeURIComponent(run)}`, "The run in Airflow")),
  ];
}

/**
 * Return a function that shows a broker by the short form of its name.
 * @param {Overview} view
 * @returns {Short}
 */
export function shortNames({ brokers }) {
  const labels = new Map(brokers.map(({ name, label }) => [name, label]));
  return (name) => make("span", { title: name }, labels.get(name) ?? name);
}

/** @param {PlanView} view */
function origin({ collected_at: at, hash, by, verdict, until }) {
  return [
    [` made at ${moment(at)}, hash `, make("code", { title: hash }, hash.slice(0, 12))],
    by && ` · ${by}`,
    !verdict && ` · valid until ${moment(until)}`,
  ];
}

/** @param {PlanView} view */
export function amounts({ bundles, splits, traffic: rate, measure, topics, clients, has_effect: drains }) {
  if (!bundles && !splits.length) return drains ? DRAINED : "No bundle moves.";
  const parts = [
    bundles > 0 && `${several(bundles, "bundle")} with ${traffic(rate, measure)}`,
    splits.length > 0 && `${several(splits.length, "bundle")} split permanently`,
    `${several(clients, "client")} of ${several(topics, "topic")} must reconnect`,
  ];
  return `Total: ${parts.filter(Boolean).join("; ")}.`;
}

/** @param {PlanView} view */
export function predicted({ bundles, range_before: before, predicted_range: after }) {
  return bundles && after !== null ? `Range ${points(before)}, predicted ${points(after)}.` : "";
}

/** @param {PlanView} view */
function progress({ done, failed, ended_at: ended, bundles, splits, ...gate }) {
  const all = bundles + splits.length;
  if (!all || !gate.verdict) return null;
  if (gate.verdict.reason !== "open") return make("p", { class: "verdict" }, gate.verdict.meaning);
  const text = [failed && `${failed} not as planned`, ended && `ended at ${moment(ended)}`];
  const bar = make("progress", { max: all, value: done, "aria-label": "bundles done" });
  const words = [`${done} of ${all} done`, ...text.filter(Boolean)].join(", ");
  return make("div", { class: "progress" }, bar, make("span", {}, words));
}

/** @type {(view: PlanView, short: Short) => HTMLElement} */
function ends({ folder, brokers }, short) {
  return table(`scores ${folder}`, "Scores before the plan and predicted", brokers, [
    { title: "broker", cell: ({ name }) => short(name) },
    { title: "score", cell: ({ before }) => points(before) },
    { title: "predicted", cell: ({ after }) => points(after) },
  ]);
}

/** @type {(view: PlanView, short: Short) => Child} */
function moves({ folder, measure, moves, more }, short) {
  const reasons = new Set(moves.map(({ why }) => why));
  /** @type {Column<MoveView>[]} */
  const columns = [
    { title: "bundle", cell: ({ planned }) => planned.bundle },
    { title: "from", cell: ({ planned }) => short(planned.source) },
    { title: "to", cell: ({ planned }) => short(planned.destination) },
    { title: "rate", cell: ({ planned }) => traffic(planned.traffic, measure) },
    { title: "topics", cell: ({ topics }) => topics },
    { title: "clients", cell: ({ clients }) => clients },
    { title: "reason", cell: ({ why }) => why, kind: "text", shown: reasons.size > 1 },
    { title: "outcome", cell: (move) => [result(move), " ", make("small", {}, move.client_gap)], kind: "text" },
  ];
  return [
    reasons.size === 1 && make("p", {}, ...reasons),
    table(`moves ${folder}`, "Bundles of the plan", moves, columns, ({ ended }) => ended?.ok === false ? "failed" : ""),
    more > 0 && make("p", { class: "more" }, `and ${several(more, "bundle")} more`),
  ];
}

/** @param {MoveView | SplitView} row */
function result({ ended }) {
  return ended && make("span", { title: [ended.meaning, ended.error].filter(Boolean).join("\n") }, outcome(ended));
}

/**
 * Return the splits of a plan as sentences, with their outcomes; null if it has none.
 * @param {PlanView} view
 */
export function splitList({ splits }) {
  if (!splits.length) return null;
  const items = splits.map((split) => make("li", {}, splitText(split), " ", result(split)));
  return [make("p", { class: "warn" }, PERMANENT), make("ul", { class: "stay" }, items)];
}

/**
 * Return what a split does, as a sentence.
 * @param {SplitView} split
 */
export function splitText({ topics, clients, why, planned: { bundle, broker, unload, ...cut } }) {
  const positions = cut.positions.map((position) => `0x${position.toString(16).padStart(8, "0")}`);
  const shares = cut.shares.map((share) => `${Math.round(100 * share)} %`).join(", ");
  const reason = why ? ` (${why})` : "";
  const disturbs = unload
    ? `${several(clients, "client")} of ${several(topics, "topic")} must reconnect`
    : "no client reconnects";
  return `Split ${bundle} on ${broker}${reason} at ${positions.join(", ")} into ${shares} of its traffic; ${disturbs}.`;
}

/** @param {OutcomeView} ended */
export function outcome({ reason, ok, seconds }) {
  const took = seconds >= 0.05 ? `, ${points(seconds)} s` : ok ? ", < 0.1 s" : "";
  return `${ok ? "✓" : "✗"} ${reason}${took}`;
}

/** @type {(view: PlanView, path: string, short: Short) => Child} */
function stay({ folder, stay }, path, short) {
  if (!stay.length) return null;
  const all = stay.reduce((sum, { count }) => sum + count, 0);
  const reasons = stay.map(({ reason, meaning, count }) =>
    make("li", {}, make("b", {}, count.toLocaleString("en")), ` ${meaning} `, make("code", {}, reason))
  );
  const names = folded(`names ${folder}`, "Their names", make("p", { class: "empty", role: "status" }, "Loading…"));
  const show = async () => {
    if (!names.open) return;
    const unread = (/** @type {Error} */ { message }) => make("p", { class: "empty" }, message);
    names.lastChild?.replaceWith(await ask(path).then((named) => stayTable(folder, named, all, short), unread));
  };
  names.addEventListener("toggle", show);
  const title = `Why ${several(all, "bundle")} stay${all === 1 ? "s" : ""}`;
  return folded(`stay ${folder}`, title, make("ul", { class: "stay" }, reasons), names);
}

/** @type {(key: string, bundles: StayView[], all: number, short: Short) => HTMLElement} */
export function stayTable(key, bundles, all, short) {
  const more = all - bundles.length;
  const drawn = table(`staying ${key}`, "Bundles that stay", bundles, [
    { title: "bundle", cell: ({ bundle }) => bundle },
    { title: "broker", cell: ({ broker }) => short(broker) },
    { title: "stays because", cell: ({ meaning, reason }) => [meaning, " ", make("code", {}, reason)], kind: "text" },
  ]);
  return make("div", {}, drawn, more > 0 && make("p", { class: "more" }, `and ${several(more, "bundle")} more`));
}

/** @param {PlanView} view */
function aboutSplits({ folder, about_splits: sentences }) {
  if (!sentences.length) return null;
  const items = sentences.map((sentence) => make("li", {}, sentence));
  return folded(`about splits ${folder}`, "About splits", make("ul", { class: "stay" }, items));
}

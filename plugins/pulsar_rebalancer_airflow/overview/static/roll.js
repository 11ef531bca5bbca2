// Brokers that are drained; and a rolling restart: its form, the dry run as a table with the button that starts it, and
// its progress.

import { choices, offer, started } from "./dialog.js";
import { make, table } from "./dom.js";
import { stayTable } from "./plan.js";
import { points, several, traffic } from "./texts.js";

/** @import { Act, Page, Parts } from "./dialog.js" */
/** @import { BrokerView, DrainView, Overview, RollView, RunAnswer } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @import { Short } from "./plan.js" */

/** @type {(view: Overview, page: Page) => Act[]} */
export function restart({ brokers, acts: { roll: dag }, of_one_run: past }, page) {
  return !dag || past ? [] : [{
    ...{ name: "Restart", title: "Restart brokers one by one", dag, noRoll: true },
    hint: "Each is drained, restarted by you or roll_restart_dag, and gets its bundles back. Tick none to restart all.",
    fields: (given) => {
      const described = (/** @type {BrokerView} */ { name, score, bundles }) =>
        `${name}: score ${points(score)}, ${several(bundles, "bundle")}`;
      const known = new Map(brokers.map((broker) => [broker.name, described(broker)]));
      return choices("Brokers", "broker", [...known.keys()], (name) => known.get(name) ?? name, given);
    },
    request: () =>
      started(dag, "Plan restart", (form) => {
        const ticked = form.getAll("broker");
        return { brokers: ticked.length === brokers.length ? [] : ticked, reason: form.get("reason") };
      }),
    planned: (parts, answer) => show(parts, answer, dag, page),
  }];
}

/** @type {(parts: Parts, answer: RunAnswer, dag: string, page: Page) => void} */
function show(parts, { text, restarts: shown }, dag, page) {
  if (!shown) return;
  const { plan, refused, waits, restarts, minutes, moves_twice: twice } = shown;
  const sum = `About ${points(minutes, 0)} minutes plus the restarts themselves; ${
    several(twice, "bundle")
  } must move twice.`;
  const why = refused ? `A start would be refused now: ${refused}.` : waits && `A start would first wait for ${waits}.`;
  const order = table("restarts", "The order of the restarts", restarts, [
    { title: "order", cell: ({ broker }) => restarts.findIndex((each) => each.broker === broker) + 1 },
    { title: "broker", cell: ({ broker }) => broker },
    { title: "score", cell: ({ score }) => points(score) },
    { title: "traffic", cell: (turn) => traffic(turn.traffic) },
    { title: "bundles that move twice", cell: ({ bundles }) => bundles },
    { title: "minutes", cell: ({ minutes }) => points(minutes, 0) },
    { title: "remark", cell: ({ why_not: why }) => why && `not possible now: ${why}`, kind: "text" },
  ]);
  const drawn = [make("p", {}, sum), make("p", { class: "warn" }, why), order];
  const act = { name: "Restart", label: "Start", dag, request: () => started(dag, "Restart", () => ({ plan })) };
  const start = offer(parts, drawn, text, act, page);
  start.disabled = refused !== "";
  start.focus();
}

/** @type {(shown: RollView | null) => Child} */
export function roll(shown) {
  if (!shown) return [];
  const { text, turns } = shown;
  const done = turns.filter(({ state }) => state === "done" || state === "skipped").length;
  const bar = make("progress", { value: done, max: turns.length, "aria-label": "brokers done" });
  return [
    make("h2", {}, "Rolling restart"),
    make("p", {}, bar, ` ${text}`),
    table("turns", "Brokers of the rolling restart", turns, [
      { title: "broker", cell: ({ broker }) => broker },
      { title: "state", cell: ({ state }) => state === "restart now" ? make("b", { class: "warn" }, state) : state },
      { title: "remark", cell: ({ detail }) => detail, kind: "text" },
    ]),
  ];
}

/** @type {(all: DrainView[], short: Short) => Child} */
export function drains(all, short) {
  if (!all.length) return [];
  const items = all.map((drain) => [
    make("p", {}, make("b", {}, short(drain.broker)), ` ${drain.drained} — ${left(drain)}`),
    drain.left.length > 0 && stayTable(drain.broker, drain.left, drain.left.length + drain.more, short),
  ]);
  return [make("h2", {}, "Drained brokers"), items];
}

/** @param {DrainView} drain */
export function left({ bundles, moving, gone, left, more }) {
  if (bundles === null) return "its bundles are not known yet.";
  if (!bundles) return "no bundle remains.";
  const stay = left.length + more;
  if (stay) return `${stay} of ${several(bundles, "bundle")} remain:`;
  if (moving) return `${several(moving, "bundle")} ${moving === 1 ? "leaves" : "leave"} with this run.`;
  const arrived = bundles - gone;
  return [
    gone && `${several(gone, "bundle")} ${gone === 1 ? "has" : "have"} left`,
    arrived && `${several(arrived, "bundle")} just arrived; a later run moves ${arrived === 1 ? "it" : "them"}`,
  ].filter(Boolean).join("; ") + ".";
}

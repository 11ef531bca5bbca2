// A rolling restart: its form, the dry run as a table with the button that starts it, and its progress.

import { ended } from "./by_hand.js";
import { choices, offer, openDialog, sender, started } from "./dialog.js";
import { make, table } from "./dom.js";
import { Refusal } from "./server.js";
import { points, several, traffic } from "./texts.js";

/** @import { Page } from "./acts.js" */
/** @import { Parts } from "./dialog.js" */
/** @import { BrokerRestart, Overview, RollView, RunAnswer, TurnView } from "./documents.d.ts" */
/** @import { Child, Column } from "./elements.d.ts" */

/**
 * @type {(view: Overview, page: Page) =>
 *   { name: string, dag: string, noRoll: boolean, open: (given?: string) => void }[]}
 */
export function restart(view, page) {
  const dag = view.acts.roll;
  return dag && !view.of_one_run
    ? [{ name: "Restart", dag, noRoll: true, open: (given = "") => open(view, page, given) }]
    : [];
}

/** @type {(view: Overview, page: Page, given: string) => void} */
function open({ brokers, acts: { roll: dag } }, page, given) {
  const names = brokers.map(({ name }) => name);
  const known = brokers.map(({ name, score, bundles }) =>
    `${name}: score ${points(score)}, ${several(bundles, "bundle")}`
  );
  const request = () =>
    started(dag, "Plan restart", (form) => {
      const ticked = form.getAll("broker"); // all of them: the leader goes last
      return { brokers: ticked.length === names.length ? [] : ticked, reason: form.get("reason") };
    });
  const sendOnce = sender(request, page.base);
  const words = { name: "Restart", title: "Restart brokers one by one", kind: "wide", cancel: "Close" };
  const hint = "Each is drained, restarted by you or by roll_restart_dag, and gets its bundles back.";
  const fields = choices("Brokers", "broker", names, (name) => known[names.indexOf(name)] ?? name, given);
  openDialog({ ...words, hint, fields, confirm: "Make the plan" }, async (form, parts) => {
    if (!form.has("broker")) throw new Refusal(422, "", { broker: "Choose at least one broker." });
    show(parts, await ended(parts, page.base, dag, await sendOnce(form)), dag, page);
  });
}

/** @type {(parts: Parts, answer: RunAnswer, dag: string, page: Page) => void} */
function show(parts, { text, restarts: shown }, dag, page) {
  if (!shown) return;
  const { plan, refused, waits, restarts, minutes, moves_twice: twice } = shown;
  /** @type {Column<BrokerRestart>[]} */
  const columns = [
    { title: "order", cell: ({ broker }) => restarts.findIndex((each) => each.broker === broker) + 1 },
    { title: "broker", cell: ({ broker }) => broker },
    { title: "score", cell: ({ score }) => points(score) },
    { title: "traffic", cell: (turn) => traffic(turn.traffic) },
    { title: "bundles that move twice", cell: ({ bundles }) => bundles },
    { title: "minutes", cell: ({ minutes }) => points(minutes, 0) },
    { title: "remark", cell: ({ why_not: why }) => why && `not possible now: ${why}`, kind: "text" },
  ];
  const sum = `About ${points(minutes, 0)} minutes and the restarts themselves; ${
    several(twice, "bundle")
  } move twice.`;
  const why = refused ? `It would be refused now: ${refused}.` : waits && `It would first wait for ${waits}.`;
  const order = table("restarts", "The order of the restarts", columns, restarts);
  const drawn = [make("p", {}, sum), make("p", { class: "warn" }, why), order];
  const act = { name: "Restart", label: "Start", dag, request: () => started(dag, "Restart", () => ({ plan })) };
  const start = offer(parts, drawn, text, act, page);
  start.disabled = refused !== "";
  start.focus();
}

/** @type {(shown: RollView | null) => Child} */
export function roll(shown) {
  if (!shown) return [];
  const { text, done, total, turns } = shown;
  const bar = make("progress", { value: done, max: total, "aria-label": "brokers done" });
  /** @type {Column<TurnView>[]} */
  const columns = [
    { title: "broker", cell: ({ broker }) => broker },
    { title: "state", cell: ({ state }) => state === "restart now" ? make("b", { class: "warn" }, state) : state },
    { title: "remark", cell: ({ detail }) => detail, kind: "text" },
  ];
  return [
    make("h2", {}, "Rolling restart"),
    make("p", {}, bar, ` ${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`),
    table("turns", "Brokers of the rolling restart", columns, turns),
  ];
}

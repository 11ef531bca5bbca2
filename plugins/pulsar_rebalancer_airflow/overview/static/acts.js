// The acts that the user may do. Each starts a DAG run, or answers the question of one, through Airflow's own API and
// with the user's session.

import { dagPath } from "./address.js";
import { manual } from "./by_hand.js";
import { choices, open, select, started, TEXT } from "./dialog.js";
import { disabled, notCarriedOut, own, pausedText, planAgain } from "./disabled.js";
import { make } from "./dom.js";
import { amounts, predicted, splitList } from "./plan.js";
import { restart } from "./roll.js";
import { ask, Refusal } from "./server.js";
import { moment } from "./texts.js";

/** @import { Act, Page } from "./dialog.js" */
/** @import { FoundBundles, OrderButton, Overview, PlanView, QuestionView } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */

/** The buttons, in their order, with the orders of the group at ORDERS; others are next to what they help against. */
const ORDERS = "";
const GROUPS = {
  Now: ["Carry out", ORDERS, "Balance now"],
  Brokers: ["Drain", "Fill", "Release", "Restart", ORDERS],
  Bundles: ["Unload", "Split", ORDERS, "Undo run"],
};
/** @type {Record<string, string>} - by minutes */
const LENGTHS = { 15: "15 minutes", 60: "an hour", 240: "four hours", 1440: "a day", 10080: "a week" };
const GAP = { name: "gap", type: "number", min: 0, max: 1000, step: "any", placeholder: "the low threshold" };

/**
 * Return all acts that the user may do, why some are disabled, and a function that draws the buttons of those named.
 * @param {Overview} view
 * @param {Page} page
 */
export function known(view, page) {
  const simple = view.of_one_run ? carryOut(view, page.dag, page.now()) : offered(view, page);
  const all = [...simple, ...manual(view, page), ...restart(view, page)];
  const reasons = [...new Set([...view.acts.paused_dags.map(pausedText), ...all.map((act) => disabled(act, view))])];
  const button = (/** @type {Act} */ act, given = "") => {
    const [label, why] = [`${act.name}…`, disabled(act, view)];
    const off = why && { disabled: true, title: why, "aria-describedby": `off-${reasons.indexOf(why)}` };
    const key = {
      "data-key": `act ${label}${given && ` ${given}`}`,
      "aria-label": given && `${label} ${given}` || null,
    };
    return make("button", { type: "button", ...key, onclick: () => open(act, page, given), ...off }, label);
  };
  const buttons = (/** @type {string[]} */ names, given = "") =>
    names.flatMap((name) => all.filter((act) => act.name === name && !act.again).map((act) => button(act, given)));
  return { reasons, buttons };
}

/** @type {(view: Overview, page: Page) => Child} */
export function acts(view, page) {
  const { reasons, buttons } = known(view, page);
  const groups = Object.entries(GROUPS).map(([group, names]) => {
    const named = (/** @type {string} */ name) =>
      name === ORDERS ? view.acts.orders.filter((each) => each.group === group).map((each) => each.button) : [name];
    const drawn = buttons(names.flatMap(named));
    const label = make("b", { "aria-hidden": "true" }, group);
    return drawn.length > 0 && make("div", { role: "group", "aria-label": group }, label, drawn);
  });
  return [...groups, ...reasons.map((why, n) => why && make("p", { class: "more", id: `off-${n}` }, why))];
}

/**
 * Return what the buttons and their forms show; if it changes, they are drawn again.
 * @param {Overview} view
 * @param {number} now
 */
export function neededFor(view, now) {
  const { awaiting, plan, moved, brokers, drains } = view;
  const plans = [awaiting, plan].map((shown) => shown && [shown.hash, shown.ended_at]);
  const names = [brokers.map(({ name }) => name).sort(), drains.map(({ broker }) => broker)];
  const { pairing, attention } = view.status;
  return [view.acts, pairing, attention, plans, moved, names, plan && planAgain(plan, view, view, now)];
}

/**
 * Return the acts that the user may do, in the order of their buttons.
 * @type {(view: Overview, page: Page) => Act[]}
 */
export function offered(view, page) {
  const { control, rebalance, by_hand, question, orders } = view.acts;
  const acts = [
    question && inQuestion(view) && answer("Approve", "Carry out this plan", view, question),
    question && answer("Reject", "Reject this plan", view, question),
    ...orders.map((button) => order(control, button, page, view.roll?.stop)),
    rebalance && balance(rebalance, view.status.pairing),
    by_hand && view.drains.length > 0 && release(by_hand, view.drains.map(({ broker }) => broker)),
  ];
  return acts.filter((act) => !!act);
}

/**
 * Return the act of an order; `stop` says what stopping a rolling restart does to the broker at hand.
 * @type {(dag: string, button: OrderButton, page: Page, stop?: string) => Act}
 */
function order(dag, { name: action, button: name, title, hint, until, subject, proposed }, page, stop) {
  return {
    ...{ dag, name, title, hint: action === "stop_roll" && stop || hint },
    fields: () => [
      subject && make("label", {}, `Give ${subject} `, make("input", { name: "subject", ...TEXT, value: proposed })),
      until && select("For", "minutes", Object.keys(LENGTHS), (minutes) => LENGTHS[minutes] ?? "", "60"),
      until && make("label", {}, "Or until, local time ", make("input", { name: "until", type: "datetime-local" })),
    ],
    check: action === "freeze" ? hasBundles(page) : undefined,
    request: () =>
      started(dag, name, (form) => ({
        ...{ action, reason: form.get("reason") },
        ...(subject ? { subject: form.get("subject") } : {}),
        ...(until ? { until: endOf(form, page.now()) } : {}),
      })),
  };
}

/**
 * Return a check that refuses a namespace without bundles, but only once: it may be about to be created.
 * @type {(page: Page) => (form: FormData) => Promise<void>}
 */
function hasBundles({ base, dag }) {
  let known = "";
  return async (form) => {
    const start = `${form.get("subject")}/`;
    /** @type {FoundBundles | null} - an order must not depend on the files of runs */
    const found = await ask(`${base}${dagPath(dag)}/bundles?part=${encodeURIComponent(start)}`).catch(() => null);
    if (start === known || !found || found.bundles.some(({ bundle }) => bundle.startsWith(start))) return;
    known = start;
    throw new Refusal(422, "", { subject: "No bundle has this namespace. To freeze it anyway, press Freeze again." });
  };
}

/**
 * Return the act that carries out the plan of the dry run on the page, for people who did not make it.
 * @type {(view: Overview, run_of: string, now: number) => Act[]} - `run_of`: DAG of the run on the page
 */
export function carryOut(view, run_of, now) {
  const { plan, acts: { by_hand: dag } } = view;
  if (!plan || !dag || run_of !== dag) return [];
  const again = planAgain(plan, view, view, now);
  return [{
    ...{ dag, name: "Carry out", title: "Carry out this plan", hint: amounts(plan), fields: () => splitList(plan) },
    ...{ optional: true, moves: true, waits: plan.marks_drains, noRoll: true },
    ...{ off: again || notCarriedOut(plan, view), again: again !== "" },
    request: () => started(dag, "Carry out", (form) => ({ plan: plan.hash, reason: form.get("reason") })),
  }];
}

/** @type {(dag: string, pairing: boolean) => Act} */
function balance(dag, pairing) {
  return {
    ...{ dag, name: "Balance now", title: "Balance now, without waiting for hits" },
    hint: "Mode, caps, pauses and validation still apply.",
    fields: pairing ? () => make("label", {}, "For gaps of at least ", make("input", GAP), " points") : undefined,
    request: () =>
      started(dag, "Balance now", (form) => {
        const gap = form.get("gap") ? { force_threshold: Number(form.get("gap")) } : {};
        return { force: form.get("reason"), ...gap };
      }),
  };
}

/** @type {(dag: string, names: string[]) => Act} */
function release(dag, names) {
  return {
    ...{ dag, name: "Release", title: "Release drained brokers", hint: "The brokers get bundles again.", noRoll: true },
    fields: (given) => choices("Brokers", "broker", names, String, names.length === 1 ? names[0] : given),
    request: () =>
      started(dag, "Release", (form) => ({
        ...{ action: "release", broker: form.getAll("broker"), reason: form.get("reason") },
      })),
  };
}

/**
 * Return the plan that awaits an answer; undefined if its moves and splits cannot be shown.
 * @param {Overview} view
 */
function inQuestion({ awaiting, plan, acts }) {
  const asked = [awaiting, plan].find((shown) => shown?.hash === acts.question?.hash);
  return asked && asked.bundles + asked.splits.length ? asked : undefined;
}

/** @type {(option: string, title: string, view: Overview, question: QuestionView) => Act} */
function answer(option, title, view, { dag, run, task, until }) {
  const [asked, approves] = [inQuestion(view), option === "Approve"];
  const what = asked
    ? `${amounts(asked)} ${predicted(asked)} `
    : "The plan's bundles cannot be shown, so the plan can only be rejected. ";
  const path = `dagRuns/${encodeURIComponent(run)}/taskInstances/${encodeURIComponent(task)}/-1/hitlDetails`;
  return {
    ...{ dag, name: option, title },
    hint: `${what}Answer by ${moment(until)}.`,
    fields: () => asked && splitList(asked),
    optional: true,
    moves: approves,
    off: approves && asked && own(asked, view) ? "You requested this plan, so another person must approve it." : "",
    request: () => ({
      ...{ dag, run, path, method: "PATCH" },
      body: (form) => ({ chosen_options: [option], params_input: { reason: form.get("reason") } }),
    }),
  };
}

/** @type {(form: FormData, now: number) => string} */
function endOf(form, now) {
  const until = form.get("until");
  return new Date(until ? String(until) : now + Number(form.get("minutes")) * 60000).toISOString();
}

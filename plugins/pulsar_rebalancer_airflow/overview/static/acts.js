// The acts that the user may do. Each starts a DAG run, or answers the question of one, through Airflow's own API and
// with the user's session.

import { manual } from "./by_hand.js";
import { choices, openDialog, sender, started } from "./dialog.js";
import { disabled, notCarriedOut, own, pausedText, planAgain } from "./disabled.js";
import { make } from "./dom.js";
import { amounts, predicted, splitList } from "./plan.js";
import { restart } from "./roll.js";
import { moment } from "./texts.js";

/** @import { OrderButton, Overview, PlanView, ShownQuestion } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @import { Request } from "./dialog.js" */
/** @import { Sent } from "./sent.js" */
/**
 * @typedef {{ name: string, title: string, hint?: string, fields?: (given: string) => Child }} Words
 * @typedef {Words & { dag: string, moves?: boolean, waits?: boolean, noRoll?: boolean, optional?: boolean,
 *   off?: string, again?: boolean, request: () => Request }} Act - `moves`, `waits`, `noRoll`, `off`:
 *   as in `disabled`; `optional`: the reason may be empty; `again`: it has no button, as its plan has to be made again
 * @typedef {{ base: string, dag: string, now: () => number, present: () => Overview | undefined,
 *   follow: (sent: Sent) => void }} Page - `now`: by the server's clock, milliseconds
 */

/** The buttons, in their order, with the orders of the group at ORDERS; others are next to what they help against. */
const ORDERS = "";
const GROUPS = {
  Now: ["Carry out", ORDERS, "Balance now"],
  Brokers: ["Drain", "Fill", "Release", "Restart", ORDERS],
  Bundles: ["Unload", "Split", ORDERS, "Undo run"],
};
const LENGTHS = { 15: "15 minutes", 60: "an hour", 240: "four hours", 1440: "a day", 10080: "a week" };

/**
 * Return all acts that the user may do, why some are disabled, and a function that draws the buttons of those named.
 * @param {Overview} view
 * @param {Page} page
 */
export function known(view, page) {
  const simple = view.of_one_run ? carryOut(view, page.dag, page.now()) : offered(view, page.now);
  const all = [
    ...simple.map((act) => ({ ...act, open: (given = "") => open(act, page, given) })),
    ...manual(view, page),
    ...restart(view, page),
  ];
  const reasons = [...new Set([...view.acts.paused_dags.map(pausedText), ...all.map((act) => disabled(act, view))])];
  const button = (/** @type {(typeof all)[number]} */ act, given = "") => {
    const [label, why] = [`${act.name}…`, disabled(act, view)];
    const off = why && { disabled: true, title: why, "aria-describedby": `off-${reasons.indexOf(why)}` };
    const key = {
      "data-key": `act ${label}${given && ` ${given}`}`,
      "aria-label": given && `${label} ${given}` || null,
    };
    return make("button", { type: "button", ...key, onclick: () => act.open(given), ...off }, label);
  };
  const shown = all.filter((act) => !("again" in act && act.again));
  const buttons = (/** @type {string[]} */ names, given = "") =>
    names.flatMap((name) => shown.filter((act) => act.name === name).map((act) => button(act, given)));
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
 * Return what waits for a person, since when, and the buttons that help.
 * @param {Overview} view
 * @param {Page} page
 */
export function attention(view, page) {
  const { buttons } = known(view, page);
  return view.status.attention.map(({ text, since, acts }) => {
    const when = since && [` Since ${moment(since)}, `, make("span", { "data-since": since }), "."];
    return make("div", {}, make("p", {}, make("b", {}, text), when), buttons(acts));
  });
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

/** @type {(act: Act, page: Page, given: string) => void} */
function open(act, { base, follow }, given) {
  const sendOnce = sender(act.request, base);
  openDialog({ ...act, fields: act.fields?.(given) }, async (form, { dialog }) => {
    const run = await sendOnce(form);
    dialog.close();
    follow({ name: act.name, dag: act.dag, run });
  });
}

/**
 * Return the acts that the user may do, in the order of their buttons.
 * @param {Overview} view
 * @param {() => number} now
 * @returns {Act[]}
 */
export function offered(view, now) {
  const { control, rebalance, by_hand, question, orders } = view.acts;
  const acts = [
    question && inQuestion(view) && answer("Approve", "Carry out this plan", view, question),
    question && answer("Reject", "Reject this plan", view, question),
    ...orders.map((button) => order(control, button, now, view.roll?.stop)),
    rebalance && balance(rebalance, view.status.pairing),
    by_hand && release(by_hand, view),
  ];
  return acts.filter((act) => !!act);
}

/**
 * @param {string} dag
 * @param {OrderButton} button
 * @param {() => number} now
 * @param {string} [stop] - what stopping a rolling restart does to the broker at hand
 * @returns {Act}
 */
function order(dag, { name: action, button: name, title, hint, until, subject, proposed }, now, stop) {
  return {
    ...{ dag, name, title, hint: action === "stop_roll" && stop || hint },
    fields: () => [subject && subjectField(subject, proposed), until && untilField()],
    request: () =>
      started(dag, name, (form) => ({
        ...{ action, reason: form.get("reason") },
        ...(subject ? { subject: form.get("subject") } : {}),
        ...(until ? { until: endOf(form, now()) } : {}),
      })),
  };
}

/**
 * Return the act that carries out the plan of the dry run on the page, for people who did not make it.
 * @param {Overview} view
 * @param {string} run_of - DAG of the run on the page
 * @param {number} now
 * @returns {Act[]}
 */
export function carryOut(view, run_of, now) {
  const { plan, acts: { by_hand: dag } } = view;
  if (!plan || !dag || run_of !== dag) return [];
  const again = planAgain(plan, view, view, now);
  return [{
    dag,
    name: "Carry out",
    title: "Carry out this plan",
    hint: amounts(plan),
    fields: () => splitList(plan),
    optional: true,
    moves: true,
    waits: plan.marks_drains,
    noRoll: true,
    off: again || notCarriedOut(plan, view),
    again: again !== "",
    request: () => started(dag, "Carry out", (form) => ({ plan: plan.hash, reason: form.get("reason") })),
  }];
}

/** @type {(dag: string, pairing: boolean) => Act} */
function balance(dag, pairing) {
  return {
    dag,
    name: "Balance now",
    title: "Balance now, without waiting for hits",
    hint: "Mode, caps, pauses and validation still apply.",
    fields: pairing ? gapField : undefined,
    request: () =>
      started(dag, "Balance now", (form) => {
        const gap = form.get("gap") ? { force_threshold: Number(form.get("gap")) } : {};
        return { force: form.get("reason"), ...gap };
      }),
  };
}

/** @type {(dag: string, view: Overview) => Act | null} */
function release(dag, { drains }) {
  if (!drains.length) return null;
  const conf = (/** @type {FormData} */ form) => ({
    action: "release",
    broker: form.getAll("broker"),
    reason: form.get("reason"),
  });
  return {
    dag,
    name: "Release",
    title: "Release drained brokers",
    hint: "They take bundles again.",
    noRoll: true,
    fields: (given) => choices("Brokers", "broker", drains.map(({ broker }) => broker), String, given),
    request: () => started(dag, "Release", conf),
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

/** @type {(option: string, title: string, view: Overview, question: ShownQuestion) => Act} */
function answer(option, title, view, { dag, run, task, until }) {
  const [asked, approves] = [inQuestion(view), option === "Approve"];
  const what = asked
    ? `${amounts(asked)} ${predicted(asked)} `
    : "Its bundles cannot be shown, so it can only be rejected. ";
  const path = `dagRuns/${encodeURIComponent(run)}/taskInstances/${encodeURIComponent(task)}/-1/hitlDetails`;
  return {
    dag,
    name: option,
    title,
    hint: `${what}Answer by ${moment(until)}.`,
    fields: () => asked && splitList(asked),
    optional: true,
    moves: approves,
    off: approves && asked && own(asked, view) ? "You requested this plan, so another person must approve it." : "",
    request: () => ({
      dag,
      run,
      path,
      method: "PATCH",
      body: (form) => ({ chosen_options: [option], params_input: { reason: form.get("reason") } }),
    }),
  };
}

/** @type {(form: FormData, now: number) => string} */
function endOf(form, now) {
  const until = form.get("until");
  return new Date(until ? String(until) : now + Number(form.get("minutes")) * 60000).toISOString();
}

function untilField() {
  const options = Object.entries(LENGTHS).map(([minutes, text]) =>
    make("option", { value: minutes, selected: text === "an hour" }, text)
  );
  const until = make("input", { name: "until", type: "datetime-local", "aria-label": "until" });
  return make("label", {}, "For ", make("select", { name: "minutes" }, options), " or until ", until);
}

/** @type {(label: string, value: string) => Child} */
function subjectField(label, value) {
  const text = `${label[0]?.toUpperCase()}${label.slice(1)} `;
  return make("label", {}, text, make("input", { name: "subject", maxlength: 500, autocomplete: "off", value }));
}

function gapField() {
  const gap = { name: "gap", type: "number", min: 0, max: 1000, step: "any", placeholder: "the low threshold" };
  return make("label", {}, "For gaps from ", make("input", gap), " points");
}

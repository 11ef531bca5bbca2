// The acts that the user may do. Each starts a DAG run, or answers the question of one, through Airflow's own API and
// with the user's session.

import { airflowRoot } from "./address.js";
import { make } from "./dom.js";
import { amounts, FOR_EVER, splitText } from "./plan.js";
import { ask, Refusal } from "./server.js";
import { moment, points } from "./texts.js";

/** @import { Overview, PlanView, ShownQuestion } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/**
 * @typedef {{ dag: string, run: string, method: string, path: string, body: (form: FormData) => unknown }} Request
 * @typedef {{ name: string, title: string, hint?: string, fields?: () => Child }} Words
 * @typedef {Words & { dag: string, optional?: boolean, request: () => Request }} Act - `optional`: the reason may be
 *   empty
 * @typedef {{ name: string, dag: string, run: string }} Started
 */

const PAUSES = { 15: "15 minutes", 60: "an hour", 240: "four hours", 1440: "a day", 10080: "a week" };

/**
 * @param {Overview} view
 * @param {string} base
 * @param {() => number} now - by the server's clock, milliseconds
 * @param {(started: Started) => void} follow
 */
export function acts(view, base, now, follow) {
  const buttons = offered(view, now).map((act) => {
    const label = `${act.name}…`;
    const waits = view.acts.paused_dags.includes(act.dag);
    const why = waits && { disabled: true, title: paused(act.dag), "aria-describedby": `paused-${act.dag}` };
    const open = () => openDialog(act, base, follow);
    return make("button", { type: "button", "data-key": `act ${label}`, onclick: open, ...why }, label);
  });
  const reasons = view.acts.paused_dags.map((dag) => make("p", { class: "more", id: `paused-${dag}` }, paused(dag)));
  return [...buttons, ...reasons];
}

/** @param {string} dag */
export function paused(dag) {
  return `${dag} is paused in Airflow: its buttons work again when it is unpaused.`;
}

/**
 * Return the acts that the user may do, in the order of their buttons.
 * @param {Overview} view
 * @param {() => number} now
 * @returns {Act[]}
 */
export function offered(view, now) {
  const { control, rebalance, question, paused, skips, breaker } = view.acts;
  /** @type {(action: string, words: Words, conf?: (form: FormData) => object) => Act} */
  const order = (action, words, conf = () => ({})) => ({
    ...words,
    dag: control,
    request: () => started(control, (form) => ({ action, reason: form.get("reason"), ...conf(form) })),
  });
  const forPause = paused ? "Extend the pause" : "Pause all moves";
  const acts = [
    question && inQuestion(view) && answer("Approve", "Carry out this plan", view, question),
    question && answer("Reject", "Reject this plan", view, question),
    control && order("stop", {
      name: "Stop",
      title: "Start no more bundles",
      hint: "The current run starts no more bundles; those under way finish.",
    }),
    control && order(
      "pause",
      { name: "Pause", title: forPause, hint: "Runs still decide and explain.", fields: pauseFields },
      (form) => ({ until: pausedUntil(form, now()) }),
    ),
    control && (paused || skips) && order("resume", { name: "Resume", title: "End the pause and skip no run" }),
    control && !skips && order("skip", { name: "Skip next run", title: "The next run moves nothing" }),
    control && breaker && order("close_breaker", { name: "Close breaker", title: "Close the circuit breaker early" }),
    rebalance && balance(rebalance, view.status.pairing),
  ];
  return acts.filter((act) => !!act);
}

/**
 * @param {string} dag
 * @param {boolean} pairing
 * @returns {Act}
 */
function balance(dag, pairing) {
  return {
    dag,
    name: "Balance now",
    title: "Balance now, without waiting for hits",
    hint: "Mode, caps, pauses and validation still apply.",
    fields: pairing ? gapField : undefined,
    request: () =>
      started(dag, (form) => ({
        force: form.get("reason"),
        ...(form.get("gap") ? { force_threshold: Number(form.get("gap")) } : {}),
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

/** @param {PlanView} plan */
function predicted({ bundles, predicted_range: after, range_before: before }) {
  return bundles ? `Predicted range ${points(after)} after ${points(before)}. ` : "";
}

/** @param {PlanView} plan */
function splitList({ splits }) {
  if (!splits.length) return null;
  return [
    make("p", { class: "warn" }, FOR_EVER),
    make("ul", { class: "stay" }, splits.map((split) => make("li", {}, splitText(split)))),
  ];
}

/**
 * @param {string} option
 * @param {string} title
 * @param {Overview} view
 * @param {ShownQuestion} question
 * @returns {Act}
 */
function answer(option, title, view, { dag, run, task, hash, until }) {
  const asked = inQuestion(view);
  const what = asked
    ? `${amounts(asked)} ${predicted(asked)}`
    : "Its bundles cannot be shown, so it can only be rejected. ";
  const path = `dagRuns/${encodeURIComponent(run)}/taskInstances/${encodeURIComponent(task)}/-1/hitlDetails`;
  return {
    dag,
    name: option,
    title,
    hint: `Plan ${hash.slice(0, 12)}. ${what}Answer by ${moment(until)}.`,
    fields: () => asked && splitList(asked),
    optional: true,
    request: () => ({
      dag,
      run,
      path,
      method: "PATCH",
      body: (form) => ({ chosen_options: [option], params_input: { reason: form.get("reason") } }),
    }),
  };
}

/**
 * Return the request that starts a run. Each dialog has one run id, so Airflow refuses to start the run twice.
 * @param {string} dag
 * @param {(form: FormData) => object} conf
 * @returns {Request}
 */
function started(dag, conf) {
  // randomUUID() exists over HTTPS only.
  const run = `page__${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  const body = (/** @type {FormData} */ form) => ({ dag_run_id: run, logical_date: null, conf: conf(form) });
  return { dag, run, path: "dagRuns", method: "POST", body };
}

/**
 * @param {FormData} form
 * @param {number} now - milliseconds
 */
function pausedUntil(form, now) {
  const until = form.get("until");
  return new Date(until ? String(until) : now + Number(form.get("minutes")) * 60000).toISOString();
}

function pauseFields() {
  const options = Object.entries(PAUSES).map(([minutes, text]) =>
    make("option", { value: minutes, selected: text === "an hour" }, text)
  );
  const until = make("input", { name: "until", type: "datetime-local", "aria-label": "until" });
  return make("label", {}, "For ", make("select", { name: "minutes" }, options), " or until ", until);
}

function gapField() {
  const range = { type: "number", min: 0, max: 1000, step: "any" };
  return make(
    "label",
    {},
    "For gaps from ",
    make("input", { name: "gap", ...range, placeholder: "the low threshold" }),
    " points",
  );
}

/**
 * @param {Act} act
 * @param {string} base
 * @param {(started: Started) => void} follow
 */
function openDialog(act, base, follow) {
  const request = act.request();
  const said = make("p", { class: "said", role: "status" });
  const go = make("button", { type: "submit", class: "go" }, "Confirm");
  const reason = make("input", {
    name: "reason",
    required: !act.optional,
    placeholder: act.optional ? "optional" : "",
    maxlength: 500,
    autocomplete: "off",
  });
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    said.replaceChildren("Asking Airflow…");
    try {
      await send(request, new FormData(form), base);
      dialog.close();
      follow({ name: act.name, dag: request.dag, run: request.run });
    } catch (problem) {
      said.replaceChildren(problem instanceof Refusal ? problem.message : String(problem));
      go.disabled = false;
    }
  };
  const form = make(
    "form",
    { onsubmit: submit },
    make("h2", {}, act.title),
    act.hint && make("p", { class: "more" }, act.hint),
    act.fields?.(),
    make("label", {}, "Reason", reason),
    said,
    make("div", { class: "buttons" }, make("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go),
  );
  const closed = () => {
    dialog.remove();
    // The button may have been drawn again meanwhile.
    const button = document.querySelector(`[data-key="act ${act.name}…"]`);
    if (button instanceof HTMLElement) button.focus({ preventScroll: true });
  };
  const dialog = make("dialog", { "aria-label": act.title, onclose: closed }, form);
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}

/**
 * @param {Request} request
 * @param {FormData} form
 * @param {string} base
 * @throws {Refusal} Airflow refused the request
 */
async function send({ dag, path, method, body }, form, base) {
  try {
    const address = `${airflowRoot(base)}/api/v2/dags/${encodeURIComponent(dag)}/${path}`;
    await ask(address, { method, body: JSON.stringify(body(form)) });
  } catch (problem) {
    const conflict = problem instanceof Refusal && problem.status === 409;
    if (!conflict) throw problem;
    if (method === "PATCH") throw new Refusal(409, "Someone has already answered.");
    // The run was started by an earlier attempt whose answer got lost.
  }
}

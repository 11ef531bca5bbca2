// Dialogs with a form, and the requests that they send to Airflow's own API with the user's session.

import { airflowRoot, runPath } from "./address.js";
import { focusOn, make } from "./dom.js";
import { uiLink } from "./links.js";
import { ask, Refusal } from "./server.js";

/** @import { Overview, RunAnswer } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/**
 * @typedef {{ name: string, dag: string, run: string }} Sent
 * @typedef {{ base: string, dag: string, now: () => number, present: () => Overview | undefined,
 *   follow: (sent: Sent) => void }} Page - `now`: by the server's clock, milliseconds
 * @typedef {{ dag: string, run: string, method: string, path: string, body: (form: FormData) => unknown }} Request
 * @typedef {{ name: string, title: string, hint?: string, fields?: (given: string) => Child, optional?: boolean,
 *   dag: string, moves?: boolean, waits?: boolean, noRoll?: boolean, off?: string, again?: boolean,
 *   request: () => Request, check?: (form: FormData) => unknown, planned?: Planned }} Act - `optional`: the
 *   reason may be empty; `moves`, `waits`, `noRoll`, `off`: as in `disabled`; `again`: it has no button, as its plan
 *   has to be made again; `check`: throws Refusal; `planned`: its run only makes a plan, which this shows
 * @typedef {(parts: Parts, answer: RunAnswer, run: string) => unknown} Planned
 * @typedef {{ dialog: HTMLDialogElement, form: HTMLFormElement, go: HTMLButtonElement, buttons: HTMLElement,
 *   said: HTMLElement, result: HTMLElement }} Parts - `go`: the button that sends the form; `said`: one sentence;
 *   `result`: more below it
 */

/** Maximum number of checkboxes that are shown at a time. */
const MOST = 20;
export const TEXT = { maxlength: 500, autocomplete: "off" };

/**
 * Return the request that starts a run, named after its act. It has one run id, so Airflow refuses to start it twice.
 * @type {(dag: string, act: string, conf: (form: FormData) => object) => Request}
 */
export function started(dag, act, conf) {
  // randomUUID() exists over HTTPS only.
  const unique = crypto.getRandomValues(new Uint32Array(2)).join("-");
  const run = `${act.toLowerCase().replaceAll(" ", "_")}__${unique}`;
  const body = (/** @type {FormData} */ form) => {
    const note = [act, form.get("reason")].filter(Boolean).join(": ");
    return { dag_run_id: run, logical_date: null, note, conf: conf(form) };
  };
  return { dag, run, path: "dagRuns", method: "POST", body };
}

/**
 * Return checkboxes with a common label; many of them can be searched, and those that are ticked stay.
 * @type {(label: string, name: string, values: string[], words?: (value: string) => string, given?: string) =>
 *   HTMLElement}
 */
export function choices(label, name, values, words = String, given = "") {
  const boxes = values.map((value) => {
    const box = make("input", { type: "checkbox", name, value, checked: value === given });
    return { box, row: make("label", {}, box, ` ${words(value)}`), value };
  });
  const list = make("div", {});
  const search = make("input", { type: "search", autocomplete: "off", oninput: () => show() });
  const show = () => {
    const found = boxes.filter(({ value }) => value.includes(search.value.trim())).slice(0, MOST);
    list.replaceChildren(...boxes.filter((each) => each.box.checked || found.includes(each)).map(({ row }) => row));
  };
  show();
  const many = values.length > MOST && make("label", {}, `Search ${values.length} entries `, search);
  return make("fieldset", {}, make("legend", {}, label), many, list);
}

/**
 * Return a list of values, of which one is chosen.
 * @type {(label: string, name: string, values: string[], words?: (value: string) => string, given?: string) =>
 *   HTMLElement}
 */
export function select(label, name, values, words = String, given = "") {
  const options = values.map((value) => make("option", { value, selected: value === given }, words(value)));
  return make("label", {}, `${label} `, make("select", { name }, options));
}

/** @type {(act: Act, page: Page, given?: string) => void} */
export function open(act, page, given = "") {
  const { name, title, hint, fields, optional, planned } = act;
  const said = make("p", { class: "said", role: "status" });
  const result = make("div", { class: "result" });
  const go = make("button", { type: "submit", class: "go" }, planned ? "Make the plan" : name);
  const buttons = make("div", { class: "buttons" });
  const reason = make("input", { name: "reason", required: !optional, ...TEXT, placeholder: optional && "optional" });
  const top = [make("h2", {}, title), hint && make("p", { class: "more" }, hint), fields?.(given)];
  const form = make("form", {}, top, make("label", {}, "Reason", reason), said, result, buttons);
  buttons.append(make("button", { type: "button", onclick: () => dialog.close() }, planned ? "Close" : "Keep it"), go);
  // Safari gives no focus to a button that is clicked.
  const opener = document.activeElement instanceof HTMLElement && document.activeElement.dataset.key;
  const onclose = () => {
    dialog.remove();
    focusOn(opener || `act ${name}…`);
  };
  const dialog = make("dialog", { "aria-label": title, class: planned && "wide", onclose }, form);
  const parts = { dialog, form, go, buttons, said, result };
  const send = sending(parts, act, page);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(parts, go, send);
  });
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
}

/**
 * Return a function that sends the form of a dialog; then it follows the run, or shows the plan that the run makes.
 * @type {(parts: Parts, act: Pick<Act, "name" | "dag" | "request" | "check" | "planned">, page: Page) =>
 *   () => Promise<void>}
 */
function sending(parts, { name, dag, request, check, planned }, { base, follow }) {
  const sendOnce = sender(request, base);
  return async () => {
    const form = new FormData(parts.form);
    await check?.(form);
    const run = await sendOnce(form);
    if (planned) {
      await planned(parts, await ended(parts, base, dag, run), run);
    } else {
      parts.dialog.close();
      follow({ name, dag, run });
    }
  };
}

/**
 * Return the answer of a run once it has ended well; throw Refusal if it failed or the dialog was closed.
 * @type {(parts: Parts, base: string, dag: string, run: string) => Promise<RunAnswer>}
 */
async function ended({ dialog, said }, base, dag, run) {
  while (dialog.isConnected) {
    /** @type {RunAnswer} */
    const answer = await ask(`${base}${runPath(dag, run)}/answer`);
    if (answer.state === "done") return answer;
    const text = `${answer.state} ${answer.text}`;
    if (!isOpen(answer)) throw new Refusal(422, text);
    const sentence = `The run is ${text}…`;
    // A screen reader would say it again each second.
    if (said.textContent !== sentence) said.replaceChildren(sentence);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  throw new Refusal(410, "The dialog was closed.");
}

/** @param {RunAnswer} answer */
export function isOpen({ state }) {
  return state === "waiting" || state === "running";
}

/** @type {(request: Sent, answer: RunAnswer, base: string) => HTMLElement} */
export function sentence({ name, dag, run }, { state, text }, base) {
  const link = uiLink(`${airflowRoot(base)}${runPath(dag, run)}`, "Its run");
  return make("p", { class: state }, make("b", {}, name), " ", make("i", {}, state), ` ${text} `, link);
}

/**
 * Run a button's action with the button disabled; say why the action was refused.
 * @type {(parts: Parts, button: HTMLButtonElement, action: () => Promise<void>) => Promise<void>}
 */
async function attempt({ form, said }, button, action) {
  button.disabled = true;
  said.replaceChildren("Asking Airflow…");
  said.classList.remove("bad");
  mark(form, {});
  try {
    await action();
  } catch (problem) {
    const marked = problem instanceof Refusal && mark(form, problem.fields);
    const text = problem instanceof Refusal ? problem.message : String(problem);
    said.replaceChildren(marked ? "Nothing was started. Correct the marked fields." : text);
    said.classList.add("bad");
  }
  button.disabled = false;
  // A disabled button loses the focus.
  if (document.activeElement === document.body) button.focus();
}

/**
 * Say at each wrong field what is wrong with it, and at no other; return whether the form has all wrong fields.
 * @type {(form: HTMLFormElement, wrong: Record<string, string>) => boolean}
 */
export function mark(form, wrong) {
  for (const old of form.querySelectorAll(".wrong")) old.remove();
  for (const old of form.querySelectorAll("[aria-invalid]")) old.removeAttribute("aria-invalid");
  const places = Object.entries(wrong).map(([name, text]) => {
    const field = /** @type {HTMLElement | null} */ (form.querySelector(`[name="${CSS.escape(name)}"]`));
    const place = field?.closest("fieldset") ?? field?.closest("label");
    place?.closest("details")?.setAttribute("open", "");
    place?.append(make("p", { class: "wrong", role: "alert" }, text));
    field?.setAttribute("aria-invalid", "true");
    return place;
  });
  /** @type {HTMLElement | null} */ (form.querySelector("[aria-invalid]"))?.focus();
  return places.length > 0 && places.every(Boolean);
}

/**
 * Show a plan in the dialog, with the button that carries it out; return that button.
 * @type {(parts: Parts, drawn: Child, text: string, act: { name: string, label?: string, dag: string,
 *   request: () => Request }, page: Page) => HTMLButtonElement}
 */
export function offer(parts, drawn, text, act, page) {
  const { said, result, go, buttons } = parts;
  result.replaceChildren(make("div", {}, drawn));
  said.replaceChildren(text);
  go.textContent = "Plan again";
  go.classList.remove("go");
  buttons.querySelector(".carry")?.remove();
  const send = sending(parts, act, page);
  const onclick = () => attempt(parts, carry, send);
  const carry = make("button", { type: "button", class: "go carry", onclick }, act.label ?? act.name);
  buttons.append(carry);
  return carry;
}

/**
 * Return a function that sends a form and returns the id of its run.
 *
 * Airflow may have taken a request although its answer was lost. The same form is therefore sent as the same request,
 * until Airflow has answered; another form is another request.
 * @type {(make: () => Request, base: string) => (form: FormData) => Promise<string>}
 */
export function sender(make, base) {
  /** @type {{ text: string, request: Request } | undefined} */
  let unanswered;
  return async (form) => {
    const text = JSON.stringify([...form]);
    if (unanswered?.text !== text) {
      const request = make();
      const body = request.body(form);
      unanswered = { text, request: { ...request, body: () => body } };
    }
    const { dag, path, method, body, run } = unanswered.request;
    const address = `${airflowRoot(base)}/api/v2/dags/${encodeURIComponent(dag)}/${path}`;
    await ask(address, { method, body: JSON.stringify(body(form)) }).catch((problem) => {
      if (problem.status !== 409) throw problem;
      if (method === "PATCH") throw new Refusal(409, "Someone has already answered.");
      // The run was started by an earlier attempt whose answer got lost.
    });
    unanswered = undefined;
    return run;
  };
}

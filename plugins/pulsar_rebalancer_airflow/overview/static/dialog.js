// Dialogs with a form, and the requests that they send to Airflow's own API with the user's session.

import { airflowRoot } from "./address.js";
import { focusOn, make } from "./dom.js";
import { ask, Refusal } from "./server.js";

/** @import { Page } from "./acts.js" */
/** @import { Child } from "./elements.d.ts" */
/**
 * @typedef {{ dag: string, run: string, method: string, path: string, body: (form: FormData) => unknown }} Request
 * @typedef {{ name: string, title: string, hint?: string, fields?: Child, optional?: boolean, confirm?: string,
 *   cancel?: string, kind?: string }} Form - `optional`: the reason may be empty
 * @typedef {{ dialog: HTMLDialogElement, form: HTMLFormElement, go: HTMLButtonElement, buttons: HTMLElement,
 *   said: HTMLElement, result: HTMLElement }} Parts - `go`: the button that sends the form; `said`: one sentence;
 *   `result`: more below it
 */

/** Maximum number of checkboxes that are shown at a time. */
const MOST = 20;

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
  const many = values.length > MOST && make("label", {}, `Find some of ${values.length} `, search);
  return make("fieldset", {}, make("legend", {}, label), many, list);
}

/** @type {(form: Form, submit: (form: FormData, parts: Parts) => Promise<void>) => Parts} */
export function openDialog(given, submit) {
  const { name, title, hint, fields, optional, confirm = name, cancel = "Keep it", kind } = given;
  const said = make("p", { class: "said", role: "status" });
  const result = make("div", { class: "result" });
  const go = make("button", { type: "submit", class: "go" }, confirm);
  const buttons = make("div", { class: "buttons" });
  const field = { maxlength: 500, autocomplete: "off", placeholder: optional ? "optional" : "" };
  const reason = make("input", { name: "reason", required: !optional, ...field });
  const onsubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    await attempt(parts, go, () => submit(new FormData(form), parts));
  };
  const top = [make("h2", {}, title), hint && make("p", { class: "more" }, hint)];
  const form = make("form", { onsubmit }, top, fields, make("label", {}, "Reason", reason), said, result, buttons);
  buttons.append(make("button", { type: "button", onclick: () => dialog.close() }, cancel), go);
  // Safari gives no focus to a button that is clicked.
  const opener = document.activeElement instanceof HTMLElement && document.activeElement.dataset.key;
  const onclose = () => {
    dialog.remove();
    focusOn(opener || `act ${name}…`);
  };
  const dialog = make("dialog", { "aria-label": title, class: kind, onclose }, form);
  const parts = { dialog, form, go, buttons, said, result };
  document.body.append(dialog);
  dialog.showModal();
  reason.focus();
  return parts;
}

/**
 * Run a button's action with the button disabled; say why the action was refused.
 * @type {(parts: Parts, button: HTMLButtonElement, action: () => Promise<void>) => Promise<void>}
 */
export async function attempt({ form, said }, button, action) {
  button.disabled = true;
  said.replaceChildren("Asking Airflow…");
  mark(form, {});
  try {
    await action();
  } catch (problem) {
    const marked = problem instanceof Refusal && mark(form, problem.fields);
    const text = problem instanceof Refusal ? problem.message : String(problem);
    said.replaceChildren(marked ? "Nothing was started. Correct the marked fields." : text);
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
export function offer(parts, drawn, text, { name, label = name, dag, request }, { base, follow }) {
  const { dialog, form, said, result, go, buttons } = parts;
  result.replaceChildren(make("div", {}, drawn));
  said.replaceChildren(text);
  go.textContent = "Plan again";
  go.classList.remove("go");
  buttons.querySelector(".carry")?.remove();
  const sendOnce = sender(request, base);
  const onclick = () =>
    attempt(parts, carry, async () => {
      const run = await sendOnce(new FormData(form));
      dialog.close();
      follow({ name, dag, run });
    });
  const carry = make("button", { type: "button", class: "go carry", onclick }, label);
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

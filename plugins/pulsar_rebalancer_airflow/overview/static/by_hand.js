// Manual actions: a form, the plan that its dry run shows in the same dialog, and the button that carries it out.

import { dagPath, runPath } from "./address.js";
import { choices, offer, openDialog, sender, started } from "./dialog.js";
import { disabled, newerOf, notCarriedOut, planAgain } from "./disabled.js";
import { folded, make } from "./dom.js";
import { bundleFields, lines } from "./search.js";
import { plan, shortNames } from "./plan.js";
import { isOpen } from "./sent.js";
import { ask, Refusal } from "./server.js";
import { moment } from "./texts.js";

/** @import { Page } from "./acts.js" */
/** @import { Parts, Request } from "./dialog.js" */
/** @import { Overview, RunAnswer } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/**
 * @typedef {{ name: string, title: string, hint: string, overrule?: string[], optional?: boolean,
 *   fields?: (given: string) => Child, conf: (form: FormData) => Record<string, unknown> }} Action
 */

const RULES = ["policies", "anti_affinity", "topic_ceiling", "exclusions", "grace_period", "overload"];
const EVENLY = ["range_equally_divide", "topic_count_equally_divide", "flow_or_qps_equally_divide"];
const POSITIONS = "specified_positions_divide";
const UNDO = "Undo run";
/** @type {Record<string, (view: Overview) => string>} */
const OVERRULED = {
  policies: () => "Move although isolation policies forbid it",
  anti_affinity: () => "Move although anti-affinity groups forbid it",
  topic_ceiling: () => "Move although the broker has too many topics",
  exclusions: () => "Include what is excluded",
  grace_period: ({ acts }) => `Move although moved within the last ${acts.grace_minutes} minutes`,
  overload: () => "Move although a broker would be overloaded",
  caps: () => "Move more than the caps allow",
  even_split: () => "Split although a part would carry less than 10 %",
};

/**
 * Return the manual actions that the user may do; on the page of a past run, only the one that undoes it.
 * @param {Overview} view
 * @param {Page} page
 */
export function manual(view, page) {
  const dag = view.acts.by_hand;
  if (!dag) return [];
  const all = actions(view, page).filter(({ name }) => name === UNDO ? view.moved : !view.of_one_run);
  return all.map((action) => {
    const request = () =>
      started(dag, `Plan ${action.name.toLowerCase()}`, (form) => ({
        action: action.name.toLowerCase().split(" ")[0],
        ...action.conf(form),
        overrule: form.getAll("overrule"),
        reason: form.get("reason"),
      }));
    const open = (given = "") => openPlan(action, request, dag, page, view, given);
    return { name: action.name, dag, noRoll: true, request, open };
  });
}

/** @type {(view: Overview, page: Page) => Action[]} */
function actions(view, { base, dag }) {
  const brokers = view.brokers.map(({ name }) => name).sort();
  const of = (/** @type {FormData} */ form) => ({ broker: form.getAll("broker") });
  const bundles = (/** @type {FormData} */ form) => ({ bundles: lines(String(form.get("bundles"))) });
  return [
    {
      name: "Unload",
      title: "Unload bundles",
      hint: "Moves bundles to the broker that you choose, or lets placement choose one.",
      fields: (given) => [
        bundleFields(base, dag, true, given),
        select("To", "destination", ["", ...brokers], "placement chooses"),
      ],
      conf: (form) => ({ ...bundles(form), destination: form.get("destination") }),
    },
    {
      name: "Drain",
      title: "Drain brokers",
      hint: "Moves all bundles off, run by run. The brokers get no bundles until you release them.",
      overrule: RULES,
      optional: false,
      fields: (given) => choices("Brokers", "broker", brokers, String, given),
      conf: of,
    },
    {
      name: "Fill",
      title: "Fill brokers",
      hint: "Brings brokers up to the mean score, with bundles of the hottest brokers, the largest first.",
      fields: (given) => choices("Brokers", "broker", brokers, String, given),
      conf: of,
    },
    {
      name: "Split",
      title: "Split a bundle",
      hint: "A split is permanent: Pulsar cannot merge bundles.",
      overrule: ["exclusions", "even_split"],
      fields: (given) => [
        bundleFields(base, dag, false, given),
        select("Algorithm", "algorithm", ["", ...EVENLY, POSITIONS], "the one that divides the traffic most evenly"),
        make("label", {}, `Hash positions, only for ${POSITIONS}`, make("input", { name: "positions" })),
        make("label", {}, make("input", { type: "checkbox", name: "unload" }), " Unload the parts afterwards"),
      ],
      conf: (form) => ({
        ...bundles(form),
        algorithm: form.get("algorithm"),
        positions: String(form.get("positions")).split(/[\s,]+/).filter(Boolean),
        unload: form.has("unload"),
      }),
    },
    {
      name: UNDO,
      title: `Undo the run of ${view.moved && moment(view.moved.collected_at)}`,
      hint: "Moves back what the run moved, except what has moved again.",
      conf: () => ({ run: view.moved?.folder }),
    },
  ];
}

/** @type {(label: string, name: string, values: string[], none?: string) => HTMLElement} */
function select(label, name, values, none = "") {
  const options = values.map((value) => make("option", { value }, value || none));
  return make("label", {}, `${label} `, make("select", { name }, options));
}

/** @type {(action: Action, dryRun: () => Request, dag: string, page: Page, view: Overview, given: string) => void} */
function openPlan(action, dryRun, dag, page, view, given) {
  const sendOnce = sender(dryRun, page.base);
  const { overrule = [...RULES, "caps"], optional = true } = action;
  const rules = choices("Rules", "overrule", overrule, (rule) => OVERRULED[rule]?.(view) ?? rule);
  const fields = [action.fields?.(given), folded("overrule", "Overrule", rules)];
  const words = { confirm: "Make the plan", cancel: "Close", kind: "wide" };
  openDialog({ ...action, optional, fields, ...words }, async (form, parts) => {
    const run = await sendOnce(form);
    const answer = await ended(parts, page.base, dag, run);
    /** @type {Overview} */
    const shown = await ask(`${page.base}${dagPath(dag)}/overview?run_id=${encodeURIComponent(run)}`);
    showPlan(parts, shown, answer, dag, page);
  });
}

/**
 * Return the answer of a run once it has ended well; throw Refusal if it failed or the dialog was closed.
 * @type {(parts: Parts, base: string, dag: string, run: string) => Promise<RunAnswer>}
 */
export async function ended({ dialog, said }, base, dag, run) {
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

/**
 * Show the plan of a dry run, given its page, in the dialog, with the button that carries it out.
 * @type {(parts: Parts, shown: Overview, answer: RunAnswer, dag: string, page: Page) => void}
 */
export function showPlan(parts, shown, answer, dag, page) {
  const { form, result, go } = parts;
  const view = shown.plan;
  const warning = make("p", { class: "warn", role: "status" });
  const documents = `${page.base}${dagPath(page.dag)}`;
  const drawn = plan(view, shortNames(shown), "The plan", shown.links.dag, documents);
  const request = () => started(dag, "Carry out", (form) => ({ plan: answer.plan, reason: form.get("reason") }));
  const carry = offer(parts, [drawn, warning], answer.text, { name: "Carry out", dag, request }, page);
  for (const part of result.querySelectorAll("[data-key^='ends '], [data-key^='about splits ']")) {
    part.setAttribute("open", "");
  }
  if (!answer.plan) form.querySelector("[data-key='overrule']")?.setAttribute("open", "");
  const look = () => {
    if (!carry.isConnected) return clearInterval(watching);
    const again = view && answer.plan ? planAgain(view, shown, page.present(), page.now()) : "";
    const off = view && answer.plan ? notCarriedOut(view, shown) : "";
    const act = { dag, moves: true, waits: view?.marks_drains, noRoll: true, off };
    const why = disabled(act, newerOf(page.present(), shown));
    carry.disabled = why !== "";
    carry.hidden = !answer.plan || again !== "";
    const text = again || why;
    if (warning.textContent !== text) warning.textContent = text;
  };
  const watching = setInterval(look, 1000);
  look();
  (carry.hidden ? go : carry).focus();
}

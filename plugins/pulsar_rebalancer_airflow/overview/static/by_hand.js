// Manual actions: a form, the plan that its dry run shows in the same dialog, and the button that carries it out.

import { dagPath } from "./address.js";
import { choices, offer, select, started } from "./dialog.js";
import { disabled, newerOf, notCarriedOut, planAgain } from "./disabled.js";
import { folded, make } from "./dom.js";
import { bundleFields, lines } from "./search.js";
import { plan, shortNames } from "./plan.js";
import { ask } from "./server.js";
import { moment } from "./texts.js";

/** @import { Act, Page, Parts } from "./dialog.js" */
/** @import { Overview, RunAnswer } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/**
 * @typedef {{ name: string, title: string, hint: string, overrule?: string[], optional?: boolean,
 *   fields?: (given: string) => Child, conf: (form: FormData) => Record<string, unknown> }} Action
 */

const RULES = ["policies", "anti_affinity", "topic_ceiling", "exclusions", "grace_period", "overload"];
const EVENLY = ["range_equally_divide", "topic_count_equally_divide", "flow_or_qps_equally_divide"];
const MOST_EVEN = "the algorithm with the most even parts";
const POSITIONS = "specified_positions_divide";
const UNDO = "Undo run";
/** @type {Record<string, (view: Overview) => string>} */
const OVERRULED = {
  policies: () => "Move although isolation policies forbid it",
  anti_affinity: () => "Move although anti-affinity groups forbid it",
  topic_ceiling: () => "Move although the broker has too many topics",
  exclusions: () => "Include excluded namespaces, brokers and bundles",
  grace_period: ({ acts }) => `Move bundles that moved within the last ${acts.grace_minutes} minutes`,
  overload: () => "Move although a broker would be overloaded",
  caps: () => "Move more than the caps allow",
  even_split: () => "Split although a part would carry less than 10 %",
};

/**
 * Return the manual actions that the user may do; on the page of a past run, only the one that undoes it.
 * @type {(view: Overview, page: Page) => Act[]}
 */
export function manual(view, page) {
  const dag = view.acts.by_hand;
  if (!dag) return [];
  const all = actions(view, page).filter(({ name }) => name === UNDO ? view.moved : !view.of_one_run);
  return all.map(({ conf, overrule = [...RULES, "caps"], ...action }) => ({
    ...{ optional: true, ...action, dag, noRoll: true },
    fields: (given) => {
      const rules = choices("Rules", "overrule", overrule, (rule) => OVERRULED[rule]?.(view) ?? rule);
      return [action.fields?.(given), folded("overrule", "Overrule", rules)];
    },
    request: () =>
      started(dag, `Plan ${action.name.toLowerCase()}`, (form) => ({
        action: action.name.toLowerCase().split(" ")[0],
        ...conf(form),
        overrule: form.getAll("overrule"),
        reason: form.get("reason"),
      })),
    planned: async (parts, answer, run) => {
      const shown = await ask(`${page.base}${dagPath(dag)}/overview?run_id=${encodeURIComponent(run)}`);
      showPlan(parts, shown, answer, dag, page);
    },
  }));
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
        select("To", "destination", ["", ...brokers], (name) => name || "placement chooses"),
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
      hint: "Moves bundles from the hottest brokers, the largest first, until the chosen brokers reach the mean score.",
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
        select("Algorithm", "algorithm", ["", ...EVENLY, POSITIONS], (name) => name || MOST_EVEN),
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
      hint: "Moves the run's bundles back, except those that have moved again.",
      conf: () => ({ run: view.moved?.folder }),
    },
  ];
}

/**
 * Show the plan of a dry run, given its page, in the dialog, with the button that carries it out.
 * @type {(parts: Parts, shown: Overview, answer: RunAnswer, dag: string, page: Page) => void}
 */
function showPlan(parts, shown, answer, dag, page) {
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

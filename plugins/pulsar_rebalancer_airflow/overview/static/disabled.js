// Why buttons are disabled.

const ROLLS = "A rolling restart is in progress: wait for its end, or stop it.";

/** @import { Overview, PlanView } from "./documents.d.ts" */

/**
 * Return why the button of an act is disabled; empty if it is not.
 * @param {{ dag: string, moves?: boolean, waits?: boolean, noRoll?: boolean, off?: string }} act - `moves`: a run of
 *   the DAG that balances carries it out; `waits`: its moves may wait until the gate opens; `noRoll`: it is refused
 *   during a rolling restart; `off`: another reason
 * @param {Overview} view
 */
export function disabled({ dag, moves, waits, noRoll, off = "" }, { acts }) {
  const paused = [dag, moves ? acts.carries_out : ""].find((each) => acts.paused_dags.includes(each));
  if (paused) return pausedText(paused);
  return off || (noRoll && acts.rolls ? ROLLS : !moves ? "" : waits ? acts.stays_closed : acts.closed);
}

/**
 * Return the newer of two views. A page is older than a form on it while people do not let it update.
 * @type {(page: Overview | undefined, form: Overview) => Overview}
 */
export function newerOf(page, form) {
  return page && Date.parse(page.status.now) > Date.parse(form.status.now) ? page : form;
}

/** @param {string} dag */
export function pausedText(dag) {
  const use = dag.startsWith("pulsar_roll__") ? "start or continue a rolling restart" : "use its buttons";
  return `${dag} is paused in Airflow. Unpause the DAG to ${use}.`;
}

/**
 * Return whether the user requested a plan in a cluster that needs two people.
 * @type {(plan: PlanView, view: Overview) => boolean}
 */
export function own(plan, { acts }) {
  return plan.requested_by.some((name) => acts.barred.includes(name));
}

/**
 * Return why a manual plan, shown by the page of its dry run, has to be made again; empty if it can be carried out.
 * @type {(plan: PlanView, shown: Overview, present: Overview | undefined, now: number) => string}
 */
export function planAgain(plan, shown, present, now) {
  if (now > Date.parse(plan.until)) return "This plan is too old to be carried out: plan again.";
  const since = Date.parse(shown.sampled_at ?? "");
  if (Date.parse(present?.changed_at ?? "") > since) return "Bundles have moved since this plan was made: plan again.";
  if (!present?.sampled_at || Date.parse(present.sampled_at) <= since) return "";
  const names = (/** @type {Overview} */ { brokers }) => brokers.map(({ name }) => name).sort().join(" ");
  const changed = "The cluster's brokers have changed since this plan was made: plan again.";
  return names(shown) === names(present) ? "" : changed;
}

/**
 * Return why the user may not carry out a manual plan, shown by the page of its dry run; empty if they may.
 * @type {(plan: PlanView, view: Overview) => string}
 */
export function notCarriedOut(plan, view) {
  if (!plan.has_effect) return "The plan would have no effect.";
  const barred = (view.status.mode === "auto" || plan.marks_drains) && own(plan, view);
  return barred ? "You made this plan, so another person must carry it out, on the page of its run." : "";
}

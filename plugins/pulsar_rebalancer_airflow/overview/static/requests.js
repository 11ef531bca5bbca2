// People's requests, newest first, with outcome and progress; requests in the queue can be cancelled.

import { airflowRoot, runPath } from "./address.js";
import { openDialog, send } from "./dialog.js";
import { make } from "./dom.js";
import { uiLink } from "./links.js";
import { ask, Refusal } from "./server.js";
import { moment, span } from "./texts.js";

/** @import { RequestView, RunAnswer } from "./documents.d.ts" */

export const FEW = 10;
export const ALL = 200;

/** By this the server recognises the note. */
const CANCELLED = "Cancelled on the page of the cluster: ";

/**
 * @param {RequestView[]} all
 * @param {number} limit - maximum number of requests
 * @param {string} base
 * @param {{ stop: () => void, more: () => void, changed: () => void, stopOff: string }} actions - `stopOff`: why *Stop*
 *   is disabled; empty if it is not
 */
export function requestList(all, limit, base, { stop, more, changed, stopOff }) {
  if (!all.length) return [];
  const off = stopOff && { disabled: true, title: stopOff, "aria-describedby": "stop-off" };
  const items = all.map((request) => {
    const { state, text, dag, run, reason, until } = request;
    const stops = request.cancel === "stop";
    const label = stops ? "Stop…" : "Cancel…";
    const onclick = stops ? stop : () => cancel(request, base, changed);
    const button = { type: "button", "data-key": `act ${label} ${run}`, onclick, ...(stops && off) };
    return make(
      "li",
      { class: state === "failed" ? "refused" : state },
      make("b", {}, request.name),
      ` ${request.target} ${until ? `until ${moment(until)} ` : ""}`,
      make("small", {}, `by ${request.by}, ${moment(request.at)}${reason && `: ${reason}`}`),
      make("span", { class: "text" }, make("i", {}, state), ` ${text} `, progress(request)),
      uiLink(`${airflowRoot(base)}${runPath(dag, run)}`, "its run"),
      request.cancel && make("button", { ...button, "aria-label": `${label} ${request.name}` }, label),
    );
  });
  const rest = all.length === limit && limit < ALL &&
    make("button", { type: "button", "data-key": "more requests", onclick: more }, `Show the last ${ALL}`);
  const why = off && all.some((request) => request.cancel === "stop") &&
    make("p", { class: "more", id: "stop-off" }, stopOff);
  return [make("h2", {}, "Requests"), make("ol", {}, items), why, rest];
}

/** @param {{ state: string }} request */
export function isOpen({ state }) {
  return state === "waiting" || state === "running";
}

/**
 * Return the text for a screen reader about requests that are new and open, or whose state has changed.
 * @param {RequestView[]} all
 * @param {Map<string, string>} before - states by run
 */
export function news(all, before) {
  const changed = all.filter((request) =>
    before.has(request.run) ? before.get(request.run) !== request.state : isOpen(request)
  );
  return changed.map(({ name, state, text }) => `${name}: ${state} ${text}`).join(" ");
}

/** @param {RequestView} request */
function progress({ done, total, seconds_left: left, name }) {
  if (!total) return null;
  return [
    make("progress", { max: total, value: done, "aria-label": `bundles of ${name} done` }),
    ` ${share(done, total, left)} `,
  ];
}

/**
 * @param {number} done
 * @param {number} total
 * @param {number | null} left - seconds
 */
export function share(done, total, left) {
  return `${done} of ${total} done${left === null ? "" : `, about ${span(left)} left`}`;
}

/**
 * @param {RequestView} request
 * @param {string} base
 * @param {() => void} changed
 */
function cancel({ name, dag, run }, base, changed) {
  const title = `Cancel: ${name}`;
  const hint = "Its run is marked as failed; Airflow may keep it in the queue, and then it does nothing.";
  openDialog(
    { name: "Cancel", title, hint, optional: true, confirm: "Cancel the request" },
    async (form, { dialog }) => {
      /** @type {RunAnswer} */
      const { state } = await ask(`${base}${runPath(dag, run)}/answer`);
      if (state !== "waiting") throw new Refusal(409, "It has begun, or has ended.");
      const body = () => ({ state: "failed", note: `${CANCELLED}${form.get("reason") || "no reason given"}` });
      await send({ dag, run, method: "PATCH", path: `dagRuns/${encodeURIComponent(run)}`, body }, form, base);
      dialog.close();
      changed();
    },
  );
}

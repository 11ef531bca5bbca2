// The request that was sent last, and its outcome.

import { airflowRoot, runPath } from "./address.js";
import { make } from "./dom.js";
import { uiLink } from "./links.js";

/** @import { RunAnswer } from "./documents.d.ts" */
/** @typedef {{ name: string, dag: string, run: string }} Sent */

/** @param {RunAnswer} answer */
export function isOpen({ state }) {
  return state === "waiting" || state === "running";
}

/** @type {(request: Sent, answer: RunAnswer, base: string) => HTMLElement} */
export function sentence({ name, dag, run }, { state, text }, base) {
  const link = uiLink(`${airflowRoot(base)}${runPath(dag, run)}`, "Its run");
  return make("p", { class: state }, make("b", {}, name), " ", make("i", {}, state), ` ${text} `, link);
}

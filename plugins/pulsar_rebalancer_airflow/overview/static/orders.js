// Follows each run that a button of this page started to its end, and shows its outcome below the buttons.

import { airflowRoot, runPath } from "./address.js";
import { later, make } from "./dom.js";
import { uiLink } from "./links.js";
import { ask } from "./server.js";

/** @import { RunAnswer } from "./documents.d.ts" */
/** @typedef {{ name: string, dag: string, run: string, state: string, text: string, ended: boolean }} Order */

const KEPT = 5;
const SECONDS = 2;

/** @type {Order[]} */
export const orders = [];

/** @param {string} base */
export function orderList(base) {
  return orders.map(({ name, state, text, dag, run }) => {
    const link = uiLink(`${airflowRoot(base)}${runPath(dag, run)}`, "its run");
    return make("p", { class: state }, make("b", {}, name), ` ${text} `, link);
  });
}

/**
 * @param {{ name: string, dag: string, run: string }} started
 * @param {string} base
 * @param {() => void} redraw
 * @param {() => void} ended
 */
export function followOrder(started, base, redraw, ended) {
  const order = { ...started, state: "queued", text: "was accepted by Airflow", ended: false };
  orders.unshift(order);
  orders.splice(KEPT);
  const look = async () => {
    /** @type {RunAnswer | null} */
    const answer = await ask(`${base}${runPath(order.dag, order.run)}/answer`).catch(() => null);
    if (answer) Object.assign(order, answered(answer));
    redraw();
    if (order.ended) ended();
    else later(SECONDS, look);
  };
  redraw();
  look();
}

/**
 * Return the fields of an order that an answer changes; if its run started another run, that one is followed next.
 * @param {RunAnswer} answer
 * @returns {Partial<Order>}
 */
export function answered({ state, text, next_dag: dag, next_run: run }) {
  if (run) return { state, text, dag, run };
  return { state, text, ended: state === "success" || state === "failed" };
}

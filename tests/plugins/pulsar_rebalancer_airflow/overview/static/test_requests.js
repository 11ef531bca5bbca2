import assert from "node:assert/strict";
import { test } from "node:test";
import { isOpen, news, requestList, share } from "page/requests.js";
import { moment } from "page/texts.js";
import { all } from "./elements.js";

const REQUEST = {
  ...{ name: "Balance now", target: "", until: null, by: "ada", at: "2026-03-05T12:00:00Z", reason: "" },
  ...{ dag: "d", run: "r" },
  ...{ state: "running", text: "", done: 1, total: 4, seconds_left: null, cancel: "" },
};
const PAUSED = "pulsar_control__east is paused in Airflow: its buttons work again when it is unpaused.";

function buttons(stopOff, ...cancels) {
  const requests = cancels.map((cancel) => ({ ...REQUEST, cancel }));
  return requestList(requests, 10, "/air/pulsar_rebalancer", { stop() {}, more() {}, changed() {}, stopOff });
}

test("a request in the queue can be cancelled, and a plan that is carried out can be stopped", () => {
  const labels = (...cancels) => all("button", buttons("", ...cancels)).map(({ textContent }) => textContent);
  assert.deepEqual(labels("", "run", "stop"), ["Cancel…", "Stop…"]);
  assert.equal(all("button", buttons("", "stop"))[0].attributes.disabled, undefined);
});

test("a pause ends at a time of the reader's clock, as all other times", () => {
  const until = "2999-01-01T00:00:00Z";
  const pause = { ...REQUEST, name: "Pause", until };
  const [shown] = all("li", requestList([pause], 10, "/b", { stop() {}, more() {}, changed() {}, stopOff: "" }));
  assert.ok(shown.textContent.startsWith(`Pause  until ${moment(until)} by ada, `), shown.textContent);
});

test("no order is given to a DAG that is paused in Airflow, and the list says why", () => {
  const shown = buttons(PAUSED, "run", "stop");
  const [cancel, stop] = all("button", shown);
  const [why] = all("p", shown);
  assert.equal(cancel.attributes.disabled, undefined);
  assert.deepEqual([stop.attributes.disabled, stop.attributes.title], ["", PAUSED]);
  assert.deepEqual([why.textContent, why.attributes.id], [PAUSED, stop.attributes["aria-describedby"]]);
  assert.deepEqual(all("p", buttons(PAUSED, "run", "")), []);
});

test("a screen reader hears of new requests and new states, once", () => {
  const request = (run, state) => ({ run, state, name: run, text: "said." });
  const all = ["waiting", "running", "done"].map((state) => request(state, state));
  const states = new Map(all.map(({ run, state }) => [run, state]));
  assert.deepEqual(all.map(isOpen), [true, true, false]);
  assert.equal(news(all, states), "");
  assert.equal(news([request("waiting", "done"), ...all.slice(1)], states), "waiting: done said.");
  assert.equal(news([request("new", "waiting"), ...all], states), "new: waiting said.");
  // One that has ended long ago, and is shown only now.
  assert.equal(news([...all, request("old", "done")], states), "");
});

test("the progress of a request has the time that is left, if known", () => {
  assert.equal(share(1, 4, null), "1 of 4 done");
  assert.equal(share(1, 4, 61.2), "1 of 4 done, about 61 s left");
});

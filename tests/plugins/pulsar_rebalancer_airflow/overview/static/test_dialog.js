import assert from "node:assert/strict";
import { test } from "node:test";
import { sender, started } from "page/dialog.js";

function form(fields) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  return data;
}

/** Send forms one after the other; the server answers with these statuses, and 0 is an answer that gets lost. */
async function sent(forms, statuses) {
  const [bodies, outcomes, fetched] = [[], [], globalThis.fetch];
  globalThis.fetch = (_, { body }) => {
    bodies.push(JSON.parse(body));
    const status = statuses.shift();
    return status ? Promise.resolve(new Response("{}", { status })) : Promise.reject(new TypeError("network"));
  };
  let clock = 0;
  const send = sender(() => started("d", "Pause", (form) => ({ pause: form.get("minutes"), at: clock += 1 })), "/b");
  try {
    for (const each of forms) outcomes.push(await send(each).catch(({ status }) => status));
  } finally {
    globalThis.fetch = fetched;
  }
  return { bodies, outcomes };
}

test("a form whose answer got lost is sent again as the same request", async () => {
  const hour = () => form({ minutes: "60", reason: "a party" });
  const { bodies: [first, second], outcomes } = await sent([hour(), hour()], [0, 409]);
  assert.deepEqual(first.conf, { pause: "60", at: 1 });
  assert.deepEqual(second, first);
  assert.deepEqual(outcomes, [0, first.dag_run_id]);
});

test("a form that was changed after its answer got lost is another request", async () => {
  const forms = ["60", "10080", "10080"].map((minutes) => form({ minutes, reason: "a party" }));
  const { bodies: [first, second, third], outcomes } = await sent(forms, [0, 0, 200]);
  assert.deepEqual([first, second].map(({ conf }) => conf), [{ pause: "60", at: 1 }, { pause: "10080", at: 2 }]);
  assert.notEqual(second.dag_run_id, first.dag_run_id);
  assert.deepEqual(third, second);
  assert.deepEqual(outcomes, [0, 0, second.dag_run_id]);
});

test("a form that Airflow has taken is a new request when it is sent again", async () => {
  const { outcomes: [first, second] } = await sent([form({ reason: "x" }), form({ reason: "x" })], [200, 200]);
  assert.notEqual(first, second);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { all } from "./elements.js";
import { airflowRoot, asked, runPath } from "page/address.js";
import { counted } from "page/brokers.js";
import { isOpen, sentence } from "page/dialog.js";
import { fireTime } from "page/pairs.js";
import { amounts, outcome, plan, splitText } from "page/plan.js";
import { left, roll } from "page/roll.js";
import { answered } from "page/search.js";
import { ask } from "page/server.js";

const NOW = "2026-03-05T12:00:00Z";

test("brokers are counted, with their mean, and those drained or left out", () => {
  const brokers = [{ left_out: "" }, { left_out: "excluded" }, { left_out: "draining", drained: "by ada" }];
  assert.equal(counted({ brokers, middle: 41.26 }), "3 brokers · mean 41.3 % · 1 drained · 1 left out");
  assert.equal(counted({ brokers: brokers.slice(0, 1), middle: null }), "1 broker");
});

test("a pair fires so many seconds after the sample, unless nobody knows", () => {
  const [pair, view] = [{ seconds_to_fire: 90 }, { sampled_at: "2026-03-05T12:00:00Z", firing: "fires" }];
  assert.equal(fireTime(pair, view), "2026-03-05T12:01:30.000Z");
  assert.equal(fireTime({ seconds_to_fire: 0 }, view), "2026-03-05T12:00:00.000Z");
  assert.equal(fireTime({ seconds_to_fire: null }, view), null);
  assert.equal(fireTime(pair, { ...view, firing: "" }), null);
  assert.equal(fireTime(pair, { ...view, of_one_run: true }), null);
});

test("a plan says what moves and who reconnects", () => {
  const plan = { bundles: 2, splits: [], traffic: 2048, measure: "msg_throughput", topics: 1, clients: 3 };
  assert.equal(amounts(plan), "Total: 2 bundles with 2.0 KiB/s; 3 clients of 1 topic must reconnect.");
  assert.match(amounts({ ...plan, measure: "msg_rate" }), /2,048 msg\/s/);
  const planned = { bundle: "a/b/0x00_0x40", broker: "b:1", positions: [16, 4096], shares: [0.5, 0.25, 0.25] };
  const split = { planned: { ...planned, unload: true }, why: "5 topics, more than 4", topics: 1, clients: 3 };
  const split_only = { ...plan, bundles: 0, splits: [split] };
  assert.equal(amounts(split_only), "Total: 1 bundle split permanently; 3 clients of 1 topic must reconnect.");
  assert.equal(
    splitText(split),
    "Split a/b/0x00_0x40 on b:1 (5 topics, more than 4) at 0x00000010, 0x00001000 into 50 %, 25 %, 25 % of its " +
      "traffic; 3 clients of 1 topic must reconnect.",
  );
  assert.match(splitText({ ...split, planned: { ...planned, unload: false } }), /; no client reconnects\.$/);
});

test("a plan without moves says what carrying it out does", () => {
  const nothing = { bundles: 0, splits: [] };
  assert.equal(amounts({ ...nothing, has_effect: false }), "No bundle moves.");
  assert.match(amounts({ ...nothing, has_effect: true }), /carried out, the drained brokers get no more bundles/);
});

test("a plan shows its verdict, or how far it is once the gate has opened", () => {
  const given = {
    ...{ folder: "f", hash: "h", by: "", run_id: "", client_gap: "", until: NOW, collected_at: NOW },
    ...{ bundles: 2, moves: [], splits: [], brokers: [], unknown: [], stay: [], about_splits: [] },
    ...{ traffic: 0, measure: "msg_rate", topics: 1, clients: 1, more: 0, range_before: 9, has_effect: true },
    ...{ done: 0, failed: 0, ended_at: null, verdict: null, predicted_range: null },
  };
  const says = (rest) => {
    const parts = plan({ ...given, ...rest }, String, "Plan", "/d", "/p");
    return [...all("p", parts).filter((part) => part.attributes.class === "verdict"), ...all("progress", parts)].map(
      (part) => part.textContent || `${part.attributes.value} of ${part.attributes.max}`,
    );
  };
  assert.deepEqual(says({}), []);
  const open = { verdict: { reason: "open", meaning: "It opens." } };
  assert.deepEqual(says({ verdict: { reason: "paused", meaning: "It is paused." } }), ["It is paused."]);
  assert.deepEqual(says(open), ["0 of 2"]);
  // Stopped before its first bundle.
  assert.deepEqual(says({ ...open, ended_at: NOW }), ["0 of 2"]);
  assert.deepEqual(says({ ...open, bundles: 0 }), []);
});

test("moves have their reason once if it is the same, else each its own", () => {
  const given = {
    ...{ folder: "f", hash: "h", by: "", run_id: "", client_gap: "", until: NOW, collected_at: NOW, splits: [] },
    ...{ bundles: 2, brokers: [], unknown: [], stay: [], about_splits: [], measure: "msg_rate", more: 0 },
    ...{ traffic: 0, topics: 1, clients: 1, verdict: null, predicted_range: 24, range_before: 87, has_effect: true },
  };
  const reasons = (...whys) => {
    const moves = whys.map((why) => ({ why, planned: { bundle: "b", traffic: 0 }, ended: null }));
    const drawn = plan({ ...given, moves }, String, "Plan", "/d", "/p");
    const columns = all("th", drawn).filter(({ textContent }) => textContent === "reason").length;
    return [columns, all("p", drawn).map(({ textContent }) => textContent)];
  };
  const total = "Total: 2 bundles with 0 msg/s; 1 client of 1 topic must reconnect. Range 87.0, predicted 24.0.";
  assert.deepEqual(reasons("62 points apart", "62 points apart"), [0, [total, "62 points apart"]]);
  assert.deepEqual(reasons("62 points apart", "drained by ada"), [1, [total]]);
});

test("a move has its outcome and the time that it took", () => {
  assert.equal(outcome({ reason: "moved", ok: true, seconds: 1.25 }), "✓ moved, 1.3 s");
  assert.equal(outcome({ reason: "moved", ok: true, seconds: 0.049 }), "✓ moved, < 0.1 s");
  assert.equal(outcome({ reason: "astray", ok: false, seconds: 0 }), "✗ astray");
});

test("a drained broker says what is left of its bundles", () => {
  const drain = { bundles: 3, moving: 3, gone: 0, left: [], more: 0 };
  assert.equal(left({ ...drain, bundles: null }), "its bundles are not known yet.");
  assert.equal(left({ ...drain, bundles: 0 }), "no bundle remains.");
  assert.equal(left({ ...drain, left: [{}], more: 1 }), "2 of 3 bundles remain:");
  assert.equal(left(drain), "3 bundles leave with this run.");
  assert.equal(left({ ...drain, moving: 1 }), "1 bundle leaves with this run.");
  assert.equal(left({ ...drain, moving: 0 }), "3 bundles just arrived; a later run moves them.");
  assert.equal(left({ ...drain, moving: 1, gone: 2 }), "1 bundle leaves with this run.");
  assert.equal(left({ ...drain, moving: 0, gone: 3 }), "3 bundles have left.");
  assert.equal(
    left({ ...drain, moving: 0, gone: 1 }),
    "1 bundle has left; 2 bundles just arrived; a later run moves them.",
  );
});

const BASE = "/air/pulsar_rebalancer";

for (
  const [address, dag, run] of [
    ["", "", ""],
    ["/pulsar_rebalance__east", "pulsar_rebalance__east", ""],
    ["/pulsar_control__a%20b", "pulsar_rebalance__a b", ""],
    ["/pulsar_by_hand__east", "pulsar_rebalance__east", ""],
    ["/pulsar_by_hand__east?run_id=r%2B1", "pulsar_by_hand__east", "r+1"],
    ["/pulsar_rebalance__x__y?run_id=r", "pulsar_rebalance__x__y", "r"],
    ["/pulsar_watch__east?run_id=r", "pulsar_rebalance__east", ""],
    ["/somebody_elses?run_id=r", "somebody_elses", ""],
  ]
) {
  test(`the page at ${address || "no DAG"}`, () => {
    assert.deepEqual(asked(BASE, new URL(`http://localhost${BASE}/page${address}`)), { dag, run });
  });
}

test("paths are escaped, and Airflow is found below the same prefix", () => {
  assert.equal(runPath("a/b", "manual__2026+00:00"), "/dags/a%2Fb/runs/manual__2026%2B00%3A00");
  assert.equal(airflowRoot(BASE), "/air");
});

test("the request that was sent last has its state, its outcome and its run", () => {
  const shown = sentence({ name: "Pause", dag: "d", run: "r+1" }, { state: "refused", text: "at the gate." }, BASE);
  assert.equal(shown.textContent, "Pause refused at the gate. Its run");
  assert.equal(all("a", shown)[0].attributes.href, "/air/dags/d/runs/r%2B1");
  assert.deepEqual(["waiting", "running", "awaiting approval", "done"].map((state) => isOpen({ state })), [
    ...[true, true, false, false],
  ]);
});

for (
  const [status, body, message] of [
    [401, "{}", "Your session has expired: reload the page and sign in."],
    [403, "{}", "You do not have permission for this."],
    [404, '{"detail": "There is no such run."}', "There is no such run."],
    [422, '{"detail": [{"msg": "no text"}]}', "The API server returned 422."],
    [502, "<html>", "The API server returned 502."],
  ]
) {
  test(`the server refuses with ${status}`, async () => {
    const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen() {} }, () => new Response(body, { status }));
    await assert.rejects(ask(`http://127.0.0.1:${server.addr.port}/`), { status, message });
    await server.shutdown();
  });
}

test("the server takes a request, or does not respond", async () => {
  const requests = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen() {} }, async (request) => {
    requests.push([request.method, request.headers.get("content-type"), await request.text()]);
    return Response.json({ state: "queued" });
  });
  const address = `http://127.0.0.1:${server.addr.port}/`;
  assert.deepEqual(await ask(address, { method: "POST", body: "{}" }), { state: "queued" });
  assert.deepEqual(requests, [["POST", "application/json", "{}"]]);
  await server.shutdown();
  const nobody = ask("http://127.0.0.1:0/");
  await assert.rejects(nobody, { status: 0, message: "The API server does not respond." });
});

test("a search answers for a broker and for its bundles, each with its buttons", () => {
  const row = {
    bundle: "a/b/0x0_0x1",
    broker: "b:1",
    traffic: 2048,
    topics: 3,
    reason: "no_topic",
    why: "Because.",
    moved: "",
  };
  const view = {
    brokers: [],
    drains: [{ broker: "b:1", drained: "by ada", movable: 0, bundles: 0, left: [], more: 0 }],
  };
  const asked = [];
  const buttons = (names, given) => (asked.push([names.join(), given]), null);
  const drawn = answered({ bundles: [row], all: 1, broker: "b:1", sampled_at: null }, ":1", view, buttons);
  assert.match(all("p", drawn)[0].textContent, /^b:1 drained by ada — empty, safe to stop\./);
  assert.match(
    all("td", drawn).map(({ textContent }) => textContent).join("|"),
    /Because\. no_topic\|b:1\|2\.0 KiB\/s\|3\|–/,
  );
  assert.deepEqual(asked.sort(), [["Release", "b:1"], ["Unload,Split", row.bundle]]);
  const busy = { ...view, drains: [{ ...view.drains[0], movable: 2, bundles: 2, moving: 2, gone: 0 }] };
  assert.match(all("p", answered({ bundles: [], all: 0 }, "b:1", busy, buttons))[0].textContent, /2 bundles leave/);
  assert.deepEqual(answered({ bundles: [], all: 0 }, "", view, buttons), []);
});

test("a rolling restart has a row for each broker", () => {
  const turns = [["a:1", "done", ""], ["b:1", "restart now", ""], ["c:1", "waiting", ""]]
    .map(([broker, state, detail]) => ({ broker, state, detail }));
  const drawn = roll({ text: "rolling restart", turns, stop: "" });
  const rows = all("tr", drawn).map((row) => row.textContent);
  assert.deepEqual(rows.slice(1), ["a:1done", "b:1restart now", "c:1waiting"]);
  assert.deepEqual(roll(null), []);
});

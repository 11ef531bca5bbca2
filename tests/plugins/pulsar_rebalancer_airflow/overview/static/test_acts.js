import assert from "node:assert/strict";
import { test } from "node:test";
import { all } from "./elements.js";
import { acts, carryOut, known, neededFor, offered } from "page/acts.js";
import { manual } from "page/by_hand.js";
import { disabled, newerOf, pausedText, planAgain } from "page/disabled.js";
import { clusters, waits } from "page/strip.js";

const PAGE = { base: "/b", dag: "d", now: () => NOW };
const NOW = Date.parse("2026-03-05T12:00:00Z");
const NONE = {
  control: "",
  orders: [],
  rebalance: "",
  carries_out: "pulsar_rebalance__a b",
  by_hand: "",
  question: null,
  rolls: false,
  closed: "",
  stays_closed: "",
  paused_dags: [],
  barred: [],
};
const QUESTION = { dag: "pulsar_apply__a b", run: "manual/1", task: "approve", hash: "0123456789abcdef" };
const PLAN = {
  ...{ hash: QUESTION.hash, requested_by: [], bundles: 2, splits: [], predicted_range: 5, range_before: 30 },
  ...{ traffic: 1024, measure: "msg_throughput", topics: 1, clients: 2 },
  ...{ has_effect: true, until: "2026-03-05T12:10:00Z" },
};

const STOP = {
  ...{ name: "stop", button: "Stop", title: "Start no more", hint: "", group: "Now" },
  ...{ until: false, subject: "", proposed: "" },
};
const PAUSE = { ...STOP, name: "pause", button: "Pause", until: true };

function view(acts, rest = {}) {
  const page = { awaiting: null, plan: null, moved: null, brokers: [], drains: [] };
  return { ...page, acts: { ...NONE, ...acts }, status: { pairing: true, attention: [] }, ...rest };
}

function act(name, acts, rest) {
  return offered(view(acts, rest), PAGE).find((each) => each.name === name);
}

function form(fields) {
  const data = new FormData();
  for (const [name, values] of Object.entries({ reason: "a party", ...fields })) {
    for (const value of [values].flat()) data.append(name, value);
  }
  return data;
}

for (
  const [acts, names, rest] of [
    [{}, []],
    [{ control: "c", orders: [STOP, PAUSE] }, ["Stop", "Pause"]],
    [{ rebalance: "r", rolls: true }, ["Balance now"]],
    [{ question: { ...QUESTION, until: "2026-03-05T13:00:00Z" } }, ["Reject"]],
    [{ question: { ...QUESTION, until: "2026-03-05T13:00:00Z" } }, ["Reject"], { plan: { ...PLAN, bundles: 0 } }],
    [{ question: { ...QUESTION, until: "2026-03-05T13:00:00Z" } }, ["Approve", "Reject"], { plan: PLAN }],
    [{ control: "c", orders: [STOP], rebalance: "r" }, ["Stop", "Balance now"]],
  ]
) {
  test(`buttons of ${JSON.stringify([acts, rest])}`, () => {
    assert.deepEqual(offered(view(acts, rest), PAGE).map(({ name }) => name), names);
  });
}

for (
  const [button, fields, more] of [
    [STOP, {}, {}],
    [{ ...STOP, name: "skip_broker", subject: "the broker" }, { subject: "b:1" }, { subject: "b:1" }],
  ]
) {
  test(`${button.name} starts a run of the control DAG`, () => {
    const { dag, run, method, path, body } = act("Stop", { control: "c", orders: [button] }).request();
    assert.deepEqual([dag, method, path], ["c", "POST", "dagRuns"]);
    assert.match(run, /^stop__\d+-\d+$/);
    const conf = { action: button.name, reason: "a party", ...more };
    const note = "Stop: a party";
    assert.deepEqual(body(form(fields)), { dag_run_id: run, logical_date: null, note, conf });
  });
}

test("the buttons of a DAG that is paused in Airflow are disabled, with the reason", () => {
  const question = { ...QUESTION, until: "2026-03-05T13:00:00Z" };
  const given = view({ control: "c", rebalance: "r", by_hand: "h", question, paused_dags: [QUESTION.dag, "h"] }, {
    ...{ plan: PLAN, drains: [{ broker: "b:1" }] },
  });
  const all = [...offered(given, PAGE), ...manual(given, PAGE)];
  const why = (dag) => `${dag} is paused in Airflow. Unpause the DAG to use its buttons.`;
  const off = all.map((act) => [act.name, disabled(act, given)]).filter(([, reason]) => reason);
  assert.deepEqual(off, [
    ...["Approve", "Reject"].map((name) => [name, why(QUESTION.dag)]),
    ...["Release", "Unload", "Drain", "Fill", "Split"].map((name) => [name, why("h")]),
  ]);
});

test("nothing is approved or carried out while the DAG that would do it is paused in Airflow", () => {
  const acts = { control: "c", rebalance: "r", question: { ...QUESTION, until: "2026-03-05T13:00:00Z" } };
  const given = view({ ...acts, by_hand: "h", paused_dags: [NONE.carries_out] }, { plan: PLAN });
  const why = `${NONE.carries_out} is paused in Airflow. Unpause the DAG to use its buttons.`;
  const off = [...offered(given, PAGE), ...carryOut(given, "h", NOW)].filter((each) => disabled(each, given));
  assert.deepEqual(off.map((each) => [each.name, disabled(each, given)]), [["Approve", why], ["Carry out", why]]);
});

test("nothing is approved or carried out while the gate is closed, nor released during a rolling restart", () => {
  const acts = { control: "c", question: { ...QUESTION, until: "2026-03-05T13:00:00Z" }, by_hand: "h" };
  const off = (more) => {
    const given = view({ ...acts, ...more }, { plan: PLAN, drains: [{ broker: "b:1" }] });
    const all = [...offered(given, PAGE), ...carryOut(given, "h", NOW)];
    return all.map((each) => [each.name, disabled(each, given)]).filter(([, why]) => why);
  };
  const why = "The cluster is paused.";
  assert.deepEqual(off({ closed: why }), [["Approve", why], ["Carry out", why]]);
  const drain = (more) => {
    const given = view({ ...acts, closed: why, ...more }, { plan: { ...PLAN, marks_drains: true } });
    return disabled(carryOut(given, "h", NOW)[0], given);
  };
  assert.deepEqual([drain({}), drain({ stays_closed: "mode observe" })], ["", "mode observe"]);
  const rolls = "A rolling restart is in progress: wait for its end, or stop it.";
  assert.deepEqual(off({ rolls: true }), [["Release", rolls], ["Carry out", rolls]]);
  const rolling = view({ ...acts, rolls: true });
  const byHand = manual(rolling, PAGE).map((each) => [each.name, disabled(each, rolling)]);
  assert.deepEqual(byHand, ["Unload", "Drain", "Fill", "Split"].map((name) => [name, rolls]));
  assert.equal(
    pausedText("pulsar_roll__a"),
    "pulsar_roll__a is paused in Airflow. Unpause the DAG to start or continue a rolling restart.",
  );
});

test("nobody approves their own plan if two people are needed, but they may reject it", () => {
  const acts = { question: { ...QUESTION, until: "2026-03-05T13:00:00Z" } };
  const off = (barred, requested_by) =>
    ["Approve", "Reject"].map((name) => act(name, { ...acts, barred }, { plan: { ...PLAN, requested_by } }).off);
  assert.deepEqual(off(["7", "ada"], ["bob"]), ["", ""]);
  assert.deepEqual(off([], ["ada"]), ["", ""]);
  for (const name of ["ada", "7"]) {
    assert.deepEqual(off(["7", "ada"], ["bob", name]), [
      "You requested this plan, so another person must approve it.",
      "",
    ]);
  }
});

test("the plan of a dry run is carried out by somebody else, from its page", () => {
  const shown = (mode, acts, more) => {
    const plan = { ...PLAN, requested_by: ["ada"], ...more };
    return view({ by_hand: "h", ...acts }, { plan, of_one_run: true, status: { mode } });
  };
  assert.deepEqual(carryOut(shown("auto"), "r", NOW), []);
  assert.deepEqual(carryOut({ ...shown("auto"), plan: null }, "h", NOW), []);
  const [{ dag, hint, off, request }] = carryOut(shown("auto", { barred: ["8", "bob"] }), "h", NOW);
  assert.deepEqual([dag, off], ["h", ""]);
  assert.match(hint, /^Total: 2 bundles with /);
  assert.deepEqual(request().body(form()).conf, { plan: QUESTION.hash, reason: "a party" });
  const own = (mode, more) => carryOut(shown(mode, { barred: ["7", "ada"] }, more), "h", NOW)[0].off;
  assert.equal(own("auto"), "You made this plan, so another person must carry it out, on the page of its run.");
  assert.equal(own("approve", { marks_drains: true }), own("auto"));
  assert.equal(own("approve"), "");
});

test("a plan is not carried out if it has no effect, and has no button once it has to be made again", () => {
  const shown = (plan, rest) => {
    const [{ off, again }] = carryOut(view({ by_hand: "h" }, { plan: { ...PLAN, ...plan }, ...rest }), "h", NOW);
    return [off, again];
  };
  assert.deepEqual(shown({}), ["", false]);
  assert.deepEqual(shown({ has_effect: false }), ["The plan would have no effect.", false]);
  const old = { until: "2026-03-05T11:59:59Z" };
  assert.deepEqual(shown(old), ["This plan is too old to be carried out: plan again.", true]);
  const moved = { sampled_at: "2026-03-05T11:50:00Z", changed_at: "2026-03-05T11:55:00Z" };
  assert.deepEqual(shown({}, moved), ["Bundles have moved since this plan was made: plan again.", true]);
});

test("buttons and forms are drawn again when what they show has changed", () => {
  const [a, b] = ["a:1", "b:1"].map((name, score) => ({ name, score }));
  const given = view({ by_hand: "h" }, { plan: PLAN, brokers: [b, a] });
  const shown = (rest, now = NOW) => JSON.stringify(neededFor({ ...given, ...rest }, now));
  assert.equal(shown({ brokers: [{ ...a, score: 9 }, b] }), shown({}));
  for (const rest of [{ brokers: [a] }, { drains: [{ broker: "b:1" }] }, { moved: { folder: "f" } }]) {
    assert.notEqual(shown(rest), shown({}));
  }
  assert.notEqual(shown({}, Date.parse(PLAN.until) + 1), shown({}));
});

test("each dialog has a run of its own, and sends it however often", () => {
  const stop = act("Stop", { control: "c", orders: [STOP] });
  const request = stop.request();
  assert.equal(request.body(form()).dag_run_id, request.body(form()).dag_run_id);
  assert.notEqual(request.run, stop.request().run);
});

test("a pause ends after its minutes, or at the time that was given", () => {
  const { body } = act("Pause", { control: "c", orders: [PAUSE] }).request();
  const until = (fields) => body(form({ minutes: "60", ...fields })).conf.until;
  assert.equal(until({ until: "" }), "2026-03-05T13:00:00.000Z");
  assert.equal(until({ until: "2026-03-06T08:00" }), new Date("2026-03-06T08:00").toISOString());
});

test("a freeze of a namespace without bundles is refused at its field, until it is sent again", async () => {
  const [fetched, asked] = [globalThis.fetch, []];
  let found = [{ bundle: "xa/b/0x0_0x1" }, { bundle: "a/b/0x0_0x1" }];
  globalThis.fetch = (path) => (asked.push(path), Promise.resolve(Response.json({ bundles: found })));
  const given = { control: "c", orders: [{ ...STOP, name: "freeze", button: "Freeze", subject: "the namespace" }] };
  const freeze = act("Freeze", given);
  const refused = (subject) => freeze.check(form({ subject })).then(() => "", ({ fields }) => fields.subject);
  try {
    assert.equal(await refused("a/b"), "");
    assert.equal(asked[0], "/b/dags/d/bundles?part=a%2Fb%2F");
    found = found.slice(0, 1);
    const why = "No bundle has this namespace. To freeze it anyway, press Freeze again.";
    assert.deepEqual([await refused("a/b"), await refused("a/b"), await refused("a/c")], [why, "", why]);
    globalThis.fetch = () => Promise.resolve(new Response("{}", { status: 503 }));
    assert.equal(await refused("c/d"), "", "an order does not depend on files of runs");
  } finally {
    globalThis.fetch = fetched;
  }
  assert.equal(act("Stop", { control: "c", orders: [STOP] }).check, undefined);
});

test("balancing now has a threshold if one was given, which only a strategy that pairs takes", () => {
  const { body } = act("Balance now", { rebalance: "r" }).request();
  assert.deepEqual(body(form({ gap: "" })).conf, { force: "a party" });
  assert.deepEqual(body(form({ gap: "7.5" })).conf, { force: "a party", force_threshold: 7.5 });
  assert.ok(act("Balance now", { rebalance: "r" }).fields);
  assert.equal(act("Balance now", { rebalance: "r" }, { status: { pairing: false, attention: [] } }).fields, undefined);
});

test("an answer names the plan in question, and needs no reason", () => {
  const question = { ...QUESTION, until: new Date(Date.now() + 86400000 * 2).toISOString() };
  for (
    const given of [{ awaiting: PLAN }, { plan: PLAN }, {
      awaiting: { ...PLAN, hash: "other", bundles: 9 },
      plan: PLAN,
    }]
  ) {
    const { hint, optional } = act("Approve", { question }, given);
    assert.ok(
      hint.startsWith(
        "Total: 2 bundles with 1.0 KiB/s; 2 clients of 1 topic must reconnect. " +
          "Range 30.0, predicted 5.0. Answer by ",
      ),
      hint,
    );
    assert.equal(optional, true);
  }
  const unseen = /^The plan's bundles cannot be shown, so the plan can only be rejected\. Answer by /;
  assert.match(act("Reject", { question }).hint, unseen);
});

test("an answer is sent to the task that asks", () => {
  const question = { ...QUESTION, until: "2026-03-05T13:00:00Z" };
  const { dag, run, method, path, body } = act("Reject", { question }).request();
  assert.deepEqual([dag, run, method], [QUESTION.dag, QUESTION.run, "PATCH"]);
  assert.equal(path, "dagRuns/manual%2F1/taskInstances/approve/-1/hitlDetails");
  assert.deepEqual(body(form()), { chosen_options: ["Reject"], params_input: { reason: "a party" } });
});

const HAND = view({ by_hand: "h" }, {
  ...{ brokers: [{ name: "b:1" }, { name: "a:1" }], drains: [{ broker: "a:1" }] },
  moved: { collected_at: "2026-03-05T11:00:00Z", folder: "f" },
});
const SPLIT = { algorithm: "range_equally_divide", bundles: "a/b" };

test("manual actions are for those who may do them, and undo is on the page of a run as well", () => {
  const names = ["Unload", "Drain", "Fill", "Split", "Undo run"];
  assert.deepEqual(manual(view({}), PAGE), []);
  assert.deepEqual(manual(HAND, PAGE).map(({ name }) => name), names);
  assert.deepEqual(manual({ ...HAND, of_one_run: true }, PAGE).map(({ name }) => name), ["Undo run"]);
  assert.deepEqual(manual({ ...HAND, moved: null }, PAGE).map(({ name }) => name), names.slice(0, -1));
});

for (
  const [name, fields, conf] of [
    ["Unload", { bundles: " a/b \n\nc/*\n", destination: "b:1" }, { bundles: ["a/b", "c/*"], destination: "b:1" }],
    ["Unload", { bundles: "a/b", destination: "" }, { bundles: ["a/b"], destination: "" }],
    ["Drain", { broker: ["a:1", "b:1"] }, { broker: ["a:1", "b:1"] }],
    ["Fill", { broker: "b:1" }, { broker: ["b:1"] }],
    ["Split", { ...SPLIT, positions: "" }, { ...SPLIT, bundles: ["a/b"], positions: [], unload: false }],
    [
      "Split",
      { ...SPLIT, positions: " 0x10,0x20 0x30\n", unload: "on" },
      { ...SPLIT, bundles: ["a/b"], positions: ["0x10", "0x20", "0x30"], unload: true },
    ],
    ["Undo run", {}, { run: "f" }],
  ]
) {
  test(`${name} asks for its plan with ${JSON.stringify(conf)}`, () => {
    const request = manual(HAND, PAGE).find((each) => each.name === name).request();
    const action = name.split(" ")[0].toLowerCase();
    const sent = request.body(form({ ...fields, overrule: ["policies", "caps"] }));
    assert.deepEqual([request.dag, request.method, sent.dag_run_id], ["h", "POST", request.run]);
    assert.deepEqual(sent.conf, { action, ...conf, overrule: ["policies", "caps"], reason: "a party" });
  });
}

test("buttons stand in three groups", () => {
  const orders = [STOP, PAUSE, { ...STOP, button: "Stop roll", group: "Brokers" }];
  const given = { ...HAND, acts: { ...HAND.acts, control: "c", orders, rebalance: "r" }, awaiting: PLAN };
  const groups = all("div", acts(given, PAGE));
  assert.deepEqual(
    groups.map((group) => [group.attributes["aria-label"], all("button", group).map((each) => each.textContent)]),
    [
      ["Now", ["Stop…", "Pause…", "Balance now…"]],
      ["Brokers", ["Drain…", "Fill…", "Release…", "Stop roll…"]],
      ["Bundles", ["Unload…", "Split…", "Undo run…"]],
    ],
  );
});

test("what waits for a person has its buttons, and since when", () => {
  const since = new Date().toISOString();
  const attention = [
    { text: "Nothing is kept.", since: null, acts: ["Restore", "Reset"] },
    { text: "A plan waits.", since, acts: ["Approve", "Reject"] },
  ];
  const question = { ...QUESTION, until: "2026-03-05T13:00:00Z" };
  const given = { ...HAND, plan: PLAN, status: { pairing: true, attention } };
  const orders = ["Restore", "Reset"].map((button) => ({ ...STOP, button, group: "" }));
  const banner = (view) => waits(view.status, known(view, PAGE).buttons);
  const shown = banner({ ...given, acts: { ...HAND.acts, control: "c", orders, question } });
  assert.deepEqual(shown.map((each) => all("button", each).map((button) => button.textContent)), [
    ["Restore…", "Reset…"],
    ["Approve…", "Reject…"],
  ]);
  assert.equal(shown[0].children[0].textContent, "Nothing is kept.");
  assert.match(shown[1].children[0].textContent, /^A plan waits\. Since \d\d:\d\d:\d\d, \.$/);
  assert.deepEqual(banner(given).map((each) => all("button", each).length), [0, 0]);

  const [list] = all("li", clusters([{ dag_id: "d", cluster: "east", attention }], "/b"));
  assert.match(list.children[1].textContent, /^Nothing is kept\.Restore…Reset…A plan waits\. Since [\d:]{8}, \.App/);
  assert.deepEqual(all("a", list.children).map(({ attributes: { href } }) => href.replace("/b/page/d", "")), [
    ...["", "#act=Restore", "#act=Reset", "#act=Approve", "#act=Reject"],
  ]);
});

test("the brokers that are ticked are released", () => {
  const released = (drains) => offered({ ...HAND, drains }, PAGE).find((each) => each.name === "Release");
  assert.equal(released([]), undefined);
  const ticked = (...names) =>
    all("input", released(names.map((broker) => ({ broker }))).fields("")).map(({ attributes }) =>
      "checked" in attributes
    );
  assert.deepEqual([ticked("a:1"), ticked("a:1", "b:1")], [[true], [false, false]]);
  const { dag, request, fields } = released([{ broker: "gone:1" }, { broker: "a:1" }]);
  assert.deepEqual(all("input", fields()).map((box) => box.attributes.value), ["gone:1", "a:1"]);
  assert.deepEqual([dag, request().body(form({ broker: ["a:1"] })).conf], ["h", {
    ...{ action: "release", broker: ["a:1"], reason: "a party" },
  }]);
});

test("what has changed in the cluster since a plan was made is told", () => {
  const shown = { sampled_at: "2026-03-05T12:00:00Z", brokers: [{ name: "a:1" }] };
  const present = { ...shown, changed_at: null };
  const changed = (made, page) => planAgain(PLAN, made, page, NOW);
  const later = { ...present, sampled_at: "2026-03-05T12:01:00Z" };
  assert.equal(changed(shown, undefined), "");
  assert.equal(changed(shown, present), "");
  assert.equal(changed(shown, later), "");
  assert.match(changed(shown, { ...later, brokers: [] }), /brokers have changed/);
  // The run that moved them began before the plan's sample, and so did a run on whose page the plan was made.
  const earlier = { ...present, sampled_at: "2026-03-05T11:00:00Z", brokers: [] };
  for (const page of [earlier, later]) {
    assert.match(changed(shown, { ...page, changed_at: "2026-03-05T12:00:30Z" }), /Bundles have moved/);
  }
  assert.equal(changed(shown, { ...later, changed_at: "2026-03-05T11:59:00Z" }), "");
  assert.equal(changed(shown, earlier), "");
});

test("a form asks the newer of its own view and the page", () => {
  const [earlier, later] = ["2026-11-22T12:00:00Z", "2026-11-22T12:00:00.5Z"].map((now) => ({ status: { now } }));
  assert.equal(newerOf(later, earlier), later);
  assert.equal(newerOf(earlier, later), later);
  assert.equal(newerOf(undefined, earlier), earlier);
});

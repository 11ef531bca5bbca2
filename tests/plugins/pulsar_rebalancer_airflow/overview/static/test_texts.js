import assert from "node:assert/strict";
import { test } from "node:test";
import { age, tick } from "page/strip.js";
import { moment, points, several, span, traffic, words } from "page/texts.js";

test("an unknown value is a dash, and zero is a value", () => {
  assert.deepEqual([null, undefined, 0, 12.34].map((value) => points(value)), ["–", "–", "0.0", "12.3"]);
  assert.equal(points(12.5, 0), "13");
});

test("traffic has the largest unit that leaves something before the point", () => {
  const values = [0, 0.4, 1023, 1024, 101 * 1024, 1.5 * 1024 ** 3, 5000 * 1024 ** 4];
  const texts = ["0 B/s", "0 B/s", "1023 B/s", "1.0 KiB/s", "101 KiB/s", "1.5 GiB/s", "5000 TiB/s"];
  assert.deepEqual(values.map((value) => traffic(value)), texts);
  assert.equal(traffic(12345.6, "msg_rate"), "12,346 msg/s");
});

test("a time span has one unit, and is never negative", () => {
  const seconds = [-3, 89, 90, 5399, 5400, 129599, 129600];
  assert.deepEqual(seconds.map(span), ["0 s", "89 s", "2 min", "90 min", "2 h", "36 h", "2 d"]);
});

test("a time of another day has its date", () => {
  const now = new Date("2026-03-05T12:00:00Z");
  assert.equal(moment("2026-03-05T09:08:07Z", now), "09:08:07");
  assert.equal(moment("2026-03-04T09:08:07Z", now), "4 Mar 2026, 09:08");
});

test("one thing is singular, none and many are plural", () => {
  assert.deepEqual([0, 1, 2000].map((count) => several(count, "bundle")), ["0 bundles", "1 bundle", "2,000 bundles"]);
  assert.equal(words("bandwidth_in_all"), "bandwidth in all");
});

test("ages grow, and what is awaited says so once it is due", () => {
  const now = Date.parse("2026-03-05T12:00:00Z");
  assert.equal(age({ since: "2026-03-05T11:59:18Z" }, now), "42 s");
  assert.equal(age({ until: "2026-03-05T12:05:00Z" }, now), "5 min");
  assert.equal(age({ until: "2026-03-05T12:05:00Z", before: "fires in about " }, now), "fires in about 5 min");
  assert.equal(age({ until: "2026-03-05T12:00:00Z" }, now), "due");
  assert.equal(age({ until: "2026-03-05T11:00:00Z", over: "with the next run" }, now), "with the next run");
  assert.deepEqual([age({ since: "" }, now), age({ until: "" }, now)], ["–", "–"]);
});

test("green turns grey once its data is too old, even if the server does not answer", () => {
  const changed = [];
  const node = {
    dataset: { fresh: "2026-03-05T12:01:00Z" },
    classList: { replace: (...names) => changed.push(names) },
  };
  globalThis.document = { querySelectorAll: (found) => found.includes("data-fresh") ? [node] : [] };
  tick(Date.parse("2026-03-05T12:00:59Z"));
  assert.deepEqual(changed, []);
  tick(Date.parse("2026-03-05T12:01:01Z"));
  assert.deepEqual(changed, [["good", "idle"]]);
});

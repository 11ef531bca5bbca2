import assert from "node:assert/strict";
import { test } from "node:test";
import { described, places, spoken as spokenBrokers } from "page/broker_chart.js";
import { ceiling, LEFT, RIGHT, scale } from "page/chart.js";
import { spoken, stretches } from "page/timeline.js";

const WIDTH = 1000;
const CALM = { band: "calm", deciding: "cpu", after: null, left_out: "", drained: "" };

function brokers(count) {
  return Array.from({ length: count }, (_, n) => ({ ...CALM, name: `b${n}`, label: `b${n}`, score: 90 - n }));
}

function names(bars) {
  return bars.map(({ broker }) => broker.name);
}

test("the axis ends at the next twenty, and never below its least", () => {
  assert.equal(ceiling([null, 3], 40), 40);
  assert.equal(ceiling([null, 60, 60.1], 40), 80);
  assert.equal(ceiling([60], 40), 60);
});

test("scores are drawn from the bottom to the top, and no higher", () => {
  const y = scale(200, 100, 50);
  assert.deepEqual([0, 25, 50, 400].map(y), [200, 150, 100, 100]);
});

test("few brokers are centred bars of one width, in their order", () => {
  const { bars, slot, rest } = places(brokers(3), WIDTH);
  assert.deepEqual([names(bars), slot, rest], [["b0", "b1", "b2"], 90, null]);
  assert.equal((bars[0].x + bars[2].x) / 2, (LEFT + WIDTH - RIGHT) / 2);
  assert.equal(bars[1].x - bars[0].x, slot);
});

test("brokers that just fit fill the width", () => {
  const room = WIDTH - LEFT - RIGHT;
  const { bars, slot } = places(brokers(Math.floor(room / 30)), WIDTH);
  assert.ok(slot >= 30);
  assert.ok(Math.abs(bars.at(-1).x + slot / 2 - (WIDTH - RIGHT)) < 1e-9);
});

test("of many brokers the hottest and the coldest are bars, and each other one is in the strip between", () => {
  const all = brokers(200);
  const { bars, slot, rest } = places(all, WIDTH);
  const each = bars.length / 2;
  assert.deepEqual(names(bars), [...all.slice(0, each), ...all.slice(-each)].map(({ name }) => name));
  assert.deepEqual(rest.brokers, all.slice(each, -each));
  assert.ok(rest.from > bars[each - 1].x + slot / 2 && rest.to < bars[each].x - slot / 2 && rest.from < rest.to);
  assert.ok(bars[0].x - slot / 2 >= LEFT && bars.at(-1).x + slot / 2 <= WIDTH - RIGHT);
});

test("a phone shows two brokers of each end at least", () => {
  assert.equal(places(brokers(20), 100).bars.length, 4);
});

test("a chart is spoken by its ends; a broker without a report is none", () => {
  const text = "Scores of 3 brokers: b0 is the hottest with 90.0 percent, b1 the coldest with 89.0.";
  const [hot, cold, silent] = brokers(3);
  assert.equal(spokenBrokers([hot, cold, { ...silent, score: null }]), `${text} The table below lists all.`);
  assert.equal(spokenBrokers([{ ...silent, score: null }]), "No broker reports its load.");
});

test("a broker is described by what is known of it", () => {
  const [broker] = brokers(1);
  assert.equal(described({ ...broker, score: null }), "b0\nno report");
  const given = { ...broker, deciding: "direct_memory", left_out: "excluded" };
  assert.equal(described(given), "b0\nscore 90.0 %, direct memory\nleft out: excluded");
  assert.match(described({ ...broker, left_out: "draining", drained: "by ada" }), /\ndrained by ada$/);
});

test("a line breaks at a run that failed, and at a gap of more than five steps", () => {
  const runs = (...minutes) => minutes.map((minute) => ({ at: minute, range: minute === 6 ? null : 1 }));
  const at = (all) => stretches(all).map((part) => part.map((run) => run.at));
  assert.deepEqual(at(runs(4, 5, 6, 7, 8, 13, 19)), [[4, 5], [7, 8, 13], [19]]);
  assert.deepEqual(at(runs(6)), []);
  assert.deepEqual(at([]), []);
});

test("the hour is spoken by its largest range and its failures", () => {
  const [wide, failed] = [{ range: 30 }, { range: null }];
  const text = "The range of scores was at most 30.0 points; 1 run failed.";
  assert.equal(spoken({ points: [wide, failed, { range: 12 }] }), text);
  assert.equal(spoken({ points: [failed] }), "No run judged any broker.");
});

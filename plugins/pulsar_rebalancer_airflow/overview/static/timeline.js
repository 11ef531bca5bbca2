// The range of scores over an hour, a day or a month, with what was moved and what went wrong.

import { draw, make, points, several } from "./dom.js";

const HEIGHT = 150;
const LEFT = 34;
const RIGHT = 10;
const FLOOR = 118;
const SPANS = ["hour", "day", "month"];

export function timeline(data, width, choose) {
  const tabs = make(
    "div",
    { class: "tabs", role: "group", "aria-label": "How far back" },
    SPANS.map((name) =>
      make("button", {
        type: "button",
        "data-key": `span ${name}`,
        "aria-pressed": String(name === data.span),
        onclick: () => choose(name),
      }, name)
    ),
  );
  const head = make(
    "div",
    { class: "row" },
    make("h2", {}, "Range of scores ", make("small", {}, data.unread ? `reading, ${data.unread} to go` : "")),
    tabs,
  );
  if (!data.buckets.length) return [head, make("p", { class: "empty" }, `No run within the last ${data.span}.`)];
  return [head, chart(data, width), summary(data)];
}

function chart(data, width) {
  const [begin, end] = [Date.parse(data.begin), Date.parse(data.end)];
  const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - begin)) / (end - begin);
  const each = Math.max(1.5, x(begin + data.seconds * 1000) - LEFT);
  const highest = Math.max(20, data.high_threshold ?? 0, ...data.buckets.map((bucket) => bucket.highest ?? 0));
  const top = Math.ceil(highest / 20) * 20;
  const y = (score) => FLOOR - ((FLOOR - 10) * score) / top;
  const middle = (bucket) => x(Date.parse(bucket.at)) + each / 2;
  const judged = data.buckets.filter((bucket) => bucket.highest !== null);
  return draw(
    "svg",
    {
      class: "timeline",
      viewBox: `0 0 ${width} ${HEIGHT}`,
      width,
      height: HEIGHT,
      role: "img",
      "aria-label": spoken(data),
    },
    [0, top / 2, top].map((
      score,
    ) => [
      draw("line", { class: score ? "grid" : "base", x1: LEFT, x2: width - RIGHT, y1: y(score), y2: y(score) }),
      draw("text", { class: "tick", x: LEFT - 6, y: y(score) + 4, "text-anchor": "end" }, String(score)),
    ]),
    data.buckets.filter((bucket) => bucket.paused).map((bucket) =>
      stretch("paused", bucket, `${bucket.paused} runs paused or held back`)
    ),
    data.buckets.filter((bucket) => bucket.blocked).map((bucket) =>
      stretch("blocked", bucket, `${bucket.blocked} failed validations`)
    ),
    data.buckets.filter((bucket) => bucket.broken).map((bucket) =>
      stretch("broken", bucket, `${bucket.broken} failed runs`)
    ),
    [["low", data.low_threshold], ["high", data.high_threshold]].filter(([, at]) => at !== null).map(([name, at]) =>
      draw(
        "line",
        { class: `threshold ${name}`, x1: LEFT, x2: width - RIGHT, y1: y(at), y2: y(at) },
        draw("title", {}, `${name} threshold ${at}`),
      )
    ),
    judged.length > 1 && draw("path", { class: "area", d: area(judged, middle, y) }),
    lines(judged, data.seconds).map((part) =>
      draw("polyline", {
        class: "range",
        points: part.map((b) => `${middle(b)},${y((b.lowest + b.highest) / 2)}`).join(" "),
      })
    ),
    judged.length === 1 && draw("circle", { class: "alone", cx: middle(judged[0]), cy: y(judged[0].highest), r: 3 }),
    data.buckets.filter((bucket) => bucket.moved || bucket.failed).map(moved),
    times(),
  );

  function stretch(kind, bucket, text) {
    return draw(
      "rect",
      { class: kind, x: x(Date.parse(bucket.at)), width: each, y: 10, height: FLOOR - 10 },
      draw("title", {}, text),
    );
  }

  function moved(bucket) {
    const text = [bucket.moved && `${bucket.moved} bundles moved`, bucket.failed && `${bucket.failed} failed`].filter(
      Boolean,
    ).join(", ");
    return draw("path", {
      class: bucket.failed ? "moved failed" : "moved",
      d: `M${middle(bucket)} ${FLOOR + 3}l5 8h-10z`,
    }, draw("title", {}, text));
  }

  function times() {
    const format = data.span === "month" ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit" };
    return [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const at = begin + (end - begin) * share;
      const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
      return draw(
        "text",
        { class: "tick", x: x(at), y: HEIGHT - 6, "text-anchor": anchor },
        new Date(at).toLocaleString("en-GB", format),
      );
    });
  }
}

function area(judged, x, y) {
  const up = judged.map((bucket) => `${x(bucket)} ${y(bucket.highest)}`);
  const back = judged.map((bucket) => `${x(bucket)} ${y(bucket.lowest)}`).reverse();
  return `M${[...up, ...back].join("L")}Z`;
}

// A line breaks where nothing was judged for a while.
function lines(judged, seconds) {
  const parts = [];
  let before = null;
  for (const bucket of judged) {
    if (before === null || Date.parse(bucket.at) - before > seconds * 5000) parts.push([]);
    parts[parts.length - 1].push(bucket);
    before = Date.parse(bucket.at);
  }
  return parts.filter((part) => part.length > 1);
}

function sum(data, name) {
  return data.buckets.reduce((all, bucket) => all + bucket[name], 0);
}

function spoken(data) {
  const ranges = data.buckets.map((bucket) => bucket.highest).filter((range) => range !== null);
  const shown = ranges.length
    ? `The range of scores was at most ${points(Math.max(...ranges))} points.`
    : "No run judged any broker.";
  return `The last ${data.span}: ${shown}`;
}

function summary(data) {
  const facts = [
    ["runs", "run"],
    ["moved", "bundle", " moved"],
    ["failed", "move", " failed"],
    ["blocked", "failed validation"],
    ["broken", "failed run"],
    ["paused", "run", " paused or held back"],
  ];
  const said = facts.filter(([name], n) => !n || sum(data, name)).map(([name, one, rest]) =>
    several(sum(data, name), one, rest)
  );
  return make("p", { class: "more" }, said.join(" · "));
}

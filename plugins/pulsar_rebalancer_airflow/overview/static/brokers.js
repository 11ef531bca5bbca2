// Brokers as bars, the hottest to the coldest, with their pairs joined below.

import { draw, make, points, several, traffic } from "./dom.js";

const LEFT = 34;
const RIGHT = 10;
const TOP = 38;
const PLOT = 190;
const NARROWEST = 30;

export function brokers(view, width) {
  const all = view.brokers;
  if (!all.length) return make("p", { class: "empty" }, "No broker has been looked at yet.");
  return [heading(view), chart(view, width), legend(view), table(all)];
}

function heading(view) {
  const left = view.brokers.filter((broker) => broker.left_out).length;
  const said = [
    several(view.brokers.length, "broker"),
    view.middle !== null && `mean ${points(view.middle)} %`,
    left && `${left} left out`,
  ];
  return make("h2", {}, "Brokers ", make("small", {}, said.filter(Boolean).join(" · ")));
}

// Where each broker stands: all of them, or the hottest and the coldest with a strip of the rest between them.
function places(all, width) {
  const room = width - LEFT - RIGHT;
  if (all.length * NARROWEST <= room) {
    const slot = Math.min(90, room / all.length);
    const begin = LEFT + (room - slot * all.length) / 2;
    return { wide: all.map((broker, n) => ({ broker, x: begin + slot * (n + 0.5), slot })), rest: null };
  }
  const each = Math.max(2, Math.floor((room * 0.36) / NARROWEST));
  const wide = [];
  all.slice(0, each).forEach((broker, n) => wide.push({ broker, x: LEFT + NARROWEST * (n + 0.5), slot: NARROWEST }));
  all.slice(-each).forEach((broker, n) =>
    wide.push({ broker, x: width - RIGHT - NARROWEST * (each - n - 0.5), slot: NARROWEST })
  );
  const from = LEFT + NARROWEST * each + 10;
  return { wide, rest: { brokers: all.slice(each, -each), from, to: width - RIGHT - NARROWEST * each - 10 } };
}

function chart(view, width) {
  const { wide, rest } = places(view.brokers, width);
  const highest = Math.max(40, ...view.brokers.map((b) => Math.max(b.score ?? 0, b.highest ?? 0, b.after ?? 0)));
  const top = Math.ceil((highest * 1.02) / 20) * 20;
  const y = (score) => TOP + PLOT - (PLOT * Math.min(score, top)) / top;
  const longest = Math.max(...wide.map(({ broker }) => broker.label.length)) * 6.3;
  const turned = longest > Math.min(...wide.map(({ slot }) => slot)) - 4;
  const names = turned ? Math.min(longest, 120) * 0.72 + 14 : 20;
  const joined = arcs(wide, TOP + PLOT + names + 4);
  const height = TOP + PLOT + names + joined.height + 6;
  return draw(
    "svg",
    { class: "brokers", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": spoken(view) },
    axis(top, width, y),
    bands(view, width, y),
    rest && strip(rest, y),
    wide.map((place) => bar(place, y, turned)),
    joined.nodes,
  );
}

function spoken(view) {
  const [hot] = view.brokers;
  const judged = view.brokers.filter((broker) => broker.score !== null);
  const cold = judged[judged.length - 1];
  if (!cold) return "No broker reports its load.";
  return `Scores of ${view.brokers.length} brokers: ${hot.label} is the hottest with ${
    points(hot.score)
  } percent, ${cold.label} the coldest with ${points(cold.score)}. The table below has all of them.`;
}

function axis(top, width, y) {
  const steps = [];
  for (let score = 0; score <= top; score += top > 100 ? 40 : 20) {
    steps.push(
      draw("line", { class: score ? "grid" : "base", x1: LEFT, x2: width - RIGHT, y1: y(score), y2: y(score) }),
      draw("text", { class: "tick", x: LEFT - 6, y: y(score) + 4, "text-anchor": "end" }, String(score)),
    );
  }
  return steps;
}

function bands(view, width, y) {
  const end = width - RIGHT;
  const drawn = [...view.lines].reverse().map(({ name, lower, upper }, n) => {
    if (lower === upper) {
      return [
        draw("line", { class: "limit", x1: LEFT, x2: end, y1: y(upper), y2: y(upper) }),
        draw("text", { class: "tick", x: end, y: y(upper) - 4, "text-anchor": "end" }, `${name} ${points(upper)}`),
      ];
    }
    return draw("rect", {
      class: `band band${n}`,
      x: LEFT,
      width: end - LEFT,
      y: y(upper),
      height: Math.max(0, y(lower) - y(upper)),
    }, draw("title", {}, `${name}: ${points(upper - lower)} points around the mean`));
  });
  if (view.middle !== null) {
    drawn.push(draw("line", { class: "mean", x1: LEFT, x2: end, y1: y(view.middle), y2: y(view.middle) }));
  }
  return drawn;
}

function bar({ broker, x, slot }, y, turned) {
  const wide = Math.min(38, slot * 0.62);
  const parts = [draw("title", {}, described(broker))];
  if (broker.score !== null) {
    parts.push(
      draw("rect", {
        class: "score",
        x: x - wide / 2,
        width: wide,
        y: y(broker.score),
        height: y(0) - y(broker.score),
        rx: 2,
      }),
    );
    const used = Object.entries(broker.resources);
    const thin = wide / (used.length * 2 + 1);
    used.forEach(([name, figure], n) => {
      if (name === broker.deciding) return;
      parts.push(
        draw("rect", {
          class: `resource ${name}`,
          x: x - wide / 2 + thin * (n * 2 + 1),
          width: thin,
          y: y(figure),
          height: y(0) - y(figure),
        }),
      );
    });
    // The one that counts is the bar itself, and has its colour on top.
    parts.push(
      draw("rect", {
        class: `resource ${broker.deciding}`,
        x: x - wide / 2,
        width: wide,
        y: y(broker.score),
        height: Math.min(4, y(0) - y(broker.score)),
      }),
    );
    if (broker.after !== null) {
      parts.push(
        draw("line", {
          class: "after",
          x1: x - wide / 2 - 4,
          x2: x + wide / 2 + 4,
          y1: y(broker.after),
          y2: y(broker.after),
        }),
      );
    }
    if (broker.highest - broker.lowest > 0.5) {
      const [low, high] = [y(broker.lowest), y(broker.highest)];
      parts.push(draw("path", { class: "whisker", d: `M${x} ${low}V${high}M${x - 3} ${low}h6M${x - 3} ${high}h6` }));
    }
    const above = y(Math.max(broker.score, broker.highest ?? 0)) - 6;
    parts.push(
      draw("text", { class: "value", x, y: above, "text-anchor": "middle" }, points(broker.score, slot < 34 ? 0 : 1)),
    );
    if (slot >= 70) {
      parts.push(draw("text", { class: "counts", x, y: above - 13, "text-anchor": "middle" }, words(broker.deciding)));
    }
  } else {
    parts.push(draw("text", { class: "value", x, y: y(0) - 6, "text-anchor": "middle" }, "?"));
  }
  parts.push(name(broker, x, y(0) + 14, turned));
  return draw("g", { class: `broker ${broker.band}${broker.left_out ? " left-out" : ""}` }, parts);
}

function name(broker, x, y, turned) {
  const text = broker.label.length > 18 ? `…${broker.label.slice(-17)}` : broker.label;
  if (!turned) return draw("text", { class: "name", x, y: y + 2, "text-anchor": "middle" }, text);
  return draw(
    "text",
    { class: "name", x: x + 4, y, "text-anchor": "end", transform: `rotate(-42 ${x + 4} ${y})` },
    text,
  );
}

function strip({ brokers: rest, from, to }, y) {
  const step = (to - from) / rest.length;
  const lines = rest.map((broker, n) =>
    draw("rect", {
      class: `score ${broker.band}`,
      x: from + step * n,
      width: Math.max(0.6, step * 0.8),
      y: y(broker.score ?? 0),
      height: y(0) - y(broker.score ?? 0),
    }, draw("title", {}, described(broker)))
  );
  return draw(
    "g",
    { class: "rest" },
    lines,
    draw("text", { class: "tick", x: (from + to) / 2, y: y(0) + 16, "text-anchor": "middle" }, `${rest.length} more`),
  );
}

// A pair is an arc from the hot to the cold one; nested, as they are paired from the outside in.
function arcs(wide, begin) {
  const at = new Map(wide.map(({ broker, x }) => [broker.name, x]));
  const found = wide.filter(({ broker }) => broker.partner && at.has(broker.partner) && broker.gap !== null);
  found.sort((one, other) => (at.get(one.broker.partner) - one.x) - (at.get(other.broker.partner) - other.x));
  const step = Math.min(17, 90 / Math.max(1, found.length));
  const nodes = found.map(({ broker, x }, n) => {
    const end = at.get(broker.partner);
    const low = begin + 8 + step * (n + 1);
    const round = Math.min(12, step + 4, Math.abs(end - x) / 2);
    const path = `M${x} ${begin}V${low - round}Q${x} ${low} ${x + round} ${low}H${end - round}Q${end} ${low} ${end} ${
      low - round
    }V${begin}`;
    const label = broker.band !== "calm" && step >= 11
      ? draw("text", { class: "gap", x: (x + end) / 2, y: low + 4, "text-anchor": "middle" }, points(broker.gap))
      : null;
    return draw("g", { class: `pair ${broker.band}` }, draw("path", { d: path }), label);
  });
  return { nodes, height: found.length ? 14 + step * (found.length + 1) : 0 };
}

function described(broker) {
  const used = Object.entries(broker.resources).map(([name, figure]) =>
    `${words(name)} ${points(figure)}${name === broker.deciding ? " (counts)" : ""}`
  );
  const lines = [
    broker.name,
    broker.score === null ? "no report" : `score ${points(broker.score)} %: ${used.join(", ")}`,
  ];
  if (broker.lowest !== null) lines.push(`last half hour ${points(broker.lowest)} to ${points(broker.highest)}`);
  if (broker.after !== null) lines.push(`predicted after the plan ${points(broker.after)}`);
  if (broker.average !== null) lines.push(`moving average ${points(broker.average)} %`);
  if (broker.left_out) lines.push(`left out: ${broker.left_out}`);
  if (broker.drained) lines.push(`drained ${broker.drained}`);
  return lines.join("\n");
}

function words(name) {
  return name.replaceAll("_", " ");
}

function legend(view) {
  const entry = (kind, text) => make("li", {}, make("i", { class: `key ${kind}` }), text);
  const deciding = new Set(view.brokers.map((broker) => broker.deciding));
  return make(
    "ul",
    { class: "legend" },
    entry("score", "score: the resource that counts"),
    resourcesOf(view.brokers).map((name) =>
      entry(`resource ${name}`, deciding.has(name) ? `${words(name)} (counts)` : words(name))
    ),
    entry("whisker", "last half hour"),
    view.brokers.some((broker) => broker.after !== null) && entry("after", "predicted"),
    view.middle !== null && entry("mean", "mean"),
    view.lines.length > 1 &&
      entry(
        "band",
        `nobody has to move within, thresholds ${
          view.lines.map(({ lower, upper }) => points(upper - lower, 0)).join(" and ")
        }`,
      ),
  );
}

function resourcesOf(all) {
  return Object.keys(all.find((broker) => broker.score !== null)?.resources ?? {});
}

function table(all) {
  const resources = resourcesOf(all);
  const kept = [["average", "average", (figure) => points(figure)], [
    "average_throughput",
    "average rate",
    (figure) => figure === null ? "–" : traffic(figure, "msg_throughput"),
  ]]
    .filter(([name]) => all.some((broker) => broker[name] !== null));
  const row = (broker) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, broker.name),
      make("td", {}, points(broker.score)),
      resources.map((name) =>
        make("td", { class: name === broker.deciding ? "counts" : "" }, points(broker.resources[name]))
      ),
      make("td", {}, broker.lowest === null ? "–" : `${points(broker.lowest)} to ${points(broker.highest)}`),
      make("td", {}, points(broker.after)),
      kept.map(([name, , told]) => make("td", {}, told(broker[name]))),
      make("td", {}, traffic(broker.msg_throughput, "msg_throughput")),
      make("td", {}, broker.bundles),
      make(
        "td",
        { class: "text" },
        [broker.left_out && `left out: ${broker.left_out}`, broker.drained && `drained ${broker.drained}`].filter(
          Boolean,
        ).join(" "),
      ),
    );
  const head = [
    "broker",
    "score",
    ...resources.map(words),
    "half hour",
    "predicted",
    ...kept.map(([, title]) => title),
    "traffic",
    "bundles",
    "remark",
  ];
  return make(
    "details",
    { "data-key": "brokers" },
    make("summary", { "data-key": "brokers table" }, "All brokers as a table"),
    make(
      "div",
      { class: "scroll", "data-key": "brokers scroll", tabindex: 0, role: "region", "aria-label": "All brokers" },
      make(
        "table",
        {},
        make("thead", {}, make("tr", {}, head.map((title) => make("th", { scope: "col" }, title)))),
        make("tbody", {}, all.map(row)),
      ),
    ),
  );
}

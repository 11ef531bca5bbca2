// Elements and texts. Whatever comes from brokers becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(
    ...children.flat(Infinity).filter((child) =>
      child !== null && child !== undefined && child !== false && child !== ""
    ),
  );
  return node;
}

export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

// A section is made anew only when what it shows has changed; what was unfolded, focused and scrolled stays so.
const shown = new WeakMap();

export function renew(section, part, render) {
  const text = JSON.stringify(part);
  if (shown.get(section) === text) return;
  shown.set(section, text);
  const place = kept(section);
  section.replaceChildren(...[render()].flat(Infinity).filter(Boolean));
  restore(section, place);
}

function kept(section) {
  const of = (selector) => [...section.querySelectorAll(selector)].map((node) => node.dataset.key);
  const scrolled = [...section.querySelectorAll(".scroll[data-key]")].map((
    node,
  ) => [node.dataset.key, node.scrollTop, node.scrollLeft]);
  const active = section.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  return { open: of("details[open][data-key]"), scrolled, active };
}

function restore(section, { open, scrolled, active }) {
  const find = (key) => section.querySelector(`[data-key="${CSS.escape(key)}"]`);
  for (const key of open) find(key)?.setAttribute("open", "");
  for (const [key, top, left] of scrolled) find(key)?.scrollTo(left, top);
  if (active) find(active)?.focus({ preventScroll: true });
}

export function points(figure, digits = 1) {
  return figure === null || figure === undefined ? "–" : figure.toFixed(digits);
}

export function traffic(figure, measure) {
  if (measure === "msg_rate") return `${Math.round(figure).toLocaleString("en")} msg/s`;
  const units = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"];
  let size = figure;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size.toFixed(unit && size < 100 ? 1 : 0)} ${units[unit]}`;
}

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  if (whole < 5400) return `${Math.round(whole / 60)} min`;
  if (whole < 129600) return `${Math.round(whole / 3600)} h`;
  return `${Math.round(whole / 86400)} d`;
}

export function clock(text) {
  return new Date(text).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

// A time of today; with its date, one of another day.
export function moment(text) {
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock(text) : at.toLocaleString("en-GB", {
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
  });
}

export function several(count, noun, rest = "") {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}${rest}`;
}

// Elements. Text from brokers becomes a text node, never markup.

/** @import { Attributes, Child, Column } from "./elements.d.ts" */

const SVG = "http://www.w3.org/2000/svg";

/** @type {(children: Child[]) => (Node | string)[]} */
function nodes(children) {
  return children.flatMap((child) => {
    if (Array.isArray(child)) return nodes(child);
    if (typeof child === "number") return String(child);
    return child || [];
  });
}

/**
 * @template {Element} E
 * @param {E} node
 * @param {Attributes} attributes - functions are listeners
 * @param {Child[]} children
 */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice("on".length), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  node.append(...nodes(children));
  return node;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Attributes} [attributes]
 * @param {...Child} children
 */
export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** @type {(name: string, attributes: Attributes, ...children: Child[]) => SVGElement} */
export function draw(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/**
 * Return a table that scrolls within the page.
 * @template R
 * @param {string} key - under which `renew` keeps its place
 * @param {string} label
 * @param {readonly R[]} rows
 * @param {Column<R>[]} columns
 * @param {(row: R) => string} [kind] - CSS class of a row
 */
export function table(key, label, rows, columns, kind = () => "") {
  const drawn = columns.filter(({ shown }) => shown !== false);
  const head = drawn.map(({ title, kind }) => make("th", { scope: "col", class: kind }, title));
  /** @param {R} row */
  const cells = (row) =>
    drawn.map(({ cell, kind }, n) => make(n ? "td" : "th", { scope: n ? null : "row", class: kind }, cell(row)));
  const body = rows.map((row) => make("tr", { class: kind(row) }, cells(row)));
  return make(
    "div",
    { class: "scroll", "data-key": key, tabindex: 0, role: "group", "aria-label": label },
    make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, body)),
  );
}

/**
 * Return a part that can be unfolded.
 * @param {string} key - under which `renew` keeps its place
 * @param {string} summary
 * @param {...Child} children
 */
export function folded(key, summary, ...children) {
  return make("details", { "data-key": key }, make("summary", { "data-key": `${key} summary` }, summary), children);
}

/** @type {WeakMap<Element, string>} */
const shown = new WeakMap();

/**
 * Redraw a section if its content has changed; unfolded parts, focus and scroll positions stay. Its heading names it.
 * @param {Element} section
 * @param {unknown} part - the content
 * @param {() => Child} render
 */
export function renew(section, part, render) {
  const text = JSON.stringify(part);
  if (shown.get(section) === text) return;
  shown.set(section, text);
  const restore = kept(section);
  section.replaceChildren(...nodes([render()]));
  named(section);
  restore();
}

/** @param {Element} section - becomes a landmark only with a name */
function named(section) {
  const heading = section.matches("section") && section.querySelector("h1, h2");
  if (!heading) return section.removeAttribute("aria-labelledby");
  heading.id = `${section.className}-heading`;
  section.setAttribute("aria-labelledby", heading.id);
}

/**
 * Move the focus to the part with a key, or to the page if that part is gone or disabled.
 * @type {(key: string, section?: ParentNode) => void}
 */
export function focusOn(key, section = document) {
  const node = /** @type {HTMLElement | null} */ (section.querySelector(`[data-key="${CSS.escape(key)}"]`));
  node?.focus({ preventScroll: true });
  if (document.activeElement !== node) document.querySelector("main")?.focus({ preventScroll: true });
}

/** @param {Element} section */
function kept(section) {
  const keyed = /** @type {NodeListOf<HTMLElement>} */ (section.querySelectorAll("[data-key]"));
  const before = [...keyed].map((node) => ({
    key: node.dataset.key ?? "",
    open: node.hasAttribute("open"),
    top: node.scrollTop,
    left: node.scrollLeft,
    focused: node === document.activeElement,
  }));
  return () => {
    for (const { key, open, top, left, focused } of before) {
      const node = /** @type {HTMLElement | null} */ (section.querySelector(`[data-key="${CSS.escape(key)}"]`));
      if (open) node?.setAttribute("open", "");
      node?.scrollTo(left, top);
      if (focused) focusOn(key, section);
    }
  };
}

/**
 * Call an action after a number of seconds, or after four times as many while the page is hidden; return its timer.
 * @type {(seconds: number, action: () => void) => number}
 */
export function later(seconds, action) {
  return setTimeout(action, (document.hidden ? 4 : 1) * seconds * 1000);
}

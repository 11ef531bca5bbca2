// Search for bundles: where each is, why the latest plan moves it or not, and the field of a form to pick them for.

import { dagPath } from "./address.js";
import { remarks } from "./broker_chart.js";
import { make, renew, table } from "./dom.js";
import { left } from "./roll.js";
import { ask } from "./server.js";
import { moment, points, several, traffic } from "./texts.js";

/** @import { FoundBundle, FoundBundles, Overview } from "./documents.d.ts" */
/** @import { Child } from "./elements.d.ts" */
/** @typedef {(names: string[], given: string) => Child} Buttons - of forms that are about a bundle or broker */

const PAUSE = 300;

/**
 * Return a search field, the place of what it finds, and a function that searches again.
 * @type {(base: string, dag: string, render: (answer: FoundBundles, part: string) => Child) =>
 *   { field: HTMLInputElement, found: HTMLElement, again: () => void }}
 */
export function search(base, dag, render) {
  const found = make("div", {});
  const field = make("input", { type: "search", autocomplete: "off", placeholder: "name or persistent://…" });
  const show = async () => {
    const part = field.value.trim();
    /** @type {FoundBundles} */
    const answer = await ask(`${base}${dagPath(dag)}/bundles?part=${encodeURIComponent(part)}`);
    if (part === field.value.trim()) renew(found, [answer, part], () => render(answer, part));
  };
  let waiting = 0;
  const again = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => show().catch(({ message }) => renew(found, message, () => message)), PAUSE);
  };
  field.addEventListener("input", again);
  return { field, found, again };
}

/** @type {(answer: FoundBundles, part: string, view: Overview, buttons: Buttons) => Child} */
export function answered(answer, part, view, buttons) {
  if (!part) return [];
  const none = make("p", { class: "empty" }, `No bundle${answer.broker ? "." : ", topic or broker has this name."}`);
  const found = answer.bundles.length ? list(answer, ({ bundle }) => bundle, buttons) : none;
  return [ofBroker(answer.broker || part, view, buttons), found];
}

/** @type {(name: string, view: Overview, buttons: Buttons) => Child} */
function ofBroker(name, view, buttons) {
  const broker = view.brokers.find((each) => each.name === name);
  const drain = view.drains.find((each) => each.broker === name);
  if (!broker && !drain) return null;
  const state = drain
    ? `drained ${drain.drained} — ${drain.movable === 0 ? "empty, safe to stop." : left(drain)}`
    : broker && [`score ${points(broker.score)} %`, ...remarks(broker)].join(", ");
  const acts = buttons(drain ? ["Release"] : ["Drain", "Fill", "Restart"], name);
  return make("p", { class: "found" }, make("b", {}, name), ` ${state} `, acts);
}

/** @type {(answer: FoundBundles, name: (row: FoundBundle) => Child, buttons?: Buttons) => Child} */
function list({ bundles, all, sampled_at: at }, name, buttons) {
  const drawn = table("found", "Bundles found", bundles, [
    { title: "bundle", cell: name },
    { title: "why it stays or moves", cell: ({ why, reason }) => [why, " ", make("code", {}, reason)], kind: "text" },
    { title: "broker", cell: ({ broker }) => broker },
    { title: "rate", cell: (found) => traffic(found.traffic) },
    { title: "topics", cell: ({ topics }) => topics },
    { title: "last move", cell: ({ moved }) => moved || "–", kind: "text" },
    { title: "actions", cell: ({ bundle }) => buttons?.(["Unload", "Split"], bundle), shown: buttons !== undefined },
  ]);
  const most = ` of ${all.toLocaleString("en")}, those with the most traffic`;
  const some = `${several(bundles.length, "bundle")}${bundles.length < all ? most : ""}`;
  return [drawn, make("p", { class: "more" }, some, at && `, as of ${moment(at)}`)];
}

/** @param {string} text - one name or pattern on each line */
export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** @type {(base: string, dag: string, many: boolean, given: string) => Child} */
export function bundleFields(base, dag, many, given) {
  const size = { rows: many ? 3 : 1, required: true, spellcheck: "false" };
  const names = make("textarea", { name: "bundles", ...size }, given);
  /** @type {(bundle: string, picked: boolean) => void} */
  const pick = (bundle, picked) => {
    const others = many ? lines(names.value).filter((line) => line !== bundle) : [];
    names.value = [...others, ...(picked ? [bundle] : [])].join("\n");
  };
  /** @param {FoundBundle} found */
  const box = ({ bundle }) => {
    const onchange = (/** @type {Event} */ { target }) =>
      target instanceof HTMLInputElement && pick(bundle, target.checked);
    // Without a name it is no field of the form; radio buttons need a common one.
    const kind = many ? { type: "checkbox" } : { type: "radio", name: "picked" };
    const checked = lines(names.value).includes(bundle);
    return make("label", {}, make("input", { ...kind, checked, onchange }), ` ${bundle}`);
  };
  const { field, found, again } = search(base, dag, (answer) => list(answer, box));
  again();
  const label = many ? "Bundles, namespaces or patterns (* and ?), one on each line" : "Bundle";
  return [make("label", {}, label, names), make("label", {}, "Find bundles to pick ", field), found];
}

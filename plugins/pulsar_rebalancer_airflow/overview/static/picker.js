// A field for bundles, with a table of the cluster's bundles to pick from.

import { dagPath } from "./address.js";
import { make, table } from "./dom.js";
import { ask } from "./server.js";
import { several, traffic } from "./texts.js";

/** @import { BundleFound, BundlesFound } from "./documents.d.ts" */
/** @import { Child, Column } from "./elements.d.ts" */

const PAUSE = 300;

/** @param {string} text - one name or pattern on each line */
export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** @type {(base: string, dag: string, many: boolean) => Child} */
export function bundleFields(base, dag, many) {
  const field = make("textarea", { name: "bundles", rows: many ? 3 : 1, required: true, spellcheck: "false" });
  const found = make("div", {});
  const search = make("input", { type: "search", autocomplete: "off" });
  /** @type {(bundle: string, picked: boolean) => void} */
  const pick = (bundle, picked) => {
    const others = many ? lines(field.value).filter((line) => line !== bundle) : [];
    field.value = [...others, ...(picked ? [bundle] : [])].join("\n");
  };
  const show = async () => {
    /** @type {BundlesFound} */
    const { bundles, all } = await ask(
      `${base}${dagPath(dag)}/bundles?part=${encodeURIComponent(search.value.trim())}`,
    );
    const text = `${several(bundles.length, "bundle")} of ${all.toLocaleString("en")}, those with the most traffic`;
    found.replaceChildren(list(bundles, new Set(lines(field.value)), many, pick), make("p", { class: "more" }, text));
  };
  let waiting = 0;
  const again = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => show().catch((problem) => found.replaceChildren(problem.message)), PAUSE);
  };
  search.addEventListener("input", again);
  again();
  const label = many ? "Bundles, namespaces or patterns (* and ?), one on each line" : "Bundle";
  return [make("label", {}, label, field), make("label", {}, "Find bundles to pick ", search), found];
}

/**
 * @param {BundleFound[]} bundles
 * @param {Set<string>} picked
 * @param {boolean} many
 * @param {(bundle: string, picked: boolean) => void} pick
 */
function list(bundles, picked, many, pick) {
  /** @param {BundleFound} found */
  const box = ({ bundle }) => {
    const onchange = (/** @type {Event} */ { target }) =>
      target instanceof HTMLInputElement && pick(bundle, target.checked);
    // Without a name it is no field of the form; radio buttons need a common one.
    const kind = many ? { type: "checkbox" } : { type: "radio", name: "picked" };
    return make("label", {}, make("input", { ...kind, checked: picked.has(bundle), onchange }), ` ${bundle}`);
  };
  /** @type {Column<BundleFound>[]} */
  const columns = [
    { title: "bundle", cell: box },
    { title: "broker", cell: ({ broker }) => broker },
    { title: "rate", cell: (found) => traffic(found.traffic) },
    { title: "topics", cell: ({ topics }) => topics },
  ];
  return table("picker", "Bundles to pick", columns, bundles);
}

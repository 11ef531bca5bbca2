// What validation found, in plain words.

import { make } from "./dom.js";

export function findings(view) {
  const { validation } = view.links;
  // The page of the result opens in this very frame; the browser's way back leads here again.
  const whole = validation && make("p", { class: "more" }, make("a", { href: validation, "data-key": "validation" }, "The whole validation result"));
  if (!view.validated) return [];
  if (!view.findings.length) return [make("h2", {}, "Validation"), make("p", { class: "empty" }, "Every expectation was met."), whole];
  return [make("h2", {}, "What validation found"), make("ul", { class: "findings" }, view.findings.map(entry)), whole];
}

function entry(found) {
  return make("li", { class: found.effect },
    make("b", {}, found.effect), ` ${found.meaning}`, found.worst.length > 0 && make("span", { class: "worst" }, ` ${found.worst.join("; ")}`),
    found.action && make("span", { class: "action" }, ` ${found.action}`), " ", make("code", {}, found.count > 1 ? `${found.reason} ×${found.count}` : found.reason));
}

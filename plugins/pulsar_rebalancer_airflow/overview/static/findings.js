// What validation found, in plain words.

import { make } from "./dom.js";
import { uiLink } from "./links.js";

export function findings(view) {
  const { validation, run, log } = view.links;
  // The page of the result opens in this very frame; the browser's way back leads here again.
  const more = [["The run", run], ["Its log", log]].filter(([, path]) => path).map((
    [text, path],
  ) => [" ", uiLink(path, text)]);
  const whole = validation &&
    make(
      "p",
      { class: "more" },
      make("a", { href: validation, "data-key": "validation" }, "The whole validation result"),
      view.findings.length > 0 && more,
    );
  if (!view.validated) return [];
  if (!view.findings.length) {
    return [make("h2", {}, "Validation"), make("p", { class: "empty" }, "Every expectation was met."), whole];
  }
  return [make("h2", {}, "What validation found"), make("ul", { class: "findings" }, view.findings.map(entry)), whole];
}

function entry(found) {
  return make(
    "li",
    { class: found.effect },
    make("b", {}, found.effect),
    ` ${found.meaning}`,
    found.worst.length > 0 && make("span", { class: "worst" }, ` ${found.worst.join("; ")}`),
    found.action && make("span", { class: "action" }, ` ${found.action}`),
    " ",
    make("code", {}, found.count > 1 ? `${found.reason} ×${found.count}` : found.reason),
  );
}

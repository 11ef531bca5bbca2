// The findings of validation.

import { make } from "./dom.js";
import { uiLink } from "./links.js";
import { moment } from "./texts.js";

/** @import { ExplainedReason, Overview } from "./documents.d.ts" */

/** @param {Overview} view */
export function findings({ validated, findings, sampled_at: at, links }) {
  if (!validated) return [];
  const { validation, run, log } = links;
  // The result opens within this frame; the browser's way back leads here again.
  const result = validation && make("a", { href: validation, "data-key": "validation" }, "Full validation result");
  const more = findings.length > 0 && [run && [" ", uiLink(run, "The run")], log && [" ", uiLink(log, "Its log")]];
  return [
    make("h2", {}, findings.length ? "What validation found" : "Validation"),
    findings.length
      ? make("ul", { class: "findings" }, findings.map(entry))
      : make("p", { class: "empty" }, `Every expectation was met${at ? ` at ${moment(at)}` : ""}.`),
    result && make("p", { class: "more" }, result, more),
  ];
}

/** @param {ExplainedReason} finding */
function entry({ effect, meaning, worst, action, reason, count }) {
  const named = worst.length > 0 && make("span", { class: "worst" }, ` ${worst.join("; ")}`);
  const help = action && make("span", { class: "action" }, ` ${action}`);
  const code = make("code", {}, count > 1 ? `${reason} ×${count}` : reason);
  return make("li", { class: effect }, make("b", {}, effect), ` ${meaning}`, named, help, " ", code);
}

// What a person may do: each act is a DAG run, started over Airflow's own API as the user who presses the button.

import { make } from "./dom.js";
import { uiLink } from "./links.js";

const PAUSES = [[15, "15 minutes"], [60, "an hour"], [240, "four hours"], [1440, "a day"], [10080, "a week"]];

export function acts(view, base, now, done) {
  const { control, rebalance, apply, paused } = view.acts;
  const open = (act) => ask(act, base, done);
  const button = (text, act) => make("button", { type: "button", "data-key": `act ${text}`, onclick: () => open(act) }, text);
  const conf = (action) => (form) => ({ action, reason: form.get("reason") });
  return [
    apply && uiLink(`${base.replace(/\/pulsar_rebalancer$/, "")}/dags/${encodeURIComponent(apply)}`, "Approve or reject…"),
    control && button("Stop…", { title: "Begin no further bundle", dag: control, conf: conf("stop"), hint: "A run that is under way begins no further bundle; those it has begun finish." }),
    control && !paused && button("Pause…", { title: "Pause: nothing is moved", dag: control, hint: "Runs go on deciding and explaining.", fields: until(),
      conf: (form) => ({ ...conf("pause")(form), until: new Date(now() + Number(form.get("minutes")) * 60000).toISOString() }) }),
    control && paused && button("Resume…", { title: "Resume: end the pause", dag: control, conf: conf("resume") }),
    control && button("Skip next run…", { title: "Let the next run move nothing", dag: control, conf: conf("skip") }),
    rebalance && button("Balance now…", { title: "Balance now, without waiting for hits", dag: rebalance, fields: gap(view.status.strategy),
      hint: "Mode, caps, pauses and validation hold all the same.",
      conf: (form) => ({ force: form.get("reason"), ...(form.get("gap") ? { force_threshold: Number(form.get("gap")) } : {}) }) }),
  ];
}

function until() {
  return make("label", {}, "For ", make("select", { name: "minutes" }, PAUSES.map(([minutes, text]) => make("option", { value: minutes, selected: minutes === 60 }, text))));
}

function gap(strategy) {
  return strategy === "AvgShedder" && make("label", {}, "From a gap of ", make("input", { name: "gap", type: "number", min: 0, max: 1000, step: "any", placeholder: "the low threshold" }), " points");
}

function ask(act, base, done) {
  const said = make("p", { class: "said", role: "status" });
  const go = make("button", { type: "submit", class: "go" }, "Do it");
  // One run for one dialog, however often it is sent: Airflow refuses a second of the same id.
  const id = `page__${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  const form = make("form", { onsubmit: (event) => {
    event.preventDefault();
    go.disabled = true;
    start(act, id, new FormData(form), base, said).then((started) => {
      if (started) done();
      else go.disabled = false;
    });
  } },
  make("h2", {}, act.title), act.hint && make("p", { class: "more" }, act.hint), act.fields,
  make("label", {}, "Why", make("input", { name: "reason", required: true, maxlength: 500, autocomplete: "off" })), said,
  make("div", { class: "buttons" }, make("button", { type: "button", onclick: () => dialog.close() }, "Close"), go));
  const dialog = make("dialog", { "aria-label": act.title, onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
  form.elements.reason.focus();
}

async function start(act, id, form, base, said) {
  const address = `${base.replace(/\/pulsar_rebalancer$/, "")}`;
  const asked = { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify({ dag_run_id: id, logical_date: null, conf: act.conf(form) }) };
  said.replaceChildren("Asking Airflow…");
  const answer = await fetch(`${address}/api/v2/dags/${encodeURIComponent(act.dag)}/dagRuns`, asked).catch(() => null);
  const told = await answer?.json().catch(() => ({}));
  if (!answer?.ok) {
    const words = { 401: "Your login has expired: load the page anew.", 403: "You may not do that.", 409: "Airflow has started it already." };
    said.replaceChildren(words[answer?.status] ?? (typeof told?.detail === "string" ? told.detail : "Airflow did not take it."));
    return false;
  }
  const path = `${address}/dags/${encodeURIComponent(act.dag)}/runs/${encodeURIComponent(told.dag_run_id)}`;
  said.replaceChildren("Airflow has started ", uiLink(path, "a run"), " for it.");
  return true;
}

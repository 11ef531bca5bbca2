// What a person may do: each act is a DAG run, or the answer to a question of one, asked for over Airflow's own API as
// the user who presses the button.

import { make, points, several } from "./dom.js";

const PAUSES = [[15, "15 minutes"], [60, "an hour"], [240, "four hours"], [1440, "a day"], [10080, "a week"]];

export function acts(view, base, now, follow) {
  const { control, rebalance, question, paused, skips, breaker } = view.acts;
  const button = (text, act) =>
    make("button", {
      type: "button",
      "data-key": `act ${text}`,
      onclick: () => ask({ ...act(), name: text }, base, follow),
    }, text);
  const order = (text, action, shown, more = () => ({})) =>
    button(
      text,
      () => ({ ...shown(), ...run(control, (form) => ({ action, reason: form.get("reason"), ...more(form) })) }),
    );
  const answer = (text, option, title) => button(text, () => ({ title, hint: asked(view), ...said(question, option) }));
  const end = (form) => ({
    until: new Date(form.get("until") || now() + Number(form.get("minutes")) * 60000).toISOString(),
  });
  return [
    question && answer("Approve…", "Approve", "Carry this plan out"),
    question && answer("Reject…", "Reject", "Do not carry this plan out"),
    control &&
    order(
      "Stop…",
      "stop",
      () => ({
        title: "Begin no further bundle",
        hint: "A run that is under way begins no further bundle; those it has begun finish.",
      }),
    ),
    control &&
    order(
      "Pause…",
      "pause",
      () => ({
        title: paused ? "Pause for longer" : "Pause: nothing is moved",
        hint: "Runs go on deciding and explaining.",
        fields: until(),
      }),
      end,
    ),
    control && (paused || skips) &&
    order("Resume…", "resume", () => ({ title: "Resume: end the pause, and skip no run" })),
    control && !skips && order("Skip next run…", "skip", () => ({ title: "Let the next run move nothing" })),
    control && breaker &&
    order("Close breaker…", "close_breaker", () => ({ title: "Close the circuit breaker before its time" })),
    rebalance &&
    button(
      "Balance now…",
      () => ({
        title: "Balance now, without waiting for hits",
        fields: gap(view.status.strategy),
        hint: "Mode, caps, pauses and validation hold all the same.",
        ...run(
          rebalance,
          (form) => ({
            force: form.get("reason"),
            ...(form.get("gap") ? { force_threshold: Number(form.get("gap")) } : {}),
          }),
        ),
      }),
    ),
  ];
}

function asked({ awaiting, plan, acts: { question } }) {
  const waits = awaiting ?? plan;
  const what = waits?.hash === question.hash
    ? `: ${several(waits.bundles, "bundle")}, predicted range ${points(waits.predicted_range)} after ${
      points(waits.range_before)
    }`
    : "";
  return `Plan ${question.hash.slice(0, 12)}${what}. It is asked until ${
    new Date(question.until).toLocaleString("en-GB")
  }.`;
}

// One run for one dialog, however often it is sent: Airflow refuses a second of the same id.
function run(dag, conf) {
  const id = `page__${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  return {
    dag,
    run: id,
    why: "always",
    path: `${encodeURIComponent(dag)}/dagRuns`,
    method: "POST",
    body: (form) => ({ dag_run_id: id, logical_date: null, conf: conf(form) }),
  };
}

function said({ dag, run: id, task }, option) {
  const path = `${encodeURIComponent(dag)}/dagRuns/${encodeURIComponent(id)}/taskInstances/${
    encodeURIComponent(task)
  }/-1/hitlDetails`;
  return {
    dag,
    run: id,
    path,
    method: "PATCH",
    why: "if you like",
    body: (form) => ({ chosen_options: [option], params_input: { reason: form.get("reason") } }),
  };
}

function until() {
  return make(
    "label",
    {},
    "For ",
    make(
      "select",
      { name: "minutes" },
      PAUSES.map(([minutes, text]) => make("option", { value: minutes, selected: minutes === 60 }, text)),
    ),
    " or until ",
    make("input", { name: "until", type: "datetime-local", "aria-label": "until" }),
  );
}

function gap(strategy) {
  return strategy === "AvgShedder" &&
    make(
      "label",
      {},
      "From a gap of ",
      make("input", { name: "gap", type: "number", min: 0, max: 1000, step: "any", placeholder: "the low threshold" }),
      " points",
    );
}

function ask(act, base, follow) {
  const told = make("p", { class: "said", role: "status" });
  const go = make("button", { type: "submit", class: "go" }, "Do it");
  const form = make(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        go.disabled = true;
        send(act, new FormData(form), base, told).then((taken) => {
          if (!taken) {
            go.disabled = false;
            return;
          }
          dialog.close();
          follow({ name: act.name.replace("…", ""), dag: act.dag, run: act.run });
        });
      },
    },
    make("h2", {}, act.title),
    act.hint && make("p", { class: "more" }, act.hint),
    act.fields,
    make(
      "label",
      {},
      "Why",
      make("input", {
        name: "reason",
        required: act.why === "always",
        placeholder: act.why === "always" ? "" : act.why,
        maxlength: 500,
        autocomplete: "off",
      }),
    ),
    told,
    make("div", { class: "buttons" }, make("button", { type: "button", onclick: () => dialog.close() }, "Close"), go),
  );
  const dialog = make("dialog", {
    "aria-label": act.title,
    onclose: () => {
      dialog.remove();
      // The buttons may have been made anew meanwhile.
      document.querySelector(`[data-key="act ${act.name}"]`)?.focus({ preventScroll: true });
    },
  }, form);
  document.body.append(dialog);
  dialog.showModal();
  form.elements.reason.focus();
}

async function send(act, form, base, told) {
  told.replaceChildren("Asking Airflow…");
  const asked = {
    method: act.method,
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(act.body(form)),
  };
  const answer = await fetch(`${base.replace(/\/pulsar_rebalancer$/, "")}/api/v2/dags/${act.path}`, asked).catch(() =>
    null
  );
  if (answer?.ok) return true;
  const said = await answer?.json().catch(() => ({}));
  const taken = act.method === "POST" ? "Airflow has started it already." : "Somebody has answered already.";
  const words = { 401: "Your login has expired: load the page anew.", 403: "You may not do that.", 409: taken };
  told.replaceChildren(
    words[answer?.status] ?? (typeof said?.detail === "string" ? said.detail : "Airflow did not take it."),
  );
  return answer?.status === 409 && act.method === "POST";
}

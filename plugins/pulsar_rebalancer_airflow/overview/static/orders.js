// Follows each run that a button of this page started to its end, and shows its outcome below the buttons.

import { make } from "./dom.js";
import { uiLink } from "./links.js";

const KEPT = 5;
const SECONDS = 2;
const orders = [];

export function orderList(base) {
  const airflow = base.replace(/\/pulsar_rebalancer$/, "");
  return orders.map(({ name, state, text, dag, run }) =>
    make(
      "p",
      { class: state },
      make("b", {}, name),
      ` ${text} `,
      uiLink(`${airflow}/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`, "its run"),
    )
  );
}

export function ordersShown() {
  return orders.map(({ name, state, text, run }) => [name, state, text, run]);
}

export function followOrder(given, ask, redraw, ended) {
  const order = { ...given, state: "queued", text: "was taken by Airflow" };
  orders.unshift(order);
  orders.splice(KEPT);
  const look = async () => {
    const answer = await ask(`/dags/${encodeURIComponent(order.dag)}/runs/${encodeURIComponent(order.run)}/answer`)
      .catch(() => null);
    if (answer) {
      Object.assign(order, { state: answer.state, text: answer.text });
      redraw();
      if (answer.next_run) Object.assign(order, { dag: answer.next_dag, run: answer.next_run });
      else if (answer.state === "success" || answer.state === "failed") return ended();
    }
    setTimeout(look, (document.hidden ? 4 : 1) * SECONDS * 1000);
    return undefined;
  };
  redraw();
  look();
}

// Addresses: the DAG and the run that the page's address names, and paths of DAGs and runs.

/**
 * Return the DAG and the run that the page is about; both may be empty.
 *
 * Every DAG of a cluster leads to its page. Only runs of the rebalancing and the by-hand DAG have their own page.
 * @param {string} base - of the plugin
 * @param {{ pathname: string, search: string }} location
 */
export function asked(base, { pathname, search }) {
  const id = decodeURIComponent(pathname.slice(`${base}/page/`.length));
  const [, kind = "", cluster] = /^pulsar_([a-z_]+?)__(.+)$/.exec(id) ?? [];
  const run = ["rebalance", "by_hand"].includes(kind) ? new URLSearchParams(search).get("run_id") ?? "" : "";
  const own = !cluster || (run && kind === "by_hand");
  return { dag: own ? id : `pulsar_rebalance__${cluster}`, run };
}

/** @param {string} dag */
export function dagPath(dag) {
  return `/dags/${encodeURIComponent(dag)}`;
}

/** @type {(dag: string, run: string) => string} */
export function runPath(dag, run) {
  return `${dagPath(dag)}/runs/${encodeURIComponent(run)}`;
}

/**
 * Return the path of Airflow's own pages.
 * @param {string} base - of the plugin
 */
export function airflowRoot(base) {
  return base.replace(/\/pulsar_rebalancer$/, "");
}

// Requests to the server.

export class Refusal extends Error {
  /**
   * @param {number} status - 0 if there was no answer
   * @param {unknown} [detail] - what the server said
   * @param {Record<string, string>} [fields] - what is wrong with each field of the form that was sent
   */
  constructor(status, detail, fields = {}) {
    super(refusal(status, detail));
    this.status = status;
    this.fields = fields;
  }
}

/** @type {(status: number, detail: unknown) => string} */
function refusal(status, detail) {
  if (status === 0) return "The API server does not respond.";
  if (status === 401) return "Your session has expired: reload the page and sign in.";
  if (status === 403) return "You do not have permission for this.";
  return typeof detail === "string" ? detail : `The API server returned ${status}.`;
}

/**
 * Return the server's answer, parsed from JSON.
 * @param {string} path
 * @param {{ method: string, body: string }} [request]
 * @throws {Refusal} the server refused, or did not answer
 */
export async function ask(path, request) {
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  const answer = await fetch(path, { ...request, headers, cache: "no-store" }).catch(() => null);
  if (answer?.ok) return answer.json();
  const said = await answer?.json().catch(() => null);
  throw new Refusal(answer?.status ?? 0, said?.detail, said?.fields);
}

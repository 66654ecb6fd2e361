// Requests to the node that serves the console: its public JSON API. The token lives in this module's object only. It is
// never stored, never in a cookie and never in a URL.

// silence is how long a watch may send nothing before it is given up, in milliseconds. A watch without events sends a
// message every five seconds.
const silence = 15000;

const finals = new Set(["unauthenticated", "permission_denied", "invalid_argument", "not_found", "unimplemented"]);

// ApiError is a refusal by the node, or a failure to reach it. final is set if repeating does not help.
export class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
    this.final = finals.has(code);
  }
}

export class Api {
  #token = "";

  setToken(token) {
    this.#token = token.trim();
  }

  // call sends a request, and returns the response.
  async call(procedure, request = {}, signal = undefined) {
    const response = await this.#post(procedure, request, signal);
    return response.json();
  }

  // read sends a read. If no leader can answer it, the node answers from its own state, and the answer has local set.
  async read(procedure, request = {}, signal = undefined) {
    try {
      return await this.call(procedure, request, signal);
    } catch (error) {
      if (error.code !== "unavailable") throw error;
      return { ...(await this.call(procedure, { ...request, stale: true }, signal)), local: true };
    }
  }

  // watch yields the messages of a watch until the node ends it.
  async *watch(filter, signal) {
    const giveUp = new AbortController();
    const abort = () => giveUp.abort();
    signal.addEventListener("abort", abort);
    let timer = setTimeout(abort, silence);
    try {
      const response = await this.#post("LockService/Watch", filter, giveUp.signal);
      for await (const line of lines(response.body)) {
        clearTimeout(timer);
        timer = setTimeout(abort, silence);
        yield JSON.parse(line);
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      abort();
    }
  }

  async #post(procedure, request, signal) {
    const headers = { "Content-Type": "application/json" };
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    let response;
    try {
      response = await fetch(`/quorumlock.v1.${procedure}`, {
        method: "POST", headers, body: JSON.stringify(request), signal, cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
      });
    } catch {
      throw new ApiError("unreachable", "The node does not answer.");
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

async function refusal(response) {
  try {
    const { code, message } = await response.json();
    return new ApiError(code, message);
  } catch {
    return new ApiError("unknown", `The node answered with HTTP status ${response.status}.`);
  }
}

// lines yields the lines of a body.
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const line of parts) if (line) yield line;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

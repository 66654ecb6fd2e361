// Following the cluster: a stream of events that resumes without gaps, and reads that follow it. Requests and timers are
// injected, so that this module is tested without a browser.

// maxBackoff bounds the pause between attempts, in milliseconds.
const maxBackoff = 5000;

// backoff returns the pause after a number of consecutive failures.
export function backoff(failures) {
  return Math.min(maxBackoff, 250 * 2 ** (failures - 1));
}

const sleep = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// Stream follows one watch at a time. open(filter, signal) yields the messages of a watch. Listeners get calls of
//   events(list)  the next events, in order
//   opened()      a watch has begun, at first or after a break: what was read before may be old
//   gap(message)  events were missed, since the node no longer has them
//   changed()     phase has changed: connecting, live, broken, paused or refused
//   progress()    a message has arrived, at least every five seconds
export class Stream {
  constructor(open, { wait = sleep } = {}) {
    this.open = open;
    this.wait = wait;
    this.listeners = new Set();
    this.phase = "paused";
    this.filter = null;
    this.position = null; // revision and lineage up to which everything was delivered
    this.error = null;
    this.since = 0; // when the stream last broke
    this.running = null;
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // follow switches to another filter, from the present on. The same filter goes on.
  follow(filter) {
    if (this.running && JSON.stringify(filter) === JSON.stringify(this.filter)) return;
    this.filter = filter;
    this.position = null;
    this.resume();
  }

  // pause stops the stream and keeps the position.
  pause() {
    this.running?.abort();
    this.running = null;
    this.#set("paused");
  }

  // resume continues after the position. Without one it begins at the present.
  resume() {
    this.running?.abort();
    this.running = new AbortController();
    this.#set("connecting");
    void this.#run(this.running.signal);
  }

  async #run(signal) {
    for (let failures = 0; !signal.aborted;) {
      this.began = false;
      try {
        await this.#follow(signal);
      } catch (error) {
        if (signal.aborted) return;
        this.error = error;
        if (error.final && !this.began) return this.#set("refused"); // later, what is left of the rights is tried
      }
      if (signal.aborted) return;
      failures = this.began ? 1 : failures + 1;
      this.#set("broken");
      await this.wait(backoff(failures), signal);
    }
  }

  async #follow(signal) {
    const from = this.position ? { afterRevision: this.position.revision, lineage: this.position.lineage } : {};
    for await (const message of this.open({ ...this.filter, ...from }, signal)) {
      if (signal.aborted) return;
      if (message.status !== "OK") return this.#ended(message);
      this.position = { revision: message.revision, lineage: message.lineage };
      if (!this.began) {
        this.began = true;
        this.error = null;
        this.#set("live");
        this.#tell("opened");
      }
      if (message.events.length > 0) this.#tell("events", message.events);
      this.#tell("progress");
    }
  }

  #ended(message) {
    if (message.status === "COMPACTED") {
      this.position = null;
      this.#tell("gap", message.message);
      return;
    }
    const error = new Error(message.message);
    error.code = message.status.toLowerCase();
    error.final = message.status === "UNAUTHENTICATED" || message.status === "PERMISSION_DENIED";
    throw error;
  }

  #set(phase) {
    if (this.phase === phase) return;
    if (phase === "broken") this.since = Date.now();
    this.phase = phase;
    this.#tell("changed");
  }

  #tell(what, detail) {
    for (const listener of this.listeners) {
      try {
        listener[what]?.(detail);
      } catch (error) {
        queueMicrotask(() => { throw error; }); // a failure to draw does not end the stream
      }
    }
  }
}

// timers are those of the browser; tests have their own.
const timers = {
  now: () => Date.now(),
  later: (run, ms) => setTimeout(run, ms),
  cancel: (timer) => clearTimeout(timer),
};

// Refresher repeats a read on request: at most one is in flight, and its starts are at least interval milliseconds
// apart. The first request starts it at once. A failed read is repeated until it succeeds or its error is final.
export class Refresher {
  constructor(read, { interval, done, failed, ...clock }) {
    Object.assign(this, { read, interval, done, failed, ...timers, ...clock });
    this.wanted = false;
    this.running = null;
    this.timer = null;
    this.started = -Infinity;
    this.failures = 0;
    this.closed = false;
  }

  request() {
    if (this.closed) return;
    this.wanted = true;
    if (this.running || this.timer !== null) return;
    this.#schedule(this.started + this.interval - this.now());
  }

  close() {
    this.closed = true;
    this.running?.abort();
    if (this.timer !== null) this.cancel(this.timer);
  }

  #schedule(delay) {
    if (delay <= 0) return void this.#start();
    this.timer = this.later(() => { this.timer = null; void this.#start(); }, delay);
  }

  async #start() {
    this.wanted = false;
    this.started = this.now();
    this.running = new AbortController();
    try {
      const data = await this.read(this.running.signal);
      this.running = null;
      if (this.closed) return;
      this.failures = 0;
      this.done(data);
    } catch (error) {
      this.running = null;
      if (this.closed) return;
      this.failed(error);
      if (error.final) return;
      this.failures++;
      this.wanted = true;
    }
    if (this.wanted) this.#schedule(Math.max(this.started + this.interval - this.now(), this.failures && backoff(this.failures)));
  }
}

// EventList keeps the newest events for drawing. Events of one command may be delivered twice when a stream resumes
// within them; the second delivery is dropped.
export class EventList {
  constructor(limit) {
    this.limit = limit;
    this.rows = []; // newest first
    this.total = 0;
    this.recent = new Set(); // identities of the events of the newest revision
    this.revision = "0";
  }

  add(events, at) {
    const fresh = events.filter((event) => this.#isNew(event));
    this.total += fresh.length;
    const added = fresh.slice(-this.limit).map((event, i) => ({ event, at, key: this.total - Math.min(fresh.length, this.limit) + i }));
    this.rows = [...added.reverse(), ...this.rows].slice(0, this.limit);
    return fresh.length;
  }

  // addGap marks a place at which events are missing.
  addGap(message, at) {
    this.total++;
    this.rows = [{ gap: message, at, key: this.total - 1 }, ...this.rows].slice(0, this.limit);
  }

  #isNew(event) {
    if (event.revision !== this.revision) {
      this.revision = event.revision;
      this.recent.clear();
    }
    const identity = [event.type, event.lock, event.sessionId, event.owner, event.seq, event.holdId, event.generation].join(" ");
    if (this.recent.has(identity)) return false;
    this.recent.add(identity);
    return true;
  }
}

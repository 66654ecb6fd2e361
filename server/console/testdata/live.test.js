import { test } from "node:test";
import { deepEqual, equal } from "node:assert/strict";
import { backoff, EventList, Refresher, Stream } from "../ui/live.js";

const message = (revision, more) => ({ events: [], revision: String(revision), lineage: "l1", status: "OK", message: "", ...more });
const event = (revision, more) => ({ type: "GRANTED", revision: String(revision), lock: "a", sessionId: "1", owner: "0", seq: "1", holdId: "1", generation: "0", ...more });

// Watches is a node whose watches a test scripts: each gets the next script, a list of messages or errors. After the
// last one the stream is paused.
class Watches {
  constructor(scripts) {
    this.scripts = scripts;
    this.requests = [];
    this.pauses = [];
    this.seen = [];
    this.stream = new Stream((filter, signal) => this.open(filter, signal), { wait: async (ms) => { this.pauses.push(ms); } });
    this.stream.listen({
      events: (events) => this.seen.push(...events.map((e) => e.revision)),
      opened: () => this.seen.push("opened"),
      gap: (text) => this.seen.push(`gap: ${text}`),
      changed: () => this.seen.push(this.stream.phase),
    });
    this.ended = new Promise((done) => { this.done = done; });
  }

  async *open(filter) {
    this.requests.push(filter);
    const script = this.scripts.shift();
    for (const step of script ?? []) {
      if (step instanceof Error) throw step;
      yield step;
    }
    if (this.scripts.length === 0) {
      this.stream.pause();
      this.done();
    }
  }
}

test("a broken stream resumes after the last line, without telling of a gap", async () => {
  const watches = new Watches([
    [message(5), message(7, { events: [event(6), event(7)] })],
    [message(7), message(9, { events: [event(9)] })],
  ]);
  watches.stream.follow({ name: "a" });
  await watches.ended;
  deepEqual(watches.requests, [{ name: "a" }, { name: "a", afterRevision: "7", lineage: "l1" }]);
  deepEqual(watches.seen, ["connecting", "live", "opened", "6", "7", "broken", "live", "opened", "9", "paused"]);
});

test("lost events are reported, and the stream begins at the present", async () => {
  const watches = new Watches([
    [message(5), message(5, { status: "COMPACTED", message: "too old" })],
    [message(90)],
  ]);
  watches.stream.follow({});
  await watches.ended;
  deepEqual(watches.requests, [{}, {}]);
  deepEqual(watches.seen, ["connecting", "live", "opened", "gap: too old", "broken", "live", "opened", "paused"]);
});

test("pauses grow until a watch begins", async () => {
  const failure = () => [new Error("gone")];
  const watches = new Watches([failure(), failure(), failure(), [message(1)], failure(), [message(2)]]);
  watches.stream.follow({});
  await watches.ended;
  deepEqual(watches.pauses, [250, 500, 1000, 250, 500]);
  equal(backoff(30), 5000);
});

test("a refused watch is not repeated, and rights that end are tried again", async () => {
  const refused = Object.assign(new Error("no"), { final: true, code: "permission_denied" });
  const watches = new Watches([[message(1), message(1, { status: "PERMISSION_DENIED", message: "withdrawn" })], [refused], [message(2)]]);
  watches.stream.follow({});
  while (watches.stream.phase !== "refused") await new Promise(setImmediate);
  equal(watches.requests.length, 2);
  equal(watches.stream.error.code, "permission_denied");
});

test("a paused stream resumes where it stopped, and another filter begins at the present", async () => {
  const watches = new Watches([[message(3)], [message(4)], [message(9)], []]);
  const { stream } = watches;
  const stop = stream.listen({ opened: () => stream.pause() });
  stream.follow({ prefix: "a/" });
  while (watches.requests.length < 1 || stream.phase !== "paused") await new Promise(setImmediate);
  stream.resume();
  while (watches.requests.length < 2 || stream.phase !== "paused") await new Promise(setImmediate);
  stream.follow({ prefix: "b/" });
  while (watches.requests.length < 3 || stream.phase !== "paused") await new Promise(setImmediate);
  stop();
  deepEqual(watches.requests, [{ prefix: "a/" }, { prefix: "a/", afterRevision: "3", lineage: "l1" }, { prefix: "b/" }]);
});

test("a listener that fails does not end the stream", async (t) => {
  const failures = [];
  t.mock.method(globalThis, "queueMicrotask", (f) => { try { f(); } catch (error) { failures.push(error.message); } });
  const watches = new Watches([[message(1), message(2, { events: [event(2)] })]]);
  watches.stream.listen({ opened: () => { throw new Error("draw"); } });
  watches.stream.follow({});
  await watches.ended;
  deepEqual(failures, ["draw"]);
  deepEqual(watches.seen, ["connecting", "live", "opened", "2", "paused"]);
});

// Timers is a clock that a test moves.
class Timers {
  now = 0;
  pending = [];
  reads = [];

  refresher(interval) {
    return new Refresher(() => new Promise((done, failed) => this.reads.push({ at: this.now, done, failed })), {
      interval,
      done: (data) => this.shown?.push(data),
      failed: (error) => this.errors?.push(error.message),
      now: () => this.now,
      later: (run, delay) => { const timer = { run, at: this.now + delay }; this.pending.push(timer); return timer; },
      cancel: (timer) => { this.pending = this.pending.filter((other) => other !== timer); },
    });
  }

  async to(time) {
    this.now = time;
    const due = this.pending.filter((timer) => timer.at <= time);
    this.pending = this.pending.filter((timer) => timer.at > time);
    for (const timer of due) timer.run();
    await new Promise(setImmediate);
  }
}

test("reads are coalesced: one in flight, and a distance between their starts", async () => {
  const timers = new Timers();
  const refresher = timers.refresher(250);
  refresher.request();
  refresher.request();
  equal(timers.reads.length, 1);
  await timers.to(10);
  refresher.request();
  await timers.to(300);
  equal(timers.reads.length, 1, "the first is still in flight");
  timers.reads[0].done();
  await timers.to(300);
  equal(timers.reads.length, 2, "it was requested during the first");
  timers.reads[1].done();
  await timers.to(310);
  equal(timers.reads.length, 2, "nothing was requested since");
  refresher.request();
  await timers.to(549);
  equal(timers.reads.length, 2);
  await timers.to(550);
  equal(timers.reads.length, 3);
});

test("a failed read is repeated, unless its error is final", async () => {
  const timers = new Timers();
  timers.errors = [];
  const refresher = timers.refresher(100);
  refresher.request();
  timers.reads[0].failed(new Error("gone"));
  await timers.to(0);
  await timers.to(250);
  equal(timers.reads.length, 2);
  timers.reads[1].failed(Object.assign(new Error("denied"), { final: true }));
  await timers.to(250);
  await timers.to(20000);
  equal(timers.reads.length, 2);
  deepEqual(timers.errors, ["gone", "denied"]);
});

test("a closed refresher shows nothing", async () => {
  const timers = new Timers();
  timers.shown = [];
  const refresher = timers.refresher(100);
  refresher.request();
  refresher.close();
  timers.reads[0].done("late");
  refresher.request();
  await timers.to(1000);
  deepEqual(timers.shown, []);
  equal(timers.reads.length, 1);
});

test("the list keeps the newest events, and drops what is delivered twice", () => {
  const list = new EventList(3);
  list.add([event(1), event(2), event(2, { holdId: "2" })], 100);
  list.add([event(2), event(2, { holdId: "2" }), event(2, { holdId: "3" })], 200);
  deepEqual(list.rows.map((row) => [row.event.revision, row.event.holdId]), [["2", "3"], ["2", "2"], ["2", "1"]]);
  equal(list.total, 4);
  list.addGap("lost", 300);
  equal(list.rows[0].gap, "lost");
  equal(new Set(list.rows.map((row) => row.key)).size, 3);
  list.add([event(9), event(10), event(11), event(12)], 400);
  deepEqual(list.rows.map((row) => row.event.revision), ["12", "11", "10"]);
  equal(new Set(list.rows.map((row) => row.key)).size, 3);
});

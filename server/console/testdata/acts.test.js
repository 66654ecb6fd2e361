import { test } from "node:test";
import { deepEqual, equal } from "node:assert/strict";
import { askBack, closeSession, forceRelease, nextLeader, resize, skipDelay, transfer } from "../ui/acts.js";

const hold = {
  holdId: "7", token: "90", mode: "EXCLUSIVE", identity: "ann", client: { name: "refunds" }, heldForMs: "61000", heartbeatAgeMs: "900",
  leased: false, locks: [], value: "c3RlcA==", count: 1, lockDelayMs: 0,
};
const waiter = { waitId: "9", identity: "", client: { name: "w1" }, mode: "EXCLUSIVE", permits: "1", locks: [] };
const lock = (more) => ({
  name: "a/x", holders: [hold], holderCount: "1", queue: [waiter], queueLength: "2", delays: [], limit: "0", permitsUsed: "0", ...more,
});
const lines = (plan) => [plan.lead, ...plan.list.filter(Boolean)].join("\n");

test("what a forced release does", () => {
  const plan = (more, around) => lines(forceRelease("a/x", hold).plan(lock({ holders: [{ ...hold, ...more }], ...around })));
  equal(plan(), `The hold of ann (refunds) on a/x ends without its consent.
It has lasted 1 min 01 s, exclusively.
Its fencing token is 90.
Its client is alive.
Its value of 4 bytes goes with it.
No lock-delay follows. w1 is first of 2 in the queue and gets it at once.
The holder is told, but may go on for a while. Only fencing tokens keep it from what the lock protects.`);
  for (const [more, around, line] of [
    [{ locks: ["a/x", "a/y", "b\u202e"] }, {}, "The same hold has a/y, b⟨U+202E⟩ too."],
    [{ lockDelayMs: 10000 }, {}, "Its lock-delay then keeps what it held closed for 10 s."],
    [{}, { queue: [], queueLength: "0" }, "No lock-delay follows, and nobody waits."],
    [{ mode: "SHARED" }, { holderCount: "2" }, "No lock-delay follows. w1 is first of 2 in the queue."],
    [{}, { queue: [{ ...waiter, locks: ["a/x", "b"] }] }, "No lock-delay follows. w1 is first of 2 in the queue."],
    [{ heartbeatAgeMs: "45000" }, {}, "Its client was last heard of 45 s ago."],
    [{ leased: true }, {}, "It is a lease: its client sends no heartbeats."],
    [{ count: 3 }, {}, "It was acquired 3 times, and ends at once."],
    [{ mode: "PERMITS", permits: "2" }, {}, "It has lasted 1 min 01 s, with 2 permits."],
  ]) equal(plan(more, around).split("\n").includes(line), true, `${line} is missing in:\n${plan(more, around)}`);
});

test("what asking does, and which grace periods there are", () => {
  const act = askBack("a/x", hold);
  equal(act.plan(lock(), 0).lead, "ann (refunds) is asked to release a/x. It may keep it.");
  equal(act.plan(lock(), 30000).lead, "ann (refunds) is asked to release a/x. If it still has the lock after 30 s, the hold is forced to end.");
  for (const [text, ms] of [
    ["", 0], [" 30 ", 30000], ["0.25", 250], ["2147483", 2147483000], ["2147484", undefined], ["0", undefined], ["-1", undefined],
    ["1e3", undefined], ["soon", undefined],
  ]) equal(act.field.parse(text), ms, text);
  deepEqual(act.request(lock(), 250), { holdId: "7", token: "90", graceMs: 250 });
});

test("which lock-delays are skipped", () => {
  const delays = ["4", "5"].map((holdId) => ({ holdId, sessionId: "3", lockDelayMs: 60000, remainingMs: "5000" }));
  equal(skipDelay("a/x").plan(lock({ delays })).lead, "2 lock-delays of a/x end now.");
  equal(lines(skipDelay("a/x", "5").plan(lock({ delays, queue: [], queueLength: "0" }))), `The lock-delay of a/x ends now.
Hold 5 of session 3 did not end by a release. 5 s of 1 min 00 s are left.
Nobody waits.
Make sure that the former holder has stopped: the lock-delay gives it the time to notice.
Other locks of the same hold stay closed.`);
  deepEqual(skipDelay("a/x", "5").request(), { name: "a/x", holdId: "5" });
  deepEqual(skipDelay("a/x").request(), { name: "a/x", holdId: "0" });
});

test("what closing a session ends", () => {
  const found = {
    session: { sessionId: "3", identity: "ann", client: { name: "refunds", hostName: "h1", pid: 4 }, heartbeatAgeMs: "10", holds: "8", waits: "1" },
    holds: Array.from({ length: 8 }, (_, i) => ({ name: `l${i}`, hold: { ...hold, lockDelayMs: i } })), waits: [{ name: "w", wait: waiter }],
  };
  equal(lines(closeSession("3").plan(found)), `Session 3 of refunds ends, with all that it has.
It is a session of ann, on h1, pid 4.
Its client is alive.
8 holds are forced to end: l0, l1, l2, l3, l4, l5 and 2 more.
Those with a lock-delay keep their locks closed for it.
1 waiting request is cancelled: w.
Its client is told. It may open another session.`);
});

test("who can lead next", () => {
  const node = (id, appliedIndex, more) => ({ id, voter: true, reachable: true, leader: false, appliedIndex, ...more });
  const status = (...nodes) => ({ leaderId: "n1", term: "2", commitIndex: "100", sessions: "2", holds: "3", nodes: [node("n1", "100", { leader: true }), ...nodes] });
  equal(nextLeader(status(node("n2", "90"), node("n3", "99"))).id, "n3");
  equal(nextLeader(status(node("n2", "100", { reachable: false }), node("n3", "100", { voter: false }))), null);
  const act = transfer("n2");
  equal(act.hindrance(status(node("n2", "90"))), undefined);
  equal(act.hindrance(status(node("n2", "90", { reachable: false }))), "n2 cannot lead: it is not reachable, is drained, or still joins.");
  equal(act.hindrance(status(node("n2", "90", { drained: true }))), "n2 cannot lead: it is not reachable, is drained, or still joins.");
  equal(act.hindrance({ ...status(node("n2", "90")), leaderId: "" }), "No node leads at present.");
  equal(act.plan(status(node("n2", "90"))).list.at(-1), "n2 is 10 log entries behind, and catches up first.");
  deepEqual(act.request(), { id: "n2" });
});

test("which numbers of permits there are", () => {
  const act = resize("a/x", "5");
  for (const [text, limit] of [["3", 3], [" 9 ", 9], ["5", undefined], ["0", undefined], ["", undefined], ["1.5", undefined], ["-1", undefined]]) {
    equal(act.field.parse(text), limit, text);
  }
  const now = lock({ limit: "5", permitsUsed: "4", holderCount: "4", queue: [], queueLength: "0" });
  equal(lines(act.plan(now, 3)), `a/x has 3 permits instead of 5.
4 permits are in use, by 4 holders.
All holds stay.
Nothing is granted until fewer are in use.
Nobody waits.`);
  equal(act.plan(now, undefined).lead, "a/x has 5 permits.");
});

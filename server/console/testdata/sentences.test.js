import { test } from "node:test";
import { equal, match } from "node:assert/strict";
import { behind, circle, eventMeaning, health, whyNothingMoves } from "../ui/sentences.js";

const client = (name) => ({ name });
const hold = (more) => ({ holdId: "1", mode: "EXCLUSIVE", identity: "ann", client: client("refunds"), heldForMs: "61000", heartbeatAgeMs: "900", leased: false, ...more });
const wait = (position, more) => ({ waitId: String(position), position: String(position), mode: "EXCLUSIVE", identity: "", client: client(`w${position}`), locks: [], ...more });
const lock = (more) => ({ holders: [], holderCount: "0", queue: [], queueLength: "0", delays: [], limit: "0", permitsUsed: "0", ...more });
const held = (more) => lock({ holders: [hold()], holderCount: "1", ...more });
const queue = { queue: [wait(1), wait(2)], queueLength: "2" };

test("why nothing moves", () => {
  for (const [given, elapsed, text] of [
    [lock(), 0, "Nobody holds this lock, and nobody waits for it."],
    [held(), 0, "Nobody waits: ann (refunds) has held it exclusively for 1 min 01 s."],
    [held({ holders: [hold({ tokens: 64, idleMs: "3000" })] }), 1000, "Nobody waits: ann (refunds) has held it exclusively for 1 min 02 s (cached, idle for 4 s)."],
    [held({ ...queue, holders: [hold({ tokens: 64, recalled: true })] }), 0,
      "2 requests wait because ann (refunds) has held it exclusively for 1 min 01 s. The holder keeps it cached, and was asked to give it back as soon as it is not in use."],
    [held(queue), 0, "2 requests wait because ann (refunds) has held it exclusively for 1 min 01 s. Its holder is alive."],
    [held(queue), 60000, "2 requests wait because ann (refunds) has held it exclusively for 2 min 01 s. Its holder was last heard of 1 min 00 s ago."],
    [held({ ...queue, holders: [hold({ leased: true, heartbeatAgeMs: undefined, remainingLeaseMs: 9000 })] }), 1000,
      "2 requests wait because ann (refunds) has held it exclusively for 1 min 02 s. Its lease ends in 8 s unless it is extended."],
    [held({ ...queue, holders: [hold({ remainingHoldMs: "5000" })] }), 0, "2 requests wait because ann (refunds) has held it exclusively for 1 min 01 s. It ends in 5 s at the latest."],
    [held({ ...queue, holders: [hold({ revocation: {}, remainingHoldMs: "5000" })] }), 2000,
      "2 requests wait because ann (refunds) has held it exclusively for 1 min 03 s. An operator asked for it; it is forced to end in 3 s."],
    [held({ ...queue, holders: [hold({ revocation: {} })] }), 0, "2 requests wait because ann (refunds) has held it exclusively for 1 min 01 s. An operator asked the holder to release it."],
    [lock({ holders: [hold({ mode: "SHARED" })], holderCount: "3", queue: [wait(1)], queueLength: "1" }), 0,
      "One request waits because ann (refunds) and 2 others share it, the first for 1 min 01 s."],
    [lock({ holders: [hold({ mode: "SHARED" })], holderCount: "2", queue: [wait(0, { upgrade: true })], queueLength: "1" }), 0,
      "One request waits: w0 waits for the other shared holders to leave, to hold it exclusively."],
    [lock({ limit: "5", permitsUsed: "4", holders: [hold({ mode: "PERMITS" })], holderCount: "2", queue: [wait(1, { permits: "2" })], queueLength: "1" }), 0,
      "One request waits: the first needs 2 permits, and only 1 permit of 5 is free (2 holders)."],
    [lock({ limit: "5", permitsUsed: "5", holders: [hold()], holderCount: "1", queue: [wait(1, { permits: "1" })], queueLength: "1" }), 0,
      "One request waits: the first needs 1 permit, and all 5 permits are in use (1 holder)."],
    [lock({ limit: "5", permitsUsed: "2", holders: [hold()], holderCount: "1" }), 0, "2 of 5 permits are in use, and nobody waits."],
    [lock({ delays: [{ remainingMs: "4000" }], ...queue }), 1000,
      "Nobody holds this lock, but a lock-delay keeps it closed for another 3 s, since its last hold did not end by a release. 2 requests wait for that."],
    [lock({ delays: [{}] }), 0, "Nobody holds this lock, but a lock-delay keeps it closed, since its last hold did not end by a release."],
    [lock({ queue: [wait(1, { locks: ["a", "b"] })], queueLength: "1" }), 0, "One request waits: the first, w1, needs 2 locks at once and waits for another of them."],
  ]) equal(whyNothingMoves(given, elapsed), text);
  equal(whyNothingMoves(held(queue), 0, false), "2 requests wait because ann (refunds) has held it exclusively for 1 min 01 s.");
});

test("names in sentences are visible", () => {
  const text = whyNothingMoves(held({ ...queue, holders: [hold({ identity: "a\u202eb", client: client("<b>\u200b") })] }));
  equal(text.includes("a⟨U+202E⟩b (<b>⟨U+200B⟩)"), true);
  equal(eventMeaning({ type: "FORCED", reason: "x\u202ey" }).text, "forced to end: “x⟨U+202E⟩y”");
});

test("who waits for each other", () => {
  const step = (sessionId, clientName, lock, owner = "0") => ({ sessionId, clientName, lock, owner });
  const hidden = step("0", "", "");
  for (const [cycle, text] of [
    [[step("1", "ann", "a"), step("2", "", "b\u202e")],
      "Two sessions wait for each other in a circle: ann waits for “a”, session 2 waits for “b⟨U+202E⟩”."],
    [[step("1", "job", "a"), step("2", "job", "b"), step("3", "x\u200b", "c")],
      "Three sessions wait for each other in a circle: job (session 1) waits for “a”, job (session 2) waits for “b”, " +
      "x⟨U+200B⟩ waits for “c”."],
    [[step("1", "ann", "a"), hidden],
      "Two sessions wait for each other in a circle: ann waits for “a”, a session waits for a lock that you may not read."],
    [[step("1", "ann", "a", "5"), step("1", "ann", "b", "6")],
      "Two owners wait for each other in a circle: ann (session 1) waits for “a”, ann (session 1) waits for “b”."],
    [Array.from({ length: 12 }, (_, i) => step(String(i), `s${i}`, "a")), /^12 sessions wait for each other/],
  ]) {
    if (text instanceof RegExp) match(circle(cycle), text);
    else equal(circle(cycle), text);
  }
});

test("what a place in the queue waits behind", () => {
  equal(behind(held(queue), 0), "the holder, ann (refunds)");
  equal(behind(held(queue), 1), "no. 1, w1");
  equal(behind(lock({ ...queue, holders: [hold()], holderCount: "3" }), 0), "ann (refunds) and 2 other holders");
  equal(behind(lock({ ...queue, delays: [{}] }), 0), "a lock-delay");
});

const node = (id, more) => ({ id, voter: true, reachable: true, appliedIndex: "100", alarms: [], certificateExpiresUnixMs: "0", ...more });
const status = (more) => ({ leaderId: "n1", nodes: [node("n1"), node("n2"), node("n3")], commitIndex: "100", agreedIndex: "90", grantsSuspended: false, ...more });

test("the health of a cluster", () => {
  for (const [given, level, text] of [
    [status(), "good", "All 3 nodes are up and their states agree. n1 leads; the cluster survives the loss of 1 node."],
    [status({ agreedIndex: "0" }), "good", "All 3 nodes are up. n1 leads; the cluster survives the loss of 1 node."],
    [status({ nodes: [node("n1")] }), "good", "n1 is up. It is alone, so nothing replaces it if it fails."],
    [status({ leaderId: "" }), "bad", "No leader: nothing can be acquired or released until 2 of 3 nodes elect one."],
    [status({ grantsSuspended: true }), "bad", "Grants are suspended: the nodes' states differ, and no majority agrees."],
    [status({ nodes: [node("n1"), node("n2"), node("n3", { reachable: false })] }), "warn", "n3 is not reachable; n1 leads. If one more node fails, the cluster stops."],
    [status({ nodes: [node("n1", { alarms: [{ message: "the disk was rolled back" }] })] }), "warn", "1 alarm to look at: the disk was rolled back."],
    [status({ commitIndex: "5000", nodes: [node("n1", { appliedIndex: "5000" }), node("n2", { appliedIndex: "5000" }), node("n3")] }), "warn", "n3 is catching up, 4,900 entries behind."],
    [status({ nodes: [node("n1", { health: { healthy: true } }), node("n2", { health: { healthy: false, reason: "it does not follow this leader" } }), node("n3")] }), "warn", "n2 is not healthy: it does not follow this leader."],
    [status({ backupSchedule: { schedule: "@daily", overdue: true } }), "warn", "A backup is overdue by the schedule @daily: see the log of n1."],
    [status({ nodes: [node("n1", { certificateExpiresUnixMs: String(86400000) })] }), "warn", "A certificate of n1 expires in 1 d 0 h."],
  ]) {
    const found = health(given, 0);
    equal(found.text, text);
    equal(found.level, level);
  }
});

test("what events mean", () => {
  for (const [event, kind, text] of [
    [{ type: "GRANTED", mode: "EXCLUSIVE", waited: true }, "grant", "granted (exclusive) after a wait"],
    [{ type: "GRANTED", mode: "EXCLUSIVE", tokens: 64 }, "grant", "granted (exclusive, cached)"],
    [{ type: "GRANTED", mode: "PERMITS", permits: "2" }, "grant", "granted (2 permits)"],
    [{ type: "EXPIRED", status: "SESSION_LOST", restored: true }, "loss", "hold expired: its session ended (a backup was restored)"],
    [{ type: "CANCELLED", status: "TIMEOUT" }, "end", "stopped waiting: its time is over"],
    [{ type: "DELAYED", lockDelayMs: 60000 }, "wait", "lock-delay of 1 min 00 s begins"],
    [{ type: "A_LATER_TYPE" }, "session", "A_LATER_TYPE"],
  ]) {
    equal(eventMeaning(event).text, text);
    equal(eventMeaning(event).kind, kind);
  }
});

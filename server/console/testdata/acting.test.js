import { test } from "node:test";
import { deepEqual, equal, match } from "node:assert/strict";
import { carryOut, confirms, wrongText } from "../ui/acting.js";
import { ApiError } from "../ui/api.js";
import { closeSession, forceRelease, skipDelay, transfer } from "../ui/acts.js";

const hold = {
  holdId: "7", token: "90", mode: "EXCLUSIVE", identity: "", client: { name: "refunds" }, heldForMs: "61000", heartbeatAgeMs: "900",
  leased: false, locks: [], value: "", count: 1, lockDelayMs: 0,
};
const lock = (more) => ({
  name: "a/x", holders: [hold], holderCount: "1", queue: [], queueLength: "0", delays: [], limit: "0", permitsUsed: "0", revision: "10", ...more,
});
const record = (more) => ({
  action: "FORCE_RELEASE", revision: "11", outcome: "OK", holdId: "7", sessionId: "0", lock: "a/x", reason: "why", ticket: "",
  caller: { identity: "ann" }, message: "", ...more,
});
const by = { reason: "why", ticket: "" };
const lost = new ApiError("unreachable", "The node does not answer.");
const unavailable = new ApiError("unavailable", "no leader");

// Node is a stand-in for the API. Its answers are functions by procedure; sent are the acts' requests.
class Node {
  sent = [];
  constructor(answers) { this.answers = answers; }
  async call(procedure, request) {
    const what = procedure.split("/")[1];
    if (!["Get", "Status", "ListAudit"].includes(what)) this.sent.push({ what, ...request });
    const answer = this.answers[what]?.(this.sent.length) ?? { records: [] };
    if (answer instanceof Error) throw answer;
    return answer;
  }
}

const act = forceRelease("a/x", hold);
const run = (node, the = act, shown = lock(), audits = true) =>
  carryOut(node, the, { shown, value: undefined, by, caller: "ann", audits }, async () => {});

test("an act is sent once, and its record found by its revision", async () => {
  const node = new Node({
    Get: () => lock(), ForceRelease: () => ({ status: "OK", revision: "11", message: "" }),
    ListAudit: () => ({ records: [record({ revision: "12", reason: "another" }), record()] }),
  });
  const outcome = await run(node);
  equal(outcome.kind, "done");
  equal(outcome.revision, "11");
  deepEqual(outcome.record, record());
  deepEqual(node.sent, [{ what: "ForceRelease", holdId: "7", token: "90", reason: "why", ticket: "" }]);
});

test("what is not as shown is not acted on", async () => {
  const delayed = (...ids) => lock({ delays: ids.map((holdId) => ({ holdId, sessionId: "3", lockDelayMs: 1000 })) });
  const status = (leaderId, term) => ({
    leaderId, term, revision: "10", nodes: ["n1", "n2"].map((id) => ({ id, voter: true, reachable: true, leader: id === leaderId })),
  });
  for (const [the, shown, now] of [
    [act, lock(), lock({ holders: [{ ...hold, holdId: "8" }] })],
    [act, lock(), lock({ holders: [{ ...hold, token: "91" }] })],
    [act, lock(), lock({ holders: [], holderCount: "0" })],
    [act, lock(), new ApiError("not_found", "no such lock")],
    [skipDelay("a/x"), delayed("1"), delayed("1", "2")],
    [skipDelay("a/x", "1"), delayed("1"), delayed("2")],
    [closeSession("3"), { revision: "10", session: {}, holds: [], waits: [] }, new ApiError("not_found", "no such session")],
    [transfer("n2"), status("n1", "4"), status("n1", "5")],
    [transfer("n2"), status("n1", "4"), status("n2", "5")],
  ]) {
    const node = new Node({ Get: () => now, Status: () => now });
    const outcome = await run(node, the, shown);
    equal(outcome.kind, "changed", `${the.title}: ${outcome.text}`);
    match(outcome.text, /Nothing was sent\.$/);
    deepEqual(node.sent, []);
  }
});

test("a refusal says that nothing was changed, and may be repeated", async () => {
  for (const [answers, text] of [
    [{ Get: () => unavailable }, "Nothing was sent. No leader."],
    [{ Get: () => lock(), ForceRelease: () => unavailable }, "Nothing was changed. No leader."],
    [{ Get: () => lock(), ForceRelease: () => new ApiError("permission_denied", "not you") }, "Nothing was changed. Not you."],
    [{ Get: () => lock(), ForceRelease: () => ({ status: "FAILED_PRECONDITION", message: "it waits" }) }, "Nothing was changed. It waits."],
  ]) {
    const outcome = await run(new Node(answers));
    deepEqual([outcome.kind, outcome.text], ["refused", text]);
  }
});

test("after a lost answer, only a record of this act tells that it was done", async () => {
  const outcomeOf = (records, audits = true) => run(new Node({
    Get: () => lock(), ForceRelease: () => lost, ListAudit: () => ({ records }),
  }), act, lock(), audits);
  const done = await outcomeOf([record()]);
  deepEqual([done.kind, done.revision], ["done", "11"]);
  for (const records of [
    [], [record({ revision: "9" })], [record({ holdId: "6" })], [record({ reason: "other" })], [record({ ticket: "T" })],
    [record({ caller: { identity: "bob" } })], [record({ action: "REVOKE" })], [record({ outcome: "UNSPECIFIED" })],
  ]) {
    const outcome = await outcomeOf(records);
    equal(outcome.kind, "lost", JSON.stringify(records));
    match(outcome.text, /it is not known whether this was done\. It is safe to send it again/);
  }
  equal((await outcomeOf([record()], false)).kind, "lost");
  deepEqual(await outcomeOf([record({ outcome: "UNAVAILABLE", message: "timed out" })]), { kind: "refused", text: "It failed. Timed out." });
});

test("a repetition finds nothing to act on, and whether the first one was carried out", async () => {
  for (const status of ["NOT_HELD", "NOT_FOUND"]) {
    const answers = { Get: () => lock(), ForceRelease: () => ({ status, message: "" }) };
    deepEqual(await run(new Node(answers)), { kind: "ended", text: "The hold had ended before. Nothing was changed." });
    equal((await run(new Node({ ...answers, ListAudit: () => ({ records: [record()] }) }))).kind, "done");
  }
});

test("what confirms an act", () => {
  const name = "evil/\u202e<b>⟨";
  equal(confirms(name, name), true);
  equal(confirms("evil/⟨U+202E⟩<b>⟨U+27E8⟩", name), true);
  for (const typed of ["", "evil/<b>", "evil/⟨U+202E⟩<b>⟨", `${name} `, name.toUpperCase()]) equal(confirms(typed, name), false, typed);
});

test("texts have the bounds of the API", () => {
  equal(wrongText("reason", " "), "Say why, for the audit log.");
  equal(wrongText("ticket", ""), "");
  equal(wrongText("reason", "é".repeat(512)), "");
  equal(wrongText("reason", "é".repeat(513)), "The reason has 1,026 bytes: at most 1,024 bytes are allowed.");
  equal(wrongText("ticket", "x".repeat(257)), "The ticket has 257 bytes: at most 256 bytes are allowed.");
  equal(wrongText("reason", "a\tb"), "The reason contains a control character.");
});

import { test } from "node:test";
import { equal } from "node:assert/strict";
import { Rights } from "../ui/rights.js";

const rights = (locks, cluster = []) => new Rights({ hasPolicy: true, locks, cluster });
const rule = (prefix, ...verbs) => ({ prefix, name: "", verbs });
const named = (name, ...verbs) => ({ prefix: "", name, verbs });

test("a prefix covers the locks below it", () => {
  const mine = rights([rule("a/", "OPERATE"), named("b/one", "READ", "OPERATE")]);
  for (const [name, verb, may] of [
    ["a/x", "OPERATE", true], ["a/x/y", "OPERATE", true], ["a", "OPERATE", false], ["ab/x", "OPERATE", false], ["x/a/y", "OPERATE", false],
    ["a/x", "READ", false], ["b/one", "OPERATE", true], ["b/one/x", "OPERATE", false], ["b/on", "OPERATE", false],
  ]) equal(mine.onLock(name, verb), may, `${verb} of ${name}`);
  equal(mine.onAllLocks("OPERATE"), false);
  equal(rights([rule("/", "OPERATE")]).onAllLocks("OPERATE"), true);
  equal(rights([rule("/", "OPERATE")]).onLock("any/lock", "OPERATE"), true);
  equal(rights([rule("/", "OPERATE")]).onLock("any/lock", "READ"), false);
});

test("a cluster without a policy allows everything, and a policy without rules nothing", () => {
  const free = new Rights({ hasPolicy: false });
  equal(free.onLock("a", "OPERATE") && free.onAllLocks("OPERATE") && free.onCluster("MEMBERS") && free.acts(), true);
  const none = new Rights({ hasPolicy: true });
  equal(none.onLock("a", "READ") || none.onAllLocks("READ") || none.onCluster("AUDIT") || none.acts(), false);
  equal(rights([], ["AUDIT"]).onCluster("AUDIT"), true);
  equal(rights([], ["AUDIT"]).acts(), false);
  equal(rights([], ["MEMBERS"]).acts(), true);
  equal(rights([rule("a/", "READ", "OPERATE")]).acts(), true);
});

test("a hold is operated with all its locks", () => {
  const mine = rights([rule("a/", "OPERATE")]);
  equal(mine.operatesClaim({ locks: [] }, "a/x"), true);
  equal(mine.operatesClaim({ locks: [] }, "b/x"), false);
  equal(mine.operatesClaim({ locks: ["a/x", "a/y"] }, "a/x"), true);
  equal(mine.operatesClaim({ locks: ["a/x", "b/x"] }, "a/x"), false);
  equal(mine.operatesClaim({ locks: ["a/x"] }, "a/x"), false); // of several, the others may not be read
  equal(rights([rule("/", "OPERATE")]).operatesClaim({ locks: ["a/x"] }, "a/x"), true);
});

test("a session is closed with all its locks", () => {
  const mine = rights([rule("a/", "OPERATE")]);
  const session = (holds, waits, more = 0) => ({
    session: { holds: String(holds.length + more), waits: String(waits.length) },
    holds: holds.map((name) => ({ name, hold: { locks: [] } })), waits: waits.map((name) => ({ name, wait: { locks: [] } })),
  });
  for (const [found, may] of [
    [session(["a/x"], []), true], [session([], ["a/x"]), true], [session(["a/x"], ["b/x"]), false], [session(["b/x"], ["a/x"]), false],
    [session([], []), false], [session(["a/x"], [], 1), false],
  ]) {
    equal(mine.operatesSession(found), may, JSON.stringify(found));
    equal(rights([rule("/", "OPERATE")]).operatesSession(found), true);
  }
});

// Acting: how an act is carried out. It reads again what the act concerns, sends the request only if that is still
// what was shown, and finds out what became of it, also if the answer is lost. Requests and pauses are injected, so
// that this module is tested without a browser.
import { count, sentence, visible } from "./text.js";

// answerWithin bounds the wait for an answer, in milliseconds.
const answerWithin = 20000;

// The audit log is read up to attempts times, with a pause before each but the first: the outcome of a transfer is
// recorded by the next leader.
const attempts = 8;
const pause = 500; // milliseconds
const pageSize = 100;

// Bounds of texts, in bytes, as in the API.
const bounds = { reason: 1024, ticket: 256 };

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// wrongText says in a sentence what is wrong with a reason or a ticket, "" if nothing is.
export function wrongText(what, text) {
  const most = bounds[what];
  if (what === "reason" && text.trim() === "") return "Say why, for the audit log.";
  const bytes = new TextEncoder().encode(text).length;
  if (bytes > most) return `The ${what} has ${count(bytes, "byte")}: at most ${count(most, "byte")} are allowed.`;
  return /\p{Cc}/u.test(text) ? `The ${what} contains a control character.` : "";
}

// confirms reports whether a text that was typed is a name: as it is, or as the page shows it.
export function confirms(typed, name) {
  return typed === name || typed === visible(name);
}

// Codes of errors after which the request may have been carried out nevertheless.
const uncertain = new Set(["unreachable", "deadline_exceeded", "canceled", "unknown", "aborted"]);
const maybeDone = (error) => error.code === undefined || uncertain.has(error.code);

const told = (error) => sentence(error.message || "The node does not answer.");

// carryOut carries out an act: shown is what was read when its plan was shown; by has reason and ticket. It returns
// { kind, text } and, if known, revision and record. kind is
//   done     it was carried out
//   changed  what it concerns is not as shown any more, so it was not sent
//   ended    there was nothing to act on when it arrived
//   refused  it was not carried out, and may be tried again as it is
//   lost     it is not known whether it was carried out
// caller is the own identity, and audits whether it may read the audit log.
export async function carryOut(api, act, { shown, value, by, caller, audits }, wait = sleep) {
  let now;
  try {
    now = await act.read(api);
  } catch (error) {
    return { kind: "refused", text: `Nothing was sent. ${told(error)}` };
  }
  const hindrance = act.hindrance(now);
  if (hindrance) return { kind: "changed", text: `${hindrance} Nothing was sent.` };
  if (!act.same(shown, now)) return { kind: "changed", text: "This is not as shown any more. Nothing was sent." };

  const search = (revision) => (audits ? findRecord(api, act, { now, value, by, caller, revision }, wait) : null);
  const done = (answer, record) => ({
    kind: "done", text: act.done(now, value, answer), revision: answer?.revision ?? record?.revision, record,
  });
  let answer;
  try {
    const request = { ...act.request(now, value), ...by };
    answer = await api.call(act.procedure, request, AbortSignal.timeout(answerWithin));
  } catch (error) {
    if (!maybeDone(error)) return { kind: "refused", text: `Nothing was changed. ${told(error)}` };
    return unanswered(act, done, await search());
  }
  switch (answer.status ?? "OK") {
    case "OK": return done(answer, await search(answer.revision));
    case "NOT_HELD": case "NOT_FOUND": return repeated(act, done, await search());
    default: return { kind: "refused", text: `Nothing was changed. ${sentence(answer.message || answer.status)}` };
  }
}

// unanswered is the outcome if the answer was lost. Only an audit record tells what has happened.
function unanswered(act, done, record) {
  if (record?.outcome === "OK") return done(undefined, record);
  if (record && record.outcome !== "UNSPECIFIED") {
    return { kind: "refused", text: `It failed. ${sentence(record.message || record.outcome)}` };
  }
  return { kind: "lost", text: `The answer was lost, so it is not known whether this was done. ${act.again}` };
}

// repeated is the outcome if there was nothing to act on. A browser may send a request twice when a connection breaks:
// then the first one has left a record.
function repeated(act, done, record) {
  return record?.outcome === "OK" ? done(undefined, record) : { kind: "ended", text: act.ended };
}

// findRecord returns the audit record of an act, or null: that of its outcome if there is one, else that of its
// beginning. With a revision it is that of the answer. Otherwise it is later than what was read before, with the same
// subject, reason, ticket and caller.
async function findRecord(api, act, { now, value, by, caller, revision }, wait) {
  const ours = (record) => record.action === act.action && (revision ? record.revision === revision :
    BigInt(record.revision) > BigInt(now.revision) && act.about(record, now, value) && record.reason === by.reason &&
    record.ticket === by.ticket && record.caller?.identity === caller);
  let begun = null;
  for (let attempt = 0; attempt < attempts; attempt++) {
    if (attempt > 0) await wait(pause);
    const found = (await records(api)).filter(ours);
    const outcome = found.find((record) => record.outcome !== "UNSPECIFIED");
    if (outcome) return outcome;
    begun = found[0] ?? null;
  }
  return begun;
}

async function records(api) {
  try {
    return (await api.call("OperatorService/ListAudit", { pageSize })).records;
  } catch {
    return []; // no leader at this moment
  }
}

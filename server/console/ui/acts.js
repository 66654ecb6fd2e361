// Acts: what an operator can do, what it would do at this moment, and what is sent. All functions are pure, except
// that read asks the node. Names in sentences have been made visible. An act has
//   title, verb     what it is called: as a heading, and on a button
//   grave           whether it takes something away
//   procedure       the request; action is its name in the audit log
//   typed           what has to be typed again to confirm it: { what, text }
//   field           a further input: { label, hint, parse }, where parse returns undefined for text that will not do
//   read(api)       what is there now, confirmed by the leader
//   hindrance(found)      why it cannot be done now, in a sentence; undefined if it can
//   same(before, now)     whether it still does what was shown
//   plan(found, value)    what it would do: { lead, list } of sentences
//   request(found, value) what is sent, without reason and ticket
//   done(found, value, answer)  what has changed, in a sentence
//   ended           the sentence for an answer that there is nothing to act on any more
//   again           what a repetition would do, if the answer was lost
//   about(record, found)  whether an audit record of this action may be that of this act
import { lag } from "./sentences.js";
import { count, duration, mode, number, place, program, tokens, value as content, visible, who } from "./text.js";

// longestGrace is the longest grace period in seconds, a bound of the API.
const longestGrace = 2147483;

const aliveFor = 30000; // milliseconds after a heartbeat for which a client counts as alive
const listed = 6; // names in a sentence

function names(all) {
  const shown = all.slice(0, listed).map(visible).join(", ");
  return all.length > listed ? `${shown} and ${number(all.length - listed)} more` : shown;
}

const nothing = {
  holders: [], holderCount: "0", queue: [], queueLength: "0", delays: [], limit: "0", permitsUsed: "0",
};

// readLock reads a lock. One that nobody holds or waits for does not exist.
function readLock(name) {
  return (api) => api.call("LockService/Get", { name, queueLimit: 1 }).catch((error) => {
    if (error.code !== "not_found") throw error;
    return { name, ...nothing };
  });
}

const holdIn = (lock, { holdId, token }) => lock.holders.find((h) => h.holdId === holdId && h.token === token);

function alive({ leased, heartbeatAgeMs }) {
  if (leased) return "It is a lease: its client sends no heartbeats.";
  if (heartbeatAgeMs === undefined) return "";
  const age = Number(heartbeatAgeMs);
  return age < aliveFor ? "Its client is alive." : `Its client was last heard of ${duration(age)} ago.`;
}

const how = { EXCLUSIVE: "exclusively", SHARED: "together with others" };

// whatHold describes a hold, and what belongs to it.
function whatHold(lock, hold) {
  const others = (hold.locks ?? []).filter((name) => name !== lock.name);
  const bytes = hold.value ? content(hold.value).bytes : 0;
  return [
    `It has lasted ${duration(hold.heldForMs)}, ${how[hold.mode] ?? `with ${mode(hold)}`}.`,
    hold.tokens > 0 ? `It is cached: all its fencing tokens end with it, ${tokens(hold)}.` : `Its fencing token is ${hold.token}.`,
    alive(hold),
    others.length > 0 ? `The same hold has ${names(others)} too.` : "",
    bytes > 0 ? `Its value of ${count(bytes, "byte")} goes with it.` : "",
    hold.count > 1 ? `It was acquired ${number(hold.count)} times, and ends at once.` : "",
  ];
}

// afterHold says who gets the lock when the hold has been forced to end.
function afterHold(lock, hold) {
  const [next] = lock.queue;
  const others = Number(lock.holderCount) - 1;
  if (hold.lockDelayMs > 0) {
    return `Its lock-delay then keeps what it held closed for ${duration(hold.lockDelayMs)}.`;
  }
  if (!next) return "No lock-delay follows, and nobody waits.";
  const at = others === 0 && !(next.locks?.length > 1) ? " and gets it at once" : "";
  return `No lock-delay follows. ${who(next)} is first of ${number(lock.queueLength)} in the queue${at}.`;
}

// firstOf says who waits first.
function firstOf(lock) {
  const [next] = lock.queue;
  return next ? `${who(next)} is first of ${number(lock.queueLength)} in the queue.` : "Nobody waits.";
}

// onHold is what acts on a hold have in common.
function onHold(name, hold) {
  return {
    typed: { what: "the lock’s name", text: name },
    read: readLock(name),
    hindrance: (lock) => (holdIn(lock, hold) ? undefined : `This hold of ${visible(name)} has ended.`),
    same: () => true, // a hold has its id and its token for ever
    ended: "The hold had ended before. Nothing was changed.",
    about: (record) => record.holdId === hold.holdId,
  };
}

export function forceRelease(name, hold) {
  return {
    ...onHold(name, hold),
    title: "Force release", verb: "Force release", grave: true,
    procedure: "OperatorService/ForceRelease", action: "FORCE_RELEASE",
    plan: (lock) => {
      const now = holdIn(lock, hold);
      return {
        lead: `The hold of ${who(now)} on ${visible(name)} ends without its consent.`,
        list: [...whatHold(lock, now), afterHold(lock, now),
          "The holder is told, but may go on for a while. Only fencing tokens keep it from what the lock protects."],
      };
    },
    request: () => ({ holdId: hold.holdId, token: hold.token }),
    done: (lock) => `The hold of ${who(holdIn(lock, hold))} on ${visible(name)} has ended.`,
    again: "It is safe to send it again: it names this hold and its token, so it cannot end another one.",
  };
}

const grace = {
  label: "Grace period in seconds", hint: "Empty: only ask. The holder may then keep the lock.",
  parse: (text) => {
    if (text.trim() === "") return 0;
    const seconds = /^\d+(\.\d{1,3})?$/.test(text.trim()) ? Number(text) : 0;
    return seconds > 0 && seconds <= longestGrace ? Math.round(seconds * 1000) : undefined;
  },
};

export function askBack(name, hold) {
  return {
    ...onHold(name, hold),
    title: "Ask back", verb: "Ask back", grave: false, field: grace,
    procedure: "OperatorService/Revoke", action: "REVOKE",
    plan: (lock, graceMs) => {
      const now = holdIn(lock, hold);
      const then = graceMs > 0 ? `If it still has the lock after ${duration(graceMs)}, the hold is forced to end.` :
        "It may keep it.";
      return {
        lead: `${who(now)} is asked to release ${visible(name)}. ${then}`,
        list: [...whatHold(lock, now),
          now.revocation ? `It was asked before: “${visible(now.revocation.reason)}”.` : "",
          now.remainingHoldMs === undefined ? "" :
            `Unless it is asked anew with a grace period, the hold ends in ${duration(now.remainingHoldMs)}.`,
          graceMs > 0 ? afterHold(lock, now) : ""],
      };
    },
    request: (lock, graceMs) => ({ holdId: hold.holdId, token: hold.token, graceMs }),
    done: (lock, graceMs) => `${who(holdIn(lock, hold))} was asked to release ${visible(name)}${
      graceMs > 0 ? `, and loses it in ${duration(graceMs)} at the latest` : ""}.`,
    again: "It is safe to send it again: the same holder is asked once more, and a grace period begins anew.",
  };
}

// whatDelay describes a lock-delay.
function whatDelay({ holdId, sessionId, remainingMs, lockDelayMs }) {
  const left = remainingMs === undefined ? "" : ` ${duration(remainingMs)} of ${duration(lockDelayMs)} are left.`;
  return `Hold ${holdId} of session ${sessionId} did not end by a release.${left}`;
}

// skipDelay ends the lock-delay of one hold, or with the hold "0" all those of a lock.
export function skipDelay(name, holdId = "0") {
  const those = (lock) => lock.delays.filter((delay) => holdId === "0" || delay.holdId === holdId);
  const ids = (lock) => those(lock).map((delay) => delay.holdId).sort().join(" ");
  return {
    title: holdId === "0" ? "Skip all lock-delays" : "Skip a lock-delay",
    verb: holdId === "0" ? "Skip all" : "Skip",
    grave: true,
    procedure: "OperatorService/SkipDelay", action: "SKIP_DELAY",
    typed: { what: "the lock’s name", text: name },
    read: readLock(name),
    hindrance: (lock) => (those(lock).length > 0 ? undefined : `The lock-delay of ${visible(name)} is over.`),
    same: (before, now) => ids(before) === ids(now),
    plan: (lock) => ({
      lead: those(lock).length === 1 ? `The lock-delay of ${visible(name)} ends now.` :
        `${number(those(lock).length)} lock-delays of ${visible(name)} end now.`,
      list: [
        ...those(lock).slice(0, listed).map(whatDelay),
        firstOf(lock),
        "Make sure that the former holder has stopped: the lock-delay gives it the time to notice.",
        "Other locks of the same hold stay closed.",
      ],
    }),
    request: () => ({ name, holdId }),
    done: (lock) => `${count(those(lock).length, "lock-delay was", "lock-delays were")} skipped on ${visible(name)}.`,
    ended: "The lock-delay was over before. Nothing was changed.",
    again: "It is safe to send it again: what is skipped is read again before that.",
    about: (record) => record.lock === name && (holdId === "0" || record.holdId === holdId),
  };
}

// whatSession describes a session, and what ends with it.
function whatSession({ session, holds, waits }) {
  const which = (list) => (list.length > 0 ? `: ${names(list.map((each) => each.name))}` : "");
  const where = place(session.client);
  return [
    `It is a session of ${visible(session.identity)}${where ? `, on ${where}` : ""}.`,
    alive(session),
    session.holds === "0" ? "It holds nothing." :
      `${count(session.holds, "hold is", "holds are")} forced to end${which(holds)}.`,
    holds.some(({ hold }) => hold.lockDelayMs > 0) ? "Those with a lock-delay keep their locks closed for it." : "",
    session.waits === "0" ? "It waits for nothing." :
      `${count(session.waits, "waiting request is", "waiting requests are")} cancelled${which(waits)}.`,
    "Its client is told. It may open another session.",
  ];
}

export function closeSession(id) {
  return {
    title: "Close session", verb: "Close session", grave: true,
    procedure: "OperatorService/ForceClose", action: "FORCE_CLOSE",
    typed: { what: "the session’s number", text: id },
    read: (api) => api.call("SessionService/Get", { sessionId: id }).catch((error) => {
      if (error.code !== "not_found") throw error;
      return null;
    }),
    hindrance: (found) => (found ? undefined : `Session ${id} has ended.`),
    same: () => true, // a session's number is never given to another
    plan: (found) => ({
      lead: `Session ${id} of ${program(found.session.client)} ends, with all that it has.`, list: whatSession(found),
    }),
    request: () => ({ sessionId: id }),
    done: ({ session }) => `Session ${id} of ${program(session.client)} has ended, with its holds and waits.`,
    ended: "The session had ended before. Nothing was changed.",
    again: "It is safe to send it again: it names this session, whose number no other gets.",
    about: (record) => record.sessionId === id,
  };
}

// canLead reports whether a node can become the leader.
export const canLead = (node) => node.voter && node.reachable && !node.leader && !node.drained;

// nextLeader returns the node that can lead next and has the most of the log, or null.
export function nextLeader(status) {
  const better = (best, node) => (!best || lag(status, node) < lag(status, best) ? node : best);
  return status.nodes.filter(canLead).reduce(better, null);
}

const catchingUp = (id, behind) => (behind > 0 ?
  `${visible(id)} is ${count(behind, "log entry", "log entries")} behind, and catches up first.` : "");

// transfer hands leadership to a node. The request always names it, so that it does nothing the second time.
export function transfer(id) {
  const to = (status) => status.nodes.find((node) => node.id === id);
  return {
    title: `Make ${visible(id)} the leader`, verb: "Make leader", grave: false,
    procedure: "ClusterService/TransferLeadership", action: "TRANSFER_LEADERSHIP",
    typed: { what: "the node’s id", text: id },
    read: (api) => api.call("ClusterService/Status"),
    hindrance: (status) => {
      if (!status.leaderId) return "No node leads at present.";
      if (status.leaderId === id) return `${visible(id)} leads already.`;
      if (to(status) && canLead(to(status))) return undefined;
      return `${visible(id)} cannot lead: it is not reachable, is drained, or still joins.`;
    },
    same: (before, now) => before.leaderId === now.leaderId && before.term === now.term,
    plan: (status) => ({
      lead: `${visible(status.leaderId)} hands leadership over to ${visible(id)}.`,
      list: [
        "Nothing is granted or released until it leads, usually for a fraction of a second. Requests wait for that.",
        `${count(status.sessions, "session")} and ${count(status.holds, "hold")} stay, and so do the queues.`,
        "Times that the leader measures begin anew: TTLs, longest durations of holds, lock-delays, grace periods.",
        catchingUp(id, lag(status, to(status))),
      ],
    }),
    request: () => ({ id }),
    done: (status, value, answer) => `${visible(answer?.leaderId || id)} leads now.`,
    ended: `${visible(id)} is not a node of this cluster any more. Nothing was changed.`,
    again: "It is safe to send it again: it names the next leader, and does nothing if that one leads already.",
    about: (record) => record.member === id,
  };
}

export function resize(name, current) {
  return {
    title: "Change the number of permits", verb: "Resize", grave: false,
    field: {
      label: "Permits", hint: `Another number than ${number(current)}.`,
      parse: (text) => (/^[1-9]\d{0,9}$/.test(text.trim()) && text.trim() !== current ? Number(text) : undefined),
    },
    procedure: "OperatorService/Resize", action: "RESIZE",
    typed: { what: "the lock’s name", text: name },
    read: readLock(name),
    hindrance: (lock) => (Number(lock.limit) > 0 ? undefined : `${visible(name)} is not in use any more.`),
    same: (before, now) => before.limit === now.limit,
    plan: (lock, limit) => ({
      lead: limit ? `${visible(name)} has ${count(limit, "permit")} instead of ${number(lock.limit)}.` :
        `${visible(name)} has ${count(lock.limit, "permit")}.`,
      list: [
        `${count(lock.permitsUsed, "permit is", "permits are")} in use, by ${count(lock.holderCount, "holder")}.`,
        "All holds stay.",
        limit < Number(lock.permitsUsed) ? "Nothing is granted until fewer are in use." : "",
        firstOf(lock),
        lock.queue[0] ? `It wants ${count(lock.queue[0].permits, "permit")}.` : "",
      ],
    }),
    request: (lock, limit) => ({ name, limit: String(limit) }),
    done: (lock, limit) => `${visible(name)} has ${count(limit, "permit")} now.`,
    ended: "The semaphore is not in use any more. Nothing was changed.",
    again: "It is safe to send it again: it sets the same number.",
    about: (record, lock, limit) => record.lock === name && record.limit === String(limit),
  };
}

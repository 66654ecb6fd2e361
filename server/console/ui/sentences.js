// Sentences: why a lock does not move, how the cluster is, what an event means. All functions are pure; names in their
// results have been made visible.
import { cached, count, duration, mode, number, visible, who } from "./text.js";

// whyNothingMoves explains what the head of a lock's queue waits for, or why there is no queue. elapsed is the time
// since the lock was read, in milliseconds. Unless the lock is known at present, nothing is said of what comes next.
export function whyNothingMoves(lock, elapsed = 0, present = true) {
  const waiting = Number(lock.queueLength);
  const holders = Number(lock.holderCount);
  if (holders === 0 && lock.delays.length > 0) return delayed(lock, waiting, elapsed);
  if (holders === 0 && waiting === 0) return "Nobody holds this lock, and nobody waits for it.";
  if (waiting === 0) return idle(lock, holders, elapsed);
  const head = lock.queue[0];
  const subject = waiting === 1 ? "One request waits" : `${number(waiting)} requests wait`;
  if (head?.upgrade) {
    return `${subject}: ${who(head)} waits for the other shared holders to leave, to hold it exclusively.`;
  }
  if (holders === 0) return `${subject}: ${elsewhere(head)}.`;
  if (Number(lock.limit) > 0) return permits(lock, head, subject, holders);
  if (lock.holders[0]?.mode === "SHARED" && head?.mode === "SHARED") return `${subject}: ${elsewhere(head)}.`;
  return `${subject} because ${holding(lock, holders, elapsed)}.${present ? outlook(lock.holders, holders, elapsed) : ""}`;
}

function idle(lock, holders, elapsed) {
  if (Number(lock.limit) > 0) {
    return `${number(lock.permitsUsed)} of ${count(lock.limit, "permit")} are in use, and nobody waits.`;
  }
  const kept = cached(lock.holders[0] ?? {}, elapsed);
  return `Nobody waits: ${holding(lock, holders, elapsed)}${kept && ` (${kept})`}.`;
}

function delayed(lock, waiting, elapsed) {
  const left = Math.max(0, ...lock.delays.map((d) => Number(d.remainingMs ?? 0) - elapsed));
  const until = left > 0 ? ` for another ${duration(left)}` : "";
  const queue = waiting === 0 ? "" : ` ${waiting === 1 ? "One request waits" : `${number(waiting)} requests wait`} for that.`;
  return `Nobody holds this lock, but a lock-delay keeps it closed${until}, since its last hold did not end by a release.${queue}`;
}

function elsewhere(head) {
  if (head?.locks?.length > 1) {
    return `the first, ${who(head)}, needs ${count(head.locks.length, "lock")} at once and waits for another of them`;
  }
  return "the first is about to be granted";
}

function permits(lock, head, subject, holders) {
  const free = Number(lock.limit) - Number(lock.permitsUsed);
  const rest = free > 0 ? `only ${count(free, "permit")} of ${number(lock.limit)} ${free === 1 ? "is" : "are"} free` :
    `all ${count(lock.limit, "permit")} are in use`;
  return `${subject}: the first needs ${count(head?.permits ?? 1, "permit")}, and ${rest} (${count(holders, "holder")}).`;
}

function holding(lock, holders, elapsed) {
  const first = lock.holders[0];
  if (!first) return `it is held by ${count(holders, "holder")}`;
  const since = duration(Number(first.heldForMs) + elapsed);
  if (holders > 1) return `${who(first)} and ${count(holders - 1, "other")} share it, the first for ${since}`;
  return `${who(first)} has held it ${first.mode === "SHARED" ? "shared" : "exclusively"} for ${since}`;
}

// outlook says when a single hold ends, as far as that is known.
function outlook(all, holders, elapsed) {
  const hold = all[0];
  if (holders !== 1 || !hold) return "";
  const left = (ms) => duration(Math.max(0, Number(ms) - elapsed));
  if (hold.revocation && hold.remainingHoldMs !== undefined) {
    return ` An operator asked for it; it is forced to end in ${left(hold.remainingHoldMs)}.`;
  }
  if (hold.recalled) return " The holder keeps it cached, and was asked to give it back as soon as it is not in use.";
  if (hold.revocation) return " An operator asked the holder to release it.";
  if (hold.remainingHoldMs !== undefined) return ` It ends in ${left(hold.remainingHoldMs)} at the latest.`;
  if (hold.leased && Number(hold.remainingLeaseMs) > 0) return ` Its lease ends in ${left(hold.remainingLeaseMs)} unless it is extended.`;
  if (hold.heartbeatAgeMs === undefined) return "";
  const age = Number(hold.heartbeatAgeMs) + elapsed;
  return age < 30000 ? " Its holder is alive." : ` Its holder was last heard of ${duration(age)} ago.`;
}

// behind says what one place in the queue waits behind.
export function behind(lock, index) {
  const waiter = lock.queue[index];
  if (index > 0 && !waiter.upgrade) {
    const previous = lock.queue[index - 1];
    return `no. ${number(previous.position)}, ${who(previous)}`;
  }
  if (Number(lock.holderCount) === 0) return waiter.locks?.length > 1 ? "another of its locks" : "a lock-delay";
  const first = who(lock.holders[0] ?? {});
  return Number(lock.holderCount) > 1 ? `${first} and ${count(lock.holderCount - 1, "other holder")}` : `the holder, ${first}`;
}

const words = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"];

// circle says which sessions of a deadlock wait for each other. Steps that may not be read have no lock.
export function circle(cycle) {
  const owners = new Set(cycle.map((step, i) => (step.lock ? `${step.sessionId} ${step.owner}` : `unseen ${i}`)));
  const sessions = new Set(cycle.map((step, i) => (step.lock ? step.sessionId : `unseen ${i}`)));
  const all = words[owners.size] ?? number(owners.size);
  const noun = sessions.size === owners.size ? "sessions" : "owners";
  return `${all} ${noun} wait for each other in a circle: ${cycle.map((step) => circleStep(step, cycle)).join(", ")}.`;
}

// circleStep names a session by its number too if others in the cycle have the same name.
function circleStep(step, cycle) {
  if (!step.lock) return "a session waits for a lock that you may not read";
  const session = `session ${step.sessionId}`;
  const name = visible(step.clientName);
  const unique = cycle.filter((other) => other.clientName === step.clientName).length === 1;
  const who = !name ? session : unique ? name : `${name} (${session})`;
  return `${who} waits for “${visible(step.lock)}”`;
}

// circleRemedy is what ends a deadlock.
export const circleRemedy = "Force-release a hold or cancel a wait of one of them; none of them goes on by itself.";

const ahead = 1000; // log entries by which a healthy follower may lag

// health describes a cluster in one sentence: its level is good, warn or bad.
export function health(status, now = Date.now()) {
  const voters = status.nodes.filter((n) => n.voter);
  const up = voters.filter((n) => n.reachable);
  const majority = Math.floor(voters.length / 2) + 1;
  const names = (nodes) => nodes.map((n) => visible(n.id)).join(", ");
  if (!status.leaderId) {
    return { level: "bad", text: `No leader: nothing can be acquired or released until ${majority} of ${count(voters.length, "node")} elect one.` };
  }
  if (status.grantsSuspended) return { level: "bad", text: "Grants are suspended: the nodes' states differ, and no majority agrees." };
  const down = status.nodes.filter((n) => !n.reachable);
  if (down.length > 0) {
    const left = up.length - majority;
    const rest = left > 0 ? `The cluster survives the loss of ${count(left, "more node")}.` : "If one more node fails, the cluster stops.";
    return { level: "warn", text: `${names(down)} ${down.length === 1 ? "is" : "are"} not reachable; ${visible(status.leaderId)} leads. ${rest}` };
  }
  const alarms = status.nodes.flatMap((n) => n.alarms);
  if (alarms.length > 0) return { level: "warn", text: `${count(alarms.length, "alarm")} to look at: ${visible(alarms[0].message)}.` };
  const behind = status.nodes.filter((n) => lag(status, n) > ahead);
  if (behind.length > 0) {
    const entries = number(lag(status, behind[0]));
    return { level: "warn", text: `${names(behind)} ${behind.length === 1 ? "is" : "are"} catching up, ${entries} entries behind.` };
  }
  const unhealthy = status.nodes.filter((n) => n.health && !n.health.healthy);
  if (unhealthy.length > 0) {
    const verb = unhealthy.length === 1 ? "is" : "are";
    return { level: "warn", text: `${names(unhealthy)} ${verb} not healthy: ${visible(unhealthy[0].health.reason)}.` };
  }
  const ending = status.nodes.filter((n) => certificateLeft(n, now) < 14 * 86400000);
  if (ending.length > 0) return { level: "warn", text: `A certificate of ${names(ending)} expires in ${duration(certificateLeft(ending[0], now))}.` };
  if (status.backupSchedule?.overdue) return { level: "warn", text: `A backup is overdue by the schedule ${visible(status.backupSchedule.schedule)}: see the log of ${visible(status.leaderId)}.` };
  return { level: "good", text: fine(status, voters, majority) };
}

function fine(status, voters, majority) {
  const leader = visible(status.leaderId);
  if (voters.length === 1) return `${leader} is up. It is alone, so nothing replaces it if it fails.`;
  const agree = Number(status.agreedIndex) > 0 ? " and their states agree" : "";
  const rest = count(voters.length - majority, "node");
  return `All ${number(voters.length)} nodes are up${agree}. ${leader} leads; the cluster survives the loss of ${rest}.`;
}

// lag returns how many committed log entries a node has not applied.
export function lag(status, node) {
  return node.reachable ? Math.max(0, Number(status.commitIndex) - Number(node.appliedIndex)) : 0;
}

// certificateLeft returns how long a node's certificates are valid, in milliseconds; Infinity if it has none.
export function certificateLeft(node, now = Date.now()) {
  const ends = Number(node.certificateExpiresUnixMs);
  return ends > 0 ? ends - now : Infinity;
}

const reasons = {
  TIMEOUT: "its time is over",
  SESSION_LOST: "its session ended",
  CANCELLED: "its client gave up",
  PERMISSION_DENIED: "the right to the lock was withdrawn",
  NOT_HELD: "its hold ended",
};

const because = (event) => (reasons[event.status] ? `: ${reasons[event.status]}` : "");
const given = (event) => (event.reason ? `: “${visible(event.reason)}”` : "");

const meanings = {
  SESSION_OPENED: (e) => ["session", e.leased ? "a lease begins" : "opened"],
  SESSION_ATTACHED: () => ["session", "connected"],
  SESSION_CLOSED: () => ["session", "closed"],
  SESSION_EXPIRED: () => ["loss", "session expired: not heard of within its TTL"],
  SESSION_EXTENDED: () => ["session", "lease extended"],
  QUEUED: (e) => ["wait", e.upgrade ? "waits to hold it exclusively" : `waits (${mode(e)})`],
  GRANTED: (e) => ["grant", `granted (${mode(e)}${e.tokens > 0 ? ", cached" : ""})${e.waited ? " after a wait" : ""}`],
  RELEASED: () => ["end", "released"],
  EXPIRED: (e) => ["loss", `hold expired${because(e)}`],
  CANCELLED: (e) => ["end", `stopped waiting${because(e)}`],
  REVOKED: (e) => ["operator", `an operator asks for it${given(e)}`],
  FORCED: (e) => ["operator", `forced to end${given(e)}`],
  DELAYED: (e) => ["wait", `lock-delay of ${duration(e.lockDelayMs)} begins`],
  DELAY_ENDED: () => ["end", "lock-delay ended"],
  DOWNGRADED: () => ["grant", "exclusive hold became shared"],
  EXTENDED: () => ["grant", "hold extended"],
  WANTED: () => ["wait", "the holder learns that others wait"],
  RESIZED: (e) => ["operator", `now has ${count(e.limit, "permit")}`],
  VALUE_SET: () => ["grant", "value changed"],
};

// eventMeaning returns the kind of an event, for its colour, and what it means.
export function eventMeaning(event) {
  const [kind, text] = meanings[event.type]?.(event) ?? ["session", visible(event.type)];
  return { kind, text: event.restored ? `${text} (a backup was restored)` : text };
}

// Exploring who waits for whom: reads locks and sessions around a start, breadth first and within bounds.

// An owner is a session, or a part of one with a key of its own: other parts of the session do not wait with it.

// bounds keep the picture legible and the number of requests small: nodes to discover, levels to read, waiters and
// holders of each lock, and requests in flight.
export const bounds = { nodes: 60, levels: 6, places: 12, flight: 4 };

// explore returns what there is around a start, { kind: "lock" or "session", id }:
//   locks      the answers of LockService/Get by name; null if a lock was not read
//   owners     the keys (see ownerOf) of those who hold and wait
//   sessions   the answers of SessionService/Get by id; null if a session was not read
//   deadlocks  the cycles of which a step belongs to one of them
//   names      of all locks that may matter, also those that are held and not waited for
//   absent     whether the start does not exist, or may not be seen
//   left       whether more was found than the bounds admit
// read(procedure, request) answers a request.
export async function explore(read, start, limits = bounds) {
  const [deadlocks, contended] = await Promise.all([
    read("LockService/ListDeadlocks", {}), read("LockService/ListContended", { limit: 1000 }),
  ]);
  const trip = new Trip(start, deadlocks.deadlocks, contended, limits);
  for (let level = 0; level < limits.levels && trip.next.length > 0; level++) {
    const items = trip.take();
    const answers = await pooled(items, limits.flight, (item) => answer(read, item, start, limits.places));
    items.forEach((item, i) => trip.arrive(item, answers[i]));
  }
  return trip.found(Boolean(deadlocks.local || contended.local));
}

// ownerOf returns the key of who made a claim.
export const ownerOf = (claim) => `${claim.sessionId} ${claim.owner ?? "0"}`;

// answer reads a lock or a session. One that has ended meanwhile, or may not be seen, is null, unless it is the start.
async function answer(read, { kind, id }, start, places) {
  try {
    if (kind === "session") return await read("SessionService/Get", { sessionId: id });
    return await read("LockService/Get", { name: id, queueLimit: places });
  } catch (error) {
    if (error.code === "not_found") return null;
    if (error.code === "permission_denied" && (kind !== start.kind || id !== start.id)) return null;
    throw error;
  }
}

// pooled maps items by an asynchronous function, of which at most so many calls run at a time.
async function pooled(items, most, run) {
  const results = [];
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const i = next++;
      results[i] = await run(items[i]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(most, items.length) }, work));
  return results;
}

// Trip is the state of an exploration: next are the locks and sessions to read.
class Trip {
  constructor(start, deadlocks, contended, limits) {
    Object.assign(this, { start, deadlocks, limits });
    this.contended = new Set(contended.locks.map((lock) => lock.name));
    this.allContended = this.contended.size >= Number(contended.contended);
    this.locks = new Map();
    this.owners = new Set();
    this.sessions = new Map();
    this.next = [];
    this.left = false;
    if (start.kind === "lock") this.discoverLock(start.id);
    else this.readSession(start.id);
  }

  take() {
    const items = this.next;
    this.next = [];
    return items;
  }

  // admit reports whether there is room for another node.
  admit() {
    const room = this.locks.size + this.owners.size < this.limits.nodes;
    this.left ||= !room;
    return room;
  }

  discoverLock(name) {
    if (this.locks.has(name) || !this.admit()) return;
    this.locks.set(name, null);
    this.next.push({ kind: "lock", id: name });
  }

  discoverOwner(claim) {
    const key = ownerOf(claim);
    if (this.owners.has(key) || !this.admit()) return;
    this.owners.add(key);
    const data = this.sessions.get(claim.sessionId);
    if (data) this.follow(key, data);
    else this.readSession(claim.sessionId);
  }

  readSession(id) {
    if (this.sessions.has(id)) return;
    this.sessions.set(id, null);
    this.next.push({ kind: "session", id });
  }

  arrive({ kind, id }, data) {
    if (kind === "session") this.arriveAtSession(id, data);
    else this.arriveAtLock(id, data);
  }

  arriveAtLock(name, lock) {
    this.locks.set(name, lock);
    this.discoverCycles((step) => step.lock === name);
    for (const hold of lock?.holders.slice(0, this.limits.places) ?? []) this.discoverOwner(hold);
    for (const wait of lock?.queue ?? []) {
      this.discoverOwner(wait);
      for (const each of wait.locks) this.discoverLock(each);
    }
  }

  arriveAtSession(id, data) {
    this.sessions.set(id, data);
    this.discoverCycles((step) => step.sessionId === id && this.owners.has(ownerOf(step)));
    if (!data) return;
    for (const key of [...this.owners]) if (key.startsWith(`${id} `)) this.follow(key, data);
    if (this.start.kind !== "session" || this.start.id !== id) return;
    for (const { wait } of data.waits) this.discoverOwner(wait);
    for (const { hold, name } of data.holds) {
      if (namesOf(hold, name).some((each) => this.matters(each))) this.discoverOwner(hold);
    }
  }

  discoverCycles(touched) {
    for (const { cycle } of this.deadlocks) {
      for (const step of cycle.some(touched) ? cycle.filter(({ lock }) => lock) : []) {
        this.discoverOwner(step);
        this.discoverLock(step.lock);
      }
    }
  }

  // matters reports whether others may wait for a lock that is held. If there are more such locks than one answer
  // lists, any may be one of them.
  matters(name) {
    return this.contended.has(name) || !this.allContended;
  }

  // follow discovers what an owner waits for, and of what it holds that for which others wait.
  follow(key, { holds, waits }) {
    const names = (claim, name) => (ownerOf(claim) === key ? namesOf(claim, name) : []);
    for (const { wait, name } of waits) for (const each of names(wait, name)) this.discoverLock(each);
    const held = holds.flatMap(({ hold, name }) => names(hold, name)).filter((name) => this.matters(name));
    const certain = held.filter((name) => this.contended.has(name));
    for (const name of [...certain, ...held.slice(0, this.limits.places)]) this.discoverLock(name);
  }

  found(local) {
    const { locks, owners, sessions } = this;
    const names = new Set(locks.keys());
    for (const data of sessions.values()) {
      for (const { hold, name } of data?.holds ?? []) for (const each of namesOf(hold, name)) names.add(each);
    }
    const deadlocks = this.deadlocks.filter(({ cycle }) =>
      cycle.some((step) => step.lock && (owners.has(ownerOf(step)) || locks.has(step.lock))));
    const absent = (this.start.kind === "lock" ? locks : sessions).get(this.start.id) === null;
    return { locks, owners, sessions, names, deadlocks, absent, local, left: this.left || this.next.length > 0 };
  }
}

// namesOf returns the names of the locks of a hold or a wait.
export function namesOf(claim, name) {
  return claim.locks?.length > 0 ? claim.locks : [name];
}

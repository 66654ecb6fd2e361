// The wait-for graph: owners and locks as nodes, and between them edges of who waits for what and who holds it. All
// functions are pure, and their results do not depend on the order in which answers list things.
import { number, program, visible } from "./text.js";
import { namesOf, ownerOf } from "./waits.js";

// waitGraph returns the graph of what an exploration has found around a start:
//   nodes   { key, kind: "lock", "owner" or "unseen", start, cycle, … }, in an order that stays when others come and go
//   edges   { key, from, to, kind: "waits", "holds", "behind" or "unseen", label, cycle }
//   rings   for each cycle the keys of its nodes in order
//   hidden  how many requests and holds of the locks shown are not drawn
// cycle is set for what is part of a deadlock.
export function waitGraph(found, start) {
  const builder = new Builder(found);
  if (start.kind === "lock") builder.lock(start.id).start = true;
  else builder.markStart(start.id);
  builder.addLocks();
  builder.addSessions();
  const rings = found.deadlocks.map((deadlock, i) => builder.addCycle(deadlock.cycle, i));
  builder.prune();
  return { ...builder.sorted(), rings: rings.sort(byText), hidden: builder.hidden };
}

const lockKey = (name) => `lock ${name}`;
const ownerKey = (claim) => `owner ${ownerOf(claim)}`;
const byText = (a, b) => (String(a) < String(b) ? -1 : 1);

class Builder {
  constructor(found) {
    this.found = found;
    this.nodes = new Map();
    this.edges = new Map();
    this.hidden = 0;
  }

  // markStart marks the owners of a session, and adds one for the session itself, in case that it has none.
  markStart(id) {
    const session = this.found.sessions.get(id)?.session;
    this.startSession = id;
    if (session) this.owner(session);
  }

  lock(name) {
    const key = lockKey(name);
    if (!this.nodes.has(key)) {
      const lock = this.found.locks.get(name) ?? null;
      this.nodes.set(key, { key, kind: "lock", name, lock, start: false, cycle: false, rank: name });
    }
    return this.nodes.get(key);
  }

  // owner returns the node of who made a claim. Its rank is its oldest claim, which stays while queues advance.
  owner(claim) {
    const key = ownerKey(claim);
    const rank = claim.waitId ?? claim.holdId ?? claim.sessionId;
    let node = this.nodes.get(key);
    if (!node) {
      const { sessionId, owner = "0", client, identity = "" } = claim;
      const start = sessionId === this.startSession;
      node = { key, kind: "owner", sessionId, owner, client, identity, start, cycle: false, rank };
      this.nodes.set(key, node);
    }
    if (byNumber(rank, node.rank) < 0) node.rank = rank;
    return node;
  }

  edge(from, to, kind, label) {
    const key = `${kind}: ${from.key} > ${to.key}`;
    const edge = { key, from: from.key, to: to.key, kind, label, cycle: false };
    if (!this.edges.has(key)) this.edges.set(key, edge);
    return this.edges.get(key);
  }

  addLocks() {
    for (const [name, lock] of this.found.locks) {
      if (!lock) continue;
      const node = this.lock(name);
      const known = (claim) => this.found.owners.has(ownerOf(claim));
      for (const hold of lock.holders.filter(known)) this.edge(node, this.owner(hold), "holds", holdLabel(hold));
      for (const wait of lock.queue.filter(known)) this.edge(this.owner(wait), node, "waits", waitLabel(wait));
      this.hidden += Number(lock.holderCount) - lock.holders.filter(known).length;
      this.hidden += Number(lock.queueLength) - lock.queue.filter(known).length;
    }
  }

  // addSessions adds what the answers of locks lack, because those were not read or are longer.
  addSessions() {
    const { locks, owners, sessions } = this.found;
    const lacks = (list, count) => (name) => {
      const lock = locks.get(name);
      return locks.has(name) && (!lock || lock[list].length < Number(lock[count]));
    };
    for (const data of sessions.values()) {
      for (const { wait, name } of data?.waits.filter((claim) => owners.has(ownerOf(claim.wait))) ?? []) {
        for (const each of namesOf(wait, name).filter(lacks("queue", "queueLength"))) {
          this.edge(this.owner(wait), this.lock(each), "waits", each === name ? waitLabel(wait) : "waits");
        }
      }
      for (const { hold, name } of data?.holds.filter((claim) => owners.has(ownerOf(claim.hold))) ?? []) {
        for (const each of namesOf(hold, name).filter(lacks("holders", "holderCount"))) {
          this.edge(this.lock(each), this.owner(hold), "holds", holdLabel(hold));
        }
      }
    }
  }

  // addCycle marks the nodes and edges of a cycle, adds those that are missing, and returns the keys of its nodes.
  // Steps that the caller may not read are empty: their owner is known if the lock before has one holder.
  addCycle(cycle, index) {
    const owners = cycle.map((step, i) =>
      (step.lock ? this.stepOwner(step) : this.unseen(cycle.at(i - 1), `${index} ${i}`)));
    const ring = [];
    cycle.forEach((step, i) => {
      const next = owners[(i + 1) % owners.length];
      ring.push(owners[i].key);
      for (const edge of this.stepEdges(step, owners[i], next)) {
        edge.cycle = true;
        if (edge.from !== owners[i].key) ring.push(edge.from);
      }
    });
    for (const key of ring) this.nodes.get(key).cycle = true;
    return rotated(ring);
  }

  stepOwner(step) {
    return this.owner({ ...step, client: { name: step.clientName } });
  }

  unseen(before, name) {
    const holders = this.found.locks.get(before?.lock)?.holders ?? [];
    if (holders.length === 1) return this.owner(holders[0]);
    const key = `unseen ${name}`;
    this.nodes.set(key, { key, kind: "unseen", start: false, cycle: true, rank: key });
    return this.nodes.get(key);
  }

  // stepEdges returns the edges from an owner to the next one in a cycle, which holds the lock or waits for it ahead.
  stepEdges(step, owner, next) {
    if (!step.lock) return [this.edge(owner, next, "unseen", "waits")];
    const lock = this.lock(step.lock);
    const waits = this.edge(owner, lock, "waits", "waits");
    const holds = this.edges.get(`holds: ${lock.key} > ${next.key}`);
    if (holds) return [waits, holds];
    if (next.kind === "unseen") return [waits, this.edge(lock, next, "holds", "")];
    return [this.edge(owner, next, "behind", lock.lock ? "behind" : "waits")];
  }

  // prune drops locks that nobody waits for.
  prune() {
    const waited = new Set([...this.edges.values()].filter((e) => e.kind === "waits").map((e) => e.to));
    for (const node of [...this.nodes.values()]) {
      if (node.kind !== "lock" || node.start || node.cycle || waited.has(node.key)) continue;
      this.nodes.delete(node.key);
      for (const edge of [...this.edges.values()]) if (edge.from === node.key) this.edges.delete(edge.key);
    }
    const used = new Set([...this.edges.values()].flatMap((e) => [e.from, e.to]));
    const starts = [...this.nodes.values()].filter((node) => node.start);
    const kept = starts.find((node) => used.has(node.key)) ?? starts[0];
    for (const node of [...this.nodes.values()]) {
      if (!used.has(node.key) && node !== kept) this.nodes.delete(node.key);
    }
  }

  // sorted also marks owners that share a session, so that they can be told apart.
  sorted() {
    const nodes = [...this.nodes.values()].sort(byRank);
    const owners = nodes.filter((node) => node.kind === "owner");
    for (const node of owners) {
      node.several = owners.filter((other) => other.sessionId === node.sessionId).length > 1;
    }
    const edges = [...this.edges.values()].sort((a, b) => byText(a.key, b.key));
    return { nodes, edges };
  }
}

// rotated lets a cycle begin with its smallest key, so that it is the same wherever the node begins to list it.
function rotated(ring) {
  const at = ring.indexOf([...ring].sort()[0]);
  return [...ring.slice(at), ...ring.slice(0, at)];
}

// byNumber compares whole numbers that are strings.
function byNumber(a, b) {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

function byRank(a, b) {
  if (a.kind !== b.kind) return byText(b.kind, a.kind); // owners before locks
  return (a.kind === "owner" ? byNumber(a.rank, b.rank) : 0) || byText(a.key, b.key);
}

// holdLabel says how many permits a hold has. The node of the lock says how others are held.
function holdLabel(hold) {
  return hold.mode === "PERMITS" ? `has ${number(hold.permits)}` : "";
}

function waitLabel(wait) {
  return wait.upgrade ? "upgrade" : `no. ${number(wait.position)}`;
}

// titleOf names a node. Names that repeat are told apart by their sessions, which the drawing shows as well.
export function titleOf(node) {
  if (node.kind === "unseen") return "not shown to you";
  if (node.kind === "lock") return visible(node.name);
  const name = program(node.client);
  return name === "unnamed" ? `session ${node.sessionId}` : name;
}

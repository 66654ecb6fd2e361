// Rights: what the caller may do, decided from its rules as the node decides it. The node checks every request; this
// only keeps the page from offering what the node would refuse. All functions are pure.

// all is the prefix of a rule on all locks.
const all = "/";

export class Rights {
  #free; // a cluster without a policy allows everything
  #locks;
  #cluster;

  // me is the answer of WhoAmI.
  constructor({ hasPolicy, locks = [], cluster = [] }) {
    this.#free = !hasPolicy;
    this.#locks = locks;
    this.#cluster = cluster;
  }

  // onLock reports whether the caller may do this to a lock.
  onLock(name, verb) {
    return this.#free || this.#locks.some((rule) => covers(rule, name) && rule.verbs.includes(verb));
  }

  // onAllLocks reports whether the caller may do this to every lock.
  onAllLocks(verb) {
    return this.#free || this.#locks.some((rule) => !rule.name && rule.prefix === all && rule.verbs.includes(verb));
  }

  // onCluster reports whether the caller has a verb on the cluster.
  onCluster(verb) {
    return this.#free || this.#cluster.includes(verb);
  }

  // acts reports whether there is anything that the caller may change.
  acts() {
    return this.onCluster("MEMBERS") || this.#locks.some((rule) => rule.verbs.includes("OPERATE"));
  }

  // operatesClaim reports whether the caller may operate every lock of a hold or of a wait. A claim of several locks
  // names those that the caller may read, and one of a single lock does not name it. So a claim with one name has locks
  // that the caller may not read.
  operatesClaim(claim, name) {
    if (claim.locks?.length === 1) return this.onAllLocks("OPERATE");
    const names = claim.locks?.length > 1 ? claim.locks : [name];
    return names.every((each) => this.onLock(each, "OPERATE"));
  }

  // operatesSession reports whether the caller may close a session: it may operate every lock that the session holds or
  // waits for. found is the answer of SessionService/Get, which may lack some of them. Then, and if there are none, the
  // caller must be allowed to operate all locks.
  operatesSession({ session, holds, waits }) {
    if (this.onAllLocks("OPERATE")) return true;
    const known = holds.length + waits.length;
    if (known === 0 || known < Number(session.holds) + Number(session.waits)) return false;
    return holds.every(({ hold, name }) => this.operatesClaim(hold, name)) &&
      waits.every(({ wait, name }) => this.operatesClaim(wait, name));
  }
}

// covers reports whether a rule is about a lock: it has its name, or a prefix of it, which ends with '/'.
function covers(rule, name) {
  if (rule.name) return rule.name === name;
  return rule.prefix === all || (rule.prefix !== "" && name.startsWith(rule.prefix));
}

import { test } from "node:test";
import { deepEqual, equal, ok, rejects } from "node:assert/strict";
import { explore } from "../ui/waits.js";
import { waitGraph } from "../ui/graph.js";
import { layOut, size } from "../ui/layers.js";

// World is a cluster with sessions by id and locks by name, which answers the reads of an exploration. A claim is
// [session, locks, more]; waits are in the order of their queues.
class World {
  constructor({ holds = [], waits = [], deadlocks = [] }) {
    this.holds = holds.map((claim, i) => this.claim(claim, { holdId: String(i + 1) }));
    this.waits = waits.map((claim, i) => this.claim(claim, { waitId: String(i + 101) }));
    this.deadlocks = deadlocks;
    this.calls = 0;
    this.running = 0;
    this.most = 0;
  }

  claim([sessionId, names, more], id) {
    const all = [names].flat();
    return {
      all,
      sessionId,
      owner: "0",
      mode: "EXCLUSIVE",
      client: { name: `s${sessionId}` },
      identity: "",
      locks: all.length > 1 ? all : [],
      ...id,
      ...more,
    };
  }

  read = async (procedure, request) => {
    this.calls++;
    this.most = Math.max(this.most, ++this.running);
    await new Promise((done) => setTimeout(done));
    this.running--;
    switch (procedure) {
      case "LockService/ListDeadlocks":
        return { deadlocks: this.deadlocks };
      case "LockService/ListContended":
        return this.contended();
      case "LockService/Get":
        return this.lock(request.name, request.queueLimit);
      case "SessionService/Get":
        return this.session(request.sessionId);
    }
  };

  contended() {
    const names = [...new Set(this.waits.flatMap((wait) => wait.all))];
    return { locks: names.map((name) => ({ name })), contended: String(names.length) };
  }

  lock(name, limit) {
    const holders = this.holds.filter((hold) => hold.all.includes(name));
    const all = this.waits
      .filter((wait) => wait.all.includes(name))
      .map((wait, i) => ({ ...wait, position: String(i + 1) }));
    if (holders.length + all.length === 0) throw Object.assign(new Error(), { code: "not_found" });
    return {
      name,
      holders,
      holderCount: String(holders.length),
      queue: all.slice(0, limit),
      queueLength: String(all.length),
    };
  }

  session(sessionId) {
    const mine = (claims) => claims.filter((claim) => claim.sessionId === sessionId);
    const wait = (claim) => ({
      ...claim,
      position: String(this.waits.filter((w) => w.all.includes(claim.all[0])).indexOf(claim) + 1),
    });
    return {
      session: { sessionId, client: { name: `s${sessionId}` }, identity: "" },
      holds: mine(this.holds).map((hold) => ({ hold, name: hold.all[0] })),
      waits: mine(this.waits).map((claim) => ({ wait: wait(claim), name: claim.all[0] })),
    };
  }
}

const step = (sessionId, lock) => ({ sessionId, owner: "0", clientName: `s${sessionId}`, lock, waitId: "7" });
const ring = (...steps) => ({ cycle: steps.map(([sessionId, lock]) => step(sessionId, lock)) });

// around explores a world and returns its graph and its picture.
async function around(world, kind, id, limits) {
  const start = { kind, id };
  const found = await explore(world.read, start, limits);
  const graph = waitGraph(found, start);
  return { found, graph, picture: layOut(graph.nodes, graph.edges, graph.rings) };
}

const arrows = ({ graph }) =>
  graph.edges
    .map((e) => `${e.from.replace(/ 0$/, "")} ${e.kind} ${e.to.replace(/ 0$/, "")}${e.cycle ? " !" : ""}`)
    .sort();

// separate verifies that no two nodes overlap.
function separate({ picture }) {
  const all = [...picture.nodes.values()];
  for (const [i, a] of all.entries()) {
    ok(a.x >= 0 && a.y >= 0 && a.x + size.width <= picture.width && a.y + size.height <= picture.height);
    for (const b of all.slice(0, i))
      ok(
        Math.abs(a.x - b.x) >= size.width || Math.abs(a.y - b.y) >= size.height,
        `${JSON.stringify(a)} and ${JSON.stringify(b)} overlap`,
      );
  }
}

const xs = ({ picture }, ...keys) => keys.map((key) => picture.nodes.get(key).x);

test("a chain leads from the left to the right", async () => {
  const world = new World({
    holds: [
      ["1", "a"],
      ["2", "b"],
    ],
    waits: [
      ["2", "a"],
      ["3", "b"],
    ],
  });
  for (const [kind, id] of [
    ["lock", "a"],
    ["lock", "b"],
    ["session", "3"],
    ["session", "1"],
  ]) {
    const seen = await around(world, kind, id);
    deepEqual(arrows(seen), [
      "lock a holds owner 1",
      "lock b holds owner 2",
      "owner 2 waits lock a",
      "owner 3 waits lock b",
    ]);
    const columns = xs(seen, "owner 3 0", "lock b", "owner 2 0", "lock a", "owner 1 0");
    deepEqual(
      columns,
      [...columns].sort((a, b) => a - b),
    );
    equal(new Set([...seen.picture.nodes.values()].map((p) => p.y)).size, 1);
    separate(seen);
  }
});

test("waiters stand in the order of the queue", async () => {
  const seen = await around(
    new World({
      holds: [["1", "a"]],
      waits: [
        ["9", "a"],
        ["2", "a"],
        ["30", "a"],
      ],
    }),
    "lock",
    "a",
  );
  const ys = ["owner 9 0", "owner 2 0", "owner 30 0"].map((key) => seen.picture.nodes.get(key).y);
  deepEqual(
    ys,
    [...ys].sort((a, b) => a - b),
  );
  deepEqual(
    seen.graph.edges
      .filter((e) => e.kind === "waits")
      .map((e) => `${e.from} ${e.label}`)
      .sort(),
    ["owner 2 0 no. 2", "owner 30 0 no. 3", "owner 9 0 no. 1"],
  );
  separate(seen);
});

test("a lock that several share, and what their holders also hold", async () => {
  const shared = { mode: "SHARED" };
  const seen = await around(
    new World({
      holds: [
        ["1", "a", shared],
        ["2", "a", shared],
        ["1", "idle"],
        ["2", "busy"],
      ],
      waits: [
        ["3", "a"],
        ["4", "busy"],
      ],
    }),
    "lock",
    "a",
  );
  deepEqual(arrows(seen), [
    "lock a holds owner 1",
    "lock a holds owner 2",
    "lock busy holds owner 2",
    "owner 3 waits lock a",
    "owner 4 waits lock busy",
  ]);
  equal(seen.graph.edges.find((e) => e.kind === "holds").label, "");
  separate(seen);
});

test("a semaphore shows how many permits its holders have", async () => {
  const world = new World({ holds: [["1", "pool", { mode: "PERMITS", permits: "3" }]], waits: [["2", "pool"]] });
  const seen = await around(world, "lock", "pool");
  deepEqual(seen.graph.edges.map((e) => e.label).sort(), ["has 3", "no. 1"]);
});

test("an upgrade waits for a lock that its owner shares", async () => {
  const shared = { mode: "SHARED" };
  const seen = await around(
    new World({
      holds: [
        ["1", "a", shared],
        ["2", "a", shared],
      ],
      waits: [["1", "a", { upgrade: true }]],
    }),
    "lock",
    "a",
  );
  deepEqual(arrows(seen), ["lock a holds owner 1", "lock a holds owner 2", "owner 1 waits lock a"]);
  const [there, back] = ["waits: owner 1 0 > lock a", "holds: lock a > owner 1 0"].map(
    (key) => seen.picture.edges.get(key).d,
  );
  ok(there !== back);
  separate(seen);
});

test("a cycle of two is a square", async () => {
  const world = new World({
    holds: [
      ["1", "a"],
      ["2", "b"],
    ],
    waits: [
      ["1", "b"],
      ["2", "a"],
      ["3", "a"],
    ],
    deadlocks: [ring(["1", "b"], ["2", "a"])],
  });
  const seen = await around(world, "lock", "a");
  deepEqual(arrows(seen), [
    "lock a holds owner 1 !",
    "lock b holds owner 2 !",
    "owner 1 waits lock b !",
    "owner 2 waits lock a !",
    "owner 3 waits lock a",
  ]);
  deepEqual(seen.graph.rings, [["lock a", "owner 1 0", "lock b", "owner 2 0"]]);
  const [a, one, b, two] = seen.graph.rings[0].map((key) => seen.picture.nodes.get(key));
  ok(a.x < one.x && a.x === two.x && one.x === b.x);
  ok(a.y === one.y && b.y === two.y && a.y !== b.y);
  deepEqual(
    seen.graph.nodes
      .filter((n) => n.cycle)
      .map((n) => n.key)
      .sort(),
    ["lock a", "lock b", "owner 1 0", "owner 2 0"],
  );
  separate(seen);
});

test("a cycle of three has two rows", async () => {
  const seen = await around(
    new World({
      holds: [
        ["1", "a"],
        ["2", "b"],
        ["3", "c"],
      ],
      waits: [
        ["1", "b"],
        ["2", "c"],
        ["3", "a"],
      ],
      deadlocks: [ring(["1", "b"], ["2", "c"], ["3", "a"])],
    }),
    "session",
    "2",
  );
  equal(seen.graph.rings[0].length, 6);
  equal(new Set([...seen.picture.nodes.values()].map((p) => p.x)).size, 3);
  equal(new Set([...seen.picture.nodes.values()].map((p) => p.y)).size, 2);
  separate(seen);
});

test("owner keys of one session are owners of their own", async () => {
  const world = new World({
    holds: [
      ["1", "a", { owner: "5" }],
      ["1", "c", { owner: "7" }],
    ],
    waits: [
      ["1", "a", { owner: "6" }],
      ["1", "b", { owner: "8" }],
      ["2", "c"],
    ],
  });
  const seen = await around(world, "session", "1");
  deepEqual(arrows(seen), [
    "lock a holds owner 1 5",
    "lock c holds owner 1 7",
    "owner 1 6 waits lock a",
    "owner 1 8 waits lock b",
    "owner 2 waits lock c",
  ]);
  for (const node of seen.graph.nodes) if (node.kind === "owner") equal(node.start, node.sessionId === "1");
  separate(seen);
  deepEqual(arrows(await around(world, "lock", "a")), ["lock a holds owner 1 5", "owner 1 6 waits lock a"]);
});

test("a session that nobody waits for stands alone", async () => {
  const seen = await around(
    new World({
      holds: [
        ["1", "a"],
        ["1", "b"],
      ],
    }),
    "session",
    "1",
  );
  deepEqual(
    seen.graph.nodes.map((n) => n.key),
    ["owner 1 0"],
  );
  deepEqual([...seen.found.names].sort(), ["a", "b"]);
});

test("a wait for several locks leads to all of them, and may be a step of a cycle by its place in a queue", async () => {
  const world = new World({
    holds: [["1", "a"]],
    waits: [
      ["2", ["a", "b"]],
      ["1", "b"],
    ],
    deadlocks: [ring(["1", "b"], ["2", "a"])],
  });
  const seen = await around(world, "lock", "b");
  deepEqual(arrows(seen), [
    "lock a holds owner 1 !",
    "owner 1 behind owner 2 !",
    "owner 1 waits lock b",
    "owner 2 waits lock a !",
    "owner 2 waits lock b",
  ]);
  separate(seen);
});

test("steps that may not be read stay unnamed", async () => {
  const hidden = { sessionId: "0", owner: "0", clientName: "", lock: "", waitId: "0" };
  const world = new World({
    holds: [
      ["1", "b"],
      ["2", "a"],
    ],
    waits: [["1", "a"]],
    deadlocks: [{ cycle: [step("1", "a"), hidden] }],
  });
  deepEqual(arrows(await around(world, "lock", "a")), [
    "lock a holds owner 2 !",
    "owner 1 waits lock a !",
    "owner 2 unseen owner 1 !",
  ]);
  const several = new World({ holds: [], waits: [["1", "a"]], deadlocks: [{ cycle: [step("1", "a"), hidden] }] });
  deepEqual(arrows(await around(several, "lock", "a")), [
    "lock a holds unseen 0 1 !",
    "owner 1 waits lock a !",
    "unseen 0 1 unseen owner 1 !",
  ]);
});

test("a large graph is cut, and says so", async () => {
  const waits = Array.from({ length: 500 }, (_, i) => [String(i + 2), "a"]);
  const holds = [["1", "a"], ...waits.map(([id]) => [id, `own ${id}`])];
  for (const [id] of waits.slice(0, 20))
    for (let i = 0; i < 9; i++) waits.push([String(1000 + waits.length), `own ${id}`]);
  const world = new World({ holds, waits });
  const seen = await around(world, "lock", "a");
  ok(seen.graph.nodes.length <= 60);
  ok(seen.found.left);
  ok(seen.graph.hidden >= 488);
  ok(world.calls <= 62);
  ok(world.most <= 4);
  separate(seen);
  const small = await around(world, "lock", "a", { nodes: 5, levels: 2, places: 12, flight: 2 });
  ok(small.graph.nodes.length <= 5);
});

test("what has ended or may not be read is left out", async () => {
  const world = new World({ holds: [["1", "a"]], waits: [["2", ["a", "gone"]]] });
  const read = (procedure, request) => {
    if (request.name === "gone") throw Object.assign(new Error(), { code: "permission_denied" });
    return world.read(procedure, request);
  };
  const found = await explore(read, { kind: "lock", id: "a" });
  equal(found.locks.get("gone"), null);
  await rejects(explore(read, { kind: "lock", id: "gone" }));
  ok((await explore(world.read, { kind: "lock", id: "none" })).absent);
});

test("the picture does not depend on the order of the answers", async () => {
  const holds = [
    ["1", "a"],
    ["2", "b"],
    ["3", "c", { mode: "SHARED" }],
    ["4", "c", { mode: "SHARED" }],
  ];
  const waits = [
    ["1", "b"],
    ["2", "c"],
    ["5", "c"],
    ["6", "a"],
    ["3", "a"],
    ["7", ["a", "b"]],
  ];
  const cycle = [ring(["1", "b"], ["2", "c"], ["3", "a"])];
  const one = await around(new World({ holds, waits, deadlocks: cycle }), "lock", "c");
  const { found } = one;
  const turned = (map) =>
    new Map(
      [...map]
        .reverse()
        .map(([key, data]) => [
          key,
          data && {
            ...data,
            ...(data.holders && { holders: [...data.holders].reverse() }),
            ...(data.queue && { queue: [...data.queue].reverse() }),
            ...(data.holds && { holds: [...data.holds].reverse() }),
            ...(data.waits && { waits: [...data.waits].reverse() }),
          },
        ]),
    );
  const steps = cycle[0].cycle;
  const other = waitGraph(
    {
      ...found,
      locks: turned(found.locks),
      sessions: turned(found.sessions),
      deadlocks: [{ cycle: [...steps.slice(1), steps[0]] }],
    },
    { kind: "lock", id: "c" },
  );
  deepEqual(
    other.nodes.map((n) => n.key),
    one.graph.nodes.map((n) => n.key),
  );
  deepEqual(layOut(other.nodes, other.edges, other.rings), one.picture);
  separate(one);
});

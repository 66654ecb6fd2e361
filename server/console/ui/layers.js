// Drawing a graph in layers: edges lead from left to right, and a ring is folded so that one half of it leads back. All
// functions are pure and deterministic.

// size is that of a node and of the space around it, in pixels.
export const size = { width: 166, height: 46, gapX: 72, gapY: 24, margin: 48, marginY: 20 };

// layOut returns width and height, the position { x, y } of each node by its key, and for each edge by its key its path
// and the place of its label. nodes and edges have keys, and edges also from and to; rings are lists of keys of nodes.
export function layOut(nodes, edges, rings) {
  const folded = fold(nodes, edges, rings);
  const layerOf = layersOf(nodes, edges, folded);
  const { columns, chains } = columnsOf(nodes, edges, layerOf, folded);
  arrange(columns);
  const bottom = place(columns);
  const at = (point) => ({ x: size.margin + point.layer * (size.width + size.gapX), y: size.marginY + point.y });
  const positions = new Map();
  for (const point of columns.flat()) if (!point.dummy) positions.set(point.key, at(point));
  const pairs = new Set(edges.map((edge) => `${edge.from}|${edge.to}`));
  const paths = new Map(edges.map((edge) => {
    const both = pairs.has(`${edge.to}|${edge.from}`);
    const chain = chains.get(edge.key).map((point) => ({ ...at(point), layer: point.layer }));
    return [edge.key, draw(edge, chain, both, folded.sides.get(edge.key))];
  }));
  const width = 2 * size.margin + columns.length * (size.width + size.gapX) - size.gapX;
  return { width, height: 2 * size.marginY + bottom, nodes: positions, edges: paths };
}

// fold decides for the edges of rings whether they lead to the right (1), to the left (-1) or stay in a layer (0), on
// which side of it, and in which half of a ring a node is. A node is folded once.
function fold(nodes, edges, rings) {
  const directions = new Map();
  const sides = new Map();
  const halves = new Map();
  for (const ring of rings) {
    if (ring.some((key) => halves.has(key)) || new Set(ring).size < ring.length) continue;
    const half = Math.ceil(ring.length / 2);
    ring.forEach((key, i) => {
      halves.set(key, i < half ? 0 : 1);
      const to = ring[(i + 1) % ring.length];
      const last = i === ring.length - 1;
      const stays = last || (i === half - 1 && ring.length % 2 === 0);
      const direction = stays ? 0 : i < half - 1 ? 1 : -1;
      for (const edge of edges.filter((e) => e.from === key && e.to === to)) {
        directions.set(edge.key, direction);
        sides.set(edge.key, last ? "left" : "right");
      }
    });
  }
  return { directions, sides, halves };
}

// layersOf returns the layer of each node, from 0 on.
function layersOf(nodes, edges, { directions }) {
  const group = new Map(nodes.map((node) => [node.key, node.key]));
  const rootOf = (key) => (group.get(key) === key ? key : rootOf(group.get(key)));
  for (const edge of edges) if (directions.get(edge.key) === 0) group.set(rootOf(edge.to), rootOf(edge.from));
  const roots = [...new Set(nodes.map((node) => rootOf(node.key)))];
  const arcs = edges.map((edge) => {
    const [from, to] = directions.get(edge.key) === -1 ? [edge.to, edge.from] : [edge.from, edge.to];
    return { from: rootOf(from), to: rootOf(to) };
  }).filter(({ from, to }) => from !== to);
  const layers = longestPaths(roots, acyclic(roots, arcs));
  return new Map(nodes.map((node) => [node.key, layers.get(rootOf(node.key))]));
}

// acyclic returns the arcs with those turned round that would close a cycle, and the nodes in topological order.
function acyclic(roots, arcs) {
  const out = new Map(roots.map((root) => [root, []]));
  for (const arc of arcs) out.get(arc.from).push(arc);
  const entered = new Set(arcs.map((arc) => arc.to));
  const state = new Map();
  const done = [];
  const result = [];
  const visit = (root) => {
    state.set(root, "open");
    for (const arc of out.get(root)) {
      if (state.get(arc.to) === "open") {
        result.push({ from: arc.to, to: arc.from });
        continue;
      }
      result.push(arc);
      if (!state.has(arc.to)) visit(arc.to);
    }
    state.set(root, "done");
    done.push(root);
  };
  for (const root of [...roots.filter((r) => !entered.has(r)), ...roots]) if (!state.has(root)) visit(root);
  return { order: done.reverse(), arcs: result };
}

// longestPaths puts each node behind all that lead to it, and then as far to the right as what it leads to admits.
function longestPaths(roots, { order, arcs }) {
  const layers = new Map(roots.map((root) => [root, 0]));
  for (const root of order) {
    for (const { from, to } of arcs) if (from === root) layers.set(to, Math.max(layers.get(to), layers.get(root) + 1));
  }
  for (const root of [...order].reverse()) {
    const next = arcs.filter((arc) => arc.from === root).map((arc) => layers.get(arc.to));
    if (next.length > 0) layers.set(root, Math.min(...next) - 1);
  }
  const first = Math.min(...layers.values());
  for (const [root, layer] of layers) layers.set(root, layer - first);
  return layers;
}

// columnsOf returns the points of each layer, and for each edge its points: those of its ends, and in each layer
// between them one that keeps its way free.
function columnsOf(nodes, edges, layerOf, { halves }) {
  const columns = Array.from({ length: Math.max(...layerOf.values()) + 1 }, () => []);
  const add = (point) => { columns[point.layer].push(point); return point; };
  const points = new Map();
  const first = (node) => halves.get(node.key) ?? 2;
  for (const node of [...nodes].sort((a, b) => first(a) - first(b))) {
    points.set(node.key, add({ key: node.key, layer: layerOf.get(node.key), half: halves.get(node.key), near: [] }));
  }
  const chains = new Map();
  for (const edge of edges) {
    const [from, to] = [points.get(edge.from), points.get(edge.to)];
    const step = Math.sign(to.layer - from.layer);
    const chain = [from];
    for (let layer = from.layer + step; step !== 0 && layer !== to.layer; layer += step) {
      chain.push(add({ layer, dummy: true, near: [] }));
    }
    chain.push(to);
    for (let i = 1; i < chain.length; i++) {
      if (chain[i].layer === chain[i - 1].layer) continue;
      chain[i].near.push(chain[i - 1]);
      chain[i - 1].near.push(chain[i]);
    }
    chains.set(edge.key, chain);
  }
  return { columns, chains };
}

const sweeps = 12;

// arrange orders the points of each layer so that few edges cross, by the mean of their neighbours.
function arrange(columns) {
  const number = (column) => column.forEach((point, i) => { point.order = i; });
  columns.forEach(number);
  let best = columns.map((column) => [...column]);
  let fewest = crossings(columns);
  for (let i = 0; i < sweeps && fewest > 0; i++) {
    const forth = i % 2 === 0;
    for (const column of forth ? columns : [...columns].reverse()) {
      const mean = (point) => meanOf(point, (n) => (forth ? n.layer < point.layer : n.layer > point.layer), "order");
      const means = new Map(column.map((point) => [point, mean(point) ?? point.order]));
      column.sort((a, b) => means.get(a) - means.get(b) || a.order - b.order);
      number(column);
    }
    const now = crossings(columns);
    if (now >= fewest) continue;
    fewest = now;
    best = columns.map((column) => [...column]);
  }
  best.forEach((column, i) => { columns[i] = column; number(column); });
}

function meanOf(point, which, field) {
  const near = point.near.filter(which);
  return near.length === 0 ? null : near.reduce((sum, n) => sum + n[field], 0) / near.length;
}

function crossings(columns) {
  let count = 0;
  for (const column of columns) {
    const lines = column.flatMap((p) => p.near.filter((n) => n.layer === p.layer + 1).map((n) => [p.order, n.order]));
    for (let i = 0; i < lines.length; i++) {
      for (let j = 0; j < i; j++) if ((lines[i][0] - lines[j][0]) * (lines[i][1] - lines[j][1]) < 0) count++;
    }
  }
  return count;
}

// place sets y of all points: near the mean of their neighbours, in order and apart. It returns the height.
function place(columns) {
  const heightOf = (point) => (point.dummy ? size.gapY : size.height);
  for (const column of columns) {
    let y = 0;
    for (const point of column) { point.y = y; y += heightOf(point) + size.gapY; }
  }
  const most = Math.max(...columns.map((column) => column.length));
  const from = columns.findIndex((column) => column.length === most);
  const left = columns.slice(0, from).reverse();
  const right = columns.slice(from + 1);
  for (let i = 0; i < 4; i++) for (const column of [...left, ...right]) settle(column, heightOf, () => true);
  for (const column of left) settle(column, heightOf, (point, n) => n.layer > point.layer);
  for (const column of right) settle(column, heightOf, (point, n) => n.layer < point.layer);
  const top = Math.min(...columns.flat().map((point) => point.y));
  for (const point of columns.flat()) {
    point.y = Math.round(point.y - top + (point.dummy ? (size.gapY - size.height) / 2 : 0));
  }
  const low = Math.min(0, ...columns.flat().map((point) => point.y));
  for (const point of columns.flat()) point.y -= low;
  return Math.max(...columns.flat().map((point) => point.y)) + size.height;
}

// settle moves the points of a column towards their neighbours, and apart again where they would overlap.
function settle(column, heightOf, counts) {
  const wanted = column.map((point) => {
    const near = point.near.filter((n) => counts(point, n));
    const row = near.filter((n) => n.half !== undefined && n.half === point.half);
    return meanOf({ near: row.length > 0 ? row : near }, () => true, "y") ?? point.y;
  });
  let lowest = -Infinity;
  column.forEach((point, i) => {
    point.y = Math.max(wanted[i], lowest);
    lowest = point.y + heightOf(point) + size.gapY;
  });
  const excess = column.reduce((sum, point, i) => sum + point.y - wanted[i], 0) / column.length;
  for (const point of column) point.y -= excess;
}

// draw returns the path of an edge through its points, and where its label begins, or ends with atEnd. The paths of
// waits lie together near their lock, and those of holds too, so that labels have room at the other end. Of two edges
// in opposite directions each leaves room for the other.
function draw(edge, chain, both, aside) {
  const [from, to] = [chain[0], chain.at(-1)];
  const shift = both && from.layer > to.layer ? 9 : both ? -9 : 0;
  const middle = (point) => point.y + size.height / 2 + shift;
  if (from.layer === to.layer) return bow(from, to, middle, aside === "left");
  const right = to.layer > from.layer;
  const side = (point, out) => point.x + (right === out ? size.width : 0);
  const bend = edge.kind === "holds" ? 0.3 : 0.7;
  let d = `M${side(from, true)} ${middle(from)}`;
  for (let i = 1; i < chain.length; i++) {
    const [a, b] = [chain[i - 1], chain[i]];
    const [x1, y1, x2, y2] = [side(a, true), middle(a), side(b, false), middle(b)];
    const x = Math.round(x1 + (x2 - x1) * bend);
    d += `C${x} ${y1} ${x} ${y2} ${x2} ${y2}`;
    if (i < chain.length - 1) d += `H${side(b, true)}`;
  }
  const [end, out] = edge.kind === "holds" ? [to, false] : [from, true];
  const atEnd = right !== out;
  const gap = edge.kind === "holds" ? 14 : 5;
  const other = end === from ? chain[1] : chain.at(-2);
  const y = middle(end) + (other.y < end.y ? 15 : -6); // on the side from which the path bends away
  return { d, label: { x: side(end, out) + (atEnd ? -gap : gap), y, atEnd } };
}

// bow is the path between nodes of one layer, beside it.
function bow(from, to, middle, left) {
  const x = from.x + (left ? 0 : size.width);
  const out = x + (left ? -1 : 1) * Math.min(size.gapX - 20, 36);
  const [y1, y2] = [middle(from), middle(to)];
  const label = { x: Math.round(x + (out - x) * 0.75), y: Math.round((y1 + y2) / 2) + 4, middle: true };
  return { d: `M${x} ${y1}C${out} ${y1} ${out} ${y2} ${x} ${y2}`, label };
}

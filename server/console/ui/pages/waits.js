// Waits: the wait-for graph around a lock or a session, with its deadlocks.
import { titleOf, waitGraph } from "../graph.js";
import { circle, circleRemedy } from "../sentences.js";
import { count, visible } from "../text.js";
import { explore } from "../waits.js";
import { useRead, useWatch } from "../components/state.js";
import {
  Badge, Empty, html, Loading, LockName, lockLink, Page, SessionName, sessionLink,
} from "../components/parts.js";
import { Graph } from "../components/graph.js";

const read = (api, start, signal) => explore((procedure, request) => api.read(procedure, request, signal), start);

// Waits shows the graph around a start, which the address names as lock/NAME or session/ID.
export function Waits({ name }) {
  const [, kind, id] = /^(lock|session)\/(.+)$/s.exec(name) ?? [null, "lock", name];
  const start = { kind, id };
  useWatch({});
  const seen = useRead(read, start, { when: (event) => touches(seen.data, event) });
  const found = seen.data;
  const graph = found && waitGraph(found, start);
  const title = kind === "lock" ? visible(id) : `session ${visible(id)}`;
  const crumb = kind === "lock" ? html`<a href=${lockLink(id)}>Lock ${title}</a>` :
    html`<a href=${sessionLink(id)}>Session ${visible(id)}</a>`;
  return html`
    <${Page} title=${`Waits around ${title}`} crumb=${crumb} read=${seen}>
      ${!found ? (seen.error?.final ? null : html`<${Loading} />`) : html`
        <${Summary} found=${found} graph=${graph} start=${start} />
        ${graph.edges.length > 0 && html`<${Picture} found=${found} graph=${graph} title=${title} />`}`}
    <//>`;
}

const changes = new Set(["QUEUED", "GRANTED", "CANCELLED"]);

// touches reports whether an event may change what is drawn.
function touches(found, event) {
  if (!found) return false;
  if (changes.has(event.type) && found.sessions.has(event.sessionId)) return true;
  const names = event.locks?.length > 0 ? event.locks : [event.lock];
  return names.some((name) => found.names.has(name));
}

function Summary({ found, graph, start }) {
  if (found.deadlocks.length > 0) {
    const [first, ...others] = found.deadlocks;
    const verb = others.length === 1 ? "is" : "are";
    const more = others.length > 0 ? ` ${count(others.length, "more deadlock")} ${verb} in this graph.` : "";
    return html`
      <section class="why bad" aria-label="deadlock">
        <p>${circle(first.cycle)}</p>
        <p class="why-facts">${circleRemedy}${more}</p>
      </section>`;
  }
  const waits = new Set(graph.edges.filter((edge) => edge.kind === "waits").map((edge) => edge.from)).size;
  if (graph.edges.length === 0) return html`<${Nothing} found=${found} start=${start} />`;
  const locks = graph.nodes.filter((node) => node.kind === "lock").length;
  const wait = `${count(waits, "request")} ${waits === 1 ? "waits" : "wait"} for ${count(locks, "lock")}`;
  const text = waits === 0 ? "Nobody waits." : `${wait}. There is no deadlock among them.`;
  return html`<section class=${`why ${waits === 0 ? "good" : "warn"}`} aria-label="summary"><p>${text}</p></section>`;
}

function Nothing({ found, start }) {
  if (start.kind === "lock") {
    return html`<${Empty} title="Nobody waits">Nobody holds this lock, and nobody waits for it.<//>`;
  }
  return found.absent ?
    html`<${Empty} title="No such session">It has ended, or you may not see it.<//>` :
    html`<${Empty} title="Nobody waits">This session waits for nothing, and nobody waits for what it holds.<//>`;
}

function Picture({ found, graph, title }) {
  const label = `Wait-for graph around ${title}; the list below says the same`;
  return html`
    <section class="panel graph-panel">
      <h2>Wait-for graph</h2>
      <${Graph} graph=${graph} label=${label} />
      <${Legend} graph=${graph} />
      <${Left} found=${found} graph=${graph} />
    </section>
    <section class="panel">
      <h2>The same as a list</h2>
      <${InWords} graph=${graph} />
    </section>`;
}

function Legend({ graph }) {
  const kinds = new Set(graph.edges.map((edge) => edge.kind));
  const entries = [
    ["waits", kinds.has("waits"), "waits for"], ["holds", kinds.has("holds"), "is held by"],
    ["behind", kinds.has("behind"), "waits in a queue behind"],
    ["cycle", graph.rings.length > 0, "part of a deadlock"],
  ];
  return html`<p class="legend faint">${entries.filter(([, used]) => used).map(([kind, , text]) => html`
    <span key=${kind}>
      <svg width="34" height="10" aria-hidden="true"><g class=${`edge ${kind}`}><path d="M1 5H33" /></g></svg>${text}
    </span>`)}
    <span>Select a node to see what is around it.</span></p>`;
}

// Left says what is not drawn.
function Left({ found, graph }) {
  const texts = [];
  const hidden = count(graph.hidden, "request or hold of these locks is", "requests and holds of these locks are");
  if (graph.hidden > 0) texts.push(`Another ${hidden} not drawn.`);
  if (found.left) texts.push("The graph goes on beyond what is drawn: select a node at its edge.");
  return texts.length > 0 && html`<p class="faint">${texts.join(" ")}</p>`;
}

// InWords lists for each lock who holds it and who waits for it.
function InWords({ graph }) {
  const byKey = new Map(graph.nodes.map((node) => [node.key, node]));
  const locks = graph.nodes.filter((node) => node.kind === "lock");
  return html`
    <ul class="in-words">
      ${locks.map((lock) => html`<${LockInWords} key=${lock.key} lock=${lock} edges=${graph.edges} byKey=${byKey} />`)}
    </ul>`;
}

function LockInWords({ lock, edges, byKey }) {
  const holders = edges.filter((edge) => edge.from === lock.key && edge.kind === "holds");
  const waiters = edges.filter((edge) => edge.to === lock.key && edge.kind === "waits").sort(byPlace);
  const row = (edge, words, owner) =>
    html`<li key=${edge.key} data-row>${words} <${Owner} node=${byKey.get(owner)} edge=${edge} /></li>`;
  return html`
    <li data-row><${LockName} name=${lock.name} /> ${lock.cycle && html`<${Badge} kind="loss">deadlock<//>`}
      <ul>
        ${holders.map((edge) => row(edge, "held by", edge.to))}
        ${holders.length === 0 && html`<li>held by nobody</li>`}
        ${waiters.map((edge) => row(edge, `${edge.label}:`, edge.from))}
      </ul>
    </li>`;
}

// byPlace puts upgrades first, which are ahead of the queue.
const byPlace = (a, b) => {
  const place = (edge) => (edge.label === "upgrade" ? "" : edge.label);
  return place(a).localeCompare(place(b), "en", { numeric: true });
};

function Owner({ node, edge }) {
  const title = titleOf(node);
  const name = node.kind === "unseen" ? title : html`<${SessionName} id=${node.sessionId}>${title}<//>`;
  const named = node.kind === "owner" && !title.startsWith("session ");
  return html`${name}${named && html` <span class="faint number">session ${node.sessionId}</span>`}${
    edge.cycle && html` <${Badge} kind="loss">deadlock<//>`}`;
}

// Graph draws a wait-for graph. Its nodes are links that centre the graph on them.
import { useEffect, useRef } from "../vendor/hooks.js";
import { titleOf } from "../graph.js";
import { layOut, size } from "../layers.js";
import { number, place, shorten, state, visible } from "../text.js";
import { html, waitsLink } from "./parts.js";

const titleLength = 16; // characters that fit into a node
const noteLength = 22;
const fits = 1200; // pixels from which on a picture is scrolled, since its text would be too small on a shrunk one

export function Graph({ graph, label }) {
  const { nodes, edges } = graph;
  const picture = layOut(nodes, edges, graph.rings);
  const { width, height } = picture;
  const marked = edges.filter((edge) => edge.cycle);
  const plain = edges.filter((edge) => !edge.cycle);
  const region = useRef(null);
  const start = picture.nodes.get(nodes.find((node) => node.start)?.key);
  useEffect(() => { // the start is in sight at first, also on a narrow screen
    const { current } = region;
    if (start) current.scrollLeft = start.x + size.width / 2 - current.clientWidth / 2;
  }, []);
  return html`
    <div class="graph" ref=${region} role="region" aria-label="the graph, to be scrolled" tabindex="0">
      <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}
        class=${width > 900 && width < fits ? "fits" : ""} role="group" aria-label=${label}>
        <defs>
          ${["holds", "waits", "cycle"].map((kind) => html`<${Head} key=${kind} kind=${kind} />`)}
          <clipPath id="inside-node"><rect x="34" width=${size.width - 40} height=${size.height} /></clipPath>
        </defs>
        ${[...plain, ...marked].map((edge) => html`
          <${Edge} key=${edge.key} edge=${edge} line=${picture.edges.get(edge.key)} />`)}
        ${nodes.map((node) => html`<${Node} key=${node.key} node=${node} at=${picture.nodes.get(node.key)} />`)}
      </svg>
    </div>`;
}

function Head({ kind }) {
  return html`
    <marker id=${`head-${kind}`} viewBox="0 0 10 10" refX="9.5" refY="5" markerWidth="9" markerHeight="9"
      markerUnits="userSpaceOnUse" orient="auto"><path class=${`head ${kind}`} d="M0 0.8L10 5L0 9.2z" /></marker>`;
}

function Edge({ edge, line }) {
  const head = edge.cycle ? "cycle" : edge.kind === "holds" ? "holds" : "waits";
  return html`
    <g class=${`edge ${edge.kind} ${edge.cycle ? "cycle" : ""}`}>
      ${edge.cycle && html`<path class="halo" d=${line.d} />`}
      <path d=${line.d} marker-end=${`url(#head-${head})`} />
      ${edge.label && html`
        <text x=${line.label.x} y=${line.label.y} text-anchor=${anchor(line.label)}>${edge.label}</text>`}
    </g>`;
}

const anchor = ({ middle, atEnd }) => (middle ? "middle" : atEnd ? "end" : "start");

function Node({ node, at }) {
  const title = titleOf(node);
  const note = noteOf(node);
  const kind = ["node", node.kind, node.cycle && "cycle", node.start && "start"].filter(Boolean).join(" ");
  const words = [title, note, node.cycle && "in a deadlock"].filter(Boolean);
  const content = html`
    <title>${words[0]}: ${words.slice(1).join(", ")}</title>
    <rect class="box" width=${size.width} height=${size.height} rx=${node.kind === "lock" ? 7 : size.height / 2} />
    <path class="sign" d=${signs[node.kind]} transform="translate(12 15)" />
    <g clip-path="url(#inside-node)">
      <text class="title" x="36" y=${note ? 20 : 28}>${shorten(title, titleLength)}</text>
      ${note && html`<text class="note" x="36" y="35">${shorten(note, noteLength)}</text>`}
    </g>
    ${node.cycle && html`
      <g class="tag" transform=${`translate(${size.width - 78} -9)`}>
        <rect width="66" height="17" rx="8.5" /><text x="33" y="12" text-anchor="middle">deadlock</text></g>`}`;
  const attributes = { class: kind, transform: `translate(${at.x} ${at.y})` };
  if (node.kind === "unseen") return html`<g ...${attributes}>${content}</g>`;
  const link = node.kind === "lock" ? waitsLink("lock", node.name) : waitsLink("session", node.sessionId);
  return html`<a ...${attributes} href=${link}>${content}</a>`;
}

// noteOf says what else is known of a node.
function noteOf(node) {
  if (node.kind === "unseen") return "";
  if (node.kind === "owner") {
    return node.several ? `owner ${visible(node.owner)}` : place(node.client) || `session ${visible(node.sessionId)}`;
  }
  if (!node.lock) return "not read yet";
  const waiting = Number(node.lock.queueLength);
  return `${state(node.lock).text}, ${waiting === 0 ? "no queue" : `${number(waiting)} waiting`}`;
}

// signs are a padlock and a person, 16 pixels wide.
const person = "M8 1.5a3.2 3.2 0 1 1 0 6.4a3.2 3.2 0 0 1 0-6.4zM1.8 15c0-3.4 2.7-5.4 6.2-5.4s6.2 2 6.2 5.4z";
const padlock = "M4.5 7V4.8a3.5 3.5 0 0 1 7 0V7H13v8H3V7zM6 7h4V4.8a2 2 0 0 0-4 0z";
const signs = { lock: padlock, owner: person, unseen: person };

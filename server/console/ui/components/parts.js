// Small parts of pages.
import { h } from "../vendor/preact.js";
import { useEffect, useRef } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import { clock, count, duration, moment, sentence, visible } from "../text.js";
import { useApp, useNow, usePhase } from "./state.js";

export const html = htm.bind(h);

// lockLink and sessionLink are the addresses of their pages.
export const lockLink = (name) => `#/locks/${encodeURIComponent(name)}`;
export const sessionLink = (id) => `#/sessions/${id}`;

// waitsLink is the address of the wait-for graph around a lock or a session.
export const waitsLink = (kind, id) => `#/waits/${kind}/${encodeURIComponent(id)}`;

// LockName is a link to a lock.
export function LockName({ name }) {
  return html`<a class="name" href=${lockLink(name)}>${visible(name)}</a>`;
}

// SessionName is a link to a session.
export function SessionName({ id, children }) {
  return html`<a href=${sessionLink(id)} title=${`session ${id}`}>${children ?? `session ${id}`}</a>`;
}

// Age shows a duration that was known at a time and grows since.
export function Age({ ms, at, words = duration }) {
  const now = useNow();
  if (ms === undefined || ms === null) return html`<span class="faint" title="Only the leader knows this.">–</span>`;
  return html`<span class="number">${words(Number(ms) + Math.max(0, now - at))}</span>`;
}

// Left shows a duration that was known at a time and shrinks since.
export function Left({ ms, at }) {
  const now = useNow();
  return html`<span class="number">${duration(Number(ms) - Math.max(0, now - at))}</span>`;
}

// Heartbeat shows when a session was last heard of, and warns when most of its TTL has passed. While nothing new is
// learned, it shows the time of day.
export function Heartbeat({ ms, at, ttl }) {
  const now = useNow();
  const { knownAt } = useApp();
  if (ms === undefined) return html`<${Age} />`;
  if (knownAt) return html`<span class="number">at ${clock(at - Number(ms))}</span>`;
  const age = Number(ms) + Math.max(0, now - at);
  const late = ttl && age > (ttl * 2) / 3;
  return html`<span class=${late ? "number late" : "number"}>${age < 1000 ? "now" : `${duration(age)} ago`}</span>`;
}

// Time shows a moment as a time of day, with its date as a title.
export function Time({ unixMs, full = false }) {
  if (!Number(unixMs)) return html`<span class="faint">–</span>`;
  const iso = new Date(Number(unixMs)).toISOString();
  return html`<time class="number" datetime=${iso} title=${iso}>${full ? moment(unixMs) : clock(unixMs)}</time>`;
}

// Badge is a short word with the colour of its kind.
export const Badge = ({ kind, children }) => html`<span class=${`badge ${kind}`}>${children}</span>`;

// Page is a page with its title, which gets the focus when the page opens, so that screen readers announce it.
export function Page({ title, crumb, read, actions, children }) {
  const heading = useRef(null);
  useEffect(() => {
    const plain = heading.current.textContent;
    document.title = `${plain} · Quorumlock`;
    heading.current.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }, []);
  return html`
    <header class="page-head">
      <div>
        ${crumb && html`<p class="crumb">${crumb}</p>`}
        <h1 ref=${heading} tabindex="-1">${title}</h1>
      </div>
      <div class="page-side">${actions}${read && html`<${Fresh} read=${read} />`}</div>
    </header>
    ${read && html`<${Trouble} read=${read} />`}
    ${children}`;
}

// Fresh says how current a page is.
export function Fresh({ read }) {
  const phase = usePhase();
  const { knownAt } = useApp();
  const live = phase === "live" && !knownAt && !read.error && !read.data?.local;
  const kind = live ? "good" : "warn";
  if (!read.at && read.error?.final) return null;
  if (!read.at) return html`<p class="fresh" role="status"><span class="dot idle"></span>reading</p>`;
  return html`<p class="fresh"><span class=${`dot ${kind}`}></span>${live ? "live" : `as of ${clock(Math.max(read.at, knownAt))}`}</p>`;
}

// Trouble says why a page could not be read.
export function Trouble({ read }) {
  const { error, data, at } = read;
  if (!error && !data?.local) return null;
  if (!error) {
    return html`<p class="notice warn" role="status">No leader answers. This is what this node knows; it may lag behind.</p>`;
  }
  if (error.code === "permission_denied") return html`<p class="notice" role="status">You may not read this. ${sentence(error.message)}</p>`;
  if (error.code === "unimplemented") return html`<p class="notice" role="status">This node's version does not answer this question yet.</p>`;
  const then = at ? ` Shown is what was known at ${clock(at)}.` : "";
  return html`<p class="notice warn" role="status">This could not be read. ${sentence(error.message)}${then}</p>`;
}

// Empty is shown instead of an empty table.
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p><p>${children}</p></div>`;
}

// Loading holds the place of a table until the first answer comes. It appears only if that takes a moment.
export function Loading({ rows = 5 }) {
  const lines = Array.from({ length: rows }, (_, i) => html`<div key=${i}></div>`);
  return html`<div class="loading" aria-busy="true"><span class="unseen">Reading</span>${lines}</div>`;
}

// Table is a table with a caption for screen readers. Columns are pairs of a title and a class. A table without links
// sets plain, so that it can be scrolled with the keyboard.
export function Table({ caption, columns, children, rows, plain }) {
  const region = plain ? { tabindex: 0, role: "region", "aria-label": caption } : {};
  return html`
    <div class="table" ...${region}><table aria-rowcount=${rows}>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${columns.map(([title, kind]) => html`<th key=${title} scope="col" class=${kind}>${title}</th>`)}</tr></thead>
      <tbody>${children}</tbody>
    </table></div>`;
}

// Pager moves between pages of a list.
export function Pager({ page, shown, noun, hasNext, back, next }) {
  return html`
    <nav class="pager" aria-label="pages of the list">
      <button type="button" disabled=${page === 0} onClick=${back}>← Back</button>
      <span class="number faint">page ${page + 1} · ${count(shown, noun)}</span>
      <button type="button" disabled=${!hasNext} onClick=${next}>Next →</button>
    </nav>`;
}

// Tabs are links that select a view of a page.
export function Tabs({ label, tabs, current }) {
  return html`
    <nav class="tabs" aria-label=${label}>
      ${tabs.map(([key, text, href]) => html`<a key=${key} href=${href} aria-current=${key === current ? "page" : undefined}>${text}</a>`)}
    </nav>`;
}

// Facts is a list of terms with their descriptions; those without one are left out.
export function Facts({ facts }) {
  return html`<dl class="facts">${facts.filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// Live: the stream of events, with filters. A paused stream resumes where it stopped.
import { useEffect, useState } from "../vendor/hooks.js";
import { count, number } from "../text.js";
import { useApp, usePhase, useWatch } from "../components/state.js";
import { Empty, html, Page, Table } from "../components/parts.js";
import { EventRows, eventColumns, useEvents } from "../components/events.js";

const limit = 500;
const kinds = [
  ["all", "Everything", () => true],
  ["grants", "Grants and releases", (e) => ["GRANTED", "RELEASED", "DOWNGRADED", "EXTENDED"].includes(e.type)],
  ["waits", "Waits", (e) => ["QUEUED", "CANCELLED", "WANTED"].includes(e.type) || (e.type === "GRANTED" && e.waited)],
  ["losses", "Losses and operators", (e) => ["EXPIRED", "SESSION_EXPIRED", "REVOKED", "FORCED", "RESIZED", "DELAYED", "DELAY_ENDED"].includes(e.type)],
  ["sessions", "Sessions", (e) => e.type.startsWith("SESSION_")],
];

function address(prefix, kind) {
  const query = new URLSearchParams();
  if (prefix) query.set("prefix", prefix);
  if (kind !== "all") query.set("kind", kind);
  return query.size ? `#/live?${query}` : "#/live";
}

export function Live({ query }) {
  const prefix = query.get("prefix") ?? "";
  const kind = kinds.find(([key]) => key === query.get("kind")) ?? kinds[0];
  useWatch(prefix ? { prefix } : {});
  return html`<${Events} key=${`${prefix} ${kind[0]}`} prefix=${prefix} kind=${kind} />`;
}

function Events({ prefix, kind: [kind, , accept] }) {
  const { stream } = useApp();
  const phase = usePhase();
  const { rows, total, clear } = useEvents(limit, accept);
  const paused = phase === "paused";
  const toggle = () => (stream.phase === "paused" ? stream.resume() : stream.pause());
  useEffect(() => () => { if (stream.phase === "paused") stream.resume(); }, [stream]);
  return html`
    <${Page} title="Live" actions=${html`
      <button type="button" onClick=${clear} disabled=${rows.length === 0}>Clear</button>
      <button type="button" class="primary" onClick=${toggle} data-key="p">${paused ? "Resume" : "Pause"} <kbd>p</kbd></button>`}>
      <${Filter} prefix=${prefix} kind=${kind} />
      ${rows.length === 0 ? html`
        <${Empty} title=${paused ? "Paused" : "Listening"}>${paused ? "The stream resumes where it stopped." : "Events appear here as they happen, the newest first."}<//>` : html`
        <p class="faint" role="status">${paused ? "Paused. Resuming shows what happened meanwhile, without gaps." : shownText(total, rows.length)}</p>
        <${Table} caption="Events, the newest first" columns=${eventColumns}><${EventRows} rows=${rows} withLock /><//>`}
    <//>`;
}

const shownText = (total, rows) => (total > rows ? `${count(total, "event")}, the newest ${number(rows)} shown` : count(total, "event"));

function Filter({ prefix, kind }) {
  const [text, setText] = useState(prefix);
  useEffect(() => setText(prefix), [prefix]);
  const go = (nextPrefix, nextKind) => location.replace(address(nextPrefix, nextKind));
  return html`
    <form class="toolbar" role="search" onSubmit=${(e) => { e.preventDefault(); go(text, kind); }}>
      <div class="search">
        <label class="unseen" for="search">Prefix of the locks' names</label>
        <input id="search" type="search" value=${text} autocomplete="off" spellcheck=${false} placeholder="Prefix, then Enter"
          onInput=${(e) => setText(e.target.value)} onChange=${() => go(text, kind)} />
        <kbd class="hide-small">/</kbd>
      </div>
      <label class="select"><span class="unseen">Kind of events</span>
        <select value=${kind} onChange=${(e) => go(prefix, e.target.value)}>
          ${kinds.map(([key, name]) => html`<option key=${key} value=${key}>${name}</option>`)}
        </select></label>
    </form>`;
}

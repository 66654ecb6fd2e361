// Sessions: who is alive, and what a session holds and waits for.
import { useState } from "../vendor/hooks.js";
import { closeSession } from "../acts.js";
import { duration, mode, number, place, program, tokens, visible } from "../text.js";
import { ActButton } from "../components/act.js";
import { useApp, useRead, useWatch } from "../components/state.js";
import {
  Age, Badge, Empty, Facts, Heartbeat, html, Loading, LockName, Page, Pager, SessionName, Table, Time, waitsLink,
} from "../components/parts.js";
import { EventRows, eventColumns, useEvents } from "../components/events.js";

const changes = new Set(["SESSION_OPENED", "SESSION_CLOSED", "SESSION_EXPIRED", "GRANTED", "RELEASED", "QUEUED", "CANCELLED", "EXPIRED", "FORCED"]);

export function Sessions() {
  const [tokens, setTokens] = useState([""]);
  useWatch({});
  const read = useRead("SessionService/List", { pageToken: tokens.at(-1), pageSize: 100 }, { when: (e) => changes.has(e.type), each: 4000 });
  const sessions = read.data?.sessions ?? [];
  const turn = (next) => { setTokens(next); window.scrollTo(0, 0); };
  const columns = [
    ["Session"], ["Identity", "hide-small"], ["Runs at", "hide-small"], ["Heartbeat", "right slim"], ["Holds", "right slim"],
    ["Waits", "right slim"], ["Open for", "right slim hide-small"],
  ];
  return html`
    <${Page} title="Sessions" read=${read}>
      ${!read.data ? (read.error?.final ? null : html`<${Loading} rows=${8} />`) : sessions.length === 0 ? html`
        <${Empty} title="No sessions">No client is connected, as far as you may see. A session opens when a client connects, and
          expires when it is not heard of for its TTL.<//>` : html`
        <${Table} caption="Sessions" columns=${columns}>
          ${sessions.map((session) => html`<${SessionRow} key=${session.sessionId} session=${session} at=${read.at} />`)}
        <//>
        <${Pager} page=${tokens.length - 1} shown=${sessions.length} noun="session" hasNext=${read.data.nextPageToken !== ""}
          back=${() => turn(tokens.slice(0, -1))} next=${() => turn([...tokens, read.data.nextPageToken])} />`}
    <//>`;
}

function Lease({ session }) {
  return session.leased ? html`<${Badge} kind="session">${session.byValue ? "Redis key" : "lease"}<//>` : null;
}

function SessionRow({ session, at }) {
  const some = (n) => (n === "0" ? "right number faint" : "right number strong");
  return html`
    <tr data-row>
      <td><${SessionName} id=${session.sessionId}>${program(session.client)}<//>${" "}
        <span class="faint number mono">${session.sessionId}</span> <${Lease} session=${session} /></td>
      <td class="hide-small">${visible(session.identity)}</td>
      <td class="hide-small number">${place(session.client)}</td>
      <td class="right">${session.leased ? html`<span class="faint">–</span>` : html`<${Heartbeat} ms=${session.heartbeatAgeMs} at=${at} ttl=${session.ttlMs} />`}</td>
      <td class=${some(session.holds)}>${number(session.holds)}</td>
      <td class=${some(session.waits)}>${number(session.waits)}</td>
      <td class="right hide-small"><${Age} ms=${at - Number(session.openedUnixMs)} at=${at} /></td>
    </tr>`;
}

export function Session({ id }) {
  useWatch({ sessionId: id });
  const read = useRead("SessionService/Get", { sessionId: id }, { interval: 500, when: (e) => e.sessionId === id, each: 4000 });
  const { session, holds = [], waits = [] } = read.data ?? {};
  const ended = read.error?.code === "not_found";
  const { rights } = useApp();
  const closes = session && !ended && rights.operatesSession({ session, holds, waits });
  const graph = session && !ended && html`<a key="graph" href=${waitsLink("session", id)}>Wait-for graph</a>`;
  const close = closes && html`<${ActButton} key="close" act=${closeSession(id)} shortcut="c" />`;
  return html`
    <${Page} title=${session ? program(session.client) : `Session ${id}`} actions=${[graph, close]}
      read=${ended ? { ...read, error: null } : read}
      crumb=${html`<a href="#/sessions">Sessions</a>`}>
      ${ended && html`<p class="notice warn" role="status">
        This session has ended${session ? ". Shown is what was known before" : ", or you may not see it"}.</p>`}
      ${!session ? (read.error?.final ? null : html`<${Loading} />`) : html`
        <section class="panel"><${SessionFacts} session=${session} at=${read.at} /></section>
        <${Claims} title="Holds" empty="It holds nothing." total=${session.holds} list=${holds.map(holdClaim)} at=${read.at} />
        <${Claims} title="Waits" empty="It waits for nothing." total=${session.waits} list=${waits.map(waitClaim)} at=${read.at} />
        <${SessionEvents} id=${id} />`}
    <//>`;
}

// holdClaim and waitClaim return what the table of claims shows.
const holdClaim = ({ hold, name }) => ({
  key: hold.holdId, name, mode: mode(hold), locks: hold.locks, ms: hold.heldForMs,
  note: html`${hold.tokens > 0 ? "cached, tokens" : "token"} <span class="number mono">${tokens(hold)}</span>`,
});
const waitClaim = ({ wait, name }) => ({
  key: wait.waitId, name, mode: wait.upgrade ? "upgrade" : mode(wait), locks: wait.locks, ms: wait.waitingMs,
  note: `no. ${number(wait.position)} in the queue`,
});

function SessionFacts({ session, at }) {
  return html`<${Facts} facts=${[
    ["Session", html`<span class="number mono">${session.sessionId}</span> <${Lease} session=${session} />`],
    ["Identity", visible(session.identity)],
    ["Runs at", place(session.client)],
    ["Address", visible(session.client?.address)],
    ["Opened", html`<${Time} unixMs=${session.openedUnixMs} full />`],
    ["Last heard of", session.leased ? null : html`<${Heartbeat} ms=${session.heartbeatAgeMs} at=${at} ttl=${session.ttlMs} />`],
    ["TTL", duration(session.ttlMs)],
    ["Process began", Number(session.client?.processStartUnixMs) ? html`<${Time} unixMs=${session.client.processStartUnixMs} full />` : null],
    ["Labels", session.client?.labels?.map((l) => `${visible(l.key)}=${visible(l.value)}`).join(", ")],
  ]} />`;
}

function Claims({ title, empty, total, list, at }) {
  return html`
    <section class="panel">
      <h2>${title} <span class="faint number">${number(total)}</span></h2>
      ${list.length === 0 ? html`<p class="quiet">${total === "0" ? empty : "You may not read these locks."}</p>` : html`
        <${Table} caption=${title} columns=${[["Lock"], ["How", "slim"], ["For", "right slim"], ["Details", "hide-small"]]}>
          ${list.map((claim) => html`
            <tr key=${claim.key} data-row>
              <td><${LockName} name=${claim.name} />${claim.locks?.length > 1 ? html` <span class="faint">and ${claim.locks.length - 1} more</span>` : ""}</td>
              <td><${Badge} kind=${title === "Holds" ? "grant" : "wait"}>${claim.mode}<//></td>
              <td class="right"><${Age} ms=${claim.ms} at=${at} /></td>
              <td class="hide-small faint">${claim.note}</td>
            </tr>`)}
        <//>`}
      ${list.length > 0 && Number(total) > list.length && html`<p class="faint">The others are not shown: there are too many, or you may not read them.</p>`}
    </section>`;
}

function SessionEvents({ id }) {
  const { rows } = useEvents(50, (event) => event.sessionId === id);
  return html`
    <section class="panel">
      <h2>Events since you opened this page</h2>
      ${rows.length === 0 ? html`<p class="quiet">Nothing has happened in this session yet.</p>` : html`
        <${Table} caption="Events" columns=${eventColumns}><${EventRows} rows=${rows} withLock /><//>`}
    </section>`;
}

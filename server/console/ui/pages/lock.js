// A lock: who holds it, who waits in which order, and why nothing moves.
import { useState } from "../vendor/hooks.js";
import { askBack, forceRelease, resize, skipDelay } from "../acts.js";
import { circle, circleRemedy, whyNothingMoves } from "../sentences.js";
import { clock, count, duration, mode, moment, number, place, program, state, tokens, value, visible, who } from "../text.js";
import { ActButton } from "../components/act.js";
import { concerns, useApp, useNow, useRead, useWatch } from "../components/state.js";
import {
  Age, Badge, Facts, Heartbeat, html, Left, Loading, Page, SessionName, Table, Time, waitsLink,
} from "../components/parts.js";
import { EventRows, eventColumns, useEvents } from "../components/events.js";
import { Lane } from "../components/lane.js";
import { Queue } from "../components/queue.js";

export function Lock({ name }) {
  const [queueLimit, setQueueLimit] = useState(100);
  useWatch({ name });
  const read = useRead("LockService/Get", { name, queueLimit, allowFree: true }, {
    interval: queueLimit > 100 ? 2000 : 250, when: (e) => concerns(e, name), each: 4000,
  });
  const lock = read.data;
  const { rights } = useApp();
  const sized = lock && lock.limit !== "0" && rights.onLock(name, "OPERATE");
  const print = html`<button type="button" class="hide-small" onClick=${() => window.print()}>Print</button>`;
  return html`
    <${Page} title=${visible(name)} crumb=${html`<a href="#/locks">Locks</a>`} read=${read} actions=${lock && [
      sized && html`<${ActButton} key="resize" act=${resize(name, lock.limit)} />`, print]}>
      ${!lock ? (read.error?.final ? null : html`<${Loading} />`) : html`
        <${Evidence} lock=${lock} at=${read.at} />
        <${Why} lock=${lock} at=${read.at} />
        <${Lane} lock=${lock} />
        <${Holders} lock=${lock} at=${read.at} />
        ${lock.delays.length > 0 && html`<${Delays} lock=${lock} at=${read.at} />`}
        ${lock.queueLength !== "0" && html`<${Queue} lock=${lock} at=${read.at} limit=${queueLimit} setLimit=${setQueueLimit} />`}
        <${Recent} name=${name} />`}
    <//>`;
}

function Why({ lock, at }) {
  const now = useNow();
  const { knownAt } = useApp();
  const { kind, text } = state(lock);
  const level = lock.queueLength !== "0" ? "warn" : kind === "delayed" ? "warn" : "good";
  return html`
    <section class=${`why ${level}`} aria-label="why nothing moves" aria-live="off">
      <p>${knownAt > 0 && html`<strong>At ${clock(Math.max(at, knownAt))}:</strong> `}
        ${whyNothingMoves(lock, Math.max(0, now - at), !knownAt)}</p>
      <p class="why-facts faint">
        <span>${text}</span>
        ${(lock.holderCount !== "0" || lock.queueLength !== "0") && html`<span>${lock.order === "UNFAIR" ? "granted in random order" : "granted in order of arrival"}</span>`}
        ${lock.revision && html`<span>revision <span class="number">${number(lock.revision)}</span></span>`}
        ${lock.queueLength !== "0" && html`
          <span class="no-print"><a href=${waitsLink("lock", lock.name)}>Wait-for graph</a></span>`}
      </p>
      ${longest(lock) + now - at > suspicious && html`<${Deadlocks} name=${lock.name} />`}
    </section>`;
}

// suspicious is how long the oldest request has waited when a deadlock is looked for, in milliseconds.
const suspicious = 3000;
// The search costs a node the more, the more claims there are. It is repeated at most every searchInterval milliseconds,
// and only after a pause of searchRest times as long as it took, a minute at most.
const searchInterval = 5000;
const searchRest = 1000;

async function searchDeadlocks(api, request, signal) {
  const began = performance.now();
  const answer = await api.read("LockService/ListDeadlocks", request, signal);
  return { ...answer, restMs: Math.min(60000, searchRest * (performance.now() - began)) };
}

const longest = (lock) => Math.max(-Infinity, ...lock.queue.map((wait) => Number(wait.waitingMs)));

// Deadlocks says which requests for a lock wait in a deadlock.
function Deadlocks({ name }) {
  const read = useRead(searchDeadlocks, {}, {
    interval: searchInterval, when: (e) => concerns(e, name), each: 2 * searchInterval,
  });
  const mine = read.data?.deadlocks.filter(({ cycle }) => cycle.some((step) => step.lock === name)) ?? [];
  return mine.length > 0 && html`
    <p class="deadlock" role="status"><strong>Deadlock.</strong> ${circle(mine[0].cycle)} ${circleRemedy}
      ${" "}<a class="no-print" href=${waitsLink("lock", name)}>Show the graph</a></p>`;
}

// Evidence is printed at the top of the page: what was read, when, by whom and from where.
function Evidence({ lock, at }) {
  const { me, status } = useApp();
  return html`
    <p class="print-only">
      State of the lock ${visible(lock.name)}${lock.revision ? ` at revision ${lock.revision} (lineage ${visible(lock.lineage)})` : ""} of cluster
      ${" "}${visible(status.data?.clusterId)}, read at ${moment(at)} by ${visible(me.caller.identity)} from ${location.origin}.
      ${lock.local ? "Read from the node's own state, which may lag behind." : ""}
    </p>`;
}

function Holders({ lock, at }) {
  if (lock.holders.length === 0) return null;
  const hidden = Number(lock.holderCount) - lock.holders.length;
  return html`
    <section>
      <h2>${lock.holderCount === "1" ? "Holder" : `${number(lock.holderCount)} holders`}</h2>
      ${lock.holders.length > 3 ? html`<${HolderTable} lock=${lock} at=${at} />` : html`
        <div class="holders">${lock.holders.map((hold) => html`
          <${Holder} key=${hold.holdId} lock=${lock} hold=${hold} at=${at} />`)}</div>`}
      ${hidden > 0 && html`<p class="faint">${count(hidden, "more holder")} are not shown.</p>`}
    </section>`;
}

// HoldActs are the buttons of what the caller may do to a hold. The keys of the first one are the page's.
function HoldActs({ lock, hold }) {
  const { rights } = useApp();
  if (!rights.operatesClaim(hold, lock.name)) return null;
  const first = hold === lock.holders[0];
  const about = `: hold of ${who(hold)}`;
  return html`
    <span class="acts">
      <${ActButton} act=${askBack(lock.name, hold)} about=${about} shortcut=${first ? "r" : undefined} />
      <${ActButton} act=${forceRelease(lock.name, hold)} about=${about} shortcut=${first ? "f" : undefined} />
    </span>`;
}

// HolderTable is for locks with many holders.
function HolderTable({ lock, at }) {
  const columns = [["Who"], ["Holds", "slim"], ["For", "right slim"], ["Heartbeat", "right slim"], ["Fencing token", "right slim hide-small"]];
  const { rights } = useApp();
  const acts = rights.onLock(lock.name, "OPERATE");
  if (acts) columns.push(["Acts", "slim"]);
  return html`
    <${Table} caption="Holders" columns=${columns}>
      ${lock.holders.map((hold) => html`
        <tr key=${hold.holdId} data-row>
          <td><${SessionName} id=${hold.sessionId}>${who(hold)}<//> <span class="faint">${place(hold.client)}</span></td>
          <td><${Badge} kind="grant">${mode(hold)}<//>${hold.revocation ? html` <${Badge} kind="operator">asked to release<//>` : ""}</td>
          <td class="right"><${Age} ms=${hold.heldForMs} at=${at} /></td>
          <td class="right">${hold.leased ? html`<span class="faint">lease</span>` : html`<${Heartbeat} ms=${hold.heartbeatAgeMs} at=${at} />`}</td>
          <td class="right number mono hide-small">${tokens(hold)}</td>
          ${acts && html`<td><${HoldActs} lock=${lock} hold=${hold} /></td>`}
        </tr>`)}
    <//>`;
}

function Holder({ lock, hold, at }) {
  const content = hold.value ? value(hold.value) : null;
  return html`
    <article class="panel holder">
      <h3><${SessionName} id=${hold.sessionId}>${program(hold.client)}<//> <${Badge} kind="grant">${mode(hold)}<//>
        ${hold.leased && html`<${Badge} kind="session">${hold.byValue ? "Redis key" : "lease"}<//>`}
        ${hold.tokens > 0 && html`<${Badge} kind="session">${hold.recalled ? "cached, recalled" : "cached"}<//>`}
        ${hold.revocation && html`<${Badge} kind="operator">asked to release<//>`}
        <${HoldActs} lock=${lock} hold=${hold} /></h3>
      <${Facts} facts=${[
        ["Identity", visible(hold.identity)],
        ["Runs at", place(hold.client)],
        ["Address", visible(hold.client?.address)],
        ["Since", html`<${Time} unixMs=${hold.grantedUnixMs} full /> for <${Age} ms=${hold.heldForMs} at=${at} />`],
        ["Heartbeat", hold.leased ? null : html`<${Heartbeat} ms=${hold.heartbeatAgeMs} at=${at} />`],
        ["Time left", html`<${TimeLeft} hold=${hold} at=${at} />`],
        ["Unused for", hold.idleMs === undefined ? null : html`<${Age} ms=${hold.idleMs} at=${at} />, kept for at most ${duration(hold.maxIdleMs)}`],
        [hold.tokens > 0 ? "Fencing tokens" : "Fencing token", html`<span class="number mono">${tokens(hold)}</span>`],
        ["Hold", html`<span class="number mono">${hold.holdId}</span>${hold.count > 1 ? `, acquired ${hold.count} times` : ""}`],
        ["Owner key", hold.owner === "0" ? null : hold.owner],
        ["Also holds", hold.locks?.length > 1 ? hold.locks.map(visible).join(", ") : null],
        ["Labels", hold.client?.labels?.map((l) => `${visible(l.key)}=${visible(l.value)}`).join(", ")],
        ["Asked for", hold.revocation ? `${visible(hold.revocation.reason)}` : null],
      ]} />
      ${content && html`
        <div class="value">
          <h4>Value <span class="faint">${count(content.bytes, "byte")}${content.binary ? ", not text" : ""}</span></h4>
          <pre tabindex="0">${content.text}</pre>
        </div>`}
    </article>`;
}

function TimeLeft({ hold, at }) {
  const left = hold.remainingHoldMs ?? (hold.leased && hold.remainingLeaseMs ? hold.remainingLeaseMs : null);
  if (left !== null) return html`<${Left} ms=${left} at=${at} />`;
  return hold.leased ? html`<${Age} />` : "until released or its session ends";
}

function Delays({ lock, at }) {
  const { rights } = useApp();
  const acts = rights.onLock(lock.name, "OPERATE");
  const columns = [["Ended hold"], ["Session"], ["Since", "slim"], ["Time left", "right slim"]];
  if (acts) columns.push(["Acts", "slim"]);
  return html`
    <section class="panel">
      <h2>Lock-delays ${acts && html`
        <span class="more"><${ActButton} act=${skipDelay(lock.name)} shortcut="d" /></span>`}</h2>
      <${Table} caption="Lock-delays" columns=${columns}>
        ${lock.delays.map((delay) => html`
          <tr key=${delay.holdId}>
            <td class="number mono">${delay.holdId}</td>
            <td class="number mono"><${SessionName} id=${delay.sessionId}>${delay.sessionId}<//></td>
            <td><${Time} unixMs=${delay.sinceUnixMs} /></td>
            <td class="right">${delay.remainingMs === undefined ? "–" : html`<${Left} ms=${delay.remainingMs} at=${at} />`}</td>
            ${acts && html`
              <td><${ActButton} act=${skipDelay(lock.name, delay.holdId)} about=${`: delay of hold ${delay.holdId}`} /></td>`}
          </tr>`)}
      <//>
    </section>`;
}

function Recent({ name }) {
  const { rows } = useEvents(50, (event) => concerns(event, name));
  return html`
    <section class="no-print panel">
      <h2>Events since you opened this page</h2>
      ${rows.length === 0 ? html`<p class="quiet">Nothing has happened to this lock yet.</p>` : html`
        <${Table} caption="Events" columns=${eventColumns.filter(([title]) => title !== "Lock")}><${EventRows} rows=${rows} /><//>`}
    </section>`;
}

// Locks: by name in pages, by queue, and by oldest wait.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { number, state, who } from "../text.js";
import { useRead, useWatch } from "../components/state.js";
import { Age, Badge, Empty, html, Loading, LockName, Page, Pager, Table, Tabs } from "../components/parts.js";
import { changesQueues } from "./overview.js";

const kinds = { held: "held", shared: "wait", free: "grant", delayed: "wait" };
const orders = { QUEUE_LENGTH: "Longest queue", OLDEST_WAIT: "Longest wait" };

// address returns the address of a view.
function address(prefix, order) {
  const query = new URLSearchParams();
  if (prefix) query.set("prefix", prefix);
  if (order) query.set("order", order);
  return query.size ? `#/locks?${query}` : "#/locks";
}

export function Locks({ query }) {
  const prefix = query.get("prefix") ?? "";
  const order = orders[query.get("order")] ? query.get("order") : "";
  useWatch({ prefix });
  const tabs = [["", "By name", address(prefix, "")], ...Object.entries(orders).map(([key, text]) => [key, text, address(prefix, key)])];
  const View = order ? Contended : ByName;
  return html`<${View} prefix=${prefix} order=${order} tabs=${html`
    <div class="toolbar">
      <${Search} prefix=${prefix} order=${order} />
      <${Tabs} label="order" tabs=${tabs} current=${order} />
    </div>`} />`;
}

// Search changes the prefix a moment after the last key, and follows a prefix that was changed elsewhere.
function Search({ prefix, order }) {
  const [text, setText] = useState(prefix);
  const own = useRef(prefix);
  const go = (value) => {
    if (value === prefix) return;
    own.current = value;
    location.replace(address(value, order));
  };
  useEffect(() => {
    const timer = setTimeout(() => go(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  useEffect(() => { if (prefix !== own.current) { own.current = prefix; setText(prefix); } }, [prefix]);
  return html`
    <form class="search" role="search" onSubmit=${(e) => { e.preventDefault(); go(text); }}>
      <label class="unseen" for="search">Prefix of the names</label>
      <input id="search" type="search" value=${text} autocomplete="off" spellcheck=${false} placeholder="Prefix, for example orders/"
        onInput=${(e) => setText(e.target.value)} />
      <kbd class="hide-small">/</kbd>
    </form>`;
}

const changes = new Set(["QUEUED", "GRANTED", "RELEASED", "EXPIRED", "CANCELLED", "FORCED", "DELAYED", "DELAY_ENDED", "DOWNGRADED", "RESIZED"]);

function ByName({ prefix, tabs }) {
  const [place, setPlace] = useState({ prefix, tokens: [""] });
  const tokens = place.prefix === prefix ? place.tokens : [""]; // another prefix begins at its first page
  const token = tokens.at(-1);
  const read = useRead("LockService/List", { prefix, pageToken: token, pageSize: 100 }, { when: (e) => changes.has(e.type) });
  const locks = read.data?.locks ?? [];
  const columns = [["Lock"], ["State", "slim"], ["Held by", "hide-tiny"], ["For", "right slim hide-tiny"], ["Waiting", "right slim"]];
  const turn = (next) => { setPlace({ prefix, tokens: next }); window.scrollTo(0, 0); };
  return html`
    <${Page} title="Locks" read=${read}>
      ${tabs}
      ${!read.data ? (read.error?.final ? null : html`<${Loading} rows=${8} />`) : locks.length === 0 ? html`<${NoLocks} prefix=${prefix} />` : html`
        <${Table} caption="Locks by name" columns=${columns}>
          ${locks.map((lock) => html`<${LockRow} key=${lock.name} lock=${lock} at=${read.at} />`)}
        <//>
        <${Pager} page=${tokens.length - 1} shown=${locks.length} noun="lock" hasNext=${read.data.nextPageToken !== ""}
          back=${() => turn(tokens.slice(0, -1))} next=${() => turn([...tokens, read.data.nextPageToken])} />`}
    <//>`;
}

function NoLocks({ prefix }) {
  if (prefix) {
    return html`<${Empty} title="No lock has this prefix">
      Locks exist while they are held or waited for, and only those that you may read are shown.<//>`;
  }
  return html`<${Empty} title="No locks">
    Nobody holds a lock or waits for one, as far as you may see.${" "}
    <code>qlock run orders/42 -- sleep 60</code> takes one.<//>`;
}

// First names the first holder, and how many more there are.
function First({ hold, more }) {
  if (!hold) return html`<span class="faint">nobody</span>`;
  return html`${who(hold)}${more > 0 && html` <span class="faint">and ${number(more)} more</span>`}`;
}

function LockRow({ lock, at }) {
  const { kind, text } = state(lock);
  const first = lock.holders[0];
  const more = Number(lock.holderCount) - 1;
  return html`
    <tr data-row>
      <td><${LockName} name=${lock.name} /></td>
      <td><${Badge} kind=${kinds[kind]}>${text}<//></td>
      <td class="wide hide-tiny"><${First} hold=${first} more=${more} /></td>
      <td class="right hide-tiny">${first && html`<${Age} ms=${first.heldForMs} at=${at} />`}</td>
      <td class=${lock.queueLength === "0" ? "right number faint" : "right number strong"}>${number(lock.queueLength)}</td>
    </tr>`;
}

function Contended({ prefix, order, tabs }) {
  const [limit, setLimit] = useState(100);
  const read = useRead("LockService/ListContended", { prefix, order, limit }, { when: changesQueues });
  const locks = read.data?.locks ?? [];
  const columns = [["Lock"], ["Waiting", "right slim"], ["Oldest wait", "right slim"], ["First in line", "hide-tiny"], ["Held by", "hide-tiny"]];
  return html`
    <${Page} title="Locks" read=${read}>
      ${tabs}
      ${!read.data ? (read.error?.final ? null : html`<${Loading} rows=${8} />`) : locks.length === 0 ? html`
        <${Empty} title="Nobody waits">No request waits for a lock${prefix ? " with this prefix" : ""}, as far as you may see.<//>` : html`
        <${Table} caption=${orders[order]} columns=${columns}>
          ${locks.map((lock) => html`<${ContendedRow} key=${lock.name} lock=${lock} at=${read.at} />`)}
        <//>
        <p class="pager faint number">${number(locks.length)} of ${number(read.data.contended)} locks that are waited for
          ${limit < 1000 && Number(read.data.contended) > limit && html`<button type="button" onClick=${() => setLimit(1000)}>Show 1,000</button>`}
        </p>`}
    <//>`;
}

function ContendedRow({ lock, at }) {
  const more = Number(lock.holderCount) - 1;
  return html`
    <tr data-row>
      <td><${LockName} name=${lock.name} /></td>
      <td class="right number strong">${number(lock.queueLength)}</td>
      <td class="right">${lock.oldest && html`<${Age} ms=${lock.oldest.waitingMs} at=${at} />`}</td>
      <td class="wide hide-tiny">${lock.oldest ? who(lock.oldest) : "–"}</td>
      <td class="wide hide-tiny"><${First} hold=${lock.holder} more=${more} /></td>
    </tr>`;
}

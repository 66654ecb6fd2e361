// Elections: exclusive holds with a value, which are leaders of something and say where they are.
import { useState } from "../vendor/hooks.js";
import { clock, duration, number, value, who } from "../text.js";
import { useRead, useWatch } from "../components/state.js";
import { Age, Empty, html, Loading, LockName, Page, Pager, Table } from "../components/parts.js";

const changes = new Set(["GRANTED", "RELEASED", "EXPIRED", "FORCED", "VALUE_SET", "DOWNGRADED", "QUEUED", "CANCELLED"]);

const pageSize = 100;
const restEach = 500; // milliseconds of rest for each request, so that reading among a million locks costs a node little

// readElections reads a page of elections. One request examines a part of the locks only, so it may take many.
async function readElections(api, { pageToken }, signal) {
  const locks = [];
  let [next, requests, local] = [pageToken, 0, false];
  do {
    const request = { elections: true, pageToken: next, pageSize: pageSize - locks.length };
    const part = await api.read("LockService/List", request, signal);
    locks.push(...part.locks);
    next = part.nextPageToken;
    local ||= Boolean(part.local);
    requests++;
  } while (next !== "" && locks.length < pageSize);
  return { locks, nextPageToken: next, local, restMs: requests * restEach };
}

const interval = 5000;

export function Elections() {
  const [tokens, setTokens] = useState([""]);
  useWatch({});
  const read = useRead(readElections, { pageToken: tokens.at(-1) }, { interval, when: (e) => changes.has(e.type) });
  const locks = read.data?.locks ?? [];
  const more = read.data && (read.data.nextPageToken !== "" || tokens.length > 1);
  const turn = (next) => { setTokens(next); window.scrollTo(0, 0); };
  const columns = [["Election"], ["Leader"], ["Value", "hide-tiny"], ["For", "right slim"], ["Candidates", "right slim hide-small"]];
  return html`
    <${Page} title="Elections" read=${read}>
      <p class="lead">Locks that are held exclusively with a value: who leads what, where, and since when.
        ${read.data?.restMs > interval && html` Read at ${clock(read.at)} among so many locks that it is read again every
          ${" "}${duration(read.data.restMs)} at most.`}</p>
      ${!read.data ? (read.error?.final ? null : html`<${Loading} rows=${4} />`) : locks.length === 0 ? html`
        <${Empty} title="No leaders">A leader publishes a value with its hold, for example its address.<//>` : html`
        <${Table} caption="Elections" columns=${columns}>
          ${locks.map((lock) => html`<${Election} key=${lock.name} lock=${lock} at=${read.at} />`)}
        <//>`}
      ${more && html`<${Pager} page=${tokens.length - 1} shown=${locks.length} noun="election" hasNext=${read.data.nextPageToken !== ""}
        back=${() => turn(tokens.slice(0, -1))} next=${() => turn([...tokens, read.data.nextPageToken])} />`}
    <//>`;
}

function Election({ lock, at }) {
  const leader = lock.holders[0];
  const content = value(leader.value);
  return html`
    <tr data-row>
      <td><${LockName} name=${lock.name} /></td>
      <td>${who(leader)}</td>
      <td class="wide hide-tiny"><code>${content.text.length > 80 ? `${content.text.slice(0, 80)}…` : content.text}</code></td>
      <td class="right"><${Age} ms=${leader.heldForMs} at=${at} /></td>
      <td class="right number hide-small">${number(lock.queueLength)}</td>
    </tr>`;
}

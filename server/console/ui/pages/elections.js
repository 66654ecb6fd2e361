// Elections: exclusive holds with a value, which are leaders of something and say where they are.
import { useState } from "../vendor/hooks.js";
import { number, value, who } from "../text.js";
import { useRead, useWatch } from "../components/state.js";
import { Age, Empty, html, Loading, LockName, Page, Pager, Table } from "../components/parts.js";

const changes = new Set(["GRANTED", "RELEASED", "EXPIRED", "FORCED", "VALUE_SET", "DOWNGRADED", "QUEUED", "CANCELLED"]);

// leads reports whether a lock is an election that somebody has won.
const leads = (lock) => lock.holders[0]?.mode === "EXCLUSIVE" && lock.holders[0].value !== "";

export function Elections() {
  const [tokens, setTokens] = useState([""]);
  useWatch({});
  const read = useRead("LockService/List", { pageToken: tokens.at(-1), pageSize: 1000 }, { interval: 5000, when: (e) => changes.has(e.type) });
  const locks = (read.data?.locks ?? []).filter(leads);
  const more = read.data && (read.data.nextPageToken !== "" || tokens.length > 1);
  const turn = (next) => { setTokens(next); window.scrollTo(0, 0); };
  const columns = [["Election"], ["Leader"], ["Value", "hide-tiny"], ["For", "right slim"], ["Candidates", "right slim hide-small"]];
  return html`
    <${Page} title="Elections" read=${read}>
      <p class="lead">Locks that are held exclusively with a value: who leads what, where, and since when.</p>
      ${!read.data ? (read.error?.final ? null : html`<${Loading} rows=${4} />`) : locks.length === 0 ? html`
        <${Empty} title=${more ? "No leaders among these locks" : "No leaders"}>
          A leader publishes a value with its hold, for example its address. ${more && "Other pages may have some."}<//>` : html`
        <${Table} caption="Elections" columns=${columns}>
          ${locks.map((lock) => html`<${Election} key=${lock.name} lock=${lock} at=${read.at} />`)}
        <//>`}
      ${more && html`<${Pager} page=${tokens.length - 1} shown=${read.data.locks.length} noun="lock" hasNext=${read.data.nextPageToken !== ""}
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

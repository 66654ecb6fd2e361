// Queue shows the queue of a lock in order. Of a long queue it draws only the rows in sight.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { behind } from "../sentences.js";
import { mode, number, place, program, visible } from "../text.js";
import { Age, Badge, Heartbeat, html, SessionName, Table } from "./parts.js";

const columns = [
  ["No.", "right slim"], ["Waiting", "slim"], ["Who"], ["Wants", "slim"], ["Heartbeat", "right slim hide-small"],
  ["Waits behind", "hide-small"],
];
const rowHeight = 40; // as in style.css
const margin = 20; // rows drawn beyond the window
const drawAll = 200; // queues up to this length are drawn completely

// useRange returns the first and the last index of the rows in sight.
function useRange(length, top) {
  const [range, setRange] = useState([0, drawAll]);
  useEffect(() => {
    if (length <= drawAll) return undefined;
    const update = () => {
      const above = -(top.current?.getBoundingClientRect().top ?? 0) / rowHeight;
      const first = Math.max(0, Math.min(length - margin, Math.floor((above - margin) / margin) * margin));
      setRange((old) => (old[0] === first ? old : [first, first + Math.ceil(window.innerHeight / rowHeight) + 3 * margin]));
    };
    update();
    addEventListener("scroll", update, { passive: true });
    addEventListener("resize", update);
    return () => { removeEventListener("scroll", update); removeEventListener("resize", update); };
  }, [length > drawAll, length]);
  return length <= drawAll ? [0, length] : [range[0], Math.min(length, range[1])];
}

export function Queue({ lock, at, limit, setLimit }) {
  const top = useRef(null);
  const [first, end] = useRange(lock.queue.length, top);
  const longest = Math.max(1, ...lock.queue.slice(first, end).map((w) => Number(w.waitingMs)));
  const total = Number(lock.queueLength);
  const fixed = lock.queue.length > drawAll;
  const next = limit < 1000 ? 1000 : 10000;
  return html`
    <section class="panel">
      <h2>Queue <span class="faint number">${number(total)}</span></h2>
      <div ref=${top}>
        <${Table} caption="The queue in order" rows=${total + 1} columns=${columns}>
          <${Unseen} key="above" rows=${first} />
          ${lock.queue.slice(first, end).map((waiter, i) => html`
            <${Waiter} key=${waiter.waitId} lock=${lock} index=${first + i} at=${at} longest=${longest} fixed=${fixed} />`)}
          <${Unseen} key="below" rows=${lock.queue.length - end} />
        <//>
      </div>
      ${total > lock.queue.length && html`
        <p class="pager faint"><span class="number">the first ${number(lock.queue.length)} of ${number(total)}</span>
          ${limit < 10000 && html`<button type="button" onClick=${() => setLimit(next)}>Show ${number(next)}</button>`}</p>`}
    </section>`;
}

// Unseen takes the place of rows that are not drawn.
function Unseen({ rows }) {
  if (rows <= 0) return null;
  return html`<tr aria-hidden="true"><td colspan=${columns.length} class="gapless" height=${rows * rowHeight}></td></tr>`;
}

function Waiter({ lock, index, at, longest, fixed }) {
  const waiter = lock.queue[index];
  const more = waiter.locks?.length > 1 ? waiter.locks.length - 1 : 0;
  const details = [visible(waiter.identity), place(waiter.client)].filter((t) => t && t !== "anonymous").join(", ");
  return html`
    <tr class=${fixed ? "fixed" : ""} data-row aria-rowindex=${index + 2}>
      <td class="right number faint">${number(waiter.position)}</td>
      <td><${Age} ms=${waiter.waitingMs} at=${at} />
        <meter class="wait-bar" aria-hidden="true" min="0" max=${longest} value=${waiter.waitingMs}></meter></td>
      <td><${SessionName} id=${waiter.sessionId}>${program(waiter.client)}<//> <span class="faint">${details}</span></td>
      <td><${Badge} kind="wait">${waiter.upgrade ? "upgrade" : mode(waiter)}<//>${more > 0 ? html` <span class="faint">and ${more} more</span>` : ""}</td>
      <td class="right hide-small"><${Heartbeat} ms=${waiter.heartbeatAgeMs} at=${at} /></td>
      <td class="hide-small faint">${behind(lock, index)}</td>
    </tr>`;
}

// Events in a table, the newest first.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { EventList } from "../live.js";
import { eventMeaning } from "../sentences.js";
import { clock, visible } from "../text.js";
import { useListener } from "./state.js";
import { Badge, html, LockName, SessionName } from "./parts.js";

// drawInterval bounds how often a list of events is drawn, in milliseconds.
const drawInterval = 250;

// useEvents collects events that accept returns true for, and draws at most four times a second.
export function useEvents(limit, accept = () => true) {
  const list = useRef(null);
  list.current ??= new EventList(limit);
  const [, draw] = useState(0);
  const timer = useRef(null);
  const drawn = useRef(0);
  const soon = () => {
    timer.current ??= setTimeout(() => {
      timer.current = null;
      drawn.current = Date.now();
      draw((n) => n + 1);
    }, Math.max(0, drawn.current + drawInterval - Date.now()));
  };
  useListener({
    events: (events) => { if (list.current.add(events.filter(accept), Date.now()) > 0) soon(); },
    gap: (message) => { list.current.addGap(message, Date.now()); soon(); },
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const clear = () => {
    list.current = new EventList(limit);
    draw((n) => n + 1);
  };
  return { rows: list.current.rows, total: list.current.total, clear };
}

// EventRows shows events; withLock adds the column of the lock.
export function EventRows({ rows, withLock }) {
  return rows.map((row) => (row.gap !== undefined ? html`<${Gap} key=${row.key} row=${row} columns=${withLock ? 5 : 4} />` :
    html`<${EventRow} key=${row.key} row=${row} withLock=${withLock} />`));
}

function EventRow({ row, withLock }) {
  const { event } = row;
  const { kind, text } = eventMeaning(event);
  const others = event.locks?.length > 1 ? html` <span class="faint">and ${event.locks.length - 1} more</span>` : null;
  return html`
    <tr>
      <td class="number faint">${clock(row.at)}</td>
      <td><${Badge} kind=${kind}>${event.type.toLowerCase().replaceAll("_", " ")}<//></td>
      ${withLock && html`<td>${event.lock && html`<${LockName} name=${event.lock} />`}${others}</td>`}
      <td class="hide-small">${event.sessionId !== "0" && html`<${EventSession} event=${event} />`}</td>
      <td class="wide hide-tiny">${text}</td>
    </tr>`;
}

function EventSession({ event }) {
  const named = event.identity && event.identity !== "anonymous";
  return html`
    <${SessionName} id=${event.sessionId}><span class="number mono">${event.sessionId}</span><//>
    ${named && html` <span class="faint">${visible(event.identity)}</span>`}`;
}

function Gap({ row, columns }) {
  return html`<tr class="gap"><td class="number">${clock(row.at)}</td><td colspan=${columns - 1}>Events are missing here: ${visible(row.gap)}</td></tr>`;
}

export const eventColumns = [
  ["Seen", "slim"], ["Event", "slim"], ["Lock"], ["Session", "slim hide-small"], ["What it means", "wide hide-tiny"],
];

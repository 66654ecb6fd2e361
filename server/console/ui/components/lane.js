// Lane draws a lock's holders and the first of its queue in order, as a row of stations.
import { html, SessionName } from "./parts.js";
import { count, mode, number, program } from "../text.js";

const shown = 4;

export function Lane({ lock }) {
  const holders = lock.holders.slice(0, 3);
  const more = Number(lock.holderCount) - holders.length;
  const waiting = lock.queue.slice(0, shown);
  const rest = Number(lock.queueLength) - waiting.length;
  return html`
    <ol class="lane" aria-label="holders, then the queue in order">
      ${holders.length === 0 && html`<li class="station free">${lock.delays.length ? "lock-delay" : "free"}</li>`}
      ${holders.map((hold) => html`
        <li key=${hold.holdId} class=${`station holding ${hold.revocation ? "revoked" : ""}`}>
          <small>holds, ${mode(hold)}</small><${SessionName} id=${hold.sessionId}>${program(hold.client)}<//>
        </li>`)}
      ${more > 0 && html`<li class="station holding"><small>and</small><b>${count(more, "other")}</b></li>`}
      ${waiting.map((wait) => html`
        <li key=${wait.waitId} class="station">
          <small>${wait.upgrade ? "upgrade" : `no. ${number(wait.position)}`}</small>
          <${SessionName} id=${wait.sessionId}>${program(wait.client)}<//>
        </li>`)}
      ${rest > 0 && html`<li class="station rest"><small>and</small><b>${number(rest)} more</b></li>`}
    </ol>`;
}

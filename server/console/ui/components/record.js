// Record shows one record of the audit log.
import { count, number, visible } from "../text.js";
import { Badge, html, LockName, Time } from "./parts.js";

const outcomes = { OK: ["grant", "done"], UNSPECIFIED: ["wait", "begun"] };

export function Record({ record }) {
  const [kind, text] = outcomes[record.outcome] ?? ["loss", visible(record.outcome).toLowerCase()];
  return html`
    <li class="record" data-row>
      <div class="record-head">
        <strong>${visible(record.action).toLowerCase().replaceAll("_", " ")}</strong> <${Badge} kind=${kind}>${text}<//>
        <${Subject} record=${record} />
        <span class="record-side faint">no. <span class="number">${number(record.id)}</span> ·${" "}
          <${Time} unixMs=${record.wallUnixMs} full /></span>
      </div>
      <p class="reason">${visible(record.reason) || html`<span class="faint">no reason</span>`}</p>
      <p class="faint">${origin(record)}</p>
      ${record.message && html`<p class="late">${visible(record.message)}</p>`}
    </li>`;
}

// origin says who asked for an act.
function origin({ caller, operator, ticket, imported }) {
  const claim = operator ? `, who claims to be ${visible(operator)}` : "";
  const from = caller?.address ? ` from ${visible(caller.address)}` : "";
  const rest = (ticket ? `, ticket ${visible(ticket)}` : "") + (imported ? ", imported from a backup" : "");
  return `by ${visible(caller?.identity) || "an unknown caller"}${claim}${from}${rest}`;
}

// Subject names what an act concerned.
function Subject({ record }) {
  const more = (record.locks?.length > 1 ? record.locks.length - 1 : 0) + (record.furtherLocks ?? 0);
  if (record.lock) {
    return html`
      <${LockName} name=${record.lock} />
      ${more > 0 && html` <span class="faint">and ${count(more, "more lock")}</span>`}
      ${record.limit !== "0" && html` <span class="faint">to ${count(record.limit, "permit")}</span>`}`;
  }
  const session = record.sessionId !== "0" ? `session ${record.sessionId}` : "";
  const other = record.member || record.tokenId || record.identity || session;
  return other ? html`<span class="name">${visible(other)}</span>` : null;
}

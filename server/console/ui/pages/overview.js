// The overview: how the cluster is, in one sentence, and what it does.
import { canLead, nextLeader, transfer } from "../acts.js";
import { certificateLeft, health, lag } from "../sentences.js";
import { count, duration, latency, number, visible } from "../text.js";
import { ActButton } from "../components/act.js";
import { useApp, useNow, useRead, useWatch } from "../components/state.js";
import { Age, Badge, Facts, html, Loading, LockName, Page, Table, Time } from "../components/parts.js";
import { Sparkline } from "../components/sparkline.js";

export function Overview() {
  const { status } = useApp();
  useWatch({});
  return html`
    <${Page} title="Overview" read=${status}>
      ${!status.data ? html`<${Loading} />` : html`
        <${Health} status=${status.data} />
        <${Samples} status=${status.data} />
        <div class="columns">
          <${Hottest} title="Longest queues" order="QUEUE_LENGTH" />
          <${Hottest} title="Longest waits" order="OLDEST_WAIT" />
        </div>
        <${Nodes} status=${status.data} />
        <${Cluster} status=${status.data} />`}
    <//>`;
}

function Health({ status }) {
  const { level, text } = health(status);
  const alarms = status.nodes.flatMap((n) => n.alarms);
  return html`
    <p class=${`health ${level}`} role="status"><span class=${`dot ${level}`}></span>${text}</p>
    ${alarms.map((alarm) => html`
      <div key=${alarm.nodeId + alarm.revision} class="notice bad">
        <p><strong>${visible(alarm.nodeId)}:</strong> ${visible(alarm.message)}, since <${Time} unixMs=${alarm.raisedUnixMs} full /></p>
        <p>${visible(alarm.advice)}</p>
      </div>`)}`;
}

const sum = (samples, field) => samples.reduce((total, sample) => total + Number(sample[field]), 0);

function Samples({ status }) {
  const read = useRead("ClusterService/ListSamples", {}, { interval: 5000, when: () => false, each: 4000 });
  const samples = read.data?.samples ?? [];
  const interval = (read.data?.intervalMs ?? 5000) / 1000;
  const of = (field) => samples.map((sample) => Number(sample[field]));
  const rates = of("grants").map((grants) => grants / interval);
  const rate = rates.at(-1) ?? 0;
  const notes = {
    locks: count(status.holds, "hold"),
    waiters: status.waiters === "0" ? "nobody waits" : "requests in queues",
    sessions: samples.length ? `${count(sum(samples, "expirations"), "expiration")} in ten minutes` : "alive",
    grants: `${count(sum(samples, "grants"), "grant")} in ten minutes`,
  };
  const tile = (title, field) => html`
    <${Sparkline} title=${title} values=${of(field)} latest=${number(status[field])} note=${notes[field]} />`;
  return html`
    <div class="tiles">
      ${tile("Locks", "locks")}
      ${tile("Waiting", "waiters")}
      ${tile("Sessions", "sessions")}
      ${rates.length > 0 && html`
        <${Sparkline} title="Grants per second" values=${rates} note=${notes.grants}
          latest=${rate < 10 ? rate.toFixed(1) : number(Math.round(rate))} />`}
    </div>`;
}

function Hottest({ title, order }) {
  const read = useRead("LockService/ListContended", { order, limit: 5 }, { interval: 2000, when: (e) => changesQueues(e) });
  const locks = read.data?.locks ?? [];
  if (read.error?.final) return null;
  return html`
    <section class="panel">
      <h2>${title} <a class="more" href=${`#/locks?order=${order}`}>all</a></h2>
      ${!read.data ? html`<${Loading} rows=${3} />` : locks.length === 0 ? html`<p class="quiet">No request waits for a lock.</p>` : html`
        <${Table} caption=${title} columns=${[["Lock"], ["Waiting", "right slim"], ["Oldest wait", "right slim"]]}>
          ${locks.map((lock) => html`
            <tr key=${lock.name}>
              <td><${LockName} name=${lock.name} /></td>
              <td class="right number">${number(lock.queueLength)}</td>
              <td class="right">${lock.oldest && html`<${Age} ms=${lock.oldest.waitingMs} at=${read.at} />`}</td>
            </tr>`)}
        <//>`}
    </section>`;
}

const queueEvents = new Set(["QUEUED", "GRANTED", "CANCELLED"]);
export const changesQueues = (event) => queueEvents.has(event.type) && (event.type !== "GRANTED" || event.waited);

function Nodes({ status }) {
  const columns = [
    ["Node"], ["Role", "slim"], ["Behind", "right slim"], ["Disk sync", "right slim"], ["Commit", "right slim"],
    ["Version", "hide-small"], ["Certificate", "hide-small"], ["Peer address", "hide-small"],
  ];
  const { rights } = useApp();
  const acts = rights.onCluster("MEMBERS") && status.nodes.length > 1;
  const next = acts ? nextLeader(status) : null;
  if (acts) columns.push(["Acts", "slim"]);
  return html`
    <section class="panel">
      <h2>Nodes ${next && html`
        <span class="more">
          <${ActButton} act=${{ ...transfer(next.id), verb: "Transfer leadership" }} shortcut="t" />
        </span>`}</h2>
      <${Table} caption="Nodes" columns=${columns} plain>
        ${status.nodes.map((node) => html`<${Node} key=${node.id} node=${node} status=${status} acts=${acts} />`)}
      <//>
    </section>`;
}

function Node({ node, status, acts }) {
  const now = useNow();
  const left = certificateLeft(node, now);
  const behind = lag(status, node);
  const role = !node.reachable ? html`<${Badge} kind="loss">not reachable<//>` :
    node.health && !node.health.healthy ? html`<span title=${visible(node.health.reason)}><${Badge} kind="loss">not healthy<//></span>` :
    node.leader ? html`<${Badge} kind="grant">leader<//>` : html`<${Badge} kind="session">${node.voter ? "follower" : "joining"}<//>`;
  return html`
    <tr>
      <td><strong>${visible(node.id)}</strong>${node.id === status.nodeId ? html` <span class="faint">answered</span>` : ""}</td>
      <td>${role}${node.drained ? html` <${Badge} kind="wait">drained<//>` : ""}</td>
      <td class="right number">${node.reachable ? (behind === 0 ? "0" : number(behind)) : "–"}</td>
      <td class="right number">${latency(node.diskSyncUs)}</td>
      <td class="right number">${latency(node.commitUs)}</td>
      <td class="hide-small number mono">${visible(node.version) || "–"}</td>
      <td class="hide-small">${left === Infinity ? html`<span class="faint">none</span>` : html`<span class="number">${duration(left)} left</span>`}</td>
      <td class="hide-small number mono">${visible(node.peerAddr)}</td>
      ${acts && html`
        <td>${canLead(node) && html`<${ActButton} act=${transfer(node.id)} about=${visible(node.id)} />`}</td>`}
    </tr>`;
}

function Cluster({ status }) {
  const agreed = status.agreedIndex === "0" ? "not compared yet" : `up to entry ${number(status.agreedIndex)}`;
  return html`
    <section class="panel">
      <h2>Cluster</h2>
      <${Facts} facts=${[
        ["Cluster", html`<span class="number mono">${visible(status.clusterId)}</span>`],
        ["Term", number(status.term)],
        ["Revision", number(status.revision)],
        ["Log", `${number(status.commitIndex)} entries committed`],
        ["States agree", agreed],
        ["Feature level", status.level],
        ["Policy", status.hasPolicy ? "in force" : "none: every client may do everything"],
        ["Last fencing token", html`<span class="number mono">${status.token}</span>`],
        ["Failure tolerance", html`<${Tolerance} autopilot=${status.autopilot} />`],
        ["Last backup", html`<${LastBackup} status=${status} />`],
      ]} />
    </section>`;
}

// Tolerance shows how many voters may fail, and the last dead node that was removed.
function Tolerance({ autopilot }) {
  if (!autopilot) return "known to the leader only";
  const removed = autopilot.lastRemoval;
  return html`${autopilot.failureTolerance > 0 ? count(autopilot.failureTolerance, "node") : "none"}${removed && html`;
    ${visible(removed.nodeId)} was removed <${Time} unixMs=${removed.unixMs} full />: ${visible(removed.reason)}`}`;
}

// LastBackup shows the latest backup that was made by schedule.
function LastBackup({ status }) {
  const now = useNow();
  const { lastBackup: last, backupSchedule: schedule } = status;
  const late = schedule?.overdue ? html` <${Badge} kind="loss">overdue<//>` : "";
  if (!last) return html`${schedule ? `none yet; the schedule is ${visible(schedule.schedule)}` : "none by schedule"}${late}`;
  return html`${duration(now - Number(last.unixMs))} ago on ${visible(last.nodeId)}, verified${late}`;
}

// Shell surrounds the pages: navigation, banner, keys and theme.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { clock, visible } from "../text.js";
import { App, useApp, useClock, usePhase, useRead } from "./state.js";
import { ActDialog } from "./act.js";
import { html } from "./parts.js";

const pages = [
  ["overview", "Overview", "o"], ["locks", "Locks", "l"], ["sessions", "Sessions", "s"],
  ["elections", "Elections", "e"], ["live", "Live", "v"], ["audit", "Audit", "a"],
];

const pageLink = (key) => (key === "overview" ? "#/" : `#/${key}`);

export function Shell({ page, path, children }) {
  const app = useApp();
  const phase = usePhase();
  const shown = pages.filter(([key]) => key !== "audit" || app.rights.onCluster("AUDIT"));
  const status = useRead("ClusterService/Status", {}, { interval: 5000, when: () => false, each: 4000 });
  const knownAt = useKnownAt(phase, status);
  const help = useRef(null);
  const [acting, setActing] = useState(null);
  const begin = (act, opener) => setActing({ act, opener });
  const end = () => setActing((now) => (now === acting ? null : now)); // a closed dialog does not close the next one
  useKeys(shown, () => help.current.showModal());
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.querySelector("h1")?.focus(); }}>Skip to the content</a>
    <div class="shell">
      <header class="side">
        <a class="brand" href="#/"><img src="icon.svg" alt="" width="26" height="26" />Quorumlock</a>
        <nav aria-label="pages">
          ${shown.map(([key, name, letter]) => html`
            <a key=${key} href=${pageLink(key)} aria-current=${key === page ? "page" : undefined}>
              ${name}<kbd aria-hidden="true">g ${letter}</kbd>
            </a>`)}
        </nav>
        <${Foot} status=${status.data} help=${() => help.current.showModal()} />
      </header>
      <${App.Provider} value=${{ ...app, status, knownAt, begin }}>
        <main id="main" class=${knownAt ? "stale" : ""} data-path=${path}>
          <${Banner} status=${status} knownAt=${knownAt} />
          ${children}
        </main>
      <//>
    </div>
    ${acting && html`<${ActDialog} ...${acting} close=${end} />`}
    <${Help} dialog=${help} shown=${shown} acts=${app.rights.acts()} />`;
}

function Foot({ status, help }) {
  const { me, token, signOut } = useApp();
  const [theme, setTheme] = useState("");
  useEffect(() => { document.documentElement.dataset.theme = theme; }, [theme]);
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const other = dark ? "Light colours" : "Dark colours";
  const rights = me.hasPolicy ? me.roles.map(visible).join(", ") : "no policy: may do everything";
  return html`
    <div class="foot">
      ${status && html`
        <p class="faint"><span class="number mono">${visible(status.clusterId)}</span><br />
          ${status.leaderId ? `${visible(status.leaderId)} leads, term ${status.term}` : "no leader"}</p>`}
      <p class="identity"><strong>${visible(me.caller.identity)}</strong><br /><span class="faint">${rights}</span></p>
      <p class="foot-buttons">
        <button type="button" onClick=${() => signOut("")}>${token ? "Sign out" : "Use a token"}</button>
        <button type="button" aria-label=${other} title=${other} onClick=${() => setTheme(dark ? "light" : "dark")}>
          ${dark ? "☀" : "☾"}</button>
        <button type="button" aria-label="Keys" title="Keys (?)" onClick=${help}>?</button>
      </p>
    </div>`;
}

// useKnownAt returns 0, or the time of what is shown: of the break of the stream, or of the last answer that a leader
// knew of.
function useKnownAt(phase, { data, at, error }) {
  const { stream } = useApp();
  const led = useRef(0);
  if (data?.leaderId && !data.local) led.current = at;
  if (phase === "broken") return stream.since;
  if (error && !error.final) return at;
  return data && led.current !== at ? led.current || at : 0;
}

const breaksAfter = 1000; // milliseconds after which a break of the stream is announced
const newsLasts = 15000; // milliseconds for which a new leader is announced

// Banner says that what is shown may be old, or that another node leads now.
function Banner({ status, knownAt }) {
  const now = useClock();
  const leader = useLeader(status.data);
  if (knownAt && status.data && !status.data.leaderId && !status.error) {
    return html`<div class="banner warn" role="status">
      <p><strong>No leader.</strong> The nodes are electing one; nothing is granted until then. The page shows what was known
        at ${clock(knownAt)}.</p></div>`;
  }
  if (knownAt && now - knownAt > breaksAfter) {
    return html`<div class="banner warn" role="status">
      <p><strong>Reconnecting.</strong> The page shows what was known at ${clock(knownAt)}, and continues from there without gaps.</p>
      <${OtherNodes} status=${status.data} /></div>`;
  }
  if (leader && now - leader.at < newsLasts) {
    return html`<div class="banner" role="status">
      <p><strong>${visible(leader.id)} leads now.</strong> Locks and sessions continue.</p></div>`;
  }
  return null;
}

// useLeader returns the leader after a change, and when that was noticed.
function useLeader(status) {
  const [change, setChange] = useState(null);
  const last = useRef("");
  useEffect(() => {
    const id = status?.leaderId;
    if (!id) return;
    if (last.current && last.current !== id) setChange({ id, at: Date.now() });
    last.current = id;
  }, [status?.leaderId]);
  return change;
}

function OtherNodes({ status }) {
  const others = (status?.nodes ?? []).filter((n) => n.id !== status.nodeId && n.httpAddr && n.httpAddr !== location.host);
  if (others.length === 0) return null;
  const address = (node) => `${location.protocol}//${node.httpAddr}/ui/${location.hash}`;
  const link = (node) => html`<a key=${node.id} href=${address(node)} rel="noreferrer">${visible(node.id)}</a>`;
  return html`<p>Other nodes: ${others.map((node, i) => [i > 0 ? ", " : "", link(node)])}</p>`;
}

// useKeys handles keys, unless something is being typed.
function useKeys(shown, help) {
  useEffect(() => {
    let prefixed = 0;
    const press = (event) => {
      if (document.querySelector("dialog[open]")) return; // what is behind a dialog does not react
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
        if (event.key === "Escape") event.target.blur?.();
        return;
      }
      const page = Date.now() - prefixed < 1500 && shown.find(([, , letter]) => letter === event.key);
      prefixed = event.key === "g" ? Date.now() : 0;
      if (page) location.hash = pageLink(page[0]);
      else if (event.key === "/") document.getElementById("search")?.focus();
      else if (event.key === "?") help();
      else if (event.key === "j" || event.key === "k") moveRow(event.key === "j" ? 1 : -1);
      else if (event.key === "u") document.querySelector(".crumb a")?.click();
      else document.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
      if (event.key === "/") event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [shown.length]);
}

// moveRow moves the focus to the link of the next or the previous row.
function moveRow(step) {
  const links = [...document.querySelectorAll("[data-row]")].map((row) => row.querySelector("a")).filter(Boolean);
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + step))];
  next?.focus();
}

const actKeys = [["r", "Ask the holder to release the lock"], ["f", "Force release"], ["d", "Skip a lock-delay"],
  ["c", "Close the session"], ["t", "Transfer leadership, on the overview"]];

function Help({ dialog, shown, acts }) {
  const keys = [...shown.map(([, name, letter]) => [`g ${letter}`, name]), ["/", "Search"], ["j  k", "Next and previous row"],
    ["Enter", "Open the row"], ["u", "Up, to the list"], ["p", "Pause and resume the live events"],
    ...(acts ? actKeys : []), ["?", "This help"]];
  return html`
    <dialog ref=${dialog} aria-labelledby="keys-title">
      <h2 id="keys-title">Keys</h2>
      <dl class="keys">${keys.map(([key, what]) => html`
        <div key=${key}><dt>${key.split(/\s+/).map((k) => html`<kbd key=${k}>${k}</kbd> `)}</dt><dd>${what}</dd></div>`)}
      </dl>
      <form method="dialog"><button type="submit" class="primary">Close</button></form>
    </dialog>`;
}

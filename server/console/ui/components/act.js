// Acting in a dialog: it shows what an act would do, asks for the reason and for the name of what it concerns, carries
// it out, and shows what became of it.
import { useEffect, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { carryOut, confirms, wrongText } from "../acting.js";
import { clock, number, sentence, visible } from "../text.js";
import { useApp } from "./state.js";
import { html } from "./parts.js";
import { Record } from "./record.js";

// ActButton opens the dialog of an act. about tells those who do not see the button's place what it concerns. shortcut
// is the key that presses it.
export function ActButton({ act, about, shortcut }) {
  const { begin } = useApp();
  return html`
    <button type="button" class=${act.grave ? "act danger" : "act"} aria-haspopup="dialog" data-act=${act.action}
      data-key=${shortcut} aria-keyshortcuts=${shortcut} onClick=${(event) => begin(act, event.currentTarget)}>
      ${act.verb}…${about && html`<span class="unseen"> ${about}</span>`}</button>`;
}

// ActDialog is the dialog of the act that has begun. It is modal: the page behind it is inert. When it closes, the
// focus returns to the button that opened it, or to the heading if that is gone.
export function ActDialog({ act, opener, close }) {
  const dialog = useRef(null);
  const [sending, setSending] = useState(false);
  useLayoutEffect(() => {
    const element = dialog.current;
    element.showModal();
    return () => {
      element.close();
      (opener.isConnected ? opener : document.querySelector("h1"))?.focus();
    };
  }, []);
  useEffect(() => {
    addEventListener("hashchange", close);
    return () => removeEventListener("hashchange", close);
  }, []);
  const cancel = (event) => { if (sending) event.preventDefault(); };
  return html`
    <dialog ref=${dialog} class="acting" aria-labelledby="act-title" onClose=${close} onCancel=${cancel}>
      <h2 id="act-title">${act.title}</h2>
      <${Steps} act=${act} sending=${sending} setSending=${setSending} close=${close} />
    </dialog>`;
}

// useLook reads what an act concerns, at first and when it is called: found and at, error while reading fails, or a
// hindrance.
function useLook(act) {
  const { api } = useApp();
  const [look, setLook] = useState({});
  const again = async () => {
    setLook({});
    try {
      const found = await act.read(api);
      setLook({ found, at: Date.now(), hindrance: act.hindrance(found) });
    } catch (error) {
      setLook({ error });
    }
  };
  useEffect(() => { void again(); }, []);
  return [look, again];
}

function Steps({ act, sending, setSending, close }) {
  const { api, me, rights } = useApp();
  const [look, lookAgain] = useLook(act);
  const [input, setInput] = useState({ extra: "", reason: "", ticket: "", typed: "" });
  const [outcome, setOutcome] = useState(null);
  const send = async (value) => {
    setSending(true);
    const by = { reason: input.reason, ticket: input.ticket };
    const audits = rights.onCluster("AUDIT");
    setOutcome(await carryOut(api, act, { shown: look.found, value, by, caller: me.caller.identity, audits }));
    setSending(false);
  };
  const again = () => {
    setOutcome(null);
    setInput({ ...input, typed: "" });
    void lookAgain();
  };
  if (outcome?.kind === "done") return html`<${Done} outcome=${outcome} close=${close} />`;
  if (look.error || look.hindrance) {
    const text = look.hindrance ?? `This could not be read. ${sentence(look.error.message)}`;
    return html`<${Trouble} text=${text} again=${again} close=${close} />`;
  }
  if (!look.found) {
    return html`<p class="quiet" role="status">Reading what this would do.</p><${Buttons} close=${close} />`;
  }
  return html`<${Form} act=${act} look=${look} input=${input} setInput=${setInput} outcome=${outcome} sending=${sending}
    send=${send} again=${again} close=${close} />`;
}

// Trouble says why there is nothing to decide.
function Trouble({ text, again, close }) {
  return html`
    <p class="notice warn" role="alert">${text}</p>
    <${Buttons} close=${close}><button type="button" onClick=${again}>Look again</button><//>`;
}

function Plan({ plan, at }) {
  return html`
    <div class="plan" id="act-plan">
      <p>${plan.lead}</p>
      <ul>${plan.list.filter(Boolean).map((line, i) => html`<li key=${i}>${line}</li>`)}</ul>
      <p class="faint">As of ${clock(at)}. It is read again before anything is sent.</p>
    </div>`;
}

// retriable are outcomes after which the same plan may be sent once more.
const retriable = (outcome) => !outcome || outcome.kind === "refused";

// faults says for each input what is wrong with it, "" if nothing is.
function faults(act, input) {
  const fits = !act.field || act.field.parse(input.extra) !== undefined;
  return {
    extra: fits ? "" : "This is not a number in the allowed range.",
    reason: wrongText("reason", input.reason), ticket: wrongText("ticket", input.ticket),
    typed: confirms(input.typed, act.typed.text) ? "" : "different",
  };
}

function Form({ act, look, input, setInput, outcome, sending, send, again, close }) {
  const value = act.field?.parse(input.extra);
  const wrong = faults(act, input);
  const ready = !sending && Object.values(wrong).every((fault) => fault === "");
  const submit = (event) => { event.preventDefault(); if (ready) void send(value); };
  const text = (key) => ({ value: input[key], onInput: (e) => setInput({ ...input, [key]: e.target.value }) });
  const first = useRef(null);
  useLayoutEffect(() => first.current.querySelector("input").focus(), []);
  const usable = retriable(outcome);
  return html`
    <form ref=${first} onSubmit=${submit} aria-describedby="act-plan">
      <${Plan} plan=${act.plan(look.found, value)} at=${look.at} />
      ${act.field && html`
        <${Field} id="act-extra" label=${act.field.label} hint=${act.field.hint} inputmode="decimal" ...${text("extra")}
          wrong=${input.extra && wrong.extra} />`}
      <${Field} id="act-reason" label="Reason" hint="For the audit log." required ...${text("reason")}
        wrong=${input.reason && wrong.reason} />
      <${Field} id="act-ticket" label="Ticket" hint="If there is one." ...${text("ticket")} wrong=${wrong.ticket} />
      <${Field} id="act-typed" mono required ...${text("typed")}
        label=${html`Type ${act.typed.what} to confirm: <code>${visible(act.typed.text)}</code>`} />
      ${outcome && html`
        <p class=${`notice ${outcome.kind === "lost" ? "warn" : "bad"}`} role="alert">${outcome.text}</p>`}
      <${Buttons} close=${close} busy=${sending}>
        ${usable && html`<${Send} act=${act} ready=${ready} sending=${sending} />`}
        ${!usable && html`<button type="button" class="primary" onClick=${again}>Look again</button>`}
      <//>
    </form>`;
}

function Send({ act, ready, sending }) {
  return html`
    <button type="submit" class=${act.grave ? "primary fatal" : "primary"} disabled=${!ready}>
      ${sending ? "Sending" : act.verb}</button>`;
}

function Field({ id, label, hint, wrong, mono, ...rest }) {
  const about = hint || wrong ? { "aria-describedby": `${id}-about` } : {};
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      <input id=${id} type="text" autocomplete="off" spellcheck=${false} class=${mono ? "mono" : ""}
        aria-invalid=${wrong ? "true" : undefined} ...${about} ...${rest} />
      ${(hint || wrong) && html`<p id=${`${id}-about`} class=${wrong ? "wrong" : "faint"}>${wrong || hint}</p>`}
    </div>`;
}

function Buttons({ close, busy, children }) {
  return html`
    <p class="act-buttons"><button type="button" disabled=${busy} onClick=${close}>Cancel</button>${children}</p>`;
}

const unfound = "Its record could not be read in time. The audit log has it.";
const hidden = "This was recorded in the audit log, which you may not read.";

function Done({ outcome, close }) {
  const { rights } = useApp();
  const button = useRef(null);
  useLayoutEffect(() => button.current.focus(), []);
  return html`
    <p class="notice good" role="status"><strong>${outcome.text}</strong>${outcome.revision && html`
      <br />Revision <span class="number">${number(outcome.revision)}</span>.`}</p>
    <h3>Audit record</h3>
    ${outcome.record ? html`<ol class="records"><${Record} record=${outcome.record} /></ol>` :
      html`<p>${rights.onCluster("AUDIT") ? unfound : hidden}</p>`}
    <p class="act-buttons"><button type="button" class="primary" ref=${button} onClick=${close}>Close</button></p>`;
}

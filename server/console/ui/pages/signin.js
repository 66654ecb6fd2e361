// Sign-in by a token. A client certificate needs no form: the browser presents it.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { sentence } from "../text.js";
import { html } from "../components/parts.js";

export function SignIn({ message, signIn }) {
  const [busy, setBusy] = useState(false);
  const field = useRef(null);
  useEffect(() => { document.title = "Sign in · Quorumlock"; field.current.focus(); }, []);
  const submit = async (event) => {
    event.preventDefault();
    const token = field.current.value;
    field.current.value = "";
    if (!token.trim()) return;
    setBusy(true);
    await signIn(token);
    setBusy(false);
  };
  return html`
    <main class="signin">
      <img src="icon.svg" alt="" width="44" height="44" />
      <h1>Quorumlock</h1>
      <p class="faint">Sign in to the node at <span class="number mono">${location.host}</span>.</p>
      <form onSubmit=${submit}>
        <label for="token">Token</label>
        <input id="token" ref=${field} type="password" autocomplete="off" spellcheck=${false} placeholder="ql_…" aria-describedby="about-token" />
        ${message && html`<p class="notice bad" role="alert">${sentence(message)}</p>`}
        <button type="submit" class="primary" disabled=${busy}>${busy ? "Signing in" : "Sign in"}</button>
      </form>
      <p id="about-token" class="faint">The token stays in this tab's memory and is forgotten when you reload or close it.
        ${" "}<code>qlock token create</code> makes one. A client certificate that your browser presents needs no token:
        ${" "}<button type="button" class="link" onClick=${() => location.reload()}>try it again</button>.</p>
    </main>`;
}

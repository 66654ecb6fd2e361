// The program: who is signed in, and which page is shown.
import { render } from "./vendor/preact.js";
import { useEffect, useMemo, useState } from "./vendor/hooks.js";
import { Api, ApiError } from "./api.js";
import { Stream } from "./live.js";
import { Rights } from "./rights.js";
import { App } from "./components/state.js";
import { html } from "./components/parts.js";
import { Shell } from "./components/shell.js";
import { SignIn } from "./pages/signin.js";
import { Overview } from "./pages/overview.js";
import { Locks } from "./pages/locks.js";
import { Lock } from "./pages/lock.js";
import { Session, Sessions } from "./pages/sessions.js";
import { Elections } from "./pages/elections.js";
import { Live } from "./pages/events.js";
import { Audit } from "./pages/audit.js";
import { Waits } from "./pages/waits.js";

// route reads the fragment of the address: a page, the name of what it shows, and its options.
function route() {
  const [path, options] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...rest] = path.split("/");
  let name = rest.join("/");
  try {
    name = decodeURIComponent(name);
  } catch {
    // A name with a stray percent sign was typed by hand.
  }
  return { page: page || "overview", path: location.hash, name, query: new URLSearchParams(options ?? "") };
}

function useRoute() {
  const [current, setCurrent] = useState(route);
  useEffect(() => {
    const change = () => setCurrent(route());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return current;
}

function Content({ page, name, query }) {
  switch (page) {
    case "locks": return name ? html`<${Lock} key=${name} name=${name} />` : html`<${Locks} query=${query} />`;
    case "sessions": return /^\d+$/.test(name) ? html`<${Session} key=${name} id=${name} />` : html`<${Sessions} />`;
    case "elections": return html`<${Elections} />`;
    case "waits": return html`<${Waits} key=${name} name=${name} />`;
    case "live": return html`<${Live} query=${query} />`;
    case "audit": return html`<${Audit} />`;
    default: return html`<${Overview} />`;
  }
}

// section returns the entry of the navigation to which a page belongs.
function section({ page, name }) {
  if (page !== "waits") return page;
  return name.startsWith("session/") ? "sessions" : "locks";
}

// restAfter is how long a tab is hidden before its stream rests, in milliseconds.
const restAfter = 10000;

// restWhileHidden stops the stream of a tab that nobody sees, and resumes it without gaps. Browsers open at most six
// connections of HTTP/1.1 to a node, which hidden tabs would use up.
function restWhileHidden(stream) {
  let timer = null;
  let resting = false;
  const rest = () => {
    if (resting || stream.phase === "paused") return;
    resting = true;
    stream.pause();
  };
  const change = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(rest, restAfter);
    else if (resting) {
      resting = false;
      stream.resume();
    }
  };
  document.addEventListener("visibilitychange", change);
  addEventListener("pagehide", rest);
  addEventListener("pageshow", change);
}

function Program() {
  const api = useMemo(() => new Api(), []);
  const stream = useMemo(() => new Stream((filter, signal) => api.watch(filter, signal)), [api]);
  const [session, setSession] = useState({ phase: "checking" });
  const current = useRoute();

  const signOut = (message) => {
    stream.pause();
    stream.filter = null;
    api.setToken("");
    setSession({ phase: "out", message });
  };
  const signIn = async (token) => {
    api.setToken(token);
    try {
      const me = await api.read("AccessService/WhoAmI");
      if (me.hasPolicy && me.roles.length === 0) {
        throw new ApiError(token === "" ? "unauthenticated" : "permission_denied",
          `${me.caller.identity} has no role in the policy, so there is nothing to show.`);
      }
      setSession({ phase: "in", me, rights: new Rights(me), token: token !== "" });
    } catch (error) {
      api.setToken("");
      const expected = token === "" && error.code === "unauthenticated";
      setSession({ phase: "out", message: expected ? "" : error.message });
    }
  };
  useEffect(() => {
    restWhileHidden(stream);
    void signIn("");
  }, []);
  useEffect(() => stream.listen({
    changed: () => {
      const refused = stream.phase === "refused" && stream.error?.code === "unauthenticated";
      if (refused) signOut("Your token or certificate is no longer valid.");
    },
  }), [stream]);

  if (session.phase === "checking") return null;
  if (session.phase === "out") return html`<${SignIn} message=${session.message} signIn=${signIn} />`;
  const app = { api, stream, signOut, ...session };
  return html`
    <${App.Provider} value=${app}>
      <${Shell} page=${section(current)} path=${current.path}><${Content} key=${current.page} ...${current} /><//>
    <//>`;
}

render(html`<${Program} />`, document.getElementById("app"));

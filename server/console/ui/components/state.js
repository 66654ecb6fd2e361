// What pages share: the application, the clock, the stream and reads that follow it.
import { createContext } from "../vendor/preact.js";
import { useContext, useEffect, useRef, useState } from "../vendor/hooks.js";
import { Refresher } from "../live.js";

// App holds api, stream, me (the answer of WhoAmI), rights (what the caller may do), and inside of the shell status
// (the read of the cluster's status), begin, which opens the dialog of an act, and knownAt: 0, or while nothing new is
// learned the time of what is shown.
export const App = createContext(null);
export const useApp = () => useContext(App);

const ticks = new Set();
setInterval(() => { if (!document.hidden) for (const tick of ticks) tick(); }, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) for (const tick of ticks) tick(); });

// useClock draws a component again each second, and returns the time in milliseconds.
export function useClock() {
  const [, draw] = useState(0);
  useEffect(() => {
    const tick = () => draw((n) => n + 1);
    ticks.add(tick);
    return () => ticks.delete(tick);
  }, []);
  return Date.now();
}

// useNow is useClock for ages and times left. They stop while nothing new is learned: what was held, alive or left then
// may have ended.
export function useNow() {
  const now = useClock();
  return useApp().knownAt || now;
}

// useListener listens to the stream while the component is shown.
export function useListener(listener) {
  const { stream } = useApp();
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => stream.listen({
    events: (list) => latest.current.events?.(list),
    opened: () => latest.current.opened?.(),
    gap: (message) => latest.current.gap?.(message),
    changed: () => latest.current.changed?.(),
    progress: () => latest.current.progress?.(),
  }), [stream]);
}

// usePhase returns the stream's phase and draws the component again when it changes.
export function usePhase() {
  const { stream } = useApp();
  const [phase, setPhase] = useState(stream.phase);
  useListener({ changed: () => setPhase(stream.phase) });
  return phase;
}

// useWatch lets the stream follow what a page shows.
export function useWatch(filter) {
  const { stream } = useApp();
  useEffect(() => stream.follow(filter), [stream, JSON.stringify(filter)]);
}

// useRead reads with a procedure, or with a function of the API, the request and a signal that ends it. It reads again when
// an event for which when returns true says that the answer has changed, but at most once per interval milliseconds, or per
// restMs of the latest answer if that is more. With each set, it also reads again when the stream reports progress, which
// it does at least every five seconds, if the answer is that many milliseconds old.
// It returns data (the latest answer, also of the previous request until the next one is answered), at (when it came),
// and error if the latest attempt has failed.
export function useRead(procedure, request, { interval = 2000, when = () => true, each = 0 } = {}) {
  const { api } = useApp();
  const [result, setResult] = useState({ data: null, at: 0, error: null });
  const refresher = useRef(null);
  useEffect(() => {
    const ask = typeof procedure === "function" ? procedure : (a, ...rest) => a.read(procedure, ...rest);
    const mine = new Refresher((signal) => ask(api, request, signal), {
      interval,
      done: (data) => {
        mine.interval = Math.max(interval, data.restMs ?? 0);
        setResult({ data, at: Date.now(), error: null, request });
      },
      failed: (error) => setResult((old) => ({ ...old, error })),
    });
    refresher.current = mine;
    mine.request();
    return () => mine.close();
  }, [api, procedure, JSON.stringify(request), interval]);
  useListener({
    events: (list) => { if (list.some(when)) refresher.current?.request(); },
    opened: () => refresher.current?.request(),
    gap: () => refresher.current?.request(),
    progress: () => { if (each && Date.now() - result.at >= each) refresher.current?.request(); },
  });
  return { ...result, refresh: () => refresher.current?.request() };
}

// concerns reports whether an event concerns a lock.
export function concerns(event, name) {
  return event.lock === name || event.locks?.includes(name);
}

// Wording: how names, times, numbers and situations are shown. All functions are pure.

// Characters that are invisible, that change the direction of text, or that look like nothing but a space. Opening
// brackets of escapes are escaped too, so that a name cannot imitate one.
const hidden = /[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u27e8]/gu;

// visible returns a text in which hidden characters are shown as ⟨U+202E⟩. Single spaces inside of it remain.
export function visible(text) {
  return String(text ?? "").replace(hidden, (found, at, whole) => {
    const inside = at > 0 && at < whole.length - 1 && whole[at - 1] !== " ";
    return found === " " && inside ? " " : `⟨U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

// shorten cuts a text to at most so many characters.
export function shorten(text, most) {
  const characters = [...text];
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}

// sentence returns an error message of a node as a sentence.
export function sentence(message) {
  const text = visible(message);
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

// number returns a whole number with separators. It keeps all digits of 64-bit numbers, which are strings.
export function number(value) {
  return String(value ?? 0).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

// count returns a number with its noun.
export function count(value, one, many = one + "s") {
  return `${number(value)} ${Number(value) === 1 ? one : many}`;
}

// duration returns milliseconds with the two largest units.
export function duration(ms) {
  const total = Math.max(0, Number(ms) || 0);
  if (total < 1000) return `${Math.round(total)} ms`;
  const s = Math.floor(total / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${pad(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// latency returns microseconds in a fitting unit.
export function latency(us) {
  const value = Number(us) || 0;
  if (value === 0) return "–";
  if (value < 1000) return `${value} µs`;
  return value < 100000 ? `${(value / 1000).toFixed(1)} ms` : `${Math.round(value / 1000)} ms`;
}

const pad = (n) => String(n).padStart(2, "0");

// clock returns the local time of day.
export function clock(unixMs) {
  const d = new Date(Number(unixMs));
  return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

// moment returns the local date and time.
export function moment(unixMs) {
  const d = new Date(Number(unixMs));
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${clock(unixMs)}`;
}

// program returns who runs a session's client, as its client claims: its name, else its host and process.
export function program(info) {
  return visible(info?.name) || place(info) || "unnamed";
}

// place returns where a session's client runs: its host and process, else its address.
export function place(info) {
  if (!info?.hostName) return visible(info?.address);
  return visible(info.hostName) + (info.pid ? `, pid ${info.pid}` : "");
}

// who returns the identity and the program behind a hold or a wait.
export function who(claim) {
  const identity = visible(claim.identity);
  const name = program(claim.client);
  return identity && identity !== "anonymous" ? `${identity} (${name})` : name;
}

// value returns the bytes of a hold's value, which are base64: as text if they are text, else in hexadecimal.
export function value(base64) {
  const bytes = Uint8Array.from(atob(base64 || ""), (c) => c.charCodeAt(0));
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    if (!/\p{Cc}/u.test(text.replace(/[\n\t]/g, ""))) return { text: text.split("\n").map(lineOf).join("\n"), bytes: bytes.length };
  } catch {
    // Not UTF-8.
  }
  const hex = Array.from(bytes, (b) => b.toString(16).padStart(2, "0"));
  return { text: hex.join(" "), bytes: bytes.length, binary: true };
}

// lineOf makes one line of a value visible, in which spaces are ordinary.
function lineOf(line) {
  return line.split(/([ \t]+)/).map((part) => (/^[ \t]/.test(part) ? part : visible(part))).join("");
}

const modes = { EXCLUSIVE: "exclusive", SHARED: "shared", PERMITS: "permits" };

// mode returns how a lock is held or asked for.
export function mode(claim) {
  return claim.mode === "PERMITS" ? count(claim.permits, "permit") : modes[claim.mode] ?? "exclusive";
}

// tokens returns the fencing token of a hold, or the first and the last one of a cached hold. They have 64 bits.
export function tokens(hold) {
  return hold.tokens > 0 ? `${hold.token}–${BigInt(hold.token) + BigInt(hold.tokens) - 1n}` : hold.token;
}

// cached says of a cached hold whether it was recalled, or else for how long it has been unused, as far as that is known.
// It returns "" for other holds. elapsed is the time since the hold was read, in milliseconds.
export function cached(hold, elapsed = 0) {
  if (!(hold.tokens > 0)) return "";
  if (hold.recalled) return "cached, recalled";
  return hold.idleMs === undefined ? "cached" : `cached, idle for ${duration(Number(hold.idleMs) + elapsed)}`;
}

// state returns the state of a lock in a few words, and its kind: free, held, shared or delayed.
export function state(lock) {
  const holders = Number(lock.holderCount);
  if (Number(lock.limit) > 0) {
    return { kind: holders ? "held" : "free", text: `${number(lock.permitsUsed)} of ${count(lock.limit, "permit")}` };
  }
  if (holders === 0) {
    return lock.delays?.length ? { kind: "delayed", text: "delayed" } : { kind: "free", text: "free" };
  }
  if (lock.holders[0]?.mode !== "SHARED") return { kind: "held", text: "exclusive" };
  return { kind: "shared", text: holders === 1 ? "shared" : `shared by ${number(holders)}` };
}

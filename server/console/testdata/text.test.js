import { test } from "node:test";
import { deepEqual, equal } from "node:assert/strict";
import { cached, duration, latency, number, place, program, state, tokens, value, visible, who } from "../ui/text.js";

const base64 = (bytes) => Buffer.from(bytes).toString("base64");

test("hidden characters are shown by their code", () => {
  for (const [text, shown] of [
    ["orders/42", "orders/42"],
    ["a\u202eb", "a⟨U+202E⟩b"],
    ["a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"],
    ["a\u200bb\ufeffc\u00add", "a⟨U+200B⟩b⟨U+FEFF⟩c⟨U+00AD⟩d"],
    ["a\nb\tc\u0000\u007f\u0085", "a⟨U+000A⟩b⟨U+0009⟩c⟨U+0000⟩⟨U+007F⟩⟨U+0085⟩"],
    ["a\u00a0b\u3000c\u2028d", "a⟨U+00A0⟩b⟨U+3000⟩c⟨U+2028⟩d"],
    ["a\u3164b\u115f\u034f", "a⟨U+3164⟩b⟨U+115F⟩⟨U+034F⟩"],
    ["a\u{e0041}b\u{10fffd}", "a⟨U+E0041⟩b⟨U+10FFFD⟩"],
    ["\ud800", "⟨U+D800⟩"],
    ["two words", "two words"],
    [" a  b ", "⟨U+0020⟩a ⟨U+0020⟩b⟨U+0020⟩"],
    ["⟨U+202E⟩", "⟨U+27E8⟩U+202E⟩"],
    ["<b>&amp;\"'", "<b>&amp;\"'"],
    ["größe/日本/😀", "größe/日本/😀"],
    [undefined, ""],
  ]) equal(visible(text), shown);
});

test("numbers keep all digits", () => {
  equal(number("18446744073709551615"), "18,446,744,073,709,551,615");
  equal(number(999), "999");
  equal(number(undefined), "0");
});

test("durations have two units at most", () => {
  for (const [ms, text] of [[0, "0 ms"], [999, "999 ms"], [1000, "1 s"], ["59999", "59 s"], [60000, "1 min 00 s"], [3599999, "59 min 59 s"],
    [3600000, "1 h 00 min"], [86399999, "23 h 59 min"], [90000000, "1 d 1 h"], [-5, "0 ms"]]) equal(duration(ms), text);
});

test("latencies have a fitting unit", () => {
  for (const [us, text] of [[0, "–"], [undefined, "–"], [870, "870 µs"], [1250, "1.3 ms"], [250000, "250 ms"]]) equal(latency(us), text);
});

test("values are shown as text only if they are text", () => {
  deepEqual(value(base64("10.0.0.1:80")), { text: "10.0.0.1:80", bytes: 11 });
  deepEqual(value(base64("a: 1\n  b: 2\n")), { text: "a: 1\n  b: 2\n", bytes: 12 });
  deepEqual(value(base64([0, 255, 16])), { text: "00 ff 10", bytes: 3, binary: true });
  deepEqual(value(base64([65, 255])), { text: "41 ff", bytes: 2, binary: true });
  deepEqual(value(base64("a\u001b[31m")), { text: "61 1b 5b 33 31 6d", bytes: 6, binary: true });
  equal(value(base64("x\u202ey")).text, "x⟨U+202E⟩y");
  equal(value(base64("\ufeffx")).text, "⟨U+FEFF⟩x");
  deepEqual(value(""), { text: "", bytes: 0 });
});

test("a client is named by what is known of it", () => {
  equal(program({ name: "refunds", hostName: "h", pid: 1 }), "refunds");
  equal(program({ name: "", hostName: "h", pid: 1 }), "h, pid 1");
  equal(program({ name: "", address: "10.0.0.1:4" }), "10.0.0.1:4");
  equal(program(undefined), "unnamed");
  equal(place({ hostName: "a\u202eb", pid: 7 }), "a⟨U+202E⟩b, pid 7");
  equal(who({ identity: "ann", client: { name: "refunds" } }), "ann (refunds)");
  equal(who({ identity: "anonymous", client: { name: "refunds" } }), "refunds");
});

test("a cached hold has a range of tokens", () => {
  equal(tokens({ token: "4611686018427387921", tokens: 0 }), "4611686018427387921");
  equal(tokens({ token: "4611686018427387921", tokens: 64 }), "4611686018427387921–4611686018427387984");
  equal(cached({ tokens: 0 }), "");
  equal(cached({ tokens: 1, recalled: false }), "cached");
  equal(cached({ tokens: 1, recalled: false, idleMs: "2500" }, 1000), "cached, idle for 3 s");
  equal(cached({ tokens: 1, recalled: true, idleMs: "2500" }), "cached, recalled");
});

test("the state of a lock", () => {
  const lock = { holderCount: "0", holders: [], limit: "0", permitsUsed: "0", delays: [] };
  deepEqual(state(lock), { kind: "free", text: "free" });
  deepEqual(state({ ...lock, delays: [{}] }), { kind: "delayed", text: "delayed" });
  deepEqual(state({ ...lock, holderCount: "1", holders: [{ mode: "EXCLUSIVE" }] }), { kind: "held", text: "exclusive" });
  deepEqual(state({ ...lock, holderCount: "3", holders: [{ mode: "SHARED" }] }), { kind: "shared", text: "shared by 3" });
  deepEqual(state({ ...lock, limit: "5", permitsUsed: "2", holderCount: "1", holders: [{}] }), { kind: "held", text: "2 of 5 permits" });
});

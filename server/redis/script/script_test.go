package script_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/script"
)

// actions are the names of the operations, by their numbers.
var actions = []string{"", "acquire", "acquire or extend", "extend", "add TTL", "release", "release all", "remaining", "read"}

// describe prints an operation: action, what it has, and the reply for each outcome in the form of RESP.
func describe(c script.Call) string {
	text := fmt.Sprintf("%s %q %q", actions[c.Action], c.Keys, c.Value)
	if c.CompareBytes != 0 {
		text += fmt.Sprintf(" first %d", c.CompareBytes)
	}
	if c.TTL != 0 {
		text += " " + c.TTL.String()
	}
	for outcome, name := range []string{"done", "extended", "absent", "other"} {
		if reply, ok := c.Replies[script.Outcome(outcome)]; ok {
			text += fmt.Sprintf("; %s %s", name, describeReply(reply))
		}
	}
	return text
}

func describeReply(r script.Reply) string {
	switch r.Kind {
	case script.Integer:
		return fmt.Sprintf(":%d", r.Integer)
	case script.Status:
		return "+" + r.Text
	case script.Bulk:
		return "$" + r.Text
	case script.Error:
		return "-" + r.Text
	}
	return []string{"nil", "", "", "", "value", "count", "keys", "pttl", "value and pttl"}[r.Kind]
}

// arguments makes keys a, b, ... and the arguments of a library's script.
func arguments(l library) (keys, argv [][]byte) {
	for i := range l.keys {
		keys = append(keys, []byte{byte('a' + i)})
	}
	return keys, values(l.argv...)
}

func values(all ...string) (argv [][]byte) {
	for _, arg := range all {
		argv = append(argv, []byte(arg))
	}
	return argv
}

func TestLibraries(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			s, err := script.Recognise([]byte(l.source))
			if err != nil {
				t.Fatal(err)
			}
			call, err := s.Bind(arguments(l))
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(call); got != l.want {
				t.Errorf("the script is %s, not %s", got, l.want)
			}
		})
	}
}

// TestSpellings verifies that names, white space, order and choice of commands do not matter.
func TestSpellings(t *testing.T) {
	for want, sources := range spellings {
		for _, source := range sources {
			s, err := script.Recognise([]byte(source))
			if err != nil {
				t.Errorf("%s: %v", source, err)
				continue
			}
			call, err := s.Bind(values("a"), values("v", "1000"))
			if err != nil {
				t.Errorf("%s: %v", source, err)
			} else if got := describe(call); got != want {
				t.Errorf("%s\nis %s, not %s", source, got, want)
			}
		}
	}
}

var spellings = map[string][]string{
	`release ["a"] "v"; done :1; absent :0; other :0`: {
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`,
		`if ARGV[1] ~= redis.call('get', KEYS[1]) then return 0 else return redis.pcall('unlink', KEYS[1]) end`,
		`local k, v = KEYS[1], ARGV[1] --[[ the key ]] local r = redis.call("Get", k)
			if not r or r ~= v then return 0 end redis.call("del", k) return 1`,
		`local call = redis.call return (call("get",KEYS[1])==ARGV[1]) and call("del",KEYS[1]) or 0;`,
		`local function mine(key) return redis.call("get", key) == tostring(ARGV[1]) end
			if mine(KEYS[1]) then return redis["call"]("del", KEYS[1]) else return 0 end`,
		`local n = 0 if redis.call([[get]], KEYS[1]) == ARGV[1] then n = redis.call("del", KEYS[1]) end return n`,
	},
	`extend ["a"] "v" 1s; done :1; absent :0; other :0`: {
		`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], tonumber(ARGV[2])) else return 0 end`,
		`if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end redis.call("set", KEYS[1], ARGV[1], "XX", "PX", ARGV[2]) return 1`,
		`local ttl = ARGV[2] if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("psetex", KEYS[1], ttl, ARGV[1]) return 1 end return 0`,
	},
	`acquire ["a"] "v" 1s; done +OK; other nil`: {
		`return redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])`,
		`return redis.call("set", KEYS[1], ARGV[1], "px", ARGV[2], "nx")`,
		`if redis.call("exists", KEYS[1]) == 1 then return end return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])`,
		`if redis.call("get", KEYS[1]) then return nil end redis.call("set", KEYS[1], ARGV[1])
			redis.call("pexpire", KEYS[1], ARGV[2]) return {ok = "OK"}`,
	},
}

// release is a script of many keys.
const release = `for _, k in ipairs(KEYS) do if redis.call("get",k) == ARGV[1] then redis.call("del",k) end end return 1`

// fourth does something else for the fourth key, with counters that only the loop itself compares.
const fourth = `local a, b, c = 0, 0, 0
	for _, k in ipairs(KEYS) do
		if c > 0 then return 9 end
		if b > 0 then c = c + 1 end
		if a > 0 then b = b + 1 end
		a = a + 1
		if redis.call("get",k) == ARGV[1] then redis.call("del",k) end
	end return 1`

// four releases the first four keys that are the caller's.
const four = `local function one()
		for _, k in ipairs(KEYS) do
			if redis.call("get",k) == ARGV[1] then redis.call("del",k) return end
		end
	end
	one() one() one() one() return 1`

// TestUnknownScripts verifies that other scripts are refused, with the reason.
func TestUnknownScripts(t *testing.T) {
	for source, reason := range map[string]string{
		``:                                   "it uses no key",
		`return 1`:                           "it uses no key",
		`return redis.call("get", KEYS[2])`:  "an index",
		`return redis.call("get", "config")`: "a key that is not in KEYS",
		`return redis.call("incr", KEYS[1])`: `it calls "INCR"`,
		`return redis.call("set", KEYS[1], ARGV[1])`:                                           "without a TTL",
		`return redis.call("setnx", KEYS[1], ARGV[1])`:                                         "without a TTL",
		`return redis.call("del", KEYS[1])`:                                                    "in a way that no lock does",
		`return redis.call("pexpire", KEYS[1], ARGV[1])`:                                       "in a way that no lock does",
		`return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])`:                            "in a way that no lock does",
		`return redis.call("set", KEYS[1], ARGV[1], "NX", "XX", "KEEPTTL")`:                    "unknown option",
		`return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2], "GET")`:                     "unknown option",
		`if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("hdel", KEYS[1], "x") end`:   `it calls "HDEL"`,
		`if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("del", KEYS[1]) x = 1 end`:   "global variable",
		`if redis.call("get", KEYS[1]) == ARGV[1] then redis.call("pexpire", KEYS[1], -1) end`: "neither a positive",
		`while redis.call("get", KEYS[1]) do end`:                                              "a loop",
		`for _, k in ipairs(KEYS) do for _, l in ipairs(KEYS) do end end`:                      "a loop in a loop",
		`for i, k in ipairs(KEYS) do if i == 3 then return 1 end end`:                          "compares",
		`local n = 0 for _, k in ipairs(KEYS) do n = n + 1 if n == 9 then return 1 end end`:    "compares",
		`local n = false for _, k in ipairs(KEYS) do if n then return 1 end n = true end`:      "does not count",
		`local k = unpack(KEYS) return redis.call("del", k)`:                                   "it unpacks",
		`redis.call("del", (unpack(KEYS)))`:                                                    "it unpacks",
		`for _, k in ipairs(KEYS) do redis.call("set", k, ARGV[1], "NX", "PX", ARGV[2]) end`:   "in a way that no lock does",
		fourth: "compares",
		four:   "changes keys in a loop",
		`if #KEYS > 1 and #KEYS > 2 and #KEYS > 3 then return 1 end ` + release:                 "compares",
		`if #KEYS == 9 then return redis.call("get", KEYS[1]) end`:                              "compares",
		`for _, k in ipairs(KEYS) do if redis.call("get", KEYS[1]) then return 1 end end`:       "both one key and all keys",
		`return redis.call("get", KEYS[1]) == ARGV[1] or redis.call("get", KEYS[1]) == ARGV[2]`: "two values",
		`if redis.call("get", KEYS[1]) == "\x41" then return 1 end`:                             "a backslash",
		`goto done ::done:: return redis.call("get", KEYS[1])`:                                  "a jump",
		`return {redis.call("get", KEYS[1]), , 1}`:                                              "a comma or semicolon follows another",
		`return {redis.call("get", KEYS[1]),; 1}`:                                               "a comma or semicolon follows another",
		"return (":                         "ends too early",
		"return 1\nlocal local":            "error in line 2",
		`return redis.call("get", KEYS[1]`: "cannot be parsed",
	} {
		_, err := script.Recognise([]byte(source))
		if !errors.Is(err, script.ErrUnknown) || !strings.Contains(fmt.Sprint(err), reason) {
			t.Errorf("%s\nis refused with %v, which does not say %q", source, err, reason)
		}
	}
}

// TestLimits verifies that large, deep and long scripts are refused, and soon.
func TestLimits(t *testing.T) {
	get := `return redis.call("get", KEYS[1])`
	for source, reason := range map[string]string{
		get + strings.Repeat(" ", script.MaxSource):                                                "bytes",
		"return " + strings.Repeat("(", 8000) + "1" + strings.Repeat(")", 8000):                    "",
		"return " + strings.Repeat("not ", 3000) + "1":                                             "nested too deeply",
		strings.Repeat("if true then ", 700) + strings.Repeat("end ", 700):                         "nested too deeply",
		strings.Repeat("local x ", 101):                                                            "local variables",
		strings.Repeat("local function f() return f() end ", 300):                                  "local variables",
		"for _, k in ipairs(KEYS) do " + strings.Repeat(`redis.call("get",k) `, 700) + "end":       "too long",
		"local x = redis.call('get', KEYS[1]) " + strings.Repeat(`if ARGV[1]=="a" then end `, 600): "",
		"local f = function(g) return g(g) end return f(f)":                                        "call each other",
		"local x = redis.call('get', KEYS[1]) " + conditions(20) + " return x":                     "too many arguments",
		"return " + strings.Repeat("{", 16000):                                                     "cannot be parsed",
	} {
		began := time.Now()
		_, err := script.Recognise([]byte(source))
		if reason != "" && (!errors.Is(err, script.ErrUnknown) || !strings.Contains(err.Error(), reason)) {
			t.Errorf("%.60s... is refused with %v, which does not say %q", source, err, reason)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%.60s... took %v", source, took)
		}
	}
}

// conditions returns tests of n arguments.
func conditions(n int) (source string) {
	for i := range n {
		source += fmt.Sprintf("if ARGV[%d] == 'a' then end ", i+1)
	}
	return source
}

// TestArguments verifies what Bind refuses, and that it says why.
func TestArguments(t *testing.T) {
	const (
		extend = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
		obtain = `if redis.call("set",KEYS[1],ARGV[1],"NX","PX",ARGV[3]) then return 1 end
			if redis.call("getrange",KEYS[1],0,ARGV[2]-1) == string.sub(ARGV[1],1,ARGV[2]) then
			redis.call("set",KEYS[1],ARGV[1],"PX",ARGV[3]) return 1 end`
		optional = `if ARGV[2] == "" then return redis.call("setnx",KEYS[1],ARGV[1]) end
			return redis.call("set",KEYS[1],ARGV[1],"NX","PX",ARGV[2])`
	)
	for _, test := range []struct {
		source string
		keys   string
		argv   []string
		want   string
	}{
		{extend, "", []string{"v", "1000"}, "no keys"},
		{extend, "a", []string{"v"}, "needs 2 arguments and has 1"},
		{extend, "a", []string{"v", ""}, `ARGV[2] is "": pass an integer`},
		{extend, "a", []string{"v", "01"}, "pass an integer"},
		{extend, "a", []string{"v", "+1"}, "pass an integer"},
		{extend, "a", []string{"v", "1.5"}, "pass an integer"},
		{extend, "a", []string{"v", "0"}, "the TTL is 0"},
		{extend, "a", []string{"v", "-1"}, "the TTL is -1"},
		{extend, "a", []string{"v", "9007199254740993"}, "pass an integer"},
		{extend, "a", []string{"v", "9007199254740992"}, "from 1 to 3153600000000"},
		{release, "", []string{"v"}, "no keys"},
		{release, "aba", []string{"v"}, `the key "a" twice`},
		{release, strings.Repeat("a", 1001), []string{"v"}, "1001 keys"},
		{obtain, "a", []string{"token", "0", "1000"}, "from 1 to the value's 5 bytes"},
		{obtain, "a", []string{"token", "6", "1000"}, "from 1 to the value's 5 bytes"},
		{obtain, "a", []string{"token", "x", "1000"}, "pass an integer"},
		{optional, "a", []string{"v", ""}, "without a TTL"},
	} {
		s, err := script.Recognise([]byte(test.source))
		if err != nil {
			t.Fatalf("%s: %v", test.source, err)
		}
		var keys [][]byte
		for _, key := range test.keys {
			keys = append(keys, []byte(string(key)))
		}
		if _, err := s.Bind(keys, values(test.argv...)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("keys %q and arguments %q: %v, which does not say %q", test.keys, test.argv, err, test.want)
		}
	}
}

func TestSHA1(t *testing.T) {
	// What redsync 4.18.1 sends with EVALSHA for its first script.
	if got, want := script.SHA1([]byte(libraries[0].source)), "e950836ed1e694540c503ef9972b8de518044d3b"; got != want {
		t.Errorf("the hash is %s, not %s", got, want)
	}
}

// FuzzRecognise verifies that no source and no arguments make the recogniser panic or run for long.
func FuzzRecognise(f *testing.F) {
	for _, l := range libraries {
		f.Add([]byte(l.source), []byte("v"), []byte("1000"))
	}
	f.Fuzz(func(t *testing.T, source, first, second []byte) {
		began := time.Now()
		s, err := script.Recognise(source)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if err != nil {
			if !errors.Is(err, script.ErrUnknown) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("the error is not of one line: %q", err)
			}
			return
		}
		argv := [][]byte{first, second, first, second}
		for _, keys := range [][][]byte{nil, values("a"), values("a", "b")} {
			call, err := s.Bind(keys, argv)
			switch {
			case err != nil && strings.ContainsAny(err.Error(), "\r\n"):
				t.Errorf("the error is not of one line: %q", err)
			case err == nil && (len(call.Keys) == 0 || len(call.Replies) == 0 || call.TTL < 0):
				t.Errorf("the call is %s", describe(call))
			}
		}
	})
}

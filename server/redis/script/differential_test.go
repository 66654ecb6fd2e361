package script_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/script"
)

var seed = flag.Uint64("seed", 0, "the seed of TestScriptsAsRedis; 0 is a random one")

// TestScriptsAsRedis compares scripts with a real Redis: the scripts of libraries, mutations of them and random ones. A
// script that is recognised must answer what Redis answers, and leave the same keys.
func TestScriptsAsRedis(t *testing.T) {
	r := startRedis(t)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for _, l := range libraries {
		compared := 0
		for range 3 {
			compared += compareWithRedis(t, r, rng, l.source, l.longTTL)
		}
		if compared == 0 {
			t.Errorf("%s was never executed", l.name)
		}
	}
	candidates := 4_000
	if os.Getenv("QUORUMLOCK_CHECK") == "1" {
		candidates = 40_000
	}
	var mutated, composed int
	for range candidates / 2 {
		arguments := func() [][]byte { return randomArguments(rng) }
		mutated += compareWithRedis(t, r, rng, mutate(rng, libraries[rng.IntN(len(libraries))].source), arguments)
		composed += compareWithRedis(t, r, rng, compose(rng), arguments)
	}
	t.Logf("compared %d executions of mutated and %d of random scripts", mutated, composed)
	if mutated < candidates/10 || composed < candidates/10 {
		t.Error("too few scripts are recognised for the comparison to mean something")
	}
}

// longTTL returns the arguments with a TTL that lasts longer than the comparison.
func (l library) longTTL() [][]byte {
	argv := values(l.argv...)
	for i, arg := range l.argv {
		if arg == "1000" || arg == "10" {
			argv[i] = []byte("20000")
		}
	}
	return argv
}

// compareWithRedis executes a script several times, here and in Redis. It returns how often.
func compareWithRedis(t *testing.T, r *redis, rng *rand.Rand, source string, arguments func() [][]byte) (executions int) {
	t.Helper()
	s, err := script.Recognise([]byte(source))
	if err != nil {
		return 0
	}
	for range 8 {
		argv := arguments()
		var keys [][]byte
		for i := range 1 + rng.IntN(5) {
			keys = append(keys, []byte{byte('a' + i)})
		}
		call, err := s.Bind(keys, argv)
		if err != nil || call.TTL != 0 && call.TTL < 10*time.Second {
			continue
		}
		executions++
		before := randomKeys(rng, keys, call)
		r.compareExecution(t, source, keys, argv, call, before)
		if t.Failed() {
			t.Fatalf("%s\nwith %q\nis %s\nfor keys %v", source, argv, describe(call), before)
		}
	}
	return executions
}

// compareExecution executes a script with keys that have certain values before.
func (r *redis) compareExecution(t *testing.T, source string, keys, argv [][]byte, call script.Call, before keyspace) {
	t.Helper()
	r.load(t, before)
	after := maps.Clone(before)
	want := after.execute(caller{call})
	command := []string{"EVAL", source, strconv.Itoa(len(keys))}
	for _, arg := range slices.Concat(keys, argv) {
		command = append(command, string(arg))
	}
	got, err := r.do(command...)
	if err != nil || !sameAnswer(got, want) {
		t.Errorf("Redis answers %q (%v), not %q", got, err, want)
	}
	r.compare(t, keys, after)
}

// tolerance is how much less a TTL may be after execution than as set. All TTLs of the test differ by more.
const tolerance = 9 * time.Second

// sameAnswer compares answers. Last integers above a thousand are remaining times.
func sameAnswer(got, want string) bool {
	prefix, g := number(got)
	wantPrefix, w := number(want)
	return prefix == wantPrefix && (g == w || w > 1000 && g < w && g > w-int(tolerance.Milliseconds()))
}

// number splits an answer that ends with an integer.
func number(answer string) (prefix string, n int) {
	i := strings.LastIndexByte(answer, ':')
	if n, err := strconv.Atoi(answer[i+1:]); i >= 0 && err == nil {
		return answer[:i], n
	}
	return answer, 0
}

// load makes the keys in Redis what they are here.
func (r *redis) load(t *testing.T, keys keyspace) {
	t.Helper()
	r.must(t, "FLUSHALL")
	for key, e := range keys {
		r.must(t, "SET", key, e.value, "PX", strconv.FormatInt(e.ttl.Milliseconds(), 10))
	}
}

// compare compares the keys in Redis with those here.
func (r *redis) compare(t *testing.T, keys [][]byte, here keyspace) {
	t.Helper()
	if n := r.must(t, "DBSIZE"); n != fmt.Sprintf(":%d", len(here)) {
		t.Errorf("Redis has %s keys, not %d", n, len(here))
	}
	for _, key := range keys {
		e, exists := here[string(key)]
		if !exists {
			e.ttl = -2 * time.Millisecond
		}
		want := map[bool]string{true: "$" + e.value, false: "$-1"}[exists]
		if got := r.must(t, "GET", string(key)); got != want {
			t.Errorf("key %s is %q in Redis, not %q", key, got, want)
		}
		if got := r.must(t, "PTTL", string(key)); !sameAnswer(got, fmt.Sprintf(":%d", e.ttl.Milliseconds())) {
			t.Errorf("the TTL of key %s is %s in Redis, not %d", key, got, e.ttl.Milliseconds())
		}
	}
}

// randomKeys returns some of the keys, with values that the operation compares with.
func randomKeys(rng *rand.Rand, keys [][]byte, call script.Call) keyspace {
	own := string(call.Value)
	other := []string{"other", "", "false", own + "x", strings.TrimSuffix(own, "a"), own[:call.CompareBytes] + "-other"}
	all := keyspace{}
	bias := rng.IntN(3) // all absent, all own, or a mixture, more or less
	for i, key := range keys {
		e := entry{own, time.Duration(100+20*i+rng.IntN(2)*200) * time.Second}
		if n := rng.IntN(8); n > 1 && bias == 0 || n == 0 {
			continue
		} else if n == 1 || bias == 2 && n < 5 {
			e.value = other[rng.IntN(len(other))]
		}
		all[string(key)] = e
	}
	return all
}

// randomArguments returns a value, a TTL and further arguments.
func randomArguments(rng *rand.Rand) [][]byte {
	value := []string{"v", "token-meta", "20000", "0", "1", "locked", "", "false", "OK"}
	further := []string{"0", "1", "2", "5", "20000", "40000", "-1", "01", "x", "", "token-meta"}
	argv := []string{value[rng.IntN(len(value))], []string{"20000", "40000"}[rng.IntN(2)]}
	if rng.IntN(10) == 0 {
		argv[1] = further[rng.IntN(len(further))]
	}
	for range 2 {
		argv = append(argv, further[rng.IntN(len(further))])
	}
	return values(argv...)
}

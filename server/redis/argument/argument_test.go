package argument

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/redis/resp"
)

func words(text string) [][]byte { return bytes.Fields([]byte(text)) }

// TestSetOptions checks the options of SET, and that contradictory ones are refused.
func TestSetOptions(t *testing.T) {
	for text, want := range map[string]Set{
		"":            {},
		"NX PX 10":    {Absent: true, TTL: 10},
		"ex 2 xx get": {Present: true, Get: true, TTL: 2000},
		"nx nx":       {Absent: true},
	} {
		if got, err := ParseSet(words(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]resp.Error{
		"NX XX": ErrSyntax, "XX NX": ErrSyntax, "PX": ErrSyntax, "PX 1 PX 1": ErrSyntax, "PX 1 EX 1": ErrSyntax, "Y": ErrSyntax,
		"PX 1x": ErrInteger, "PX +1": ErrInteger, "PX 0": BadExpire("set"), "EX -1": BadExpire("set"),
		"KEEPTTL": Unsupported("SET with KEEPTTL"), "PXAT 5": Unsupported("SET with PXAT"),
	} {
		if got, err := ParseSet(words(text)); err != want {
			t.Errorf("%q: %+v, %v, want %v", text, got, err, want)
		}
	}
}

// TestMilliseconds checks that no TTL wraps around.
func TestMilliseconds(t *testing.T) {
	for _, test := range []struct {
		text string
		unit time.Duration
		want uint32
	}{
		{"1", time.Millisecond, 1}, {"1", time.Second, 1000}, {"4294967295", time.Millisecond, math.MaxUint32}, {"4294967296", time.Millisecond, math.MaxUint32},
		{"4294967", time.Second, 4_294_967_000}, {"4294968", time.Second, 4_294_967_000}, {"9223372036854775807", time.Second, 4_294_967_000},
	} {
		if got, err := Milliseconds([]byte(test.text), test.unit, "set"); err != nil || got != test.want {
			t.Errorf("%s × %v: %d, %v, want %d", test.text, test.unit, got, err, test.want)
		}
	}
}

// FuzzArguments checks that no arguments make a parser panic, that errors are replies, and that what is accepted keeps
// the promises of the types.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"NX PX 100", "1 k v", "3 AUTH u p SETNAME n", "PX 5 WAIT 7", "-1", "", "EX 99999999999999999999", "xx\x00ex\x005"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		args := bytes.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == 0 })
		reply := func(err error) bool {
			if err == nil {
				return true
			}
			if _, ok := errors.AsType[resp.Error](err); !ok {
				t.Fatalf("%q: %v is no reply", args, err)
			}
			return false
		}
		if set, err := ParseSet(args); reply(err) && set.Absent && set.Present {
			t.Fatalf("%q: %+v", args, set)
		}
		if ttl, _, err := ParseLock(args); reply(err) && ttl == 0 {
			t.Fatalf("%q has no TTL", args)
		}
		if hello, err := ParseHello(args); reply(err) && (hello.Auth != nil && len(hello.Auth) != 2 || len(args) > 0 && hello.Version != 2 && hello.Version != 3) {
			t.Fatalf("%q: %+v", args, hello)
		}
		if len(args) > 0 {
			keys, argv, err := SplitKeys(args)
			if reply(err) && len(keys)+len(argv) != len(args)-1 {
				t.Fatalf("%q: %q and %q", args, keys, argv)
			}
		}
	})
}

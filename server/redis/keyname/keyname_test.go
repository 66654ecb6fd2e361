package keyname

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func names(t testing.TB, prefix string) Names {
	t.Helper()
	n, err := New(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNames checks the names of keys, and that they lead back.
func TestNames(t *testing.T) {
	for _, test := range []struct {
		prefix string
		db     int
		key    string
		name   string
	}{
		{"", 0, "lock:orders:42", "lock:orders:42"},
		{"", 0, "a/b", "a/b"},
		{"", 0, "größe/鍵", "größe/鍵"},
		{"", 3, "a/b", "db3/a/b"},
		{"", 0, "db3/a", "%64b3/a"},
		{"", 3, "db3/a", "db3/db3/a"},
		{"", 0, "db3", "db3"},
		{"", 0, "db/a", "db/a"},
		{"", 0, "100%", "100%25"},
		{"", 0, "%41", "%2541"},
		{"", 0, "", "%"},
		{"", 15, "", "db15/%"},
		{"", 0, "/", "%2F"},
		{"", 0, "/a", "%2Fa"},
		{"", 0, "a/", "a%2F"},
		{"", 0, "a//b", "a%2F/b"},
		{"", 0, "a///b", "a%2F%2F/b"},
		{"", 0, ".", "%2E"},
		{"", 0, "..", "%2E."},
		{"", 0, "a/../b", "a/%2E./b"},
		{"", 0, "...", "..."},
		{"", 0, "a\x00\x1f\x7f\u0085", "a%00%1F%7F%C2%85"},
		{"", 0, "a\xff", "a%FF"},
		{"redis/", 0, "a", "redis/a"},
		{"redis/", 2, "a", "redis/db2/a"},
		{"redis/", 0, "db2/a", "redis/%64b2/a"},
		{"redis:", 0, "/a", "redis:%2Fa"},
		{"x/.", 0, ".", "x/.%2E"},
		{"x/.", 0, "./b", "x/.%2E/b"},
	} {
		n := names(t, test.prefix)
		got, err := n.Name(test.db, []byte(test.key))
		if err != nil || got != test.name {
			t.Errorf("%q in %d: %q, %v, want %q", test.key, test.db, got, err, test.name)
		}
		if db, key, ok := n.Key(test.name); !ok || db != test.db || string(key) != test.key {
			t.Errorf("%q leads back to %q in %d, %t", test.name, key, db, ok)
		}
	}
}

// TestNoKeys checks names that are those of no key, and keys and prefixes that have no names.
func TestNoKeys(t *testing.T) {
	n := names(t, "p/")
	for _, name := range []string{"a", "p/db0/a", "p/db16/a", "p/db99999999999999999999/a", "p/db03/a", "p/%41", "p/%2", "p/%zz", "p/a%2fb", "p/", "p/a/%"} {
		if db, key, ok := n.Key(name); ok {
			t.Errorf("%q is the key %q in %d", name, key, db)
		}
	}
	if _, err := n.Name(0, []byte(strings.Repeat("x", wire.MaxNameBytes-1))); err == nil || !strings.Contains(err.Error(), "at most 512") {
		t.Errorf("a long key: %v", err)
	}
	if _, err := n.Name(0, bytes.Repeat([]byte{0}, 171)); err == nil {
		t.Error("a key that is long when it is encoded has a name")
	}
	for _, prefix := range []string{"/", "a//", "\x00", "../", strings.Repeat("x", wire.MaxNameBytes)} {
		if _, err := New(prefix); err == nil {
			t.Errorf("the prefix %q is allowed", prefix)
		}
	}
}

// FuzzKeyName checks that each key of each database has a valid name of its own.
func FuzzKeyName(f *testing.F) {
	for _, key := range []string{"lock:orders:42", "a//b/", "db3/x", "%64b3/x", "..", "", "\xff\x00", "a/./b", "%"} {
		f.Add("", uint8(0), []byte(key))
		f.Add("redis/", uint8(3), []byte(key))
		f.Add("x/.", uint8(0), []byte(key))
	}
	f.Fuzz(func(t *testing.T, prefix string, db uint8, key []byte) {
		n, err := New(prefix)
		if err != nil {
			return
		}
		name, err := n.Name(int(db)%Databases, key)
		if err != nil {
			if 3*len(key)+len(prefix)+len("db15/") <= wire.MaxNameBytes {
				t.Fatalf("%q: %v", key, err)
			}
			return
		}
		if err := wire.ValidName(name); err != nil {
			t.Fatal(err)
		}
		if back, again, ok := n.Key(name); !ok || back != int(db)%Databases || !bytes.Equal(again, key) {
			t.Fatalf("%q in %d is %q, which is %q in %d, %t", key, db, name, again, back, ok)
		}
	})
}

package ports

import (
	"net"
	"testing"
)

func TestBlocksAreApart(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		for _, addr := range For(t, 5) {
			if seen[addr] {
				t.Errorf("%s was given to two", addr)
			}
			seen[addr] = true
		}
	}
}

func TestBlockSkipsPortsInUse(t *testing.T) {
	b, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	taken, err := net.Listen("tcp", loopback(b.next))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	given := 0
	for {
		addr, err := b.Take()
		if err != nil {
			break
		}
		if addr == taken.Addr().String() {
			t.Error("a port that is taken was given")
		}
		given++
	}
	if given != size-2 {
		t.Errorf("%d ports were given, want all but the owner's and the one that is taken", given)
	}
}

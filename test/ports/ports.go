package ports

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// The ports are below the range that systems use for outgoing connections. In that range, a port could be
// taken while its node is down, or a client could connect to itself.
const (
	firstPort = 15_000
	size      = 32
	blocks    = 530
)

// Block is one of the blocks. The process that listens on its first port owns it.
type Block struct {
	owned net.Listener
	next  int
}

// Reserve reserves a block, until Release.
func Reserve() (*Block, error) {
	for range blocks {
		first := firstPort + size*rand.IntN(blocks)
		if l, err := net.Listen("tcp", loopback(first)); err == nil {
			return &Block{owned: l, next: first + 1}, nil
		}
	}
	return nil, errors.New("no block of ports is free on loopback")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Take returns a free address. A block has 31.
func (b *Block) Take() (string, error) {
	for b.next%size != firstPort%size {
		addr := loopback(b.next)
		b.next++
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("the block of ports is used up")
}

// Release releases the block.
func (b *Block) Release() { _ = b.owned.Close() }

// For returns n addresses of a block that is reserved for the test.
func For(t testing.TB, n int) []string {
	t.Helper()
	b, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Release)
	addrs := make([]string, n)
	for i := range addrs {
		if addrs[i], err = b.Take(); err != nil {
			t.Fatal(err)
		}
	}
	return addrs
}

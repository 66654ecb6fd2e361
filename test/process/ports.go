package process

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports lie below the range from which systems take those of outgoing connections: there,
// a port could be gone while its node is down, or a client could reach itself. They come
// in blocks, so that clusters of processes which test at the same time keep apart.
const (
	firstPort  = 15_000
	blockPorts = 32
	blocks     = 530
)

// ports is a block. Whoever listens on its first port owns it.
type ports struct {
	owned net.Listener
	next  int
}

func reservePorts() (*ports, error) {
	for range blocks {
		first := firstPort + blockPorts*rand.IntN(blocks)
		if l, err := net.Listen("tcp", loopback(first)); err == nil {
			return &ports{owned: l, next: first + 1}, nil
		}
	}
	return nil, errors.New("no block of ports is free on loopback")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// take returns an address that nobody listens on.
func (p *ports) take() (string, error) {
	for p.next%blockPorts != firstPort%blockPorts {
		addr := loopback(p.next)
		p.next++
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("the cluster's block of ports is used up")
}

func (p *ports) release() { _ = p.owned.Close() }

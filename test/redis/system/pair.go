package system

import (
	"net"
	"strings"
	"testing"
)

// Pair is a Redis primary with a replica that takes over, as managed Redis services run it. Its entries lead to the
// primary, and to the replica once it has taken over.
type Pair struct {
	primary, replica *Server
	link             *Balancer // from the replica to the primary
	entries          [2]*Balancer
}

// StartPair starts a primary and a replica that follows it. They end with the test.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	p := &Pair{primary: StartServer(t), replica: StartServer(t)}
	p.link = Balance(t, p.primary.Addr)
	for i := range p.entries {
		p.entries[i] = Balance(t, p.primary.Addr)
	}
	host, port, err := net.SplitHostPort(p.link.Addr)
	if err != nil {
		t.Fatal(err)
	}
	p.replica.Do("REPLICAOF", host, port)
	p.replica.Await("replication", func(answer any) bool {
		info, _ := answer.(string)
		return strings.Contains(info, "master_link_status:up")
	}, "INFO", "replication")
	return p
}

// Entries returns the two addresses.
func (p *Pair) Entries() [2]Entry {
	return [2]Entry{{"first", p.entries[0].Addr}, {"second", p.entries[1].Addr}}
}

// Lag holds back what the primary sends to the replica. Replication is asynchronous: clients get their answers.
func (p *Pair) Lag() { p.link.Stall() }

// Fail kills the primary and lets the replica take over.
func (p *Pair) Fail() {
	p.primary.Kill()
	p.replica.Do("REPLICAOF", "NO", "ONE")
	for _, entry := range p.entries {
		entry.Redirect(p.replica.Addr)
	}
}

// Interrupt ends all connections of clients.
func (p *Pair) Interrupt() {
	for _, entry := range p.entries {
		entry.Interrupt()
	}
}

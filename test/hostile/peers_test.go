package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// usurped is the term that intruders claim.
const usurped = 1_000

// intruder calls the peer port as raft would, with the certificate that it has. It continues after its hello
// is refused, so that the rest is really sent.
type intruder struct {
	name   string
	config *tls.Config // nil means plaintext
	id     string      // the node that it claims to be
	// log is what the node must log about it.
	log []string

	hello *wire.PeerHello
	reply *wire.PeerHelloReply // nil if there was none
	local string
}

// Dial implements raft.StreamLayer.
func (i *intruder) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := transport.Dial(ctx, nil, string(addr), i.config)
	if err != nil {
		return nil, err
	}
	i.local = conn.LocalAddr().String()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if err := transport.NewFrameWriter(conn, 1<<20).WriteFirst(i.hello); err != nil {
		return nil, err
	}
	var reply wire.PeerHelloReply
	if err := transport.NewFrameReader(conn, 1<<20).Read(&reply); err == nil {
		i.reply = &reply
	}
	return conn, nil
}

// Accept implements raft.StreamLayer. Nobody connects to an intruder.
func (i *intruder) Accept() (net.Conn, error) { return nil, net.ErrClosed }

// Close implements raft.StreamLayer.
func (i *intruder) Close() error { return nil }

// Addr implements raft.StreamLayer.
func (i *intruder) Addr() net.Addr { return &net.TCPAddr{} }

// usurp announces a new leader in a later term to the node. A node that accepts it answers with that term.
func (i *intruder) usurp(c *cluster) (term uint64, err error) {
	i.hello = c.peerHello(wire.PeerHello_RAFT)
	i.hello.Id = i.id
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: i, Timeout: timeout, MaxPool: 1})
	defer trans.Close()
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(i.id), Addr: []byte("127.0.0.1:1")},
		Term:      usurped,
	}
	var resp raft.AppendEntriesResponse
	err = trans.AppendEntries(raft.ServerID(i.id), raft.ServerAddress(c.leader.addr[peerPort]), req, &resp)
	return resp.Term, err
}

// intruders have every kind of wrong certificate.
func intruders(t *testing.T, c *cluster) []*intruder {
	t.Helper()
	ca := filepath.Join(c.certs, "ca.crt")
	if _, err := pki.Extend(c.certs, "c2", []pki.Node{{ID: "n7"}}, nil); err != nil { // same authority, other cluster
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if _, err := pki.Init(foreign, clusterName, []pki.Node{{ID: "n9"}}, nil); err != nil {
		t.Fatal(err)
	}
	own := func(pair string) *tls.Config { return identityOf(t, filepath.Join(c.certs, pair), ca) }
	tlsFault, certFault := []string{`reason="tls"`}, []string{`reason="certificate"`}
	none, err := transport.TLSFiles{CA: ca}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	all := []*intruder{
		{name: "plaintext", id: "n9", log: tlsFault},
		{name: "no certificate", config: none, id: "n9", log: append(tlsFault, "didn't provide a certificate")},
		{name: "another authority", config: identityOf(t, filepath.Join(foreign, "nodes/n9/peer"), ca), id: "n9", log: append(tlsFault, "unknown authority")},
		{name: "another node's", config: own("nodes/n8/peer"), id: "n9", log: append(certFault, `names node \"n8\"`)},
		{name: "another node's, as the node itself", config: own("nodes/n8/peer"), id: "n1", log: certFault},
		{name: "another cluster's", config: own("nodes/n7/peer"), id: "n7", log: append(certFault, `of cluster \"c2\"`)},
		{name: "a client's", config: own("clients/app/client"), id: "n9", log: append(certFault, "names no node")},
		{name: "a client's, as it is called", config: own("clients/app/client"), id: "app", log: certFault},
		{name: "a node's that was never added", config: own("nodes/n9/peer"), id: "n9", log: []string{`reason="unknown"`, "add it to the cluster first"}},
		{name: "a server's", config: own("nodes/n9/server"), id: "n9", log: append(tlsFault, "incompatible key usage")},
	}
	for _, i := range all {
		if i.config != nil {
			i.config.InsecureSkipVerify = true // peers' certificates contain node names, not addresses
		}
	}
	return all
}

// testIntruders expects that no intruder reaches raft: each is refused, logged and counted, and neither term
// nor log changes. TestStrangersAreRefused verifies that these checks would detect it.
func testIntruders(t *testing.T, c *cluster) {
	state := func() string {
		m := c.leader.metrics()
		return fmt.Sprintf("term %v, committed %v, leads %v", m["quorumlock_term"], m["quorumlock_commit_index"], m["quorumlock_is_leader"])
	}
	before := state()
	all := intruders(t, c)
	for _, i := range all {
		term, err := i.usurp(c)
		if err == nil {
			t.Errorf("%s: raft answered with term %d", i.name, term)
		}
		if i.reply != nil && i.reply.GetStatus() != wire.Status_FAILED_PRECONDITION {
			t.Errorf("%s: the hello was answered with %v", i.name, i.reply)
		}
		if !logged(t, c.leader, append(i.log, i.local, "refused a connection to the peer port")...) {
			t.Errorf("%s: the log does not say %q of %s", i.name, i.log, i.local)
		}
		if after := state(); after != before {
			t.Errorf("%s: %s, before %s", i.name, after, before)
		}
	}
	t.Logf("%d intruders later: %s", len(all), state())
	refused := 0
	for name, count := range c.leader.metrics() {
		if strings.HasPrefix(name, "quorumlock_peer_connections_refused_total") {
			refused += int(count)
		}
		if strings.HasPrefix(name, "quorumlock_peer_connections_accepted_total") && count != 0 {
			t.Errorf("%s is %v", name, count)
		}
	}
	if refused != len(all) {
		t.Errorf("%d connections to the peer port were counted as refused, %d were", refused, len(all))
	}

}

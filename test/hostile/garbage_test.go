package hostile

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// helloLimit is the size limit of an unauthenticated peer's first frame.
	helloLimit = 4 << 10
	// startGroup begins an unknown group of field 1, which nests at one byte per level.
	startGroup = 0x0b

	getRequest = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
)

// clientHello is the first message of a TLS client.
var clientHello = func() []byte {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "x"}).Handshake() // it gets no reply
		_ = near.Close()
	}()
	hello := make([]byte, 5)
	if _, err := io.ReadFull(far, hello); err != nil {
		panic("a TLS client that says nothing: " + err.Error())
	}
	body := make([]byte, int(hello[3])<<8|int(hello[4]))
	if _, err := io.ReadFull(far, body); err != nil {
		panic("a TLS client that stops: " + err.Error())
	}
	return append(hello, body...)
}()

// framedGarbage returns attacks on the client port's protocol.
func framedGarbage() []attack {
	hello := encoded(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}})
	alien := first(encoded(&wire.PeerHello{Version: 1, Purpose: wire.PeerHello_RAFT, Id: "n2", TargetId: "n1"}))
	all := []attack{
		{name: "noise", send: noise(4096), log: []string{"not the quorumlock protocol"}},
		{name: "an HTTP request", send: []byte(getRequest), log: []string{"looks like HTTP"}},
		{name: "a TLS hello", send: clientHello, log: []string{"looks like TLS"}},
		{name: "another version of the framing", send: []byte(transport.Preface[:7] + "\x02"), log: []string{"another version"}},
		{name: "a hello between nodes", send: alien, log: []string{"the first frame has to be a hello"}},
		{name: "a hello of 4 GiB", send: prefaced(length(1<<32 - 1)), log: []string{"claims 4294967295 bytes"}},
		{name: "a hello just over the limit", send: prefaced(length(helloLimit + 1)), log: []string{"claims 4097 bytes, the limit is 4096"}},
		{name: "a hello of noise", send: first(noise(512)), log: []string{"malformed frame"}},
		{name: "a nested hello", send: first(repeat(startGroup, helloLimit)), log: []string{"malformed frame"}},
		{name: "an empty hello", send: first(nil), log: []string{"the first frame has to be a hello"}},
		{name: "version 0", send: first([]byte{0x0a, 0}), log: []string{"offer a protocol version"}},
		{name: "half a preface", send: []byte(transport.Preface[:4]), fin: true, log: []string{"not the quorumlock protocol"}},
		{name: "half a hello", send: prefaced(torn(100, 10)), fin: true, log: []string{"unexpected EOF"}},
		{name: "half a hello, and silence", send: prefaced(torn(100, 10)), within: handshakeTime, log: []string{"deadline exceeded"}},

		{name: "then 4 GiB", greeted: true, send: length(1<<32 - 1), log: []string{"FRAME_TOO_LARGE", "4294967295"}},
		{name: "then just over the limit", greeted: true, send: length(1<<20 + 1), log: []string{"FRAME_TOO_LARGE", "claims 1048577 bytes, the limit is 1048576"}},
		{name: "then noise", greeted: true, send: frame(noise(5000)), log: []string{"PROTOCOL_ERROR", "malformed"}},
		{name: "then a nested frame", greeted: true, send: frame(repeat(startGroup, 1<<20)), log: []string{"PROTOCOL_ERROR", "malformed"}},
		{name: "then another hello", greeted: true, send: frame(hello), log: []string{"PROTOCOL_ERROR", "expected a request"}},
		{name: "then an empty frame", greeted: true, send: frame(nil), log: []string{"PROTOCOL_ERROR", "expected a request"}},
		{name: "then half a frame", greeted: true, send: torn(1<<20, 10), fin: true},
		{name: "then half a frame, and silence", greeted: true, send: torn(1<<20, 100_000), within: frameTime, log: []string{"PROTOCOL_ERROR", "did not arrive in time"}},
		{name: "then silence", greeted: true, within: idleTime * 3 / 2},
	}
	return on(clientPort, all)
}

// peerGarbage returns attacks on the protocol between nodes, by a caller that TLS accepts.
func peerGarbage(c *cluster) []attack {
	hello := func(change func(*wire.PeerHello)) []byte {
		h := c.peerHello(wire.PeerHello_RAFT)
		change(h)
		return first(encoded(h))
	}
	early := append(hello(func(*wire.PeerHello) {}), 1)
	clientsHello := first(encoded(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}}))
	all := []attack{
		{name: "noise", send: noise(4096), log: []string{`reason="protocol"`, "not the quorumlock protocol"}},
		{name: "an HTTP request", send: []byte(getRequest), log: []string{`reason="protocol"`, "looks like HTTP"}},
		{name: "a TLS hello", send: clientHello, log: []string{`reason="protocol"`, "looks like TLS"}},
		{name: "a client's hello", send: clientsHello, log: []string{`reason="version"`}},
		{name: "a hello of 4 GiB", send: prefaced(length(1<<32 - 1)), log: []string{`reason="protocol"`, "claims 4294967295"}},
		{name: "a hello just over the limit", send: prefaced(length(helloLimit + 1)), log: []string{`reason="protocol"`, "the limit is 4096"}},
		{name: "a hello of noise", send: first(noise(512)), log: []string{`reason="protocol"`, "malformed"}},
		{name: "a nested hello", send: first(repeat(startGroup, helloLimit)), log: []string{`reason="protocol"`, "malformed"}},
		{name: "an empty hello", send: first(nil), log: []string{`reason="version"`}},
		{name: "half a hello", send: prefaced(torn(100, 10)), fin: true, log: []string{`reason="gone"`}},
		{name: "half a hello, and silence", send: prefaced(torn(100, 10)), within: handshakeTime, log: []string{`reason="timeout"`}},
		{name: "more than a hello", send: early, log: []string{`reason="protocol"`, "before the hello was answered"}},
		{name: "no purpose", send: hello(func(h *wire.PeerHello) { h.Purpose = 7 }), log: []string{`reason="protocol"`, "unknown purpose"}},
		{name: "no name", send: hello(func(h *wire.PeerHello) { h.Id = "" }), log: []string{`reason="protocol"`, "who is calling"}},
		{name: "another cluster", send: hello(func(h *wire.PeerHello) { h.ClusterId = "c2" }), log: []string{`reason="cluster"`}},
		{name: "another target", send: hello(func(h *wire.PeerHello) { h.TargetId = "n7" }), log: []string{`reason="target"`}},
		{name: "another target's disk", send: hello(func(h *wire.PeerHello) { h.TargetIncarnation = "x" }), log: []string{`reason="target"`}},

		{name: "then 4 GiB", greeted: true, send: length(1<<32 - 1)},
		{name: "then noise", greeted: true, send: frame(noise(5000))},
		{name: "then a nested call", greeted: true, send: frame(repeat(startGroup, 200_000))},
		{name: "then half a call", greeted: true, send: torn(200_000, 100), fin: true},
	}
	if c.certs == "" { // with TLS, the name would be rejected earlier
		all = append(all, attack{
			name: "another incarnation", send: hello(func(h *wire.PeerHello) { h.Id = c.other().id }), log: []string{`reason="incarnation"`},
		})
	}
	return on(peerPort, all)
}

// other returns a node that does not lead.
func (c *cluster) other() *node {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n != c.leader })]
}

// httpGarbage returns attacks on HTTP. With TLS, a node does not see how a connection begins.
func httpGarbage(c *cluster) []attack {
	const none = "without a request"
	bad, long := "400 Bad Request", "431"
	if c.certs != "" {
		bad, long = "malformed", "malformed"
	}
	post := func(headers string) string {
		return "POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers + "\r\n"
	}
	all := []attack{
		{name: "noise", send: append(noise(512), "\n\n"...), log: []string{none, bad}},
		{name: "a client's hello", send: append(first([]byte{0x0a, 0}), "\r\n\r\n"...), log: []string{none, bad}},
		{name: "half a preface", send: []byte(transport.Preface), within: headerTime, log: []string{none}},
		{name: "headers too long", send: []byte("GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 64<<10)), log: []string{none, long}},
		{name: "a line without end", send: repeat('G', 64<<10), log: []string{none}},
		{name: "half a request", send: []byte(getRequest[:len(getRequest)-2]), within: headerTime, log: []string{none}},
		{name: "half a body, and silence", send: []byte(post("Content-Length: 100\r\n") + "{"), within: bodyTime, log: []string{"did not arrive"}},
		{name: "a body of 4 GiB, and silence", send: []byte(post("Content-Length: 4294967295\r\n") + "{"), within: bodyTime, log: []string{"did not arrive"}},
		{name: "a chunk of 4 GiB, and silence", send: []byte(post("Transfer-Encoding: chunked\r\n") + "ffffffff\r\n{"), within: bodyTime, log: []string{"did not arrive"}},
		{name: "HTTP/2 that stops after its preface", h2: true, send: []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), within: headerTime, log: []string{none}},
		{name: "HTTP/2 of noise", h2: true, send: append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), noise(4096)...), log: []string{none}},
	}
	return on(httpPort, all)
}

// redisGarbage returns attacks on the protocol of Redis.
func redisGarbage() []attack {
	const ping, half = "PING\r\n", "*2\r\n$4\r\nECHO\r\n$1000\r\nx"
	return on(redisPort, []attack{
		{name: "noise", send: noise(4096), fin: true},
		{name: "an HTTP request", send: []byte("POST / HTTP/1.1\r\nHost: x\r\n\r\n" + ping), log: []string{"connection refused", "speaks HTTP"}},
		{name: "4 billion arguments", send: []byte("*4294967295\r\n"), log: []string{"connection refused", "invalid multibulk length"}},
		{name: "an argument of 4 GiB", send: []byte("*1\r\n$4294967295\r\n"), log: []string{"connection refused", "invalid bulk length"}},
		{name: "a line without end", send: repeat('G', 64<<10), log: []string{"connection refused", "too big inline request"}},
		{name: "then an argument of 4 GiB", send: []byte(ping + "*1\r\n$4294967295\r\n"), log: []string{"connection ended", "invalid bulk length"}},
		{name: "half a command", send: []byte(half), fin: true},
		{name: "half a command, and silence", send: []byte(half), within: handshakeTime, log: []string{"connection refused", "came in time"}},
		{name: "then half a command, and silence", send: []byte(ping + half), within: frameTime, log: []string{"connection ended", "did not arrive in time"}},
		{name: "then silence", send: []byte(ping), within: idleTime * 3 / 2},
	})
}

// beneath returns attacks on TLS itself.
func beneath(p port, tlsFault, timeout []string) []attack {
	within := handshakeTime
	if p == httpPort {
		within = headerTime
	}
	all := []attack{
		{name: "noise beneath TLS", send: noise(4096), log: tlsFault},
		{name: "an HTTP request in plaintext", send: []byte(getRequest), log: tlsFault},
		{name: "a client's hello in plaintext", send: first([]byte{0x0a, 0}), log: tlsFault},
		{name: "a TLS hello cut short", send: clientHello[:len(clientHello)/2], fin: true, log: []string{}},
		{name: "half a TLS hello, and silence", send: clientHello[:len(clientHello)/2], within: within, log: timeout},
		{name: "a whole TLS hello, and silence", send: clientHello, within: within, log: timeout},
	}
	for i := range all {
		all[i].raw = true
	}
	return on(p, all)
}

func on(p port, all []attack) []attack {
	for i := range all {
		all[i].port = p
		all[i].name = string(p) + ": " + all[i].name
	}
	return all
}

// garbage returns all attacks that use a single connection.
func garbage(c *cluster) []attack {
	all := slices.Concat(framedGarbage(), peerGarbage(c), httpGarbage(c), redisGarbage())
	if c.certs == "" {
		return append(all, attack{name: "http: a TLS hello", port: httpPort, send: clientHello, fin: true, log: []string{"without a request"}})
	}
	return slices.Concat(all,
		beneath(clientPort, []string{"connection refused", "tls: "}, []string{"connection refused", "deadline exceeded"}),
		beneath(redisPort, []string{"connection refused", "tls: "}, []string{"connection refused", "deadline exceeded"}),
		beneath(peerPort, []string{`reason="tls"`}, []string{`reason="timeout"`}),
		beneath(httpPort, []string{"TLS handshake error"}, []string{"TLS handshake error", "timeout"}))
}

// testGarbage runs them: the quick ones one after the other on each port, so that log sampling leaves a line
// for each; those that wait, concurrently.
func testGarbage(t *testing.T, c *cluster) {
	quick := map[port][]attack{}
	for _, a := range garbage(c) {
		if a.within == 0 {
			quick[a.port] = append(quick[a.port], a)
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			a.run(t, c)
		})
	}
	for p, attacks := range quick {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			for _, a := range attacks {
				t.Run(a.name, func(t *testing.T) { a.run(t, c) })
			}
		})
	}
}

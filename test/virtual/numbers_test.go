package virtual_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestNumbersOpenNoDoor sends every request of the schema as every party, with every kind of number, to every port: over
// frames to the leader, through a tunnel, and to a follower, also with stale; over HTTP to both. It compares the answers
// and the number of denials that the nodes report with what the specification says. A request that is added to the
// schema takes part without a change, unless the test cannot build it.
func TestNumbersOpenNoDoor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		g := newGoverned(t)
		for _, name := range parties {
			p := g.parties[name]
			for _, at := range []string{"leader", "follower", "tunnel"} {
				p.connect(at)
				for n := range numbers {
					p.framed(at, n)
				}
			}
			for _, at := range []*node{g.leader, g.follower} {
				for n := range numbers {
					p.overHTTP(at, n)
				}
				p.secrets(at)
			}
		}
	})
}

// framed sends every request that can have that number over the connection, together, and then those that have the field
// stale again with it.
func (p *party) framed(at string, n number) {
	p.send(at, n, "", p.bodies(n, false))
	if at == "follower" {
		p.send(at, n, " (stale)", p.bodies(n, true))
	}
}

// bodies returns every body of a frame that can have that number.
func (p *party) bodies(n number, stale bool) (all []*wire.Request) {
	fields := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		body := p.examples[string(fields.Get(i).Message().Name())]
		if stale {
			field := fields.Get(i).Message().Fields().ByName("stale")
			if field == nil {
				continue
			}
			body = proto.CloneOf(body)
			body.ProtoReflect().Set(field, protoreflect.ValueOfBool(true))
		}
		session, seq, exists := p.numberOf(kindOf(body), n)
		if !exists {
			continue
		}
		req := &wire.Request{SessionId: session, Seq: seq}
		req.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfMessage(body.ProtoReflect()))
		all = append(all, req)
	}
	return all
}

// send sends requests and judges their answers.
func (p *party) send(at string, n number, how string, all []*wire.Request) {
	p.g.t.Helper()
	before, denied := p.g.denials(), 0
	for i, resp := range p.conn.calls(all) {
		body := bodyOf(all[i])
		may, known := mayAsk(p.name, body)
		if !known {
			p.g.t.Errorf("%s: the test does not know what its right is", body.ProtoReflect().Descriptor().Name())
		}
		want := framedVerdict(may, at != "follower", body, n)
		p.judge(fmt.Sprintf("%s sends %s with %v to the %s%s", p.name, body.ProtoReflect().Descriptor().Name(), n, at, how),
			want, n, kindOf(body), resp.GetResult())
		if resp.GetBody() != nil && want.status != 0 {
			p.g.t.Errorf("%s gets a body: %v", p.name, resp)
		}
		if want.status == wire.Status_PERMISSION_DENIED {
			denied++
		}
	}
	if got := p.g.denials() - before; got != denied {
		p.g.t.Errorf("%s with %v at the %s%s: %d denials were reported, want %d", p.name, n, at, how, got, denied)
	}
}

// judge compares an answer with the verdict.
func (p *party) judge(what string, want verdict, n number, kind string, got *wire.Result) {
	p.g.t.Helper()
	switch {
	case want.outcome:
		first := p.outcomes[n][kind]
		if got.GetStatus() != first.GetStatus() || got.GetHoldId() != first.GetHoldId() || got.GetToken() != first.GetToken() || got.GetRevision() != first.GetRevision() {
			p.g.t.Errorf("%s: %v, want the first outcome, %v", what, got, first)
		}
	case want.status == 0:
		if got.GetStatus() == wire.Status_PERMISSION_DENIED {
			p.g.t.Errorf("%s: %v, want no denial", what, got)
		}
	case got.GetStatus() != want.status:
		p.g.t.Errorf("%s: %v, want %v", what, got, want.status)
	case want.status == wire.Status_INVALID_ARGUMENT && kind != "" && n != none && !strings.Contains(got.GetMessage(), "was used for another request"):
		p.g.t.Errorf("%s: %v, which does not say why", what, got)
	}
}

// secrets sends what is recognized by its secret: opens and acquires of leases with the party's own secret, with that of
// another request, and with that of another identity.
func (p *party) secrets(at *node) {
	p.g.t.Helper()
	lease := func(secret, name string) *wire.AcquireLeaseRequest {
		return &wire.AcquireLeaseRequest{Secret: []byte(secret), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}}
	}
	open := func(secret string) *wire.OpenRequest { return &wire.OpenRequest{Secret: []byte(secret)} }
	mine, victim := p.secret("lease"), p.g.victim
	for _, one := range []struct {
		what    string
		request proto.Message
		retry   bool
		status  wire.Status_Code // if it is allowed
	}{
		{"its own lease", lease(mine, p.lock()+"/leased"), true, wire.Status_OK},
		{"another acquire with its lease's secret", lease(mine, rights.Lock), false, wire.Status_INVALID_ARGUMENT},
		{"a lease with its session's secret", lease(p.secret("A"), rights.Lock), false, wire.Status_INVALID_ARGUMENT},
		{"somebody else's lease", lease(victim.secret("lease"), rights.Lock), false, wire.Status_PERMISSION_DENIED},
		{"its own session", open(p.secret("B")), true, wire.Status_OK},
		{"a session with its lease's secret", open(mine), false, wire.Status_INVALID_ARGUMENT},
		{"somebody else's session", open(victim.secret("A")), false, wire.Status_PERMISSION_DENIED},
	} {
		name := string(one.request.ProtoReflect().Descriptor().Name())
		may, _ := mayAsk(p.name, p.examples[name])
		want := one.status
		if !may && !one.retry {
			want = wire.Status_PERMISSION_DENIED
		}
		before := p.g.denials()
		got, _ := p.post(at, p.g.procedures[name], one.request)
		if got.GetStatus() != want {
			p.g.t.Errorf("%s asks %s over HTTP for %s: %v, want %v", p.name, at.id, one.what, got, want)
		}
		if denied := p.g.denials() > before; denied != (want == wire.Status_PERMISSION_DENIED) {
			p.g.t.Errorf("%s asks %s over HTTP for %s: denial reported: %v", p.name, at.id, one.what, denied)
		}
	}
}

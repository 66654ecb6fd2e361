package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// keyTTL is the TTL of keys on a stage.
const keyTTL = time.Second

// port is a stage with the Redis port of a member, n1.
type port struct {
	*stage
	seq uint64
}

func newPort(t *testing.T) *port {
	p := &port{stage: newStage(t)}
	p.pass(time.Second)
	return p
}

// asks sends a request of a Redis client, which takes effect while its reply is on the way.
func (p *port) asks(action history.KeyAction, value string, execute func() (done bool, token uint64)) *history.KeyRequest {
	p.t.Helper()
	k := &history.KeyRequest{Client: "redis", Action: action, Lock: "x", Value: value, Call: p.now, Outcome: history.OK}
	if action != history.ReleaseKey && action != history.ReadToken {
		k.TTL = keyTTL
	}
	p.records = append(p.records, history.Record{Key: k})
	p.now += oneWay
	k.Done, k.Token = execute()
	p.now += oneWay
	k.Return = p.now
	return k
}

// changes sends a request that changes the key.
func (p *port) changes(action wire.ChangeKeys_Action, value string) *history.KeyRequest {
	p.t.Helper()
	return p.asks(keyActions[action], value, func() (bool, uint64) {
		p.seq++
		r := p.change(action, value, p.seq)
		return r.Status == wire.Status_GRANTED || r.Status == wire.Status_OK, 0
	})
}

// change commits a change of the key under a number of n1.
func (p *port) change(action wire.ChangeKeys_Action, value string, seq uint64) *wire.Result {
	p.t.Helper()
	op := &wire.ChangeKeys{Action: action, Names: []string{"x"}, Value: []byte(value), NodeId: "n1", Boot: 1, Seq: seq}
	if action != wire.ChangeKeys_RELEASE {
		op.TtlMs = uint32(keyTTL.Milliseconds())
	}
	return p.apply(&wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: op}})
}

// token returns the key's token.
func (p *port) token() uint64 {
	k, _ := p.machine.Key("x")
	return k.Token
}

// waits sends a request that waits for the key until meanwhile has ended, and returns it.
func (p *port) waits(value string, meanwhile func()) *history.KeyRequest {
	p.t.Helper()
	return p.asks(history.AwaitKey, value, func() (bool, uint64) {
		p.await(value)
		meanwhile()
		p.confirm(value)
		return true, p.token()
	})
}

// confirm gives a key that was granted after a wait its TTL, as the node that has the client does.
func (p *port) confirm(value string) {
	p.t.Helper()
	if s, found := p.machine.SessionBySecret(hashOf([]byte(value))); !found || !s.Unconfirmed {
		return
	}
	k, _ := p.machine.Key("x")
	p.apply(&wire.Command{Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{SecretHash: hashOf([]byte(value)), HoldId: k.HoldID}}})
}

// await commits an acquire of the key that waits.
func (p *port) await(value string) {
	p.t.Helper()
	p.apply(&wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
		SecretHash: hashOf([]byte(value)), TtlMs: uint32(keyTTL.Milliseconds()), OwnerValue: []byte(value),
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, WaitForever: true},
	}}})
}

// keeps records a hold of the key.
func (p *port) keeps(k *history.KeyRequest, until time.Duration) *history.Hold {
	h := &history.Hold{Client: k.Client, Value: k.Value, Locks: history.Exclusive("x"), Asked: k.Call, Granted: k.Return, Ended: until}
	p.records = append(p.records, history.Record{Hold: h})
	return h
}

// expires lets the key expire at the end of its TTL.
func (p *port) expires() {
	p.t.Helper()
	k, _ := p.machine.Key("x")
	p.expire(k.Session)
}

// played are the requests and holds of a history with keys.
type played struct {
	*port
	acquired, refused, extended, token, released, late, waited, lapsed *history.KeyRequest
	first, second, third                                               *history.Hold
}

// contention is a port whose key is acquired, refused, extended and released, then held by a session while a Redis
// client waits for it, and finally expires.
func contention(t *testing.T) *played {
	p := &played{port: newPort(t)}
	p.acquired = p.changes(wire.ChangeKeys_ACQUIRE, "a")
	p.refused = p.changes(wire.ChangeKeys_ACQUIRE, "b")
	p.token = p.asks(history.ReadToken, "a", func() (bool, uint64) { return true, p.port.token() })
	p.extended = p.changes(wire.ChangeKeys_EXTEND, "a")
	p.first = p.keeps(p.acquired, p.now)
	p.released = p.changes(wire.ChangeKeys_RELEASE, "a")
	p.first.Released = true
	p.late = p.changes(wire.ChangeKeys_RELEASE, "a")
	session := p.open(ttl)
	grant := p.lock(session, "x")
	from := p.now
	p.waited = p.waits("c", func() {
		p.second = p.holds(session, grant, history.Exclusive("x"), from, p.now)
		p.release(session, grant)
	})
	p.third = p.keeps(p.waited, p.now+keyTTL-20*time.Millisecond)
	p.pass(keyTTL)
	p.expires()
	p.lapsed = p.changes(wire.ChangeKeys_RELEASE, "c")
	p.closes(session)
	return p
}

func TestTrueHistoryOfKeys(t *testing.T) {
	counts := contention(t).accepted()
	least := Counts{KeyRequests: 7, KeyHolds: 2, KeyWaits: 1, KeyExpiries: 1, Holds: 3}
	if err := counts.Enough(least); err != nil {
		t.Error(err)
	}
	if counts.Enough(Counts{KeyRetries: 1}) == nil {
		t.Error("a run without a repeated request counts as one with")
	}
}

// TestForgedReplies changes one detail that a Redis client received or did, or that the log contains, and expects a
// fault.
func TestForgedReplies(t *testing.T) {
	for what, forge := range map[string]struct {
		fault string
		forge func(p *played)
	}{
		"acquired, and was refused":     {"no such outcome", func(p *played) { p.refused.Done = true }},
		"refused, and was acquired":     {"no such outcome", func(p *played) { p.acquired.Done = false }},
		"an error, and was acquired":    {"no client asked for it", func(p *played) { p.acquired.Outcome = history.Fail }},
		"never asked for":               {"no client asked for it", func(p *played) { p.acquired.Action = history.ReleaseKey; p.acquired.Outcome = history.Fail }},
		"another value":                 {"no such outcome", func(p *played) { p.extended.Value = "b" }},
		"extended, and was not":         {"no such outcome", func(p *played) { p.late.Action = history.ExtendKey; p.late.Done = true }},
		"not extended, and was":         {"no such outcome", func(p *played) { p.extended.Done = false }},
		"released twice":                {"no such outcome", func(p *played) { p.late.Done = true }},
		"released after its expiry":     {"no such outcome", func(p *played) { p.lapsed.Done = true }},
		"not released, and was":         {"no such outcome", func(p *played) { p.released.Done = false }},
		"released before the request":   {"no such outcome", func(p *played) { p.released.Call, p.released.Return = p.now, p.now }},
		"acquired after the reply":      {"no such outcome", func(p *played) { p.acquired.Call, p.acquired.Return = 0, 0 }},
		"a wait's token":                {"no such outcome", func(p *played) { p.waited.Token++ }},
		"a wait that ended, and got it": {"no such outcome", func(p *played) { p.waited.Done, p.waited.Token = false, 0 }},
		"a token of nobody":             {"that is the token of", func(p *played) { p.token.Token += 100 }},
		"a token of another":            {"that is the token of", func(p *played) { p.token.Token = p.waited.Token }},
		"a token read too late":         {"after its end", func(p *played) { p.token.Call, p.token.Return = p.now, p.now }},
		"a token read too early":        {"before its grant", func(p *played) { p.token.Action, p.token.Call, p.token.Return = history.ReadToken, -1, -1 }},
		"a reply from a past": {"already", func(p *played) {
			at := p.refused.Return + 1
			p.acquired.Call, p.acquired.Return = at, at
			p.bounds.Slack = time.Second
		}},
		"what the log has lost":      {"no such outcome", func(p *played) { p.entries = p.entries[:3] }},
		"a longer TTL":               {"the key expired by", func(p *played) { p.waited.TTL *= 2 }},
		"two at once":                {"is held at", func(p *played) { p.overlap() }},
		"two at once, within slack":  {"is held at", func(p *played) { p.overlap(); p.bounds.Slack = time.Second }},
		"held beyond its expiry":     {"it expired at", func(p *played) { p.third.Ended = p.now }},
		"a hold under another token": {"no such grant", func(p *played) { p.first.Token = p.waited.Token }},
		"a hold of another value":    {"no such grant", func(p *played) { p.first.Value = "b" }},
		"a hold before the reply":    {"no such grant", func(p *played) { p.third.Granted = p.waited.Return - 1 }},
		"a hold before its acquire":  {"no such grant", func(p *played) { p.third.Asked = p.now }},
		"released, and expired late": {"only (revision", func(p *played) {
			p.bounds.Commit = time.Nanosecond
			p.pass(time.Minute)
			p.again(wire.ChangeKeys_ACQUIRE)
			p.pass(time.Hour)
			p.expires()
		}},
		"expired early": {"was ended at", func(p *played) { p.again(wire.ChangeKeys_ACQUIRE); p.pass(keyTTL / 2); p.expires() }},
		"still held at the end": {"is not over at", func(p *played) {
			p.again(wire.ChangeKeys_ACQUIRE)
			p.pass(time.Hour)
			p.changes(wire.ChangeKeys_RELEASE, "nobody's")
		}},
		"extended by nobody": {"no client asked for it", func(p *played) {
			p.again(wire.ChangeKeys_ACQUIRE)
			p.seq++
			p.change(wire.ChangeKeys_EXTEND, "d", p.seq)
		}},
		"a request executed twice": {"no client asked for it", func(p *played) {
			p.again(wire.ChangeKeys_ACQUIRE)
			p.again(wire.ChangeKeys_RELEASE)
			p.seq++
			p.change(wire.ChangeKeys_ACQUIRE, "d", p.seq)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			p := contention(t)
			forge.forge(p)
			p.stage.refused(forge.fault)
		})
	}
}

// overlap lets another client acquire the key before the last one has given it up.
func (p *played) overlap() {
	p.t.Helper()
	next := p.changes(wire.ChangeKeys_ACQUIRE, "d")
	p.keeps(next, next.Return+1)
	p.third.Ended = next.Return + 1
}

// again changes the key once more, for a client with the value "d".
func (p *port) again(action wire.ChangeKeys_Action) { p.changes(action, "d") }

// TestUnansweredRequestForAKey verifies that a request without a reply is accepted whether or not it was executed.
func TestUnansweredRequestForAKey(t *testing.T) {
	p := contention(t)
	for _, k := range []*history.KeyRequest{p.refused, p.extended, p.late} {
		k.Outcome, k.Done, k.Return = history.Unknown, false, history.Never
	}
	p.accepted()
}

// TestReleaseThatIsDelayed verifies that a client which has sent a release does not hold its key any more, even if the
// release takes effect late and without a reply, and that it does otherwise.
func TestReleaseThatIsDelayed(t *testing.T) {
	p := newPort(t)
	delayed := p.asks(history.ReleaseKey, "a", func() (bool, uint64) { return false, 0 })
	delayed.Outcome, delayed.Return = history.Unknown, history.Never
	first := p.changes(wire.ChangeKeys_ACQUIRE, "a")
	p.keeps(first, first.Call+keyTTL)
	p.seq++
	p.change(wire.ChangeKeys_RELEASE, "a", p.seq)
	p.pass(oneWay)
	second := p.changes(wire.ChangeKeys_ACQUIRE, "b")
	p.keeps(second, second.Call+keyTTL)
	p.accepted()
	delayed.Call = second.Return - 1
	p.stage.refused("is held at")
}

// TestRepeatedRequestForAKey verifies that a node may repeat a request, and that a repeated one must not take effect
// again.
func TestRepeatedRequestForAKey(t *testing.T) {
	p := contention(t)
	p.again(wire.ChangeKeys_ACQUIRE)
	p.change(wire.ChangeKeys_ACQUIRE, "d", p.seq)
	p.again(wire.ChangeKeys_RELEASE)
	if c := p.accepted(); c.KeyRetries != 1 {
		t.Errorf("%d requests were repeated, want 1", c.KeyRetries)
	}
	r := newReplay(Input{History: &history.History{}})
	for revision := range uint64(2) {
		r.steps = append(r.steps, step{
			revision: revision + 1, said: &wire.Result{Status: wire.Status_OK}, events: []*wire.Event{{Type: wire.Event_RELEASED}},
			cmd: &wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{}}}, request: nodeRequest{"n1", 0, 1, 1},
		})
	}
	if faults := toldKeys(r); len(faults) != 1 || !strings.Contains(faults[0], "again") {
		t.Errorf("%q for a request that took effect twice", faults)
	}
}

// TestGrantThatExpiresBeforeItsReply verifies that a node may repeat a wait whose key has expired before the node learned
// of the grant, but only while its client waits.
func TestGrantThatExpiresBeforeItsReply(t *testing.T) {
	p := newPort(t)
	var repeated time.Duration
	k := p.waits("a", func() {
		p.pass(keyTTL)
		p.expires()
		p.pass(time.Second)
		repeated = p.now
		p.await("a")
	})
	p.keeps(k, k.Return+oneWay)
	p.changes(wire.ChangeKeys_RELEASE, "a")
	p.accepted()
	k.Call = repeated
	p.stage.refused("no client asked for it")
}

// TestExtensionThatExpiresBeforeItsReply verifies that a node may repeat an extension whose key has expired since, which is
// refused then, but not one whose key is still held.
func TestExtensionThatExpiresBeforeItsReply(t *testing.T) {
	p := newPort(t)
	p.changes(wire.ChangeKeys_ACQUIRE, "a")
	p.asks(history.ExtendKey, "a", func() (bool, uint64) {
		p.seq++
		p.change(wire.ChangeKeys_EXTEND, "a", p.seq)
		p.pass(keyTTL)
		p.expires()
		p.pass(time.Second)
		p.change(wire.ChangeKeys_EXTEND, "a", p.seq)
		return false, 0
	})
	if c := p.accepted(); c.KeyRetries != 1 {
		t.Errorf("%d requests were repeated, want 1", c.KeyRetries)
	}
	r := newReplay(Input{History: &history.History{}})
	for i, said := range []wire.Status_Code{wire.Status_OK, wire.Status_NOT_HELD} {
		r.steps = append(r.steps, step{
			revision: uint64(i) + 1, said: &wire.Result{Status: said, Token: 7},
			cmd: &wire.Command{Op: &wire.Command_ChangeKeys{ChangeKeys: &wire.ChangeKeys{}}}, request: nodeRequest{"n1", 0, 1, 1},
		})
	}
	if faults := toldKeys(r); len(faults) != 1 || !strings.Contains(faults[0], "was refused while the key was held") {
		t.Errorf("%q for a repetition that was refused", faults)
	}
}

// TestNodeThatWasRemoved verifies that a node which was removed and added again may count its requests from 1 again.
func TestNodeThatWasRemoved(t *testing.T) {
	p := newPort(t)
	p.again(wire.ChangeKeys_ACQUIRE)
	p.apply(&wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: "n1"}}})
	p.apply(&wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: "n1", Incarnation: "i2", Level: 1}}}})
	p.seq = 0
	p.again(wire.ChangeKeys_RELEASE)
	if c := p.accepted(); c.KeyRetries != 0 {
		t.Errorf("%d requests were repeated, want none", c.KeyRetries)
	}
}

// TestRecordedTTL verifies that after an election a key lasts as long as was recorded, and no shorter than its TTL.
func TestRecordedTTL(t *testing.T) {
	for what, c := range map[string]struct {
		lasts    time.Duration
		extended bool // after what remained was read
		fault    string
	}{
		"as long as recorded":        {700 * time.Millisecond, false, ""},
		"shorter":                    {650 * time.Millisecond, false, "was ended at"},
		"as long as a TTL":           {keyTTL, false, "only (revision"},
		"as long as before":          {700 * time.Millisecond, true, "was ended at"},
		"as long as it was extended": {keyTTL, true, ""},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPort(t)
			p.bounds.Commit = 100 * time.Millisecond
			p.again(wire.ChangeKeys_ACQUIRE)
			p.pass(200 * time.Millisecond)
			k, _ := p.machine.Key("x")
			if c.extended {
				p.again(wire.ChangeKeys_EXTEND)
			}
			p.apply(&wire.Command{Op: &wire.Command_RecordRemaining{RecordRemaining: &wire.RecordRemaining{
				Term: p.term, Keys: []*wire.RecordRemaining_Remaining{{SessionId: k.Session, Generation: k.Generation, RemainingMs: 700}},
			}}})
			p.pass(150 * time.Millisecond)
			p.lead()
			p.pass(c.lasts)
			p.expires()
			if c.fault == "" {
				p.accepted()
			} else {
				p.stage.refused(c.fault)
			}
		})
	}
}

package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/retry"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestEverySessionNeedsItsSecret verifies that every procedure that names a session checks its secret before
// anything is proposed.
func TestEverySessionNeedsItsSecret(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if named := methodOf(procedure).Input().Fields().ByName("session") != nil; named != p.session {
			t.Fatalf("a session is named: %v", named)
		}
		if !p.session {
			return
		}
		ann, bob := st.open("ann"), st.open("bob")
		leased := st.c.must(&wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{
			SecretHash: hashOf("0123456789abcdef"), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l"}}},
		}}}).GetSessionId()
		rest := strings.TrimSuffix(","+p.body, ",")
		const long = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==" // 64 bytes
		for _, test := range []struct {
			creds  string
			http   int
			status wire.Status_Code
			says   string
		}{
			{strings.Replace(ann.creds, fmt.Sprintf(`"%d"`, ann.num), fmt.Sprintf(`"%d"`, bob.num), 1), 403, wire.Status_PERMISSION_DENIED, "secret"},
			{fmt.Sprintf(`"session":{"sessionId":%d,"secret":%q}`, ann.num, long), 403, wire.Status_PERMISSION_DENIED, "secret"},
			{fmt.Sprintf(`"session":{"sessionId":%d,"secret":"%sMDA="}`, ann.num, strings.TrimRight(long, "=")+"MD"), 400, wire.Status_INVALID_ARGUMENT, "64"},
			{fmt.Sprintf(`"session":{"sessionId":%d,"secret":"MDEyMzQ1Njc4OWFiY2Rl"}`, ann.num), 400, wire.Status_INVALID_ARGUMENT, "16"},
			{fmt.Sprintf(`"session":{"sessionId":%d}`, ann.num), 400, wire.Status_INVALID_ARGUMENT, "secret"},
			{`"session":{"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`, 400, wire.Status_INVALID_ARGUMENT, "session is missing"},
			{`"session":null`, 400, wire.Status_INVALID_ARGUMENT, "session is missing"},
			{fmt.Sprintf(`"session":{"sessionId":%d,"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`, leased), 400, wire.Status_INVALID_ARGUMENT, "LeaseService"},
		} {
			got := st.ask(procedure, `{`+test.creds+rest+`}`).reply()
			if message := got.refused(test.http, test.status); !strings.Contains(message, test.says) {
				t.Errorf("%s: %q", test.creds, message)
			}
			st.none()
			st.nothingSent()
		}
	})
}

// TestUnknownSessionIsProved verifies that a session is reported as lost, which is final, only after a proof
// of leadership.
func TestUnknownSessionIsProved(t *testing.T) {
	const unknown = `"session":{"sessionId":"99","secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if !p.session {
			return
		}
		body := `{` + unknown + strings.TrimSuffix(","+p.body, ",") + `}`
		a := st.ask(procedure, body)
		proof := st.expect("Prove")
		a.waits()
		proof.apply().answer()
		a.reply().refused(http.StatusNotFound, wire.Status_SESSION_LOST)

		for _, status := range []wire.Status_Code{wire.Status_UNAVAILABLE, wire.Status_INTERNAL} {
			a = st.ask(procedure, body)
			st.expect("Prove").is(&wire.Result{Status: status})
			a.reply().refused(httpOf[status], status)
		}
		for _, status := range []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_UNCERTAIN, wire.Status_UNAVAILABLE} {
			a = st.ask(procedure, body)
			proof = st.expect("Prove")
			st.follow("n2")
			proof.is(&wire.Result{Status: status})
			st.sentOn().with(http.StatusTeapot, "")
			if got := a.reply(); got.status != http.StatusTeapot {
				t.Errorf("%v: answered %d %s", status, got.status, got.body)
			}
			st.c.lead("n1")
		}
		a = st.ask(procedure, body)
		st.expect("Prove")
		a.hangUp()
		if got := a.reply(); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "no proof") {
			t.Errorf("hung up: %d %s", got.status, got.body)
		}
		// It is opened during the proof, and was unknown to this node before.
		ann := st.open("ann")
		st.c.must(&wire.Command{SessionId: ann.num, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
		next := ann.num + 1
		a = st.ask(procedure, strings.Replace(body, `"99"`, fmt.Sprint(next), 1))
		proof = st.expect("Prove")
		st.c.must(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hashOf("0123456789abcdef")}}})
		proof.apply().answer()
		st.expect(p.first).withdraw()
		if got := a.reply(); got.status == http.StatusNotFound {
			t.Errorf("a session that exists: %s", got.body)
		}
	})
}

// TestEverySecretHasItsLength covers the procedures that are identified by a secret alone.
func TestEverySecretHasItsLength(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if methodOf(procedure).Input().Fields().ByName("secret") == nil {
			return
		}
		for length, want := range map[int]bool{0: false, 15: false, 16: true, 64: true, 65: false} {
			secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", length)))
			a := st.ask(procedure, "{"+strings.Replace(p.body, someSecret, `"secret":"`+secret+`"`, 1)+"}")
			if !want {
				a.reply().refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
				st.none()
				continue
			}
			s := st.expect(p.first)
			if !strings.Contains(fmt.Sprintf("%q", s.cmd), "secret_hash") || strings.Contains(fmt.Sprint(s.cmd), "xxxxxxxx") {
				t.Errorf("proposed %v", s.cmd)
			}
			s.withdraw()
		}
	})
}

func TestEverySeqIsChecked(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if numbered := methodOf(procedure).Input().Fields().ByName("seq") != nil; numbered != p.numbered {
			t.Fatalf("numbered: %v", numbered)
		}
		if !p.numbered {
			return
		}
		ann := st.open("ann")
		body := func(seq, acked uint64) string {
			return strings.Replace(p.full(ann), `"seq":7`, fmt.Sprintf(`"seq":%d,"ackedBelow":%d`, seq, acked), 1)
		}
		for _, bad := range [][2]uint64{{0, 0}, {1 << 62, 1}, {1<<64 - 1, 1}, {1, 1 << 62}, {1<<62 | 1, 0}} {
			st.ask(procedure, body(bad[0], bad[1])).reply().refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
			st.none()
		}
		for _, good := range [][2]uint64{{1, 0}, {1<<62 - 1, 1<<62 - 1}, {1, 1}} {
			a := st.ask(procedure, body(good[0], good[1]))
			s := st.expect(p.first)
			if s.cmd.GetSeq() != good[0] || s.cmd.GetAckedBelow() != good[1] || s.cmd.GetSessionId() != ann.num || s.conn != any(st.conn) {
				t.Errorf("proposed %v", s.cmd)
			}
			s.withdraw()
			a.reply()
		}
	})
}

// TestAnswersBelowTheMarkAreAcknowledged verifies that the outcomes of waits below the caller's mark are
// acknowledged by number, across gaps of limited length, and no more of them than a command may carry.
func TestAnswersBelowTheMarkAreAcknowledged(t *testing.T) {
	for _, test := range []struct {
		seqs  []uint64
		below uint64
		want  []uint64
	}{
		{[]uint64{1, 2, 3}, 0, nil},
		{[]uint64{1, 2, 3}, 1, nil},
		{[]uint64{1, 2, 3}, 2, []uint64{1}},
		{[]uint64{1, 2, 3}, 4, []uint64{3, 2, 1}},
		{[]uint64{1}, 1 + retry.GapEnds, []uint64{1}},
		{[]uint64{1}, 2 + retry.GapEnds, nil},
		{[]uint64{1, 1 + retry.GapEnds}, 2 + 2*retry.GapEnds - 1, []uint64{1 + retry.GapEnds, 1}},
		{[]uint64{1, 2 + retry.GapEnds}, 3 + retry.GapEnds, []uint64{2 + retry.GapEnds}},
	} {
		play(t, func(st *stage) {
			ann := st.open("ann")
			for _, seq := range test.seqs {
				st.hold(ann, seq, &wire.Acquire{Locks: []*wire.LockRequest{{Name: fmt.Sprint("l", seq)}}})
			}
			if got := st.s.requests.Final(ann.num, test.below); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("of %v below %d: %v, want %v", test.seqs, test.below, got, test.want)
			}
		})
	}
	play(t, func(st *stage) {
		ann, bob := st.open("ann"), st.open("bob")
		st.hold(ann, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}})
		st.hold(bob, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}, WaitForever: true})
		if got := st.s.requests.Final(bob.num, 2); got != nil {
			t.Errorf("a request that waits is acknowledged: %v", got)
		}
	})
}

// TestReadsFollowTheirBarrier verifies that a linearizable read waits for its proof, and that a stale one
// does not.
func TestReadsFollowTheirBarrier(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if p.first != "Prove" {
			return
		}
		looked := false
		st.c.onFork(func(*fsm.Machine) { looked = true })
		a := st.ask(procedure, p.full(nil))
		proof := st.expect("Prove")
		if a.waits(); looked {
			t.Error("it was read before the proof")
		}
		proof.apply().answer()
		if got := a.reply(); !looked || got.status != http.StatusOK && got.status != http.StatusNotFound {
			t.Errorf("answered %d %s", got.status, got.body)
		}
		a = st.ask(procedure, p.full(nil))
		st.expect("Prove")
		a.hangUp()
		if looked = false; !a.answered() || looked {
			t.Error("a read goes on for nobody")
		}
		st.c.lead("")
		looked = false
		stale := strings.Replace(strings.TrimSuffix(p.full(nil), "}")+`,"stale":true}`, "{,", "{", 1)
		if got := st.ask(procedure, stale).reply(); !looked || got.status != http.StatusOK && got.status != http.StatusNotFound {
			t.Errorf("stale: %d %s", got.status, got.body)
		}
		st.none()
	})
}

// TestBothFormsOfAnAcquire verifies that a caller may name one lock or several, but not both.
func TestBothFormsOfAnAcquire(t *testing.T) {
	play(t, func(st *stage) {
		ann := st.open("ann")
		a := st.ask("LockService/Acquire", `{`+ann.creds+`,"seq":1,"name":"a","mode":"PERMITS","permits":2,"limit":3}`)
		s := st.expect("Acquire")
		want := &wire.LockRequest{Name: "a", Mode: wire.Mode_PERMITS, Permits: 2, Limit: 3}
		if locks := s.cmd.GetAcquire().GetLocks(); len(locks) != 1 || fmt.Sprint(locks[0]) != fmt.Sprint(want) {
			t.Errorf("proposed %v", locks)
		}
		s.apply().answer()
		a.reply().ok()
		for _, also := range []string{`"name":"a"`, `"mode":"SHARED"`, `"permits":1`, `"limit":2`} {
			st.ask("LockService/Acquire", `{`+ann.creds+`,"seq":2,"locks":[{"name":"b"}],`+also+`}`).reply().
				refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
		}
		synctest.Wait()
		st.none()
	})
}

// TestAddressOfACaller verifies that the stored address and identity of a caller are those that this node saw, whatever
// the caller says.
func TestAddressOfACaller(t *testing.T) {
	for _, procedure := range []string{"SessionService/Open", "LeaseService/Acquire"} {
		const want = "192.0.2.7:1234"
		for _, claimed := range []string{"", "not a caller", forward.EncodeCaller(&wire.Caller{Identity: "root", Address: "203.0.113.9:5"})} {
			play(t, func(st *stage) {
				p := probes[procedure]
				st.ask(procedure, `{`+p.body+`,"client":{"name":"x","address":"made up"}}`, func(r *http.Request) { r.Header.Set(forward.HeaderCaller, claimed) })
				s := st.expect(p.first)
				client := s.cmd.GetOpenSession().GetClient()
				if client == nil {
					client = s.cmd.GetOpenLease().GetClient()
				}
				if client.GetAddress() != want || client.GetName() != "x" || s.cmd.GetCaller().GetIdentity() != identity.Anonymous {
					t.Errorf("%q: %v", claimed, client)
				}
				s.withdraw()
			})
		}
	}
}

package httpapi

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// after brings a request to its first call of the replica.
func (st *stage) after(procedure string, p probe) (*asked, *step) {
	st.t.Helper()
	a := st.ask(procedure, p.full(st.open("ann")))
	return a, st.expect(p.first)
}

// TestEveryStatusHasItsAnswer gives every procedure that waits for a result each possible status. The
// statuses about leadership are in TestResultsOfAFormerLeader.
func TestEveryStatusHasItsAnswer(t *testing.T) {
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		if status == wire.Status_UNSPECIFIED || status == wire.Status_QUEUED {
			continue
		}
		eachOf(t, func(_ string, p probe) bool {
			uncertain := status == wire.Status_UNCERTAIN && p.repeats != onceOnly
			ok := status == wire.Status_OK && p.good == nil
			return !p.method && !ok && !uncertain && status != wire.Status_NOT_LEADER
		}, func(st *stage, procedure string, p probe) {
			a, first := st.after(procedure, p)
			first.is(&wire.Result{Status: status, Message: "because " + procedure})
			got := a.reply()
			want, isError := httpOf[status]
			switch {
			case p.good[status]:
				if fields := got.ok(); fields["status"] != status.String() {
					t.Errorf("%v: %s", status, got.body)
				}
			case !isError && p.numbered: // the seq belongs to another request
				got.refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
			case !isError: // OK for an acquire, GRANTED for a release
				got.refused(http.StatusInternalServerError, status)
			default:
				if message := got.refused(want, status); message != "because "+procedure {
					t.Errorf("%v says %q", status, message)
				}
				if code := got.fields()["code"]; code != apierror.Codes[status].String() {
					t.Errorf("%v: code %v", status, code)
				}
			}
			st.none()
			st.nothingSent()
			counted(st, procedure, status, p, got)
		})
	}
}

// counted checks that the metrics count the request, with its status.
func counted(st *stage, procedure string, status wire.Status_Code, p probe, got reply) {
	st.t.Helper()
	if !p.good[status] && httpOf[status] == 0 && p.numbered {
		status = wire.Status_INVALID_ARGUMENT
	}
	families, err := st.s.cfg.Registry.Gather()
	if err != nil {
		st.t.Fatal(err)
	}
	want := fmt.Sprintf(`label:{name:"path" value:"/quorumlock.v1.%s"} label:{name:"status" value:"%s"}`, procedure, status)
	for _, f := range families {
		if f.GetName() != "quorumlock_http_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if strings.Contains(strings.Join(strings.Fields(m.String()), " "), want) && m.GetCounter().GetValue() == 1 {
				return
			}
		}
		st.t.Errorf("%s is not counted as %v: %v; answer %s", procedure, status, f, got.body)
	}
}

// TestResultsOfAFormerLeader verifies that a node that lost leadership leaves the answer to the next leader
// if it did nothing, or if a second execution returns the outcome of the first. Otherwise it answers that the
// outcome is unknown.
func TestResultsOfAFormerLeader(t *testing.T) {
	for _, status := range []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN} {
		eachOf(t, func(_ string, p probe) bool { return !p.method }, func(st *stage, procedure string, p probe) {
			a, first := st.after(procedure, p)
			st.follow("n2")
			first.is(&wire.Result{Status: status})
			if status == wire.Status_UNCERTAIN && p.repeats == onceOnly {
				st.nothingSent()
				a.reply().refused(http.StatusGatewayTimeout, status)
				return
			}
			sent := st.sentOn()
			if sent.body != p.full(st.open("ann")) {
				t.Errorf("sent on: %s", sent.body)
			}
			sent.with(http.StatusTeapot, `{"a":1}`)
			if got := a.reply(); got.status != http.StatusTeapot || got.body != `{"a":1}` {
				t.Errorf("%v: answered %d %s", status, got.status, got.body)
			}
			st.none()
		})
	}
}

// TestFormerLeaderAnswersTheForwardingNode is the same for a forwarded request: the forwarding node learns
// whether it may ask the next leader.
func TestFormerLeaderAnswersTheForwardingNode(t *testing.T) {
	for status, says := range map[wire.Status_Code]string{
		wire.Status_NOT_LEADER: forward.Unchanged, wire.Status_UNAVAILABLE: forward.Unchanged, wire.Status_UNCERTAIN: forward.InDoubt,
	} {
		eachOf(t, func(_ string, p probe) bool { return !p.method }, func(st *stage, procedure string, p probe) {
			a := st.ask(procedure, p.full(st.open("ann")), st.from("n3"))
			first := st.expect(p.first)
			st.follow("n2")
			first.is(&wire.Result{Status: status})
			got, want := a.reply(), says
			if status == wire.Status_UNCERTAIN && p.repeats == onceOnly {
				want = ""
			}
			if got.header.Get(forward.HeaderMoved) != want {
				t.Errorf("%v: %s %q, want %q", status, forward.HeaderMoved, got.header.Get(forward.HeaderMoved), want)
			}
			switch {
			case status == wire.Status_UNCERTAIN:
				got.refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
			default:
				got.refused(http.StatusServiceUnavailable, wire.Status_NOT_LEADER)
			}
			st.nothingSent()
		})
	}
}

// sentinels are the errors of package status by name. TestEveryErrorHasItsAnswer compares them with its source.
var sentinels = map[string]error{
	"ErrReplaced": status.ErrReplaced, "ErrOtherCluster": status.ErrOtherCluster,
	"ErrDiverged": status.ErrDiverged, "ErrRolledBack": status.ErrRolledBack,
	"ErrForked":      status.ErrForked,
	"ErrNotLeader":   status.ErrNotLeader,
	"ErrUnavailable": status.ErrUnavailable, "ErrUncertain": status.ErrUncertain, "ErrInvalid": status.ErrInvalid,
	"ErrNotFound": status.ErrNotFound, "ErrTooMany": status.ErrTooMany, "ErrPrecondition": status.ErrPrecondition,
	"ErrDenied": status.ErrDenied,
}

// declaredErrors returns the names of the errors that a file declares.
func declaredErrors(t *testing.T, file string) (names []string) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range ast.Preorder(source) {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
			names = append(names, spec.Names[0].Name)
		}
	}
	return names
}

// TestEveryErrorHasItsAnswer makes every method of the replica fail with every error that it declares.
func TestEveryErrorHasItsAnswer(t *testing.T) {
	names := declaredErrors(t, "../status/status.go")
	if len(names) != len(sentinels) {
		t.Errorf("the replica declares %d errors, %d are tested", len(names), len(sentinels))
	}
	for _, name := range names {
		failing := sentinels[name]
		if failing == nil {
			t.Fatalf("%s is not tested", name)
		}
		eachOf(t, func(_ string, p probe) bool {
			catchesUp := p.first == "Watch" && (name == "ErrNotLeader" || name == "ErrUnavailable")
			return p.method && !p.infallible && !catchesUp
		}, func(st *stage, procedure string, p probe) {
			a, first := st.after(procedure, p)
			if name == "ErrNotLeader" {
				st.follow("n2")
			}
			first.returns(nil, fmt.Errorf("%w: because", failing))
			if name == "ErrNotLeader" {
				st.sentOn().with(http.StatusTeapot, "")
				if got := a.reply(); got.status != http.StatusTeapot {
					t.Errorf("answered %d %s", got.status, got.body)
				}
				return
			}
			status := status.Code(failing)
			if message := a.reply().refused(httpOf[status], status); !strings.Contains(message, failing.Error()) || !strings.Contains(message, "because") {
				t.Errorf("%s says %q", name, message)
			}
		})
	}
}

// TestMethodsOfTheReplica verifies that requests reach the replica and its responses reach the caller.
func TestMethodsOfTheReplica(t *testing.T) {
	for _, test := range []struct {
		procedure, body, answer string
		returns                 func(*step)
		asked                   string
	}{
		{"ClusterService/Status", `{}`, `"nodeId":"n7"`, func(s *step) { s.returns(&wire.StatusResponse{NodeId: "n7"}, nil) }, ""},
		{"ClusterService/Status", `{"stale":true}`, `"nodeId":"n7"`, func(s *step) { s.returns(&wire.StatusResponse{NodeId: "n7"}, nil) }, `stale:true`},
		{"ClusterService/ListSamples", `{}`, `"nodeId":"n7"`, func(s *step) { s.returns(&wire.ListSamplesResponse{NodeId: "n7"}, nil) }, `<nil>`},
		{"ClusterService/AddMember", `{"id":"n9","peerAddr":"p","operator":"o","reason":"r"}`, `{}`,
			func(s *step) { s.returns(nil, nil) }, `id:"n9" peer_addr:"p" operator:"o" reason:"r"`},
		{"ClusterService/RemoveMember", `{"id":"n9","operator":"o","reason":"r"}`, `{}`,
			func(s *step) { s.returns(nil, nil) }, `id:"n9" operator:"o" reason:"r"`},
		{"ClusterService/SetDrained", `{"id":"n9","drained":true,"operator":"o","reason":"r"}`, `{}`,
			func(s *step) { s.returns(nil, nil) }, `id:"n9" drained:true operator:"o" reason:"r"`},
		{"ClusterService/TransferLeadership", `{"id":"n2","operator":"o","reason":"r"}`, `{"leaderId":"n2"}`,
			func(s *step) { s.st.follow("n2"); s.returns(nil, nil) }, `id:"n2" operator:"o" reason:"r"`},
		{"ClusterService/AcknowledgeAlarms", `{"operator":"o","reason":"r"}`, `{"revision":"9"}`,
			func(s *step) { s.returns(&wire.AcknowledgeAlarmsResponse{Revision: 9}, nil) }, `operator:"o" reason:"r"`},
		{"OperatorService/Restore", `{"backup":{"token":7},"tokenFloor":8,"operator":"o","reason":"r","clusterId":"c"}`, `{"tokenFloor":"1","revision":"9"}`,
			func(s *step) { s.returns(&wire.RestoreResponse{TokenFloor: 1, Revision: 9}, nil) },
			`backup:{token:7} token_floor:8 operator:"o" reason:"r" cluster_id:"c"`},
	} {
		play(t, func(st *stage) {
			a := st.ask(test.procedure, test.body)
			s := st.expect(probes[test.procedure].first)
			if got := strings.Join(strings.Fields(fmt.Sprint(s.request)), " "); got != test.asked {
				t.Errorf("%s asks for %s, want %s", test.procedure, got, test.asked)
			}
			test.returns(s)
			if got := a.reply(); got.status != http.StatusOK || !strings.Contains(got.body, test.answer) {
				t.Errorf("%s: %d %s", test.procedure, got.status, got.body)
			}
		})
	}
}

// TestCallerOfAMethodHangsUp verifies that a caller's hang-up ends its call of the replica, and that it gets
// no response.
func TestCallerOfAMethodHangsUp(t *testing.T) {
	eachProcedure(t, func(st *stage, procedure string, p probe) {
		if !p.method || p.infallible {
			return
		}
		a, first := st.after(procedure, p)
		a.hangUp()
		synctest.Wait()
		if first.ctx.Err() == nil {
			t.Error("the replica goes on for nobody")
		}
		first.returns(nil, first.ctx.Err())
		if got := a.reply(); got.status != 499 || got.fields()["code"] != "canceled" {
			t.Errorf("answered %d %s", got.status, got.body)
		}
	})
}

// TestSnapshotThatBreaksOff verifies that a failing snapshot breaks the connection, or is an error before its
// first byte.
func TestSnapshotThatBreaksOff(t *testing.T) {
	for _, stale := range []bool{false, true} {
		for _, pieces := range []int{0, 1, 2} {
			play(t, func(st *stage) {
				a := st.ask("OperatorService/SaveSnapshot", fmt.Sprintf(`{"reason":"r","operator":"o","stale":%v}`, stale))
				kind := map[bool]string{false: "SaveSnapshot", true: "SaveStaleSnapshot"}[stale]
				s := st.expect(kind)
				if stale {
					s.order(func() { _ = s.describe(&wire.StaleSnapshot{NodeId: "n1", Index: 4}) })
				}
				var want bytes.Buffer
				for i := range pieces {
					s.order(func() { _, _ = fmt.Fprintf(s.file, "piece %d", i) })
					fmt.Fprintf(&want, "piece %d", i)
				}
				s.returns(nil, fmt.Errorf("%w: because", status.ErrUnavailable))
				got := a.reply()
				if a.aborted != (pieces > 0) {
					t.Errorf("after %d pieces: aborted %v, %s", pieces, a.aborted, got.body)
				}
				if pieces == 0 {
					got.refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
					return
				}
				if got.header.Get("Content-Type") != "application/octet-stream" || got.body != want.String() {
					t.Errorf("%v: %q", got.header, got.body)
				}
				if about := got.header.Get(headerStale); (about != "") != stale {
					t.Errorf("described as %q", about)
				}
			})
		}
	}
}

// TestCallerOfACommandHangsUp verifies that a command whose caller hangs up while it is applied is not
// forwarded.
func TestCallerOfACommandHangsUp(t *testing.T) {
	eachOf(t, func(_ string, p probe) bool { return !p.method && p.first != "Prove" }, func(st *stage, procedure string, p probe) {
		a, _ := st.after(procedure, p)
		a.hangUp()
		want := 499
		if p.repeats == onceOnly {
			want = http.StatusGatewayTimeout
		}
		if got := a.reply(); got.status != want {
			t.Errorf("answered %d %s", got.status, got.body)
		}
		st.none()
		st.nothingSent()
	})
}

// TestSnapshotStreamThatBreaksOff verifies that a client that streams a snapshot gets an error if it is
// interrupted, even if leadership was lost: no other node's pieces may follow.
func TestSnapshotStreamThatBreaksOff(t *testing.T) {
	play(t, func(st *stage) {
		ended := make(chan error, 1)
		go func() {
			ended <- st.s.snapshot(st.t.Context(), &wire.SaveSnapshotRequest{Reason: "r"}, nil, func([]byte) error { return nil })
		}()
		s := st.expect("SaveSnapshot")
		s.order(func() { _, _ = s.file.Write([]byte("piece")) })
		s.returns(nil, status.ErrNotLeader)
		if err := <-ended; apierror.Status(err) != wire.Status_UNAVAILABLE || !strings.Contains(err.Error(), "is incomplete") {
			t.Errorf("ended with %v", err)
		}
	})
}

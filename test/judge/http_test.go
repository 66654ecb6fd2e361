package judge

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tenants is a stage with two leases over HTTP of one lock: the second waits until the first is released.
func tenants(t *testing.T) *stage {
	s := newStage(t)
	mine, other := []byte("first-----------"), []byte("second----------")
	first := s.rent(mine, "x")
	s.rent(other, "x")
	s.pass(time.Second)
	extend := &wire.ExtendLeaseRequest{Secret: mine, HoldId: first.HoldId}
	s.call(&wire.Request{Body: &wire.Request_ExtendLease{ExtendLease: extend}},
		&wire.Command{Op: &wire.Command_ExtendLease{ExtendLease: &wire.ExtendLease{SecretHash: hashOf(mine), HoldId: first.HoldId}}})
	s.vacate(mine, first)
	waited := s.ops("acquire_lease")[1]
	outcome := proto.CloneOf(s.pushes()[0].Push.GetOutcome())
	outcome.Seq, outcome.SessionId = 0, waited.Result().SessionId
	waited.Return, waited.Response.Result = s.now, outcome
	s.vacate(mine, first) // NOT_HELD
	return s
}

// rent acquires a lease over HTTP.
func (s *stage) rent(secret []byte, lock string) *wire.Result {
	s.t.Helper()
	asked := &wire.Acquire{Locks: []*wire.LockRequest{{Name: lock}}, WaitForever: true}
	return s.call(&wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{Secret: secret, TtlMs: 10_000, Acquire: asked}}},
		&wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hashOf(secret), TtlMs: 10_000, Acquire: asked}}})
}

// vacate releases it.
func (s *stage) vacate(secret []byte, grant *wire.Result) {
	s.t.Helper()
	s.call(&wire.Request{Body: &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{Secret: secret, HoldId: grant.HoldId}}},
		&wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: hashOf(secret), HoldId: grant.HoldId}}})
}

// call makes a request over HTTP, whose response contains less of the result.
func (s *stage) call(req *wire.Request, cmd *wire.Command) *wire.Result {
	s.t.Helper()
	at := len(s.records)
	result := s.ask(req, cmd)
	op := s.records[at].Op
	if op.HTTP = true; op.Kind != "acquire_lease" {
		op.Response.Result = &wire.Result{Status: result.Status, Revision: result.Revision, Count: result.Count}
	}
	return result
}

// TestForgedAnswersOverHTTP changes one detail of an HTTP response, and expects a fault.
func TestForgedAnswersOverHTTP(t *testing.T) {
	tenants(t).accepted()
	for what, c := range map[string]struct {
		fault string
		kind  string
		which int
		forge func(op *history.Op, said *wire.Result)
	}{
		"another token":             {"by the log it is", "acquire_lease", 0, func(_ *history.Op, said *wire.Result) { said.Token++ }},
		"another hold":              {"by the log it is", "acquire_lease", 0, func(_ *history.Op, said *wire.Result) { said.HoldId++ }},
		"another session":           {"by the log it is", "acquire_lease", 0, func(_ *history.Op, said *wire.Result) { said.SessionId++ }},
		"refused, not granted":      {"by the log it is", "acquire_lease", 0, func(_ *history.Op, said *wire.Result) { said.Status = wire.Status_NOT_ACQUIRED }},
		"another revision":          {"by the log it is", "acquire_lease", 0, func(_ *history.Op, said *wire.Result) { said.Revision++ }},
		"no revision":               {"by the log it is", "acquire_lease", 0, func(_ *history.Op, said *wire.Result) { said.Revision = 0 }},
		"a wait's token":            {"by the log it is", "acquire_lease", 1, func(_ *history.Op, said *wire.Result) { said.Token-- }},
		"a wait's session":          {"by the log it is", "acquire_lease", 1, func(_ *history.Op, said *wire.Result) { said.SessionId-- }},
		"another's lease":           {"by the log it is", "acquire_lease", 1, func(op *history.Op, _ *wire.Result) { op.Request.GetAcquireLease().Secret[0]++ }},
		"extended, and was not":     {"by the log it is", "extend_lease", 0, func(_ *history.Op, said *wire.Result) { said.Status = wire.Status_NOT_HELD }},
		"another's extension":       {"which is the revision of", "extend_lease", 0, func(op *history.Op, _ *wire.Result) { op.Request.GetExtendLease().Secret = []byte("nobody's") }},
		"an extension in no log":    {"no such revision", "extend_lease", 0, func(_ *history.Op, said *wire.Result) { said.Revision = 99 }},
		"released, and was":         {"by the log it is", "release_lease", 0, func(_ *history.Op, said *wire.Result) { said.Status = wire.Status_NOT_HELD }},
		"released twice":            {"by the log it is", "release_lease", 1, func(_ *history.Op, said *wire.Result) { said.Status = wire.Status_OK }},
		"still counted":             {"by the log it is", "release_lease", 0, func(_ *history.Op, said *wire.Result) { said.Count = 1 }},
		"a release in another step": {"which is the revision of", "release_lease", 0, func(_ *history.Op, said *wire.Result) { said.Revision-- }},
		"an answer from a past":     {"already", "release_lease", 0, func(op *history.Op, _ *wire.Result) { op.Call += time.Hour; op.Return += time.Hour }},
	} {
		t.Run(what, func(t *testing.T) {
			s := tenants(t)
			op := s.ops(c.kind)[c.which]
			c.forge(op, op.Result())
			s.refused(c.fault)
		})
	}
}

// TestFailedCallIsNoEvidence verifies that a failed call is accepted whether or not it was executed.
func TestFailedCallIsNoEvidence(t *testing.T) {
	s := tenants(t)
	for _, op := range s.ops("release_lease") {
		op.Outcome, op.Return, op.Response = history.Unknown, history.Never, nil
	}
	s.accepted()
}

package judge

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// told compares every answer and push with the model's.
func told(r *replay) (faults []string) {
	for _, t := range r.in.History.Told() {
		if err := r.toldRequest(t); err != nil {
			faults = append(faults, fmt.Sprintf("%s at %v, request %d of session %d: %v", t.Client, t.At, t.Seq, t.Session, err))
		}
	}
	for _, op := range r.in.History.Ops() {
		if op.Outcome != history.OK || op.Seq != 0 {
			continue
		}
		if err := r.toldOther(op); err != nil {
			faults = append(faults, fmt.Sprintf("%s at %v, %s: %v", op.Client, op.Call, op.Kind, err))
		}
	}
	return faults
}

// fromTheLog reports whether an answer came from the replicated state. A node refuses some requests on its
// own; such refusals have no revision.
func fromTheLog(result *wire.Result) bool {
	return result.GetRevision() != 0 || history.Proves(result.GetStatus())
}

// past reports whether a result is older than the remaining log.
func (r *replay) past(result *wire.Result) bool {
	return result.Revision != 0 && result.Revision < r.first
}

// toldRequest checks that what a client received about a request with a sequence number is among the model's
// answers and outcomes.
func (r *replay) toldRequest(t history.Told) error {
	key := request{t.Session, t.Seq}
	if !fromTheLog(t.Result) || r.past(t.Result) {
		return nil
	}
	direct := t.Op != nil && t.Op.Seq == t.Seq && t.Op.Session == t.Session
	for _, said := range r.asked[key] {
		if direct && sameAnswer(t.Result, said) || !direct && sameOutcome(t.Result, said) {
			return nil
		}
	}
	for _, said := range r.came[key] {
		if sameOutcome(t.Result, said) {
			return nil
		}
	}
	if len(r.asked[key]) == 0 {
		return fmt.Errorf("told %v, and the log has no such request", t.Result)
	}
	return fmt.Errorf("told %v; by the log it is %v, then %v", t.Result, r.asked[key], r.came[key])
}

// sameAnswer compares everything in an answer except messages for people.
func sameAnswer(got, want *wire.Result) bool {
	got = proto.CloneOf(got)
	got.Message = ""
	for _, o := range got.GetSession().GetOutcomes() {
		o.Message = ""
	}
	return model.Same(got, want)
}

// sameCall compares what an HTTP response says about an extension or a release.
func sameCall(got, want *wire.Result) bool {
	return got.Status == want.Status && got.Revision == want.Revision && got.Count == want.Count
}

// sameEcho compares the request that an outcome belongs to. An outcome of what is over may omit the lock.
func sameEcho(got, want *wire.Result) bool {
	return got.Digest == want.Digest && (got.Name == want.Name || got.Name == "" || want.Name == "")
}

// sameOutcome compares the outcome of a request, from whatever source. If a wait ended without a grant, its
// ID may be missing.
func sameOutcome(got, want *wire.Result) bool {
	nothing := got.Status == wire.Status_TIMEOUT || got.Status == wire.Status_CANCELLED || got.Status == wire.Status_SESSION_LOST
	return got.Status == want.Status && got.Revision == want.Revision && (nothing || got.HoldId == want.HoldId) && got.Token == want.Token && got.Count == want.Count &&
		sameEcho(got, want)
}

// toldOther checks requests without a sequence number: the log contains them at the revision of their answer.
func (r *replay) toldOther(op *history.Op) error {
	result := op.Result()
	if op.Kind == "acquire_lease" {
		return r.toldLease(op)
	}
	if !ownRevision(op) || r.past(result) {
		return nil
	}
	s := r.at(result.GetRevision())
	if s == nil {
		return fmt.Errorf("told %v, and the log has no such revision", result)
	}
	if !isOf(s.cmd, op) {
		return fmt.Errorf("told %v, which is the revision of %v", result, s.cmd)
	}
	if op.HTTP && !sameCall(result, s.said) || !op.HTTP && !sameAnswer(result, s.said) {
		return fmt.Errorf("told %v; by the log it is %v", result, s.said)
	}
	return nil
}

// ownRevision reports whether an operation was answered by a command without a sequence number, which has its
// own revision each time.
func ownRevision(op *history.Op) bool {
	switch op.Kind {
	case "open_session", "attach", "close_session", "acknowledge", "extend_lease", "release_lease",
		"force_release", "revoke", "skip_delay", "resize", "force_close":
		return op.Outcome == history.OK && fromTheLog(op.Result())
	}
	return false
}

// isOf reports whether a command can belong to an operation.
func isOf(cmd *wire.Command, op *history.Op) bool {
	switch body := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		return op.Request.GetOpenSession() != nil && slices.Equal(body.OpenSession.SecretHash, hashOf(op.Request.GetOpenSession().GetSecret()))
	case *wire.Command_AttachSession:
		return op.Kind == "attach" && cmd.SessionId == op.Session
	case *wire.Command_CloseSession:
		return op.Kind == "close_session" && cmd.SessionId == op.Session
	case *wire.Command_Acknowledge:
		return op.Kind == "acknowledge" && cmd.SessionId == op.Session
	case *wire.Command_ExtendLease:
		return slices.Equal(body.ExtendLease.SecretHash, hashOf(op.Request.GetExtendLease().GetSecret()))
	case *wire.Command_ReleaseLease:
		return slices.Equal(body.ReleaseLease.SecretHash, hashOf(op.Request.GetReleaseLease().GetSecret()))
	case *wire.Command_ForceRelease:
		return proto.Equal(body.ForceRelease, op.Request.GetForceRelease())
	case *wire.Command_Revoke:
		return proto.Equal(body.Revoke, op.Request.GetRevoke())
	case *wire.Command_SkipDelay:
		return proto.Equal(body.SkipDelay, op.Request.GetSkipDelay())
	case *wire.Command_Resize:
		return proto.Equal(body.Resize, op.Request.GetResize())
	case *wire.Command_ForceClose:
		return proto.Equal(body.ForceClose, op.Request.GetForceClose())
	}
	return false
}

func hashOf(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}

// toldLease checks the outcome of a lease's acquire: it must be one of the answers, or the end of the wait in
// its session.
func (r *replay) toldLease(op *history.Op) error {
	result := op.Result()
	if !fromTheLog(result) || r.past(result) {
		return nil
	}
	answers := r.leases[string(hashOf(op.Request.GetAcquireLease().GetSecret()))]
	sessions := map[uint64]bool{}
	for _, said := range answers {
		if sameOutcome(result, said) && result.SessionId == said.SessionId {
			return nil
		}
		sessions[said.SessionId] = true
	}
	if r.live[result.SessionId] { // requested before the log begins
		sessions[result.SessionId] = true
	}
	for _, outcome := range r.came[request{result.SessionId, leaseSeq}] {
		if sessions[result.SessionId] && sameOutcome(result, outcome) {
			return nil
		}
	}
	return fmt.Errorf("told %v; by the log it is %v", result, answers)
}

// leaseSeq is the sequence number of a lease's only request in its session.
const leaseSeq = 1

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

// told holds every answer and push against what the model said.
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

// fromTheLog says whether an answer was given by the replicated state. A node refuses some
// requests by itself; what it refuses has no revision.
func fromTheLog(result *wire.Result) bool {
	return result.GetRevision() != 0 || history.Proves(result.GetStatus())
}

// past says that a result came before the log that is left.
func (r *replay) past(result *wire.Result) bool {
	return result.Revision != 0 && result.Revision < r.first
}

// toldRequest finds what a client was told of a request with a number among all that the
// model said of it.
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

// sameAnswer compares all of an answer but what is said for people.
func sameAnswer(got, want *wire.Result) bool {
	got = proto.CloneOf(got)
	got.Message = ""
	for _, o := range got.GetSession().GetOutcomes() {
		o.Message = ""
	}
	return model.Same(got, want)
}

// sameCall compares what an answer over HTTP tells of an extension or a release.
func sameCall(got, want *wire.Result) bool {
	return got.Status == want.Status && got.Revision == want.Revision && got.Count == want.Count
}

// sameEcho compares which request an outcome is of. One about what is over may leave the
// lock out.
func sameEcho(got, want *wire.Result) bool {
	return got.Digest == want.Digest && (got.Name == want.Name || got.Name == "" || want.Name == "")
}

// sameOutcome compares what a request came to, wherever it is told. A wait that came to
// nothing is told with its id or without.
func sameOutcome(got, want *wire.Result) bool {
	nothing := got.Status == wire.Status_TIMEOUT || got.Status == wire.Status_CANCELLED || got.Status == wire.Status_SESSION_LOST
	return got.Status == want.Status && got.Revision == want.Revision && (nothing || got.HoldId == want.HoldId) && got.Token == want.Token && got.Count == want.Count &&
		sameEcho(got, want)
}

// toldOther is for requests without a number: the log has them at the revision that they
// were told.
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

// ownRevision says whether an operation was answered by a command without a number, each
// time by one of its own.
func ownRevision(op *history.Op) bool {
	switch op.Kind {
	case "open_session", "attach", "close_session", "acknowledge", "extend_lease", "release_lease",
		"force_release", "revoke", "skip_delay", "resize":
		return op.Outcome == history.OK && fromTheLog(op.Result())
	}
	return false
}

// isOf says whether a command can be that of an operation.
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
	}
	return false
}

func hashOf(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}

// toldLease finds the final outcome of a lease's acquire: as it was answered, or as the wait
// ended in its session.
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
	if r.live[result.SessionId] { // it was asked for before the log begins
		sessions[result.SessionId] = true
	}
	for _, outcome := range r.came[request{result.SessionId, leaseSeq}] {
		if sessions[result.SessionId] && sameOutcome(result, outcome) {
			return nil
		}
	}
	return fmt.Errorf("told %v; by the log it is %v", result, answers)
}

// leaseSeq is the number of a lease's only request in its session.
const leaseSeq = 1

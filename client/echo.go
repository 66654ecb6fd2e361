package client

import (
	"fmt"
	"log/slog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrMismatchedAnswer is returned when the answer to an acquire or an upgrade is about
// another request than the one that was sent: its digest or its lock differs. Nothing is
// known of the request then, so that it is ErrUncertain as well; the client has it cancelled,
// and releases what it was granted all the same.
var ErrMismatchedAnswer error = &reason{"quorumlock: the answer is about another request", []error{ErrUncertain}}

// mismatch returns an error if a result is not the answer to this acquire, upgrade or
// lease. What a node refuses before it is proposed says neither digest nor lock, and
// grants nothing.
func (k *call) mismatch(result *wire.Result) error {
	if result.GetDigest() == 0 && result.GetName() == "" && !decided(result.GetStatus()) {
		return nil
	}
	if asked := k.request.Digest(); result.GetDigest() != asked {
		return fmt.Errorf("%w: digest %016x, asked was %016x", ErrMismatchedAnswer, result.GetDigest(), asked)
	}
	if asked := k.firstLock(); result.GetName() != "" && result.GetName() != asked {
		return fmt.Errorf("%w: lock %q, asked was %q", ErrMismatchedAnswer, result.GetName(), asked)
	}
	return nil
}

// decided reports whether a status says what a request for a lock has come to.
func decided(status wire.Status_Code) bool {
	return status == wire.Status_GRANTED || status == wire.Status_QUEUED ||
		status >= wire.Status_NOT_ACQUIRED && status < wire.Status_SESSION_LOST
}

// failure is what an answer to a call outside any session says went wrong.
func (k *call) failure(result *wire.Result) error {
	granted := false
	if k.kind == kindLease {
		if err := k.mismatch(result); err != nil {
			return err
		}
		granted = result.GetStatus() == wire.Status_GRANTED
	}
	if granted || result.GetStatus() == wire.Status_OK {
		return nil
	}
	return statusError(result)
}

// firstLock is the first lock of what the call asks for.
func (k *call) firstLock() string {
	op := k.request.GetAcquire()
	switch {
	case k.kind == kindUpgrade:
		return k.hold.held.name
	case k.kind == kindLease:
		op = k.request.GetAcquireLease().GetAcquire()
	}
	if len(op.GetLocks()) == 0 {
		return ""
	}
	return op.Locks[0].Name
}

// misanswered fails a request whose answer is about another one. What it has come to is
// unknown: it is cancelled, and given back if it was granted, by a call that nobody waits
// for and that keeps the low-water mark below it meanwhile.
func (s *Session) misanswered(k *call, err error) {
	s.client.note(slog.LevelError, "answer about another request", "session", s.id, "error", err)
	rest := &call{kind: k.kind, session: s, hold: k.hold, acquired: k.acquired, abandoned: true, sends: 2}
	rest.request.SessionId, rest.request.Seq, rest.request.Body = s.id, k.request.Seq, k.request.Body
	s.client.fail(k, err)
	s.unanswered.insert(rest)
	s.cancel(rest)
}

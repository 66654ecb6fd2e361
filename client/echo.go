package client

import (
	"fmt"
	"log/slog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrMismatchedAnswer is returned when the answer to an acquire or an upgrade belongs to a different
// request: its digest or its lock differs. The outcome of the request is then unknown, so the error also
// matches ErrUncertain. The client cancels the request and releases whatever it was granted.
var ErrMismatchedAnswer error = &reason{"quorumlock: the answer is about another request", []error{ErrUncertain}}

// mismatch returns an error if a result does not belong to this acquire, upgrade or lease. A result from a
// node that refused the request before proposing it has no digest and no lock, and grants nothing.
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

// decided reports whether a status is the outcome of a request for a lock.
func decided(status wire.Status_Code) bool {
	return status == wire.Status_GRANTED || status == wire.Status_QUEUED ||
		status >= wire.Status_NOT_ACQUIRED && status < wire.Status_SESSION_LOST
}

// failure returns the error in the answer to a call outside any session, or nil.
func (k *call) failure(result *wire.Result) error {
	granted := false
	if k.kind.policy().claims {
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

// firstLock returns the name of the first lock that the call requests.
func (k *call) firstLock() string {
	op := (*wire.Acquire)(nil)
	switch {
	case k.kind == kindUpgrade:
		return k.hold.held.name
	case k.acquired != nil:
		op = &k.acquired.acquire
	case k.kind == kindLease:
		op = k.request.GetAcquireLease().GetAcquire()
	}
	if len(op.GetLocks()) == 0 {
		return ""
	}
	return op.Locks[0].Name
}

// misanswered fails a request whose answer belongs to a different one. Its outcome is unknown, so a call
// without a caller takes its place: that call is cancelled, releases what it was granted, and until then
// keeps the low-water mark from passing the request.
func (w *window) misanswered(k *call, err error) {
	w.session.client.note(slog.LevelError, "answer about another request", "session", w.session.id, "error", err)
	rest := &call{kind: k.kind, session: w.session, hold: k.hold, acquired: k.acquired, abandoned: true, sends: 2}
	rest.request.SessionId, rest.request.Seq, rest.request.Body = w.session.id, k.request.Seq, k.request.Body
	w.unanswered.insert(rest) // before the end of k, which may send the next call
	w.session.client.fail(k, err)
	w.session.cancel(rest)
}

package web

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// httpOf is what plain HTTP callers see of each status; the manual has the same table.
var httpOf = map[wire.Status_Code]int{
	wire.Status_NOT_ACQUIRED:        http.StatusConflict,
	wire.Status_TIMEOUT:             http.StatusConflict,
	wire.Status_CANCELLED:           http.StatusConflict,
	wire.Status_NOT_HELD:            http.StatusBadRequest,
	wire.Status_ALREADY_HELD:        http.StatusConflict,
	wire.Status_ALREADY_QUEUED:      http.StatusConflict,
	wire.Status_UPGRADE_CONFLICT:    http.StatusConflict,
	wire.Status_DEADLOCK:            http.StatusConflict,
	wire.Status_MISMATCH:            http.StatusBadRequest,
	wire.Status_SESSION_LOST:        http.StatusNotFound,
	wire.Status_PERMISSION_DENIED:   http.StatusForbidden,
	wire.Status_NOT_ATTACHED:        http.StatusBadRequest,
	wire.Status_STALE:               http.StatusBadRequest,
	wire.Status_RESOURCE_EXHAUSTED:  http.StatusTooManyRequests,
	wire.Status_INVALID_ARGUMENT:    http.StatusBadRequest,
	wire.Status_NOT_FOUND:           http.StatusNotFound,
	wire.Status_FAILED_PRECONDITION: http.StatusBadRequest,
	wire.Status_UNSUPPORTED:         http.StatusNotImplemented,
	wire.Status_COMPACTED:           http.StatusBadRequest,
	wire.Status_NOT_LEADER:          http.StatusServiceUnavailable,
	wire.Status_UNAVAILABLE:         http.StatusServiceUnavailable,
	wire.Status_UNCERTAIN:           http.StatusGatewayTimeout,
	wire.Status_INTERNAL:            http.StatusInternalServerError,
}

// outcomes are the statuses that a request which may wait answers with.
var outcomes = map[wire.Status_Code]bool{
	wire.Status_GRANTED: true, wire.Status_NOT_ACQUIRED: true, wire.Status_TIMEOUT: true, wire.Status_CANCELLED: true,
	wire.Status_ALREADY_HELD: true, wire.Status_ALREADY_QUEUED: true,
	wire.Status_UPGRADE_CONFLICT: true, wire.Status_DEADLOCK: true, wire.Status_MISMATCH: true,
}

// changed are those of a request about a hold, operated those of an operator's.
var (
	changed  = map[wire.Status_Code]bool{wire.Status_OK: true, wire.Status_NOT_HELD: true}
	operated = map[wire.Status_Code]bool{
		wire.Status_OK: true, wire.Status_NOT_HELD: true, wire.Status_NOT_FOUND: true, wire.Status_FAILED_PRECONDITION: true,
	}
)

// goodOf are the statuses that procedures answer with; the rest are errors.
var goodOf = map[string]map[wire.Status_Code]bool{
	"LockService/Acquire":   outcomes,
	"LockService/Upgrade":   outcomes,
	"LockService/Release":   changed,
	"LockService/Downgrade": changed,
	"LockService/Extend":    changed,
	"LockService/SetValue":  changed,

	"LeaseService/Acquire": outcomes,
	"LeaseService/Extend":  changed,
	"LeaseService/Release": changed,

	"OperatorService/ForceRelease": operated,
	"OperatorService/Revoke":       operated,
	"OperatorService/SkipDelay":    operated,
	"OperatorService/Resize":       operated,
}

func TestEveryStatusHasItsAnswer(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	ann := p.open("ann")
	seq := 0
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		if status == wire.Status_UNSPECIFIED || status == wire.Status_QUEUED {
			continue
		}
		for procedure, good := range goodOf {
			t.Run(status.String()+"/"+procedure, func(t *testing.T) {
				c.override(func(*wire.Command) *wire.Result { return &wire.Result{Status: status} })
				defer c.override(nil)
				seq++
				got := ann.at(p.in(t)).ask(procedure, seq)
				want, isError := httpOf[status]
				switch {
				case good[status]:
					if got.ok()["status"] != status.String() {
						t.Errorf("got %s", got.body)
					}
				case status == wire.Status_NOT_LEADER:
					// This node says that it serves, so the request comes back to it.
					got.refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
				case status == wire.Status_UNCERTAIN && once["/quorumlock.v1."+procedure]:
					got.refused(http.StatusGatewayTimeout, status)
				case !isError && strings.HasPrefix(procedure, "LockService/"): // the seq is another request's
					got.refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
				case !isError: // OK for an acquire, GRANTED for a release
					got.refused(http.StatusInternalServerError, status)
				default:
					got.refused(want, status)
				}
			})
		}
	}
}

// ask sends the least that a procedure takes.
func (v *visitor) ask(procedure string, seq int) reply {
	v.t.Helper()
	switch service, _, _ := strings.Cut(procedure, "/"); service {
	case "LeaseService":
		return v.post(procedure, `{"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`)
	case "OperatorService":
		return v.post(procedure, `{}`)
	}
	return v.send(procedure, fmt.Sprintf(`"seq":%d`, seq))
}

func TestEveryStatusHasACode(t *testing.T) {
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		_, wanted := httpOf[status]
		code, known := codes[status]
		if known != wanted {
			t.Errorf("%v: code known %v, expected %v", status, known, wanted)
		}
		err := failure(status, "")
		if known && connect.CodeOf(err) != code {
			t.Errorf("%v: %v", status, err)
		}
		if got := statusOf(err); got != status && status != wire.Status_UNSPECIFIED {
			t.Errorf("%v: detail %v", status, got)
		}
	}
}

func TestManualHasTheSameTable(t *testing.T) {
	manual, err := os.ReadFile("../../docs/HTTP.md")
	if err != nil {
		t.Fatal(err)
	}
	for status, code := range codes {
		row := fmt.Sprintf("| %s | `%s` | %d |", status, code, httpOf[status])
		if !strings.Contains(string(manual), row) {
			t.Errorf("docs/HTTP.md has no row %q", row)
		}
	}
}

func TestErrorsOfTheReplica(t *testing.T) {
	c := newCluster(t)
	s := start(t, c, "n1").server
	for _, test := range []struct {
		err    error
		status wire.Status_Code
	}{
		{replica.ErrUncertain, wire.Status_UNCERTAIN},
		{fmt.Errorf("%w: no", replica.ErrPrecondition), wire.Status_FAILED_PRECONDITION},
		{replica.ErrNotFound, wire.Status_NOT_FOUND},
		{replica.ErrUnavailable, wire.Status_UNAVAILABLE},
		{errors.New("boo"), wire.Status_INTERNAL},
	} {
		if got := statusOf(s.refusalOf(test.err)); got != test.status {
			t.Errorf("%v: %v", test.err, got)
		}
	}
	if err := s.refusalOf(replica.ErrNotLeader); !errors.Is(err, errElsewhere) {
		t.Errorf("not leader: %v", err)
	}
}

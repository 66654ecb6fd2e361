package httpapi

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// httpOf maps each status to the code that plain HTTP callers see. The manual contains the same table.
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
	wire.Status_UNAUTHENTICATED:     http.StatusUnauthorized,
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

// outcomes are the statuses in the response of a request that may wait.
var outcomes = map[wire.Status_Code]bool{
	wire.Status_GRANTED: true, wire.Status_NOT_ACQUIRED: true, wire.Status_TIMEOUT: true, wire.Status_CANCELLED: true,
	wire.Status_ALREADY_HELD: true, wire.Status_ALREADY_QUEUED: true,
	wire.Status_UPGRADE_CONFLICT: true, wire.Status_DEADLOCK: true, wire.Status_MISMATCH: true,
}

// changed are the statuses in the response of a request about a hold, and operated those of an operator's
// request.
var (
	changed  = map[wire.Status_Code]bool{wire.Status_OK: true, wire.Status_NOT_HELD: true}
	operated = map[wire.Status_Code]bool{
		wire.Status_OK: true, wire.Status_NOT_HELD: true, wire.Status_NOT_FOUND: true, wire.Status_FAILED_PRECONDITION: true,
	}
)

func TestEveryStatusHasACode(t *testing.T) {
	for number := range wire.Status_Code_name {
		status := wire.Status_Code(number)
		_, wanted := httpOf[status]
		code, known := apierror.Codes[status]
		if known != wanted {
			t.Errorf("%v: code known %v, expected %v", status, known, wanted)
		}
		err := apierror.New(status, "")
		if known && connect.CodeOf(err) != code {
			t.Errorf("%v: %v", status, err)
		}
		if got := apierror.Status(err); got != status && status != wire.Status_UNSPECIFIED {
			t.Errorf("%v: detail %v", status, got)
		}
	}
}

func TestManualHasTheSameTable(t *testing.T) {
	manual, err := os.ReadFile("../../docs/HTTP.md")
	if err != nil {
		t.Fatal(err)
	}
	for status, code := range apierror.Codes {
		row := fmt.Sprintf("| %s | `%s` | %d |", status, code, httpOf[status])
		if !strings.Contains(string(manual), row) {
			t.Errorf("docs/HTTP.md has no row %q", row)
		}
	}
}

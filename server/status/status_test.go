package status_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestErrorsOnTheWire verifies that errors map to statuses and back, with the state machine's message.
func TestErrorsOnTheWire(t *testing.T) {
	for err, code := range map[error]wire.Status_Code{
		status.ErrNotLeader: wire.Status_NOT_LEADER, status.ErrUncertain: wire.Status_UNCERTAIN, status.ErrUnavailable: wire.Status_UNAVAILABLE,
		context.DeadlineExceeded: wire.Status_UNAVAILABLE, context.Canceled: wire.Status_UNAVAILABLE, status.ErrInvalid: wire.Status_INVALID_ARGUMENT,
		status.ErrNotFound: wire.Status_NOT_FOUND, status.ErrTooMany: wire.Status_RESOURCE_EXHAUSTED, status.ErrPrecondition: wire.Status_FAILED_PRECONDITION,
		status.ErrReplaced: wire.Status_FAILED_PRECONDITION, status.ErrOtherCluster: wire.Status_FAILED_PRECONDITION, errors.New("disk"): wire.Status_INTERNAL, nil: wire.Status_OK,
		fmt.Errorf("%w: %w", status.ErrUncertain, context.Canceled): wire.Status_UNCERTAIN,
	} {
		if got := status.Code(err); got != code {
			t.Errorf("%v is %v, want %v", err, got, code)
		}
		back := status.Err(status.Result(code, "its words"))
		if (back == nil) != (err == nil) || status.Code(back) != code {
			t.Errorf("%v comes back as %v", err, back)
		}
	}
	for code, words := range map[wire.Status_Code]string{wire.Status_NOT_FOUND: "its words", wire.Status_TIMEOUT: "TIMEOUT: its words"} {
		if err := status.Err(status.Result(code, "its words")); !strings.HasSuffix(err.Error(), words) || errors.Is(err, status.ErrNotFound) != (code == wire.Status_NOT_FOUND) {
			t.Errorf("%v: %v", code, err)
		}
	}
	if err := status.Err(status.Result(wire.Status_NOT_FOUND, "")); err.Error() != status.ErrNotFound.Error() {
		t.Errorf("without words: %v", err)
	}
}

// TestErrorsBetweenNodes verifies that an error reads the same on the node that has asked.
func TestErrorsBetweenNodes(t *testing.T) {
	for _, kind := range []error{
		status.ErrPrecondition, status.ErrInvalid, status.ErrNotFound, status.ErrUnavailable, status.ErrTooMany, status.ErrDenied, status.ErrNotLeader, status.ErrUncertain,
	} {
		for _, err := range []error{kind, fmt.Errorf("%w: node %q is not empty", kind, "n4")} {
			got := status.Err(status.ResultOf(err))
			if bare := errors.Is(err, status.ErrNotLeader) || errors.Is(err, status.ErrUncertain); !errors.Is(got, kind) || got.Error() != err.Error() && !bare {
				t.Errorf("%v comes back as %v", err, got)
			}
		}
	}
	for err, says := range map[error]string{status.ErrReplaced: "not possible now: " + status.ErrReplaced.Error(), errors.New("disk"): "INTERNAL: disk"} {
		if got := status.Err(status.ResultOf(err)); got.Error() != says {
			t.Errorf("%v comes back as %v", err, got)
		}
	}
	if got := status.ResultOf(nil); got.Status != wire.Status_OK || got.Message != "" {
		t.Errorf("no error: %v", got)
	}
}

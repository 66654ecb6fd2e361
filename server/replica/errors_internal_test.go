package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestErrorsOnTheWire verifies that errors map to statuses and back, with the state machine's message.
func TestErrorsOnTheWire(t *testing.T) {
	for err, code := range map[error]wire.Status_Code{
		ErrNotLeader: wire.Status_NOT_LEADER, ErrUncertain: wire.Status_UNCERTAIN, ErrUnavailable: wire.Status_UNAVAILABLE,
		context.DeadlineExceeded: wire.Status_UNAVAILABLE, context.Canceled: wire.Status_UNAVAILABLE, ErrInvalid: wire.Status_INVALID_ARGUMENT,
		ErrNotFound: wire.Status_NOT_FOUND, ErrTooMany: wire.Status_RESOURCE_EXHAUSTED, ErrPrecondition: wire.Status_FAILED_PRECONDITION,
		ErrReplaced: wire.Status_FAILED_PRECONDITION, ErrOtherCluster: wire.Status_FAILED_PRECONDITION, errDisk: wire.Status_INTERNAL, nil: wire.Status_OK,
		fmt.Errorf("%w: %w", ErrUncertain, context.Canceled): wire.Status_UNCERTAIN,
	} {
		if got := Code(err); got != code {
			t.Errorf("%v is %v, want %v", err, got, code)
		}
		back := asError(refused(code, "its words"))
		if (back == nil) != (err == nil) || Code(back) != code {
			t.Errorf("%v comes back as %v", err, back)
		}
	}
	for code, words := range map[wire.Status_Code]string{wire.Status_NOT_FOUND: "its words", wire.Status_TIMEOUT: "TIMEOUT: its words"} {
		if err := asError(refused(code, "its words")); !strings.HasSuffix(err.Error(), words) || errors.Is(err, ErrNotFound) != (code == wire.Status_NOT_FOUND) {
			t.Errorf("%v: %v", code, err)
		}
	}
	if err := asError(refused(wire.Status_NOT_FOUND, "")); err.Error() != ErrNotFound.Error() {
		t.Errorf("without words: %v", err)
	}
}

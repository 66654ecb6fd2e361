package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestErrorsAndStatusesAgree(t *testing.T) {
	for err, want := range map[error]wire.Status_Code{
		nil:                      wire.Status_OK,
		status.ErrNotLeader:      wire.Status_NOT_LEADER,
		status.ErrUnavailable:    wire.Status_UNAVAILABLE,
		context.DeadlineExceeded: wire.Status_UNAVAILABLE,
		status.ErrUncertain:      wire.Status_UNCERTAIN,
		status.ErrInvalid:        wire.Status_INVALID_ARGUMENT,
		status.ErrNotFound:       wire.Status_NOT_FOUND,
		status.ErrTooMany:        wire.Status_RESOURCE_EXHAUSTED,
		status.ErrPrecondition:   wire.Status_FAILED_PRECONDITION,
		status.ErrReplaced:       wire.Status_FAILED_PRECONDITION,
		errors.New("surprise"):   wire.Status_INTERNAL,
	} {
		if err != nil {
			err = fmt.Errorf("somewhere: %w", err)
		}
		if got := status.Code(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
		if back := status.Code(status.Err(status.Result(want, "words"))); back != want {
			t.Errorf("%v came back as %v", want, back)
		}
	}
}

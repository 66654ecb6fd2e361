package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestErrorsAndStatusesAgree(t *testing.T) {
	for err, want := range map[error]wire.Status_Code{
		nil:                      wire.Status_OK,
		ErrNotLeader:             wire.Status_NOT_LEADER,
		ErrUnavailable:           wire.Status_UNAVAILABLE,
		context.DeadlineExceeded: wire.Status_UNAVAILABLE,
		ErrUncertain:             wire.Status_UNCERTAIN,
		ErrInvalid:               wire.Status_INVALID_ARGUMENT,
		ErrNotFound:              wire.Status_NOT_FOUND,
		ErrTooMany:               wire.Status_RESOURCE_EXHAUSTED,
		ErrPrecondition:          wire.Status_FAILED_PRECONDITION,
		ErrReplaced:              wire.Status_FAILED_PRECONDITION,
		errors.New("surprise"):   wire.Status_INTERNAL,
	} {
		if err != nil {
			err = fmt.Errorf("somewhere: %w", err)
		}
		if got := Code(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
		if back := Code(asError(refused(want, "words"))); back != want {
			t.Errorf("%v came back as %v", want, back)
		}
	}
}

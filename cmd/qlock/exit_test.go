package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestExitCodesOfErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{usagef("no"), 64},
		{client.ErrInvalidArgument, 64},
		{client.ErrNotFound, 66},
		{client.ErrNotLeader, 69},
		{client.ErrUnavailable, 69},
		{client.ErrUncertain, 69},
		{context.DeadlineExceeded, 69},
		{errors.Join(context.DeadlineExceeded, client.ErrUncertain), 69},
		{client.ErrInternal, 70},
		{client.ErrPermissionDenied, 78},
		{client.ErrUnauthenticated, 78},
		{errors.Join(client.ErrExpired, client.ErrUnauthenticated), 76},
		{client.ErrFailedPrecondition, 70},
		{client.ErrUnsupported, 70},
		{client.ErrStale, 70},
		{errors.New("who knows"), 70},
		{client.ErrNotAcquired, 75},
		{client.ErrTimeout, 75},
		{client.ErrCancelled, 75},
		{client.ErrAlreadyHeld, 75},
		{client.ErrAlreadyQueued, 75},
		{client.ErrResourceExhausted, 75},
		{client.ErrSessionLost, 76},
		{client.ErrExpired, 76},
		{client.ErrClosed, 76},
		{client.ErrSuperseded, 76},
		{client.ErrForced, 76},
		{client.ErrHoldExpired, 76},
		{client.ErrDeadlock, 75},
		{&client.DeadlockError{}, 75},
		{client.ErrUpgradeConflict, 75},
		{client.ErrMismatch, 64},
		{client.ErrCompacted, 66},
		{client.ErrNotHeld, 77},
		{&failure{code: 3}, 3},
	} {
		for _, err := range []error{c.err, fmt.Errorf("around: %w", c.err)} {
			if c.err == nil {
				err = nil
			}
			if got := exitCode(err); got != c.want {
				t.Errorf("%v: exit code %d, want %d", err, got, c.want)
			}
		}
	}
}

// TestEveryStatusHasAnExitCode checks that every status for a failure is in the table, so that a new status
// is not forgotten.
func TestEveryStatusHasAnExitCode(t *testing.T) {
	inTable := func(code wire.Status_Code) bool {
		for _, o := range outcomes {
			if errors.Is(&client.StatusError{Status: client.Status(code), Message: "m"}, o.err) {
				return true
			}
		}
		return false
	}
	for number, name := range wire.Status_Code_name {
		switch code := wire.Status_Code(number); code {
		case wire.Status_UNSPECIFIED, wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED:
		case wire.Status_NOT_ATTACHED: // handled inside the SDK
		default:
			if !inTable(code) {
				t.Errorf("%s has no exit code", name)
			}
		}
	}
}

func TestErrorsAreOneLineWithTheRemedy(t *testing.T) {
	err := fmt.Errorf("no serving leader at a:1: %w", errors.Join(context.DeadlineExceeded, client.ErrUnavailable))
	got := explain(err)
	if strings.Contains(got, "\n") || strings.Contains(got, "quorumlock: ") || !strings.HasSuffix(got, "start a majority of the nodes, or correct --endpoints") {
		t.Errorf("got %q", got)
	}
	if got := explain(&failure{code: 7}); got != "" {
		t.Errorf("a command's own exit code is explained: %q", got)
	}
}

package transport_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
)

var errNoFiles = errors.New("too many open files")

// scripted is a listener whose calls of Accept return these errors, and a connection for nil. Then it is closed.
type scripted struct {
	net.Listener // nil: only Accept may be used
	errs         []error
}

func (s *scripted) Accept() (net.Conn, error) {
	if len(s.errs) == 0 {
		return nil, net.ErrClosed
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	if err != nil {
		return nil, err
	}
	return &gate{}, nil
}

// TestAcceptTriesAgain verifies that errors are reported, and that the pauses double up to a second until a connection
// is accepted.
func TestAcceptTriesAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &scripted{errs: append(slices.Repeat([]error{errNoFiles}, 10), nil, errNoFiles, nil)}
		var failed, admitted []time.Duration
		started := time.Now()
		transport.Accept(t.Context(), l, func(conn net.Conn) {
			if conn == nil {
				t.Error("admitted no connection")
			}
			admitted = append(admitted, time.Since(started))
		}, func(err error) {
			if !errors.Is(err, errNoFiles) {
				t.Errorf("failed with %v", err)
			}
			failed = append(failed, time.Since(started))
		})
		const ms = time.Millisecond
		if want := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 315 * ms, 635 * ms, 1275 * ms, 2275 * ms, 3275 * ms}; !slices.Equal(failed, want) {
			t.Errorf("failed after %v, want %v", failed, want)
		}
		if want := []time.Duration{3275 * ms, 3280 * ms}; !slices.Equal(admitted, want) {
			t.Errorf("admitted after %v, want %v", admitted, want)
		}
	})
}

// TestAcceptEndsWithItsContext verifies that the end of the context ends a pause, and that errors after it are not
// reported.
func TestAcceptEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		started, failures := time.Now(), 0
		time.AfterFunc(2*time.Second, cancel)
		l := &scripted{errs: slices.Repeat([]error{errNoFiles}, 20)}
		for range 2 {
			transport.Accept(ctx, l, nil, func(error) { failures++ })
		}
		if took := time.Since(started); took != 2*time.Second || failures != 9 {
			t.Errorf("ended after %v and %d failures, want 2s and 9", took, failures)
		}
	})
}

package redis

import (
	"errors"
	"io"
	"slices"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/server/internal/keys"
	"github.com/quorumlock/quorumlock/server/redis/resp"
)

// faults are the reasons to end an established connection that operators should see.
var faults = []error{errStalled, errNoRead, errHTTP, budget.ErrExhausted, keys.ErrUnknown}

// noteEnd counts the end of a connection. It logs the reason as a warning if that is a fault.
func (s *Server) noteEnd(c *conn, established bool, reason error) {
	args := []any{"remote", c.remote, "reason", reason}
	_, fault := errors.AsType[resp.ProtocolError](reason)
	fault = fault || slices.ContainsFunc(faults, func(f error) bool { return errors.Is(reason, f) })
	switch {
	case !established && !ordinary(reason):
		s.metrics.Refused.Inc()
		s.refusals.Warn("connection refused", args...)
	case fault:
		s.metrics.Ended.Inc()
		s.endings.Warn("connection ended", args...)
	default:
		s.cfg.Logger.Debug("connection ended", args...)
	}
}

// ordinary reports whether a connection ended as its client wished, or this node for a reason of its own.
func ordinary(reason error) bool {
	return reason == nil || errors.Is(reason, io.EOF) || errors.Is(reason, errEnded) || errors.Is(reason, errQuit)
}

package backup

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
)

// chunk is the largest single write of Write, in bytes.
const chunk = 64 << 10

// Write writes the state of a machine to w, as a backup of package fsm, until ctx ends. Each write has at most 64 KiB,
// and w must not keep the slice.
func Write(ctx context.Context, m *fsm.Machine, w io.Writer) error {
	return m.WriteBackup(&chunks{ctx: ctx, w: w})
}

// chunks splits writes into chunks and fails once ctx has ended.
type chunks struct {
	ctx context.Context
	w   io.Writer
}

func (c *chunks) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		if err := c.ctx.Err(); err != nil {
			return written, err
		}
		n, err := c.w.Write(p[:min(len(p), chunk)])
		written += n
		if err != nil {
			return written, err
		}
		p = p[n:]
	}
	return written, nil
}

// NextSecond waits until the second of the given time is over, so that another restore of the same backup
// after this one falls into a later second.
func NextSecond(ctx context.Context, of time.Time) error {
	for next := of.Truncate(time.Second).Add(time.Second); time.Now().Unix() <= of.Unix(); {
		select {
		case <-time.After(max(time.Until(next), time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", status.ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

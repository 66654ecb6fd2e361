package process_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
)

// briefTTL is of a session whose process is gone.
const briefTTL = time.Second

func TestHoldsOutliveAGracefulStopOfAll(t *testing.T) {
	c := process.Start(t, programs, 3, "--min-ttl", briefTTL.String())
	l := startLoad(t, c)
	gone := c.NewClient()
	abandoned, err := open(t, gone, briefTTL).Lock(t.Context(), "abandoned")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close() // as a crash would: the session is not closed

	fault := l.ledger.now()
	c.Terminate(c.IDs()...)
	t.Logf("all ended %v after SIGTERM", (l.ledger.now() - fault).Round(time.Millisecond))
	c.Restart(c.IDs()...)
	l.awaitGrants(l.ledger.now(), afterFault)
	l.outage(fault, "SIGTERM and restart of all", 10*time.Second)
	c.AwaitAll()

	// Who does not come back loses what it held, and only that.
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	h, err := l.session(0).Lock(ctx, "abandoned")
	if err != nil {
		t.Fatal(err)
	}
	if h.Token() <= abandoned.Token() {
		t.Errorf("token %d after %d", h.Token(), abandoned.Token())
	}
	if err := context.Cause(abandoned.Context()); !errors.Is(err, client.ErrClientClosed) {
		t.Errorf("the hold left behind ended with %v", err)
	}
	l.finish()
	c.AwaitMetrics("nothing kept", c.IDs(), nothingKept)
}

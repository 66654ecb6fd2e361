package process_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/process"
)

// briefTTL is the TTL of a session whose process is gone.
const briefTTL = time.Second

func TestHoldsOutliveAGracefulStopOfAll(t *testing.T) {
	c := process.Start(t, programs, 3, "--min-ttl", briefTTL.String())
	l := startLoad(t, c)
	gone := c.NewClient()
	abandoned, err := open(t, gone, briefTTL).Lock(t.Context(), "abandoned")
	if err != nil {
		t.Fatal(err)
	}
	wirecall.Crash(gone) // the session is not closed

	fault := l.Log.Now()
	c.Terminate(c.IDs()...)
	t.Logf("all ended %v after SIGTERM", (l.Log.Now() - fault).Round(time.Millisecond))
	c.Restart(c.IDs()...)
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(fault, "SIGTERM and restart of all", 10*time.Second)
	c.AwaitAll()

	// A client that does not return loses its own holds, and no other client loses any.
	ctx, cancel := context.WithTimeout(t.Context(), process.WaitTimeout)
	defer cancel()
	heir := open(t, c.NewClient(), loadTTL)
	h, err := heir.Lock(ctx, "abandoned")
	if err != nil {
		t.Fatal(err)
	}
	if h.Token() <= abandoned.Token() {
		t.Errorf("token %d after %d", h.Token(), abandoned.Token())
	}
	if err := context.Cause(abandoned.Context()); !errors.Is(err, client.ErrClientClosed) {
		t.Errorf("the hold left behind ended with %v", err)
	}
	if err := heir.Close(ctx); err != nil {
		t.Error(err)
	}
	l.finish()
}

package listener

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
)

// TestForwardedRequestsAreChargedByIdentity verifies that the requests of one identity on a connection of another node end
// together when they hold most, that the connection and other requests go on, and that nothing is held at the end.
func TestForwardedRequestsAreChargedByIdentity(t *testing.T) {
	buffers := budget.New(100)
	c, log := wiredConn(&wired{}, buffers)
	c.Conn = &NodeConn{c.Conn}
	charge := func(identity string, bytes int) (cause context.Context, end func(), err error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		memory, end := c.Charge(identity, cancel)
		return ctx, end, memory.Reserve(bytes)
	}
	ann, endAnn, _ := charge("ann", 40)
	ann2, endAnn2, _ := charge("ann", 40)
	ben, endBen, err := charge("ben", 30)
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []context.Context{ann, ann2} {
		select {
		case <-request.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("ann's requests go on")
		}
	}
	if !errors.Is(context.Cause(ann), ErrCut) || ben.Err() != nil || c.Closed() {
		t.Errorf("ann: %v, ben: %v, the connection is closed: %v", context.Cause(ann), ben.Err(), c.Closed())
	}
	later, endLater, err := charge("ann", 60)
	if endAnn(); err != nil || later.Err() != nil {
		t.Errorf("a later request: %v %v", err, later.Err())
	}
	endAnn2()
	if used := buffers.Used(); used != 90 {
		t.Errorf("%d bytes are held", used)
	}
	endBen()
	endLater()
	if used := buffers.Used(); used != 0 || len(c.forwarded) != 0 {
		t.Errorf("at the end, %d bytes are held by %d identities", used, len(c.forwarded))
	}
	if !strings.Contains(log.String(), "identity=ann") {
		t.Errorf("log: %s", log)
	}
}

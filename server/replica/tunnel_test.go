package replica_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tunnel opens a tunnel from a follower to the leader. The status is OK if the leader accepted it.
func (c *cluster) tunnel(leader *node, address string) wire.Status_Code {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := c.followers()[0].OpenTunnel(ctx, &wire.LeaderHint{Id: leader.id}, &wire.Caller{Identity: "ann", Address: address})
	if refusal := (*peerport.TunnelError)(nil); errors.As(err, &refusal) {
		return refusal.Status
	}
	if err != nil {
		c.t.Fatal(err)
	}
	_ = conn.Close()
	return wire.Status_OK
}

// TestTunnelsReachTheLeader opens tunnels for clients with several addresses, and to a leader that accepts
// none.
func TestTunnelsReachTheLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for _, off := range []bool{false, true} {
			c := newCluster(t, 3)
			for _, n := range c.nodes {
				n.cfg.NoTunnels = off
			}
			leader := c.startAll().waitForReports()
			accepted := make(chan string, 10)
			cancel := leader.OnTunnel(func(conn net.Conn, caller *wire.Caller) {
				accepted <- caller.GetAddress()
				_ = conn.Close()
			})
			for address, want := range map[string]wire.Status_Code{
				"10.0.0.1:4711":                 wire.Status_OK,
				"[fe80::1]:4711":                wire.Status_OK,
				strings.Repeat("h", 126) + ":1": wire.Status_OK,
				strings.Repeat("h", 127) + ":1": wire.Status_INVALID_ARGUMENT,
				"10.0.0.1":                      wire.Status_INVALID_ARGUMENT,
				"10.0.0.1:1\nleader lost":       wire.Status_INVALID_ARGUMENT,
				"\x1b[31mred:1":                 wire.Status_INVALID_ARGUMENT,
			} {
				if off {
					want = wire.Status_UNSUPPORTED
				}
				if got := c.tunnel(leader, address); got != want {
					t.Errorf("with tunnels off %v, for %q: %v, want %v", off, address, got, want)
				} else if got == wire.Status_OK && <-accepted != address {
					t.Errorf("not accepted for %q", address)
				}
			}
			cancel()
			c.stopAll()
		}
	})
}

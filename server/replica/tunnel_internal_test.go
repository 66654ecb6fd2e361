package replica

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestTunnelsToNoLeader verifies that a node that is starting or knows no leader opens no tunnel.
func TestTunnelsToNoLeader(t *testing.T) {
	r := &Replica{}
	for _, says := range []string{"is starting", `follows "", not "n2"`} {
		if _, err := r.OpenTunnel(t.Context(), &wire.LeaderHint{Id: "n2"}, &wire.Caller{Address: "10.0.0.1:1"}); !errors.Is(err, ErrLeaderMoved) || !strings.Contains(err.Error(), says) {
			t.Errorf("opened: %v, want %q", err, says)
		}
		r.cluster.Run(new(raft.Raft))
	}
}

// TestNodesThatAcceptTunnels asks a leader without and with a handler for tunnels, and a node that does not lead.
func TestNodesThatAcceptTunnels(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		leader := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		follower := started(t)
		ask := func(r *Replica, address string, want wire.Status_Code) (accept func(net.Conn)) {
			t.Helper()
			resp, accept := r.tunnelAsked(nil, &wire.TunnelRequest{Address: address})
			if resp.GetStatus() != want || (accept != nil) != (want == wire.Status_OK) {
				t.Errorf("answered %v, want %v", resp, want)
			}
			return accept
		}
		const address = "10.0.0.1:4711"
		var got []string
		takes := func(who string) func(net.Conn, *wire.Caller) {
			return func(_ net.Conn, caller *wire.Caller) { got = append(got, who+caller.GetAddress()) }
		}
		ask(leader, address, wire.Status_UNAVAILABLE)
		endFirst, _ := leader.OnTunnel(takes("first")), follower.OnTunnel(takes("follower"))
		ask(follower, address, wire.Status_NOT_LEADER)
		ask(leader, "nowhere", wire.Status_INVALID_ARGUMENT)
		ask(leader, address, wire.Status_OK)(nil)
		endSecond := leader.OnTunnel(takes("second "))
		endFirst()
		ask(leader, address, wire.Status_OK)(nil)
		endSecond()
		ask(leader, address, wire.Status_UNAVAILABLE)
		askFor := func(r *Replica, port wire.TunnelRequest_Port, want wire.Status_Code, says string) {
			t.Helper()
			resp, accept := r.tunnelAsked(&wire.PeerHello{Id: "n9"}, &wire.TunnelRequest{Port: port})
			if resp.GetStatus() != want || !strings.Contains(resp.GetMessage(), says) {
				t.Errorf("answered %v, want %v and %q", resp, want, says)
			} else if accept != nil {
				accept(nil)
			}
		}
		for _, r := range []*Replica{leader, follower} { // whether it leads or not
			askFor(r, wire.TunnelRequest_HTTP, wire.Status_UNAVAILABLE, "starting or stopping")
			askFor(r, wire.TunnelRequest_KEYS, wire.Status_UNAVAILABLE, "starting or stopping")
			r.cfg.NoTunnels = true // which concerns tunnels for clients only
			r.OnForward(func(net.Conn) { got = append(got, "http") })
			r.OnKeys(func(from string, _ net.Conn) { got = append(got, "keys of "+from) })
			askFor(r, wire.TunnelRequest_HTTP, wire.Status_OK, "")
			askFor(r, wire.TunnelRequest_KEYS, wire.Status_OK, "")
			askFor(r, wire.TunnelRequest_CLIENT, wire.Status_UNSUPPORTED, "without --no-tunnels")
			askFor(r, 77, wire.Status_UNSUPPORTED, "does not know port 77")
		}
		if want := "first" + address + " second " + address + " http keys of n9 http keys of n9"; strings.Join(got, " ") != want {
			t.Errorf("taken: %q, want %q", got, want)
		}
		if err := leader.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

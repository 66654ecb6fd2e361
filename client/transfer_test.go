package client

import (
	"context"
	"errors"
	"testing"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestTransferIsSeenToSucceed(t *testing.T) {
	for id, want := range map[string]error{"": nil, "n2": nil, "n3": ErrUncertain} {
		virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
			f.set(func() {
				f.intercept = func(cn *fakeConn, _ *wire.Request) bool {
					f.leader = &wire.LeaderHint{Id: "n2", ClientAddr: "n2:7400", Term: 2}
					cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: f.leader}})
					return true
				}
			})
			got, err := wirecall.Of(c).TransferLeadership(context.Background(), &wire.TransferLeadershipRequest{Id: id, Reason: "test"})
			if want != nil {
				wantErr(t, err, want)
				return
			}
			ok(t, err)
			if got.GetLeaderId() != "n2" {
				t.Fatal(got)
			}
		})
	}
}

// TestLeaderIsRemovedByTheNext removes the leader, which hands leadership over. The request goes to the next leader, and
// only that one removes a node: the outcome of removing another node is unknown.
func TestLeaderIsRemovedByTheNext(t *testing.T) {
	for id, want := range map[string]error{"n1": nil, "n3": ErrUncertain} {
		virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
			asked := 0
			f.set(func() {
				f.intercept = func(cn *fakeConn, req *wire.Request) bool {
					if req.GetRemoveMember() != nil {
						asked++
					}
					if cn.node.id != "n1" {
						return false
					}
					f.leader = &wire.LeaderHint{Id: "n2", ClientAddr: "n2:7400", Term: 2}
					cn.push(&wire.Push{Body: &wire.Push_Leader{Leader: f.leader}})
					return true
				}
			})
			_, err := wirecall.Of(c).RemoveMember(context.Background(), &wire.RemoveMemberRequest{Id: id, Reason: "test"})
			if !errors.Is(err, want) || want == nil && asked != 2 {
				t.Errorf("removing %s: %v after %d requests", id, err, asked)
			}
		})
	}
}

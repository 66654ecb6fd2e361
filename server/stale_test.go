package server

import (
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// TestStaleBackupObeysThePolicyThatItContains restarts one node of three, whose log has a policy that the node has not
// applied and cannot know to be committed. The backup of its log is refused to callers that this policy gives nothing.
func TestStaleBackupObeysThePolicyThatItContains(t *testing.T) {
	nodes := cluster(t, io.Discard, "n1", "n2", "n3")
	leader := serving(t, nodes...)
	keptBy(t, leader, "ann")
	one := others(nodes, leader)[0]
	eventually(t, "the policy on a follower", func() bool { return one.Replica().Access().Rights() != nil })
	cfg := one.cfg
	cfg.Registry, cfg.Network = nil, nil
	for _, node := range nodes {
		shut(t, node)
	}
	cfg.Listen = Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	again := open(t, cfg)
	stream, err := wireconnect.NewOperatorServiceClient(http.DefaultClient, "http://"+again.Addrs().HTTP).
		SaveSnapshot(bounded(t), connect.NewRequest(&wire.SaveSnapshotRequest{Reason: "test", Stale: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
	}
	if connect.CodeOf(stream.Err()) != connect.CodePermissionDenied {
		t.Errorf("anonymous gets %v, want permission_denied", stream.Err())
	}
}

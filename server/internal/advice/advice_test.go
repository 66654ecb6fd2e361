package advice_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/advice"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAdviceFitsTheCluster verifies what a wiped node advises its operator to do, for each quorum.
func TestAdviceFitsTheCluster(t *testing.T) {
	node := advice.Node{ID: "n1", PeerAddr: "h1:1"}
	peer := &wire.NodeState{ClusterId: "c", Member: &wire.Member{Id: "n2", ClientAddr: "h2:2"}}
	const replace, restart = "qlock cluster remove n1", "qlock cluster recover DATA-DIR"
	for now, want := range map[probe.Quorum][2]bool{probe.HasLeader: {true, false}, probe.QuorumLost: {false, true}, probe.NoLeader: {true, true}} {
		err := node.Replaced("new", peer, now)
		text := err.Error()
		if got := [2]bool{strings.Contains(text, replace), strings.Contains(text, restart)}; got != want || !errors.Is(err, status.ErrReplaced) {
			t.Errorf("quorum %v: %s", now, text)
		}
	}
}

// TestDamageErrorsNameTheRemedy verifies that the message contains the repair commands with the node's own names.
func TestDamageErrorsNameTheRemedy(t *testing.T) {
	node := advice.Node{ID: "n2", DataDir: "/data", PeerAddr: "h2:7401"}
	text := node.Damaged(fmt.Errorf("%w: /data/raft.db", storage.ErrDamaged)).Error()
	for _, want := range []string{"/data/raft.db", "mv /data /data.damaged", "qlock cluster remove n2", "qlock cluster add n2 h2:7401", "qlock cluster recover DATA-DIR"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	node.Alone = true
	if text := node.Damaged(storage.ErrDamaged).Error(); !strings.Contains(text, "qlock snapshot restore") || strings.Contains(text, "cluster recover") {
		t.Errorf("a node without others: %q", text)
	}
	if err := node.Damaged(errDisk); err != errDisk {
		t.Errorf("no damage: %v", err)
	}
}

var errDisk = errors.New("input/output error")

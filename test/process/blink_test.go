package process_test

import (
	"math/rand/v2"
	"testing"

	"github.com/quorumlock/quorumlock/test/process"
)

// TestLeaderContinuesAfterABriefPause freezes the leader for less than its followers' timeout. It continues to
// lead: no session is lost, no deadline is enforced early, and no answer is stale.
func TestLeaderContinuesAfterABriefPause(t *testing.T) {
	if !full {
		t.Skip("the long version has this, with QUORUMLOCK_CHECK=1")
	}
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	random := rand.New(rand.NewPCG(1, 1))
	var quiet uint64
	const rounds, few = 3, 12 // of eight freezes in each round
	for range rounds {
		quiet += l.Strike(process.NemesisNamed("freeze the leader briefly"), random)
		l.Recover()
	}
	t.Logf("%d freezes without an election", quiet)
	if quiet < few {
		t.Errorf("an election followed all freezes but %d", quiet)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.finish()
}

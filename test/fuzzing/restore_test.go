package fuzzing

import (
	"crypto/sha256"
	"testing"

	"github.com/quorumlock/quorumlock/test/generate"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// FuzzRestoreInput sends arbitrary restore requests to an empty cluster, on the client port. Whatever was
// restored, tokens never decrease, and the cluster grants locks or refuses with a reason.
func FuzzRestoreInput(f *testing.F) {
	for _, data := range seeds()[:corpus] {
		f.Add(data[:512])
	}
	f.Fuzz(func(t *testing.T, data []byte) { talkRestore(t, data, nil) })
}

func talkRestore(t *testing.T, data []byte, tally *tally) {
	s := generate.NewSource(data)
	inBubble(t, tally, true, func(g *target) {
		c := g.connect()
		defer func() { c.close() }()
		restore := requestKinds().ByName("restore")
		g.known.Learn(backup(g).ProtoReflect())
		for n := 0; s.More() && n < 4; n++ {
			before := g.node.Replica().Fork().Token()
			if c.exchange(s, restore, uint64(n+1)); c.gone() {
				c.close()
				c = g.connect()
			}
			g.check("restore")
			if after := g.node.Replica().Fork().Token(); after < before {
				t.Fatalf("the token counter went back from %d to %d", before, after)
			}
		}
		g.grants()
	})
}

// backup is a valid restore request for the fuzzer to modify.
func backup(g *target) *wire.RestoreRequest {
	m := g.node.Replica().Fork()
	return &wire.RestoreRequest{
		Backup: &wire.Backup{ClusterId: m.ClusterID(), Token: m.Token()}, ClusterId: m.ClusterID(), Settings: m.Settings(), Operator: "ann", Reason: "because",
		Audit: []*wire.AuditRecord{{Id: 1, Action: wire.AuditRecord_RESIZE, Lock: "pool", Reason: "because", WallUnixMs: 1}},
	}
}

// grants acquires a lock.
func (g *target) grants() {
	g.t.Helper()
	hash := sha256.Sum256([]byte("after the restore"))
	opened := g.do(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:]}}})
	g.answered("open", opened.GetStatus(), opened.GetMessage())
	session := opened.GetSession().GetSessionId()
	if session == 0 {
		return
	}
	before := g.node.Replica().Fork().Token()
	held := g.do(&wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}}})
	g.answered("acquire", held.GetStatus(), held.GetMessage())
	if held.GetStatus() == wire.Status_GRANTED && held.GetToken() <= before {
		g.t.Fatalf("token %d after %d", held.GetToken(), before)
	}
}

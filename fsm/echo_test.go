package fsm

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAnswersNameWhatTheyAnswer requests holds in each way, twice: the answer and its repetition contain
// the digest and the name of the request.
func TestAnswersNameWhatTheyAnswer(t *testing.T) {
	m := bootstrapped(t)
	ann := openSession(t, m, "ann")
	shared := applyOne(t, m, &wire.Command{SessionId: ann, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: "r", Mode: wire.Mode_SHARED}},
	}}}).Results[0]
	for name, cmd := range map[string]*wire.Command{
		"a": {SessionId: ann, Seq: 2, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}, {Name: "z"}}}}},
		"b": {Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("lease"), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "b"}}}}}},
		"r": {SessionId: ann, Seq: 3, Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: shared.HoldId, Token: shared.Token}}},
	} {
		for range 2 {
			r := applyOne(t, m, cmd).Results[0]
			if r.Status != wire.Status_GRANTED && r.Status != wire.Status_OK || r.Name != name || r.Digest != cmd.Digest() || r.Digest == 0 {
				t.Errorf("%v was answered with %v", cmd, r)
			}
		}
	}
}

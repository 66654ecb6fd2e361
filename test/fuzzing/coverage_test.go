package fuzzing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seedCount is the number of conversations that are searched for every kind of request. corpus is how many of
// them seed the fuzzing.
const seedCount, corpus = 480, 48

// seeds are random bytes: the generator determines their meaning.
func seeds() (all [][]byte) {
	random := rand.NewChaCha8([32]byte{19})
	for range seedCount {
		data := make([]byte, 4_096)
		_, _ = random.Read(data)
		all = append(all, data)
	}
	return all
}

// TestSeedsReachEveryRequest verifies that the seeds contain requests of every kind, each of which succeeds
// at least once. Otherwise fuzzing would not get past validation. It sends the whole corpus, so "make test"
// does not run it again as FuzzRPC and FuzzHTTP.
func TestSeedsReachEveryRequest(t *testing.T) {
	kinds := func() (all []string) {
		for i := range requestKinds().Len() {
			all = append(all, string(requestKinds().Get(i).Name()))
		}
		return all
	}
	methods := func() (all []string) {
		for _, m := range procedures() {
			all = append(all, string(m.FullName()))
		}
		return all
	}
	for name, port := range map[string]struct {
		kinds []string
		talk  func(*testing.T, []byte, *tally)
	}{"rpc": {kinds(), talkRPC}, "http": {methods(), talkHTTP}} {
		t.Run(name, func(t *testing.T) {
			tally := newTally()
			missing := func() []string {
				return slices.DeleteFunc(slices.Clone(port.kinds), tally.succeeded)
			}
			for i, data := range seeds() {
				if port.talk(t, data, tally); t.Failed() {
					t.Fatalf("seed %d", i)
				}
				if i+1 >= corpus && len(missing()) == 0 {
					t.Logf("%d seeds reach every request", i+1)
					return
				}
			}
			for _, kind := range missing() {
				t.Errorf("%s never succeeds: %v", kind, tally.of[kind])
			}
		})
	}
}

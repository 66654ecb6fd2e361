package workload

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/test/judge"
)

// TestAnswersOverHTTPAreJudged verifies that a node's HTTP answers pass the judge, and that changed ones do
// not.
func TestAnswersOverHTTPAreJudged(t *testing.T) {
	inWorld(t, Options{Parts: []Part{Leases}}, func(w *world) {
		w.pass(2 * aWhile)
		w.run.Finish()
		seen, entries := w.log.History(), w.entries()
		judged := func() judge.Verdict {
			return judge.Run(judge.Input{History: seen, Entries: entries, Bounds: judge.Bounds{Stamps: true}})
		}
		if err := judged().Err(); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"acquire_lease", "extend_lease", "release_lease"} {
			op := answeredOverHTTP(seen, kind)
			if op == nil {
				t.Fatalf("no %s over HTTP was answered", kind)
			}
			told := op.Result()
			for what, forge := range map[string]func(by int){
				"revision": func(by int) { told.Revision += uint64(by) },
				"count":    func(by int) { told.Count += uint32(by) },
			} {
				forge(1)
				if faults := judged().Faults; !strings.Contains(strings.Join(faults, "\n"), kind+": told") {
					t.Errorf("%s with another %s is believed: %v", kind, what, faults)
				}
				forge(-1)
			}
		}
	})
}

func answeredOverHTTP(h *history.History, kind string) *history.Op {
	for _, op := range h.Ops() {
		if op.HTTP && op.Kind == kind && op.Outcome == history.OK {
			return op
		}
	}
	return nil
}

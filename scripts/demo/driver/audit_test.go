package main

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

func entry(op, order string, token uint64, worker int) demo.Entry {
	return demo.Entry{Op: op, Refund: demo.Refund{Access: demo.Access{Order: order, Token: token, Worker: worker}}}
}

var asked = []demo.Request{{Line: 1, Order: "A"}, {Line: 2, Order: "A"}, {Line: 3, Order: "B"}}

// good is a journal without faults.
func good() []demo.Entry {
	return []demo.Entry{
		entry("check", "A", 1, 1), entry("refund", "A", 1, 1),
		entry("check", "B", 2, 2), entry("check", "B", 3, 1),
		entry("refused", "B", 2, 2), entry("refund", "B", 3, 1),
	}
}

func TestAuditAcceptsCorrectRuns(t *testing.T) {
	a := examine(good(), asked)
	if len(a.faults) > 0 {
		t.Error(a.faults)
	}
	if a.refunds != 2 || a.refused != 1 || a.highest != 3 {
		t.Errorf("got %+v", a)
	}
}

func TestAuditFindsBrokenPromises(t *testing.T) {
	for want, journal := range map[string][]demo.Entry{
		"order B was missed":               good()[:5],
		"order A was refunded 2 times":     append(good(), entry("refund", "A", 4, 3)),
		"a stale token got in":             append(good(), entry("refund", "B", 2, 2)),
		"token 1 was given out twice":      append(good(), entry("check", "C", 1, 1)),
		"C was refunded, and nobody asked": append(good(), entry("refund", "C", 9, 1)),
	} {
		a := examine(journal, asked)
		if !strings.Contains(strings.Join(a.faults, "\n"), want) {
			t.Errorf("want %q, got %q", want, a.faults)
		}
	}
}

// told is a story in which every fault took effect.
func told() *story {
	return &story{
		total: 3, answered: 3, refunded: 2,
		pause: pause{worker: 2, order: "B", token: 2, takenOver: 1, refused: true},
		crash: crash{killed: "n1", restarted: true, changes: 1},
	}
}

func TestJudgeAcceptsACorrectHistory(t *testing.T) {
	a := examine(good(), asked)
	a.judge(told())
	if err := a.verdict(); err != nil {
		t.Error(err)
	}
}

func TestJudgeRequiresEffectiveFaults(t *testing.T) {
	for want, spoil := range map[string]func(*story){
		"leadership never changed":      func(s *story) { s.crash.changes = 0 },
		"did not come back":             func(s *story) { s.crash.restarted = false },
		"no worker was stopped":         func(s *story) { s.pause.takenOver = 0 },
		"never reached the ledger":      func(s *story) { s.pause.refused = false },
		"2 of 3 requests were answered": func(s *story) { s.answered = 2 },
		"the workers report 1 refunds":  func(s *story) { s.refunded = 1 },
	} {
		s := told()
		spoil(s)
		a := examine(good(), asked)
		a.judge(s)
		if err := a.verdict(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

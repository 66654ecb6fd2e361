package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

// audit is the evaluation of the ledger's journal, regardless of what others reported.
type audit struct {
	refunds int
	refused int
	highest uint64 // token
	// faults are violated guarantees, each a sentence.
	faults []string
}

func (a *audit) fault(format string, args ...any) {
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}

func readJournal(path string) ([]demo.Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	var entries []demo.Entry
	for {
		var entry demo.Entry
		err := decoder.Decode(&entry)
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, entry %d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, entry)
	}
}

// examine checks the journal against the requests.
func examine(journal []demo.Entry, requests []demo.Request) *audit {
	a := &audit{}
	refunds := map[string]int{}
	highest := map[string]uint64{}
	for _, entry := range journal {
		a.highest = max(a.highest, entry.Token)
		if entry.Op == "refused" {
			a.refused++
			continue
		}
		if entry.Op == "refund" {
			a.refunds++
			refunds[entry.Order]++
			if entry.Token < highest[entry.Order] {
				a.fault("a stale token got in: worker %d wrote the refund of order %s with token %d after token %d",
					entry.Worker, entry.Order, entry.Token, highest[entry.Order])
			}
		}
		highest[entry.Order] = max(highest[entry.Order], entry.Token)
	}
	a.eachOnce(refunds, requests)
	a.tokensApart(journal)
	return a
}

// eachOnce finds orders that were not refunded exactly once.
func (a *audit) eachOnce(refunds map[string]int, requests []demo.Request) {
	asked := map[string]bool{}
	for _, request := range requests {
		if asked[request.Order] {
			continue
		}
		asked[request.Order] = true
		switch n := refunds[request.Order]; {
		case n == 0:
			a.fault("order %s was missed", request.Order)
		case n > 1:
			a.fault("order %s was refunded %d times", request.Order, n)
		}
	}
	for order := range refunds {
		if !asked[order] {
			a.fault("order %s was refunded, and nobody asked for it", order)
		}
	}
}

// tokensApart finds tokens that were issued twice. Each belongs to one hold, that is, to one order and one
// worker.
func (a *audit) tokensApart(journal []demo.Entry) {
	type hold struct {
		order  string
		worker int
	}
	holds := map[uint64]hold{}
	for _, entry := range journal {
		mine := hold{entry.Order, entry.Worker}
		if other, seen := holds[entry.Token]; seen && other != mine {
			a.fault("token %d was given out twice, for order %s and order %s", entry.Token, other.order, mine.order)
		}
		holds[entry.Token] = mine
	}
}

// judge checks that the faults took effect, since otherwise the run proves nothing.
func (a *audit) judge(s *story) {
	if s.crash.killed == "" || s.crash.changes == 0 {
		a.fault("the fault took no effect: leadership never changed")
	}
	if !s.crash.restarted {
		a.fault("the fault took no effect: the killed leader did not come back while there was work")
	}
	switch {
	case s.pause.order == "" || s.pause.takenOver == 0:
		a.fault("the fault took no effect: no worker was stopped and had its order taken over")
	case !s.pause.refused && !s.pause.gotIn:
		a.fault("the fault took no effect: the stopped worker's write never reached the ledger")
	}
	if s.answered != s.total {
		a.fault("%d of %d requests were answered", s.answered, s.total)
	}
	if s.refunded != a.refunds {
		a.fault("the workers report %d refunds, the ledger has %d", s.refunded, a.refunds)
	}
}

// table returns the summary at the end of the demo.
func (a *audit) table(s *story, token uint64) string {
	rows := [][2]string{
		{"requests", fmt.Sprint(s.total)},
		{"refunds", fmt.Sprint(a.refunds)},
		{"duplicates refused", fmt.Sprintf("%d (%d retries, %d second submissions)", s.retried+s.duplicates, s.retried, s.duplicates)},
		{"stale tokens refused", fmt.Sprint(a.refused)},
		{"leader changes", fmt.Sprint(s.crash.changes)},
		{"longest gap without a grant", fmt.Sprintf("%.2f s (from %.1f s on)", s.gap.Seconds(), s.gapBegan.Seconds())},
		{"highest token", fmt.Sprint(max(token, a.highest))},
	}
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "  %-28s %s\n", row[0], row[1])
	}
	return text.String()
}

// verdict returns nil or an error with at most ten faults.
func (a *audit) verdict() error {
	if len(a.faults) == 0 {
		return nil
	}
	slices.Sort(a.faults)
	shown := a.faults[:min(10, len(a.faults))]
	text := "FAILED\n  " + strings.Join(shown, "\n  ")
	if more := len(a.faults) - len(shown); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return errors.New(text)
}

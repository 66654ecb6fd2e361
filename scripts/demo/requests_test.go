package demo

import (
	"slices"
	"testing"
)

const workers = 8

func shipped(t *testing.T) []Request {
	t.Helper()
	requests, err := ReadRequests("refunds.csv")
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// TestShippedRequestsRepeatOrders verifies that the demo's data contains what a payment system sees.
// Otherwise the demo proves nothing.
func TestShippedRequestsRepeatOrders(t *testing.T) {
	requests := shipped(t)
	keys := map[string]map[string]bool{}
	retries, submissions := 0, 0
	for _, r := range requests {
		switch {
		case keys[r.Order] == nil:
			keys[r.Order] = map[string]bool{}
		case keys[r.Order][r.Key]:
			retries++
		default:
			submissions++
		}
		keys[r.Order][r.Key] = true
	}
	if len(requests) < 3000 || retries < 300 || submissions < 300 {
		t.Errorf("%d requests, %d retries, %d second submissions", len(requests), retries, submissions)
	}
	if !slices.IsSortedFunc(requests, func(a, b Request) int { return int(a.Arrival - b.Arrival) }) {
		t.Error("requests do not stand in order of arrival")
	}
}

func TestEveryRequestIsSharedOnce(t *testing.T) {
	requests := shipped(t)
	seen := map[int]int{}
	for k := 1; k <= workers; k++ {
		for _, r := range Share(requests, k, workers) {
			seen[r.Line]++
		}
	}
	for _, r := range requests {
		if seen[r.Line] != 1 {
			t.Fatalf("request %d is in %d shares", r.Line, seen[r.Line])
		}
	}
}

func TestEveryWorkerHasContestedOrders(t *testing.T) {
	requests := shipped(t)
	for k := 1; k <= workers; k++ {
		contested := Contested(requests, k, workers)
		if len(contested) < 20 {
			t.Errorf("worker %d has only %d orders that others are asked for too", k, len(contested))
		}
		for line := range contested {
			if (line-1)%workers != k-1 {
				t.Errorf("worker %d would stop at request %d, which is not its own", k, line)
			}
		}
	}
}

package demo

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// Request is one line of refunds.csv: a request for a refund.
type Request struct {
	// Line counts from 1 and identifies the request.
	Line int
	// Arrival is when the request reaches the payment system, after the start.
	Arrival time.Duration
	// Order is what is refunded. Several requests may name one order.
	Order string
	// Key is the idempotency key that the caller sent: a retry repeats it, a second submission has another
	// one.
	Key string
	// Cents is the amount.
	Cents int
	// Channel is where it came from: web, app or support.
	Channel string
}

// Header is the first line of refunds.csv.
var Header = []string{"arrival_ms", "order", "key", "cents", "channel"}

// ReadRequests reads a file of requests, in order of arrival.
func ReadRequests(path string) ([]Request, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader := csv.NewReader(file)
	reader.FieldsPerRecord = len(Header)
	if _, err := reader.Read(); err != nil {
		return nil, fmt.Errorf("%s: header: %w", path, err)
	}
	var requests []Request
	for {
		record, err := reader.Read()
		if err == io.EOF {
			return requests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		request, err := parse(record)
		if err != nil {
			return nil, fmt.Errorf("%s: request %d: %w", path, len(requests)+1, err)
		}
		request.Line = len(requests) + 1
		requests = append(requests, request)
	}
}

func parse(record []string) (Request, error) {
	arrival, err := strconv.Atoi(record[0])
	if err != nil {
		return Request{}, err
	}
	cents, err := strconv.Atoi(record[3])
	if err != nil {
		return Request{}, err
	}
	return Request{
		Arrival: time.Duration(arrival) * time.Millisecond,
		Order:   record[1],
		Key:     record[2],
		Cents:   cents,
		Channel: record[4],
	}, nil
}

// Share returns the requests of worker number k of n, counted from 1: the lines are distributed in turn, as
// by a load balancer. Requests for one order are close together in the file, so different workers get them at
// the same time.
func Share(requests []Request, k, n int) []Request {
	var share []Request
	for i, request := range requests {
		if i%n == k-1 {
			share = append(share, request)
		}
	}
	return share
}

// Contested returns the lines of worker k at which it is worth stopping: the request is the first one for its
// order, and another of the n workers gets a request for the same order soon after.
func Contested(requests []Request, k, n int) map[int]bool {
	const soon = 3 * time.Second
	first := map[string]Request{}
	contested := map[int]bool{}
	for i, request := range requests {
		before, seen := first[request.Order]
		if !seen {
			first[request.Order] = request
			continue
		}
		mine := (before.Line-1)%n == k-1
		if mine && i%n != k-1 && request.Arrival-before.Arrival < soon {
			contested[before.Line] = true
		}
	}
	return contested
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

// ledger is the set of orders and their journal.
type ledger struct {
	fencing bool

	mu      sync.Mutex // guards the fields below, and the order of the journal
	orders  map[string]*order
	journal *os.File
}

type order struct {
	// highest is the highest token of any call for this order.
	highest uint64
	refund  *demo.Refund
}

// openLedger reads the journal from its beginning and appends to it. A resource that forgets its tokens in a
// restart protects nothing.
func openLedger(journal *os.File, fencing bool) (*ledger, error) {
	l := &ledger{fencing: fencing, orders: map[string]*order{}, journal: journal}
	decoder := json.NewDecoder(journal)
	for {
		var entry demo.Entry
		if err := decoder.Decode(&entry); errors.Is(err, io.EOF) {
			return l, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", journal.Name(), err)
		}
		if entry.Op == "refused" {
			continue
		}
		o := l.order(entry.Order)
		o.highest = max(o.highest, entry.Token)
		if entry.Op == "refund" {
			o.refund = &entry.Refund
		}
	}
}

func (l *ledger) order(name string) *order {
	o := l.orders[name]
	if o == nil {
		o = &order{}
		l.orders[name] = o
	}
	return o
}

func (l *ledger) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /check", handle(func(access *demo.Access) (any, bool, error) {
		return l.check(*access)
	}))
	mux.HandleFunc("POST /refund", handle(func(refund *demo.Refund) (any, bool, error) {
		return l.refund(*refund)
	}))
	return mux
}

// check returns whether the order was refunded. It also fences: from now on, no holder of a lower token can
// change what the caller has just read.
func (l *ledger) check(access demo.Access) (answer any, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, refusal, err := l.admit("check", demo.Refund{Access: access})
	if err != nil || refusal != nil {
		return refusal, false, err
	}
	if o.refund == nil {
		return demo.Order{}, true, nil
	}
	return demo.Order{Refunded: true, Key: o.refund.Key}, true, nil
}

// refund writes the refund.
func (l *ledger) refund(refund demo.Refund) (answer any, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, refusal, err := l.admit("refund", refund)
	if err != nil || refusal != nil {
		return refusal, false, err
	}
	o.refund = &refund
	return struct{}{}, true, l.journal.Sync()
}

// admit compares the token with the highest one seen for the order, and records the call or its refusal.
func (l *ledger) admit(op string, call demo.Refund) (*order, *demo.Refusal, error) {
	o := l.order(call.Order)
	if l.fencing && call.Token < o.highest {
		return nil, &demo.Refusal{Highest: o.highest}, l.write("refused", call)
	}
	o.highest = max(o.highest, call.Token)
	return o, nil, l.write(op, call)
}

func (l *ledger) write(op string, call demo.Refund) error {
	line, err := json.Marshal(demo.Entry{Op: op, Refund: call})
	if err != nil {
		return err
	}
	_, err = l.journal.Write(append(line, '\n'))
	return err
}

// handle decodes a call, and encodes its answer: 200, or 409 for a stale token.
func handle[T any](call func(*T) (answer any, ok bool, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := new(T)
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, ok, err := call(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusConflict)
		}
		_ = json.NewEncoder(w).Encode(answer) // a caller that left gets no answer
	}
}

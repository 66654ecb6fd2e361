package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrStaleToken is returned when the ledger has seen a higher fencing token for the order: the caller's lock
// is gone, whatever the caller believes.
var ErrStaleToken = errors.New("stale fencing token")

// Access is part of every call to the ledger.
type Access struct {
	Order string `json:"order"`
	// Token is the fencing token of the caller's hold on the order's lock. In JSON it is a string: a token
	// has 63 bits, a JavaScript number only 53.
	Token uint64 `json:"token,string"`
	// Worker identifies the caller, for the journal.
	Worker int `json:"worker"`
}

// Refund is a refund to write.
type Refund struct {
	Access
	Key   string `json:"key"`
	Cents int    `json:"cents"`
}

// Order is what the ledger knows about an order.
type Order struct {
	Refunded bool `json:"refunded"`
	// Key is the idempotency key under which it was refunded.
	Key string `json:"key,omitempty"`
}

// Refusal is the ledger's answer to a stale token.
type Refusal struct {
	Highest uint64 `json:"highest,string"`
}

// Entry is one line of the ledger's journal, in the order of the calls.
type Entry struct {
	// Op is "check", "refund", or "refused" for a call with a stale token.
	Op string `json:"op"`
	Refund
}

// Ledger calls the ledger.
type Ledger struct {
	// URL is its address.
	URL string
}

// Check returns whether the order was refunded. The ledger remembers the token and rejects older ones from
// then on: otherwise a paused older holder could still write between this check and the write that follows
// it.
func (l Ledger) Check(ctx context.Context, access Access) (Order, error) {
	var order Order
	err := l.post(ctx, "/check", access, &order)
	return order, err
}

// Refund writes a refund.
func (l Ledger) Refund(ctx context.Context, refund Refund) error {
	return l.post(ctx, "/refund", refund, nil)
}

func (l Ledger) post(ctx context.Context, path string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		if answer == nil {
			return nil
		}
		return json.NewDecoder(response.Body).Decode(answer)
	case http.StatusConflict:
		var refusal Refusal
		if err := json.NewDecoder(response.Body).Decode(&refusal); err != nil {
			return err
		}
		return fmt.Errorf("%w: the ledger has seen %d", ErrStaleToken, refusal.Highest)
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
	return fmt.Errorf("ledger: %s: %s", response.Status, bytes.TrimSpace(text))
}

package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/scripts/demo"
)

// serve opens the ledger of a journal as the program does.
func serve(t *testing.T, path string, fencing bool) demo.Ledger {
	t.Helper()
	journal, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { journal.Close() })
	ledger, err := openLedger(journal, fencing)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(ledger.handler())
	t.Cleanup(server.Close)
	return demo.Ledger{URL: server.URL}
}

func access(token uint64) demo.Access { return demo.Access{Order: "R-1", Token: token} }

func refund(l demo.Ledger, token uint64) error {
	return l.Refund(context.Background(), demo.Refund{Access: access(token), Key: "k"})
}

func check(t *testing.T, l demo.Ledger, token uint64) demo.Order {
	t.Helper()
	order, err := l.Check(t.Context(), access(token))
	if err != nil {
		t.Fatal(err)
	}
	return order
}

func TestRefusesTokensBelowTheHighestSeen(t *testing.T) {
	l := serve(t, filepath.Join(t.TempDir(), "journal"), true)
	check(t, l, 7)
	if err := refund(l, 6); !errors.Is(err, demo.ErrStaleToken) {
		t.Errorf("token 6 after a check with 7: %v", err)
	}
	if err := refund(l, 7); err != nil {
		t.Errorf("token 7 after a check with 7: %v", err)
	}
	if _, err := l.Check(t.Context(), access(6)); !errors.Is(err, demo.ErrStaleToken) {
		t.Errorf("check with token 6 after 7: %v", err)
	}
	if order := check(t, l, 8); !order.Refunded || order.Key != "k" {
		t.Errorf("got %+v", order)
	}
}

func TestTakesStaleTokensWithoutFencing(t *testing.T) {
	l := serve(t, filepath.Join(t.TempDir(), "journal"), false)
	check(t, l, 7)
	if err := refund(l, 6); err != nil {
		t.Error(err)
	}
}

func TestRemembersTokensAcrossRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	first := serve(t, path, true)
	if err := refund(first, 7); err != nil {
		t.Fatal(err)
	}
	second := serve(t, path, true)
	if err := refund(second, 6); !errors.Is(err, demo.ErrStaleToken) {
		t.Errorf("token 6 after a restart: %v", err)
	}
	if order := check(t, second, 8); !order.Refunded {
		t.Error("the refund is forgotten")
	}
}

package admin_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/server"
)

// node starts a node and returns the address of its client port.
func node(t *testing.T) (endpoint string) {
	t.Helper()
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0"}
	n, err := server.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n.Addrs().Client
}

// connect returns a client with a token, or without one if it is empty.
func connect(t *testing.T, endpoint, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}, AuthToken: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func usesOf(s admin.QuotaStatus) map[admin.QuotaKind]admin.QuotaUse {
	uses := map[admin.QuotaKind]admin.QuotaUse{}
	for _, use := range s.Uses {
		uses[use.Kind] = use
	}
	return uses
}

// TestQuotas asks a node what identities use of their quotas: for oneself, and with a role for others.
func TestQuotas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := node(t)
	setup := admin.New(connect(t, at, ""))
	tokens := map[string]string{}
	for _, name := range []string{"root", "team-a"} {
		token, _, err := setup.CreateToken(ctx, name, 0, by)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = token
	}
	if err := setup.SetPolicy(ctx, &admin.Policy{
		Bindings: []admin.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "team-*", Roles: []string{"user"}}},
		Quotas:   []admin.Quota{{Identity: "team-*", Claims: 9, Connections: 3}, {Prefix: "orders/", Claims: 5}},
	}, 0, false, by); err != nil {
		t.Fatal(err)
	}
	own := connect(t, at, tokens["team-a"])
	session, err := own.NewSession(ctx, client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"orders/1", "other"} {
		if _, err := session.Lock(ctx, name); err != nil {
			t.Fatal(err)
		}
	}

	team := admin.New(own)
	got, err := team.Quota(ctx, "")
	if err != nil || got.Identity != "team-a" || got.Prefix != "" || got.Quota != "team-*" || len(got.Uses) != 6 {
		t.Fatalf("%+v, %v", got, err)
	}
	uses := usesOf(got)
	if uses[admin.QuotaClaims] != (admin.QuotaUse{Kind: admin.QuotaClaims, Used: 2, Limit: 9}) || uses[admin.QuotaSessions].Used != 1 ||
		uses[admin.QuotaSessions].Limit != 0 || uses[admin.QuotaConnections] != (admin.QuotaUse{Kind: admin.QuotaConnections, Used: 1, Limit: 3, Node: "n1"}) {
		t.Errorf("%+v", got)
	}
	if _, err := team.Quota(ctx, "root"); !errors.Is(err, client.ErrPermissionDenied) {
		t.Errorf("somebody else's: %v", err)
	}
	for _, err := range team.Quotas(ctx) {
		if !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("everybody's: %v", err)
		}
	}

	root := admin.New(connect(t, at, tokens["root"]))
	if got, err := root.Quota(ctx, "team-a", admin.Stale()); err != nil || got.Identity != "team-a" || usesOf(got)[admin.QuotaClaims].Used != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	var all []admin.QuotaStatus
	for s, err := range root.Quotas(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	var identities []string // also of the clients that have no session
	for _, s := range all {
		identities = append(identities, s.Identity)
	}
	others := strings.ReplaceAll(fmt.Sprint(identities), " anonymous", "") // who loses the connection that set up the cluster
	if all[0].Prefix != "orders/" || all[0].Quota != "orders/" || all[0].Uses[0] != (admin.QuotaUse{Kind: admin.QuotaClaims, Used: 1, Limit: 5}) || others != "[ root team-a]" {
		t.Errorf("%+v", all)
	}
}

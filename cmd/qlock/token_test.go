package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/contexts"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestTokenCreate checks that the standard output is the token alone, and that no message contains it.
func TestTokenCreate(t *testing.T) {
	f := answering(t)
	var asked *wire.CreateTokenRequest
	create := f.access.create
	f.access.create = func(req *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) {
		asked = req
		return create(req)
	}
	got := execTest(t, f.dialer, strings.Fields("token create ci --ttl 24h --reason build --operator me")...)
	token := strings.TrimSuffix(got.out, "\n")
	if _, err := identity.HashToken(token); got.code != 0 || err != nil || got.err != "created token 3f9c0a71b2d4 for ci, valid until 2023-11-15T22:13:20Z; it is not shown again\n" {
		t.Errorf("%+v, %v", got, err)
	}
	if want := (&wire.CreateTokenRequest{Name: "ci", AuthToken: token, TtlMs: 86_400_000, Reason: "build", Operator: "me"}); !proto.Equal(asked, want) {
		t.Errorf("another request: %v", asked)
	}
	got = execTest(t, f.dialer, strings.Fields("token create cron --reason build")...)
	if got.out == token+"\n" || asked.GetTtlMs() != 0 || !strings.Contains(got.err, "for cron, which does not expire") {
		t.Errorf("%+v", got)
	}
	got = execTest(t, f.dialer, strings.Fields("token create ci --reason build -o template={{.token}},{{.id}}")...)
	if got.out != asked.GetAuthToken()+",3f9c0a71b2d4\n" || got.err != "" {
		t.Errorf("%+v", got)
	}
	for line, says := range map[string]string{
		"token create":                     "takes one identity",
		"token create a:b":                 "is not allowed",
		"token create anonymous":           "reserved",
		"token create ci --ttl 0s":         "--ttl must be positive",
		"token create ci --ttl -1h":        "--ttl must be positive",
		"token create " + token:            "not a token",
		"token revoke " + token:            "takes the token's id, not the token: it is ",
		"token revoke":                     "takes one token's id",
		"status --auth-tokn=" + token:      "did you mean --auth-token",
		"status --auth-token=" + token[1:]: "malformed",
	} {
		words := strings.Fields(line)
		if words[0] == "token" {
			words = append(words, "--reason", "r")
		}
		got := execTest(t, dial, words...)
		if got.code != exitUsage || !strings.Contains(got.err, says) || strings.Contains(got.out+got.err, token[4:12]) {
			t.Errorf("%s: %+v, want %q", line[:14], got, says)
		}
	}
	for _, err := range []error{client.ErrUncertain, client.ErrPermissionDenied} {
		f.access.create = func(req *wire.CreateTokenRequest) (*wire.CreateTokenResponse, error) {
			token = req.GetAuthToken()
			return nil, err
		}
		got := execTest(t, f.dialer, "token", "create", "ci", "--reason", "r")
		if got.code != exitCode(err) || got.out != "" || strings.Contains(got.err, token[4:12]) {
			t.Errorf("%+v", got)
		}
	}
}

// TestTokenRevoke checks what is asked of the cluster, and its refusals.
func TestTokenRevoke(t *testing.T) {
	f := answering(t)
	var asked *wire.RevokeToken
	var fails error
	f.access.revoke = func(req *wire.RevokeToken) (*wire.OperatorResponse, error) {
		asked = req
		return &wire.OperatorResponse{Status: wire.Status_OK}, fails
	}
	got := execTest(t, f.dialer, strings.Fields("token revoke 7f --reason r --operator me --close-sessions")...)
	if want := (&wire.RevokeToken{TokenId: "7f", CloseSessions: true, Reason: "r", Operator: "me"}); got.code != 0 || !proto.Equal(asked, want) {
		t.Errorf("%+v for %v", got, asked)
	}
	for want, err := range map[int]error{exitNoSuch: client.ErrNotFound, exitInternal: client.ErrFailedPrecondition, exitDenied: client.ErrPermissionDenied} {
		fails = err
		if got := execTest(t, f.dialer, strings.Fields("token revoke 7f --reason r")...); got.code != want || asked.GetCloseSessions() {
			t.Errorf("%v: %+v", err, got)
		}
	}
}

// TestCredentialOf checks where the token comes from.
func TestCredentialOf(t *testing.T) {
	t.Setenv(contexts.FileVariable, filepath.Join(t.TempDir(), "contexts"))
	saved := writeFile(t, "saved", identity.NewToken())
	if got := execTest(t, dial, "context", "save", "prod", "--endpoints", "127.0.0.1:1", "--auth-token-file", saved); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for name, test := range map[string]struct {
		env, envFile string
		words        []string
		want         credential
		fails        bool
	}{
		"nothing":              {"", "", nil, credential{}, false},
		"variables":            {"t1", "", nil, credential{token: "t1"}, false},
		"the file's variable":  {"", "f1", nil, credential{file: "f1"}, false},
		"flag":                 {"t1", "", []string{"--auth-token", "t2"}, credential{token: "t2"}, false},
		"flag over the other":  {"t1", "", []string{"--auth-token-file", "f2"}, credential{file: "f2"}, false},
		"token over the file":  {"", "f1", []string{"--auth-token", "t2"}, credential{token: "t2"}, false},
		"two variables":        {"t1", "f1", nil, credential{}, true},
		"two flags":            {"", "", []string{"--auth-token", "t2", "--auth-token-file", "f2"}, credential{}, true},
		"context":              {"", "", []string{"--context", "prod"}, credential{file: saved}, false},
		"variable and context": {"t1", "", []string{"--context", "prod"}, credential{token: "t1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tokenVariable, test.env)
			t.Setenv(tokenFileVariable, test.envFile)
			var got credential
			var err error
			execTest(t, func(c *cli.Context) (service, error) {
				got, err = credentialOf(c)
				return nil, errors.New("that is all")
			}, append([]string{"status"}, test.words...)...)
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if got := execTest(t, dial, "context", "save", "x", "--endpoints", "a:1", "--auth-token", "ql_secret"); got.code != exitUsage || strings.Contains(got.err, "secret") {
		t.Errorf("%+v", got)
	}
	if got := execTest(t, dial, "context", "list"); !strings.Contains(got.out, "127.0.0.1:1  no   yes") {
		t.Errorf("%+v", got)
	}
}

// TestTokenAtTheHTTPPort checks that requests to HTTP ports present the token, and not in plaintext to other machines.
func TestTokenAtTheHTTPPort(t *testing.T) {
	token := identity.NewToken()
	var seen string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("Authorization") }))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	for name, test := range map[string]struct {
		cfg  client.Config
		want string
	}{
		"none": {client.Config{}, ""}, "a token": {client.Config{AuthToken: token}, "Bearer " + token},
		"a file": {client.Config{AuthTokenFile: writeFile(t, "token", token+"\n")}, "Bearer " + token},
	} {
		if err := (cluster{cfg: test.cfg}).Metrics(t.Context(), addr, io.Discard); err != nil || seen != test.want {
			t.Errorf("%s: %v, another header", name, err)
		}
	}
	for name, test := range map[string]struct {
		cfg  client.Config
		addr string
	}{
		"another machine": {client.Config{AuthToken: token}, "10.0.0.1:7402"},
		"no file":         {client.Config{AuthTokenFile: "/nowhere/token"}, addr},
		"no token":        {client.Config{AuthToken: token[1:]}, addr},
	} {
		err := (cluster{cfg: test.cfg}).Metrics(t.Context(), test.addr, io.Discard)
		if exitCode(err) != exitUsage || strings.Contains(fmt.Sprint(err), token[4:12]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// hidden is part of every name, text and identity that a reader of rights.Lock must not see.
const hidden = "hidden-"

// hide fills a node with sessions, holds, waits, values, tokens and audit records that are hidden from ann, and gives
// her the roles of a user of the locks of a team. It returns her token, and two holds with their sessions: a hold of hidden
// locks, and a hold of a hidden lock and rights.Lock.
func hide(t *testing.T, node *Node) (ann string, holds, sessions []uint64) {
	t.Helper()
	tokens := map[string]string{}
	c := dial(t, node)
	key := dialRedis(t, node, "") // of anonymous, which loses its roles
	key.must("+OK\r\n", "CLIENT", "SETNAME", hidden+"client")
	key.must("+OK\r\n", "SET", hidden+"key", hidden+"value", "NX", "PX", "3600000")
	for _, name := range []string{"ann", "partner", hidden + "administrator"} {
		tokens[name] = identity.NewToken()
		c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_CreateToken{CreateToken: &wire.CreateTokenRequest{
			Name: name, AuthToken: tokens[name], Reason: hidden + "reason",
		}}})
	}
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: hidden + "reason", Policy: &wire.Policy{
		Roles: []*wire.Role{
			{Name: "team", Locks: []*wire.LockRule{{Prefix: "team/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE}}}},
			{Name: hidden + "role", Locks: []*wire.LockRule{{Prefix: hidden + "b/", Verbs: []wire.Verb{wire.Verb_LOCK}}}},
		},
		Bindings: []*wire.Binding{
			{Identity: "ann", Roles: []string{"team"}}, {Identity: "partner", Roles: []string{"user"}}, {Identity: hidden + "administrator", Roles: []string{"admin"}},
		},
		Quotas: []*wire.Quota{{Prefix: hidden + "b/", Claims: 100}, {Identity: hidden + "*", Sessions: 50}},
	}}}})
	lock := func(as string, names ...string) {
		s, err := dialAs(t, node, tokens[as])
		if err != nil {
			t.Fatal(err)
		}
		req := opening([]byte("the secret of " + strings.Join(names, "+")))
		req.GetOpenSession().Client = &wire.ClientInfo{Name: as, HostName: as}
		a := &wire.Acquire{Value: []byte(names[0])}
		for _, name := range names {
			a.Locks = append(a.Locks, &wire.LockRequest{Name: name})
		}
		session := s.expect(wire.Status_OK, req).GetResult().GetSession().GetSessionId()
		held := s.answer(&wire.Request{SessionId: session, Seq: 1, Body: &wire.Request_Acquire{Acquire: a}}).GetResult()
		holds, sessions = append(holds, held.GetHoldId()), append(sessions, session)
	}
	lock(hidden+"administrator", hidden+"a")
	lock("partner", rights.Lock, hidden+"b/1")
	lock(hidden+"administrator", hidden+"b/1", hidden+"b/2") // waits
	return tokens["ann"], holds[:2], sessions[:2]
}

// seenByKeys sends every command of the Redis port about a lock that the caller may read, of which others hold it together
// with a hidden one, and about a free one.
func seenByKeys(t *testing.T, node *Node, ann string) {
	t.Helper()
	for name, command := range rights.Commands {
		for _, key := range []string{rights.Lock, "team/free"} {
			c := dialRedis(t, node, ann)
			for _, before := range command.Before {
				c.do(rights.About(key, before)...)
			}
			if reply := c.do(rights.About(key, command.Args)...); strings.Contains(reply, hidden) {
				t.Errorf("%s about %s: %q", name, key, reply)
			}
			_ = c.Close()
		}
	}
}

// TestNoAnswerNamesWhatIsHidden sends every request of the schema that has one answer, and every command of the Redis
// port, and reads the pages beside them. Nothing that the caller may not read is in an answer or its headers, whether it
// is refused or not.
func TestNoAnswerNamesWhatIsHidden(t *testing.T) {
	cfg := quick(t)
	cfg.RedisAddr, cfg.Redis.DefaultTTL = "127.0.0.1:0", time.Minute
	node := open(t, cfg)
	serving(t, node)
	ann, holds, sessions := hide(t, node)
	seenByKeys(t, node, ann)
	ask := func(method, path, body string) (status int) {
		req, err := http.NewRequestWithContext(bounded(t), method, "http://"+node.Addrs().HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+ann)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		for _, values := range resp.Header {
			text = append(text, strings.Join(values, " ")...)
		}
		if strings.Contains(string(text), hidden) {
			t.Errorf("%s %s %s: %d, %s", method, path, body, resp.StatusCode, text)
		}
		return resp.StatusCode
	}
	answered := 0
	for _, hold := range holds {
		examples := rights.Requests(hold)
		services := wire.File_quorumlock_v1_service_proto.Services()
		for i := range services.Len() {
			for j := range services.Get(i).Methods().Len() {
				m := services.Get(i).Methods().Get(j)
				if m.IsStreamingServer() {
					continue // for events: server/internal/read; for backups: below
				}
				body, err := protojson.Marshal(examples[string(m.Input().Name())])
				if err != nil {
					t.Fatal(err)
				}
				if status := ask(http.MethodPost, "/"+string(services.Get(i).FullName())+"/"+string(m.Name()), string(body)); status == http.StatusOK {
					answered++
				}
			}
		}
	}
	if answered < 20 {
		t.Errorf("only %d requests were answered with what they asked for", answered)
	}
	for i, want := range []int{http.StatusNotFound, http.StatusOK} {
		if status := ask(http.MethodPost, "/quorumlock.v1.SessionService/Get", fmt.Sprintf(`{"sessionId":"%d"}`, sessions[i])); status != want {
			t.Errorf("session %d: %d, want %d", i, status, want)
		}
	}
	for _, page := range []string{"/metrics", "/openapi.json", "/healthz", "/readyz", "/nothing"} {
		ask(http.MethodGet, page, "")
	}
	if status := ask(http.MethodPost, "/quorumlock.v1.OperatorService/SaveSnapshot", `{"reason":"r"}`); status != http.StatusForbidden {
		t.Errorf("a backup: %d", status)
	}
}

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// first and second are tokens.
var first, second = identity.NewToken(), identity.NewToken()

// tokenFile returns a file with a token.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	ok(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
	return path
}

// accepting admits the clients that present that token.
func accepting(token string) func(*wire.Hello) *wire.Goodbye {
	return func(hello *wire.Hello) *wire.Goodbye {
		if hello.GetAuthToken() == token {
			return nil
		}
		return &wire.Goodbye{Code: wire.Goodbye_UNAUTHENTICATED, Message: "the token was withdrawn"}
	}
}

// withoutRoles refuses all clients, since their identity has no role.
func withoutRoles(*wire.Hello) *wire.Goodbye {
	return &wire.Goodbye{Code: wire.Goodbye_PERMISSION_DENIED, Message: "alice has no role"}
}

// authenticated runs a test with nodes at loopback addresses, 127.0.0.1 to 127.0.0.n, the first of which leads. It
// checks that no log line contains a token.
func authenticated(t *testing.T, nodes int, change func(*Config), test func(t *testing.T, f *fake, c *Client)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, nodes)
		cfg := f.config()
		for i := range cfg.Endpoints {
			addr := fmt.Sprintf("127.0.0.%d:7400", i+1)
			f.nodes[addr], cfg.Endpoints[i] = f.nodes[cfg.Endpoints[i]], addr
		}
		f.leader.ClientAddr = "127.0.0.1:7400"
		var log bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		change(&cfg)
		c, err := New(cfg)
		ok(t, err)
		defer func() {
			_ = c.Close()
			withoutToken(t, "the log", log.String())
		}()
		test(t, f, c)
		synctest.Wait()
	})
}

// withoutToken fails if a text contains part of a token.
func withoutToken(t *testing.T, what, text string) {
	t.Helper()
	if strings.Contains(text, first[3:12]) || strings.Contains(text, second[3:12]) {
		t.Errorf("%s contains a token: %s", what, text)
	}
}

// leave makes a node end all its connections with a goodbye.
func (f *fake) leave(id string, code wire.Goodbye_Code) {
	f.mu.Lock()
	conns := f.node(id).conns
	f.node(id).conns = nil
	f.mu.Unlock()
	for _, cn := range conns {
		if cn.out != nil {
			_ = cn.out.Close(transport.GoodbyeFrame(code, "rights changed"))
		}
		_ = cn.nc.Close()
	}
}

// TestTokenIsPresented checks that each connection presents the token, that a file is read again for each, and that
// a tunnel is opened with it and carries none.
func TestTokenIsPresented(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a token": func(c *Config) { c.AuthToken = first },
		"a file":  func(c *Config) { c.AuthTokenFile = tokenFile(t, first) },
	} {
		authenticated(t, 1, change, func(t *testing.T, f *fake, c *Client) {
			f.admit = accepting(first)
			s := f.session(c)
			f.cut("n1")
			if c.cfg.AuthTokenFile != "" {
				ok(t, os.WriteFile(c.cfg.AuthTokenFile, []byte(second), 0o600))
				f.set(func() { f.admit = accepting(second) })
			}
			ok(t, mustLock(t, s, "x").Unlock(withTimeout(t, time.Hour)))
			if len(f.hellos) < 2 {
				t.Errorf("%s: %d connections", name, len(f.hellos))
			}
		})
	}
	authenticated(t, 2, func(c *Config) { c.AuthToken = first }, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.node("n2").tunnels = true })
		_, err := c.NewSession(withTimeout(t, time.Hour), SessionOptions{TTL: 5 * time.Second})
		ok(t, err)
		f.block("n1")
		time.Sleep(4 * time.Second)
		if !c.tunnelled() {
			t.Fatal("there is no tunnel")
		}
		f.set(func() {
			inner := f.hellos[len(f.hellos)-1]
			outer := f.hellos[len(f.hellos)-2]
			if outer.GetTunnelTo() != "n1" || outer.GetAuthToken() != first || inner.GetTunnelTo() != "" || inner.GetAuthToken() != "" {
				t.Errorf("%v, then %v", outer, inner)
			}
		})
	})
}

// TestTokenNeedsTLS checks that New refuses a token for an address that it would reach in plaintext, and that a
// leader's address from a hint is not used either.
func TestTokenNeedsTLS(t *testing.T) {
	for addr, refused := range map[string]bool{
		"127.0.0.1:1": false, "localhost:1": false, "[::1]:1": false, "[::ffff:127.0.0.1]:1": false,
		"10.0.0.1:1": true, "n1:1": true, "localhost.example:1": true, "[::2]:1": true,
	} {
		c, err := New(Config{Endpoints: []string{"127.0.0.2:1", addr}, AuthToken: first})
		if refused != errors.Is(err, ErrUnauthenticated) || refused && !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
		withoutToken(t, "the error", fmt.Sprint(err))
		if c != nil {
			_ = c.Close()
		}
	}
	authenticated(t, 2, func(c *Config) { c.AuthToken, c.Endpoints = first, c.Endpoints[1:] }, func(t *testing.T, f *fake, c *Client) {
		f.leader.ClientAddr = "n1:7400"
		_, err := c.VerifyToken(withTimeout(t, 5*time.Second), "x", 1)
		wantErr(t, err, context.DeadlineExceeded)
		f.set(func() {
			if f.node("n1").dials != 0 || f.node("n2").dials == 0 {
				t.Errorf("%d connections to the leader, %d to the other node", f.node("n1").dials, f.node("n2").dials)
			}
		})
	})
}

// TestUnusableTokens checks what New returns for tokens that cannot be used.
func TestUnusableTokens(t *testing.T) {
	here := []string{"127.0.0.1:1"}
	for name, test := range map[string]struct {
		cfg  Config
		says string
	}{
		"both":        {Config{AuthToken: first, AuthTokenFile: "x"}, "both set"},
		"no token":    {Config{AuthToken: first[:20]}, "qlock token create"},
		"no file":     {Config{AuthTokenFile: "/nowhere/token"}, "/nowhere/token"},
		"empty file":  {Config{AuthTokenFile: tokenFile(t, "")}, "token: "},
		"wrong file":  {Config{AuthTokenFile: tokenFile(t, first+first)}, "token: "},
		"fine":        {Config{AuthToken: first}, ""},
		"a fine file": {Config{AuthTokenFile: tokenFile(t, " "+first)}, ""},
	} {
		test.cfg.Endpoints = here
		c, err := New(test.cfg)
		if (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		withoutToken(t, "the error", fmt.Sprint(err))
		if c != nil {
			_ = c.Close()
		}
	}
}

// TestRefusedClient checks that a client that is refused reports that at once, to every caller without a session.
func TestRefusedClient(t *testing.T) {
	for want, admit := range map[error]func(*wire.Hello) *wire.Goodbye{ErrUnauthenticated: accepting(second), ErrPermissionDenied: withoutRoles} {
		authenticated(t, 3, func(c *Config) { c.AuthToken = first }, func(t *testing.T, f *fake, c *Client) {
			f.admit = admit
			calls := map[string]func(context.Context) error{
				"read":    func(ctx context.Context) error { return errorOf(c.VerifyToken(ctx, "x", 1)) },
				"session": func(ctx context.Context) error { return errorOf(c.NewSession(ctx, SessionOptions{})) },
				"lease":   func(ctx context.Context) error { return errorOf(c.AcquireLease(ctx, Names("x"))) },
				"extend":  func(ctx context.Context) error { return c.ExtendLease(ctx, newSecret(), 1, 0) },
				"watch": func(ctx context.Context) error {
					w := c.Watch(ctx, WatchOptions{})
					defer w.Close()
					return errorOf(w.Next(ctx))
				},
				"supervised": func(ctx context.Context) error {
					s := c.Supervise(SupervisedOptions{})
					defer s.Close(ctx)
					return errorOf(s.Lock(ctx, "x"))
				},
			}
			for name, call := range calls {
				began := time.Now()
				err := call(withTimeout(t, time.Hour))
				if !errors.Is(err, want) || errors.Is(err, ErrUncertain) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("%s took %v", name, took)
				}
				withoutToken(t, "the error", err.Error())
			}
			f.set(func() { f.admit = nil })
			_, err := c.VerifyToken(withTimeout(t, time.Hour), "x", 1)
			ok(t, err)
			for _, id := range []string{"n1", "n2", "n3"} {
				f.set(func() { f.node(id).down = true })
				f.cut(id)
			}
			synctest.Wait()
			if _, err = c.VerifyToken(withTimeout(t, time.Second), "x", 1); errors.Is(err, want) || !errors.Is(err, ErrUnavailable) {
				t.Errorf("an unreachable cluster: %v", err)
			}
		})
	}
}

// TestRefusedByOneNode checks that a node that does not know the token yet does not fail a request that another
// node serves.
func TestRefusedByOneNode(t *testing.T) {
	authenticated(t, 2, func(c *Config) { c.AuthToken, c.Endpoints = first, []string{c.Endpoints[1], c.Endpoints[0]} }, func(t *testing.T, f *fake, c *Client) {
		refusals := 0
		f.admit = func(hello *wire.Hello) *wire.Goodbye {
			if refusals++; refusals > 1 {
				return nil
			}
			return accepting(second)(hello)
		}
		_, err := c.VerifyToken(withTimeout(t, time.Hour), "x", 1)
		ok(t, err)
	})
}

// TestSessionOfARefusedClient checks that a session outlives the end of its credential for its TTL, and then reports
// it, and that a supervised session continues once the token file has been replaced.
func TestSessionOfARefusedClient(t *testing.T) {
	path := tokenFile(t, first)
	authenticated(t, 1, func(c *Config) { c.AuthTokenFile = path }, func(t *testing.T, f *fake, c *Client) {
		f.admit = accepting(first)
		s := f.session(c)
		hold := mustLock(t, s, "x")
		supervised, losses := supervise(t, c, false)
		f.set(func() { f.admit = accepting(second) })
		f.leave("n1", wire.Goodbye_UNAUTHENTICATED)
		waiting := lockSoon(withTimeout(t, time.Hour), s, "y")
		going := soon(func(ctx context.Context) (*Hold, error) { return supervised.Lock(ctx, "z") }, withTimeout(t, time.Hour))
		_, err := s.Lock(withTimeout(t, time.Second), "w")
		wantErr(t, err, context.DeadlineExceeded, ErrUnauthenticated)
		time.Sleep(13 * time.Second)
		ok(t, s.Err())
		time.Sleep(time.Minute)
		wantErr(t, s.Err(), ErrExpired, ErrUnauthenticated)
		wantErr(t, context.Cause(hold.Context()), ErrExpired, ErrUnauthenticated)
		wantErr(t, (<-waiting).err, ErrSessionLost, ErrUnauthenticated)

		ok(t, os.WriteFile(path, []byte(second), 0o600))
		got := <-going
		ok(t, got.err)
		synctest.Wait() // for OnLost
		wantErr(t, (*losses)[0].Reason, ErrExpired, ErrUnauthenticated)
		ok(t, got.hold.Unlock(withTimeout(t, time.Hour)))
		ok(t, supervised.Close(withTimeout(t, time.Hour)))
	})
}

// TestRightsThatChange checks that a client whose rights were changed connects again and keeps what it holds.
func TestRightsThatChange(t *testing.T) {
	authenticated(t, 1, func(c *Config) { c.AuthToken = first }, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		hold := mustLock(t, s, "x")
		f.intercept = func(_ *fakeConn, req *wire.Request) bool { return req.GetVerifyToken() != nil }
		reading := make(chan error, 1)
		go func() { reading <- errorOf(c.VerifyToken(withTimeout(t, time.Hour), "x", 1)) }()
		synctest.Wait()
		f.set(func() { f.intercept = nil })
		f.leave("n1", wire.Goodbye_PERMISSION_DENIED)
		ok(t, <-reading)
		ok(t, mustLock(t, s, "y").Unlock(withTimeout(t, time.Hour)))
		ok(t, hold.Unlock(withTimeout(t, time.Hour)))
		if n := f.count(attaches); n != 1 {
			t.Errorf("the session was attached %d times", n)
		}
	})
}

// TestRefusedAfterTheHello checks a node that answers the hello and ends the connection before any answer.
func TestRefusedAfterTheHello(t *testing.T) {
	authenticated(t, 1, func(c *Config) { c.AuthToken = first }, func(t *testing.T, f *fake, c *Client) {
		f.intercept = func(cn *fakeConn, _ *wire.Request) bool {
			go func() {
				_ = cn.out.Close(transport.GoodbyeFrame(wire.Goodbye_PERMISSION_DENIED, "alice has no role"))
				_ = cn.nc.Close()
			}()
			return true
		}
		_, err := c.VerifyToken(withTimeout(t, time.Hour), "x", 1)
		wantErr(t, err, ErrPermissionDenied)
		_, err = c.AcquireLease(withTimeout(t, time.Hour), Names("x"))
		wantErr(t, err, ErrPermissionDenied, ErrUncertain)
	})
}

// TestWaitWithoutTheRight checks that a wait whose right was withdrawn returns that.
func TestWaitWithoutTheRight(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s, other := f.session(c), f.session(c)
		hold := mustLock(t, s, "x")
		waiting := lockSoon(withTimeout(t, time.Hour), other, "x")
		f.set(func() {
			for _, k := range f.service.claims() {
				if !k.held {
					f.service.endWait(k, wire.Status_PERMISSION_DENIED)
				}
			}
		})
		wantErr(t, (<-waiting).err, ErrPermissionDenied)
		ok(t, hold.Unlock(withTimeout(t, time.Hour)))
		ok(t, other.Err())
	})
}

// TestCreateTokenIsRepeated checks that a request for a token is sent again with the same secret if the connection
// breaks, and that its outcome is unknown to a caller that leaves.
func TestCreateTokenIsRepeated(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		var secrets []string
		f.intercept = func(cn *fakeConn, req *wire.Request) bool {
			secrets = append(secrets, req.GetCreateToken().GetAuthToken())
			if len(secrets) == 1 {
				_ = cn.nc.Close()
				return true
			}
			if len(secrets) == 2 {
				cn.answer(req, &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_CreateToken{CreateToken: &wire.CreateTokenResponse{Token: &wire.TokenInfo{Id: "7"}}}})
			}
			return true
		}
		created, err := wirecall.Of(c).CreateToken(withTimeout(t, time.Hour), &wire.CreateTokenRequest{Name: "ci", AuthToken: first})
		ok(t, err)
		if created.GetToken().GetId() != "7" || len(secrets) != 2 || secrets[0] != first || secrets[1] != first {
			t.Errorf("%v after %d requests", created, len(secrets))
		}
		_, err = wirecall.Of(c).CreateToken(withTimeout(t, time.Second), &wire.CreateTokenRequest{Name: "ci", AuthToken: second})
		wantErr(t, err, context.DeadlineExceeded, ErrUncertain)
		_, err = wirecall.Of(c).CreateToken(withTimeout(t, time.Hour), &wire.CreateTokenRequest{Name: "ci", AuthToken: second + poison})
		wantErr(t, err, ErrInvalidArgument)
		withoutToken(t, "the error", err.Error())
	})
}

// TestUsedUpConnections verifies that a call that no node has a place for says why, that the client goes on trying, and
// that the reason is forgotten with the next connection to the leader.
func TestUsedUpConnections(t *testing.T) {
	full := func(*wire.Hello) *wire.Goodbye {
		return &wire.Goodbye{Code: wire.Goodbye_TOO_MANY_CONNECTIONS, Message: `quota connections of "alice": 2 of 2 used`}
	}
	authenticated(t, 1, func(*Config) {}, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.admit = full })
		_, err := c.VerifyToken(withTimeout(t, 5*time.Second), "x", 1)
		wantErr(t, err, ErrResourceExhausted)
		if !strings.Contains(err.Error(), "2 of 2 used") || errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		f.set(func() { f.admit = nil })
		_, err = c.VerifyToken(withTimeout(t, time.Minute), "x", 1)
		ok(t, err)
		f.block("n1")
		f.cut("n1")
		_, err = c.VerifyToken(withTimeout(t, 5*time.Second), "x", 1)
		if errors.Is(err, ErrResourceExhausted) {
			t.Errorf("the reason is kept: %v", err)
		}
	})
}

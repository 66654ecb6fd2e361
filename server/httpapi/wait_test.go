package httpapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// contended is a lock that ann holds and bob wants.
type contended struct {
	c        *cluster
	p        *port
	ann, bob *visitor
	release  string // what ann sends to release it
}

func contend(t *testing.T, change ...func(*Config)) *contended {
	c := newCluster(t)
	p := start(t, c, "n1", change...)
	x := &contended{c: c, p: p, ann: p.open("ann"), bob: p.open("bob")}
	held := x.ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	x.release = fmt.Sprintf(`"seq":2,"holdId":%q,"token":%q`, held["holdId"], held["token"])
	return x
}

const forever = `"seq":1,"name":"a","waitForever":true`

func TestAcquireWaitsForARelease(t *testing.T) {
	x := contend(t)
	answered := x.bob.later(t.Context(), forever)
	x.c.queued("a", 1)
	x.ann.send("LockService/Release", x.release).ok()
	if got := soon(t, answered).ok(); got["status"] != "GRANTED" || got["token"] != "2" {
		t.Errorf("got %v", got)
	}
}

func TestAcquireWaitsForAnExpiry(t *testing.T) {
	x := contend(t)
	answered := x.bob.later(t.Context(), forever)
	x.c.queued("a", 1)
	x.c.expire(x.ann.num)
	if got := soon(t, answered).ok(); got["status"] != "GRANTED" {
		t.Errorf("got %v", got)
	}
}

func TestAcquireTriesOnce(t *testing.T) {
	x := contend(t)
	got := x.bob.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	holders := got["holders"].([]any)
	if got["status"] != "NOT_ACQUIRED" || len(holders) != 1 || holders[0].(map[string]any)["sessionId"] != x.ann.id {
		t.Errorf("got %v", got)
	}
}

func TestLeaderDecidesTimeouts(t *testing.T) {
	x := contend(t)
	answered := x.bob.later(t.Context(), `"seq":1,"name":"a","waitMs":5000`)
	x.c.queued("a", 1)
	x.c.timeout("a")
	if got := soon(t, answered).ok(); got["status"] != "TIMEOUT" {
		t.Errorf("got %v", got)
	}
}

func TestWaiterLearnsThatItsSessionIsLost(t *testing.T) {
	x := contend(t)
	answered := x.bob.later(t.Context(), forever)
	x.c.queued("a", 1)
	x.c.expire(x.bob.num)
	soon(t, answered).refused(http.StatusNotFound, wire.Status_SESSION_LOST)
}

func TestRetryWhileItWaitsGetsTheSameGrant(t *testing.T) {
	x := contend(t)
	first, second := x.bob.later(t.Context(), forever), x.bob.later(t.Context(), forever)
	x.c.queued("a", 1)
	x.ann.send("LockService/Release", x.release).ok()
	one, two := soon(t, first).ok(), soon(t, second).ok()
	if one["token"] != "2" || two["token"] != "2" {
		t.Errorf("got %v and %v", one, two)
	}
}

// gone sends bob's request and abandons it.
func (x *contended) gone(t *testing.T) {
	t.Helper()
	x.bob.abandon(t, "LockService/Acquire", forever, func() { x.c.queued("a", 1) })
}

func TestHangUpCancelsTheWait(t *testing.T) {
	x := contend(t)
	x.gone(t)
	x.c.queued("a", 0)
	x.ann.send("LockService/Release", x.release).ok()
	if holders := x.c.lock("a").GetHolders(); len(holders) != 0 {
		t.Errorf("held by %v", holders)
	}
	if got := x.bob.send("LockService/Acquire", forever).ok(); got["status"] != "CANCELLED" {
		t.Errorf("the retry got %v", got)
	}
}

func TestHangUpReleasesAHoldThatWonTheRace(t *testing.T) {
	x := contend(t)
	raced := make(chan struct{})
	x.c.override(func(cmd *wire.Command) *wire.Result {
		if cmd.GetCancel() != nil {
			// Ann's session ends just before the cancel is applied.
			x.c.override(nil)
			x.c.expire(x.ann.num)
			close(raced)
		}
		return nil
	})
	x.gone(t)
	<-raced
	eventually(t, "the hold is released", func() bool { return len(x.c.lock("a").GetHolders()) == 0 })
	got := x.bob.send("LockService/Acquire", forever).ok()
	if got["status"] != "CANCELLED" || got["token"] != "0" || got["remainingTtlMs"] != "0" {
		t.Errorf("the retry got %v", got)
	}
	if got := x.bob.send("LockService/Acquire", `"seq":2,"name":"a"`).ok(); got["status"] != "GRANTED" || got["token"] != "3" {
		t.Errorf("a fresh one got %v", got)
	}
}

func longGrace(c *Config) { c.Limits.RetryGrace = time.Hour }

func TestRepeatedCallKeepsItsPlace(t *testing.T) {
	x := contend(t, longGrace)
	carol := x.p.open("carol")
	x.gone(t)
	eventually(t, "the request has no caller", func() bool { return abandonedRequests(x.p.server) == 1 })
	behind := carol.later(t.Context(), forever)
	x.c.queued("a", 2)
	again := x.bob.later(t.Context(), forever)
	eventually(t, "the request stays pending", func() bool { return abandonedRequests(x.p.server) == 0 })
	x.ann.send("LockService/Release", x.release).ok()
	got := soon(t, again).ok()
	if got["status"] != "GRANTED" || got["token"] != "2" {
		t.Fatalf("got %v", got)
	}
	x.bob.send("LockService/Release", fmt.Sprintf(`"seq":2,"holdId":%q,"token":%q`, got["holdId"], got["token"])).ok()
	soon(t, behind).ok()
}

func TestRepeatedCallGetsTheEarlierGrant(t *testing.T) {
	x := contend(t, longGrace)
	x.gone(t)
	eventually(t, "the request has no caller", func() bool { return abandonedRequests(x.p.server) == 1 })
	x.ann.send("LockService/Release", x.release).ok()
	if got := x.bob.send("LockService/Acquire", forever).ok(); got["status"] != "GRANTED" || got["token"] != "2" {
		t.Errorf("got %v", got)
	}
	if left := abandonedRequests(x.p.server); left != 0 {
		t.Errorf("%d requests would be cancelled", left)
	}
}

// asker sends one request that may wait, without a network in between. Its ctx ends exactly when the test
// ends it, so the port cannot answer a caller before it notices that the caller left.
type asker struct {
	ask func(ctx context.Context) (*connect.Response[wire.AcquireResponse], error)
	// mode is the mode in which lock "a" is held once the request is granted.
	mode wire.Mode
}

// askers sends requests of every kind that an abandoned visit would take back.
var askers = map[string]func(c *cluster, s *Server) asker{
	"acquire": func(c *cluster, s *Server) asker {
		session := credentialsOf(c, "0123456789abcdef")
		return asker{mode: wire.Mode_EXCLUSIVE, ask: func(ctx context.Context) (*connect.Response[wire.AcquireResponse], error) {
			return lockService{s}.Acquire(anonymous(ctx, s), connect.NewRequest(&wire.AcquireRequest{Session: session, Seq: 1, Name: "a"}))
		}}
	},
	"upgrade": func(c *cluster, s *Server) asker {
		session := credentialsOf(c, "0123456789abcdef")
		held := c.must(&wire.Command{SessionId: session.GetSessionId(), Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "a", Mode: wire.Mode_SHARED}},
		}}})
		return asker{mode: wire.Mode_EXCLUSIVE, ask: func(ctx context.Context) (*connect.Response[wire.AcquireResponse], error) {
			return lockService{s}.Upgrade(anonymous(ctx, s), connect.NewRequest(&wire.UpgradeRequest{
				Session: session, Seq: 2, HoldId: held.GetHoldId(), Token: held.GetToken(),
			}))
		}}
	},
	"lease": func(_ *cluster, s *Server) asker {
		return asker{mode: wire.Mode_SHARED, ask: func(ctx context.Context) (*connect.Response[wire.AcquireResponse], error) {
			return leaseService{s}.Acquire(anonymous(ctx, s), connect.NewRequest(&wire.AcquireLeaseRequest{
				Secret:  []byte("0123456789abcdef"),
				Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a", Mode: wire.Mode_SHARED}}},
			}))
		}}
	},
}

// granted sends the request, which must be granted.
func (a asker) granted(t *testing.T) *wire.AcquireResponse {
	t.Helper()
	got, err := a.ask(t.Context())
	if err != nil || got.Msg.GetStatus() != wire.Status_GRANTED {
		t.Fatalf("got %v, %v", got, err)
	}
	return got.Msg
}

// tellings are the orders in which one caller of a request leaves after another caller got the grant. They
// return the grant that was sent.
var tellings = map[string]func(t *testing.T, c *cluster, a asker) *wire.AcquireResponse{
	"told before the visit": func(t *testing.T, c *cluster, a asker) *wire.AcquireResponse {
		told := a.granted(t)
		ctx, hangUp := context.WithCancel(t.Context())
		c.override(func(*wire.Command) *wire.Result {
			c.override(nil)
			hangUp()
			return nil
		})
		leftUnanswered(t, a, ctx)
		return told
	},
	"told beside it": func(t *testing.T, c *cluster, a asker) *wire.AcquireResponse {
		ctx, hangUp := context.WithCancel(t.Context())
		var told *wire.AcquireResponse
		c.override(func(*wire.Command) *wire.Result {
			c.override(nil)
			told = a.granted(t) // the same request, sent again, is faster
			hangUp()
			return nil
		})
		leftUnanswered(t, a, ctx)
		return told
	},
}

// leftUnanswered sends a request whose caller leaves before the answer.
func leftUnanswered(t *testing.T, a asker, ctx context.Context) {
	t.Helper()
	if got, err := a.ask(ctx); connect.CodeOf(err) != connect.CodeCanceled {
		t.Fatalf("the caller who left got %v, %v", got, err)
	}
}

// TestAnsweredHoldIsNeverReleased verifies that a hold whose grant was sent to a caller is not
// released when another caller of the same request leaves.
func TestAnsweredHoldIsNeverReleased(t *testing.T) {
	for kind, newAsker := range askers {
		for order, tell := range tellings {
			t.Run(kind+" "+order, func(t *testing.T) {
				c := newCluster(t)
				s := start(t, c, "n1").server
				a := newAsker(c, s)
				told := tell(t, c, a)
				eventually(t, "the request is no longer pending", func() bool { return pendingRequests(s) == 0 })
				holders := c.lock("a").GetHolders()
				if len(holders) != 1 || holders[0].GetToken() != told.GetToken() || holders[0].GetMode() != a.mode {
					t.Errorf("%v was told, and now the holders are %v", told, holders)
				}
			})
		}
	}
}

// TestImmediateGrantToADisconnectedCallerIsReleased makes the caller's own deadline pass between the grant and its
// delivery.
func TestImmediateGrantToADisconnectedCallerIsReleased(t *testing.T) {
	c := newCluster(t)
	s := start(t, c, "n1").server
	session := credentialsOf(c, "0123456789abcdef")
	ctx, hangUp := context.WithCancel(t.Context())
	c.override(func(cmd *wire.Command) *wire.Result {
		if cmd.GetAcquire() != nil {
			hangUp()
		}
		return nil
	})
	_, err := lockService{Server: s}.Acquire(anonymous(ctx, s), connect.NewRequest(&wire.AcquireRequest{
		Session: session, Seq: 1, Name: "a",
	}))
	if connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("got %v", err)
	}
	eventually(t, "the hold is released", func() bool { return len(c.lock("a").GetHolders()) == 0 && pendingRequests(s) == 0 })
}

// credentialsOf opens a session with that secret.
func credentialsOf(c *cluster, secret string) *wire.Credentials {
	c.t.Helper()
	res := c.must(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hashOf(secret)}}})
	return &wire.Credentials{SessionId: res.GetSession().GetSessionId(), Secret: []byte(secret)}
}

func hashOf(secret string) []byte {
	hash := sha256.Sum256([]byte(secret))
	return hash[:]
}

func TestOwnDeadlineOfARequest(t *testing.T) {
	x := contend(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+x.p.addr+"/quorumlock.v1.LockService/Acquire",
		strings.NewReader(`{`+x.bob.creds+`,`+forever+`}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connect-Timeout-Ms", "50")
	resp, err := x.p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("status %d", resp.StatusCode)
	}
	x.c.queued("a", 0)
}

func TestCloseSendsWaitersElsewhereAndKeepsTheirPlace(t *testing.T) {
	x := contend(t)
	answered := x.bob.later(t.Context(), forever)
	x.c.queued("a", 1)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := x.p.server.Close(ctx); err != nil {
		t.Error(err)
	}
	soon(t, answered).refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
	x.c.queued("a", 1)
	next := start(t, x.c, "n2")
	x.c.lead("n2")
	again := x.bob.at(next).later(t.Context(), forever)
	eventually(t, "bob waits again", func() bool { return pendingRequests(next.server) == 1 })
	x.c.expire(x.ann.num)
	if got := soon(t, again).ok(); got["status"] != "GRANTED" {
		t.Errorf("got %v", got)
	}
}

func TestCloseCancelsWhatWasAbandoned(t *testing.T) {
	x := contend(t, longGrace)
	x.gone(t)
	eventually(t, "the request has no caller", func() bool { return abandonedRequests(x.p.server) == 1 })
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := x.p.server.Close(ctx); err != nil {
		t.Error(err)
	}
	if queue := x.c.lock("a").GetQueue(); len(queue) != 0 {
		t.Errorf("still waiting: %v", queue)
	}
}

// pendingRequests returns the number of requests that callers of the server wait for, and abandonedRequests that
// of those without callers.
func pendingRequests(s *Server) int {
	all, _ := s.pending.Len()
	leases, _ := s.leases.Len()
	return all + leases
}

func abandonedRequests(s *Server) int {
	_, abandoned := s.pending.Len()
	_, leases := s.leases.Len()
	return abandoned + leases
}

// anonymous returns the context of a request without credentials.
func anonymous(ctx context.Context, s *Server) context.Context {
	caller, err := access.Authenticate(s.replica, "", access.Presented{})
	if err != nil {
		panic(err)
	}
	return access.NewContext(ctx, caller)
}

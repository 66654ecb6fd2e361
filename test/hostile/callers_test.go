package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// phase is the time of a measurement relative to an attack.
type phase int32

const (
	before phase = iota
	during
	settling // the attack has ended, and everything may return to its earlier state
	after
	phases
)

// Operations of honest callers, by the names of their samples.
const (
	opLock     = "lock"     // Lock or Unlock of the SDK, on an existing connection
	opHandover = "handover" // from Unlock to the grant of the waiter
	opConnect  = "connect"  // a new client: connection, session, lock
	opHTTP     = "http"     // a lease over HTTP, acquired and released
	opOperator = "operator" // qlock status and qlock force: a new client each time
	opHealth   = "health"   // /healthz and /readyz, each on a new connection
)

var ops = []string{opLock, opHandover, opConnect, opHTTP, opOperator, opHealth}

// callTimeout bounds one call of an honest client, operatorTimeout one of an operator (the CLI's own
// timeout), healthTimeout a probe (the default of Kubernetes).
var (
	callTimeout     = aloneOrShared(5*time.Second, timeout)
	operatorTimeout = aloneOrShared(2*time.Second, timeout)
	healthTimeout   = aloneOrShared(time.Second, timeout)
)

const (
	// Intervals of the operations.
	workerInterval, rareInterval = 10 * time.Millisecond, 200 * time.Millisecond
	// holderCount is the number of sessions that hold one lock each throughout.
	holderCount = 4
)

// callerSession has a TTL that tolerates a busy machine.
var callerSession = client.SessionOptions{TTL: aloneOrShared(20*time.Second, time.Minute), Name: "caller"}

// callers are honest clients of every kind that use a cluster during an attack.
type callers struct {
	t      testing.TB
	c      *cluster
	phase  atomic.Int32
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	lost   atomic.Int64 // sessions
	// refused counts calls refused because the budget of the whole state was full, until the sessions that
	// filled it have ended. The refusal is immediate, and nothing is lost by it.
	refused atomic.Int64

	sessions []*client.Session

	mu       sync.Mutex
	samples  map[string]*[phases][]time.Duration
	failures map[string]*[phases]int
	errs     []string
}

// startCallers returns when every kind of caller has had its first success.
func startCallers(t testing.TB, c *cluster) *callers {
	t.Helper()
	h := &callers{t: t, c: c, samples: map[string]*[phases][]time.Duration{}, failures: map[string]*[phases]int{}}
	for _, op := range ops {
		h.samples[op], h.failures[op] = new([phases][]time.Duration), new([phases]int)
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	t.Cleanup(h.stop)
	cl := c.client()
	for i := range workers {
		s := h.session(cl)
		h.wg.Go(func() { h.work(s, i) })
	}
	for i := range holderCount {
		h.keep(h.session(c.client()), i)
	}
	one, two := h.session(cl), h.session(c.client())
	h.wg.Go(func() { h.hand(one, two) })
	h.wg.Go(func() { h.every(rareInterval, h.connect) })
	h.wg.Go(func() { h.every(workerInterval, h.lease) })
	victim := h.session(c.client())
	h.wg.Go(func() { h.every(rareInterval, func(i int) { h.operate(victim, i) }) })
	h.wg.Go(func() { h.every(rareInterval/2, h.probe) })
	await(t, "a success of every kind of caller", timeout, func(context.Context) error { return h.allAnswered(before) })
	return h
}

// stop ends all calls and closes the sessions.
func (h *callers) stop() {
	h.cancel()
	h.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for _, s := range h.sessions {
		_ = s.Close(ctx)
	}
	h.sessions = nil
}

// session opens a session that must not be lost.
func (h *callers) session(cl *client.Client) *client.Session {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, timeout)
	defer cancel()
	s, err := cl.NewSession(ctx, callerSession)
	if err != nil {
		h.t.Fatal(err)
	}
	h.sessions = append(h.sessions, s)
	h.wg.Go(func() {
		select {
		case <-s.Lost():
			h.lost.Add(1)
			h.fail(opLock, fmt.Errorf("session %d: %w", s.ID(), s.Err()))
		case <-h.ctx.Done():
		}
	})
	return s
}

func (h *callers) every(interval time.Duration, do func(i int)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
			do(i)
		case <-h.ctx.Done():
			return
		}
	}
}

// measure runs do with a timeout, and records how long it took.
func (h *callers) measure(op string, within time.Duration, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(h.ctx, within)
	defer cancel()
	at, started := h.now(), time.Now()
	err := do(ctx)
	if h.ctx.Err() != nil {
		return false
	}
	h.add(op, at, time.Since(started))
	if err != nil {
		h.failAt(op, at, err)
	}
	return err == nil
}

func (h *callers) now() phase { return phase(h.phase.Load()) }

func (h *callers) enter(p phase) { h.phase.Store(int32(p)) }

// stay waits for d. In the short version, which may share its cores, it also waits until every kind of caller
// was answered.
func (h *callers) stay(p phase, d time.Duration) {
	h.t.Helper()
	<-time.After(d)
	if full {
		return
	}
	await(h.t, "an answer to every kind of caller", timeout, func(context.Context) error { return h.allAnswered(p) })
}

func (h *callers) allAnswered(p phase) error {
	for _, op := range ops {
		if h.count(op, p) == 0 {
			return fmt.Errorf("%s: none, %q", op, h.failed())
		}
	}
	return nil
}

func (h *callers) add(op string, at phase, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples[op][at] = append(h.samples[op][at], took)
}

func (h *callers) fail(op string, err error) { h.failAt(op, h.now(), err) }

const maxErrs = 20

func (h *callers) failAt(op string, at phase, err error) {
	if (at == during || at == settling) && strings.Contains(err.Error(), "max_state_bytes") {
		h.refused.Add(1)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures[op][at]++
	if len(h.errs) < maxErrs {
		h.errs = append(h.errs, fmt.Sprintf("%s: %v", op, err))
	}
}

func (h *callers) failed() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errs
}

func (h *callers) count(op string, at phase) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.samples[op][at]) - h.failures[op][at]
}

// reset drops all samples.
func (h *callers) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range ops {
		*h.samples[op], *h.failures[op] = [phases][]time.Duration{}, [phases]int{}
	}
	h.errs = nil
}

// work locks and unlocks, every fourth time a shared lock.
func (h *callers) work(s *client.Session, i int) {
	h.every(workerInterval, func(round int) {
		name := fmt.Sprintf("own/%d", i)
		if round%4 == 0 {
			name = "shared"
		}
		var hold *client.Hold
		locked := h.measure(opLock, callTimeout, func(ctx context.Context) (err error) {
			hold, err = s.Lock(ctx, name)
			return err
		})
		if locked {
			h.measure(opLock, callTimeout, hold.Unlock)
		}
	})
}

// keep holds a lock until the end and counts its loss as a lost session.
func (h *callers) keep(s *client.Session, i int) {
	h.t.Helper()
	hold, err := s.Lock(h.ctx, fmt.Sprintf("kept/%d", i))
	if err != nil {
		h.t.Fatal(err)
	}
	h.wg.Go(func() {
		select {
		case <-hold.Lost():
			h.lost.Add(1)
		case <-h.ctx.Done():
		}
	})
}

// hand passes one lock back and forth between two sessions.
func (h *callers) hand(holder, waiter *client.Session) {
	const name = "passed"
	var hold *client.Hold
	h.every(rareInterval/4, func(int) {
		if hold == nil {
			hold = h.take(holder, name)
		}
		if hold == nil {
			return
		}
		granted := make(chan *client.Hold, 1)
		h.wg.Go(func() { granted <- h.take(waiter, name) })
		if !h.queued(name, granted) {
			<-granted // it failed, and that was recorded
			return
		}
		var next *client.Hold
		h.measure(opHandover, callTimeout, func(ctx context.Context) error {
			if err := hold.Unlock(ctx); err != nil {
				return err
			}
			next = <-granted
			return nil
		})
		hold = next
		holder, waiter = waiter, holder
	})
}

// take locks the name, waiting if necessary, or records the failure.
func (h *callers) take(s *client.Session, name string) *client.Hold {
	ctx, cancel := context.WithTimeout(h.ctx, 2*callTimeout)
	defer cancel()
	hold, err := s.Lock(ctx, name)
	if err != nil && h.ctx.Err() == nil {
		h.fail(opHandover, err)
	}
	return hold
}

// queued waits until a request waits for the lock. It returns false if the request has ended instead.
func (h *callers) queued(name string, ended chan *client.Hold) bool {
	ask := func() (bool, error) {
		ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
		defer cancel()
		var answer struct {
			QueueLength string `json:"queueLength"`
		}
		err := h.post(ctx, h.c.leader, "LockService/Get", map[string]any{"name": name}, &answer)
		return answer.QueueLength != "0", err
	}
	for h.ctx.Err() == nil && len(ended) == 0 {
		if waits, err := ask(); waits && err == nil {
			return true
		}
	}
	return len(ended) == 0
}

// connect creates a new client that locks once.
func (h *callers) connect(i int) {
	cl, err := client.New(client.Config{Endpoints: h.c.clientAddrs(), TLS: h.c.clientTLS(), Agent: "newcomer"})
	if err != nil {
		h.fail(opConnect, err)
		return
	}
	defer cl.Close()
	var s *client.Session
	h.measure(opConnect, callTimeout, func(ctx context.Context) error {
		if s, err = cl.NewSession(ctx, sessionOptions); err != nil {
			return err
		}
		_, err = s.Lock(ctx, fmt.Sprintf("newcomer/%d", i), client.WithTry())
		return err
	})
	if s != nil {
		ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
		defer cancel()
		_ = s.Close(ctx)
	}
}

// lease acquires and releases a lease over HTTP, on each node in turn.
func (h *callers) lease(i int) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	key := base64.StdEncoding.EncodeToString(secret)
	n := h.c.nodes[i%len(h.c.nodes)]
	h.measure(opHTTP, callTimeout, func(ctx context.Context) error {
		var granted struct{ Status, HoldID string }
		acquire := map[string]any{"secret": key, "ttlMs": 5_000, "acquire": map[string]any{"locks": []any{map[string]any{"name": "leased"}}}}
		if err := h.post(ctx, n, "LeaseService/Acquire", acquire, &granted); err != nil {
			return err
		}
		if granted.Status != "GRANTED" {
			return fmt.Errorf("answered %s", granted.Status)
		}
		return h.post(ctx, n, "LeaseService/Release", map[string]any{"secret": key, "holdId": granted.HoldID}, &granted)
	})
}

// post calls the HTTP port on an existing connection.
func (h *callers) post(ctx context.Context, n *node, procedure string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.scheme+"://"+n.addr[httpPort]+"/quorumlock.v1."+procedure, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := n.regular.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", procedure, resp.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// operate does what an operator does: read the cluster's status, and force a hold away.
func (h *callers) operate(victim *client.Session, i int) {
	name := fmt.Sprintf("forced/%d", i)
	hold, err := victim.Lock(h.ctx, name, client.WithTry())
	if err != nil {
		if h.ctx.Err() == nil {
			h.fail(opOperator, err)
		}
		return
	}
	cl, err := client.New(client.Config{Endpoints: h.c.clientAddrs(), TLS: h.c.clientTLS(), Agent: "operator"})
	if err != nil {
		h.fail(opOperator, err)
		return
	}
	defer cl.Close()
	h.measure(opOperator, operatorTimeout, func(ctx context.Context) error {
		status, err := wirecall.Of(cl).Status(ctx, &wire.StatusRequest{})
		if err == nil && status.GetLeaderId() == "" {
			err = errors.New("no leader")
		}
		return err
	})
	h.measure(opOperator, operatorTimeout, func(ctx context.Context) error {
		_, err := wirecall.Of(cl).ForceRelease(ctx, &wire.ForceRelease{HoldId: hold.ID(), Token: hold.Token(), Reason: "a test of overload", Operator: "test"})
		return err
	})
}

// probe requests one node's liveness and readiness, on the health listener and on the HTTP port in turn.
func (h *callers) probe(i int) {
	n := h.c.nodes[i/4%len(h.c.nodes)]
	path := []string{"/healthz", "/readyz"}[i%2]
	ask := []func(context.Context, string) (string, error){n.health, n.get}[i/2%2]
	h.measure(opHealth, healthTimeout, func(ctx context.Context) error {
		text, err := ask(ctx, path)
		if err == nil && !strings.Contains(text, "true") && !strings.Contains(text, "ok") {
			err = fmt.Errorf("%s of %s: %s", path, n.id, text)
		}
		return err
	})
}

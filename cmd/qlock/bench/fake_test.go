package bench

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// fake is a cluster in memory. Each request takes some time, and locks are granted in request order.
type fake struct {
	t       *testing.T
	service time.Duration                         // duration of a request
	refuse  func(session int, name string) error  // error to return instead of a grant
	stall   func(now time.Time) (until time.Time) // no request is served before the returned time
	broken  bool                                  // grants to everybody
	dull    bool                                  // tokens do not increase

	mu       sync.Mutex
	locks    map[string]*fakeLock
	token    uint64
	opened   []*fakeSession
	open     int         // sessions
	conns    int         // open connections
	byConn   map[int]int // sessions opened, by connection
	held     int
	mostHeld int
}

type fakeLock struct {
	holders int // -1 means a writer
	queue   []*fakeWait
}

type fakeWait struct {
	shared  bool
	granted chan struct{}
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, service: time.Millisecond, locks: map[string]*fakeLock{}, byConn: map[int]int{}}
}

// runner returns a Runner that loads the fake. Its alarms are the runtime's, which are exact in virtual
// time.
func (f *fake) runner() *Runner {
	return &Runner{Connect: f.connect, Sample: func(context.Context) Sample { return Sample{} },
		Progress: &Progress{}, alarm: func() alarm { return timer{} }}
}

// inBubble runs a plan in virtual time, and checks that everything was closed.
func (f *fake) inBubble(ctx context.Context, r *Runner, p Plan) (*Report, error) {
	report, err := r.Run(ctx, p)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open != 0 || f.conns != 0 {
		f.t.Errorf("%d sessions and %d connections are left open", f.open, f.conns)
	}
	return report, err
}

func (f *fake) connect() (Connection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns++
	return &fakeConnection{f, len(f.byConn) + f.conns - 1}, nil
}

// serve waits for the duration of a request.
func (f *fake) serve(ctx context.Context) error {
	until := time.Now().Add(f.service)
	if f.stall != nil {
		if end := f.stall(time.Now()); end.After(until) {
			until = end
		}
	}
	if !(timer{}).sleep(ctx, until) {
		return ctx.Err()
	}
	return nil
}

type fakeConnection struct {
	f      *fake
	number int
}

func (c *fakeConnection) Open(ctx context.Context) (Session, error) {
	if err := c.f.serve(ctx); err != nil {
		return nil, err
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	s := &fakeSession{f: c.f, number: len(c.f.opened), lost: make(chan struct{})}
	c.f.opened = append(c.f.opened, s)
	c.f.open++
	c.f.byConn[c.number]++
	return s, nil
}

func (c *fakeConnection) Close() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.conns--
	return nil
}

type fakeSession struct {
	f      *fake
	number int
	lost   chan struct{}
	over   bool // guarded by f.mu
}

func (s *fakeSession) Lost() <-chan struct{} { return s.lost }

// lose ends the session as an expiry does.
func (s *fakeSession) lose() {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.over {
		s.over = true
		s.f.open--
		close(s.lost)
	}
}

func (s *fakeSession) Close(context.Context) error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.over {
		s.over = true
		s.f.open--
	}
	return nil
}

func (s *fakeSession) Lock(ctx context.Context, name string, shared bool) (Hold, error) {
	if err := s.f.serve(ctx); err != nil {
		return nil, err
	}
	if s.f.refuse != nil {
		if err := s.f.refuse(s.number, name); err != nil {
			if errors.Is(err, client.ErrSessionLost) {
				s.lose()
			}
			return nil, err
		}
	}
	w := s.f.enqueue(name, shared)
	select {
	case <-w.granted:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if !s.f.dull {
		s.f.token++
	}
	s.f.held++
	s.f.mostHeld = max(s.f.mostHeld, s.f.held)
	return &fakeHold{s.f, name, shared, s.f.token}, nil
}

func (f *fake) enqueue(name string, shared bool) *fakeWait {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.locks[name]
	if l == nil {
		l = &fakeLock{}
		f.locks[name] = l
	}
	w := &fakeWait{shared, make(chan struct{})}
	l.queue = append(l.queue, w)
	f.grant(l)
	return w
}

// grant grants the lock to the waiters that fit, in order.
func (f *fake) grant(l *fakeLock) {
	for len(l.queue) > 0 {
		w := l.queue[0]
		if !f.broken && (l.holders < 0 || l.holders > 0 && !w.shared) {
			return
		}
		l.queue = l.queue[1:]
		if w.shared {
			l.holders++
		} else {
			l.holders = -1
		}
		close(w.granted)
	}
}

type fakeHold struct {
	f      *fake
	name   string
	shared bool
	token  uint64
}

func (h *fakeHold) Token() uint64            { return h.token }
func (h *fakeHold) Context() context.Context { return context.Background() }

func (h *fakeHold) Unlock(ctx context.Context) error {
	if err := h.f.serve(ctx); err != nil {
		return err
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.f.held--
	l := h.f.locks[h.name]
	if h.shared {
		l.holders--
	} else {
		l.holders = 0
	}
	h.f.grant(l)
	return nil
}

// plan returns a plan that suits the tests.
func plan(w Workload, change func(*Plan)) Plan {
	p := Plan{Workload: w, Sessions: 4, Connections: 2, Locks: 1, Writes: 20, Duration: 10 * time.Second, WarmUp: time.Second,
		Seed: 1, Prefix: "bench", Grace: 10 * time.Second}
	if change != nil {
		change(&p)
	}
	return p
}

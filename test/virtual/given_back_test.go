package virtual_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// ending is when the ctx of a call ends that gives something back.
type ending int

const (
	before     ending = iota // it has ended when the call is made
	during                   // it ends while the call waits for an answer that does not come
	leaderless               // it ends while the cluster has no leader
	thenClosed               // it has ended before, and the client is closed at once
)

// scene is one method of the SDK, tried with a client and a lock of its own.
type scene struct {
	*cluster
	when    ending
	lock    string
	cl      *client.Client
	s       *client.Session
	blocker *client.Hold // of another client's session
	drop    func()       // ends what the test itself holds, before the cluster is asked; nil if there is nothing
}

// act gives something back, or gives up. Its ctx ends as the scene says.
type act func(ctx context.Context) error

// preparations prepare, for each method that gives something back or that can be given up while it waits, the call of it.
var preparations = map[string]func(s *scene) act{
	"Hold.Unlock":    func(s *scene) act { return s.held().Unlock },
	"Session.Close":  func(s *scene) act { s.held(); return s.s.Close },
	"Hold.Downgrade": func(s *scene) act { return s.downgrade(s.held()) },
	"Client.Close": func(s *scene) act {
		s.held()
		return func(context.Context) error { return s.cl.Close() }
	},
	"Locker.Unlock": func(s *scene) act {
		ctx, cancel := context.WithCancel(context.Background())
		l := s.s.Locker(ctx, s.lock, nil)
		l.Lock()
		return func(context.Context) error {
			cancel()
			go func() {
				defer func() { _ = recover() }() // the client was closed
				l.Unlock()
			}()
			pause(time.Millisecond)
			return nil
		}
	},
	"Leadership.Resign": func(s *scene) act {
		return must(s.s.Election(s.lock).Campaign(context.Background())).Resign
	},
	"SupervisedSession.Close": func(s *scene) act {
		supervised := s.supervised()
		must(supervised.Lock(context.Background(), s.lock))
		return supervised.Close
	},
	"Lease.Release": func(s *scene) act { return s.lease().Release },
	"Client.ReleaseLease": func(s *scene) act {
		l := s.lease()
		return func(ctx context.Context) error { return s.cl.ReleaseLease(ctx, l.Secret(), l.ID()) }
	},
	"Client.AcquireLease": waits(func(s *scene, ctx context.Context) error {
		_, err := s.cl.AcquireLease(ctx, client.Names(s.lock), client.WithTTL(time.Hour))
		return err
	}),
	"Session.Lock": waits(func(s *scene, ctx context.Context) error { _, err := s.s.Lock(ctx, s.lock); return err }),
	"Session.LockAll": waits(func(s *scene, ctx context.Context) error {
		_, err := s.s.LockAll(ctx, client.Names(s.lock))
		return err
	}),
	"Session.Do": waits(func(s *scene, ctx context.Context) error { return s.s.Do(ctx, s.lock, nothing) }),
	"SupervisedSession.Lock": waits(func(s *scene, ctx context.Context) error {
		_, err := s.supervised().Lock(ctx, s.lock)
		return err
	}),
	"SupervisedSession.LockAll": waits(func(s *scene, ctx context.Context) error {
		_, err := s.supervised().LockAll(ctx, client.Names(s.lock))
		return err
	}),
	"SupervisedSession.Do": waits(func(s *scene, ctx context.Context) error { return s.supervised().Do(ctx, s.lock, nothing) }),
	"Semaphore.Acquire": func(s *scene) act {
		return must(s.s.Semaphore(s.lock, 2).Acquire(context.Background(), 2)).Unlock
	},
	"Election.Campaign": waits(func(s *scene, ctx context.Context) error {
		_, err := s.s.Election(s.lock).Campaign(ctx)
		return err
	}),
	"Election.Run": func(s *scene) act {
		ctx, cancel := context.WithCancel(context.Background())
		leads, over := make(chan struct{}), make(chan error, 1)
		go func() {
			over <- s.s.Election(s.lock).Run(ctx, func(ctx context.Context, _ *client.Leadership) error {
				close(leads)
				<-ctx.Done()
				return nil
			})
		}()
		<-leads
		return func(context.Context) error { cancel(); pause(time.Millisecond); return nil }
	},
	"Once.Do": waits(func(s *scene, ctx context.Context) error {
		_, err := s.s.Once(s.lock, time.Minute).Do(ctx, nothing)
		return err
	}),
	"Hold.Do": func(s *scene) act {
		h := s.held()
		ctx, cancel := context.WithCancel(context.Background())
		begun := make(chan struct{})
		go h.Do(ctx, func(ctx context.Context, _ uint64) error { close(begun); <-ctx.Done(); return nil })
		<-begun
		return func(context.Context) error { cancel(); pause(time.Millisecond); return nil }
	},
	"Hold.Upgrade": func(s *scene) act {
		reader := must(s.s.Lock(context.Background(), s.lock, client.WithShared()))
		other := must(s.s.Lock(context.Background(), s.lock, client.WithShared()))
		s.drop = func() { _, _ = reader.Unlock(context.Background()), other.Unlock(context.Background()) }
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- reader.Upgrade(ctx) }()
		s.eventually("an upgrade waits", func() bool { return len(s.line(s.lock)) == 1 })
		return func(context.Context) error { cancel(); return <-over }
	},
}

// harmless are the methods with a ctx that leave nothing behind when they are given up.
var harmless = map[string]string{
	"Client.NewSession":        "the client closes what it has opened, and it holds nothing",
	"Client.ExtendLease":       "extends",
	"Lease.Extend":             "extends",
	"Hold.Extend":              "extends",
	"Hold.SetValue":            "changes a value",
	"Leadership.SetValue":      "changes a value",
	"Leadership.Revoked":       "a channel",
	"Hold.Revoked":             "a channel",
	"Client.Observe":           "reads",
	"Client.Leader":            "reads",
	"Election.Observe":         "reads",
	"Election.Leader":          "reads",
	"Once.Begin":               "waits as Session.Lock does, and what it has locked ends with the hold of the job",
	"OnceRun.Record":           "makes what is to stay",
	"Once.Done":                "reads",
	"Client.VerifyToken":       "reads",
	"Client.TokenState":        "reads",
	"Client.Watch":             "reads",
	"Watcher.Next":             "reads",
	"Watcher.Close":            "ends with the connection",
	"Session.Locker":           "makes no request",
	"SupervisedSession.Locker": "makes no request",
	"admin.AuditWatcher.Next":  "reads",
	"admin.AuditWatcher.Close": "ends with the connection",
	"admin.Client.WhoAmI":      "reads",
	"admin.Client.Samples":     "reads",
	"admin.Client.Quota":       "reads",
	"admin.Client.WatchAudit":  "reads",
	"admin.Client.TestPolicy":  "reads",
}

func nothing(context.Context, uint64) error { return nil }

func must[X any](x X, err error) X {
	if err != nil {
		panic(err)
	}
	return x
}

// held acquires the scene's lock.
func (s *scene) held() *client.Hold { return must(s.s.Lock(context.Background(), s.lock)) }

func (s *scene) lease() *client.Lease {
	return must(s.cl.AcquireLease(context.Background(), client.Names(s.lock), client.WithTTL(time.Hour)))
}

func (s *scene) supervised() *client.SupervisedSession {
	return s.cl.Supervise(client.SupervisedOptions{SessionOptions: client.SessionOptions{TTL: 10 * time.Minute}})
}

// downgrade returns the downgrade of a hold. Others can then read; the hold itself is released at the end.
func (s *scene) downgrade(h *client.Hold) act {
	s.drop = func() {
		if holder := s.holder(s.lock); holder.GetMode() == wire.Mode_EXCLUSIVE {
			s.t.Errorf("%s: still exclusive", s.lock)
		}
		_ = h.Unlock(context.Background())
	}
	return h.Downgrade
}

// waits prepares a call that waits for the scene's lock, which the act gives up.
func waits(call func(s *scene, ctx context.Context) error) func(s *scene) act {
	return func(s *scene) act {
		if s.when == before {
			return func(ctx context.Context) error { return call(s, ctx) }
		}
		other := must(s.client(s.lock+" other").NewSession(context.Background(), client.SessionOptions{TTL: 10 * time.Minute}))
		s.blocker = must(other.Lock(context.Background(), s.lock))
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- call(s, ctx) }()
		s.eventually("it waits", func() bool { return len(s.line(s.lock)) == 1 })
		return func(context.Context) error { cancel(); return <-over }
	}
}

// methods returns the exported methods of the SDK's exported types that take a ctx or whose names say that they give
// something back. Methods with a parameter of type By are an operator's: they give back nothing of the caller's, and
// with an ended ctx they do nothing.
func methods(t *testing.T) (names []string) {
	gives := regexp.MustCompile(`^(Close|Release|Unlock|Resign|Cancel|Done|Stop|End|Downgrade|Leave|Revoke|Free|Drop|Abandon|Return)`)
	for _, dir := range []string{"client", "client/admin", "client/fence", "client/otelquorumlock"} {
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			name := file.Name.Name
			ast.Inspect(file, func(n ast.Node) bool {
				f, ok := n.(*ast.FuncDecl)
				if !ok || f.Recv == nil || !f.Name.IsExported() {
					return true
				}
				typ := strings.TrimPrefix(fmt.Sprint(typeOf(f.Recv.List[0])), "*")
				params := f.Type.Params.List
				takesCtx := len(params) > 0 && typeOf(params[0]) == "context.Context"
				operators := slices.ContainsFunc(params, func(p *ast.Field) bool { return typeOf(p) == "By" })
				if ast.IsExported(typ) && !operators && (takesCtx || gives.MatchString(f.Name.Name)) {
					names = append(names, strings.TrimPrefix(name+"."+typ+"."+f.Name.Name, "client."))
				}
				return true
			})
		}
	}
	return names
}

func typeOf(f *ast.Field) string {
	switch typ := f.Type.(type) {
	case *ast.StarExpr:
		return typeOf(&ast.Field{Type: typ.X})
	case *ast.SelectorExpr:
		return fmt.Sprint(typ.X, ".", typ.Sel)
	case *ast.IndexExpr:
		return typeOf(&ast.Field{Type: typ.X})
	case *ast.Ident:
		return typ.Name
	}
	return ""
}

// TestContextsBoundOnlyTheWait calls each method of the SDK that gives something back, and gives up each call that waits,
// with a ctx that ends in every way. Soon the cluster holds nothing of it.
func TestContextsBoundOnlyTheWait(t *testing.T) {
	for _, name := range methods(t) {
		reads := strings.HasPrefix(name, "admin.Client.") && preparations[name] == nil
		if _, known := harmless[name]; !known && !reads && preparations[name] == nil {
			t.Errorf("%s is not tried: add it to preparations", name)
		}
	}
	for when, name := range map[ending]string{before: "before", during: "during", leaderless: "without a leader", thenClosed: "then the client is closed"} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) { giveBack(t, when) })
		})
	}
}

func giveBack(t *testing.T, when ending) {
	c := newCluster(t, 1, 3, nil)
	leader := c.leaderWithReports()
	scenes := map[string]*scene{}
	acts := map[string]act{}
	for _, name := range slices.Sorted(maps.Keys(preparations)) {
		s := &scene{cluster: c, when: when, lock: name, cl: c.client(name)}
		s.s = must(s.cl.NewSession(context.Background(), client.SessionOptions{TTL: 10 * time.Minute}))
		scenes[name], acts[name] = s, preparations[name](s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	switch when {
	case before, thenClosed:
		cancel()
	case during:
		for name := range scenes {
			for _, n := range c.nodes {
				c.net.Cut(n.id, name) // requests arrive, answers do not
			}
		}
	case leaderless:
		for name := range scenes {
			c.net.Reject(name, leader.id) // the clients notice it before there is another leader
		}
		pause(10 * time.Millisecond)
		cancel()
	}
	var acting sync.WaitGroup
	for name, act := range acts {
		acting.Go(func() {
			began := time.Now()
			err := act(ctx)
			if took := time.Since(began); took > time.Second && name != "Client.Close" {
				t.Errorf("%s: it returned after %v", name, took)
			}
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if when == thenClosed {
				_ = scenes[name].cl.Close()
			}
		})
	}
	if when == leaderless {
		leader.crash()
	}
	acting.Wait()
	if when == leaderless {
		c.successor(leader)
		leader.start()
	}
	c.calm()
	for name, s := range scenes {
		s.checkGivenBack(name)
	}
	c.closeClients()
	c.stopAll()
}

// checkGivenBack checks that the cluster holds nothing of a scene, and that nothing of it waits.
func (s *scene) checkGivenBack(name string) {
	if !within(5*time.Second, func() bool {
		return s.serving() != nil && (s.blocker == nil || len(s.line(s.lock)) == 0)
	}) {
		s.t.Errorf("%s: it still waits", name)
	}
	if s.blocker != nil {
		_ = s.blocker.Unlock(context.Background())
	}
	if s.drop != nil {
		pause(5 * time.Second)
		s.drop()
	}
	if !within(5*time.Second, func() bool {
		return s.serving() != nil && s.holder(s.lock) == nil && len(s.line(s.lock)) == 0
	}) {
		s.t.Errorf("%s: it is still held by %v, and %d wait", name, s.holder(s.lock), len(s.line(s.lock)))
	}
}

package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stage is what a function of the program is tried on: a client with two holds.
type stage struct {
	t           *testing.T
	f           *fake
	c           *Client
	s           *Session
	kept, other *Hold
	supervised  *SupervisedSession
	act         func() // what the function does when it is called
	calls       atomic.Int32
	release     chan struct{} // closed at the end
	done        chan error
}

// called is what each function of the program does in these tests.
func (g *stage) called() {
	g.calls.Add(1)
	g.act()
}

// handler is a log handler that calls a function for each line.
type handler struct {
	slog.Handler
	call func()
}

func (h handler) Enabled(context.Context, slog.Level) bool  { return true }
func (h handler) Handle(context.Context, slog.Record) error { h.call(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }
func (g *stage) lock(name string, opts ...LockOption) (*Hold, error) {
	return g.s.Lock(context.Background(), name, opts...)
}

// inPlace marks a function that runs in the goroutine of the call that it belongs to.
const inPlace = "in the caller's goroutine"

// functions are the functions of a program that the SDK calls. config installs the function, and trigger makes the
// client call it. Those with a reason are not tried.
var functions = map[string]struct {
	config  func(g *stage, cfg *Config)
	trigger func(g *stage)
	reason  string
}{
	"Config.TLS":   {reason: "its functions run in the same goroutine as Dial"},
	"Config.Clock": {reason: "the measure of time itself: it must not block"},
	"Config.Dial": {
		config: func(g *stage, cfg *Config) {
			dial := cfg.Dial
			var dialled atomic.Bool // n1 was, once
			cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if strings.HasPrefix(addr, "n1") && dialled.Swap(true) {
					g.called()
				}
				return dial(ctx, addr)
			}
		},
		trigger: func(g *stage) { // the connection breaks, and soon n2 leads
			g.f.cut("n1")
			synctest.Wait()
			g.f.elect("n2", 2)
		},
	},
	"Config.Logger": {
		config:  func(g *stage, cfg *Config) { cfg.Logger = slog.New(handler{call: g.called}) },
		trigger: func(g *stage) { g.c.say(slog.LevelInfo, "event") },
	},
	"Config.Hooks.Acquire": {
		config: func(g *stage, cfg *Config) {
			cfg.Hooks.Acquire = func(ctx context.Context, names []string) (context.Context, func(*Hold, error)) {
				if names[0] == "trigger" {
					g.called()
				}
				return ctx, nil
			}
		},
		trigger: func(g *stage) { go g.lock("trigger") },
	},
	"Config.Hooks.Acquire()": {
		config: func(g *stage, cfg *Config) {
			cfg.Hooks.Acquire = func(ctx context.Context, names []string) (context.Context, func(*Hold, error)) {
				return ctx, func(*Hold, error) {
					if names[0] == "trigger" {
						g.called()
					}
				}
			}
		},
		trigger: func(g *stage) { go g.lock("trigger") },
	},
	"Config.Hooks.HoldEnded": {
		config: func(g *stage, cfg *Config) { cfg.Hooks.HoldEnded = func(HoldEnd) { g.called() } },
		trigger: func(g *stage) {
			h, err := g.lock("trigger")
			ok(g.t, err)
			g.f.force(h, "stuck")
		},
	},
	"SupervisedOptions.OnLost": {
		trigger: func(g *stage) {
			g.supervised = g.c.Supervise(SupervisedOptions{OnLost: func(Loss) { g.called() }})
			ok(g.t, must(g.supervised.Lock(context.Background(), "supervised")).Unlock(context.Background()))
			current := g.supervised.Current()
			g.f.set(func() { g.f.service.end(g.f.service.sessions[current.ID()]) })
			<-current.Lost()
		},
	},
	"acquireOptions.wanted": {
		trigger: func(g *stage) {
			_, err := g.lock("trigger", OnWanted(g.called))
			ok(g.t, err)
			go g.lock("trigger")
		},
	},
	"acquireOptions.revoked": {
		trigger: func(g *stage) {
			h, err := g.lock("trigger", OnRevoked(func(Revocation) { g.called() }))
			ok(g.t, err)
			g.f.revoke(h, "deploy", 0)
		},
	},
	"Session.Locker(onLost)": {
		trigger: func(g *stage) {
			l := g.s.Locker(context.Background(), "trigger", func(error) { g.called() })
			l.Lock()
			g.f.force(l.hold, "stuck")
		},
	},
	"SupervisedSession.Locker(onLost)": {reason: "as for Session"},
	"Session.Do(fn)":                   {reason: inPlace},
	"SupervisedSession.Do(fn)":         {reason: inPlace},
	"Hold.Do(fn)":                      {reason: inPlace},
	"Once.Do(fn)":                      {reason: inPlace},
	"Election.Run(lead)":               {reason: inPlace},
	"Clock.AfterFunc(f)":               {reason: "a function of the SDK"},
	"runtimeClock.AfterFunc(f)":        {reason: "a function of the SDK"},
	"bootClock.AfterFunc(f)":           {reason: "a function of the SDK"},
}

// fieldsOfFunctions lists the fields of a struct through which a program passes functions, with the functions that
// these return.
func fieldsOfFunctions(name string, typ reflect.Type) (found []string) {
	switch {
	case typ.Kind() == reflect.Func:
		found = append(found, name)
		for i := range typ.NumOut() {
			if out := typ.Out(i); out.Kind() == reflect.Func {
				found = append(found, name+"()")
			}
		}
	case typ == reflect.TypeFor[*slog.Logger](), typ == reflect.TypeFor[*tls.Config](), typ.Kind() == reflect.Interface && typ != reflect.TypeFor[error]():
		found = append(found, name)
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			found = append(found, fieldsOfFunctions(name+"."+typ.Field(i).Name, typ.Field(i).Type)...)
		}
	}
	return found
}

// sources parses the package.
func sources(t *testing.T) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	ok(t, err)
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			ok(t, err)
			files = append(files, file)
		}
	}
	return files
}

// parametersOfFunctions lists the functions that the package's exported methods take.
func parametersOfFunctions(t *testing.T) (found []string) {
	for _, file := range sources(t) {
		for _, decl := range file.Decls {
			method, isFunc := decl.(*ast.FuncDecl)
			if !isFunc || method.Recv == nil || !method.Name.IsExported() {
				continue
			}
			for _, p := range method.Type.Params.List {
				if _, isFunc := p.Type.(*ast.FuncType); isFunc {
					found = append(found, fmt.Sprintf("%s.%s(%s)", receiver(method), method.Name, p.Names[0]))
				}
			}
		}
	}
	return found
}

func receiver(method *ast.FuncDecl) string {
	typ := method.Recv.List[0].Type
	if star, isStar := typ.(*ast.StarExpr); isStar {
		typ = star.X
	}
	return fmt.Sprint(typ)
}

// TestEveryFunctionOfTheProgramIsTried checks that the table has each function that a program can pass to the SDK.
func TestEveryFunctionOfTheProgramIsTried(t *testing.T) {
	found := slices.Concat(
		fieldsOfFunctions("Config", reflect.TypeFor[Config]()),
		fieldsOfFunctions("SupervisedOptions", reflect.TypeFor[SupervisedOptions]()),
		fieldsOfFunctions("acquireOptions", reflect.TypeFor[acquireOptions]()),
		parametersOfFunctions(t))
	if len(found) < 15 {
		t.Fatal("not all are found:", found)
	}
	for _, name := range found {
		if _, known := functions[name]; !known {
			t.Errorf("%s is not tried: add it to the table functions", name)
		}
	}
}

// perform tries one function of the program that does act when it is called.
func perform(t *testing.T, name string, act func(g *stage), judge func(g *stage)) {
	virtual(t, 3, func(t *testing.T, f *fake, _ *Client) {
		entry := functions[name]
		g := &stage{t: t, f: f, act: func() {}, release: make(chan struct{}), done: make(chan error, 1)}
		defer synctest.Wait()
		defer close(g.release)
		cfg := f.config()
		if entry.config != nil {
			entry.config(g, &cfg)
		}
		var err error
		g.c, err = New(cfg)
		ok(t, err)
		defer g.c.Close()
		g.s, err = g.c.NewSession(context.Background(), SessionOptions{TTL: 5 * time.Second})
		ok(t, err)
		g.kept, g.other = must(g.lock("kept")), must(g.lock("other"))
		synctest.Wait()
		g.act = func() { act(g) }
		g.calls.Store(0)
		entry.trigger(g)
		judge(g)
	})
}

// TestFunctionsThatBlock blocks each function of the program for much longer than the TTL: nothing else is late.
func TestFunctionsThatBlock(t *testing.T) {
	for name, entry := range functions {
		if entry.reason != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			perform(t, name, func(g *stage) { <-g.release }, func(g *stage) {
				time.Sleep(30 * time.Second)
				if g.calls.Load() == 0 {
					g.t.Fatal("it was not called")
				}
				if g.s.Err() != nil || g.kept.Context().Err() != nil || g.s.State() != Active {
					g.t.Fatal(g.s.State(), context.Cause(g.kept.Context()))
				}
				last, limit := g.f.start, 2*time.Second // a third of the TTL, and some time for what the test does
				if name == "Config.Dial" {
					limit += helloTimeout
				}
				for _, s := range g.f.all(heartbeats, func(s seen) bool { return s.req.SessionId == g.s.ID() }) {
					at := g.f.start.Add(s.at)
					if late := at.Sub(last); late > limit {
						g.t.Errorf("a heartbeat %v after the one before", late)
					}
					last = at
				}
				if time.Since(last) > limit {
					g.t.Error("no heartbeats any more")
				}
				g.inTime("Lock and Unlock", time.Second, func(ctx context.Context) error {
					h, err := g.lock("more")
					if err != nil && name != "Config.Hooks.Acquire" {
						return err
					}
					return h.Unlock(ctx)
				})
				g.inTime("Unlock", time.Second, g.kept.Unlock)
				if g.supervised != nil {
					g.inTime("SupervisedSession.Close", callLimit, g.supervised.Close)
				}
				g.inTime("Session.Close", time.Second, g.s.Close)
				g.inTime("Client.Close", callLimit, func(context.Context) error { return g.c.Close() })
			})
		})
	}
}

// inTime makes a call, which has to succeed within limit.
func (g *stage) inTime(what string, limit time.Duration, call func(ctx context.Context) error) {
	g.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if err != nil || time.Since(began) > limit+helloGrace {
			g.t.Errorf("%s: %v after %v", what, err, time.Since(began))
		}
	case <-time.After(time.Minute):
		g.t.Errorf("%s: no end", what)
	}
}

// TestFunctionsThatCallBack lets each function of the program call the SDK.
func TestFunctionsThatCallBack(t *testing.T) {
	ctx := context.Background()
	for what, act := range map[string]func(g *stage) error{
		"Lock":          func(g *stage) error { _, err := g.lock(fmt.Sprint("again", g.calls.Load())); return err },
		"Unlock":        func(g *stage) error { return g.other.Unlock(ctx) },
		"Session.Close": func(g *stage) error { return g.s.Close(ctx) },
		"Supervised.Close": func(g *stage) error {
			if g.supervised != nil {
				return g.supervised.Close(ctx)
			}
			return nil
		},
		"Client.Close": func(g *stage) error { return g.c.Close() },
	} {
		for name, entry := range functions {
			if entry.reason != "" {
				continue
			}
			t.Run(name+" calls "+what, func(t *testing.T) {
				perform(t, name, func(g *stage) {
					if g.calls.Load() == 1 { // the call may itself cause further ones
						g.done <- act(g)
					}
				}, func(g *stage) {
					select {
					case err := <-g.done:
						if err != nil {
							g.t.Error(err)
						}
					case <-time.After(time.Minute):
						g.t.Fatal("it has not returned")
					}
					if what != "Session.Close" && what != "Client.Close" && g.kept.Context().Err() != nil {
						g.t.Error(context.Cause(g.kept.Context()))
					}
				})
			})
		}
	}
}

// TestReferencesToFunctions checks that functions of the program are used only where these tests know that they do not
// block anything.
func TestReferencesToFunctions(t *testing.T) {
	allowed := map[string][]string{
		"Dial":      {"greet"},
		"Logger":    {"newOutlets"},
		"Handle":    {"write"},
		"Enabled":   {"write"},
		"Acquire":   {"acquire", "lockCached"},
		"HoldEnded": {"newClient", "observeEnd", "askedBy"},
		"OnLost":    {"tell", "report"},
		"onLost":    {"newLocker", "Lock"},
	}
	for _, file := range sources(t) {
		for _, decl := range file.Decls {
			function, isFunc := decl.(*ast.FuncDecl)
			if !isFunc {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				selector, isSelector := n.(*ast.SelectorExpr)
				if !isSelector || allowed[selector.Sel.Name] == nil {
					return true
				}
				_, ofStruct := selector.X.(*ast.SelectorExpr) // such as cfg.Hooks.Acquire
				if !ofStruct && slices.Contains([]string{"Dial", "Acquire"}, selector.Sel.Name) {
					return true // the SDK's own functions and messages
				}
				if selector.Sel.Name == "Acquire" && !strings.HasSuffix(fmt.Sprint(selector.X.(*ast.SelectorExpr).Sel), "Hooks") {
					return true
				}
				if !slices.Contains(allowed[selector.Sel.Name], function.Name.Name) {
					t.Errorf("%s is used in %s: call it through an outlet, and add it here", selector.Sel.Name, function.Name)
				}
				return true
			})
		}
	}
}

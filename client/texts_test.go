package client

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// poison is text that no request may carry.
const poison = "a\xffb"

// poisoned are the calls of the SDK that take text from their caller, by method.
// TestEveryTextOfTheAPIIsTried finds methods that are missing here.
func poisoned(ctx context.Context, c *Client, s *Session) map[string]func(text string) error {
	calls := poisonedOfSession(ctx, s)
	maps.Copy(calls, poisonedOfClient(ctx, c))
	maps.Copy(calls, poisonedOfAccess(ctx, c))
	maps.Copy(calls, poisonedOfSupervised(ctx, c))
	return calls
}

// errorOf returns the error of a call and drops its result.
func errorOf[T any](_ T, err error) error { return err }

func specs(text string) []LockSpec { return []LockSpec{{Name: "fine"}, {Name: text}} }

func poisonedOfClient(ctx context.Context, c *Client) map[string]func(text string) error {
	calls := wirecall.Of(c)
	return map[string]func(text string) error{
		"Calls.ListLocks": func(text string) error {
			return errorOf(wirecall.Of(c).ListLocks(ctx, &wire.ListLocksRequest{Prefix: text}))
		},
		"Calls.ListContended": func(text string) error {
			return errorOf(wirecall.Of(c).ListContended(ctx, &wire.ListContendedRequest{Prefix: text}))
		},
		"Calls.GetLock": func(text string) error { return errorOf(wirecall.Of(c).GetLock(ctx, &wire.GetLockRequest{Name: text})) },
		"Calls.ListSessions": func(text string) error {
			return errorOf(wirecall.Of(c).ListSessions(ctx, &wire.ListSessionsRequest{PageToken: text}))
		},
		"Calls.AddMember": func(text string) error { return errorOf(calls.AddMember(ctx, &wire.AddMemberRequest{Id: text})) },
		"Calls.RemoveMember": func(text string) error {
			return errorOf(wirecall.Of(c).RemoveMember(ctx, &wire.RemoveMemberRequest{Id: text}))
		},
		"Calls.SetDrained": func(text string) error { return errorOf(calls.SetDrained(ctx, &wire.SetDrainedRequest{Id: text})) },
		"Calls.TransferLeadership": func(text string) error {
			return errorOf(wirecall.Of(c).TransferLeadership(ctx, &wire.TransferLeadershipRequest{Id: text}))
		},
		"Calls.AcknowledgeAlarms": func(text string) error {
			return errorOf(wirecall.Of(c).AcknowledgeAlarms(ctx, &wire.AcknowledgeAlarmsRequest{Reason: text}))
		},
		"Client.VerifyToken": func(text string) error { return errorOf(c.VerifyToken(ctx, text, 1)) },
		"Client.TokenState":  func(text string) error { return errorOf(c.TokenState(ctx, text, 1)) },
		"Calls.ListAudit": func(text string) error {
			return errorOf(wirecall.Of(c).ListAudit(ctx, &wire.ListAuditRequest{PageToken: text}))
		},
		"Calls.ForceRelease": func(text string) error {
			return errorOf(wirecall.Of(c).ForceRelease(ctx, &wire.ForceRelease{Reason: text}))
		},
		"Calls.ForceClose": func(text string) error {
			return errorOf(wirecall.Of(c).ForceClose(ctx, &wire.ForceClose{Reason: text}))
		},
		"Calls.Revoke":    func(text string) error { return errorOf(wirecall.Of(c).Revoke(ctx, &wire.Revoke{Operator: text})) },
		"Calls.SkipDelay": func(text string) error { return errorOf(wirecall.Of(c).SkipDelay(ctx, &wire.SkipDelay{Name: text})) },
		"Calls.Resize":    func(text string) error { return errorOf(wirecall.Of(c).Resize(ctx, &wire.Resize{Name: text})) },
		"Calls.Restore": func(text string) error {
			return errorOf(wirecall.Of(c).Restore(ctx, &wire.RestoreRequest{Audit: []*wire.AuditRecord{{Reason: text}}}))
		},
		"Client.Leader": func(text string) error { return errorOf(c.Leader(ctx, text)) },
		"Client.Watch": func(text string) error {
			w := c.Watch(ctx, WatchOptions{Prefix: text})
			defer w.Close()
			_, err := w.Next(ctx)
			return err
		},
		"Calls.WatchAudit": func(text string) error {
			w := wirecall.Of(c).WatchAudit(ctx, text, 7)
			defer w.Close()
			return errorOf(w.Next(ctx))
		},
		"Client.Observe": func(text string) error {
			for range c.Observe(ctx, text) {
			}
			return invalid("closed")
		},
		"Client.NewSession": func(text string) error {
			return errorOf(c.NewSession(ctx, SessionOptions{Labels: map[string]string{"k": text}}))
		},
		"Client.Supervise": func(text string) error {
			s := c.Supervise(SupervisedOptions{SessionOptions: SessionOptions{Name: text}})
			defer s.Close(ctx)
			return errorOf(s.Lock(ctx, "fine"))
		},
		"Client.AcquireLease": func(text string) error { return errorOf(c.AcquireLease(ctx, specs(text))) },
	}
}

func poisonedOfAccess(ctx context.Context, c *Client) map[string]func(text string) error {
	return map[string]func(text string) error{
		"Calls.SetPolicy": func(text string) error {
			policy := &wire.Policy{Roles: []*wire.Role{{Name: "r", Locks: []*wire.LockRule{{Prefix: text}}}}}
			return errorOf(wirecall.Of(c).SetPolicy(ctx, &wire.SetPolicy{Policy: policy}))
		},
		"Calls.GetQuota": func(text string) error {
			return errorOf(wirecall.Of(c).GetQuota(ctx, &wire.GetQuotaRequest{Identity: text}))
		},
		"Calls.TestPolicy": func(text string) error {
			return errorOf(wirecall.Of(c).TestPolicy(ctx, &wire.TestPolicyRequest{Identity: text}))
		},
		"Calls.CreateToken": func(text string) error {
			return errorOf(wirecall.Of(c).CreateToken(ctx, &wire.CreateTokenRequest{Name: text}))
		},
		"Calls.RevokeToken": func(text string) error {
			return errorOf(wirecall.Of(c).RevokeToken(ctx, &wire.RevokeToken{TokenId: text}))
		},
	}
}

func poisonedOfSession(ctx context.Context, s *Session) map[string]func(text string) error {
	locker := func(text string) (err error) {
		defer func() { err, _ = recover().(error) }()
		s.Locker(ctx, text, nil).Lock()
		return nil
	}
	return map[string]func(text string) error{
		"Session.Lock":      func(text string) error { return errorOf(s.Lock(ctx, text)) },
		"Session.Do":        func(text string) error { return s.Do(ctx, text, func(context.Context, uint64) error { return nil }) },
		"Session.LockAll":   func(text string) error { return errorOf(s.LockAll(ctx, specs(text))) },
		"Session.Locker":    locker,
		"Session.Election":  func(text string) error { return errorOf(s.Election(text).Campaign(ctx)) },
		"Session.Once":      func(text string) error { return errorOf(s.Once(text, time.Minute).Do(ctx, done)) },
		"Session.Semaphore": func(text string) error { return errorOf(s.Semaphore(text, 3).Acquire(ctx, 1)) },
	}
}

func poisonedOfSupervised(ctx context.Context, c *Client) map[string]func(text string) error {
	on := func(call func(s *SupervisedSession, text string) error) func(text string) error {
		return func(text string) (err error) {
			s := c.Supervise(SupervisedOptions{})
			defer s.Close(ctx)
			defer func() {
				if locker, ok := recover().(error); ok {
					err = locker
				}
			}()
			return call(s, text)
		}
	}
	return map[string]func(text string) error{
		"SupervisedSession.Lock":    on(func(s *SupervisedSession, text string) error { return errorOf(s.Lock(ctx, text)) }),
		"SupervisedSession.LockAll": on(func(s *SupervisedSession, text string) error { return errorOf(s.LockAll(ctx, specs(text))) }),
		"SupervisedSession.Do": on(func(s *SupervisedSession, text string) error {
			return s.Do(ctx, text, func(context.Context, uint64) error { return nil })
		}),
		"SupervisedSession.Locker":    on(func(s *SupervisedSession, text string) error { s.Locker(ctx, text, nil).Lock(); return nil }),
		"SupervisedSession.Election":  on(func(s *SupervisedSession, text string) error { return errorOf(s.Election(text).Campaign(ctx)) }),
		"SupervisedSession.Once":      on(func(s *SupervisedSession, text string) error { return errorOf(s.Once(text, time.Minute).Do(ctx, done)) }),
		"SupervisedSession.Semaphore": on(func(s *SupervisedSession, text string) error { return errorOf(s.Semaphore(text, 3).Acquire(ctx, 1)) }),
	}
}

// TestInvalidTextFailsOnlyItsRequest checks that text that cannot be sent is refused by the call that brought it,
// before anything is sent, and that no other call of the client is affected.
func TestInvalidTextFailsOnlyItsRequest(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		f.readable()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		other, s := f.session(c), f.session(c)
		hold := mustLock(t, other, "other")
		calls := poisoned(ctx, c, s)
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			began := time.Now()
			if err := calls[name](poison); !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			} else if name != "Client.Observe" && !strings.Contains(err.Error(), `"a\xffb"`) {
				t.Errorf("%s does not say what is wrong: %v", name, err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("%s took %v", name, took)
			}
		}
		ok(t, mustLock(t, s, "fine").Unlock(ctx))
		ok(t, hold.Unlock(ctx))
		if n := f.node("n1").dials; n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestEveryTextOfTheAPIIsTried checks that every method that takes text is in poisoned.
func TestEveryTextOfTheAPIIsTried(t *testing.T) {
	known := poisoned(context.Background(), nil, nil)
	for typeName, receiver := range map[string]reflect.Type{
		"Client": reflect.TypeFor[*Client](), "Session": reflect.TypeFor[*Session](),
		"SupervisedSession": reflect.TypeFor[*SupervisedSession](), "Calls": reflect.TypeFor[wirecall.Calls](),
	} {
		for i := range receiver.NumMethod() {
			m := receiver.Method(i)
			name := typeName + "." + m.Name
			takes := false
			for in := 1; in < m.Type.NumIn(); in++ {
				takes = takes || carriesText(m.Type.In(in), nil)
			}
			if takes && known[name] == nil {
				t.Errorf("%s takes text, and no test gives it text that cannot be sent", name)
			}
		}
	}
}

// carriesText reports whether a value of the type can contain text.
func carriesText(typ reflect.Type, seen []reflect.Type) bool {
	if slices.Contains(seen, typ) {
		return false
	}
	seen = append(seen, typ)
	switch typ.Kind() {
	case reflect.String:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return carriesText(typ.Elem(), seen)
	case reflect.Struct:
		for i := range typ.NumField() {
			if f := typ.Field(i); f.IsExported() && carriesText(f.Type, seen) {
				return true
			}
		}
	}
	return false
}

// TestEveryTextOfARequestIsChecked checks that every text field of every request in the schema is
// validated, including those of nested messages. Fields that are added later are covered too.
func TestEveryTextOfARequestIsChecked(t *testing.T) {
	bodies := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	tried := 0
	for i := range bodies.Len() {
		for _, path := range textPaths(bodies.Get(i).Message(), nil) {
			for text, why := range map[string]string{poison: "UTF-8", "a\nb": "control character"} {
				request := &wire.Request{}
				m := request.ProtoReflect().Mutable(bodies.Get(i)).Message()
				setText(m, path, text)
				err := checkTexts(request)
				if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), why) {
					t.Errorf("%s %v: %v", bodies.Get(i).Name(), path, err)
				}
				tried++
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d fields were tried", tried)
	}
}

// textPaths returns the paths from a message to its text fields.
func textPaths(m protoreflect.MessageDescriptor, above []protoreflect.FieldDescriptor) (paths [][]protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		path := append(slices.Clone(above), field)
		switch field.Kind() {
		case protoreflect.StringKind:
			paths = append(paths, path)
		case protoreflect.MessageKind:
			paths = append(paths, textPaths(field.Message(), path)...)
		}
	}
	return paths
}

func setText(m protoreflect.Message, path []protoreflect.FieldDescriptor, text string) {
	field := path[0]
	switch {
	case len(path) > 1 && field.IsList():
		setText(m.Mutable(field).List().AppendMutable().Message(), path[1:], text)
	case len(path) > 1:
		setText(m.Mutable(field).Message(), path[1:], text)
	case field.IsList():
		m.Mutable(field).List().Append(protoreflect.ValueOfString(text))
	default:
		m.Set(field, protoreflect.ValueOfString(text))
	}
}

// TestUnencodableRequestFailsAlone checks that a request that passes all checks, but cannot be encoded
// or is larger than the node accepts, fails without affecting others.
func TestUnencodableRequestFailsAlone(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		s := f.session(c)
		hold := mustLock(t, s, "other")
		k := &call{kind: kindRead, done: c.freeLists.done()}
		k.request.Body = &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: poison}}
		c.mu.Lock()
		c.submit(k)
		c.unlock()
		wantErr(t, c.await(ctx, k), ErrInvalidArgument)
		_, err := s.Lock(ctx, "large", WithValue(make([]byte, 2<<20)))
		wantErr(t, err, ErrInvalidArgument)
		ok(t, mustLock(t, s, "x").Unlock(ctx))
		ok(t, hold.Unlock(ctx))
		if n := f.node("n1").dials; n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestConnectionThatSoonEndsCountsAsAFailure checks that a connection that answers and then ends counts as
// a failure: the client itself may have caused its end, and would do so again.
func TestConnectionThatSoonEndsCountsAsAFailure(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		mustLock(t, s, "x")
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetAttach() != nil {
					return false
				}
				_ = cn.nc.Close()
				cn.node.down = cn.node.dials > 300 // otherwise time would never pass
				return true
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := s.Lock(ctx, "y")
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		if n := f.node("n1").dials; n > 300 {
			t.Errorf("%d connections in a minute", n)
		}
	})
}

// TestTextsOfTheMachineAreCleaned checks that texts that the caller did not choose are cleaned, not
// refused.
func TestTextsOfTheMachineAreCleaned(t *testing.T) {
	defer func(old func() processInfo) { process = old }(process)
	process = func() processInfo {
		return processInfo{host: "host\n" + poison + strings.Repeat("x", 1000), boot: "\x00"}
	}
	info := clientInfo(SessionOptions{})
	ok(t, wire.ValidClientInfo(info))
	if size := proto.Size(info); size > 400 {
		t.Errorf("%d bytes", size)
	}
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		cfg := f.config()
		cfg.Agent = "agent\n" + poison
		c, err := New(cfg)
		ok(t, err)
		defer c.Close()
		f.session(c)
	})
}

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// scripted is a watch that returns the given batches and then an error.
type scripted struct {
	t       *testing.T
	batches []wirecall.Batch
	last    error // nil waits for the end
	closed  bool
}

func (s *scripted) Next(ctx context.Context) (wirecall.Batch, error) {
	if len(s.batches) > 0 {
		b := s.batches[0]
		s.batches = s.batches[1:]
		return b, nil
	}
	if s.last == nil {
		raise(s.t, syscall.SIGINT)
		<-ctx.Done()
		return wirecall.Batch{}, ctx.Err()
	}
	return wirecall.Batch{}, s.last
}

func (s *scripted) Close() { s.closed = true }

// events returns one event of every kind.
func events() []*wire.Event {
	return []*wire.Event{
		{Type: wire.Event_SESSION_OPENED, Identity: "billing", Revision: 301, SessionId: 9, TtlMs: 15_000, Generation: 1},
		{Type: wire.Event_QUEUED, Revision: 302, Lock: "orders/42", SessionId: 9, HoldId: 211, WaitForever: true, Mode: wire.Mode_EXCLUSIVE},
		{Type: wire.Event_GRANTED, Revision: 303, Lock: "a\x1b[1m", Locks: []string{"a\x1b[1m", "b"}, SessionId: 9, HoldId: 212, Token: 1 << 62, Mode: wire.Mode_SHARED, MaxHoldMs: 60_000},
		{Type: wire.Event_GRANTED, Revision: 304, Lock: "a", SessionId: 9, HoldId: 212, Token: 1<<62 + 1, Mode: wire.Mode_EXCLUSIVE, Upgrade: true, Waited: true},
		{Type: wire.Event_EXPIRED, Revision: 305, Lock: "pool", SessionId: 9, HoldId: 213, Token: 5, Mode: wire.Mode_PERMITS, Permits: 3, Status: wire.Status_TIMEOUT},
		{Type: wire.Event_DELAYED, Revision: 305, Lock: "pool", SessionId: 9, HoldId: 213, LockDelayMs: 2_500},
		{Type: wire.Event_FORCED, Revision: 306, Lock: "a", HoldId: 212, Token: 1<<62 + 1, Reason: "fire"},
		{Type: wire.Event_GRANTED, Revision: 307, Lock: "cached", SessionId: 9, HoldId: 214, Token: 17, Tokens: 64},
		{Type: wire.Event_WANTED, Revision: 307, Lock: "cached", SessionId: 9, HoldId: 214, Token: 17, MaxHoldMs: 30_000},
		{Type: wire.Event_RESIZED, Revision: 307, Lock: "pool", Limit: 12},
	}
}

// watching is a cluster with those events.
func watching(t *testing.T, s *scripted) *fakeService {
	s.t = t
	return &fakeService{t: t,
		listLocks: func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error) { return &wire.ListLocksResponse{}, nil },
		sessions: func(*wire.ListSessionsRequest) (*wire.ListSessionsResponse, error) {
			return &wire.ListSessionsResponse{Sessions: []*wire.SessionInfo{{SessionId: 9, Client: &wire.ClientInfo{Name: "worker"}}}}, nil
		},
		watch: func(client.WatchOptions) watcher { return s },
	}
}

// arrival is the local time at which a line's event arrived.
var arrival = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  `)

func TestWatchShowsEvents(t *testing.T) {
	for _, format := range formats {
		s := &scripted{batches: []wirecall.Batch{{Lineage: "5e0f", Revision: 300},
			{Events: events(), Lineage: "5e0f", Revision: 307}, {Lineage: "5e0f", Revision: 307}}}
		got := execTest(t, watching(t, s).dialer, "watch", "-o", format)
		if got.code != 128+int(syscall.SIGINT) || got.err != "qlock: watching from 5e0f:300 on\n" || !s.closed {
			t.Errorf("%s: %+v, closed %v", format, got, s.closed)
		}
		if format != "yaml" && strings.Count(got.out, "\n") != len(events()) {
			t.Errorf("%s: not a line per event", format)
		}
		golden.Compare(t, "watch."+format, arrival.ReplaceAllString(got.out, "TIME  "))
	}
}

func TestWatchChooses(t *testing.T) {
	for line, want := range map[string]client.WatchOptions{
		"":                       {},
		"orders/42":              {Name: "orders/42"},
		"--prefix orders/":       {Prefix: "orders/"},
		"--session 7":            {SessionID: 7},
		"a --after 12":           {Name: "a", After: client.Position{Revision: 12}},
		"a --after 5e0f:12":      {Name: "a", After: client.Position{Lineage: "5e0f", Revision: 12}},
		"--prefix a --after :12": {Prefix: "a", After: client.Position{Revision: 12}},
	} {
		f := watching(t, &scripted{})
		var asked client.WatchOptions
		watch := f.watch
		f.watch = func(what client.WatchOptions) watcher { asked = what; return watch(what) }
		if execTest(t, f.dialer, append([]string{"watch"}, strings.Fields(line)...)...); asked != want {
			t.Errorf("%q watches %+v, want %+v", line, asked, want)
		}
	}
}

func TestWatchSendsItsFinalStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		say  string
	}{
		{&client.CompactedError{Oldest: 17}, exitNoSuch, "watch without --after"},
		{client.ErrUnavailable, exitNoLeader, "no serving leader"},
		{&client.StatusError{Status: client.StatusInvalidArgument, Message: "name"}, exitUsage, "name"},
		{errors.New("who knows"), exitInternal, "who knows"},
	} {
		got := execTest(t, watching(t, &scripted{last: c.err}).dialer, "watch", "a", "--after", "12")
		if got.code != c.code || !strings.Contains(got.err, c.say) {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
	f := watching(t, &scripted{})
	f.listLocks = func(*wire.ListLocksRequest) (*wire.ListLocksResponse, error) { return nil, client.ErrUnavailable }
	if got := execTest(t, f.dialer, "watch"); got.code != exitNoLeader || !strings.Contains(got.err, "no serving leader at") {
		t.Errorf("%+v", got)
	}
}

// TestAuditFollows checks that each record is printed once and in order, also those between the list and the watch, and
// across the restore of a backup, which ends the watch.
func TestAuditFollows(t *testing.T) {
	audited := func(ids ...uint64) (b wirecall.Batch) {
		for _, id := range ids {
			r := &wire.AuditRecord{Id: id, Action: wire.AuditRecord_REVOKE, Lock: "a\x1b[1m", Operator: "op", Reason: "because", WallUnixMs: 1_700_000_000_000,
				Caller: &wire.Caller{Identity: "ann", Credential: "token 7", Address: "10.0.0.1:9"}}
			b.Events = append(b.Events, &wire.Event{Type: wire.Event_AUDITED, Audit: r})
		}
		return b
	}
	for _, format := range []string{"", "json"} {
		watches := []*scripted{
			{batches: []wirecall.Batch{{}, audited(5, 6), {}, audited(7, 8)}, last: &client.CompactedError{}},
			{batches: []wirecall.Batch{audited(8, 9)}},
		}
		started := 0
		f := watching(t, watches[0])
		watches[1].t = t
		f.audit = func(req *wire.ListAuditRequest) (*wire.ListAuditResponse, error) {
			if started == 0 {
				t.Error("the list was read before the watch began")
			}
			return auditPage(req), nil
		}
		f.watchAudit = func() watcher {
			started++
			return watches[started-1]
		}
		words := []string{"audit", "--follow"}
		if format != "" {
			words = append(words, "-o", format)
		}
		got := execTest(t, f.dialer, words...)
		if got.code != 128+int(syscall.SIGINT) || got.err != "" || !watches[0].closed || !watches[1].closed {
			t.Errorf("%+v, closed %v, %v", got, watches[0].closed, watches[1].closed)
		}
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if len(lines) != 9 {
			t.Fatalf("%d lines, want 9:\n%s", len(lines), got.out)
		}
		for i, line := range lines {
			if begin := map[string]string{"": fmt.Sprint(i+1, "  "), "json": fmt.Sprintf(`{"id":"%d"`, i+1)}[format]; !strings.HasPrefix(strings.ReplaceAll(line, " ", map[bool]string{true: "", false: " "}[format == "json"]), begin) {
				t.Errorf("line %d is %q", i+1, line)
			}
		}
		if want := `6  2023-11-14T22:13:20Z  ann  revoke  a\x1b[1m  because  verified by token 7  at 10.0.0.1:9  claims to be op`; format == "" && lines[5] != want {
			t.Errorf("%q, want %q", lines[5], want)
		}
	}
}

// TestObserve checks that the leader is printed once, and again only after a change.
func TestObserve(t *testing.T) {
	leaders := []string{"", "", "a", "a", "b", ""}
	f := watching(t, &scripted{batches: []wirecall.Batch{{}, {Events: events()}, {}, {Events: events()}, {Events: events()}, {}, {Events: events()}, {Events: events()}}})
	f.getLock = func(*wire.GetLockRequest) (*wire.GetLockResponse, error) {
		value := leaders[0]
		leaders = slices.Clone(leaders[1:])
		if len(leaders) == 0 {
			leaders = []string{""}
		}
		if value == "" {
			return nil, client.ErrNotFound
		}
		return &wire.GetLockResponse{Holders: []*wire.HolderInfo{{Value: []byte(value), Token: 5, SessionId: 9}}}, nil
	}
	got := execTest(t, f.dialer, "elect", "db", "--observe")
	want := "nobody leads db\na leads db, token 5, session 9\nb leads db, token 5, session 9\nnobody leads db\n"
	if got.code != 130 || got.out != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// TestElectionsAreAskedFor checks that qlock locks asks for what its flag says.
func TestElectionsAreAskedFor(t *testing.T) {
	for line, want := range map[string]*wire.ListLocksRequest{
		"locks a/":             {Prefix: "a/"},
		"locks --elections a/": {Prefix: "a/", Elections: true},
	} {
		f := &fakeService{t: t, listLocks: func(req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
			if !proto.Equal(req, want) {
				t.Errorf("qlock %s: asked %v", line, req)
			}
			return &wire.ListLocksResponse{}, nil
		}}
		if got := execTest(t, f.dialer, strings.Fields(line)...); got.code != 0 {
			t.Errorf("qlock %s: %+v", line, got)
		}
	}
}

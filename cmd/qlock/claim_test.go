//go:build unix

package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestWhatIsAskedFor(t *testing.T) {
	for line, want := range map[string]claim{
		"":                     {locks: []client.LockSpec{{Name: "a", Mode: client.Exclusive}}, wait: forever},
		"b --shared --no-wait": {locks: []client.LockSpec{{Name: "a", Mode: client.Shared}, {Name: "b", Mode: client.Shared}}},
		"--limit 4 --wait 2ms": {locks: []client.LockSpec{{Name: "a", Mode: client.Permits, Limit: 4, Permits: 1}}, wait: 2 * time.Millisecond},
		"--limit 4 --permits 3 --unfair=false": {
			locks: []client.LockSpec{{Name: "a", Mode: client.Permits, Limit: 4, Permits: 3}}, wait: forever},
		"--unfair --max-hold 1m --lock-delay 2s --value here": {
			locks: []client.LockSpec{{Name: "a", Mode: client.Exclusive}}, wait: forever,
			unfair: true, maxHold: time.Minute, lockDelay: 2 * time.Second, value: []byte("here")},
	} {
		s := newScene(t, 15*time.Second)
		words := append(strings.Fields("run a "+line), "--", "true")
		if got := execTest(t, s.service.dialer, words...); got.code != 0 {
			t.Errorf("%q: %+v", line, got)
		}
		got := s.session.asked
		if !slices.Equal(got.locks, want.locks) || string(got.value) != string(want.value) {
			t.Errorf("%q asks for %+v, want %+v", line, got, want)
		}
		got.locks, want.locks, got.value, want.value = nil, nil, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q asks for %+v, want %+v", line, got, want)
		}
	}
}

func TestSeveralNamesInTheEnvironment(t *testing.T) {
	s := newScene(t, 15*time.Second)
	got := execTest(t, s.service.dialer, "run", "b c", "a", "--", "/bin/sh", "-c", `printf %s "$QLOCK_NAME"`)
	if got.code != 0 || got.out != "b c\na" {
		t.Errorf("got %+v", got)
	}
	s.wantEvents("lock b c, a -1ns", "unlock", "close")
}

func TestTheGracePeriodFitsIntoMaxHold(t *testing.T) {
	for _, c := range []struct {
		opts runOptions
		want time.Duration
	}{
		{runOptions{grace: -1}, 5 * time.Second},
		{runOptions{grace: -1, claim: claim{maxHold: time.Second}}, 250 * time.Millisecond},
		{runOptions{grace: -1, claim: claim{maxHold: time.Hour}}, 5 * time.Second},
		{runOptions{grace: 0, claim: claim{maxHold: time.Second}}, 0},
	} {
		if got := c.opts.graceFor(20 * time.Second); got != c.want {
			t.Errorf("%+v: %v, want %v", c.opts, got, c.want)
		}
	}
}

func TestElectionSessionsNameTheLeader(t *testing.T) {
	s := newScene(t, 15*time.Second)
	if got := execTest(t, s.service.dialer, "elect", "db", "--value", "10.0.0.7:5432", "--", "true"); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	if got := string(s.session.asked.value); got != "10.0.0.7:5432" {
		t.Errorf("value %q", got)
	}
	if got := execTest(t, s.service.dialer, "elect", "db", "--", "true"); got.code != 0 || len(s.session.asked.value) == 0 {
		t.Errorf("without --value: %+v, value %q", got, s.session.asked.value)
	}
}

func TestWaitingForSeveral(t *testing.T) {
	s := newScene(t, 15*time.Second)
	s.service.getLock = func(req *wire.GetLockRequest) (*wire.GetLockResponse, error) {
		if req.GetName() == "a" {
			return &wire.GetLockResponse{Name: "a"}, nil
		}
		return &wire.GetLockResponse{Name: req.GetName(), QueueLength: 1, HolderCount: 3, Holders: []*wire.HolderInfo{
			{SessionId: 9, HeldForMs: 65_000}, {SessionId: 10}, {SessionId: 11}}}, nil
	}
	s.wantReport("waiting for a, b: b is held by session 9 and 2 others for 1m5s, 1 waiter in the queue", "run", "a", "b", "--", "true")
}

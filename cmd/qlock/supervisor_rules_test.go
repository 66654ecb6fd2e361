//go:build unix

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// nobody is a process group without processes, and everybody is the group of the tests themselves, which
// must not be signalled.
var (
	nobody    = group(1 << 30)
	everybody = group(syscall.Getpgrp())
)

// watched returns a supervisor whose time the test sets: at is the current time, and left is what the hold has
// left.
func watched(at, left time.Duration) (k *supervisor, said *[]string) {
	said = &[]string{}
	h := newFakeHold(left)
	k = &supervisor{lock: "orders/42", hold: h, session: &fakeSession{left: left}, child: &child{}, group: nobody, guard: &guard{orders: &orders{}}, onLost: terminate,
		grace: 2 * time.Second, margin: 500 * time.Millisecond, revocations: h.revocations, now: func() time.Duration { return at },
		say: func(format string, args ...any) { *said = append(*said, fmt.Sprintf(format, args...)) }}
	return k, said
}

// TestReasonToStop checks why a command must stop, to the nanosecond.
func TestReasonToStop(t *testing.T) {
	const need = 2500 * time.Millisecond // grace and margin
	exited := syscall.WaitStatus(0)
	for name, test := range map[string]struct {
		left    time.Duration
		session time.Duration // 0 means as long as the hold
		change  func(k *supervisor)
		want    error
	}{
		"time enough":              {need + 1, 0, nil, nil},
		"no heartbeat":             {need, 0, nil, errDeadlineNear},
		"max-hold":                 {need, time.Hour, nil, errMaxHoldNear},
		"max-hold, time enough":    {need + 1, time.Hour, nil, nil},
		"asked back, time to end":  {501 * time.Millisecond, time.Hour, func(k *supervisor) { k.revoked = true }, nil},
		"asked back, grace over":   {500 * time.Millisecond, time.Hour, func(k *supervisor) { k.revoked = true }, errGraceNear},
		"asked back, no heartbeat": {need, 0, func(k *supervisor) { k.revoked = true }, errDeadlineNear},
		"it has ended":             {0, 0, func(k *supervisor) { k.status = &exited }, nil},
		"it goes on without":       {0, 0, func(k *supervisor) { k.onLost = ignore }, nil},
		"the wish just came":       {need, time.Hour, func(k *supervisor) { k.hold.(*fakeHold).revocations <- client.Revocation{} }, nil},
		"lost":                     {time.Hour, 0, func(k *supervisor) { k.hold.(*fakeHold).lose(client.ErrForced) }, client.ErrForced},
		"lost, it goes on":         {time.Hour, 0, func(k *supervisor) { k.onLost = ignore; k.hold.(*fakeHold).lose(client.ErrForced) }, client.ErrForced},
		"lost, it has ended":       {time.Hour, 0, func(k *supervisor) { k.status = &exited; k.hold.(*fakeHold).lose(client.ErrForced) }, client.ErrForced},
	} {
		k, _ := watched(time.Hour, test.left)
		if test.session > 0 {
			k.session = &fakeSession{left: test.session}
		}
		if test.change != nil {
			test.change(k)
		}
		if err := k.reason(time.Hour); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if gone := errors.Is(test.want, client.ErrForced); !gone && k.deadline != time.Hour+test.left {
			t.Errorf("%s: the deadline is %v", name, k.deadline)
		}
	}
}

// TestWishesOfOperators checks that an operator's request is passed on once, to a running command, unless
// it is to be ignored.
func TestWishesOfOperators(t *testing.T) {
	for name, test := range map[string]struct {
		asks     client.Revocation
		change   func(k *supervisor)
		asked    bool
		says     string
		no, more bool // it is passed on; more may follow
	}{
		"a wish":          {asks: client.Revocation{Reason: "deploy"}, asked: true, says: "an operator wants orders/42 back: deploy", more: true},
		"with a grace":    {asks: client.Revocation{Grace: time.Minute, Reason: "a\nb"}, asked: true, says: `back within 1m0s: a\nb`, more: true},
		"the last word":   {no: true},
		"it ends already": {change: func(k *supervisor) { k.ended = true }, no: true, more: true},
		"lost already":    {change: func(k *supervisor) { k.lost = client.ErrForced }, no: true, more: true},
		"it is not heeded": {change: func(k *supervisor) { k.onLost = ignore },
			says: "an operator wants", more: true},
		"asked before": {change: func(k *supervisor) { k.asked = true }, asked: true, says: "wants", more: true},
	} {
		k, said := watched(time.Hour, time.Hour)
		if test.change != nil {
			test.change(k)
		}
		k.onRevocation(test.asks, test.more)
		if k.revoked == test.no || k.asked != test.asked || (k.revocations != nil) != test.more {
			t.Errorf("%s: passed on %v, asked %v", name, k.revoked, k.asked)
		}
		if text := strings.Join(*said, "\n"); (text == "") != (test.says == "") || !strings.Contains(text, test.says) {
			t.Errorf("%s: says %q, want %q", name, text, test.says)
		}
	}
}

// TestLastMoment checks when processes that still run are killed.
func TestLastMoment(t *testing.T) {
	for name, test := range map[string]struct {
		killAt, deadline time.Duration
		onLost           onLost
		lost             error
		want             time.Duration
	}{
		"the grace is over":    {10 * time.Second, 20 * time.Second, terminate, nil, 10 * time.Second},
		"the deadline is near": {10 * time.Second, 5 * time.Second, terminate, client.ErrExpired, 4500 * time.Millisecond},
		"without the lock":     {10 * time.Second, 5 * time.Second, ignore, client.ErrExpired, 10 * time.Second},
		"it is held still":     {10 * time.Second, 5 * time.Second, ignore, nil, 4500 * time.Millisecond},
	} {
		k, _ := watched(0, time.Hour)
		k.killAt, k.deadline, k.onLost, k.lost = test.killAt, test.deadline, test.onLost, test.lost
		if got := k.lastMoment(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestCheckEndsTheCommand checks that a loss ends the command, unless it should continue without the lock,
// and that the loss is reported once.
func TestCheckEndsTheCommand(t *testing.T) {
	const now = time.Hour
	exited := syscall.WaitStatus(0)
	for name, test := range map[string]struct {
		left         time.Duration
		change       func(k *supervisor)
		ended, asked bool
		killed       bool
		says         string
		killAt       time.Duration
	}{
		"all is well":      {time.Hour, nil, false, false, false, "", 0},
		"near the end":     {2 * time.Second, nil, true, true, false, "losing orders/42: no heartbeat was answered for too long; stopping the command", now + 2*time.Second},
		"too near":         {500 * time.Millisecond, nil, true, false, true, "stopping the command", now + 2*time.Second},
		"goes on without":  {time.Hour, func(k *supervisor) { k.onLost = ignore; k.hold.(*fakeHold).lose(client.ErrForced) }, false, false, false, "the command goes on without the lock", 0},
		"known already":    {2 * time.Second, func(k *supervisor) { k.lost = client.ErrForced }, false, false, false, "", 0},
		"it has ended":     {2 * time.Second, func(k *supervisor) { k.status = &exited }, false, false, false, "", 0},
		"the grace passed": {time.Hour, func(k *supervisor) { k.ended, k.killAt = true, now }, true, false, true, "", now},
		"the grace lasts":  {time.Hour, func(k *supervisor) { k.ended, k.killAt = true, now+1 }, true, false, false, "", now + 1},
	} {
		k, said := watched(now, test.left)
		if test.change != nil {
			test.change(k)
		}
		k.check()
		if k.ended != test.ended || k.asked != test.asked || (k.killed == now) != test.killed || k.killAt != test.killAt {
			t.Errorf("%s: ended %v, asked %v, killed at %v, to be at %v", name, k.ended, k.asked, k.killed, k.killAt)
		}
		if text := strings.Join(*said, "\n"); (text == "") != (test.says == "") || !strings.Contains(text, test.says) {
			t.Errorf("%s: says %q, want %q", name, text, test.says)
		}
		before := len(*said)
		if k.check(); len(*said) != before {
			t.Errorf("%s: said twice: %q", name, *said)
		}
	}
}

// TestOver checks when there is nothing left to supervise.
func TestOver(t *testing.T) {
	const now = time.Hour
	exited := syscall.WaitStatus(0)
	for name, test := range map[string]struct {
		exited           bool
		group            group
		lost             error
		deadline, killed time.Duration
		want, abandoned  bool
	}{
		"it runs":                  {false, everybody, nil, now, 0, false, false},
		"it has ended":             {true, nobody, nil, now, 0, true, false},
		"it left something":        {true, everybody, nil, now, 0, false, false},
		"it resists":               {false, everybody, client.ErrExpired, now - maxMargin, now - maxMargin, true, true},
		"it resists, not yet":      {false, everybody, client.ErrExpired, now - maxMargin + 1, now - maxMargin, false, false},
		"it was killed just now":   {false, everybody, client.ErrExpired, now - time.Minute, now - maxMargin + 1, false, false},
		"it was not killed":        {false, everybody, client.ErrExpired, now - time.Minute, 0, false, false},
		"the lock is held":         {false, everybody, nil, now - time.Minute, now - time.Minute, false, false},
		"it resists, after an end": {true, everybody, client.ErrExpired, now - maxMargin, now - maxMargin, true, true},
	} {
		k, _ := watched(now, time.Hour)
		if test.exited {
			k.status = &exited
		}
		k.group, k.lost, k.deadline, k.killed = test.group, test.lost, test.deadline, test.killed
		if got := k.over(); got != test.want || k.abandoned != test.abandoned {
			t.Errorf("%s: over %v, abandoned %v", name, got, k.abandoned)
		}
	}
}

// TestPause checks how long nothing needs to be checked.
func TestPause(t *testing.T) {
	exited := syscall.WaitStatus(0)
	for name, test := range map[string]struct {
		change func(k *supervisor)
		want   time.Duration
	}{
		"all is well":       {func(*supervisor) {}, watchSlice},
		"the end comes":     {func(k *supervisor) { k.deadline = time.Hour + 2600*time.Millisecond }, 100 * time.Millisecond},
		"it is over":        {func(k *supervisor) { k.deadline = time.Hour }, time.Millisecond},
		"the command ends":  {func(k *supervisor) { k.ended = true }, endSlice},
		"it has ended":      {func(k *supervisor) { k.status = &exited }, endSlice},
		"lost, and goes on": {func(k *supervisor) { k.lost, k.deadline = client.ErrForced, time.Hour }, watchSlice},
	} {
		k, _ := watched(time.Hour, time.Hour)
		k.deadline = 2 * time.Hour
		if test.change(k); k.pause() != test.want {
			t.Errorf("%s: %v, want %v", name, k.pause(), test.want)
		}
	}
}

// TestLeftoverProcessesAreEnded checks that processes left behind by the command are asked to end and then
// killed, even with --on-lost ignore.
func TestLeftoverProcessesAreEnded(t *testing.T) {
	k, _ := watched(time.Hour, time.Hour)
	k.deadline = 2 * time.Hour
	k.end(time.Hour)
	if !k.ended || !k.asked || k.killAt != time.Hour+k.grace {
		t.Errorf("%+v", k)
	}
	if k.end(2 * time.Hour); k.killAt != time.Hour+k.grace {
		t.Errorf("it is ended twice, and killed at %v", k.killAt)
	}
	k, _ = watched(time.Hour, time.Hour)
	k.onLost = ignore
	k.deadline = 2 * time.Hour
	if k.end(time.Hour); !k.ended || k.asked {
		t.Errorf("%+v", k)
	}
}

// TestGroups checks that a group is alive as long as it has a process that is not dead, and that stat is
// parsed whatever the name of the program.
func TestGroups(t *testing.T) {
	if nobody.alive() || !everybody.alive() {
		t.Error("nobody lives, or everybody is dead")
	}
	if err := nobody.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]struct {
		stat stat
		ok   bool
	}{
		"7 (a) b) S 3 4 5": {stat{parent: 3, group: 4}, true},
		"7 (a) Z 3 4":      {stat{dead: true, parent: 3, group: 4}, true},
		"7 (a) X 3 4 9":    {stat{dead: true, parent: 3, group: 4}, true},
		"7 (a) T 3 4 9":    {stat{halted: true, parent: 3, group: 4}, true},
		"7 (a) t 3 4 9":    {stat{halted: true, parent: 3, group: 4}, true},
		"7 (a) S 3":        {stat{}, false},
		"7 (a) S x 4":      {stat{group: 4}, false},
		"7 (a) S 3 x":      {stat{parent: 3}, false},
		"":                 {stat{}, false},
	} {
		if got, ok := parseStat([]byte(text)); got != want.stat || ok != want.ok {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	if stopped(syscall.Getpid()) || !stopped(1<<30) {
		t.Error("this process is stopped, or one that nobody knows is not")
	}
	if parent(syscall.Getpid()) != syscall.Getppid() || parent(1<<30) != 0 {
		t.Errorf("parent %d", parent(syscall.Getpid()))
	}
}

// TestGuardIsTold checks what the guard knows after a check: when to ask and when to kill, half the margin later than this
// program; the times of a renewal; and nothing if the command may go on without the lock.
func TestGuardIsTold(t *testing.T) {
	const now, late = time.Hour, 250 * time.Millisecond
	for name, test := range map[string]struct {
		left      time.Duration
		change    func(k *supervisor)
		ask, kill time.Duration
	}{
		"held":              {10 * time.Second, nil, now + 7500*time.Millisecond + late, now + 9500*time.Millisecond + late},
		"renewed":           {15 * time.Second, nil, now + 12500*time.Millisecond + late, now + 14500*time.Millisecond + late},
		"ends":              {time.Hour, func(k *supervisor) { k.end(now) }, never, now + 2*time.Second + late},
		"the end is near":   {2 * time.Second, nil, never, now + 1500*time.Millisecond + late},
		"goes on without":   {0, func(k *supervisor) { k.onLost = ignore }, never, never},
		"went on, and left": {time.Hour, func(k *supervisor) { k.onLost = ignore; k.end(now) }, never, now + 2*time.Second + late},
	} {
		k, _ := watched(now, test.left)
		k.deadline = now + test.left
		k.guard.set(now, now)
		if test.change != nil {
			test.change(k)
		}
		k.check()
		if ask, kill := k.guard.askAt.Load(), k.guard.killAt.Load(); ask != int64(test.ask) || kill != int64(test.kill) {
			t.Errorf("%s: the guard asks at %v and kills at %v, want %v and %v", name, time.Duration(ask), time.Duration(kill), test.ask, test.kill)
		}
	}
}

// TestGuardActed checks that a run that wakes up after its guard has ended the command reports a loss, whether the command
// has exited by then or not, and that it asks no second time.
func TestGuardActed(t *testing.T) {
	for name, change := range map[string]func(k *supervisor){
		"it runs":   func(*supervisor) {},
		"it exited": func(k *supervisor) { k.status = new(syscall.WaitStatus) },
	} {
		k, said := watched(time.Hour, time.Minute)
		k.guard.acted.Store(true)
		k.guard.asked.Store(true)
		change(k)
		if k.check(); !errors.Is(k.lost, errGuarded) || !k.ended || len(*said) != 1 || !strings.Contains((*said)[0], "the guard process ended the command") {
			t.Errorf("%s: lost %v, ended %v, said %q", name, k.lost, k.ended, *said)
		}
	}
	k, _ := watched(time.Hour, time.Hour) // the guard killed what the command has left behind
	k.end(time.Hour)
	k.guard.acted.Store(true)
	if k.check(); k.lost != nil {
		t.Errorf("lost %v", k.lost)
	}
}

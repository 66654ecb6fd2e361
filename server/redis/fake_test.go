package redis

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// fake is the service and the state of a node. It has keys without a clock: a TTL is what it was set to.
type fake struct {
	mu      sync.Mutex // guards the fields below
	machine *fsm.Machine
	keys    map[string]*wire.KeyState
	next    uint64
	// errs are returned by the next requests instead of results.
	errs []error
	// freed is closed and replaced whenever a key is released.
	freed chan struct{}
	waits int
	// frees is how many reads find that their keys have just been freed.
	frees  int
	voters int
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{machine: fsm.New(fsm.Level), keys: map[string]*wire.KeyState{}, freed: make(chan struct{}), voters: 2}
	f.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	f.apply(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}})
	return f
}

func (f *fake) apply(cmd *wire.Command) *wire.Result {
	entry, err := proto.Marshal(&wire.Entry{Level: fsm.Level, WallUnixMs: time.Now().UnixMilli(), Commands: []*wire.Command{cmd}})
	if err != nil {
		panic(err)
	}
	applied, err := f.machine.Apply(entry)
	if err != nil {
		panic(err)
	}
	return applied.Results[0]
}

// Access, View and CatchUp implement access.Source.
func (f *fake) Access() *fsm.Access {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.Access()
}

func (f *fake) View(view func(*fsm.Machine)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	view(f.machine)
}

func (*fake) CatchUp() bool { return false }

// Leader implements Service.
func (*fake) Leader() (string, bool) { return "n1", true }

// Voters implements Service.
func (f *fake) Voters(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.voters, f.fail()
}

// fail returns the next error. Called with mu held.
func (f *fake) fail() error {
	if len(f.errs) == 0 {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

// Change implements Service.
func (f *fake) Change(ctx context.Context, _ identity.Sender, op *wire.ChangeKeys) (*wire.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail(); err != nil {
		return nil, err
	}
	return f.change(identity.FromContext(ctx).GetIdentity(), op), nil
}

// AddTTL implements Service.
func (f *fake) AddTTL(ctx context.Context, from identity.Sender, op *wire.ChangeKeys) (*wire.Result, error) {
	f.mu.Lock()
	if key := f.keys[op.GetNames()[0]]; key != nil {
		op.TtlMs += key.RemainingMs
	}
	f.mu.Unlock()
	return f.Change(ctx, from, op)
}

func result(status wire.Status_Code, count int) *wire.Result {
	return &wire.Result{Status: status, Count: uint32(count)}
}

func (f *fake) change(who string, op *wire.ChangeKeys) *wire.Result {
	if op.GetTtlMs() != 0 && (op.GetTtlMs() < 10 || op.GetTtlMs() > 86_400_000) {
		return &wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: "ttl_ms: 10 to 86400000"}
	}
	own := func(key *wire.KeyState) bool {
		switch n := int(op.GetCompareBytes()); {
		case key == nil || !key.Key || key.Identity != who:
			return false
		case op.Version != nil && (op.Version.HoldId != key.HoldId || op.Version.Generation != key.Generation):
			return false
		case n > 0:
			return bytes.HasPrefix(key.Value, op.GetValue()[:n])
		}
		return len(op.GetValue()) == 0 || bytes.Equal(key.Value, op.GetValue())
	}
	var mine, taken []string
	missing := wire.Status_OK
	for _, name := range op.GetNames() {
		key := f.keys[name]
		switch {
		case own(key):
			mine = append(mine, name)
		case missing == wire.Status_OK && key == nil:
			missing = wire.Status_NOT_FOUND
		case missing == wire.Status_OK:
			missing = wire.Status_NOT_HELD
		}
		if key != nil {
			taken = append(taken, name)
		}
	}
	return f.act(who, op, mine, taken, missing)
}

func (f *fake) act(who string, op *wire.ChangeKeys, mine, taken []string, missing wire.Status_Code) *wire.Result {
	switch op.GetAction() {
	case wire.ChangeKeys_ACQUIRE:
		if len(taken) > 0 {
			return result(wire.Status_NOT_ACQUIRED, 0)
		}
		return f.acquire(who, op)
	case wire.ChangeKeys_ACQUIRE_OR_EXTEND:
		switch {
		case len(taken) == 0:
			return f.acquire(who, op)
		case len(mine) == 0:
			return result(wire.Status_NOT_HELD, 0)
		}
		return f.extend(op)
	case wire.ChangeKeys_EXTEND:
		if missing != wire.Status_OK {
			return result(missing, 0)
		}
		return f.extend(op)
	case wire.ChangeKeys_DELETE:
		if op.Version != nil && missing == wire.Status_NOT_HELD {
			return result(missing, 0)
		}
		for _, name := range taken {
			if f.keys[name].Identity != who && !op.Force {
				return &wire.Result{Status: wire.Status_PERMISSION_DENIED, Message: "operate is needed"}
			}
		}
		mine = taken
	case wire.ChangeKeys_RELEASE_ALL:
		if missing != wire.Status_OK {
			return result(missing, 0)
		}
	default: // RELEASE
		if len(mine) == 0 {
			return result(missing, 0)
		}
	}
	for _, name := range mine {
		delete(f.keys, name)
	}
	close(f.freed)
	f.freed = make(chan struct{})
	return result(wire.Status_OK, len(mine))
}

func (f *fake) acquire(who string, op *wire.ChangeKeys) *wire.Result {
	f.next++
	for i, name := range op.GetNames() {
		f.keys[name] = &wire.KeyState{
			Exists: true, Key: true, Value: slices.Clone(op.GetValue()), HoldId: f.next + uint64(i), Generation: 1, Token: 100 + f.next,
			RemainingMs: op.GetTtlMs(), Identity: who, Client: op.GetClient(),
		}
	}
	res := result(wire.Status_GRANTED, len(op.GetNames()))
	res.Token = 100 + f.next
	return res
}

func (f *fake) extend(op *wire.ChangeKeys) *wire.Result {
	for _, name := range op.GetNames() {
		key := proto.CloneOf(f.keys[name])
		key.RemainingMs = op.GetTtlMs()
		key.Generation++
		if op.GetCompareBytes() > 0 {
			key.Value = slices.Clone(op.GetValue())
		}
		f.keys[name] = key
	}
	return result(wire.Status_OK, len(op.GetNames()))
}

// Read implements Service.
func (f *fake) Read(ctx context.Context, names ...string) ([]*wire.KeyState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail(); err != nil {
		return nil, err
	}
	var all []*wire.KeyState
	for _, name := range names {
		if f.frees > 0 {
			f.frees--
			delete(f.keys, name)
		}
		state := &wire.KeyState{}
		if key := f.keys[name]; key != nil {
			state = proto.CloneOf(key)
			state.Own = key.Key && key.Identity == identity.FromContext(ctx).GetIdentity()
		}
		all = append(all, state)
	}
	return all, nil
}

// Lock implements Service.
func (f *fake) Lock(ctx context.Context, from identity.Sender, open *wire.OpenLease) (*wire.Result, error) {
	op := &wire.ChangeKeys{Action: wire.ChangeKeys_ACQUIRE, Names: []string{open.GetAcquire().GetLocks()[0].GetName()}, Value: open.GetOwnerValue(), TtlMs: open.GetTtlMs(), Client: open.GetClient()}
	end := time.NewTimer(time.Duration(open.GetAcquire().GetWaitMs()) * time.Millisecond)
	defer end.Stop()
	for {
		f.mu.Lock()
		freed := f.freed
		f.mu.Unlock()
		res, err := f.Change(ctx, from, op)
		if err != nil || res.GetStatus() != wire.Status_NOT_ACQUIRED {
			return res, err
		}
		f.wait(1)
		select {
		case <-freed:
		case <-end.C:
			f.wait(-1)
			return result(wire.Status_TIMEOUT, 0), nil
		case <-ctx.Done():
			f.wait(-1)
			return nil, ctx.Err()
		}
		f.wait(-1)
	}
}

func (f *fake) wait(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits += n
}

func (f *fake) waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waits
}

// hold makes somebody hold a key.
func (f *fake) hold(name string, key *wire.KeyState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	key.Exists, key.HoldId = true, f.next
	f.keys[name] = key
}

// freeBeforeRead makes the next reads find their keys free.
func (f *fake) freeBeforeRead(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frees = n
}

// failNext makes the next requests fail.
func (f *fake) failNext(errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = errs
}

package keys

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// executor executes requests on this node, which should lead. In its answers, NOT_LEADER means that a request was not
// executed, and UNCERTAIN that this is unknown.
type executor struct {
	replica  Replica
	warnings *ratelog.Logger
	suspects chan suspect
	acquires *acquires
	leases   *lease.Service

	mu        sync.Mutex // guards the fields below
	voters    int        // other voters in contact
	countedAt time.Time
}

func newExecutor(cfg Config) *executor {
	e := &executor{replica: cfg.Replica, warnings: ratelog.New(cfg.Logger), suspects: make(chan suspect, 16), acquires: newAcquires()}
	if e.leases = cfg.Leases; e.leases == nil {
		e.leases = lease.NewService(cfg.Replica, lease.Grace, cfg.Logger)
	}
	return e
}

// change executes a change of keys and calls done once. done must not block. op must not be changed afterwards.
func (e *executor) change(from identity.Sender, caller *wire.Caller, op *wire.ChangeKeys, done func(*wire.KeyResponse)) {
	if one, ok := e.proposal(from, caller, op, done); ok {
		e.replica.ProposeAll([]groupcommit.Proposal{one})
	}
}

// proposal returns the proposal that change makes. If there is none, it has called done.
func (e *executor) proposal(from identity.Sender, caller *wire.Caller, op *wire.ChangeKeys, done func(*wire.KeyResponse)) (one groupcommit.Proposal, ok bool) {
	cmd := &wire.Command{Caller: caller, Op: &wire.Command_ChangeKeys{ChangeKeys: op}}
	if refused := e.refuses(cmd); refused != nil {
		done(&wire.KeyResponse{Result: refused})
		return one, false
	}
	return groupcommit.Proposal{Command: cmd, Size: sizeOf(caller, op), Identity: from.Identity, Connection: from.Connection, Done: func(res *wire.Result) {
		e.suspect(caller, op, res)
		done(&wire.KeyResponse{Result: e.settled(res)})
	}}, true
}

// Upper bounds of encoded sizes, in bytes.
const (
	changeBytes = 256 // a change of keys without its texts
	textBytes   = 16  // what a text in a list takes besides its bytes
)

// sizeOf returns an upper bound of the size of the command that changes keys, in bytes. The library would take longer to
// compute the size than the command takes to encode.
func sizeOf(caller *wire.Caller, op *wire.ChangeKeys) int {
	client := op.GetClient()
	n := changeBytes + len(caller.GetIdentity()) + len(caller.GetCredential()) + len(caller.GetAddress()) +
		len(op.GetValue()) + len(op.GetNodeId()) +
		len(client.GetName()) + len(client.GetHostName()) + len(client.GetBootId()) + len(client.GetAddress())
	for _, name := range op.GetNames() {
		n += textBytes + len(name)
	}
	for _, l := range client.GetLabels() {
		n += 2*textBytes + len(l.GetKey()) + len(l.GetValue())
	}
	return n
}

// refuses returns why this node does not propose a command of a caller; nil if it does.
func (e *executor) refuses(cmd *wire.Command) *wire.Result {
	switch {
	case cmd.GetCaller() == nil:
		return refusal(wire.Status_INVALID_ARGUMENT, "the request has no caller")
	case !e.replica.Serving():
		return refusal(wire.Status_NOT_LEADER, "")
	}
	return nil
}

// settled distinguishes a leader that refuses a command, for example because it is overloaded, from a node that does
// not lead.
func (e *executor) settled(res *wire.Result) *wire.Result {
	if res.GetStatus() == wire.Status_UNAVAILABLE && !e.replica.Serving() {
		return refusal(wire.Status_NOT_LEADER, res.GetMessage())
	}
	return res
}

// begin returns a function that executes a request other than a change, and must be called. If ctx ends first, the answer
// is UNCERTAIN. Requests with the same secret are executed in the order of begin.
func (e *executor) begin(ctx context.Context, from identity.Sender, req *wire.KeyRequest) (execute func() *wire.KeyResponse) {
	var secret string
	switch body := req.GetBody().(type) {
	case *wire.KeyRequest_Lock:
		secret = string(body.Lock.GetSecretHash())
	case *wire.KeyRequest_Release:
		secret = string(body.Release.GetSecretHash())
	default:
		return func() *wire.KeyResponse { return e.do(ctx, from, req) }
	}
	one := e.acquires.begin(ctx, secret)
	return func() *wire.KeyResponse {
		defer e.acquires.end(secret, one)
		<-one.turn
		resp := e.do(one.ctx, from, req)
		if one.ctx.Err() != nil && ctx.Err() == nil {
			return uncertain("another request with the same secret has taken its place")
		}
		return resp
	}
}

func (e *executor) do(ctx context.Context, from identity.Sender, req *wire.KeyRequest) *wire.KeyResponse {
	if !e.replica.Serving() {
		return &wire.KeyResponse{Result: refusal(wire.Status_NOT_LEADER, "")}
	}
	switch body := req.GetBody().(type) {
	case *wire.KeyRequest_Read:
		return e.read(ctx, req.GetCaller(), body.Read.GetNames())
	case *wire.KeyRequest_Lock:
		return e.lock(ctx, from, req.GetCaller(), body.Lock)
	case *wire.KeyRequest_Release:
		return e.release(ctx, from, &wire.Command{Caller: req.GetCaller(), Op: &wire.Command_ReleaseLease{ReleaseLease: body.Release}})
	case *wire.KeyRequest_Voters:
		return &wire.KeyResponse{Voters: uint32(e.votersInContact(ctx))}
	}
	return &wire.KeyResponse{Result: refusal(wire.Status_UNSUPPORTED, "the leader does not know this request")}
}

// lock acquires a lease and waits for the outcome.
func (e *executor) lock(ctx context.Context, from identity.Sender, caller *wire.Caller, open *wire.OpenLease) *wire.KeyResponse {
	if caller == nil {
		return &wire.KeyResponse{Result: refusal(wire.Status_INVALID_ARGUMENT, "the request has no caller")}
	}
	res, err := e.leases.Acquire(identity.NewContext(ctx, caller), from, open)
	if err != nil {
		return uncertain(err.Error())
	}
	return &wire.KeyResponse{Result: e.settled(res)}
}

func (e *executor) release(ctx context.Context, from identity.Sender, cmd *wire.Command) *wire.KeyResponse {
	if refused := e.refuses(cmd); refused != nil {
		return &wire.KeyResponse{Result: refused}
	}
	answered := make(chan *wire.Result, 1)
	e.replica.ProposeFrom(from, cmd, func(res *wire.Result) { answered <- res })
	select {
	case res := <-answered:
		return &wire.KeyResponse{Result: e.settled(res)}
	case <-ctx.Done():
		return uncertain(ctx.Err().Error())
	}
}

// maxRead bounds the keys in one read.
const maxRead = 1_024

// read returns the states of keys once this node has proved that it led after the call. The proofs of many reads are
// one entry of the log.
func (e *executor) read(ctx context.Context, caller *wire.Caller, names []string) *wire.KeyResponse {
	proved := make(chan *wire.Result, 1)
	e.replica.Prove(func(res *wire.Result) { proved <- res })
	select {
	case res := <-proved:
		if res.GetStatus() != wire.Status_OK {
			return &wire.KeyResponse{Result: e.settled(res)}
		}
	case <-ctx.Done():
		return uncertain(ctx.Err().Error())
	}
	if len(names) > maxRead {
		return &wire.KeyResponse{Result: refusal(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("%d keys in one read, at most %d are allowed", len(names), maxRead))}
	}
	states, sessions := make([]*wire.KeyState, len(names)), make([]uint64, len(names))
	e.replica.View(func(m *fsm.Machine) {
		for i, name := range names {
			k, exists := m.Key(name)
			states[i], sessions[i] = stateOf(k, exists, caller), k.Session
		}
	})
	for i, state := range states {
		if state.GetKey() {
			left, _ := e.replica.Remaining(sessions[i]) // none if its end is decided
			state.RemainingMs = uint32(left.Milliseconds())
		}
	}
	return &wire.KeyResponse{Keys: states}
}

func stateOf(k fsm.Key, exists bool, caller *wire.Caller) *wire.KeyState {
	state := &wire.KeyState{Exists: exists, Key: k.Held, HoldId: k.HoldID, Token: k.Token, Identity: k.Identity, Client: k.Client}
	if k.Held {
		state.Own, state.Value, state.Generation = k.Identity == caller.GetIdentity(), []byte(k.Value), k.Generation
	}
	return state
}

// countInterval is how long a number of voters is used.
const countInterval = 200 * time.Millisecond

// votersInContact returns how many other voters are in contact with this node. Callers share an answer.
func (e *executor) votersInContact(ctx context.Context) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.countedAt.IsZero() || time.Since(e.countedAt) > countInterval {
		e.voters = e.replica.VotersInContact(context.WithoutCancel(ctx)) // others share it
		e.countedAt = time.Now()
	}
	return e.voters
}

package access

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// RightOf returns what a request requires, RIGHT_UNSPECIFIED for a message that is no request.
func RightOf(request proto.Message) wire.Right {
	right, _ := proto.GetExtension(request.ProtoReflect().Descriptor().Options(), wire.E_Right).(wire.Right)
	return right
}

// Check refuses a request that is malformed, or that the caller may not send, with PERMISSION_DENIED. request is the
// message of the schema: the body of a framed request, or the input of a procedure. Its number and its secret play no
// part, except that the retry of a request that this identity has sent is not refused: it gets the outcome.
func (c *Caller) Check(request proto.Message) *wire.Result {
	if refused := CheckForm(request); refused != nil {
		return refused
	}
	refused := c.authorize(request)
	if refused != nil && c.isRetry(request) {
		return nil
	}
	return refused
}

// authorize refuses a request that the caller may not send. A follower catches up before it refuses.
func (c *Caller) authorize(request proto.Message) *wire.Result {
	if c.node {
		return c.checkNode(request)
	}
	refused := c.authorizeNow(request)
	if refused != nil && c.source.CatchUp() {
		return c.authorizeNow(request)
	}
	return refused
}

// authorizeNow is authorize for the state that this node has applied.
func (c *Caller) authorizeNow(request proto.Message) *wire.Result {
	if g := c.Grants(); g != nil {
		return c.check(g, request)
	}
	return nil
}

func (c *Caller) check(g *rights.Grants, request proto.Message) *wire.Result {
	switch op := request.(type) { // the frequent ones first, without reflection
	case *wire.Acquire:
		return c.mayLock(g, op.GetLocks())
	case *wire.Release, *wire.Heartbeat:
		return nil
	}
	switch right := RightOf(request); right {
	case wire.Right_IDENTITY:
		return c.mayAsk(g, request)
	case wire.Right_OWN:
		return nil
	case wire.Right_ANY_ROLE:
		return c.require(g.Any(), "a role")
	case wire.Right_READ_LOCKS:
		return c.mayRead(g, request)
	case wire.Right_VERIFY_LOCKS:
		return c.mayVerify(g, request)
	case wire.Right_LOCK_SOME:
		return c.require(g.OnSomeLock(wire.Verb_LOCK), "a role with lock on some lock")
	case wire.Right_LOCK_LOCKS:
		return c.mayLockAll(g, request)
	case wire.Right_OPERATE_LOCKS:
		return c.mayOperate(g, request)
	default:
		return c.onCluster(g, right)
	}
}

// mayAsk refuses questions about other identities.
func (c *Caller) mayAsk(g *rights.Grants, request proto.Message) *wire.Result {
	ask, ok := request.(*wire.GetQuotaRequest)
	if !ok || !ask.GetAll() && (ask.GetIdentity() == "" || ask.GetIdentity() == c.Identity()) {
		return nil
	}
	return c.require(g.OnCluster(wire.Verb_AUDIT) || g.OnCluster(wire.Verb_POLICY), "a role with AUDIT or POLICY, which the quotas of other identities require")
}

// clusterVerbs are the verbs on the cluster that requests require.
var clusterVerbs = map[wire.Right]wire.Verb{
	wire.Right_READ_AUDIT:     wire.Verb_AUDIT,
	wire.Right_SAVE_BACKUP:    wire.Verb_BACKUP,
	wire.Right_CHANGE_MEMBERS: wire.Verb_MEMBERS,
	wire.Right_RESTORE_BACKUP: wire.Verb_RESTORE,
	wire.Right_CHANGE_POLICY:  wire.Verb_POLICY,
}

// onCluster also refuses a request whose right is not known.
func (c *Caller) onCluster(g *rights.Grants, right wire.Right) *wire.Result {
	verb, known := clusterVerbs[right]
	if !known {
		return denied("the schema does not say what this request requires")
	}
	if !g.OnCluster(verb) {
		return fsm.Denied(c.Identity(), verb, "")
	}
	return nil
}

func denied(message string) *wire.Result {
	return &wire.Result{Status: wire.Status_PERMISSION_DENIED, Message: message}
}

func (c *Caller) require(has bool, what string) *wire.Result {
	if has {
		return nil
	}
	return denied(fmt.Sprintf("the policy does not give %q %s", c.Identity(), what))
}

func (c *Caller) mayLock(g *rights.Grants, locks []*wire.LockRequest) *wire.Result {
	for _, l := range locks {
		if !g.OnLock(l.GetName(), wire.Verb_LOCK) {
			return fsm.Denied(c.Identity(), wire.Verb_LOCK, l.GetName())
		}
	}
	return nil
}

// mayRead allows lists and watches to whoever may read some lock: the answers contain only what the caller may read.
func (c *Caller) mayRead(g *rights.Grants, request proto.Message) *wire.Result {
	name := ""
	switch op := request.(type) {
	case *wire.GetLockRequest:
		name = op.GetName()
	case *wire.WatchRequest:
		if op.GetAudit() {
			return c.onCluster(g, wire.Right_READ_AUDIT)
		}
		name = op.GetName()
	}
	switch {
	case name == "":
		return c.require(g.OnSomeLock(wire.Verb_READ), "a role with read on some lock")
	case !g.OnLock(name, wire.Verb_READ):
		return fsm.Denied(c.Identity(), wire.Verb_READ, name)
	}
	return nil
}

func (c *Caller) mayVerify(g *rights.Grants, request proto.Message) *wire.Result {
	name := request.(interface{ GetName() string }).GetName()
	if g.OnLock(name, wire.Verb_READ) || g.OnLock(name, wire.Verb_LOCK) {
		return nil
	}
	return fsm.Denied(c.Identity(), wire.Verb_LOCK, name)
}

// mayLockAll checks the locks that a request names, or those of the hold that it names.
func (c *Caller) mayLockAll(g *rights.Grants, request proto.Message) *wire.Result {
	switch op := request.(type) {
	case *wire.AcquireRequest:
		if len(op.GetLocks()) == 0 {
			return c.mayLock(g, []*wire.LockRequest{{Name: op.GetName()}})
		}
		return c.mayLock(g, op.GetLocks())
	case interface{ GetAcquire() *wire.Acquire }:
		return c.mayLock(g, op.GetAcquire().GetLocks())
	}
	return c.onHold(g, wire.Verb_LOCK, request, func(m *fsm.Machine, hold uint64) []string {
		if !m.OwnsClaim(c.Identity(), hold) {
			return nil // the state machine compares its session and secret
		}
		return m.LocksOfClaim(hold)
	})
}

// onHold checks the locks of the hold that a request names. A hold that does not exist is not refused here: its
// request is answered NOT_HELD. locks are those of the hold if the caller may know of it.
func (c *Caller) onHold(g *rights.Grants, v wire.Verb, request proto.Message, locks func(m *fsm.Machine, hold uint64) []string) *wire.Result {
	hold, ok := request.(interface{ GetHoldId() uint64 })
	if !ok {
		return denied("the schema does not say which locks this request concerns")
	}
	if !g.OnSomeLock(v) {
		return c.require(false, fmt.Sprintf("a role with %v on any lock", v))
	}
	var names []string
	c.source.View(func(m *fsm.Machine) { names = locks(m, hold.GetHoldId()) })
	return c.onAll(g, v, names)
}

// onAll does not name the lock that is refused, because the caller may not be allowed to see it.
func (c *Caller) onAll(g *rights.Grants, v wire.Verb, locks []string) *wire.Result {
	for _, name := range locks {
		if !g.OnLock(name, v) {
			return c.require(false, fmt.Sprintf("a role with %v on every lock that this concerns", v))
		}
	}
	return nil
}

func (c *Caller) mayOperate(g *rights.Grants, request proto.Message) *wire.Result {
	switch op := request.(type) {
	case *wire.SkipDelay:
		return c.mayOperateOn(g, op.GetName())
	case *wire.Resize:
		return c.mayOperateOn(g, op.GetName())
	case *wire.ForceClose:
		if op.GetIdentity() != "" {
			return c.require(g.OnAllLocks(wire.Verb_OPERATE), "a role with operate on all locks, which the sessions of an identity require")
		}
		return c.mayClose(g, op)
	}
	seen := false
	refused := c.onHold(g, wire.Verb_OPERATE, request, func(m *fsm.Machine, hold uint64) []string {
		seen = m.SeesClaim(g, c.Identity(), hold)
		return m.LocksOfClaim(hold)
	})
	return c.ifSeen(seen || !g.OnSomeLock(wire.Verb_OPERATE), request, refused)
}

// ifSeen returns a refusal if the caller may know of what it is about. Otherwise the refusal is only reported, and the
// state machine answers the request as if that did not exist.
func (c *Caller) ifSeen(seen bool, request proto.Message, refused *wire.Result) *wire.Result {
	if seen {
		return refused
	}
	c.Denied(request, refused)
	return nil
}

func (c *Caller) mayOperateOn(g *rights.Grants, name string) *wire.Result {
	if g.OnLock(name, wire.Verb_OPERATE) {
		return nil
	}
	return fsm.Denied(c.Identity(), wire.Verb_OPERATE, name)
}

// mayClose requires OPERATE on every lock that the session holds or waits for, and on all locks if there is none.
func (c *Caller) mayClose(g *rights.Grants, op *wire.ForceClose) *wire.Result {
	if g.OnAllLocks(wire.Verb_OPERATE) {
		return nil
	}
	refused := c.require(false, "a role with operate on every lock of that session")
	if !g.OnSomeLock(wire.Verb_OPERATE) {
		return refused
	}
	var locks []string
	var exists, seen bool
	c.source.View(func(m *fsm.Machine) {
		_, exists = m.Session(op.GetSessionId())
		locks, seen = m.LockNames(op.GetSessionId()), m.SeesSession(g, c.Identity(), op.GetSessionId())
	})
	if !exists || len(locks) > 0 && c.onAll(g, wire.Verb_OPERATE, locks) == nil {
		return nil
	}
	return c.ifSeen(seen, op, refused)
}

// Owns refuses a caller that did not open the session or the lease.
func (c *Caller) Owns(owner string) *wire.Result {
	if c.Identity() == owner {
		return nil
	}
	return denied("the session was opened by another identity")
}

var bodyField = (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body")

// CheckRequest is Check for a framed request, which also refuses a number where there is none. A request without a body is
// not refused here: no node knows it.
func (c *Caller) CheckRequest(req *wire.Request) *wire.Result {
	body := BodyOf(req)
	if body == nil {
		return nil
	}
	if refused := CheckForm(body); refused != nil {
		return refused
	}
	if refused := c.authorize(body); refused != nil && !c.isFramedRetry(req, body) {
		return refused
	}
	return checkNumber(req, body)
}

// BodyOf returns the body of a framed request, nil if it has none that this node knows.
func BodyOf(req *wire.Request) proto.Message {
	switch body := req.GetBody().(type) { // the frequent ones first, without reflection
	case *wire.Request_Acquire:
		return body.Acquire
	case *wire.Request_Release:
		return body.Release
	case *wire.Request_Heartbeat:
		return body.Heartbeat
	}
	m := req.ProtoReflect()
	body := m.WhichOneof(bodyField)
	if body == nil {
		return nil
	}
	return m.Get(body).Message().Interface()
}

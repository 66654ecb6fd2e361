package client

import (
	"bytes"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// service is a deliberately simple lock service behind the fake's nodes. It is guarded by the fake's mutex.
type service struct {
	f        *fake
	sessions map[uint64]*fakeSession
	locks    map[string]*fakeLock
	holds    map[uint64]*claim // by id
	changed  []string          // names of locks to settle
	lastID   uint64
	revision uint64
	token    uint64
	history  fakeHistory
	restored uint64       // the last session from before a restore
	refuses  *wire.Result // the answer to an acquire of a cached hold, if they are refused
}

type fakeSession struct {
	id       uint64
	hash     []byte
	ttl      uint32
	conn     *fakeConn
	mark     uint64
	outcomes map[uint64]*wire.Result
	waited   map[uint64]bool
	executed map[uint64]int // how often each request had an effect
	asked    map[uint64]echo
	lease    *fakeLease // of an implicit session
}

func newService(f *fake) *service {
	return &service{f: f, sessions: make(map[uint64]*fakeSession), locks: make(map[string]*fakeLock), holds: make(map[uint64]*claim)}
}

func (v *service) serve(cn *fakeConn, req *wire.Request) *wire.Response {
	v.revision++
	switch body := req.GetBody().(type) {
	case *wire.Request_OpenSession:
		return respond(v.open(cn, body.OpenSession))
	case *wire.Request_Watch:
		return v.watch(cn, req)
	case *wire.Request_EndRequest:
		v.endWatch(cn, body.EndRequest.GetRequestId())
		return respond(status(wire.Status_OK))
	case *wire.Request_AcquireLease:
		return v.acquireLease(cn, req)
	case *wire.Request_ExtendLease:
		return respond(v.extendLease(body.ExtendLease))
	case *wire.Request_ReleaseLease:
		return respond(v.releaseLease(body.ReleaseLease))
	case *wire.Request_VerifyToken:
		return v.verify(body.VerifyToken)
	case *wire.Request_ForceRelease:
		return respond(v.force(body.ForceRelease))
	case *wire.Request_Revoke:
		return respond(v.revoke(body.Revoke))
	case *wire.Request_GetLock:
		return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_GetLock{GetLock: &wire.GetLockResponse{Name: body.GetLock.GetName()}}}
	case *wire.Request_ListLocks:
		return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_ListLocks{ListLocks: &wire.ListLocksResponse{Revision: v.revision}}}
	case *wire.Request_ListSessions:
		return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_ListSessions{ListSessions: &wire.ListSessionsResponse{}}}
	case *wire.Request_Status:
		return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_Status{Status: &wire.StatusResponse{LeaderId: cn.node.id, NodeId: cn.node.id}}}
	case *wire.Request_AcknowledgeAlarms:
		return &wire.Response{Result: status(wire.Status_OK), Body: &wire.Response_AcknowledgeAlarms{AcknowledgeAlarms: &wire.AcknowledgeAlarmsResponse{Revision: v.revision}}}
	case *wire.Request_AddMember, *wire.Request_RemoveMember, *wire.Request_SetDrained, *wire.Request_TransferLeadership:
		return respond(status(wire.Status_OK))
	}
	s := v.sessions[req.GetSessionId()]
	if s == nil {
		return respond(&wire.Result{Status: wire.Status_SESSION_LOST, Restored: req.GetSessionId() <= v.restored})
	}
	if a := req.GetAttach(); a != nil {
		return respond(v.attach(cn, s, a))
	}
	if s.conn != cn {
		return respond(status(wire.Status_NOT_ATTACHED))
	}
	return respond(v.command(s, req))
}

func respond(r *wire.Result) *wire.Response { return &wire.Response{Result: r} }

func (v *service) open(cn *fakeConn, o *wire.OpenRequest) *wire.Result {
	hash := sha256.Sum256(o.GetSecret())
	for _, s := range v.sessions {
		if bytes.Equal(s.hash, hash[:]) {
			s.conn = cn
			return v.state(s)
		}
	}
	if o.GetTtlMs() != 0 && o.GetTtlMs() < 5000 {
		return &wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: "ttl out of range"}
	}
	v.lastID++
	s := &fakeSession{
		id: v.lastID, hash: hash[:], ttl: o.GetTtlMs(), conn: cn,
		outcomes: make(map[uint64]*wire.Result), waited: make(map[uint64]bool), executed: make(map[uint64]int),
	}
	if s.ttl == 0 {
		s.ttl = 15000
	}
	v.sessions[s.id] = s
	return v.state(s)
}

func (v *service) attach(cn *fakeConn, s *fakeSession, a *wire.AttachRequest) *wire.Result {
	if hash := sha256.Sum256(a.GetSecret()); !bytes.Equal(hash[:], s.hash) {
		return status(wire.Status_PERMISSION_DENIED)
	}
	s.conn = cn
	return v.state(s)
}

func (v *service) state(s *fakeSession) *wire.Result {
	state := &wire.SessionState{SessionId: s.id, TtlMs: s.ttl}
	for seq := range s.waited {
		state.Outcomes = append(state.Outcomes, proto.CloneOf(s.outcomes[seq]))
	}
	for _, k := range v.claims() {
		if k.session == s && k.held {
			state.Holds = append(state.Holds, k.heldLock())
		}
	}
	return &wire.Result{Status: wire.Status_OK, Revision: v.revision, Session: state}
}

// command executes what must be executed exactly once.
func (v *service) command(s *fakeSession, req *wire.Request) *wire.Result {
	if req.GetHeartbeat() != nil {
		v.repeatRecalls(s)
		return status(wire.Status_OK)
	}
	if req.GetCloseSession() != nil {
		v.end(s)
		return status(wire.Status_OK)
	}
	s.mark = max(s.mark, req.GetAckedBelow())
	for _, seq := range req.GetAcked() {
		delete(s.outcomes, seq)
		delete(s.waited, seq)
	}
	for seq := range s.outcomes {
		if seq < s.mark && !s.waited[seq] {
			delete(s.outcomes, seq)
		}
	}
	seq := req.GetSeq()
	if seq == 0 {
		return status(wire.Status_OK)
	}
	if known := s.outcomes[seq]; known != nil {
		return proto.CloneOf(known)
	}
	s.ask(seq, req.Digest(), v.firstName(req))
	if seq < s.mark {
		return status(wire.Status_STALE)
	}
	s.executed[seq]++
	result := v.execute(s, req)
	result.Seq, result.Revision = seq, v.revision
	s.echo(result)
	s.outcomes[seq] = result
	return proto.CloneOf(result)
}

func (v *service) execute(s *fakeSession, req *wire.Request) *wire.Result {
	switch body := req.GetBody().(type) {
	case *wire.Request_Acquire:
		return v.acquire(s, req.GetSeq(), body.Acquire, 0)
	case *wire.Request_AcquireCached:
		return v.acquireCached(s, req.GetSeq(), body.AcquireCached)
	case *wire.Request_Release:
		return v.release(s, body.Release)
	case *wire.Request_Upgrade:
		return v.upgrade(s, req.GetSeq(), body.Upgrade)
	case *wire.Request_Downgrade:
		return v.downgrade(s, body.Downgrade)
	case *wire.Request_Extend:
		return v.extend(s, body.Extend)
	case *wire.Request_SetValue:
		k := v.claimOf(s, body.SetValue.GetHoldId(), body.SetValue.GetToken())
		if k == nil {
			return status(wire.Status_NOT_HELD)
		}
		k.value = body.SetValue.GetValue()
		return status(wire.Status_OK)
	case *wire.Request_Cancel:
		return v.cancel(s, body.Cancel.GetAcquireSeq())
	}
	return status(wire.Status_INVALID_ARGUMENT)
}

// firstName returns the first lock of a request.
func (v *service) firstName(req *wire.Request) string {
	op := acquireOf(req)
	switch {
	case req.GetUpgrade() != nil:
		if k := v.holds[req.GetUpgrade().GetHoldId()]; k != nil {
			return k.locks[0].GetName()
		}
		return ""
	case req.GetAcquireLease() != nil:
		op = req.GetAcquireLease().GetAcquire()
	case op == nil:
		return ""
	}
	return op.GetLocks()[0].GetName()
}

// echo adds to an answer the digest and the lock of its request.
func (s *fakeSession) echo(result *wire.Result) *wire.Result {
	asked := s.asked[result.GetSeq()]
	result.Digest, result.Name = asked.digest, asked.name
	return result
}

// ask records the digest and the lock of a request.
func (s *fakeSession) ask(seq, digest uint64, name string) {
	if s.asked == nil {
		s.asked = make(map[uint64]echo)
	}
	s.asked[seq] = echo{digest, name}
}

// echo is what an answer repeats from its request.
type echo struct {
	digest uint64
	name   string
}

// end closes a session.
func (v *service) end(s *fakeSession) {
	delete(v.sessions, s.id)
	for _, k := range v.claims() {
		if k.session == s {
			v.emit(wire.Event_RELEASED, k)
			v.remove(k)
		}
	}
	v.grantAll()
}

// held returns the id of the session that holds a lock, or 0.
func (f *fake) held(name string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.service.locks[name]; l != nil && len(l.holders) > 0 {
		return l.holders[0].session.id
	}
	return 0
}

// twice lists requests that had an effect more than once.
func (f *fake) twice() (found []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.service.sessions {
		for seq, n := range s.executed {
			if n > 1 {
				found = append(found, seq)
			}
		}
	}
	return found
}

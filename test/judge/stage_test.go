package judge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stage simulates a cluster and its clients, to produce a true history that tests can forge. Each request
// takes a millisecond to the leader and another one back.
type stage struct {
	t       *testing.T
	now     time.Duration
	begin   time.Time
	machine *fsm.Machine
	entries []Entry
	records []history.Record
	seqs    map[uint64]uint64
	term    uint64
	bounds  Bounds
	// snapshot is the state after compacted entries, if the log was compacted.
	snapshot  []byte
	compacted int
}

const oneWay = time.Millisecond

func newStage(t *testing.T) *stage {
	s := &stage{
		t: t, begin: time.UnixMilli(1_700_000_000_000), machine: fsm.New(fsm.Level), seqs: map[uint64]uint64{},
		bounds: Bounds{Stamps: true, Commit: time.Second, Answer: 5 * time.Second},
	}
	s.lead()
	s.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: "c", TokenFloor: 1000, Lineage: "l", Members: []*wire.Member{{Id: "n1", Incarnation: "i1", Level: 1}},
	}}})
	return s
}

// lead starts a term.
func (s *stage) lead() {
	s.term++
	s.apply(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: s.term, LeaderId: fmt.Sprint("n", s.term)}}})
}

// apply commits an entry with that command.
func (s *stage) apply(cmd *wire.Command) *wire.Result {
	s.t.Helper()
	stamp := s.begin.Add(s.now).UnixMilli()
	data, err := proto.Marshal(&wire.Entry{Level: 1, WallUnixMs: stamp, Commands: []*wire.Command{cmd}})
	if err != nil {
		s.t.Fatal(err)
	}
	applied, err := s.machine.Apply(data)
	if err != nil {
		s.t.Fatal(err)
	}
	s.entries = append(s.entries, Entry{Index: uint64(len(s.entries)) + 1, Term: s.term, Data: data})
	for _, e := range applied.Events {
		waited := e.Type == wire.Event_GRANTED && e.Waited || e.Type == wire.Event_CANCELLED && e.Status != wire.Status_SESSION_LOST
		if waited && e.Seq != 0 {
			r, _ := s.machine.Outcome(e.SessionId, e.Seq)
			r.Seq = e.Seq
			s.records = append(s.records, history.Record{Push: &history.Push{
				Client: client(e.SessionId), At: s.now + oneWay, Push: &wire.Push{SessionId: e.SessionId, Body: &wire.Push_Outcome{Outcome: r}},
			}})
		}
	}
	return applied.Results[0]
}

func client(session uint64) string { return fmt.Sprint("client ", session) }

// ask sends a request that is a command in the log, and records it.
func (s *stage) ask(req *wire.Request, cmd *wire.Command) *wire.Result {
	s.t.Helper()
	op := &history.Op{
		Client: client(req.SessionId), Kind: history.KindOf(req), Session: req.SessionId, Seq: req.Seq,
		Call: s.now, Outcome: history.OK, Request: req,
	}
	s.records = append(s.records, history.Record{Op: op})
	s.now += oneWay
	r := s.apply(cmd)
	s.now += oneWay
	op.Return, op.Response = s.now, &wire.Response{Result: proto.CloneOf(r)}
	return r
}

func (s *stage) open(ttl time.Duration) uint64 {
	s.t.Helper()
	req := &wire.OpenRequest{Secret: []byte(fmt.Sprintf("secret of entry %d", len(s.entries))), TtlMs: uint32(ttl.Milliseconds())}
	op := &wire.OpenSession{SecretHash: hashOf(req.Secret), TtlMs: req.TtlMs}
	r := s.ask(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: req}}, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: op}})
	return r.GetSession().GetSessionId()
}

// request is a session's next request. It fills in both of its forms.
func (s *stage) request(session uint64, req *wire.Request, cmd *wire.Command) *wire.Result {
	s.t.Helper()
	s.seqs[session]++
	req.SessionId, req.Seq, cmd.SessionId, cmd.Seq = session, s.seqs[session], session, s.seqs[session]
	return s.ask(req, cmd)
}

func (s *stage) acquire(session uint64, op *wire.Acquire) *wire.Result {
	s.t.Helper()
	return s.request(session, &wire.Request{Body: &wire.Request_Acquire{Acquire: op}}, &wire.Command{Op: &wire.Command_Acquire{Acquire: op}})
}

// lock acquires a lock exclusively, waiting if necessary, under a fresh owner.
func (s *stage) lock(session uint64, name string) *wire.Result {
	s.t.Helper()
	return s.acquire(session, &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true, Owner: s.seqs[session] + 1})
}

func (s *stage) release(session uint64, grant *wire.Result) *wire.Result {
	s.t.Helper()
	op := &wire.Release{HoldId: grant.HoldId, Token: grant.Token}
	return s.request(session, &wire.Request{Body: &wire.Request_Release{Release: op}}, &wire.Command{Op: &wire.Command_Release{Release: op}})
}

// heartbeat is acknowledged without a command.
func (s *stage) heartbeat(session uint64) {
	s.heartbeatAt(session, s.now)
	s.now += 2 * oneWay
}

func (s *stage) heartbeatAt(session uint64, at time.Duration) {
	op := &history.Op{
		Client: client(session), Kind: "heartbeat", Session: session, Call: at, Return: at + 2*oneWay, Outcome: history.OK,
		Request:  &wire.Request{SessionId: session, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}},
		Response: &wire.Response{Result: &wire.Result{Status: wire.Status_OK}},
	}
	s.records = append(s.records, history.Record{Op: op})
}

func (s *stage) expire(session uint64) {
	view, _ := s.machine.Session(session)
	s.apply(&wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: session, Term: s.term, Generation: view.Generation}}})
}

// closes closes a session, as its client requests.
func (s *stage) closes(session uint64) {
	s.t.Helper()
	s.ask(&wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}},
		&wire.Command{SessionId: session, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
}

// read reads a lock.
func (s *stage) read(name string) *wire.GetLockResponse {
	s.t.Helper()
	lock, ok := s.machine.GetLock(&wire.GetLockRequest{Name: name})
	if !ok {
		s.t.Fatalf("no lock %q", name)
	}
	lock = proto.CloneOf(lock)
	for _, h := range lock.Holders {
		h.HeldForMs = 17
	}
	s.records = append(s.records, history.Record{Op: &history.Op{
		Client: "reader", Kind: "get_lock", Call: s.now, Return: s.now + oneWay, Outcome: history.OK,
		Request:  &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: name}}},
		Response: &wire.Response{Result: &wire.Result{Status: wire.Status_OK}, Body: &wire.Response_GetLock{GetLock: lock}},
	}})
	s.now += 2 * oneWay
	return lock
}

// holds records a hold as its application saw it.
func (s *stage) holds(session uint64, grant *wire.Result, locks []history.Share, from, to time.Duration) *history.Hold {
	h := &history.Hold{
		Client: client(session), Session: session, ID: grant.HoldId, Token: grant.Token, Revision: grant.Revision,
		Locks: locks, Asked: from, Granted: from, Ended: to,
	}
	s.records = append(s.records, history.Record{Hold: h})
	return h
}

func (s *stage) pass(d time.Duration) { s.now += d }

func (s *stage) mark(what string) {
	s.records = append(s.records, history.Record{Mark: &history.Mark{At: s.now, What: what}})
}

func (s *stage) judge() Verdict {
	return Run(Input{
		History: &history.History{Begin: s.begin, Records: s.records}, Entries: s.entries[s.compacted:], Snapshot: s.snapshot, Bounds: s.bounds,
	})
}

// ops returns the operations of a kind.
func (s *stage) ops(kind string) []*history.Op {
	var all []*history.Op
	for _, r := range s.records {
		if r.Op != nil && r.Op.Kind == kind {
			all = append(all, r.Op)
		}
	}
	return all
}

// accepted fails the test if any fault is found.
func (s *stage) accepted() Counts {
	s.t.Helper()
	v := s.judge()
	if err := v.Err(); err != nil {
		s.t.Fatalf("a true history is refused: %v", err)
	}
	return v.Counts
}

// refused fails the test unless a fault contains what.
func (s *stage) refused(what string) {
	s.t.Helper()
	v := s.judge()
	for _, f := range v.Faults {
		if strings.Contains(f, what) {
			return
		}
	}
	s.t.Errorf("a forged history passes, or for another reason than %q: %v", what, v.Faults)
}

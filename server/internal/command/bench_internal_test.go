package command

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// instant is the future of an entry that has already been applied.
type instant struct {
	groupcommit.Failed
	applied *fsm.Applied
}

func (i instant) Response() any { return i.applied }

// unreplicated returns a replica without raft. What the proposer packs is applied immediately and completed
// as usual.
func unreplicated(b *testing.B) *Processor {
	machine := fsm.NewReplicated(fsm.Level, func(err error) { b.Error(err) })
	index := uint64(0)
	apply := func(data []byte, _ time.Duration) raft.ApplyFuture {
		index++
		return instant{applied: machine.Apply(&raft.Log{Index: index, Data: data}).(*fsm.Applied)}
	}
	begin := &wire.Entry{Level: 1, Commands: []*wire.Command{
		{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "bench", Settings: fsm.DefaultSettings()}}},
		{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}},
	}}
	data, err := proto.Marshal(begin)
	if err != nil {
		b.Fatal(err)
	}
	apply(data, 0)
	r := New(Config{
		Machine: machine, Metrics: metrics.New(nil), Logger: hclog.NewNullLogger(), Apply: apply,
		Refusal: func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") }, Halt: func(err error) { b.Error(err) },
	})
	r.Deadlines.Start(1, fsm.New(1))
	r.Notifier.Open()
	r.Proposer.Begin(1)
	r.Proposer.Serve(1, 1)
	var running sync.WaitGroup
	running.Go(r.Proposer.Run)
	running.Go(r.Complete)
	b.Cleanup(func() {
		r.Proposer.Stop()
		running.Wait()
	})
	return r
}

// pairs is a caller that acquires and releases. It makes the next request when the previous one is answered,
// on the completer's goroutine, as connections do.
type pairs struct {
	r       *Processor
	left    int
	session uint64
	seq     uint64
	name    string
	ended   func()
}

func (p *pairs) next(result *wire.Result) {
	granted := result.GetStatus() == wire.Status_GRANTED
	if p.left == 0 && !granted {
		p.ended()
		return
	}
	p.seq++
	cmd := &wire.Command{SessionId: p.session, Seq: p.seq, AckedBelow: p.seq}
	if granted {
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: result.HoldId, Token: result.Token}}
	} else {
		p.left--
		cmd.Op = &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: p.name}}}}
	}
	p.r.Propose(cmd, p.next)
}

func openFor(b *testing.B, r *Processor, name string) uint64 {
	secret := fmt.Sprintf("%032s", name)
	results := make(chan *wire.Result, 1)
	r.Propose(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: []byte(secret), TtlMs: 60_000}}}, func(result *wire.Result) { results <- result })
	result := <-results
	if result.GetStatus() != wire.Status_OK {
		b.Fatal(result)
	}
	return result.GetSession().GetSessionId()
}

// BenchmarkPropose measures pairs of acquire and release by several callers, from Propose to the result:
// queueing, packing, applying and answering, but not raft.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 128} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			r := unreplicated(b)
			var all []*pairs
			var running sync.WaitGroup
			for i := range callers {
				name := fmt.Sprint("orders/", i)
				all = append(all, &pairs{r: r, left: (b.N + i) / callers, session: openFor(b, r, name), name: name, ended: running.Done})
			}
			running.Add(callers)
			b.ReportAllocs()
			b.ResetTimer()
			for _, p := range all {
				p.next(nil)
			}
			running.Wait()
		})
	}
}

// BenchmarkHeartbeat measures a heartbeat from its receipt to its acknowledgement, when one entry proves
// many.
func BenchmarkHeartbeat(b *testing.B) {
	const sessions = 1_000
	r := unreplicated(b)
	ids := make([]uint64, sessions)
	for i := range ids {
		ids[i] = openFor(b, r, fmt.Sprint(i))
	}
	var answered sync.WaitGroup
	done := func(result *wire.Result) {
		if result.GetStatus() != wire.Status_OK {
			b.Error(result)
		}
		answered.Done()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		answered.Add(1)
		r.Heartbeat(ids[i%sessions], nil, done)
		if i%sessions == sessions-1 || i == b.N-1 {
			answered.Add(1)
			r.Prove(done)
			answered.Wait()
		}
	}
}

package fsm

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// dice returns a number below n.
type dice func(n int) int

func seeded(seed uint64) dice {
	return rand.New(rand.NewPCG(seed, 7)).IntN
}

// walker makes up commands that are likely to matter: it looks at the model to name
// real sessions, holds and waits, and then often gets one detail wrong.
type walker struct {
	roll dice
	d    *model
	// next request of each session, and secrets given out.
	seqs    map[uint64]uint64
	secrets int
}

const walkFloor = 1000

// newWalker starts in a cluster whose limits are mostly tiny, so that they are hit.
func newWalker(roll dice) (*walker, *wire.Command) {
	limits := DefaultSettings()
	limits.MaxClientInfoBytes = 64
	if roll(4) > 0 {
		limits.MaxSessions = uint64(2 + roll(6))
		limits.MaxLocks = uint64(1 + roll(4))
		limits.MaxWaitersPerLock = uint64(1 + roll(8))
		limits.MaxClaimsPerSession = uint64(2 + roll(6))
		limits.MaxWindow = uint64(4 + roll(12))
		limits.MaxValueBytes = 4
	}
	boot := &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: "walk", TokenFloor: walkFloor, Settings: limits, Members: []*wire.Member{{Id: "n1", Level: 1}},
	}}}
	return &walker{roll: roll, d: newModel(limits, walkFloor), seqs: map[uint64]uint64{}}, boot
}

// one is true once in n times.
func (w *walker) one(n int) bool { return w.roll(n) == 0 }

func (w *walker) command() *wire.Command {
	switch pick := w.roll(100); {
	case pick < 12 || len(w.d.live) == 0:
		return w.open()
	case pick < 14:
		return w.beginTerm()
	case pick < 17:
		return w.expire()
	case pick < 23:
		return w.timeout()
	case pick < 26:
		return w.own(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: w.hash(w.roll(w.secrets + 1)), Address: "a"}}})
	case pick < 28:
		return w.own(&wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
	case pick < 33:
		return w.own(&wire.Command{Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}})
	case pick < 34:
		return w.own(&wire.Command{Seq: uint64(w.roll(3))}) // no operation at all
	}
	return w.request()
}

func (w *walker) hash(i int) []byte { return secretHash(fmt.Sprint(i)) }

func secretHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func (w *walker) open() *wire.Command {
	op := &wire.OpenSession{SecretHash: w.hash(w.secrets), TtlMs: uint32(w.roll(3) * 7_000)}
	switch w.roll(12) {
	case 0:
		op.SecretHash = op.SecretHash[1:]
	case 1:
		op.TtlMs = 1
	case 2:
		op.Client = &wire.ClientInfo{Name: string(make([]byte, 70))}
	case 3, 4:
		op.SecretHash = w.hash(w.roll(w.secrets + 1))
	default:
		w.secrets++
		op.Client = &wire.ClientInfo{Name: "walker"}
	}
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: op}}
}

func (w *walker) beginTerm() *wire.Command {
	term := w.d.term + uint64(w.roll(3))
	return &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: term, LeaderId: fmt.Sprint("n", w.roll(2))}}}
}

// about returns the number, or sometimes one beside it.
func (w *walker) about(n uint64) uint64 {
	if w.one(5) {
		return n + uint64(w.roll(3)) - 1
	}
	return n
}

func (w *walker) expire() *wire.Command {
	op := &wire.ExpireSession{SessionId: w.session(), Term: w.about(w.d.term), Generation: 1}
	if s := w.d.find(op.SessionId); s != nil {
		op.Generation = w.about(s.generation)
	}
	return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: op}}
}

func (w *walker) timeout() *wire.Command {
	claim := w.claim(w.session())
	for range 3 { // a wait rather than a hold
		if claim.token != 0 {
			claim = w.claim(w.session())
		}
	}
	op := &wire.TimeoutWait{WaitId: claim.id, Term: w.about(w.d.term), Generation: w.about(1)}
	return &wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: op}}
}

// session is one that lives, mostly.
func (w *walker) session() uint64 {
	if len(w.d.live) == 0 || w.one(20) {
		return uint64(w.roll(int(w.d.opened) + 2))
	}
	return w.d.live[w.roll(len(w.d.live))].id
}

// claim is one of the session's, mostly.
func (w *walker) claim(session uint64) *modelClaim {
	if w.one(10) {
		session = w.session()
	}
	claims := w.d.claims(session)
	if len(claims) == 0 {
		return &modelClaim{id: uint64(w.roll(50)), token: walkFloor + uint64(w.roll(20)), seq: uint64(w.roll(9))}
	}
	return claims[w.roll(len(claims))]
}

// own makes it a command of a session, with acknowledgements.
func (w *walker) own(cmd *wire.Command) *wire.Command {
	cmd.SessionId = w.session()
	next := w.seqs[cmd.SessionId]
	if w.one(4) {
		cmd.AckedBelow = w.about(next)
		if cmd.AckedBelow > 2 && w.one(2) {
			cmd.AckedBelow -= 2
		}
	}
	for w.one(3) {
		cmd.Acked = append(cmd.Acked, uint64(w.roll(int(next)+2)))
	}
	if w.one(3) { // as a good client does: everything that it has
		for _, a := range w.d.answers {
			if a.session == cmd.SessionId && a.waited {
				cmd.Acked = append(cmd.Acked, a.seq)
			}
		}
	}
	return cmd
}

func (w *walker) request() *wire.Command {
	cmd := w.own(&wire.Command{})
	w.seqs[cmd.SessionId]++
	cmd.Seq = w.seqs[cmd.SessionId]
	if w.one(4) {
		w.seqs[cmd.SessionId]--
		cmd.Seq = w.oldSeq(cmd.SessionId)
	}
	claim := w.claim(cmd.SessionId)
	switch pick := w.roll(20); {
	case pick < 10:
		cmd.Op = &wire.Command_Acquire{Acquire: w.acquire()}
	case pick < 15:
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: w.about(claim.id), Token: w.about(claim.token)}}
	case pick < 18:
		seq := w.about(claim.seq)
		if w.one(3) {
			seq = w.oldSeq(cmd.SessionId)
		}
		cmd.Op = &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: seq}}
	default:
		cmd.Op = &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: claim.id, Token: w.about(claim.token), Value: w.value()}}
	}
	return cmd
}

// oldSeq is of a request that the session made; of one that waited, if it can be.
func (w *walker) oldSeq(session uint64) uint64 {
	var seqs []uint64
	for _, a := range w.d.answers {
		if a.session == session && a.waited {
			seqs = append(seqs, a.seq)
		}
	}
	if len(seqs) == 0 || w.one(4) {
		return uint64(w.roll(int(w.seqs[session])+2)) + uint64(min(1, w.roll(8)))
	}
	return seqs[w.roll(len(seqs))]
}

func (w *walker) acquire() *wire.Acquire {
	op := &wire.Acquire{
		Locks:       []*wire.LockRequest{{Name: w.name(), Mode: wire.Mode(w.roll(2))}},
		Owner:       uint64(w.roll(3)),
		WaitMs:      uint32(w.roll(3) * 500),
		WaitForever: w.one(3),
		Value:       w.value(),
		// The model knows no deadlocks; TestDeadlocksAgainstBruteForce does.
		AllowDeadlock: true,
	}
	switch w.roll(40) {
	case 0:
		op.Locks = nil
	case 1:
		op.Locks = append(op.Locks, op.Locks[0])
	case 2:
		op.Locks[0].Name = "a//b"
	case 3:
		op.Locks[0].Mode = 99
	}
	return op
}

var walkNames = []string{"a", "b", "b/1", "ü", "zz"}

func (w *walker) name() string { return walkNames[min(w.roll(len(walkNames)), w.roll(len(walkNames)))] }

func (w *walker) value() []byte { return []byte("12345"[:w.roll(6)]) }

// entry wraps commands as the log has them.
func entry(t testing.TB, commands ...*wire.Command) []byte {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: 1, WallUnixMs: 1_700_000_000_000, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// walk makes a random log of at least n commands without a machine.
func walk(seed uint64, n int) []*wire.Command {
	w, boot := newWalker(seeded(seed))
	commands := []*wire.Command{boot}
	for range n {
		cmd := w.command()
		w.d.apply(cmd)
		commands = append(commands, cmd)
	}
	return commands
}

package fsm

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// dice returns a number below n.
type dice func(n int) int

func seeded(seed uint64) dice {
	return rand.New(rand.NewPCG(seed, 7)).IntN
}

// walker generates commands that are likely to matter: it looks at the model to name real sessions, holds
// and waits, and then often gets one detail wrong.
type walker struct {
	roll dice
	d    *model.Model
	// next request of each session, and the number of secrets used.
	seqs    map[uint64]uint64
	secrets int
	// asked is the first request under each number.
	asked map[[2]uint64]*wire.Command
	// leases are the first requests with each secret.
	leases map[string]*wire.OpenLease
	// limits of the names that are mostly semaphores; 1 is a plain lock, 0 an unfair one.
	kinds []uint64
	// owners is how many owner keys a session uses, names how many locks there are, and contention how many
	// sessions there mostly are.
	owners, names, contention int
	// readers is how many of four acquires are shared.
	readers int
	// labelled clients have labels that nearly fill the budgets.
	labelled bool
	changing bool // members come and go
	keyed    bool // Redis ports send requests, which they keep in ports
	ports    map[string]*walkPort
	guarded  bool // commands have callers, and there may be a policy
}

const (
	walkFloor   = 1000
	walkLineage = "walked"
)

// walkCluster is the cluster of a walk. Its backups are of the cluster from which it was recovered.
var walkCluster = wire.RecoveredID("lost", "1")

// newWalker starts in a cluster whose limits are mostly tiny, so that they are reached.
func newWalker(roll dice, guarded bool) (*walker, *wire.Command) {
	limits := DefaultSettings()
	limits.MaxClientInfoBytes = 64
	switch roll(6) {
	case 0, 1:
		limits.MaxSessions = uint64(2 + roll(6))
		limits.MaxLocks = uint64(1 + roll(4))
		limits.MaxWaitersPerLock = uint64(1 + roll(8))
		limits.MaxClaimsPerSession = uint64(2 + roll(6))
		limits.MaxWindow = uint64(4 + roll(12))
		limits.MaxValueBytes = 4
	case 2, 3:
		limits.MaxSessions = uint64(3 + roll(3))
		limits.MaxValueBytes = 4
	case 4:
		limits.MaxSessions = 4
		limits.MaxWindow = 10
	case 5:
		limits.MaxClientInfoBytes, limits.MaxSessionBytes, limits.MaxStateBytes = 4<<10, MinSessionBytes, MinStateBytes
	}
	boot := &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: walkCluster, TokenFloor: walkFloor, Settings: limits, Lineage: walkLineage,
		Members: []*wire.Member{{Id: "n1", Level: Level}},
	}}}
	w := &walker{roll: roll, guarded: guarded, d: model.New(), seqs: map[uint64]uint64{}, asked: map[[2]uint64]*wire.Command{}, leases: map[string]*wire.OpenLease{}}
	w.setCaching(limits)
	w.labelled = limits.MaxStateBytes < 1<<30
	w.changing = roll(16) == 0
	w.readers = roll(4)
	w.owners, w.names = 1+roll(4), 1+roll(len(walkNames))
	w.contention = min(2+roll(4), int(limits.MaxSessions))
	if w.labelled {
		w.contention = 5 // fills the state
	}
	for range walkNames {
		w.kinds = append(w.kinds, []uint64{0, 0, 1, 1, 1, 1, 1, 1, 2, 3}[roll(10)])
	}
	return w, boot
}

// one returns true once in n times.
func (w *walker) one(n int) bool { return w.roll(n) == 0 }

// ordinary returns a command without a caller that does not change the policy.
func (w *walker) ordinary() *wire.Command {
	if len(w.d.Live) < w.contention && w.one(2) {
		return w.outset()
	}
	if w.d.Level < Level && w.one(12) {
		return w.raiseLevel()
	}
	if w.d.Suspended != 0 && w.one(10) {
		if w.one(2) {
			return w.recordAct()
		}
		return w.suspension()
	}
	if w.changing && w.one(15) {
		return w.membership()
	}
	if w.keyed && w.one(3) {
		return w.keys()
	}
	switch pick := w.roll(200); {
	case pick < 3 || len(w.d.Live) == 0:
		return w.outset()
	case pick < 6:
		return w.beginTerm()
	case pick < 8:
		return w.expire()
	case pick < 17 && (w.any((*model.Claim).Waiting) || w.one(9)):
		return w.timeout()
	case pick < 20:
		return w.own(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: w.attached(), Address: "a"}}})
	case pick < 21:
		return w.own(&wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
	case pick < 26:
		return w.own(&wire.Command{Op: &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}})
	case pick < 27 && w.one(2):
		return w.backup()
	case pick < 27:
		return w.own(&wire.Command{Seq: uint64(w.roll(3))}) // without an operation
	case pick < 28 && w.one(3):
		return w.membership()
	case pick < 28:
		return w.suspension()
	case pick < 40:
		return w.lease()
	case pick < 47 && (w.any(bounded) || w.one(9)):
		return w.expireHold()
	case pick < 55 && (w.any((*model.Claim).Delays) || w.one(9)):
		return w.endDelay()
	case pick < 62 && (w.any((*model.Claim).Holds) || w.one(9)):
		return w.operator()
	}
	return w.request()
}

// outset opens a session or sometimes, mostly in an empty cluster, restores a backup.
func (w *walker) outset() *wire.Command {
	if len(w.d.Live) == 0 && len(w.d.Claims) == 0 && w.one(3) || w.one(60) {
		return w.restoreBackup()
	}
	return w.open()
}

func (w *walker) hash(i int) []byte { return secretHash(fmt.Sprint(i)) }

func secretHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

func (w *walker) open() *wire.Command {
	op := &wire.OpenSession{SecretHash: w.hash(w.secrets), TtlMs: uint32(w.roll(3) * 7_000)}
	switch w.roll(20) {
	case 0:
		op.SecretHash = op.SecretHash[1:]
	case 1:
		op.TtlMs = 1
	case 2:
		op.Client = &wire.ClientInfo{Name: strings.Repeat("x", 70)}
	case 3, 4:
		op.SecretHash = w.hash(w.roll(w.secrets + 1))
	default:
		w.secrets++
		op.Client = w.client()
	}
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: op}}
}

// suspension mostly starts one, or ends the present one.
func (w *walker) suspension() *wire.Command {
	if w.d.Suspended == 0 && !w.one(8) || w.one(8) {
		return &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}}
	}
	return &wire.Command{Op: &wire.Command_ResumeGrants{ResumeGrants: &wire.ResumeGrants{Revision: w.about(w.d.Suspended)}}}
}

func (w *walker) beginTerm() *wire.Command {
	term := w.d.Term + uint64(w.roll(3))
	begin := &wire.BeginTerm{Term: term, LeaderId: fmt.Sprint("n", w.roll(2)), Nonce: 7 * term}
	if w.one(2) {
		begin.ClockUnixMs, begin.MedianUnixMs = w.clock(), w.clock()
	}
	return &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: begin}}
}

// clock returns a time close to the one that the token counter stands for, rarely another one.
func (w *walker) clock() uint64 {
	if w.one(200) {
		return uint64(w.roll(1<<30)) << w.roll(34)
	}
	return epoch + w.d.Token>>32*1000 + uint64(w.roll(200_000))
}

// about returns n, or sometimes a number next to it.
func (w *walker) about(n uint64) uint64 {
	if w.one(8) {
		return n + uint64(w.roll(3)) - 1
	}
	return n
}

func (w *walker) expire() *wire.Command {
	if w.one(4) {
		op := &wire.ForceClose{SessionId: w.session(), Reason: w.reason(), Operator: w.who()}
		if w.one(8) {
			op.SessionId = w.d.Opened + 1
		}
		if s := w.d.Session(op.SessionId); s != nil && (w.one(20) || s.Identity != "" && w.one(4)) {
			op.SessionId, op.Identity = 0, s.Identity
		}
		return &wire.Command{Op: &wire.Command_ForceClose{ForceClose: op}}
	}
	op := &wire.ExpireSession{SessionId: w.session(), Term: w.about(w.d.Term), Generation: 1}
	if w.any((*model.Claim).Upgrading) && w.one(3) {
		op.SessionId = w.some((*model.Claim).Upgrading).Session
	}
	if s := w.d.Session(op.SessionId); s != nil {
		op.Generation = w.about(s.Generation)
	}
	return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: op}}
}

func (w *walker) any(fit func(*model.Claim) bool) bool { return slices.ContainsFunc(w.d.Claims, fit) }

// some returns one of all claims that fit, or sometimes another one.
func (w *walker) some(fit func(*model.Claim) bool) *model.Claim {
	var found []*model.Claim
	for _, c := range w.d.Claims {
		if fit(c) {
			found = append(found, c)
		}
	}
	if len(found) == 0 || w.one(15) {
		return w.claim(w.session())
	}
	return found[w.roll(len(found))]
}

func (w *walker) timeout() *wire.Command {
	claim := w.some((*model.Claim).Waiting)
	op := &wire.TimeoutWait{WaitId: claim.ID, Term: w.about(w.d.Term), Generation: w.about(claim.WaitGeneration)}
	return &wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: op}}
}

// session returns a session that is mostly alive.
func (w *walker) session() uint64 {
	if len(w.d.Live) == 0 || w.one(20) {
		return uint64(w.roll(int(w.d.Opened) + 2))
	}
	s := w.d.Live[w.roll(len(w.d.Live))]
	if s.Leased && !w.one(8) {
		s = w.d.Live[w.roll(len(w.d.Live))]
	}
	return s.ID
}

// claim returns a claim that is mostly the session's.
func (w *walker) claim(session uint64) *model.Claim {
	if w.one(10) {
		session = w.session()
	}
	claims := w.d.Of(session)
	if len(claims) == 0 {
		return &model.Claim{
			ID: uint64(w.roll(50)), Token: walkFloor + uint64(w.roll(20)), Seq: uint64(w.roll(9)), WaitGeneration: 1,
			Locks: []*wire.LockRequest{{Name: w.name()}},
		}
	}
	return claims[w.roll(len(claims))]
}

// hold returns a hold that is mostly the session's and fits, if there is one.
func (w *walker) hold(session uint64, fit func(*model.Claim) bool) *model.Claim {
	var found []*model.Claim
	for _, c := range w.d.Of(session) {
		if c.Holds() && fit(c) {
			found = append(found, c)
		}
	}
	if len(found) == 0 || w.one(15) {
		return w.claim(session)
	}
	return found[w.roll(len(found))]
}

// own turns cmd into a command of a session, with acknowledgements.
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
	if w.one(3) { // all that it has, like a good client
		for _, a := range w.d.Answers {
			if a.Session == cmd.SessionId && a.Waited {
				cmd.Acked = append(cmd.Acked, a.Seq)
			}
		}
	}
	return cmd
}

func (w *walker) request() *wire.Command {
	cmd := w.own(&wire.Command{})
	trapped := w.fatal()
	if trapped != nil {
		cmd.SessionId = trapped.Session
	}
	w.seqs[cmd.SessionId]++
	cmd.Seq = w.seqs[cmd.SessionId]
	if w.one(8) {
		w.seqs[cmd.SessionId]--
		cmd.Seq = w.oldSeq(cmd.SessionId)
	}
	key := [2]uint64{cmd.SessionId, cmd.Seq}
	if first := w.asked[key]; first != nil && !w.one(4) {
		cmd.Op = proto.CloneOf(first).Op // a retry
		return cmd
	}
	if trapped != nil && w.one(2) {
		cmd.Op = &wire.Command_Upgrade{Upgrade: w.upgrade(trapped)}
	} else {
		w.ask(cmd)
	}
	if w.asked[key] == nil {
		w.asked[key] = proto.CloneOf(cmd)
	}
	return cmd
}

// ask chooses among the requests that the session mostly has a reason for.
func (w *walker) ask(cmd *wire.Command) {
	c := w.hold(cmd.SessionId, func(*model.Claim) bool { return true })
	pick := w.roll(60)
	switch {
	case pick < 14 && (w.d.Claim(c.ID) == c && c.Holds() || w.one(9)):
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: w.about(c.ID), Token: w.token(c)}}
	case pick < 20 && (w.waits(cmd.SessionId) || w.one(6)):
		cmd.Op = &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: w.waitedSeq(cmd.SessionId)}}
	case pick < 18:
		cmd.Op = &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: c.ID, Token: w.token(c), Value: w.value()}}
	case pick < 30:
		if c = w.hold(cmd.SessionId, reads); reads(c) || w.one(12) {
			cmd.Op = &wire.Command_Upgrade{Upgrade: w.upgrade(c)}
		}
	case pick < 32:
		if c = w.hold(cmd.SessionId, writes); writes(c) || w.one(12) {
			cmd.Op = &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: c.ID, Token: w.token(c)}}
		}
	case pick < 34:
		if c = w.hold(cmd.SessionId, bounded); bounded(c) || w.one(12) {
			cmd.Op = &wire.Command_Extend{Extend: w.extend(c)}
		}
	}
	switch {
	case cmd.Op != nil:
	case w.one(5):
		cmd.Op = &wire.Command_AcquireCached{AcquireCached: w.acquireCached(cmd.SessionId)}
	default:
		cmd.Op = &wire.Command_Acquire{Acquire: w.acquire(cmd.SessionId)}
	}
}

func reads(c *model.Claim) bool   { return c.Is(wire.Mode_SHARED) }
func writes(c *model.Claim) bool  { return c.Is(wire.Mode_EXCLUSIVE) }
func bounded(c *model.Claim) bool { return c.Holds() && (c.MaxHold > 0 || c.Graced()) }

func (w *walker) extend(c *model.Claim) *wire.Extend {
	op := &wire.Extend{HoldId: c.ID, Token: w.token(c), MaxHoldMs: uint32(w.roll(3) * 250)}
	if w.one(10) {
		op.MaxHoldMs = 1
	}
	return op
}

// waits reports whether a session waits for anything.
func (w *walker) waits(session uint64) bool {
	_, waits := w.d.Load(session)
	return waits > 0
}

// attached returns the secret hash of a session, mostly of a live one.
func (w *walker) attached() []byte {
	if len(w.d.Live) == 0 || w.one(4) {
		return w.hash(w.roll(w.secrets + 1))
	}
	s := w.d.Live[w.roll(len(w.d.Live))]
	if s.Hash == "" && !w.one(8) {
		return w.hash(w.roll(w.secrets + 1))
	}
	return []byte(s.Hash)
}

// waitedSeq returns the number of a request that mostly waits.
func (w *walker) waitedSeq(session uint64) uint64 {
	var seqs []uint64
	for _, c := range w.d.Of(session) {
		if c.Token == 0 {
			seqs = append(seqs, c.Seq)
		} else if c.Upgrade != nil {
			seqs = append(seqs, c.Upgrade.Seq)
		}
	}
	switch {
	case len(seqs) > 0 && w.one(2):
		return w.about(seqs[w.roll(len(seqs))])
	case w.one(3):
		return w.oldSeq(session)
	}
	return w.about(w.claim(session).Seq)
}

// oldSeq returns the number of a request that the session made, preferably one that waited.
func (w *walker) oldSeq(session uint64) uint64 {
	var seqs []uint64
	for _, a := range w.d.Answers {
		if a.Session == session && a.Waited {
			seqs = append(seqs, a.Seq)
		}
	}
	if len(seqs) == 0 || w.one(4) {
		return uint64(w.roll(int(w.seqs[session])+2)) + uint64(min(1, w.roll(8)))
	}
	return seqs[w.roll(len(seqs))]
}

var walkNames = []string{"a", "b", "b/1", "ü", "zz"}

func (w *walker) name() string { return walkNames[w.lock()] }

func (w *walker) lock() int { return min(w.roll(w.names), w.roll(w.names)) }

func (w *walker) value() []byte {
	return []byte("12345"[:min(w.roll(6), w.roll(6))])
}

// entry marshals commands as a log entry.
func entry(t tester, commands ...*wire.Command) []byte {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: 1, WallUnixMs: 1_700_000_000_000, Commands: commands})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data
}

// walk generates a random log of n commands after its first one; every fourth seed leads to a guarded one, and
// every fourth to one with keys. The machine only decides the order of grants.
func walk(seed uint64, n int) []*wire.Command {
	w, boot := newWalker(seeded(seed), seed%4 == 3)
	if seed%4 == 1 {
		w.useKeys(boot)
	}
	p := newPair(w.d)
	p.follow(boot)
	commands := []*wire.Command{boot}
	for range n {
		cmd := w.command()
		p.follow(cmd)
		commands = append(commands, cmd)
	}
	return commands
}

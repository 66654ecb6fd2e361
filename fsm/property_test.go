package fsm

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// full is true if everything has to run, not only a tenth.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// scaled returns n in a full run and a tenth of it otherwise.
func scaled(n int) int {
	if full {
		return n
	}
	return n / 10
}

// base is the first seed of a run. Each sequence has its own seed.
var base = flag.Uint64("seed", 1, "first seed of the random sequences")

// TestModel runs random sequences of commands through the machine and the model, and three eighths as many in
// which commands have callers and the policy changes, and a quarter as many with requests of Redis ports. It compares every answer
// and every event, and checks every invariant after every command. Everything that can be read is compared
// after every command of every 32nd sequence (of every eighth in the long version), and after every eighth command of
// the others, because that takes most of the time. A sequence that fails is run again with the comparison after every command.
func TestModel(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	sequences := uint64(1_000)
	switch {
	case full && raced:
		sequences = 5_000
	case full:
		sequences = 50_000
	case raced:
		sequences = 30
	}
	workers := uint64(runtime.GOMAXPROCS(0))
	runs := make([]run, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() { runs[i] = manySequences(*base+i, *base+sequences, workers) })
	}
	all.Wait()
	commands, keys, seen, ofKeys := 0, 0, map[string]int{}, map[string]int{}
	for _, r := range runs {
		if r.err != nil {
			log := shrink(r.log, func(log []*wire.Command) bool { return against(log) != nil })
			t.Fatalf("seed %d: %v\nsmallest log that fails: %v\n%v", r.seed, r.err, against(log), lines(log))
		}
		commands, keys = commands+r.commands, keys+r.ofKeys
		for what, n := range r.seen {
			seen[what] += n
		}
		for what, n := range r.seenOfKeys {
			ofKeys[what] += n
		}
	}
	fmt.Printf("fsm: %d random sequences from seed %d, %d commands, compared with the model\n", sequences, *base, commands+keys)
	t.Log(seen, ofKeys)
	if sequences >= 1_000 && *base == 1 { // other seeds repeat a failure
		mustHaveSeen(t, seen, commands)
		mustHaveBeenRare(t, seen, sequences)
		mustHaveSeenKeys(t, ofKeys, keys, sequences)
	}
}

// run is the result of many sequences: what occurred, or the log that failed. Those with keys are counted by themselves.
type run struct {
	commands, ofKeys int
	seen, seenOfKeys map[string]int

	seed uint64
	log  []*wire.Command
	err  error
}

func manySequences(first, end, step uint64) run {
	r := run{seen: map[string]int{}, seenOfKeys: map[string]int{}}
	for r.seed = first; r.seed < end; r.seed += step {
		for _, guarded := range []bool{false, true} {
			if guarded && r.seed%8 != 0 && r.seed%8 != 3 && r.seed%8 != 6 {
				continue
			}
			r.log, r.err = explore(r.seed, 50+int(r.seed%41), guarded, false, r.seen)
			r.commands += len(r.log)
			if r.err != nil {
				return r
			}
		}
		if r.seed%4 == 1 {
			r.log, r.err = explore(r.seed, 90, r.seed%8 == 5, true, r.seenOfKeys)
			r.ofKeys += len(r.log)
			if r.err != nil {
				return r
			}
		}
	}
	return r
}

// pair is the machine and the model after the same commands.
type pair struct {
	m *Machine
	d *model.Model
	// deadlocked is true if some owner was in a deadlock when everything was read last.
	deadlocked bool
	// skipped are lock-delays of which some locks were opened.
	skipped map[uint64]bool
	// refused are the requests that were refused because a budget was exhausted.
	refused map[[2]uint64]bool
	// failsNext makes the next command fail before it is applied; standing are the rare states in
	// which that happens.
	failsNext bool
	standing  []string
}

func newPair(d *model.Model) *pair {
	return &pair{m: New(Level), d: d, skipped: map[uint64]bool{}, refused: map[[2]uint64]bool{}}
}

// hurry gives deadlock searches so few units per request that they end before they find anything.
func (p *pair) hurry(units int) {
	p.m.searches, p.d.Hurried = searchRates{perRequest: uint16(units)}, true
}

// overlooks fails unless a search that found nothing had reached its limit.
func (p *pair) overlooks(cmd *wire.Command) {
	s, ok := p.m.sessions.get(cmd.SessionId)
	if p.d.Overlooked == p.d.Revision && (!ok || s.searchAllowance != 0) {
		failing{}.Fatalf("after %v: a deadlock was overlooked though the search could have gone on", cmd)
	}
}

// follow applies a command to both without comparing.
func (p *pair) follow(cmd *wire.Command) {
	applied := applyAt(failing{}, p.m, wallAfter(p.m.Revision()), cmd)
	p.d.Heard = applied.Results[0]
	p.d.Apply(cmd, wallAfter(p.d.Revision), model.Turns(applied.Events)...)
}

// step applies a command to both and compares the answers and the effects.
func (p *pair) step(cmd *wire.Command) *wire.Result {
	applied := applyAt(failing{}, p.m, wallAfter(p.m.Revision()), cmd)
	p.d.Heard = applied.Results[0]
	want := p.d.Apply(cmd, wallAfter(p.d.Revision), model.Turns(applied.Events)...)
	compareAnswer(failing{}, cmd, applied, want, p.d)
	p.overlooks(cmd)
	if err := p.m.Check(); err != nil {
		failing{}.Fatalf("after %v: %v", cmd, err)
	}
	if err := withinBudgets(p.m); err != nil {
		failing{}.Fatalf("after %v: %v", cmd, err)
	}
	return want
}

// withinBudgets returns an error if a budget is exceeded. It holds after every command, unless a budget
// was made smaller than the state.
func withinBudgets(m *Machine) (err error) {
	limits := m.Settings()
	if m.Units() > limits.MaxStateBytes {
		return fmt.Errorf("the state takes %d units of %d", m.Units(), limits.MaxStateBytes)
	}
	m.sessions.each(0, func(s *session) bool {
		if s.units() > limits.MaxSessionBytes {
			err = fmt.Errorf("session %d takes %d units of %d", s.id, s.units(), limits.MaxSessionBytes)
		}
		return err == nil
	})
	return err
}

// read compares everything that can be read.
func (p *pair) read(cmd *wire.Command) {
	compareState(failing{}, p.m, p.d)
	standing, err := p.d.CompareDeadlocks(p.m.ListDeadlocks(&wire.ListDeadlocksRequest{}).Deadlocks)
	if err != nil {
		failing{}.Fatalf("after %v: %v", cmd, err)
	}
	p.deadlocked = standing
}

// explore generates a log while comparing. If a command fails, it is the last one of the log.
func explore(seed uint64, n int, guarded, keyed bool, seen map[string]int) (log []*wire.Command, err error) {
	defer caught(&err)
	w, boot := newWalker(seeded(seed), guarded)
	p, roll := newPair(w.d), seeded(seed+1<<32)
	if keyed {
		w.useKeys(boot)
	}
	if seed%16 == 3 {
		p.hurry(2 + roll(24))
	}
	p.step(boot)
	log = append(log, boot)
	readEach := uint64(32)
	if full {
		readEach = 8
	}
	for i := range n {
		cmd := w.command()
		log = append(log, cmd)
		h := p.before(cmd)
		p.failFirst(cmd, 1+min(roll(12), roll(12)), seen)
		answer := p.step(cmd)
		h.answer = answer
		p.rare(h, roll, seen)
		if seed%readEach == 0 || i%8 == 7 || i == n-1 {
			p.read(cmd)
		}
		seen[strings.TrimPrefix(fmt.Sprintf("%T ", cmd.Op), "*wire.Command_")+answer.Status.String()]++
		for _, budget := range []string{"max_session_bytes", "max_state_bytes", "max_window"} {
			if strings.HasPrefix(p.d.Heard.Message, budget) {
				seen[budget]++
			}
		}
		notice(p, seen)
	}
	seen["draws"] += p.d.Draws
	return log, nil
}

// notice counts the effects of the last command that its answer does not show.
func notice(p *pair, seen map[string]int) {
	grants := 0
	if p.d.Acknowledged == p.d.Revision {
		seen["alarms acknowledged"]++
	}
	for _, e := range p.d.News {
		what := "event " + e.Type.String()
		switch {
		case e.Upgrade:
			what += " upgrade"
		case len(e.Locks) > 1:
			what += " several"
		case e.Permits > 0:
			what += " permits"
		}
		if e.Waited {
			what += " waited"
			grants++
		}
		seen[what]++
		if s := p.d.Session(e.SessionId); s != nil && s.Leased {
			seen["lease "+what]++
		}
	}
	if grants > 1 {
		seen["grants together"]++
	}
	if p.deadlocked {
		seen["states deadlocked"]++
	}
}

// against compares a given log, whose first command is a bootstrap. It runs the log as it is, with
// searches cut short, and with failures and restarts at every command.
func against(log []*wire.Command) error {
	return cmp.Or(
		againstAs(log, func(*pair, *wire.Command) {}),
		againstAs(log, func(p *pair, _ *wire.Command) { p.hurry(8) }),
		againstAs(log, func(p *pair, _ *wire.Command) { p.restart() }),
		againstAs(log, func(p *pair, cmd *wire.Command) {
			for at := 1; failAt(failing{}, p.m, p.m.Fork(), cmd, at); at++ {
				p.restart()
			}
		}),
	)
}

func againstAs(log []*wire.Command, before func(*pair, *wire.Command)) (err error) {
	defer caught(&err)
	p := newPair(model.New())
	p.step(log[0])
	for _, cmd := range log[1:] {
		before(p, cmd)
		p.step(cmd)
		p.read(cmd)
	}
	return nil
}

// caught turns the panic of failing into an error.
func caught(err *error) {
	switch reason := recover().(type) {
	case nil:
	case runtime.Error:
		panic(reason)
	case failure:
		*err = reason
	default:
		panic(reason)
	}
}

// failing ends a run by panicking with the failure.
type failing struct{}

type failure error

func (failing) Helper() {}

func (failing) Fatalf(format string, args ...any) { panic(failure(fmt.Errorf(format, args...))) }

// shrink removes commands as long as the log still fails. The first one stays.
func shrink(log []*wire.Command, fails func([]*wire.Command) bool) []*wire.Command {
	for step := len(log) / 2; step > 0; step /= 2 {
		for i := 1; i+step <= len(log); {
			if shorter := slices.Concat(log[:i], log[i+step:]); fails(shorter) {
				log = shorter
			} else {
				i += step
			}
		}
	}
	return log
}

func lines(log []*wire.Command) string {
	var b strings.Builder
	for i, cmd := range log {
		fmt.Fprintf(&b, "%3d %v\n", i+1, cmd)
	}
	return b.String()
}

// mustHaveSeen fails unless the walker produced every command with every status. Otherwise a run
// would prove little.
func mustHaveSeen(t *testing.T, seen map[string]int, commands int) {
	for what, outcomes := range map[string]string{
		"OpenSession": "OK INVALID_ARGUMENT RESOURCE_EXHAUSTED", "AttachSession": "OK PERMISSION_DENIED SESSION_LOST",
		"CloseSession": "OK", "ExpireSession": "OK FAILED_PRECONDITION SESSION_LOST",
		"Acquire": "GRANTED QUEUED NOT_ACQUIRED ALREADY_HELD ALREADY_QUEUED RESOURCE_EXHAUSTED STALE INVALID_ARGUMENT " +
			"CANCELLED TIMEOUT MISMATCH DEADLOCK UNAVAILABLE",
		"AcquireCached": "GRANTED QUEUED NOT_ACQUIRED ALREADY_HELD ALREADY_QUEUED INVALID_ARGUMENT FAILED_PRECONDITION UNSUPPORTED " +
			"CANCELLED TIMEOUT MISMATCH DEADLOCK RESOURCE_EXHAUSTED",
		"Release": "OK NOT_HELD STALE", "SetValue": "OK NOT_HELD",
		"Cancel":      "CANCELLED GRANTED NOT_FOUND TIMEOUT",
		"TimeoutWait": "TIMEOUT GRANTED FAILED_PRECONDITION NOT_FOUND",
		"Upgrade":     "GRANTED QUEUED NOT_ACQUIRED NOT_HELD INVALID_ARGUMENT ALREADY_QUEUED UPGRADE_CONFLICT UNAVAILABLE",
		"Downgrade":   "OK NOT_HELD", "Extend": "OK NOT_HELD FAILED_PRECONDITION INVALID_ARGUMENT",
		"ExpireHold": "OK NOT_FOUND FAILED_PRECONDITION", "EndDelay": "OK NOT_FOUND FAILED_PRECONDITION",
		"ForceRelease": "OK NOT_HELD INVALID_ARGUMENT", "Revoke": "OK NOT_HELD INVALID_ARGUMENT",
		"SkipDelay": "OK NOT_FOUND INVALID_ARGUMENT", "Resize": "OK NOT_FOUND INVALID_ARGUMENT FAILED_PRECONDITION",
		"ForceClose":    "OK NOT_FOUND INVALID_ARGUMENT",
		"RestoreBackup": "OK FAILED_PRECONDITION INVALID_ARGUMENT",
		"RecordBackup":  "OK FAILED_PRECONDITION INVALID_ARGUMENT", "SuspendGrants": "OK", "ResumeGrants": "OK FAILED_PRECONDITION",
		"OpenLease":   "GRANTED QUEUED NOT_ACQUIRED INVALID_ARGUMENT RESOURCE_EXHAUSTED UNAVAILABLE",
		"ExtendLease": "OK NOT_HELD INVALID_ARGUMENT", "ReleaseLease": "OK NOT_HELD", "ConfirmLease": "GRANTED NOT_HELD",
		"event": "DELAYED DELAY_ENDED DOWNGRADED EXPIRED EXTENDED FORCED RESIZED REVOKED WANTED VALUE_SET AUDITED",
	} {
		for outcome := range strings.FieldsSeq(outcomes) {
			mustHave(t, seen, what+" "+outcome, commands/10_000)
		}
	}
	for what, n := range map[string]int{
		"event GRANTED waited": 100, "event GRANTED several waited": 10, "event GRANTED permits waited": 20,
		"event GRANTED upgrade waited": 2, "event CANCELLED upgrade": 5, "lease event GRANTED waited": 4,
		"max_session_bytes": 2, "max_state_bytes": 2, "max_window": 2,
		"event DELAY_ENDED permits": 4, "grants together": 10, "draws": 10, "states deadlocked": 10,
		"alarms acknowledged": 1,
	} {
		mustHave(t, seen, what, n*commands/10_000)
	}
	for what, n := range guardedOutcomes {
		mustHave(t, seen, what, n*commands/10_000)
	}
}

func mustHave(t *testing.T, seen map[string]int, what string, n int) {
	if seen[what] < n {
		t.Errorf("%s was seen %d times, not %d: too rare to count", what, seen[what], n)
	}
}

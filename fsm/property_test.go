package fsm

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// full says that everything is to run, not a tenth of it.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// scaled is n in a full run and a tenth of it otherwise.
func scaled(n int) int {
	if full {
		return n
	}
	return n / 10
}

// base is the first of a run's seeds. Each sequence has its own.
var base = flag.Uint64("seed", 1, "first seed of the random sequences")

// TestModel runs random sequences of commands through the machine and the model,
// compares every answer, every event and the visible state, and checks every
// invariant, after every command.
func TestModel(t *testing.T) {
	commands := 0
	seen := map[string]int{}
	sequences := uint64(scaled(10_000))
	for seed := *base; seed < *base+sequences; seed++ {
		log, err := explore(seed, 50+int(seed%40), seen)
		commands += len(log)
		if err != nil {
			log = shrink(log, func(log []*wire.Command) bool { return against(log) != nil })
			t.Fatalf("seed %d: %v\nsmallest log that fails: %v\n%v", seed, err, against(log), lines(log))
		}
	}
	fmt.Printf("fsm: %d random sequences from seed %d, %d commands, compared with the model\n", sequences, *base, commands)
	t.Log(seen)
	mustHaveSeen(t, seen, commands)
}

// pair is the machine and the model after the same commands.
type pair struct {
	m *Machine
	d *model
}

// step gives both the command and compares them. It panics if they differ.
func (p pair) step(cmd *wire.Command) said {
	var t failing
	applied, answer := applyOne(t, p.m, cmd), p.d.apply(cmd)
	compareAnswer(t, cmd, applied, answer, p.d.news)
	compareState(t, p.m, p.d)
	if err := p.m.Check(); err != nil {
		t.Fatalf("after %v: %v", cmd, err)
	}
	return answer
}

// explore makes up a log while comparing. It ends with the command that failed.
func explore(seed uint64, n int, seen map[string]int) (log []*wire.Command, err error) {
	defer caught(&err)
	w, boot := newWalker(seeded(seed))
	p := pair{New(Level), w.d}
	applyOne(failing{}, p.m, boot)
	log = append(log, boot)
	for range n {
		cmd := w.command()
		log = append(log, cmd)
		answer := p.step(cmd)
		seen[strings.TrimPrefix(fmt.Sprintf("%T ", cmd.Op), "*wire.Command_")+answer.status.String()]++
	}
	return log, nil
}

// against compares a log that is known. Its first command is a bootstrap.
func against(log []*wire.Command) (err error) {
	defer caught(&err)
	m := New(Level)
	applyOne(failing{}, m, log[0])
	p := pair{m, newModel(m.Settings(), walkFloor)}
	for _, cmd := range log[1:] {
		p.step(cmd)
	}
	return nil
}

// caught turns the panic of failing into an error.
func caught(err *error) {
	switch reason := recover().(type) {
	case nil:
	case failure:
		*err = reason
	default:
		panic(reason)
	}
}

// failing ends a run by a panic with what went wrong.
type failing struct{}

type failure error

func (failing) Helper() {}

func (failing) Fatalf(format string, args ...any) { panic(failure(fmt.Errorf(format, args...))) }

// shrink leaves out commands as long as the log still fails. The first one stays.
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

// mustHaveSeen keeps the walker honest: a run counts only if it came everywhere.
func mustHaveSeen(t *testing.T, seen map[string]int, commands int) {
	for _, what := range []string{
		"OpenSession OK", "OpenSession INVALID_ARGUMENT", "OpenSession RESOURCE_EXHAUSTED",
		"AttachSession OK", "AttachSession PERMISSION_DENIED", "AttachSession SESSION_LOST",
		"CloseSession OK", "ExpireSession OK", "ExpireSession FAILED_PRECONDITION", "ExpireSession SESSION_LOST",
		"Acquire GRANTED", "Acquire QUEUED", "Acquire NOT_ACQUIRED", "Acquire ALREADY_HELD", "Acquire ALREADY_QUEUED",
		"Acquire RESOURCE_EXHAUSTED", "Acquire STALE", "Acquire INVALID_ARGUMENT", "Acquire CANCELLED", "Acquire TIMEOUT",
		"Release OK", "Release NOT_HELD", "Release STALE", "SetValue OK", "SetValue NOT_HELD",
		"Cancel CANCELLED", "Cancel GRANTED", "Cancel NOT_FOUND", "Cancel TIMEOUT",
		"TimeoutWait TIMEOUT", "TimeoutWait GRANTED", "TimeoutWait FAILED_PRECONDITION", "TimeoutWait NOT_FOUND",
	} {
		if seen[what]*10_000 < commands {
			t.Errorf("%s was seen %d times in %d commands: too rare to count", what, seen[what], commands)
		}
	}
}

// tester is what the comparisons need of a test, a benchmark or a comparison that is caught.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

func applyOne(t tester, m *Machine, cmd *wire.Command) *Applied {
	t.Helper()
	data, err := marshal.Marshal(&wire.Entry{Level: 1, WallUnixMs: 5, Commands: []*wire.Command{cmd}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	applied, err := m.Apply(data)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	if len(applied.Failures) > 0 {
		t.Fatalf("a handler panicked: %+v in %v", applied.Failures, cmd)
	}
	return applied
}

func compareAnswer(t tester, cmd *wire.Command, applied *Applied, want said, news []string) {
	t.Helper()
	r := applied.Results[0]
	got := said{status: r.Status, revision: r.Revision, hold: r.HoldId, token: r.Token, position: r.Position, session: sessionText(r.Session)}
	for _, h := range r.Holders {
		got.holders += fmt.Sprint(h.HoldId)
	}
	if got != want || r.Seq != cmd.Seq {
		t.Fatalf("%v\nanswers   %+v seq %d %q\nthe model %+v", cmd, got, r.Seq, r.Message, want)
	}
	var events []string
	for _, e := range applied.Events {
		events = append(events, eventText(e))
	}
	if !slices.Equal(events, news) {
		t.Fatalf("%v\nevents    %q\nthe model %q", cmd, events, news)
	}
}

func sessionText(s *wire.SessionState) string {
	if s == nil {
		return ""
	}
	var parts []string
	for _, o := range s.Outcomes {
		parts = append(parts, fmt.Sprintf("request %d %v position %d", o.Seq, o.Status, o.Position))
	}
	slices.Sort(parts)
	for _, h := range s.Holds {
		parts = append(parts, fmt.Sprintf("hold %d %s token %d seq %d", h.HoldId, h.Name, h.Token, h.Seq))
	}
	return fmt.Sprintf("session %d ttl %d: %s", s.SessionId, s.TtlMs, strings.Join(parts, ", "))
}

func eventText(e *wire.Event) string {
	if e.Lock == "" {
		return fmt.Sprintf("%v session %d generation %d", e.Type, e.SessionId, e.Generation)
	}
	text := fmt.Sprintf("%v %s session %d owner %d seq %d hold %d token %d", e.Type, e.Lock, e.SessionId, e.Owner, e.Seq, e.HoldId, e.Token)
	if e.Waited {
		text += " waited"
	}
	if e.Status != wire.Status_UNSPECIFIED {
		text += " " + e.Status.String()
	}
	return text
}

// compareState compares all that a reader can see.
func compareState(t tester, m *Machine, d *model) {
	t.Helper()
	if m.Revision() != d.revision || m.Token() != d.token || m.Term() != d.term {
		t.Fatalf("revision %d, token %d, term %d; the model %d, %d, %d", m.Revision(), m.Token(), m.Term(), d.revision, d.token, d.term)
	}
	if got, want := lockTexts(m), modelLocks(d); !slices.Equal(got, want) {
		t.Fatalf("locks     %q\nthe model %q", got, want)
	}
	if got, want := sessionTexts(m), modelSessions(d); !slices.Equal(got, want) {
		t.Fatalf("sessions  %q\nthe model %q", got, want)
	}
	for _, a := range d.answers {
		r, ok := m.Outcome(a.session, a.seq)
		if ok != d.shown(a) || ok && (r.Status != a.said.status || r.Token != a.said.token || r.Revision != a.said.revision) {
			t.Fatalf("request %d of session %d: %v\nthe model %+v", a.seq, a.session, r, a)
		}
	}
}

func lockTexts(m *Machine) []string {
	var texts []string
	for _, info := range m.ListLocks(&wire.ListLocksRequest{}).Locks {
		full, _ := m.GetLock(&wire.GetLockRequest{Name: info.Name})
		text := info.Name
		for _, h := range full.Holders {
			text += fmt.Sprintf(" held %d %d %q", h.HoldId, h.Token, h.Value)
		}
		for _, q := range full.Queue {
			text += fmt.Sprintf(" %d: %d", q.Position, q.WaitId)
		}
		texts = append(texts, text)
	}
	return texts
}

func modelLocks(d *model) []string {
	var texts []string
	for name, line := range d.lines {
		text := name
		for i, c := range line {
			if i == 0 {
				text += fmt.Sprintf(" held %d %d %q", c.id, c.token, c.value)
			} else {
				text += fmt.Sprintf(" %d: %d", i, c.id)
			}
		}
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
	return texts
}

func sessionTexts(m *Machine) []string {
	var texts []string
	for _, s := range m.ListSessions(&wire.ListSessionsRequest{}).Sessions {
		view, _ := m.Session(s.SessionId)
		texts = append(texts, fmt.Sprintf("%d ttl %d generation %d claims %d", s.SessionId, s.TtlMs, view.Generation, s.Holds+s.Waits))
	}
	return texts
}

func modelSessions(d *model) []string {
	var texts []string
	for _, s := range d.live {
		texts = append(texts, fmt.Sprintf("%d ttl %d generation %d claims %d", s.id, s.ttl, s.generation, len(d.claims(s.id))))
	}
	return texts
}

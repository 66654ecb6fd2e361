package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

var rewrite = flag.Bool("rewrite", false, "write the answers that the scripts in testdata give now")

// TestScripts runs testdata/*.txt. A line that begins a command is
//
//	WHO: VERB ARGUMENTS key=value …
//
// and what it answers follows, indented: "=" the result, "*" each event. Lines that
// begin with '#' and empty lines stand for themselves. "go test -run Scripts
// -rewrite" writes the answers anew: read the difference before committing it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newScript(t).run(string(text))
			if got == string(text) {
				return
			}
			if !*rewrite {
				t.Fatalf("%s answers differently (-rewrite accepts it):\n%s", file, got)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// script remembers what commands are usually about, so that scripts are short.
type script struct {
	t   *testing.T
	m   *Machine
	out strings.Builder
	// ids of sessions by name, the next request of each, and the last hold of each on
	// each lock.
	ids   map[string]uint64
	seqs  map[string]uint64
	holds map[string]*wire.Result
}

func newScript(t *testing.T) *script {
	return &script{t: t, m: New(Level), ids: map[string]uint64{}, seqs: map[string]uint64{}, holds: map[string]*wire.Result{}}
}

func (s *script) run(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "): // an old answer
		case line == "" || line[0] == '#':
			s.out.WriteString(line + "\n")
		default:
			s.out.WriteString(line + "\n")
			s.line(line)
			if err := s.m.Check(); err != nil {
				s.t.Fatalf("after %q: %v", line, err)
			}
		}
	}
	return s.out.String()
}

func (s *script) print(format string, args ...any) {
	fmt.Fprintf(&s.out, "  "+format+"\n", args...)
}

// args are the words of a line: WHO, VERB, the others, and key=value pairs.
type args struct {
	who, verb string
	rest      []string
	pairs     map[string]string
}

func (s *script) parse(line string) args {
	who, rest, ok := strings.Cut(line, ": ")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		s.t.Fatalf("%q is not WHO: VERB …", line)
	}
	a := args{who: who, verb: words[0], pairs: map[string]string{}}
	for _, word := range words[1:] {
		if key, value, ok := strings.Cut(word, "="); ok {
			a.pairs[key] = value
		} else {
			a.rest = append(a.rest, word)
		}
	}
	return a
}

func (a args) arg(i int) string {
	if i < len(a.rest) {
		return a.rest[i]
	}
	return ""
}

// number is the value of a key, or what it is when the line does not say.
func (s *script) number(a args, key string, otherwise uint64) uint64 {
	text, ok := a.pairs[key]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.t.Fatalf("%s=%s: %v", key, text, err)
	}
	return n
}

func (s *script) line(line string) {
	a := s.parse(line)
	switch a.verb {
	case "snapshot":
		data := snapshotOf(s.t, s.m)
		s.m = restored(s.t, data)
		if !bytes.Equal(snapshotOf(s.t, s.m), data) {
			s.t.Fatal("the snapshot is written differently now")
		}
		return
	case "show":
		s.show(a.arg(0))
		return
	}
	cmd := s.command(a)
	applied := applyOne(s.t, s.m, cmd)
	s.note(a, applied)
	s.print("= %s", resultText(applied.Results[0]))
	for _, e := range applied.Events {
		s.print("* %s", s.describe(e))
	}
}

func (s *script) command(a args) *wire.Command {
	switch a.who {
	case "cluster":
		return s.clusterCommand(a)
	case "leader":
		return s.leaderCommand(a)
	}
	return s.sessionCommand(a)
}

func (s *script) clusterCommand(a args) *wire.Command {
	if a.verb != "bootstrap" {
		s.t.Fatalf("cluster: %s?", a.verb)
	}
	return bootCommand(&wire.Bootstrap{ClusterId: "test", TokenFloor: s.number(a, "floor", 0), Settings: &wire.Settings{
		MaxSessions:         s.number(a, "max_sessions", 0),
		MaxLocks:            s.number(a, "max_locks", 0),
		MaxWaitersPerLock:   s.number(a, "max_waiters_per_lock", 0),
		MaxClaimsPerSession: s.number(a, "max_claims_per_session", 0),
		MaxWindow:           s.number(a, "max_window", 0),
		MaxValueBytes:       uint32(s.number(a, "max_value_bytes", 0)),
	}})
}

// leaderCommand is about a session, or about a session's wait for a lock. Terms and
// generations are the right ones unless the line says otherwise.
func (s *script) leaderCommand(a args) *wire.Command {
	id := s.ids[a.arg(0)]
	term := s.number(a, "term", s.m.Term())
	switch a.verb {
	case "begin":
		return &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: term, LeaderId: a.arg(0)}}}
	case "expire":
		live, _ := s.m.Session(id)
		return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{
			SessionId: id, Term: term, Generation: s.number(a, "generation", live.Generation),
		}}}
	case "timeout":
		wait := s.holds[a.arg(0)+" "+a.arg(1)].GetHoldId()
		return &wire.Command{Op: &wire.Command_TimeoutWait{TimeoutWait: &wire.TimeoutWait{
			WaitId: s.number(a, "wait", wait), Term: term, Generation: s.number(a, "generation", 1),
		}}}
	}
	s.t.Fatalf("leader: %s?", a.verb)
	return nil
}

func (s *script) sessionCommand(a args) *wire.Command {
	cmd := &wire.Command{SessionId: s.ids[a.who], AckedBelow: s.number(a, "below", 0)}
	for text := range strings.SplitSeq(a.pairs["acked"], ",") {
		if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
			cmd.Acked = append(cmd.Acked, seq)
		}
	}
	switch a.verb {
	case "open":
		cmd.SessionId = 0
		cmd.Op = &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
			SecretHash: secretHash(a.who), TtlMs: uint32(s.number(a, "ttl", 0)), Client: &wire.ClientInfo{Name: a.who},
		}}
	case "attach":
		secret := a.who
		if wrong, ok := a.pairs["secret"]; ok {
			secret = wrong
		}
		cmd.Op = &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: secretHash(secret), Address: "127.0.0.1:1"}}
	case "close":
		cmd.Op = &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}
	case "acknowledge":
		cmd.Op = &wire.Command_Acknowledge{Acknowledge: &wire.Acknowledge{}}
	default:
		s.seqs[a.who]++
		cmd.Seq = s.number(a, "seq", s.seqs[a.who])
		s.seqs[a.who] = max(s.seqs[a.who]-1, cmd.Seq)
		s.request(a, cmd)
	}
	return cmd
}

// request fills in a command that is remembered. Holds and tokens are those that the
// session got last for that lock, unless the line says otherwise.
func (s *script) request(a args, cmd *wire.Command) {
	last := s.holds[a.who+" "+a.arg(0)]
	hold, token := s.number(a, "hold", last.GetHoldId()), s.number(a, "token", last.GetToken())
	switch a.verb {
	case "acquire":
		op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: a.arg(0)}}, Owner: s.number(a, "owner", 0), Value: []byte(a.pairs["value"])}
		op.WaitMs = uint32(s.number(a, "wait", 0))
		op.WaitForever = a.arg(1) == "forever"
		cmd.Op = &wire.Command_Acquire{Acquire: op}
	case "release":
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: hold, Token: token}}
	case "set":
		cmd.Op = &wire.Command_SetValue{SetValue: &wire.SetValue{HoldId: hold, Token: token, Value: []byte(a.pairs["value"])}}
	case "cancel":
		cmd.Op = &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: s.number(a, "request", 0)}}
	default:
		s.t.Fatalf("%s: %s?", a.who, a.verb)
	}
}

// note keeps what later lines refer to.
func (s *script) note(a args, applied *Applied) {
	r := applied.Results[0]
	if r.Session != nil {
		s.ids[a.who] = r.Session.SessionId
	}
	if a.verb == "acquire" && r.HoldId != 0 {
		s.holds[a.who+" "+a.arg(0)] = r
	}
	for _, e := range applied.Events {
		if e.Type == wire.Event_GRANTED {
			s.holds[s.who(e.SessionId)+" "+e.Lock] = &wire.Result{HoldId: e.HoldId, Token: e.Token}
		}
	}
}

func (s *script) who(id uint64) string {
	for name, known := range s.ids {
		if known == id {
			return name
		}
	}
	return fmt.Sprint("session ", id)
}

// show prints a lock as a reader sees it.
func (s *script) show(name string) {
	l, ok := s.m.GetLock(&wire.GetLockRequest{Name: name})
	if !ok {
		s.print("no such lock")
		return
	}
	for _, h := range l.Holders {
		s.print("held by %s, hold %d, token %d%s", s.who(h.SessionId), h.HoldId, h.Token, quoted(" value ", string(h.Value)))
	}
	for _, w := range l.Queue {
		s.print("%d. %s, wait %d", w.Position, s.who(w.SessionId), w.WaitId)
	}
}

func quoted(label, text string) string {
	if text == "" {
		return ""
	}
	return label + strconv.Quote(text)
}

func nonzero(label string, n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %s %d", label, n)
}

func resultText(r *wire.Result) string {
	text := r.Status.String() + nonzero("hold", r.HoldId) + nonzero("token", r.Token) + nonzero("position", r.Position)
	for _, h := range r.Holders {
		text += fmt.Sprintf(" behind %s", h.Client.GetName())
	}
	if s := r.Session; s != nil {
		text += fmt.Sprintf(" session %d ttl %d", s.SessionId, s.TtlMs)
		slices.SortFunc(s.Outcomes, func(a, b *wire.Result) int { return int(a.Seq) - int(b.Seq) })
		for _, o := range s.Outcomes {
			text += fmt.Sprintf("\n    request %d: %s", o.Seq, resultText(o))
		}
		for _, h := range s.Holds {
			text += fmt.Sprintf("\n    holds %s, hold %d, token %d", h.Name, h.HoldId, h.Token)
		}
		return text
	}
	return text + fmt.Sprintf(" revision %d", r.Revision) + quoted(" ", r.Message)
}

func (s *script) describe(e *wire.Event) string {
	text := fmt.Sprintf("%v %s", e.Type, s.who(e.SessionId))
	if e.Lock != "" {
		text += " " + e.Lock + nonzero("hold", e.HoldId)
	}
	text += nonzero("token", e.Token) + nonzero("generation", e.Generation) + nonzero("wait", uint64(e.WaitMs))
	if e.WaitForever {
		text += " forever"
	}
	if e.Waited {
		text += ", it waited"
	}
	if e.Status != wire.Status_UNSPECIFIED {
		text += ", " + e.Status.String()
	}
	return text
}

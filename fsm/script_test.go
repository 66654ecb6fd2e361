package fsm

import (
	"bytes"
	"cmp"
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

// TestScripts runs testdata/*.txt. A line that starts a command has one of the forms
//
//	WHO: VERB ARGUMENTS key=value …
//	WHO as IDENTITY: VERB ARGUMENTS key=value …
//
// where IDENTITY is that of the command's caller, followed by the indented answers: "=" for the result, "*" for each event. Lines that start with '#' and
// empty lines are copied. "go test -run Scripts -rewrite" rewrites the answers: read the difference
// before committing it.
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
				t.Fatalf("%s: %s (-rewrite accepts it); all of it:\n%s", file, difference(got, string(text)), got)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// difference returns the first line in which two texts differ.
func difference(got, want string) string {
	was, is := strings.Split(want, "\n"), strings.Split(got, "\n")
	n := 0
	for n < min(len(was), len(is))-1 && was[n] == is[n] {
		n++
	}
	return fmt.Sprintf("line %d says %q instead of %q", n+1, strings.TrimSpace(is[n]), strings.TrimSpace(was[n]))
}

// script remembers what commands usually refer to, so that scripts are short.
type script struct {
	t   *testing.T
	m   *Machine
	out strings.Builder
	// ids of sessions by name, the next request of each, and the last hold of each on each lock.
	ids   map[string]uint64
	seqs  map[string]uint64
	holds map[string]*wire.Result
	// versions of keys that were shown.
	versions map[string]*wire.KeyVersion
}

func newScript(t *testing.T) *script {
	return &script{t: t, m: New(Level), ids: map[string]uint64{}, seqs: map[string]uint64{}, holds: map[string]*wire.Result{}, versions: map[string]*wire.KeyVersion{}}
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

// args are the words of a line: WHO, IDENTITY, VERB, the others, and key=value pairs.
type args struct {
	who, identity, verb string
	rest                []string
	pairs               map[string]string
}

func (s *script) parse(line string) args {
	who, rest, ok := strings.Cut(line, ": ")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		s.t.Fatalf("%q is not WHO: VERB …", line)
	}
	who, identity, _ := strings.Cut(who, " as ")
	a := args{who: who, identity: identity, verb: words[0], pairs: map[string]string{}}
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

// has reports whether a word follows the first argument.
func (a args) has(word string) bool {
	return len(a.rest) > 1 && slices.Contains(a.rest[1:], word)
}

// first returns the name of the first lock in an argument.
func (a args) first() string {
	name, _, _ := strings.Cut(a.arg(0), ",")
	name, _, _ = strings.Cut(name, "@")
	return name
}

func (s *script) short(a args, key string) uint32 { return uint32(s.number(a, key, 0)) }

// number returns the value of a key, or otherwise if the line does not have it.
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
	case "verify":
		s.verify(a)
		return
	case "key":
		s.showKey(a.arg(0))
		return
	case "alarms":
		s.print("acknowledged at revision %d", s.m.AlarmsAcknowledged())
		return
	case "members":
		for _, member := range s.m.Members() {
			s.print("%s%s", member.Id, map[bool]string{true: ", drained"}[member.Drained])
		}
		return
	case "audit":
		s.lastActs(int(s.number(a, "last", 1)))
		return
	case "access":
		s.showAccess()
		return
	case "quotas":
		s.showQuotas()
		return
	}
	cmd := s.command(a)
	cmd.Caller = callerOfLine(a)
	applied := applyOne(s.t, s.m, cmd)
	s.note(a, applied)
	s.print("= %s", resultText(applied.Results[0]))
	for _, e := range applied.Events {
		s.print("* %s", s.describe(e))
	}
}

// note remembers what later lines refer to.
func (s *script) note(a args, applied *Applied) {
	r := applied.Results[0]
	if r.Session != nil {
		s.ids[a.who] = r.Session.SessionId
	}
	if slices.Contains([]string{"acquire", "acquire-cached", "lease"}, a.verb) && r.HoldId != 0 {
		s.holds[a.who+" "+a.first()] = r
	}
	if r.SessionId != 0 {
		s.ids[a.who] = r.SessionId
	}
	for _, e := range applied.Events {
		if e.Type == wire.Event_GRANTED {
			if _, unknown := strings.CutPrefix(s.who(e.SessionId), "session "); unknown {
				s.ids["key:"+e.Lock] = e.SessionId // nobody opened it by itself
			}
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
		s.print("held by %s%s, hold %d, token %d%s%s", s.who(h.SessionId), after(" of ", h.Identity), h.HoldId, h.Token, quoted(" value ", string(h.Value)), cachedText(h))
	}
	for _, w := range l.Queue {
		s.print("%d. %s%s, wait %d", w.Position, s.who(w.SessionId), after(" of ", w.Identity), w.WaitId)
	}
}

// cachedText returns what only cached holds have.
func cachedText(h *wire.HolderInfo) string {
	text := nonzero("tokens", uint64(h.Tokens)) + nonzero("idle", uint64(h.MaxIdleMs))
	if h.Recalled {
		text += " recalled"
	}
	return text
}

// verify prints whether a token holds a lock.
func (s *script) verify(a args) {
	r := s.m.VerifyToken(&wire.VerifyTokenRequest{Name: a.arg(0), Token: s.number(a, "token", 0)})
	text := map[bool]string{true: "held by " + s.who(r.GetHolder().GetSessionId()), false: "not held"}[r.Held]
	if r.Cached {
		text += ", one of the tokens of a cached hold"
	}
	s.print("%s", text)
}

func quoted(label, text string) string {
	if text == "" {
		return ""
	}
	return label + strconv.Quote(text)
}

// after returns the label and the text, or nothing if the text is empty.
func after(label, text string) string {
	if text == "" {
		return ""
	}
	return label + text
}

func nonzero(label string, n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %s %d", label, n)
}

func resultText(r *wire.Result) string {
	text := r.Status.String() + nonzero("hold", r.HoldId) + nonzero("token", r.Token) + nonzero("position", r.Position)
	if r.Count > 1 || r.Count == 1 && r.Status == wire.Status_OK {
		text += nonzero("count", uint64(r.Count))
	}
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
			text += fmt.Sprintf("\n    holds %s, hold %d, token %d%s", h.Name, h.HoldId, h.Token, heldText(h))
		}
		return text
	}
	return text + fmt.Sprintf(" revision %d", r.Revision) + quoted(" ", r.Message)
}

// heldText returns the properties of a hold that few holds have.
func heldText(h *wire.HeldLock) string {
	text := ""
	for i, l := range h.Locks {
		if i > 0 {
			text += " and " + l.Name
		}
		text += modeText(l.Mode, l.Permits)
	}
	if h.Count > 1 {
		text += nonzero("count", uint64(h.Count))
	}
	text += nonzero("max_hold", uint64(h.MaxHoldMs)) + nonzero("generation", h.Generation)
	if h.Revocation != nil {
		text += quoted(" revoked ", h.Revocation.Reason) + nonzero("grace", uint64(h.Revocation.GraceMs))
	}
	text += nonzero("tokens", uint64(h.Tokens))
	if h.Wanted {
		text += " wanted"
	}
	return text
}

func modeText(mode wire.Mode, permits uint64) string {
	switch mode {
	case wire.Mode_SHARED:
		return " shared"
	case wire.Mode_PERMITS:
		return nonzero("permits", permits)
	}
	return ""
}

func (s *script) describe(e *wire.Event) string {
	text := fmt.Sprintf("%v %s", e.Type, s.who(e.SessionId))
	if e.SessionId == 0 {
		text = e.Type.String()
	}
	if r := e.Audit; r != nil {
		text += fmt.Sprintf(" %v%s%s", r.Action, nonzero("record", r.Id), quoted(" by ", r.Operator))
	}
	text += after(" of ", e.Identity)
	if e.Leased {
		text += " leased" + nonzero("ttl", uint64(e.TtlMs))
	}
	if e.ByValue {
		text += " by value"
	}
	if e.Upgrade {
		text += " upgrade"
	}
	if e.Lock != "" {
		text += " " + cmp.Or(strings.Join(e.Locks, ","), e.Lock) + modeText(e.Mode, e.Permits) + nonzero("hold", e.HoldId)
	}
	text += nonzero("token", e.Token) + nonzero("tokens", uint64(e.Tokens)) + nonzero("generation", e.Generation) + nonzero("wait", uint64(e.WaitMs))
	if e.WaitForever {
		text += " forever"
	}
	text += nonzero("max_hold", uint64(e.MaxHoldMs)) + nonzero("delay", uint64(e.LockDelayMs)) + nonzero("limit", e.Limit) + quoted(" ", e.Reason)
	if e.Waited {
		text += ", it waited"
	}
	if e.Status != wire.Status_UNSPECIFIED {
		text += ", " + e.Status.String()
	}
	if e.Restored {
		text += ", restored"
	}
	return text
}

package top

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// pages lead to every page and every state of the screen.
var pages = map[string]func(*screen){
	"locks":   func(*screen) {},
	"oldest":  func(s *screen) { s.press("s") },
	"prefix":  func(s *screen) { s.press("/"); s.press(strings.Split("orders/", "")...); s.press("enter") },
	"typing":  func(s *screen) { s.press("/", "p", "o") },
	"nothing": func(s *screen) { s.press("/", "z", "enter") },
	"lock": func(s *screen) {
		s.happen(happened()...)
		s.press("enter")
		s.pass(4 * time.Second)
	},
	"deadlock": func(s *screen) {
		s.m.source.(*fakeSource).deadlocks = deadlocks()
		s.press("enter")
	},
	"lock-end": func(s *screen) { s.press("enter", "end") },
	"hostile":  func(s *screen) { s.happen(happened()...); s.press("down", "enter"); s.pass(0) },
	"pool":     func(s *screen) { s.press("j", "j", "enter") },
	"closed":   func(s *screen) { s.press("G", "enter") },
	"gone": func(s *screen) {
		s.press("enter")
		delete(s.m.source.(*fakeSource).locks, "orders/42")
		s.pass(heartbeatInterval)
	},
	"sessions": func(s *screen) { s.press("2") },
	"silence":  func(s *screen) { s.press("2", "s", "s") },
	"session":  func(s *screen) { s.press("2", "down", "enter") },
	"ended":    func(s *screen) { s.press("2", "enter") },
	"events": func(s *screen) {
		s.happen(happened()...)
		s.m.feed.lose()
		s.happen(&wire.Event{Type: wire.Event_RELEASED, Revision: 400, Lock: "a", Locks: []string{"a", "b"}, SessionId: 9, HoldId: 1, Token: 9})
		s.pass(time.Second)
		s.press("tab", "tab", "down")
	},
	"paused": func(s *screen) {
		s.happen(happened()[:2]...)
		s.pass(time.Second)
		s.press("3", "p")
		s.happen(happened()[2:]...)
		s.pass(time.Second)
	},
	"cached": func(s *screen) {
		h := s.m.source.(*fakeSource).locks["orders/42"].GetHolders()[0]
		h.Tokens, h.IdleMs = 64, proto.Uint64(3_000)
		s.press("enter")
		s.pass(time.Second)
	},
	"recalled": func(s *screen) {
		h := s.m.source.(*fakeSource).locks["orders/42"].GetHolders()[0]
		h.Tokens, h.Recalled = 64, true
		s.press("enter")
	},
	"help": func(s *screen) { s.press("?") },
	"stale": func(s *screen) {
		f := s.m.source.(*fakeSource)
		f.err, f.staleErr = client.ErrUnavailable, client.ErrUnavailable
		s.pass(heartbeatInterval)
		s.pass(time.Minute)
	},
	"leaderless": func(s *screen) {
		s.m.source.(*fakeSource).err = client.ErrUnavailable
		s.pass(heartbeatInterval)
	},
	"leader": func(s *screen) {
		f := s.m.source.(*fakeSource)
		f.status = &wire.StatusResponse{ClusterId: f.status.GetClusterId(), LeaderId: "n3", Term: 8, Locks: 1, Nodes: []*wire.NodeStatus{node("n1", false), {Id: "n2", Voter: true}, node("n3", true)}}
		s.pass(heartbeatInterval)
	},
}

// TestFrames compares every page with its golden frames.
func TestFrames(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {160, 50}} {
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			s := newScreen(t, example(), size[0], size[1])
			pages[name](s)
			golden.Compare(t, fmt.Sprintf("%s-%dx%d.txt", name, size[0], size[1]), s.m.frame().plain())
		}
	}
	s := newScreen(t, &fakeSource{err: client.ErrUnavailable, staleErr: client.ErrUnavailable}, 80, 24)
	golden.Compare(t, "connecting-80x24.txt", s.m.frame().plain())
}

// sgr is the only kind of escape sequence in a frame.
var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// TestFramesFit shows every page in many sizes: no line is too long, and no frame too high. What is shown is printable,
// whatever the names are, and has the same text with and without styles.
func TestFramesFit(t *testing.T) {
	for name, lead := range pages {
		s := newScreen(t, example(), 80, 24)
		lead(s)
		for width := 1; width < 170; width += 7 {
			for _, height := range []int{1, 3, 7, 8, 9, 10, 11, 17, 24, 60} {
				s.m.Update(tea.WindowSizeMsg{Width: width, Height: height})
				styled := s.m.View().Content
				lines := strings.Split(styled, "\n")
				if len(lines) != height {
					t.Fatalf("%s: %d lines in a height of %d", name, len(lines), height)
				}
				for _, line := range lines {
					plain := sgr.ReplaceAllString(line, "")
					if ansi.StringWidth(plain) > width {
						t.Fatalf("%s: wider than %d: %q", name, width, plain)
					}
					if at := strings.IndexFunc(plain, func(r rune) bool { return unicode.In(r, unicode.C, unicode.Z) && r != ' ' }); at >= 0 {
						t.Fatalf("%s: a raw %q: %q", name, plain[at:], plain)
					}
				}
			}
		}
	}
}

// TestLinesAreEscaped checks that a line is escaped once more as a whole.
func TestLinesAreEscaped(t *testing.T) {
	f := frame{{{"a\x1b[2J", ""}, {"b\u202e", bold}}}
	if got := f.plain(); got != "a\\x1b[2Jb\\u202e\n" {
		t.Errorf("plain: %q", got)
	}
	if got := f.styled(); got != "a\\x1b[2J\x1b[1mb\\u202e\x1b[0m" {
		t.Errorf("styled: %q", got)
	}
}

// TestSelectionIsVisible moves through a long queue, and checks that the selected line is in every frame.
func TestSelectionIsVisible(t *testing.T) {
	s := newScreen(t, example(), 80, 24)
	s.press("enter")
	for _, keys := range [][]string{slices.Repeat([]string{"down"}, 40), slices.Repeat([]string{"up"}, 40), {"end"}, {"home"}, {"pgdown"}, {"pgdown"}, {"pgup"}} {
		for _, k := range keys {
			s.press(k)
			if !strings.Contains(s.m.View().Content, "\x1b[7m") {
				t.Fatalf("after %s nothing is selected:\n%s", k, s.m.frame().plain())
			}
		}
	}
	s.press("home")
	s.shows("Held by billing")
	s.press("end")
	s.shows("30     41s")
}

// TestWideCharacters checks that columns stay aligned behind characters of two columns.
func TestWideCharacters(t *testing.T) {
	lines := layout([]section{{heads: []string{"NAME", "B"}, rows: []row{{cells: []string{"鍵鍵鍵", "x"}}, {cells: []string{"ab", "x"}}}}}, 80)
	for _, l := range lines[1:] {
		if at := ansi.StringWidth(l.text) - 1; at != 8 || !strings.HasSuffix(l.text, "x") {
			t.Errorf("%q: the second column begins at %d", l.text, at)
		}
	}
}

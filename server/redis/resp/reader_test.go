package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

// meter counts memory, and refuses more than limit.
type meter struct{ held, most, limit int }

var errMeter = errors.New("no memory")

func (m *meter) Reserve(n int) error {
	if m.limit > 0 && m.held+n > m.limit {
		return errMeter
	}
	m.held += n
	m.most = max(m.most, m.held)
	return nil
}

func (m *meter) Release(n int) { m.held -= n }

// chunks is a connection on which data arrives in pieces of the given sizes, in turn.
type chunks struct {
	data  []byte
	sizes []byte
	turn  int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := len(c.data)
	if len(c.sizes) > 0 {
		n = int(c.sizes[c.turn%len(c.sizes)]) + 1
		c.turn++
	}
	n = copy(p, c.data[:min(n, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}

// readAll returns all commands until the first error.
func readAll(r *Reader) (all [][][]byte, err error) {
	for {
		args, err := r.Next()
		if err == nil && args == nil {
			err = r.Fill()
		}
		if err != nil {
			return all, err
		}
		if args != nil {
			all = append(all, args)
		}
	}
}

func read(t *testing.T, input string, limits Limits, sizes ...byte) ([]string, error) {
	t.Helper()
	m := &meter{}
	r := NewReader(&chunks{data: []byte(input), sizes: sizes}, limits, m)
	all, err := readAll(r)
	r.Free()
	if m.held != 0 {
		t.Errorf("%d bytes are still charged", m.held)
	}
	var words []string
	for _, args := range all {
		words = append(words, string(bytes.Join(args, []byte(" "))))
	}
	return words, err
}

// TestCommands checks commands in both forms, in pieces of all sizes.
func TestCommands(t *testing.T) {
	const input = "*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb \r\n" + "PING\r\n" + "*0\r\n" + "\r\n" + "  set a \"b c\" 'd'\n" + "*1\r\n$0\r\n\r\n"
	want := []string{"ECHO a\r\nb ", "PING", "set a b c d", ""}
	for size := range len(input) {
		got, err := read(t, input, DefaultLimits(), byte(size))
		if err != io.EOF || !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d bytes: %q, %v", size+1, got, err)
		}
	}
}

// TestLimits checks that input which violates the protocol or a limit is refused before more of it arrives.
func TestLimits(t *testing.T) {
	limits := Limits{MaxBytes: 100, MaxArguments: 3, MaxInlineBytes: 20}
	for input, want := range map[string]string{
		"*4\r\n":                       "invalid multibulk length",
		"*1000000000\r\n":              "invalid multibulk length",
		"*99999999999999999999999\r\n": "invalid multibulk length",
		"*-1\r\n":                      "invalid multibulk length",
		"*x\r\n":                       "invalid multibulk length",
		"*\r\n":                        "invalid multibulk length",
		"*1\n":                         "invalid multibulk length",
		"*1\r$":                        "invalid multibulk length",
		"*00000000000000000000000":     "invalid multibulk length",
		"*1\r\n$1000000000\r\n":        "invalid bulk length",
		"*1\r\n$-1\r\n":                "invalid bulk length",
		"*1\r\n$-2\r\n\r\n":            "invalid bulk length",
		"*1\r\n$1\r\nabc":              "invalid bulk length",
		"*1\r\n$95\r\n":                "too big command",
		"*2\r\n$40\r\n" + fill(40) + "\r\n$60\r\n": "too big command",
		"*1\r\n+a\r\n":  "expected '$', got '+'",
		"*1\r\n\x00":    "expected '$', got '?'",
		"$1 a\r\n":      "expected '*', got '$'",
		fill(20):        "too big inline request",
		fill(20) + "\n": "too big inline request",
		"a b c d\n":     "invalid multibulk length",
		"a \"b\n":       "unbalanced quotes in request",
	} {
		for _, sizes := range [][]byte{nil, {0}} {
			got, err := read(t, input, limits, sizes...)
			if protocol, ok := err.(ProtocolError); !ok || string(protocol) != want || len(got) > 0 {
				t.Errorf("%.30q: %q, %v, want %s", input, got, err, want)
			}
		}
	}
	if got, err := read(t, "*1\r\n$88\r\n"+fill(88)+"\r\n"+fill(19)+"\n", limits); err != io.EOF || len(got) != 2 {
		t.Errorf("at the limits: %q, %v", got, err)
	}
}

func fill(n int) string { return strings.Repeat("x", n) }

// TestMemory checks that memory grows with what arrives and not with what is announced, and shrinks again.
func TestMemory(t *testing.T) {
	limits := DefaultLimits()
	m := &meter{}
	in := &chunks{data: []byte("*2\r\n$4\r\nECHO\r\n$1000000\r\n")}
	r := NewReader(in, limits, m)
	if _, err := readAll(r); err != io.EOF || m.most != 0 {
		t.Errorf("%v; %d bytes for an announced argument", err, m.most)
	}
	long := encoded("ECHO", fill(1_000_000))
	r = NewReader(&chunks{data: []byte(long + "PING\r\n")}, limits, m)
	if got, err := readAll(r); err != io.EOF || len(got) != 2 || m.most > 3<<20 || m.held != 0 {
		t.Errorf("%d commands, %v; %d bytes at most, %d held", len(got), err, m.most, m.held)
	}
	m = &meter{}
	r = NewReader(&chunks{data: []byte(long + "PING\r\n")}, limits, m)
	for {
		if args, _ := r.Next(); args != nil {
			break
		}
		if err := r.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	with := m.held
	_, _ = r.Next()
	if left := m.held; with-left < 1_000_000 {
		t.Errorf("%d bytes are charged with a returned command, %d without", with, left)
	}
	m = &meter{limit: 8 << 10}
	if _, err := readAll(NewReader(&chunks{data: []byte(long)}, limits, m)); err != errMeter {
		t.Errorf("beyond the budget: %v", err)
	}
}

func encoded(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// FuzzRESP checks that any input in any pieces is read in the same way, within the memory of the limits, and as redcon
// reads it as far as it is valid.
func FuzzRESP(f *testing.F) {
	for _, seed := range []string{
		encoded("SET", "k", "v", "NX", "PX", "100"), "PING\r\n", "*1\r\n$-2\r\n\r\n", "*3\r\n", "$3 abc\r\n", "a 'b\\n' \"c\"\r\n",
		"*0\r\n*1\r\n$0\r\n\r\n", "*2\r\n$4\r\nECHO\r\n$99999\r\n",
	} {
		f.Add([]byte(seed), []byte{0, 3, 1})
	}
	limits := Limits{MaxBytes: 64 << 10, MaxArguments: 16, MaxInlineBytes: 1 << 10}
	f.Fuzz(func(t *testing.T, input, sizes []byte) {
		m := &meter{}
		whole, err := readAll(NewReader(&chunks{data: input}, limits, m))
		pieces, errPieces := readAll(NewReader(&chunks{data: input, sizes: sizes}, limits, m))
		if fmt.Sprintf("%q %v", whole, err) != fmt.Sprintf("%q %v", pieces, errPieces) {
			t.Fatalf("whole %q, %v; in pieces %q, %v", whole, err, pieces, errPieces)
		}
		if m.most > 8*limits.MaxBytes {
			t.Fatalf("%d bytes are charged", m.most)
		}
		rest := input
		for _, args := range whole {
			for {
				complete, theirs, _, next, err := redcon.ReadNextCommand(rest, nil)
				if err != nil || !complete {
					t.Fatalf("redcon does not read %q: %v", args, err)
				}
				rest = next
				if len(theirs) == 0 {
					continue // an empty command
				}
				if fmt.Sprintf("%q", theirs) != fmt.Sprintf("%q", args) {
					t.Fatalf("%q, redcon reads %q", args, theirs)
				}
				break
			}
		}
	})
}

//go:build unix

package transport

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// scripted is a connection whose results the test sets.
type scripted struct {
	net.Conn
	secured, deadline, half error
	read, written           error // returned by Read, without data, and by Write
	reads, closes           int

	mu        sync.Mutex
	deadlines []time.Time
}

func (c *scripted) HandshakeContext(context.Context) error { return c.secured }
func (c *scripted) CloseWrite() error                      { return c.half }
func (c *scripted) Close() error                           { c.closes++; return nil }
func (c *scripted) RemoteAddr() net.Addr                   { return &net.TCPAddr{} }
func (c *scripted) SetReadDeadline(time.Time) error        { return nil }
func (c *scripted) Read([]byte) (int, error)               { c.reads++; return 0, c.read }
func (c *scripted) Write(b []byte) (int, error)            { return len(b), c.written }
func (c *scripted) SetDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadlines = append(c.deadlines, at)
	return c.deadline
}

func TestHangupReadsOnlyAHalfClosedConnection(t *testing.T) {
	for half, reads := range map[error]int{nil: 1, errors.ErrUnsupported: 0} {
		c := &scripted{half: half, read: io.EOF}
		if Hangup(c, time.Second); c.reads != reads || c.closes != 1 {
			t.Errorf("half: %v: read %d times, closed %d times", half, c.reads, c.closes)
		}
	}
}

func TestHandshakesReportWhatFails(t *testing.T) {
	wrong := errors.New("wrong")
	ends := map[string]func(net.Conn) error{
		"client": func(c net.Conn) error {
			_, _, err := ClientHandshake(t.Context(), c, nil)
			return err
		},
		"server": func(c net.Conn) error {
			_, _, err := ServerHandshake(t.Context(), c, func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) { return &wire.HelloReply{}, nil })
			return err
		},
	}
	for what, c := range map[string]*scripted{
		"tls": {secured: wrong, read: io.EOF}, "deadline": {deadline: wrong, read: io.EOF}, "read": {read: wrong},
	} {
		for end, handshake := range ends {
			if err := handshake(c); !errors.Is(err, wrong) {
				t.Errorf("%s, %s: %v", end, what, err)
			}
		}
	}
	prefaceOnly := said(t, func(conn net.Conn) { _, _ = io.WriteString(conn, Preface); _ = conn.Close() })
	if err := ends["server"](prefaceOnly); !errors.Is(err, io.EOF) {
		t.Errorf("server, no hello: %v", err)
	}
	if err := ends["client"](&scripted{written: wrong, read: io.EOF}); !errors.Is(err, wrong) {
		t.Errorf("client, write: %v", err)
	}
}

// said returns a connection to a peer that runs speak.
func said(t *testing.T, speak func(conn net.Conn)) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); speak(theirs) }()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close(); <-done })
	return ours
}

func TestBoundsThatANodeAnswers(t *testing.T) {
	for answered, want := range map[uint32]uint32{0: DefaultMaxFrame, 1000: 1000, FrameCeiling: FrameCeiling, FrameCeiling + 1: FrameCeiling} {
		conn := said(t, func(conn net.Conn) {
			r := NewFrameReader(conn, 1000)
			_, _ = r.ReadPreface(), r.Read(&wire.ClientFrame{})
			_ = NewFrameWriter(conn, 1000).Write(&wire.ServerFrame{Frame: &wire.ServerFrame_Hello{Hello: &wire.HelloReply{Version: 1, MaxFrameBytes: answered}}})
		})
		reply, r, err := ClientHandshake(t.Context(), conn, nil)
		if err != nil || reply.GetMaxFrameBytes() != want || r.max != int(want) {
			t.Errorf("a node answers %d: %v, %v", answered, reply, err)
		}
	}
	hello := func(conn net.Conn) {
		_ = NewFrameWriter(conn, 1000).WriteFirst(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}})
		_, _ = io.Copy(io.Discard, conn)
	}
	for given, want := range map[uint32]int{0: DefaultMaxFrame, 77: 77} {
		_, r, err := ServerHandshake(t.Context(), said(t, hello), func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
			return &wire.HelloReply{MaxFrameBytes: given}, nil
		})
		if err != nil || r.max != want {
			t.Errorf("a node that gives %d: %v", given, err)
		}
	}
	first := func(conn net.Conn) {
		_ = NewFrameWriter(conn, 1000).WriteFirst(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}})
		_ = conn.Close()
	}
	if _, _, err := ServerHandshake(t.Context(), said(t, first), func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
		return &wire.HelloReply{}, nil
	}); err == nil {
		t.Error("an answer that was not written is no error")
	}
}

// TestWithinReportsWhyItEnded checks that Within returns the error of the function, of its context, or both.
func TestWithinReportsWhyItEnded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		for name, c := range map[string]struct {
			err     error
			late    bool
			wants   []error
			wantNot error
		}{
			"done":            {nil, false, nil, context.DeadlineExceeded},
			"failed":          {failed, false, []error{failed}, context.DeadlineExceeded},
			"done too late":   {nil, true, []error{context.DeadlineExceeded}, failed},
			"failed too late": {failed, true, []error{failed, context.DeadlineExceeded}, nil},
		} {
			conn := &scripted{}
			err := Within(t.Context(), conn, time.Second, func(ctx context.Context) error {
				if c.late {
					<-ctx.Done()
					<-time.After(time.Millisecond)
				}
				return c.err
			})
			synctest.Wait()
			for _, want := range c.wants {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			}
			if (err == nil) != (len(c.wants) == 0) || c.wantNot != nil && errors.Is(err, c.wantNot) {
				t.Errorf("%s: %v", name, err)
			}
			conn.mu.Lock()
			if got := len(conn.deadlines); got != 1 != c.late || !conn.deadlines[0].IsZero() {
				t.Errorf("%s: deadlines %v", name, conn.deadlines)
			}
			conn.mu.Unlock()
			if !c.late && c.err == nil && err != nil || c.err == failed && !c.late && err != failed {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// unreachable is a Network without connections.
type unreachable struct {
	conn net.Conn
	err  error
}

func (u unreachable) Listen(context.Context, string) (net.Listener, error) { return nil, u.err }
func (u unreachable) Dial(context.Context, string) (net.Conn, error)       { return u.conn, u.err }

func TestDialReportsWhatFails(t *testing.T) {
	away := errors.New("away")
	for _, config := range []*tls.Config{nil, {}} {
		if conn, err := Dial(t.Context(), unreachable{err: away}, "a:1", config); conn != nil || !errors.Is(err, away) {
			t.Errorf("%v, %v, want that it is away", conn, err)
		}
	}
	conn := &scripted{read: io.EOF}
	if got, err := Dial(t.Context(), unreachable{conn: conn}, "a:1", nil); got != conn || err != nil {
		t.Errorf("%v, %v, want the connection as it is", got, err)
	}
	for _, addr := range []string{"without-a-port", "a:1"} {
		conn := &scripted{written: away}
		if got, err := Dial(t.Context(), unreachable{conn: conn}, addr, &tls.Config{}); got != nil || err == nil || conn.closes == 0 {
			t.Errorf("%s: %v, %v, closed %d times", addr, got, err, conn.closes)
		}
	}
}

// TestNamesThatCertificatesHaveToHave checks that a certificate must name the host that was dialled,
// unless the configuration names another one.
func TestNamesThatCertificatesHaveToHave(t *testing.T) {
	for _, c := range []struct {
		config  *tls.Config
		addr    string
		want    string
		wantErr bool
	}{
		{&tls.Config{}, "host:1", "host", false},
		{&tls.Config{}, "[::1]:1", "::1", false},
		{&tls.Config{}, "host", "", true},
		{&tls.Config{ServerName: "other"}, "host:1", "other", false},
		{&tls.Config{ServerName: "other"}, "host", "other", false},
		{&tls.Config{InsecureSkipVerify: true}, "host:1", "", false}, //nolint:gosec // what is tested
		{&tls.Config{InsecureSkipVerify: true}, "host", "", false},   //nolint:gosec // what is tested
	} {
		named := c.config.ServerName
		got, err := forHost(c.config, c.addr)
		if (err != nil) != c.wantErr || err == nil && got.ServerName != c.want {
			t.Errorf("%s, %q: %v, %v", c.addr, named, got, err)
		}
		if c.config.ServerName != named {
			t.Errorf("%s: the caller's configuration is another", c.addr)
		}
	}
}

// described is a connection with any descriptor.
type described struct {
	net.Conn
	raw syscall.RawConn
	err error
}

func (d described) Descriptor() (syscall.RawConn, error) { return d.raw, d.err }

// TestConnectionsWithoutHints checks that only an open TCP connection reports how much there is to read.
func TestConnectionsWithoutHints(t *testing.T) {
	at := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if newSocketReader(NewFrameReader(described{Conn: conn, raw: raw}, 1), nil) != nil {
		t.Error("a connection that is not TCP gives hints")
	}
	if raw := descriptor(described{raw: raw, err: errors.New("none")}); raw != nil {
		t.Error("a descriptor that is an error")
	}
	_ = conn.Close()
	if giveHints(raw) {
		t.Error("a connection that is closed gives hints")
	}
}

// stampsOf returns the stamps of files.
func stampsOf(t *testing.T, names ...string) []stamp {
	t.Helper()
	var all []stamp
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stamp{info})
	}
	return all
}

// TestChangesOfFiles checks that a file counts as changed if only its inode, its size or its time differs.
func TestChangesOfFiles(t *testing.T) {
	when := time.Unix(1_700_000_000, 0)
	write := func(name, content string, at time.Time) {
		if err := errors.Join(os.WriteFile(name, []byte(content), 0o600), os.Chtimes(name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(name string)
		same   bool
	}{
		"nothing":                   {func(string) {}, true},
		"the same, written again":   {func(name string) { write(name, "abc", when) }, true},
		"another time":              {func(name string) { write(name, "abc", when.Add(time.Second)) }, false},
		"another size":              {func(name string) { write(name, "abcd", when) }, false},
		"replaced by renaming only": {func(name string) { write(name+"2", "abc", when); _ = os.Rename(name+"2", name) }, false},
	} {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		write(a, "abc", when)
		write(b, "abc", when)
		before := stampsOf(t, a, b)
		c.change(b)
		if got := same(before, stampsOf(t, a, b)); got != c.same {
			t.Errorf("%s: the same: %t", name, got)
		}
		if same(before, before[:1]) || same(nil, before) {
			t.Errorf("%s: a missing file is not missed", name)
		}
	}
}

// TestFilesAreLookedAtOnceASecond checks that files are checked at most once a second.
func TestFilesAreLookedAtOnceASecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ca := filepath.Join(t.TempDir(), "ca.crt")
		reports := 0
		s := &Credentials{files: TLSFiles{CA: ca}, report: func(error) { reports++ }, held: &material{}, stamps: []stamp{}, checked: time.Now()}
		for _, step := range []struct {
			pause time.Duration
			write string
			want  int // reports so far
		}{
			{checkEvery - 1, "a", 0}, {1, "a", 1},
			{checkEvery - 1, "ab", 1}, {1, "", 2},
			{checkEvery, "", 2}, {checkEvery, "abc", 3},
		} {
			if step.write != "" {
				if err := os.WriteFile(ca, []byte(step.write), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(step.pause)
			if s.current(); reports != step.want {
				t.Errorf("after %v: %d reports, want %d", step.pause, reports, step.want)
			}
		}
		_ = os.Remove(ca)
		for range 3 {
			<-time.After(checkEvery)
			if s.current(); reports != 4 {
				t.Errorf("missing: %d reports, want 4", reports)
			}
		}
	})
}

func TestTLSFilesThatAreNotThere(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, f := range map[string]TLSFiles{
		"CA": {CA: none}, "certificate": {Cert: none, Key: none}, "certificate alone": {Cert: none}, "key alone": {Key: none},
	} {
		if f.IsZero() {
			t.Errorf("%s: no file is named", name)
		}
		if _, err := f.ClientConfig(); !errors.Is(err, ErrTLSFiles) {
			t.Errorf("%s, client: %v", name, err)
		}
		if _, _, err := f.Peer(); !errors.Is(err, ErrTLSFiles) {
			t.Errorf("%s, peer: %v", name, err)
		}
	}
	if _, err := (TLSFiles{CA: none}).load(); !errors.Is(err, ErrTLSFiles) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("loading a CA that is gone: %v", err)
	}
	if !(TLSFiles{}).IsZero() {
		t.Error("none is named, and one is")
	}
	if _, _, err := (TLSFiles{}).Peer(); !errors.Is(err, ErrTLSFiles) {
		t.Errorf("a peer without a certificate: %v", err)
	}
}

// asked records the calls of BeforeRead.
type asked struct {
	Receiver
	rested []bool
}

func (a *asked) Decode([]byte) error           { return nil }
func (a *asked) Received() error               { return nil }
func (a *asked) BeforeRead(started bool) error { a.rested = append(a.rested, started); return nil }

// TestBeforeReadLearnsOfPartialFrames checks that BeforeRead learns of a partial frame, even of one byte of its length.
func TestBeforeReadLearnsOfPartialFrames(t *testing.T) {
	frame := binary.BigEndian.AppendUint32(nil, 2)
	frame = append(frame, 1, 2)
	for extra := range len(frame) {
		r := NewFrameReader(nil, 10)
		r.end = copy(r.buf, append(append([]byte{}, frame...), frame[:extra]...))
		to := &asked{}
		if err := r.received(to); err != nil || len(to.rested) != 1 || to.rested[0] != (extra > 0) {
			t.Errorf("%d bytes more: %v, %v", extra, to.rested, err)
		}
	}
}

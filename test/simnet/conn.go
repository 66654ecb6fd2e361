package simnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes may be in flight in one direction before Write blocks.
const window = 256 << 10

// segment is one Write in flight.
type segment struct {
	data []byte
	at   time.Time
}

// stream is one direction of a connection.
type stream struct {
	net  *Net
	link link

	mu       sync.Mutex
	queue    []segment
	size     int
	last     time.Time // arrival of the newest segment: segments stay in order
	ended    bool      // the writer closed; queued segments still arrive
	broken   error     // both ends fail immediately
	news     chan struct{}
	deadRead time.Time
	deadSend time.Time
}

func newStream(n *Net, l link) *stream { return &stream{net: n, link: l, news: make(chan struct{})} }

// tell wakes both ends. The caller must hold mu.
func (s *stream) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *stream) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.tell()
}

// wait blocks until a channel is closed, or until the given time.
func wait(until time.Time, channels ...<-chan struct{}) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(max(0, time.Until(until)))
		defer timer.Stop()
		due = timer.C
	}
	var first, second <-chan struct{}
	first = channels[0]
	if len(channels) > 1 {
		second = channels[1]
	}
	select {
	case <-due:
	case <-first:
	case <-second:
	}
}

func passed(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *stream) read(b []byte) (int, error) {
	for {
		cut, changed := s.net.streamState(s)
		s.mu.Lock()
		if s.broken != nil {
			defer s.mu.Unlock()
			return 0, s.broken
		}
		if passed(s.deadRead) {
			s.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		until := s.deadRead
		if len(s.queue) > 0 && !cut {
			if at := s.queue[0].at; time.Now().Before(at) {
				until = earlier(until, at)
			} else {
				n := s.takeLocked(b)
				s.mu.Unlock()
				return n, nil
			}
		}
		if len(s.queue) == 0 && s.ended && !cut {
			s.mu.Unlock()
			return 0, io.EOF
		}
		news := s.news
		s.mu.Unlock()
		wait(until, news, changed)
	}
}

// takeLocked copies what has arrived of the first segment to the reader.
func (s *stream) takeLocked(b []byte) int {
	n := copy(b, s.queue[0].data)
	s.queue[0].data = s.queue[0].data[n:]
	s.size -= n
	if len(s.queue[0].data) == 0 {
		s.queue = s.queue[1:]
	}
	s.tell()
	return n
}

func (s *stream) write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		s.mu.Lock()
		switch {
		case s.broken != nil:
			defer s.mu.Unlock()
			return written, s.broken
		case s.ended:
			s.mu.Unlock()
			return written, net.ErrClosed
		case passed(s.deadSend):
			s.mu.Unlock()
			return written, os.ErrDeadlineExceeded
		}
		if room := window - s.size; room > 0 {
			part := b[written:min(len(b), written+room)]
			at := s.net.segmentArrival(s, s.last)
			s.last = at
			s.queue = append(s.queue, segment{append([]byte(nil), part...), at})
			s.size += len(part)
			written += len(part)
			s.tell()
			s.mu.Unlock()
			continue
		}
		news, until := s.news, s.deadSend
		s.mu.Unlock()
		wait(until, news)
	}
	return written, nil
}

// conn is one end of a connection.
type conn struct {
	net           *Net
	local, remote address
	dialled       bool // this end dialled
	in, out       *stream
	once          sync.Once
}

func pair(n *Net, from, to address) (near, far *conn) {
	there, back := newStream(n, link{from.host, to.host}), newStream(n, link{to.host, from.host})
	return &conn{net: n, local: from, remote: to, dialled: true, in: back, out: there},
		&conn{net: n, local: to, remote: from, in: there, out: back}
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr         { return c.local }
func (c *conn) RemoteAddr() net.Addr        { return c.remote }

// CloseWrite ends this end's stream. What was written still arrives.
func (c *conn) CloseWrite() error {
	c.out.update(func() { c.out.ended = true })
	return nil
}

// Close ends both directions. The other end reads what is in flight, then EOF.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = nil
		c.forget()
		c.out.update(func() { c.out.ended = true })
		c.in.update(func() { c.in.broken = net.ErrClosed })
	})
	return err
}

// reset makes both ends fail immediately.
func (c *conn) reset() {
	c.forget()
	for _, s := range []*stream{c.in, c.out} {
		s.update(func() {
			if s.broken == nil {
				s.broken = syscall.ECONNRESET
			}
		})
	}
}

func (c *conn) forget() {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.conns, c)
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.update(func() { c.in.deadRead = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.update(func() { c.out.deadSend = t })
	return nil
}

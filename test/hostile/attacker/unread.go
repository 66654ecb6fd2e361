package attacker

import (
	"context"
	"encoding/binary"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// smallBuffer is the size of the receive buffer of connections that do not read.
	smallBuffer = 4 << 10
	// pipelined is the number of requests that a connection that does not read sends in one go.
	pipelined = 200
	// watchesPerConn is the maximum number of watches on a connection.
	watchesPerConn = 16
	// slowly is how many bytes a slow reader reads at a time, slowInterval how often.
	slowly, slowInterval = 1 << 10, 250 * time.Millisecond
)

// unreadLists requests many pages of locks on many connections, and reads none.
func (a *attack) unreadLists(ctx context.Context) error {
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error {
		return a.pipeline(ctx, func(f *rpcConn) error { return awaitCut(ctx, f) })
	})
	return nil
}

// slowReaders does the same but reads, far more slowly than the node could send.
func (a *attack) slowReaders(ctx context.Context) error {
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, i int) error {
		if i%4 == 0 {
			return a.slowHTTP(ctx)
		}
		return a.pipeline(ctx, func(f *rpcConn) error {
			for ctx.Err() == nil {
				n, err := io.CopyN(io.Discard, f.Conn, slowly)
				a.bytesRead.Add(n)
				if err != nil {
					return err
				}
				rest(ctx, slowInterval)
			}
			return nil
		})
	})
	return nil
}

// unread sends n requests on a connection that does not read, and then calls then.
func (a *attack) unread(ctx context.Context, n int, request func() *wire.Request, then func(*rpcConn) error) error {
	f, err := a.rpcConn(ctx, smallBuffer)
	if err != nil {
		return err
	}
	defer f.close()
	stop := context.AfterFunc(ctx, func() { _ = f.tcp.Close() })
	defer stop()
	for range n {
		if err := f.send(request()); err != nil {
			return err
		}
	}
	if err := f.w.Flush(); err != nil {
		return err
	}
	return then(f)
}

// pipeline sends many requests for pages, at the attack's pace, and then calls then.
func (a *attack) pipeline(ctx context.Context, then func(*rpcConn) error) error {
	return a.unread(ctx, pipelined, func() *wire.Request {
		a.pace.wait(ctx)
		return listLocks()
	}, then)
}

// awaitCut returns when the node has closed a connection that is not read.
func awaitCut(ctx context.Context, f *rpcConn) error {
	ping, err := proto.Marshal(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Id: 1 << 40, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}}}})
	if err != nil {
		return err
	}
	for ctx.Err() == nil { // a write fails once it is closed
		rest(ctx, time.Second)
		_ = f.SetWriteDeadline(time.Now().Add(time.Second))
		_ = f.write(ping)
		if err := f.w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// unreadListsHTTP fills connections with streams whose answers cannot be sent, since their window is 0.
func (a *attack) unreadListsHTTP(ctx context.Context) error {
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error {
		return a.streams(ctx, 0, maxStreams, func(h *http2) error {
			return h.post("/quorumlock.v1.LockService/List", "application/json", []byte(`{"pageSize":1000}`), -1)
		}, nil)
	})
	return nil
}

// slowHTTP reads a little of every answer at a time.
func (a *attack) slowHTTP(ctx context.Context) error {
	const streams = 50
	return a.streams(ctx, slowly, streams, func(h *http2) error {
		return h.post("/quorumlock.v1.LockService/List", "application/json", []byte(`{"pageSize":1000}`), -1)
	}, func(h *http2) error {
		for stream := uint32(1); stream < h.next; stream += 2 {
			if err := h.allow(stream, slowly); err != nil {
				return err
			}
		}
		return h.allow(0, streams*slowly)
	})
}

// streams opens an HTTP/2 connection with n requests, and calls tick regularly until the connection ends.
func (a *attack) streams(ctx context.Context, window uint32, n int, request func(*http2) error, tick func(*http2) error) error {
	h, err := a.http2(ctx, 0, window)
	if err != nil {
		return err
	}
	defer h.close()
	ended := make(chan error, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer h.close()
	reading.Go(func() {
		ended <- h.read(func(kind byte, _ uint32, _ int) {
			if kind == frameHeaders {
				a.answered.Add(1)
			}
		})
	})
	for range n {
		a.pace.wait(ctx)
		if err := request(h); err != nil {
			return err
		}
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(slowInterval):
		}
		if tick != nil {
			if err := tick(h); err != nil {
				return err
			}
		}
	}
}

// unreadWatches opens watches of everything and reads none of their events, while another connection causes
// events with large values.
func (a *attack) unreadWatches(ctx context.Context) error {
	return a.beside(ctx, a.events, func(ctx context.Context) error {
		watch := &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{Prefix: "attack/"}}}
		return a.unread(ctx, watchesPerConn, func() *wire.Request { return watch }, func(f *rpcConn) error { return awaitCut(ctx, f) })
	})
}

// unreadWatchesHTTP does the same over HTTP/2.
func (a *attack) unreadWatchesHTTP(ctx context.Context) error {
	body := []byte(`{"prefix":"attack/"}`)
	envelope := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	return a.beside(ctx, a.events, func(ctx context.Context) error {
		return a.streams(ctx, 0, watchesPerConn, func(h *http2) error {
			return h.post("/quorumlock.v1.LockService/Watch", "application/connect+json", envelope, -1)
		}, nil)
	})
}

// beside runs one on a single connection, and others on all other connections.
func (a *attack) beside(ctx context.Context, one, others func(context.Context) error) error {
	a.ready.Store(true)
	var all sync.WaitGroup
	all.Go(func() { a.each(ctx, 1, func(ctx context.Context, _ int) error { return one(ctx) }) })
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error { return others(ctx) })
	all.Wait()
	return nil
}

// events sets the value of one hold repeatedly. Each time causes an event of that size.
func (a *attack) events(ctx context.Context) error { return a.setValues(ctx, "attack/events") }

func (a *attack) setValues(ctx context.Context, lock string) error {
	const valueBytes = 1_000
	return a.withSession(ctx, func(s *sessions, id uint64) error {
		resp, err := s.f.call(acquire(id, 1, 0, false, &wire.LockRequest{Name: lock}))
		if err != nil {
			return err
		}
		hold, seq := resp.GetResult(), uint64(1)
		return s.f.stream(ctx, s.mixed(func() []byte {
			seq++
			req := &wire.Request{SessionId: id, Seq: seq, Body: &wire.Request_SetValue{SetValue: &wire.SetValue{
				HoldId: hold.GetHoldId(), Token: hold.GetToken(), Value: make([]byte, valueBytes),
			}}}
			req.AckedBelow = acknowledged(seq)
			return s.f.frame(req)
		}))
	})
}

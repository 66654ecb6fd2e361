package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Version is the highest version of the session protocol that this program supports.
	Version = 1
	// HandshakeTimeout bounds a handshake, including TLS, whatever its context allows.
	HandshakeTimeout = 5 * time.Second

	// maxHello bounds the first frames, in bytes, before the peer is known.
	maxHello = 4 << 10
)

// ErrVersion is returned when both sides have no version in common.
var ErrVersion = errors.New("no protocol version in common")

// Negotiate returns the version of a connection, given the highest that the client offers; 0 if there is none.
func Negotiate(offered uint32) uint32 { return min(offered, Version) }

// ClientHandshake opens the protocol on a new connection: it completes the TLS handshake if conn is TLS,
// sends the preface and hello, and reads the answer. It offers Version if hello names none. All further
// frames must be read with the returned reader, whose limit is max_frame_bytes of the answer. The same
// limit applies to what the client sends.
//
// The handshake ends with ctx and takes at most HandshakeTimeout. ClientHandshake returns a
// *GoodbyeError if the node refuses, and ErrVersion if the node answers with a version that was not
// offered. It never closes conn.
func ClientHandshake(ctx context.Context, conn net.Conn, hello *wire.Hello) (*wire.HelloReply, *FrameReader, error) {
	offer := &wire.Hello{Version: hello.GetVersion(), Agent: hello.GetAgent(), TunnelTo: hello.GetTunnelTo(), AuthToken: hello.GetAuthToken()}
	if offer.Version == 0 {
		offer.Version = Version
	}
	r := NewFrameReader(conn, DefaultMaxFrame)
	var reply *wire.HelloReply
	err := Within(ctx, conn, HandshakeTimeout, func(ctx context.Context) (err error) {
		if err := secure(ctx, conn); err != nil {
			return err
		}
		first := &wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: offer}}
		if err := NewFrameWriter(conn, maxHello).WriteFirst(first); err != nil {
			return err
		}
		reply, err = readReply(r, offer.Version)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("handshake with %s: %w", conn.RemoteAddr(), err)
	}
	if reply.MaxFrameBytes == 0 {
		reply.MaxFrameBytes = DefaultMaxFrame
	}
	reply.MaxFrameBytes = min(reply.MaxFrameBytes, FrameCeiling)
	r.SetMax(int(reply.MaxFrameBytes))
	return reply, r, nil
}

func readReply(r *FrameReader, offered uint32) (*wire.HelloReply, error) {
	var f wire.ServerFrame
	if err := r.Read(&f); err != nil {
		return nil, err
	}
	switch f := f.Frame.(type) {
	case *wire.ServerFrame_Hello:
		if v := f.Hello.GetVersion(); v == 0 || v > offered {
			return nil, fmt.Errorf("%w: offered up to %d, the node answers %d", ErrVersion, offered, v)
		}
		return f.Hello, nil
	case *wire.ServerFrame_Goodbye:
		return nil, &GoodbyeError{Code: f.Goodbye.GetCode(), Message: f.Goodbye.GetMessage()}
	default:
		return nil, fmt.Errorf("%w: expected the answer to the hello, got %T", ErrMalformed, f)
	}
}

// ServerHandshake is the node's side of the handshake. It calls answer for the reply to the client's
// hello, sets the version in the reply and sends it. If answer returns a goodbye instead, ServerHandshake
// sends it and returns it as a *GoodbyeError. All further frames must be read with the returned reader,
// whose limit is max_frame_bytes of the reply.
//
// The handshake ends with ctx and takes at most HandshakeTimeout. ServerHandshake returns a *PrefaceError
// if the caller is not a client of this protocol. It never closes conn: use Hangup after an error, so
// that the client can read the reason.
func ServerHandshake(ctx context.Context, conn net.Conn,
	answer func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye),
) (*wire.Hello, *FrameReader, error) {
	r := NewFrameReader(conn, maxHello)
	var hello *wire.Hello
	err := Within(ctx, conn, HandshakeTimeout, func(ctx context.Context) (err error) {
		if err := secure(ctx, conn); err != nil {
			return err
		}
		if err := r.ReadPreface(); err != nil {
			return err
		}
		reply, err := receive(r, &hello, answer)
		frame := &wire.ServerFrame{Frame: &wire.ServerFrame_Hello{Hello: reply}}
		var bye *GoodbyeError
		if errors.As(err, &bye) {
			frame = GoodbyeFrame(bye.Code, bye.Message)
		} else if err != nil {
			return err
		}
		if werr := NewFrameWriter(conn, maxHello).Write(frame); werr != nil {
			return errors.Join(err, werr)
		}
		r.SetMax(int(reply.GetMaxFrameBytes()))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("handshake with %s: %w", conn.RemoteAddr(), err)
	}
	return hello, r, nil
}

// receive reads the hello and decides. A reason for the client is returned as a *GoodbyeError.
func receive(r *FrameReader, hello **wire.Hello,
	answer func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye),
) (*wire.HelloReply, error) {
	var f wire.ClientFrame
	switch err := r.Read(&f); {
	case errors.Is(err, ErrFrameTooLarge):
		return nil, errors.Join(&GoodbyeError{wire.Goodbye_FRAME_TOO_LARGE, err.Error()}, err)
	case errors.Is(err, ErrMalformed):
		return nil, errors.Join(&GoodbyeError{wire.Goodbye_PROTOCOL_ERROR, err.Error()}, err)
	case err != nil:
		return nil, err
	case f.GetHello() == nil:
		return nil, &GoodbyeError{wire.Goodbye_PROTOCOL_ERROR, "the first frame has to be a hello"}
	}
	*hello = f.GetHello()
	version := Negotiate(f.GetHello().GetVersion())
	if version == 0 {
		return nil, &GoodbyeError{wire.Goodbye_VERSION, fmt.Sprintf("offer a protocol version from 1 to %d", Version)}
	}
	reply, bye := answer(f.GetHello())
	if bye != nil {
		return nil, &GoodbyeError{bye.GetCode(), bye.GetMessage()}
	}
	reply.Version = version
	if reply.MaxFrameBytes == 0 {
		reply.MaxFrameBytes = DefaultMaxFrame
	}
	return reply, nil
}

// secure completes the TLS handshake, so that a TLS error is not mistaken for a protocol error.
func secure(ctx context.Context, conn net.Conn) error {
	t, ok := conn.(interface {
		HandshakeContext(context.Context) error
	})
	if !ok {
		return nil
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

// Within runs f, whose reads and writes on conn fail when ctx ends or limit has passed. Afterwards conn
// has no deadline. After an error conn is unusable.
func Within(ctx context.Context, conn net.Conn, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	// Only ctx measures the time: a deadline of conn's own could pass a moment before ctx ends, and its
	// error would not name ctx as the reason.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := f(ctx)
	if !stop() && err == nil {
		err = ctx.Err() // conn already has a deadline in the past
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return err
}

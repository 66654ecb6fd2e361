package rpc

import (
	"errors"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/callers"
	"github.com/quorumlock/quorumlock/server/internal/tunnel"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// authenticate determines who a client is. A goodbye refuses it.
func (s *Server) authenticate(l *link, hello *wire.Hello) (*access.Caller, *wire.Goodbye) {
	var origin *wire.Caller
	if arrived, ok := l.Conn.(*tunnel.Arrived); ok {
		origin = arrived.Caller()
	}
	caller, err := s.callers.Authenticate(l.Conn, hello.GetAuthToken(), origin)
	if err != nil {
		return nil, goodbyeFor(err)
	}
	return caller, nil
}

func goodbyeFor(err error) *wire.Goodbye {
	code := wire.Goodbye_UNAUTHENTICATED
	if errors.Is(err, access.ErrNoRole) {
		code = wire.Goodbye_PERMISSION_DENIED
	}
	return &wire.Goodbye{Code: code, Message: err.Error()}
}

// connected registers a connection, which has to end when its caller may not stay.
func (s *Server) connected(caller *access.Caller, l *link, end func(wire.Goodbye_Code, string)) (remove func()) {
	return s.callers.Add(&callers.Connection{Caller: caller, Conn: l.Conn, End: func(err error) {
		bye := goodbyeFor(err)
		end(bye.Code, bye.Message)
	}})
}

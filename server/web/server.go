package web

import (
	"context"
	"net"
	"net/http"
)

// Server is the HTTP port of one node.
type Server struct {
	cfg  Config
	http *http.Server
}

// New makes a server; it listens once [Server.Serve] is called. Its errors are
// [ErrConfig], and those of the certificates.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, http: &http.Server{ReadHeaderTimeout: cfg.Limits.HeaderTimeout}}, nil
}

// Serve accepts on l, which it closes in the end, until [Server.Close], then returns
// nil. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Close takes no new requests, tells those that wait to go elsewhere, and returns
// when all have ended or ctx is done, which cuts them off.
func (s *Server) Close(ctx context.Context) error {
	return s.http.Shutdown(ctx)
}

package health

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/handshake"
)

const (
	// maxConns bounds the open connections. A single address may have half of them. Beyond either bound the
	// oldest is closed.
	maxConns = 64
	// timeout bounds each phase of a request.
	timeout = 2 * time.Second
	// maxHeader bounds a request's headers, in bytes.
	maxHeader = 4 << 10
)

// Server is the health listener of a node.
type Server struct {
	http *http.Server
	done chan struct{} // closed when serving has stopped
}

// Serve starts answering on l. Close stops it and closes l. failed is called at most once, if the listener
// fails before Close.
func Serve(l net.Listener, p *Probe, failed func(error)) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+AlivePath, p.ServeAlive)
	mux.HandleFunc("GET "+ReadyPath, p.ServeReady)
	s := &Server{done: make(chan struct{}), http: &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: timeout,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(io.Discard, "", 0),
	}}
	s.http.SetKeepAlivesEnabled(false) // so that no client occupies a place
	go func() {
		defer close(s.done)
		bounded := &listener{Listener: l, conns: handshake.New(handshake.Config{Max: maxConns})}
		if err := s.http.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("the health listener stopped serving: %w", err))
		}
	}()
	return s
}

// Close closes all connections and waits until serving has stopped.
func (s *Server) Close() {
	_ = s.http.Close()
	<-s.done
}

// listener bounds the number of open connections.
type listener struct {
	net.Listener
	conns *handshake.Limiter
}

// Accept returns the next connection, and closes the oldest one if there are too many.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: raw, place: l.conns.Begin(raw)}, nil
}

type conn struct {
	net.Conn
	place *handshake.Handshake
	once  sync.Once
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.place.End)
	return err
}

package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

// handshaker is a listener that returns connections after their TLS handshake.
type handshaker struct {
	net.Listener
	connections *Connections
	config      *tls.Config
	life        context.Context
	ready       chan net.Conn
	running     sync.WaitGroup

	closing sync.Once
	closed  chan struct{}
}

// Accept returns the next connection whose handshake is complete.
func (h *handshaker) Accept() (net.Conn, error) {
	select {
	case conn := <-h.ready:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting connections and waits for the handshakes in progress.
func (h *handshaker) Close() error {
	err := h.Listener.Close()
	h.closing.Do(func() { close(h.closed) })
	h.running.Wait()
	return err
}

func (h *handshaker) failed(err error) {
	h.connections.cfg.Warnings.Warn("cannot accept connections", "error", err)
}

// begin registers a connection and hands it on, after a TLS handshake on its own goroutine if there is one.
func (h *handshaker) begin(raw net.Conn) {
	c := h.connections.Begin(raw)
	if h.config == nil {
		h.hand(c)
		return
	}
	secured := c.handshake.Server(h.config)
	h.running.Go(func() {
		if err := h.secure(c, secured); err != nil {
			h.insecure(c, err)
			_ = c.Close()
			return
		}
		h.hand(secured)
	})
}

func (h *handshaker) hand(conn net.Conn) {
	select {
	case h.ready <- conn:
	case <-h.closed:
		transport.Cut(conn)
	}
}

// secure performs a TLS handshake within HeaderTimeout.
func (h *handshaker) secure(c *Conn, conn *tls.Conn) error {
	ctx, cancel := context.WithCancel(h.life)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if err := c.SetDeadline(time.Now().Add(h.connections.cfg.HeaderTimeout)); err != nil {
		return err
	}
	if err := c.handshake.Secure(ctx, conn); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// insecure logs why the TLS handshake failed, and answers a caller that sent plain HTTP.
func (h *handshaker) insecure(c *Conn, err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && looksLikeHTTP(header.RecordHeader[:]) {
		_, _ = c.Conn.Write([]byte("HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks HTTPS.\n"))
	}
	if errors.Is(err, transport.ErrRevoked) {
		h.connections.cfg.Refused(c.RemoteAddr().String(), err)
	}
	h.connections.cfg.Warnings.Warn("TLS handshake error", "remote", c.RemoteAddr().String(), "error", err)
}

func looksLikeHTTP(head []byte) bool {
	for _, begins := range []string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"} {
		if string(head) == begins {
			return true
		}
	}
	return false
}

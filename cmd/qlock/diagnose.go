package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// diagnoseAfter is how long a command waits for its first answer before it checks the endpoints.
	diagnoseAfter = 200 * time.Millisecond
	// diagnoseTimeout bounds the check of one endpoint.
	diagnoseTimeout = time.Second
	// diagnosePart: a command without an answer checks the endpoints again in the last tenth of its time.
	diagnosePart = 10
)

// finding is what the check of an endpoint has found.
type finding struct {
	addr string
	text string // what is wrong and what to do; empty if the endpoint is a node's client port
	// final is set if no retry can help: the command line does not fit what listens there.
	final bool
	// refused is set if nothing listens there.
	refused bool
}

// misdialled is returned when no endpoint works. Endpoints that are only slow do not count.
type misdialled struct{ findings []finding }

// Error has one line for each endpoint.
func (m *misdialled) Error() string {
	lines := make([]string, len(m.findings))
	for i, f := range m.findings {
		lines[i] = f.addr + " " + f.text
	}
	return strings.Join(lines, "\n")
}

// code is the command's exit code: a wrong command line, or nodes that are not there.
func (m *misdialled) code() int {
	if hopeless(m.findings) {
		return exitUsage
	}
	return exitNoLeader
}

// Is makes nodes that are not there count as an unavailable cluster, for which a command may keep waiting.
func (m *misdialled) Is(target error) bool {
	return target == client.ErrUnavailable && m.code() == exitNoLeader
}

// watchEndpoints returns a context that ends with a *misdialled as its cause if the command has no answer: soon
// if no endpoint can ever work, and just before its deadline if none works then. stop must be called when the
// command has its answer. Only a real cluster has endpoints.
func watchEndpoints(parent context.Context, c *cli.Context, svc service) (ctx context.Context, stop func()) {
	if _, real := svc.(cluster); !real {
		return parent, func() {}
	}
	ctx, cancel := context.WithCancelCause(parent)
	var checks sync.WaitGroup
	check := func(after, bound time.Duration, wrong func([]finding) bool) {
		at := time.NewTimer(after)
		defer at.Stop()
		select {
		case <-at.C:
		case <-ctx.Done():
			return
		}
		if findings := diagnose(ctx, c, bound); wrong(findings) && ctx.Err() == nil {
			cancel(&misdialled{findings})
		}
	}
	checks.Go(func() { check(diagnoseAfter, diagnoseTimeout, hopeless) })
	if deadline, bounded := ctx.Deadline(); bounded {
		part := min(time.Until(deadline)/diagnosePart, diagnoseTimeout)
		checks.Go(func() { check(time.Until(deadline)-part, part/2, useless) })
	}
	return ctx, func() {
		cancel(nil)
		checks.Wait()
	}
}

// hopeless reports whether no endpoint can ever work.
func hopeless(findings []finding) bool {
	return len(findings) > 0 && !slices.ContainsFunc(findings, func(f finding) bool { return !f.final })
}

// useless reports whether no endpoint works now. One that does not answer in time may only be slow.
func useless(findings []finding) bool {
	return len(findings) > 0 && !slices.ContainsFunc(findings, func(f finding) bool { return !f.final && !f.refused })
}

// diagnose checks all endpoints in parallel, each within bound.
func diagnose(ctx context.Context, c *cli.Context, bound time.Duration) []finding {
	secure, err := clientTLS(c)
	if err != nil {
		return nil // the command reports that itself
	}
	addrs := endpoints(c)
	findings := make([]finding, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, bound)
			defer cancel()
			findings[i] = examine(ctx, addr, secure)
			findings[i].addr = printable(addr)
		})
	}
	wg.Wait()
	return findings
}

// examine connects as the SDK would and explains the error.
func examine(ctx context.Context, addr string, secure *tls.Config) finding {
	conn, err := transport.TCP{}.Dial(ctx, addr)
	if err != nil {
		return unreachable(err)
	}
	defer conn.Close()
	if secure != nil {
		secured, err := transport.Secure(ctx, conn, addr, secure)
		if err != nil {
			return insecure(addr, err)
		}
		defer secured.Close()
		conn = secured
	}
	seen := &recorder{Conn: conn}
	_, _, err = transport.ClientHandshake(ctx, seen, &wire.Hello{Agent: "qlock"})
	if err == nil {
		return finding{}
	}
	return unanswered(ctx, addr, secure != nil, seen.first, err)
}

// recorder keeps the first bytes that arrive.
type recorder struct {
	net.Conn
	first []byte
}

// Read reads, and keeps at most 64 bytes.
func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if more := 64 - len(r.first); more > 0 {
		r.first = append(r.first, b[:min(n, more)]...)
	}
	return n, err
}

// unreachable explains an error from dialling.
func unreachable(err error) finding {
	var noName *net.DNSError
	switch {
	case errors.As(err, &noName) && noName.IsNotFound:
		return finding{text: "has no address: check the name", final: true}
	case errors.Is(err, syscall.ECONNREFUSED):
		return finding{text: "refuses connections: start qlockd there, or correct --endpoints", refused: true}
	}
	return finding{text: "cannot be reached: " + oneLine(err.Error())}
}

// insecure explains an error from the TLS handshake.
func insecure(addr string, err error) finding {
	var plain tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &plain) && bytes.HasPrefix(plain.RecordHeader[:], []byte("HTTP")):
		return httpPort
	case errors.As(err, &plain):
		return finding{text: "does not use TLS: leave out --cacert, --cert and --key", final: true}
	case errors.As(err, &authority):
		return finding{text: "has a certificate of another authority: give that cluster's ca.crt with --cacert", final: true}
	case errors.As(err, &name):
		return finding{text: fmt.Sprintf("has a certificate for %s: connect by one of these names", strings.Join(certified(name.Certificate), ", ")), final: true}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return finding{text: "has a certificate that is not valid now: renew it, or check the clocks", final: true}
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return finding{text: "closed the connection during the TLS handshake: leave out --cacert if it does not use TLS", final: true}
	}
	return finding{text: "fails the TLS handshake: " + oneLine(err.Error())}
}

// certified returns the names and addresses of a certificate.
func certified(cert *x509.Certificate) []string {
	if cert == nil {
		return []string{"another name"}
	}
	names := append([]string{}, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

var httpPort = finding{text: "is an HTTP port: give the client port, which is 7400 by default", final: true}

// unanswered explains why a hello was not answered. seen is what arrived instead.
func unanswered(ctx context.Context, addr string, secure bool, seen []byte, err error) finding {
	var bye *transport.GoodbyeError
	switch {
	case errors.As(err, &bye) && (bye.Code == wire.Goodbye_UNAUTHENTICATED || bye.Code == wire.Goodbye_PERMISSION_DENIED):
		return finding{} // it is a client port; the command itself reports what is wrong with its credential
	case errors.As(err, &bye):
		return finding{text: "refuses this client: " + printable(bye.Message)}
	case bytes.HasPrefix(seen, []byte("HTTP/")):
		return httpPort
	case strings.Contains(err.Error(), "certificate required"):
		return finding{text: "wants a client certificate: give --cert and --key", final: true}
	case secure && strings.Contains(err.Error(), "remote error: tls"):
		return finding{text: "does not accept the client certificate: it is expired, revoked, of another authority, or not valid for clients; give another one with --cert and --key", final: true}
	case !secure && len(seen) == 0 && usesTLS(ctx, addr):
		return finding{text: "uses TLS: give its ca.crt with --cacert, and a client certificate with --cert and --key or a token with --auth-token-file", final: true}
	case len(seen) > 0:
		return finding{text: fmt.Sprintf("is not a Quorumlock client port (it answers %.20q): the client port is 7400 by default", seen), final: true}
	case ctx.Err() != nil:
		return finding{text: "does not answer"}
	}
	return finding{text: "is not a client port: it closes the connection; the client port is 7400 by default"}
}

// usesTLS reports whether a port answers a TLS handshake.
func usesTLS(ctx context.Context, addr string) bool {
	conn, err := transport.TCP{}.Dial(ctx, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	seen := &recorder{Conn: conn}
	// The certificate does not matter: nothing is sent through the connection.
	_ = tls.Client(seen, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	const handshake, alert = 22, 21 // types of a TLS record
	return len(seen.first) > 2 && (seen.first[0] == handshake || seen.first[0] == alert) && seen.first[1] == 3
}

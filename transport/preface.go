package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Preface is what a dialler sends first, on the client port and on the peer port: a name, two bytes that
// never occur in text, and the version of the framing. Versions of the messages are negotiated in the hello.
const Preface = "QLOCK\x00\x00\x01"

// ErrPreface is returned, as a *PrefaceError, when a connection does not start with the preface.
var ErrPreface = errors.New("not the quorumlock protocol")

// PrefaceError contains what was received instead of the preface.
type PrefaceError struct {
	// Seen is what arrived up to and including the first wrong byte, and what came along with it. It is
	// at most as long as the preface.
	Seen []byte
}

func (e *PrefaceError) Error() string {
	return fmt.Sprintf("%v: the connection began with %q%s", ErrPreface, e.Seen, guess(e.Seen))
}

// Is makes errors.Is(err, ErrPreface) true.
func (e *PrefaceError) Is(target error) bool { return target == ErrPreface }

// guess returns a hint for common mistakes, to be read in the log.
func guess(seen []byte) string {
	if len(seen) > 0 && seen[0] == 0x16 {
		return " (this looks like TLS: the other side uses TLS, this port does not)"
	}
	for _, method := range []string{"GET ", "POST ", "PUT ", "HEAD ", "PRI ", "OPTIONS", "DELETE "} {
		if len(seen) > 2 && bytes.HasPrefix([]byte(method), seen[:min(len(seen), len(method))]) {
			return " (this looks like HTTP: the HTTP port is another one)"
		}
	}
	if common := len(Preface) - 1; len(seen) > common && string(seen[:common]) == Preface[:common] {
		return " (another version of the framing)"
	}
	return ""
}

// ReadPreface reads the preface. It must be called once, before any frame is read. It returns a
// *PrefaceError at the first wrong byte, without waiting for more.
func (r *FrameReader) ReadPreface() error {
	for n := 1; n <= len(Preface); n++ {
		for r.end-r.begin < n {
			if err := r.fill(); err != nil {
				return prefaceEnd(r.buf[r.begin:r.end], err)
			}
		}
		seen := r.buf[r.begin:r.end]
		if seen[n-1] != Preface[n-1] {
			return &PrefaceError{Seen: bytes.Clone(seen[:min(len(seen), len(Preface))])}
		}
	}
	r.begin += len(Preface)
	return nil
}

func prefaceEnd(seen []byte, err error) error {
	if len(seen) > 0 && errors.Is(err, io.EOF) {
		return &PrefaceError{Seen: bytes.Clone(seen)}
	}
	return err
}

package response

import (
	"io"
	"net/http"
	"time"
)

// A refused request has drainTime to send the rest of its body, of which drainBytes are read. Callers that are not known
// are refused too, so at most drainsAtOnce requests are waited for.
const (
	drainTime    = time.Second
	drainBytes   = 256 << 10
	drainsAtOnce = 256
)

// Drains reads what is left of the bodies of refused requests.
type Drains struct{ places chan struct{} }

// NewDrains returns the Drains of a port.
func NewDrains() *Drains { return &Drains{make(chan struct{}, drainsAtOnce)} }

// Drain reads the rest of a request's body. Without that, HTTP/2 resets the stream directly after the answer, and HTTP/1.1
// closes the connection while the caller still sends. Callers such as curl then drop the answer. Drain reads nothing while
// many other requests are waited for.
func (d *Drains) Drain(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	select {
	case d.places <- struct{}{}:
		defer func() { <-d.places }()
	default:
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, drainBytes)
}

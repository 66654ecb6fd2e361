package response

import (
	"io"
	"net/http"
	"time"
)

// A refused request has drainTime to send the rest of its body, of which drainBytes are read.
const (
	drainTime  = time.Second
	drainBytes = 256 << 10
)

// Drain reads the rest of a request's body. Without that, HTTP/2 resets the stream directly after the answer, and HTTP/1.1
// closes the connection while the caller still sends. Callers such as curl then drop the answer.
func Drain(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, drainBytes)
}

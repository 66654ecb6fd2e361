package response

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDrainsAreBounded verifies that callers that do not send their bodies are waited for only in a bounded number.
func TestDrainsAreBounded(t *testing.T) {
	d, ended := NewDrains(), make(chan struct{})
	slow, finish := io.Pipe()
	begun := make(chan struct{})
	for range drainsAtOnce {
		go func() {
			r := httptest.NewRequest(http.MethodPost, "/", &begins{slow, begun})
			d.Drain(httptest.NewRecorder(), r)
			ended <- struct{}{}
		}()
		<-begun
	}
	drain := func() (left int) {
		body := strings.NewReader("rest")
		d.Drain(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body))
		return body.Len()
	}
	if left := drain(); left != 4 {
		t.Errorf("one more is read, up to %d bytes", left)
	}
	_ = finish.Close()
	for range drainsAtOnce {
		<-ended
	}
	if left := drain(); left != 0 {
		t.Errorf("later, %d bytes are left", left)
	}
}

// begins reports its first read.
type begins struct {
	io.Reader
	begun chan struct{}
}

func (b *begins) Read(p []byte) (int, error) {
	if b.begun != nil {
		close := b.begun
		b.begun = nil
		close <- struct{}{}
	}
	return b.Reader.Read(p)
}

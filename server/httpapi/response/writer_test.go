package response

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
)

// TestAnswerWithoutMemory verifies that an response without memory is refused if nothing of it was written, and
// breaks the connection otherwise.
func TestAnswerWithoutMemory(t *testing.T) {
	b := budget.New(300 << 10)
	memory, err := b.Open(0, func() {})
	if err != nil {
		t.Fatal(err)
	}
	a := New(httptest.NewRecorder(), time.Second, memory)
	large := make([]byte, 200<<10)
	for range 2 { // the second write finds it already refused
		if n, err := a.Write(large); n != 0 || !errors.Is(err, budget.ErrExhausted) || !errors.Is(a.Exhausted, budget.ErrExhausted) {
			t.Errorf("wrote %d, %v; noted %v", n, err, a.Exhausted)
		}
		large = large[:1]
	}
	started := New(httptest.NewRecorder(), time.Second, memory)
	if n, err := started.Write([]byte("begins")); n != 6 || err != nil || started.Code != http.StatusOK {
		t.Errorf("wrote %d, %v; status %d", n, err, started.Code)
	}
	defer func() {
		if r := recover(); r != http.ErrAbortHandler { //nolint:errorlint // of recover
			t.Errorf("an response that had begun went on: %v", r)
		}
	}()
	_, _ = started.Write(make([]byte, 200<<10))
}

// TestModestConnectionIsGivenLess verifies that only a connection that holds little gets a reservation
// smaller than its maximal response.
func TestModestConnectionIsGivenLess(t *testing.T) {
	for held, want := range map[int]error{modest: nil, modest + 1: budget.ErrExhausted} {
		memory, err := budget.New(2*modest).Open(held, func() {})
		if err != nil {
			t.Fatal(err)
		}
		a := New(httptest.NewRecorder(), time.Second, memory)
		if err := a.Prepare(modest); !errors.Is(err, want) {
			t.Errorf("with %d bytes: %v, want %v", held, err, want)
		}
	}
}

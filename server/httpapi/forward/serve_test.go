package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestRewoundRequest(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("consumed"))
	Rewind(r, []byte("body"))
	again, err := r.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []io.Reader{r.Body, again} {
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil || r.ContentLength != 4 {
			t.Errorf("%q of %d bytes, %v", text, r.ContentLength, err)
		}
	}
}

// follower is a node that knows the leader n1.
type follower struct{}

func (follower) Leader() *wire.LeaderHint { return &wire.LeaderHint{Id: "n1"} }

func (follower) OpenForward(context.Context, *wire.LeaderHint) (net.Conn, error) {
	return nil, errors.New("the test answers instead")
}

func (follower) Serving() bool { return false }

// halfway is a leader whose answer has begun when the caller's context ends.
type halfway struct {
	end  func()
	text io.Reader
	ctx  context.Context
}

func (h *halfway) RoundTrip(r *http.Request) (*http.Response, error) {
	h.ctx = r.Context()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(h), Request: r}, nil
}

func (h *halfway) Read(p []byte) (int, error) {
	h.end()
	select {
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	case <-time.After(time.Second):
		return h.text.Read(p)
	}
}

// TestAnswerThatHasBegun verifies that an answer of the leader that has begun is sent completely to a caller that the
// node dismisses, and ends with the connection of a caller that has gone.
func TestAnswerThatHasBegun(t *testing.T) {
	dismissed := errors.New("dismissed")
	for cause, want := range map[error]string{dismissed: "answer", context.Canceled: ""} {
		bubble.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			f := New(Config{
				NodeID: "n2", Replica: follower{}, Wait: time.Second, Registry: prometheus.NewRegistry(),
				Warnings: ratelog.New(hclog.NewNullLogger()), Errors: connect.NewErrorWriter(), Life: t.Context(),
				Dismissal: func(ctx context.Context) error {
					if errors.Is(context.Cause(ctx), dismissed) {
						return apierror.New(wire.Status_UNAUTHENTICATED, "the token was revoked")
					}
					return nil
				},
			})
			f.RegisterProtocol(scheme, &halfway{end: func() { end(cause) }, text: strings.NewReader("answer")})
			recorder := httptest.NewRecorder()
			f.Serve(response.New(recorder, time.Minute, nil), Request{Request: httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)})
			if got := recorder.Body.String(); got != want {
				t.Errorf("%v: the answer is %q, want %q", cause, got, want)
			}
		})
	}
}

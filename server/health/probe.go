package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The paths that are answered.
const (
	AlivePath = "/healthz"
	ReadyPath = "/readyz"
)

// maxLag is how many log entries a follower may have to apply still and count as up
// to date: under load there are always some on their way.
const maxLag = 1_000

// statusTimeout bounds the look at this node's own state. It is short, since the other
// nodes' answers, which come along with it, are of no interest here.
const statusTimeout = 200 * time.Millisecond

// Replica is the node that is asked about. Its methods may be called by many goroutines.
type Replica interface {
	// Leader is the leader that the node knows, empty if none.
	Leader() *wire.LeaderHint
	// Serving reports whether this node leads and may answer.
	Serving() bool
	// Status describes the cluster as this node sees it.
	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
}

// Probe answers for one node. It is safe for concurrent use.
type Probe struct {
	NodeID  string
	Replica Replica
	// Closing reports whether the node is stopping; nil means that it is not.
	Closing func() bool
}

// Readiness is what ReadyPath answers.
type Readiness struct {
	Ready    bool   `json:"ready"`
	NodeID   string `json:"nodeId"`
	LeaderID string `json:"leaderId"`
	Reason   string `json:"reason"`
}

// Ready reports whether this node leads or follows a leader closely, and if not, why.
func (p *Probe) Ready(ctx context.Context) Readiness {
	state := Readiness{NodeID: p.NodeID, LeaderID: p.Replica.Leader().GetId()}
	switch {
	case p.Closing != nil && p.Closing():
		state.Reason = "this node is stopping"
	case p.Replica.Serving():
		state.Ready = true
	case state.LeaderID == "":
		state.Reason = "no leader is known"
	case state.LeaderID == p.NodeID:
		state.Reason = "this node was elected and is not ready to serve yet"
	default:
		state.Reason = p.behind(ctx)
		state.Ready = state.Reason == ""
	}
	return state
}

// behind says how far a follower is behind, if it is.
func (p *Probe) behind(ctx context.Context) string {
	ctx, stop := context.WithTimeout(ctx, statusTimeout)
	defer stop()
	status, err := p.Replica.Status(ctx, &wire.StatusRequest{Stale: true})
	if err != nil {
		return err.Error()
	}
	if committed, applied := status.GetCommitIndex(), status.GetAppliedIndex(); committed > applied+maxLag {
		return fmt.Sprintf("%d log entries are to be applied still", committed-applied)
	}
	return ""
}

// ServeAlive answers as long as the process does: whether to restart it.
func (p *Probe) ServeAlive(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]string{"status": "ok", "nodeId": p.NodeID})
}

// ServeReady answers whether to send callers here: 200, or 503 with the reason.
func (p *Probe) ServeReady(w http.ResponseWriter, r *http.Request) {
	state := p.Ready(r.Context())
	status := http.StatusOK
	if !state.Ready {
		status = http.StatusServiceUnavailable
	}
	write(w, status, state)
}

func write(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // neither of them can fail
		status, data = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

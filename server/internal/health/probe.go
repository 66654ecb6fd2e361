package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Paths served by Probe.
const (
	AlivePath = "/healthz"
	ReadyPath = "/readyz"
)

// maxLag is the number of unapplied log entries up to which a follower counts as up to date: under load, some
// entries are always in flight.
const maxLag = 1_000

// statusTimeout bounds the query for this node's own state. It is short because the query also asks the other
// nodes, whose answers are not needed.
const statusTimeout = 200 * time.Millisecond

// Replica is the probed node. Its methods are safe for concurrent use.
type Replica interface {
	// Leader returns the leader known to the node, empty if none.
	Leader() *wire.LeaderHint
	// Serving reports whether this node leads and may answer.
	Serving() bool
	// CaughtUp reports whether this node has applied all that was committed when it started.
	CaughtUp() bool
	// Removed says that the node was removed from its cluster, and what to do; "" if it was not.
	Removed() string
	// Status describes the cluster as this node sees it.
	Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error)
}

// Probe reports the health of a node. It is safe for concurrent use.
type Probe struct {
	NodeID  string
	Replica Replica
	// Closing reports whether the node is stopping; nil means that it is not.
	Closing func() bool
}

// Readiness is the response of ReadyPath.
type Readiness struct {
	Ready    bool   `json:"ready"`
	NodeID   string `json:"nodeId"`
	LeaderID string `json:"leaderId"`
	Reason   string `json:"reason"`
}

// Ready reports whether this node leads or closely follows a leader, and the reason if it does not.
func (p *Probe) Ready(ctx context.Context) Readiness {
	state := Readiness{NodeID: p.NodeID, LeaderID: p.Replica.Leader().GetId()}
	switch {
	case p.Closing != nil && p.Closing():
		state.Reason = "this node is stopping"
	case p.Replica.Serving():
		state.Ready = true
	case state.LeaderID == "" && p.Replica.Removed() != "":
		state.Reason = p.Replica.Removed()
	case state.LeaderID == "":
		state.Reason = "no leader is known"
	case state.LeaderID == p.NodeID:
		state.Reason = "this node was elected and is not ready to serve yet"
	case !p.Replica.CaughtUp(): // its commit index may be as old as its state
		state.Reason = "this node has not caught up with the cluster since its start"
	default:
		state.Reason = p.behind(ctx)
		state.Ready = state.Reason == ""
	}
	return state
}

// behind describes how far a follower lags, or returns "" if it is up to date.
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

// ServeAlive answers 200 as long as the process can answer. It is a liveness probe: a failure means that the
// process should be restarted.
func (p *Probe) ServeAlive(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]string{"status": "ok", "nodeId": p.NodeID})
}

// ServeReady answers 200 if clients should be sent to this node, and 503 with the reason otherwise.
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
	if err != nil { // cannot happen with the values passed here
		status, data = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

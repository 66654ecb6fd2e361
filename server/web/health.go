package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxLag is how many log entries a follower may have to apply still and count as up
// to date: under load there are always some on their way.
const maxLag = 1_000

// statusTimeout bounds the look at this node's own state. It is short, since the other
// nodes' answers, which come along with it, are of no interest here.
const statusTimeout = 200 * time.Millisecond

// healthz answers as long as the process does: whether to restart it.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "nodeId": s.cfg.NodeID})
}

// readiness is what /readyz says.
type readiness struct {
	Ready    bool   `json:"ready"`
	NodeID   string `json:"nodeId"`
	LeaderID string `json:"leaderId"`
	Reason   string `json:"reason"`
}

// readyz answers whether to send callers here.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	state := s.ready(r.Context())
	status := http.StatusOK
	if !state.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, state)
}

// ready says whether this node leads or follows a leader closely, and if not, why.
func (s *Server) ready(ctx context.Context) readiness {
	state := readiness{NodeID: s.cfg.NodeID, LeaderID: s.replica.Leader().GetId()}
	switch {
	case s.isClosing():
		state.Reason = "this node is stopping"
	case s.replica.Serving():
		state.Ready = true
	case state.LeaderID == "":
		state.Reason = "no leader is known"
	case state.LeaderID == s.cfg.NodeID:
		state.Reason = "this node was elected and is not ready to serve yet"
	default:
		state.Reason = s.behind(ctx)
		state.Ready = state.Reason == ""
	}
	return state
}

// behind says how far a follower is behind, if it is.
func (s *Server) behind(ctx context.Context) string {
	ctx, stop := context.WithTimeout(ctx, statusTimeout)
	defer stop()
	status, err := s.replica.Status(ctx, &wire.StatusRequest{Stale: true})
	if err != nil {
		return err.Error()
	}
	if committed, applied := status.GetCommitIndex(), status.GetAppliedIndex(); committed > applied+maxLag {
		return fmt.Sprintf("%d log entries are to be applied still", committed-applied)
	}
	return ""
}

// Check implements grpchealth.Checker: all services are ready together.
func (s *Server) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && !slices.Contains(services, req.Service) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no service %q", req.Service))
	}
	if s.ready(ctx).Ready {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
}

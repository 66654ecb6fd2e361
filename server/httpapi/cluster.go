package httpapi

import (
	"context"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// clusterService implements wireconnect.ClusterServiceHandler.
type clusterService struct{ *Server }

// Status describes the cluster. A stale status is this node's own view.
func (s clusterService) Status(ctx context.Context, req *connect.Request[wire.StatusRequest]) (*connect.Response[wire.StatusResponse], error) {
	if !req.Msg.GetStale() && !s.replica.Serving() {
		return nil, errNotLeader
	}
	if err := s.turn(ctx, s.queues.Status, smallAnswer); err != nil {
		return nil, err
	}
	resp, err := s.replica.Status(ctx, req.Msg)
	if err != nil {
		return nil, s.refusalOf(err)
	}
	return connect.NewResponse(resp), nil
}

// change waits for the caller's turn, and changes the cluster. Only the leader does.
func (s clusterService) change(ctx context.Context, change func() error) error {
	if !s.replica.Serving() {
		return errNotLeader
	}
	if err := s.turn(ctx, s.queues.Acts, smallAnswer); err != nil {
		return err
	}
	if err := change(); err != nil {
		return s.refusalOf(err)
	}
	return nil
}

// AddMember adds a running, empty node to the cluster.
func (s clusterService) AddMember(ctx context.Context, req *connect.Request[wire.AddMemberRequest]) (*connect.Response[wire.AddMemberResponse], error) {
	if err := s.change(ctx, func() error { return s.replica.AddMember(ctx, req.Msg) }); err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.AddMemberResponse{}), nil
}

// RemoveMember removes a node from the cluster.
func (s clusterService) RemoveMember(ctx context.Context, req *connect.Request[wire.RemoveMemberRequest]) (*connect.Response[wire.RemoveMemberResponse], error) {
	if err := s.change(ctx, func() error { return s.replica.RemoveMember(ctx, req.Msg) }); err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.RemoveMemberResponse{}), nil
}

// SetDrained drains a member, or ends that.
func (s clusterService) SetDrained(ctx context.Context, req *connect.Request[wire.SetDrainedRequest]) (*connect.Response[wire.SetDrainedResponse], error) {
	if err := s.change(ctx, func() error { return s.replica.SetDrained(ctx, req.Msg) }); err != nil {
		return nil, err
	}
	return connect.NewResponse(&wire.SetDrainedResponse{}), nil
}

// TransferLeadership hands over leadership and returns the new leader's ID, which is empty if no new leader
// is known in time.
func (s clusterService) TransferLeadership(ctx context.Context, req *connect.Request[wire.TransferLeadershipRequest]) (*connect.Response[wire.TransferLeadershipResponse], error) {
	if err := s.change(ctx, func() error { return s.replica.TransferLeadership(ctx, req.Msg) }); err != nil {
		return nil, err
	}
	var leader string
	s.poll(ctx, func() bool {
		leader = s.replica.Leader().GetId()
		return leader != "" && (leader != s.cfg.NodeID || s.replica.Serving())
	})
	return connect.NewResponse(&wire.TransferLeadershipResponse{LeaderId: leader}), nil
}

// AcknowledgeAlarms clears the alarms of all nodes.
func (s clusterService) AcknowledgeAlarms(ctx context.Context, req *connect.Request[wire.AcknowledgeAlarmsRequest]) (*connect.Response[wire.AcknowledgeAlarmsResponse], error) {
	if !s.replica.Serving() {
		return nil, errNotLeader
	}
	if err := s.turn(ctx, s.queues.Acts, smallAnswer); err != nil {
		return nil, err
	}
	resp, err := s.replica.AcknowledgeAlarms(ctx, req.Msg)
	if err != nil {
		return nil, s.refusalOf(err)
	}
	return connect.NewResponse(resp), nil
}

// ListSamples returns what this node has measured. Every node answers it itself.
func (s clusterService) ListSamples(ctx context.Context, _ *connect.Request[wire.ListSamplesRequest]) (*connect.Response[wire.ListSamplesResponse], error) {
	if err := s.turn(ctx, s.queues.Reads, smallAnswer); err != nil {
		return nil, err
	}
	resp, res := s.reader.As(access.Of(ctx)).ListSamples()
	if res != nil {
		return nil, s.refusal(res, true)
	}
	return connect.NewResponse(resp), nil
}

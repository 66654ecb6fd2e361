package httpapi

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
)

// Check implements grpchealth.Checker. All services become ready together.
func (s *Server) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && !slices.Contains(services, req.Service) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no service %q", req.Service))
	}
	if s.health.Ready(ctx).Ready {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
}

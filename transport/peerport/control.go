package peerport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// callTimeout bounds a control call, whatever its context allows.
const callTimeout = 30 * time.Second

// serveControl answers the requests on a connection one after the other.
func (l *Layer) serveControl(peer *peerConn, h *handshake) {
	h.reader.SetMax(maxControl)
	w := transport.NewFrameWriter(peer, maxControl)
	for {
		_ = peer.SetReadDeadline(time.Now().Add(l.cfg.IdleTimeout))
		var req wire.PeerRequest
		if err := h.reader.Read(&req); err != nil {
			if !errors.Is(err, io.EOF) {
				l.log.Debug("a control connection ended", "node", peer.peer, "error", err)
			}
			return
		}
		if err := w.Write(l.respond(h, &req)); err != nil {
			l.log.Debug("a control answer was not sent", "node", peer.peer, "error", err)
			return
		}
	}
}

func (l *Layer) respond(h *handshake, req *wire.PeerRequest) *wire.PeerResponse {
	if h.stranger != nil && !h.stranger.mayAsk(req) {
		return &wire.PeerResponse{Status: wire.Status_FAILED_PRECONDITION, Message: h.stranger.text}
	}
	if resp := l.cfg.Handler(l.ctx, h.hello, req); resp != nil {
		return resp
	}
	return &wire.PeerResponse{Status: wire.Status_UNSUPPORTED, Message: "this node does not know this request"}
}

// mayAsk reports whether a caller that was refused as a member may make this request all the same: a
// probe, to learn its own status in the cluster, or, if it never was a member, a report or a request to join, to
// become one.
func (r *refusal) mayAsk(req *wire.PeerRequest) bool {
	return req.GetProbe() != nil || (req.GetReport() != nil || req.GetJoin() != nil) && r.reason == ReasonUnknown
}

// Call sends a request to a node on a new connection. It returns the node's answer and the reply to the
// hello. The latter is also returned with a *RefusedError, if the node sent one. An empty targetID means whichever node
// of the cluster has that address.
func (l *Layer) Call(ctx context.Context, addr, targetID string, req *wire.PeerRequest) (*wire.PeerResponse, *wire.PeerHelloReply, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stop := context.AfterFunc(l.ctx, cancel)
	defer stop()
	peer, r, reply, err := l.open(ctx, addr, targetID, wire.PeerHello_CONTROL)
	if err != nil {
		return nil, reply, fmt.Errorf("call node %q at %s: %w", targetID, addr, err)
	}
	defer func() { _ = peer.Close() }()
	r.SetMax(maxControl)
	resp := &wire.PeerResponse{}
	err = transport.Within(ctx, peer, callTimeout, func(context.Context) error {
		if err := transport.NewFrameWriter(peer, maxControl).Write(req); err != nil {
			return err
		}
		return r.Read(resp)
	})
	if err != nil {
		return nil, reply, fmt.Errorf("call node %q at %s: %w", targetID, addr, err)
	}
	return resp, reply, nil
}

package peerport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
)

// The kinds of calls between raft nodes, as the first byte of each call. They are the same as in raft's
// NetworkTransport.
const (
	appendEntries byte = iota
	requestVote
	installSnapshot
	timeoutNow
	requestPreVote
)

// receiveBuffer is the same as in raft's NetworkTransport.
const receiveBuffer = 256 << 10

// dialOnly is a Layer that accepts nothing for raft's NetworkTransport, which would not know the node
// that a connection belongs to.
type dialOnly struct{ *Layer }

// Accept implements raft.StreamLayer.
func (d dialOnly) Accept() (net.Conn, error) {
	<-d.ctx.Done()
	return nil, net.ErrClosed
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.calls }

// acceptAll serves the connections that peers open, until the Layer closes.
func (t *Transport) acceptAll() {
	for {
		conn, err := t.layer.accept()
		if err != nil {
			return
		}
		if err := t.layer.stillAdmits(conn.peerConn); err != nil { // it may have waited for raft
			t.layer.refused(conn.RemoteAddr(), conn.peer, err)
			_ = conn.Close()
			continue
		}
		if !t.layer.spawn(func() { t.serve(conn) }) {
			_ = conn.Close()
		}
	}
}

// serve answers the calls of one connection one after the other, as raft's NetworkTransport does, except
// for calls that the node at its other end may not make.
func (t *Transport) serve(conn *raftConn) {
	defer conn.Close()
	r, w := bufio.NewReaderSize(conn, receiveBuffer), bufio.NewWriter(conn)
	dec := codec.NewDecoder(r, &codec.MsgpackHandle{})
	format := &codec.MsgpackHandle{}
	format.TimeNotBuiltin = true
	enc := codec.NewEncoder(w, format)
	for {
		err := t.serveOne(conn, r, dec, enc)
		err = errors.Join(err, w.Flush())
		var r *refusal
		switch {
		case errors.As(err, &r):
			t.layer.refused(conn.RemoteAddr(), conn.peer, err)
			return
		case errors.Is(err, io.EOF), err != nil && t.layer.ctx.Err() != nil:
			return
		case err != nil:
			t.layer.log.Debug("a connection of raft ended", "node", conn.peer, "error", err)
			return
		}
	}
}

// serveOne reads a call, passes it to raft, and writes the answer.
func (t *Transport) serveOne(conn *raftConn, r *bufio.Reader, dec *codec.Decoder, enc *codec.Encoder) error {
	kind, err := r.ReadByte()
	if err != nil {
		return err
	}
	call, err := decodeCall(kind, r, dec)
	if err != nil {
		return err
	}
	if err := t.permits(conn.peer, call.Command); err != nil {
		return errors.Join(err, enc.Encode(err.Error()), enc.Encode(nil))
	}
	answered := make(chan raft.RPCResponse, 1)
	call.RespChan = answered
	select {
	case t.calls <- call:
	case <-t.layer.ctx.Done():
		return net.ErrClosed
	}
	select {
	case answer := <-answered:
		t.called(conn.incarnation, call.Command, answer.Response)
		text := ""
		if answer.Error != nil {
			text = answer.Error.Error()
		}
		if err := enc.Encode(text); err != nil {
			return err
		}
		return enc.Encode(answer.Response)
	case <-t.layer.ctx.Done():
		return net.ErrClosed
	}
}

func decodeCall(kind byte, r *bufio.Reader, dec *codec.Decoder) (call raft.RPC, err error) {
	switch kind {
	case appendEntries:
		call.Command = &raft.AppendEntriesRequest{}
	case requestVote:
		call.Command = &raft.RequestVoteRequest{}
	case requestPreVote:
		call.Command = &raft.RequestPreVoteRequest{}
	case installSnapshot:
		call.Command = &raft.InstallSnapshotRequest{}
	case timeoutNow:
		call.Command = &raft.TimeoutNowRequest{}
	default:
		return call, fmt.Errorf("unknown kind of call %d", kind)
	}
	if err := dec.Decode(call.Command); err != nil {
		return call, err
	}
	if snapshot, ok := call.Command.(*raft.InstallSnapshotRequest); ok {
		call.Reader = io.LimitReader(r, snapshot.Size)
	}
	return call, nil
}

// permits returns a refusal if the node may not make the call: each node may only speak for itself, and
// only the leader that this node follows, or this node itself, may make it call an election.
func (t *Transport) permits(peer string, command any) error {
	call, ok := command.(raft.WithRPCHeader)
	if !ok {
		return refuse(ReasonClaim, "a call that does not say who makes it")
	}
	header := call.GetRPCHeader()
	if id := string(header.ID); id != peer {
		return refuse(ReasonClaim, "node %q makes a call in the name of %q", peer, id)
	}
	// Raft also takes the identity of the leader and the candidate from the address.
	if id, _, err := parseTarget(raft.ServerAddress(header.Addr)); err != nil || id != peer {
		return refuse(ReasonClaim, "node %q makes a call from address %q, which is not its own", peer, header.Addr)
	}
	if _, ok := command.(*raft.TimeoutNowRequest); !ok {
		return nil
	}
	if self, _ := t.layer.cfg.Identity.Self(); peer != self && !t.follows(raft.ServerID(peer)) {
		return refuse(ReasonClaim, "node %q calls for an election, and is not the leader that this node follows", peer)
	}
	return nil
}

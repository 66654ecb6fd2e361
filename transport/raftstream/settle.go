package raftstream

import (
	"errors"
	"net"

	"github.com/hashicorp/raft"
)

var errUnwritten = errors.New("this node's own disk has failed")

// settled tells whether raft may have an answer: it is not one by which another node has
// entries that this one has yet to write. See TransportConfig.Written.
func (t *Transport) settled(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (ok bool, again <-chan struct{}) {
	if !resp.Success || len(args.Entries) == 0 {
		return true, nil
	}
	return t.written(args.Entries[len(args.Entries)-1].Index)
}

// settle waits until raft may have the answer.
func (t *Transport) settle(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		ok, again := t.settled(args, resp)
		if ok {
			return nil
		}
		if again == nil {
			return errUnwritten
		}
		select {
		case <-again:
		case <-t.layer.ctx.Done():
			return net.ErrClosed
		}
	}
}

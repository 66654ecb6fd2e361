package peerport

import (
	"errors"
	"net"

	"github.com/hashicorp/raft"
)

var errUnwritten = errors.New("this node's own disk has failed")

// mayDeliver reports whether raft may get an answer. It may not as long as the answer says that another node
// has entries that this node has not written yet. See TransportConfig.Written.
func (t *Transport) mayDeliver(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (ok bool, again <-chan struct{}) {
	if !resp.Success || len(args.Entries) == 0 {
		return true, nil
	}
	return t.written(args.Entries[len(args.Entries)-1].Index)
}

// awaitWritten waits until raft may get the answer.
func (t *Transport) awaitWritten(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for {
		ok, again := t.mayDeliver(args, resp)
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

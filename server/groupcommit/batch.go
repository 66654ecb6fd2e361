package groupcommit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Item is a queued command.
type Item struct {
	Command *wire.Command
	// Done is called with the result; nil if nobody waits for it.
	Done func(*wire.Result)
	// Work is the cost of applying the command: see WorkOf.
	Work int
	// Level is the feature level that the entry needs, if it is above the replicated level.
	Level uint32
	// Identity is the identity of the sender: see Proposal.
	Identity string
	// connection distinguishes the senders of commands without a session: see Proposal.
	connection any
	size       int
	// growth is the number of units that the command may add to the state.
	growth uint64
}

// NewItem returns an Item for a command that is cheap to apply.
func NewItem(cmd *wire.Command, done func(*wire.Result)) Item {
	return Item{Command: cmd, Done: done, Work: 1, size: proto.Size(cmd) + itemOverhead}
}

// Fits reports whether an entry has room for the command.
func (it Item) Fits() bool { return it.size <= MaxEntryBytes }

// Answer calls Done with the result. Afterwards, the command belongs to its sender again.
func (it Item) Answer(result *wire.Result) {
	if it.Done != nil {
		it.Done(result)
	}
}

// Heartbeat is a heartbeat that waits for its proof of leadership.
type Heartbeat struct {
	Session uint64
	Done    func(*wire.Result)
	// Idle are the cached holds that the heartbeat reports as not in use. Arrived is when it arrived, if there are any.
	Idle    []*wire.IdleHold
	Arrived time.Time
	// Alive is set by the completer if the session is alive in the state that proves leadership. Recalled are its cached
	// holds for which others wait in that state.
	Alive    bool
	Recalled []*wire.HoldNotice
}

// Batch is one raft entry and all its waiters.
type Batch struct {
	Term  uint64
	Items []Item
	// Proofs are the requests for a proof of leadership.
	Proofs     []func(*wire.Result)
	Heartbeats []Heartbeat
	// Began is when the entry was proposed, and Future its outcome.
	Began  time.Time
	Future raft.ApplyFuture
	// Bytes is the size of the entry.
	Bytes int

	size   int
	work   int
	growth uint64
	marks  bool
}

// Answer gives all waiters of the batch the same result.
func (b *Batch) Answer(result *wire.Result) {
	for _, it := range b.Items {
		it.Answer(result)
	}
	for _, done := range b.Proofs {
		done(result)
	}
	for _, h := range b.Heartbeats {
		h.Done(result)
	}
}

// ErrMismatch is returned when the state machine broke its contract.
var ErrMismatch = errors.New("the machine answered another number of commands than it was given")

// Applied returns the state machine's response to the batch. The entry must have been committed. It returns
// ErrMismatch, or the state machine's error.
func (b *Batch) Applied() (*fsm.Applied, error) {
	switch response := b.Future.Response().(type) {
	case *fsm.Applied:
		if len(response.Results) != len(b.Items) {
			return nil, fmt.Errorf("%w: %d instead of %d", ErrMismatch, len(response.Results), len(b.Items))
		}
		return response, nil
	case error:
		return nil, response
	}
	return nil, fmt.Errorf("%w: none", ErrMismatch)
}

// Uncommitted returns the result for everything in an entry that raft did not complete. Only what raft certainly
// refused is reported as not executed.
func Uncommitted(err error) *wire.Result {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return status.Result(wire.Status_NOT_LEADER, "")
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return status.Result(wire.Status_UNAVAILABLE, "the leader is too busy, or its disk hangs")
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return status.Result(wire.Status_UNAVAILABLE, "leadership is being handed over")
	}
	return status.Result(wire.Status_UNCERTAIN, err.Error())
}

// Unapplied returns the result for an entry that was committed but not applied here. A malformed entry is
// malformed on every node. In all other cases, the other nodes may have applied it.
func Unapplied(err error) *wire.Result {
	if errors.Is(err, fsm.ErrMalformed) {
		return status.Result(wire.Status_INTERNAL, err.Error())
	}
	return status.Result(wire.Status_UNCERTAIN, err.Error())
}

// dropInvalid answers and drops the commands that cannot be encoded, which are those with text that is not valid
// UTF-8.
func (b *Batch) dropInvalid() {
	b.Items = slices.DeleteFunc(b.Items, func(it Item) bool {
		_, err := proto.Marshal(it.Command)
		if err != nil {
			it.Answer(status.Result(wire.Status_INVALID_ARGUMENT, err.Error()))
		}
		return err != nil
	})
}

// reusable returns the memory of a finished slice, or nil if a rare peak made it large.
func reusable[T any](done []T) []T {
	if cap(done) > maxFree {
		return nil
	}
	clear(done)
	return done[:0]
}

// full reports whether an item does not fit into the batch. An empty batch accepts any item.
func (b *Batch) full(it Item, work int) bool {
	return len(b.Items) > 0 && (b.size+it.size > MaxEntryBytes || b.work+it.Work > work)
}

func (b *Batch) add(it Item) {
	b.size += it.size
	b.work += it.Work
	b.growth += it.growth
	b.Items = append(b.Items, it)
}

// fill moves items from the front of the queue into the batch, until the batch has the given work, and
// returns the rest of the queue.
func (b *Batch) fill(queue []Item, work int) []Item {
	n := 0
	for n < len(queue) && !b.full(queue[n], work) {
		b.add(queue[n])
		n++
	}
	if n == len(queue) {
		return reusable(queue)
	}
	clear(queue[:n])
	return queue[n:]
}

// Failed is the future of an entry that never reached raft.
type Failed struct{ Err error }

// Error implements raft.Future.
func (f Failed) Error() error { return f.Err }

// Response implements raft.ApplyFuture.
func (f Failed) Response() any { return nil }

// Index implements raft.IndexFuture.
func (f Failed) Index() uint64 { return 0 }

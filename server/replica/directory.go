package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// membersKey is the key of the members among the node's values. They must survive a restart: the log is not
// applied until a leader is elected, but a node must know before that which peers to trust.
var membersKey = []byte("quorumlock.members")

// directory is this node's member directory: the members in the last applied state, which it also stores, and the incarnations of members that are not recorded yet.
type directory struct {
	id, incarnation string
	certified       string // the cluster named by the certificate
	stable          raft.StableStore
	// named are the configured nodes, which may begin a cluster with this one.
	named []Peer
	// live calls look with the state machine, and reports true, if the machine is at least as new as the
	// record of the given revision.
	live func(revision uint64, look func(*fsm.Machine)) (fresh bool)
	// vouchers asks the members about nodes that are in no record.
	vouchers *vouchers
	states   *peerStates

	mu       sync.RWMutex
	cluster  string
	revision uint64
	members  map[string]*wire.Member
	removed  []*wire.RemovedMember
	// noted holds the incarnations that connected for raft before they were recorded, by id.
	noted map[string]string
}

func openDirectory(cfg Config, incarnation string, stable raft.StableStore) (*directory, error) {
	b := &directory{id: cfg.ID, incarnation: incarnation, certified: cfg.ClusterID, named: cfg.Cluster, stable: stable,
		members: map[string]*wire.Member{}, noted: map[string]string{}}
	page, err := storage.Get(stable, membersKey)
	if err != nil || len(page) == 0 {
		return b, err
	}
	record := &wire.Membership{}
	if len(page) < 8 {
		return nil, fmt.Errorf("%w: the members kept in it are cut off", storage.ErrDamaged)
	}
	if err := proto.Unmarshal(page[8:], record); err != nil {
		return nil, fmt.Errorf("%w: the members kept in it: %w", storage.ErrDamaged, err)
	}
	b.revision, b.cluster = binary.BigEndian.Uint64(page), record.ClusterId
	b.enter(record.Members, record.Removed)
	if b.certified != "" && b.cluster != "" && b.certified != b.cluster {
		return nil, fmt.Errorf("%w: the data directory belongs to cluster %q, the certificate names %q", status.ErrOtherCluster, b.cluster, b.certified)
	}
	return b, nil
}

func (b *directory) enter(members []*wire.Member, removed []*wire.RemovedMember) {
	b.removed = removed
	b.members = make(map[string]*wire.Member, len(members))
	for _, m := range members {
		b.members[m.Id] = m
	}
}

// keep replaces the record and writes it to the stable store. It returns the ids whose former incarnation is
// no longer valid.
func (b *directory) keep(revision uint64, now *wire.Membership) (gone []string, err error) {
	page := binary.BigEndian.AppendUint64(nil, revision)
	page, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(page, now)
	if err == nil {
		err = b.stable.Set(membersKey, page)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.members
	b.cluster, b.revision = now.ClusterId, revision
	b.enter(now.Members, now.Removed)
	for id, m := range old {
		if m.Incarnation != "" && m.Incarnation != b.members[id].GetIncarnation() {
			delete(b.noted, id)
			gone = append(gone, id)
		}
	}
	return gone, err
}

// ClusterID implements peerport.Identity.
func (b *directory) ClusterID() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.cluster != "" {
		return b.cluster
	}
	return b.certified
}

// Self implements peerport.Identity.
func (b *directory) Self() (id, incarnation string) { return b.id, b.incarnation }

// Incarnation implements peerport.Identity. It returns the recorded incarnation or, for a member without
// one, the first that connected for raft.
func (b *directory) Incarnation(id string) (string, bool) {
	known, member := b.recorded(id)
	if known != "" {
		return known, true
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	noted, ok := b.noted[id]
	return noted, ok && member
}

// recorded returns the incarnation recorded for a member, "" if there is none. After a restart, the record is
// ahead of the state machine until the log has been applied again.
func (b *directory) recorded(id string) (incarnation string, member bool) {
	b.mu.RLock()
	known, revision := b.members[id], b.revision
	b.mu.RUnlock()
	b.live(revision, func(m *fsm.Machine) { known, _ = m.Member(id) })
	return known.GetIncarnation(), known != nil
}

// standing returns what the record says about a node, that is, what this node has applied or begun the
// cluster with.
func (b *directory) standing(id, incarnation string) wire.Standing {
	known, member := b.recorded(id)
	switch {
	case incarnation == "":
		return wire.Standing_UNKNOWN
	case b.wasRemoved(incarnation):
		return wire.Standing_REMOVED
	case known == incarnation:
		return wire.Standing_MEMBER
	case known != "":
		return wire.Standing_REPLACED
	case member, b.begins(id):
		return wire.Standing_EXPECTED
	}
	return wire.Standing_UNKNOWN
}

func (b *directory) wasRemoved(incarnation string) (removed bool) {
	b.mu.RLock()
	removed = slices.ContainsFunc(b.removed, func(r *wire.RemovedMember) bool { return r.Incarnation == incarnation })
	revision := b.revision
	b.mu.RUnlock()
	b.live(revision, func(m *fsm.Machine) { removed = m.WasRemoved(incarnation) })
	return removed
}

// begins reports whether a node may begin a cluster with this one, which does not know of any cluster yet.
func (b *directory) begins(id string) bool {
	return b.blank() && slices.ContainsFunc(b.named, func(p Peer) bool { return p.ID == id })
}

// blank reports whether this node knows no members.
func (b *directory) blank() bool {
	b.mu.RLock()
	blank, revision := len(b.members) == 0, b.revision
	b.mu.RUnlock()
	b.live(revision, func(*fsm.Machine) { blank = false })
	return blank
}

// Standing implements peerport.Identity.
func (b *directory) Standing(id, incarnation string) wire.Standing {
	switch s := b.standing(id, incarnation); s {
	case wire.Standing_EXPECTED:
		if noted, ok := b.Incarnation(id); ok && noted != incarnation {
			return wire.Standing_REPLACED
		}
		return s
	case wire.Standing_UNKNOWN, wire.Standing_REPLACED:
		if said := b.vouchers.known(callerKey{id, incarnation}); said != wire.Standing_UNKNOWN {
			return said
		}
		return s
	default:
		return s
	}
}

// Vouch implements peerport.Identity.
func (b *directory) Vouch(ctx context.Context, caller *wire.PeerHello, host string) wire.Standing {
	said := b.vouchers.about(ctx, callerKey{caller.GetId(), caller.GetIncarnation()}, host, b.witnesses(caller.GetId()))
	if said == wire.Standing_UNKNOWN {
		return b.standing(caller.GetId(), caller.GetIncarnation())
	}
	return said
}

// witnesses returns the members whose incarnations this node knows, except itself and the node in question.
func (b *directory) witnesses(about string) map[Peer]string {
	_, revision, known := b.page()
	members := make([]*wire.Member, 0, len(known))
	for _, m := range known {
		members = append(members, m)
	}
	b.live(revision, func(m *fsm.Machine) { members = m.Members() })
	found := map[Peer]string{}
	for _, m := range members {
		if m.Id != b.id && m.Id != about && m.Incarnation != "" && m.PeerAddr != "" {
			found[Peer{m.Id, m.PeerAddr}] = m.Incarnation
		}
	}
	return found
}

// Observe implements peerport.Identity. It ignores nodes that are not members.
func (b *directory) Observe(hello *wire.PeerHello) {
	if hello.GetPurpose() != wire.PeerHello_RAFT {
		return
	}
	if known, member := b.recorded(hello.GetId()); known != "" || !member {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.noted[hello.Id]; !ok {
		b.noted[hello.Id] = hello.Incarnation
	}
}

// peers returns the other nodes that this one has an address for.
func (b *directory) peers(configured []Peer) []Peer {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var peers []Peer
	for _, p := range configured {
		if _, known := b.members[p.ID]; !known && p.ID != b.id {
			peers = append(peers, p)
		}
	}
	for id, m := range b.members {
		if id != b.id && m.PeerAddr != "" {
			peers = append(peers, Peer{id, m.PeerAddr})
		}
	}
	return peers
}

// page returns the current record.
func (b *directory) page() (cluster string, revision uint64, members map[string]*wire.Member) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.cluster, b.revision, b.members
}

// sameRemoved reports whether the record has the same removed members as now.
func (b *directory) sameRemoved(now []*wire.RemovedMember) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.EqualFunc(b.removed, now, func(a, b *wire.RemovedMember) bool { return a.Revision == b.Revision })
}

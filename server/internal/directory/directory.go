package directory

import (
	"cmp"
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

// Peer is a node and its peer address, host:port.
type Peer struct{ ID, Addr string }

// Check returns an error for an initial cluster that node id cannot be a part of.
func Check(id string, cluster []Peer) error {
	seen := map[string]bool{}
	for _, p := range cluster {
		if p.ID == "" || p.Addr == "" {
			return fmt.Errorf("the initial cluster has an entry without id or address: %q=%q", p.ID, p.Addr)
		}
		if seen[p.ID] {
			return fmt.Errorf("the initial cluster names %q twice", p.ID)
		}
		seen[p.ID] = true
	}
	if len(cluster) > 0 && !seen[id] {
		return fmt.Errorf("the initial cluster does not name this node, %q: --cluster lists every node, itself included", id)
	}
	return nil
}

// Config configures a directory. All fields except Cluster and Configured are required.
type Config struct {
	// ID and Incarnation identify this node.
	ID, Incarnation string
	// Cluster is the cluster named by the node's certificate; "" without one.
	Cluster string
	// Configured are the nodes that may begin a cluster with this one.
	Configured []Peer
	// Values stores the members.
	Values raft.StableStore
	// View calls f with the state machine, and reports true, if the machine is at least as new as a record of the
	// given revision.
	View func(revision uint64, f func(*fsm.Machine)) (fresh bool)
	// Ask asks a member with that incarnation about a caller. It returns UNKNOWN if the member does not answer.
	Ask func(ctx context.Context, member Peer, incarnation string, about *wire.StandingRequest) wire.Standing
}

// Directory is a node's member directory: the members in the last applied state, which it also stores, and the
// incarnations of members that are not recorded yet. It is safe for concurrent use.
type Directory struct {
	cfg       Config
	inquiries *inquiries

	mu       sync.RWMutex // guards the fields below
	cluster  string
	revision uint64
	members  map[string]*wire.Member
	removed  []*wire.RemovedMember
	// provisional holds the incarnations that connected for raft before they were recorded, by id.
	provisional map[string]string
}

// Open loads the members that are stored. It returns storage.ErrDamaged, or status.ErrOtherCluster if the
// certificate names another cluster than the one stored.
func Open(cfg Config) (*Directory, error) {
	d := &Directory{cfg: cfg, inquiries: newInquiries(cfg.Ask), members: map[string]*wire.Member{}, provisional: map[string]string{}}
	page, err := storage.Get(cfg.Values, membersKey)
	if err != nil || len(page) == 0 {
		return d, err
	}
	record := &wire.Membership{}
	if len(page) < 8 {
		return nil, fmt.Errorf("%w: the members kept in it are cut off", storage.ErrDamaged)
	}
	if err := proto.Unmarshal(page[8:], record); err != nil {
		return nil, fmt.Errorf("%w: the members kept in it: %w", storage.ErrDamaged, err)
	}
	d.revision, d.cluster = binary.BigEndian.Uint64(page), record.ClusterId
	d.enter(record.Members, record.Removed)
	if d.cfg.Cluster != "" && d.cluster != "" && !wire.NamesCluster(d.cfg.Cluster, d.cluster) {
		return nil, fmt.Errorf("%w: the data directory belongs to cluster %q, the certificate names %q: give --data-dir and --peer-tls-cert of the same cluster", status.ErrOtherCluster, d.cluster, d.cfg.Cluster)
	}
	return d, nil
}

func (d *Directory) enter(members []*wire.Member, removed []*wire.RemovedMember) {
	d.removed = removed
	d.members = make(map[string]*wire.Member, len(members))
	for _, m := range members {
		d.members[m.Id] = m
	}
}

// Store replaces the record and writes it to the stable store. It returns the ids whose former incarnation is
// no longer valid.
func (d *Directory) Store(revision uint64, now *wire.Membership) (void []string, err error) {
	page := binary.BigEndian.AppendUint64(nil, revision)
	page, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(page, now)
	if err == nil {
		err = d.cfg.Values.Set(membersKey, page)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.members
	d.cluster, d.revision = now.ClusterId, revision
	d.enter(now.Members, now.Removed)
	for id, m := range old {
		if m.Incarnation != "" && m.Incarnation != d.members[id].GetIncarnation() {
			delete(d.provisional, id)
			void = append(void, id)
		}
	}
	return void, err
}

// ClusterID implements peerport.Identity.
func (d *Directory) ClusterID() string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.cluster
}

// Named returns the id of this node's cluster or, while that is not known, the name in the certificate.
func (d *Directory) Named() string { return cmp.Or(d.ClusterID(), d.cfg.Cluster) }

// Foreign reports whether this node cannot be a node of the cluster with that id.
func (d *Directory) Foreign(cluster string) bool {
	if mine := d.ClusterID(); mine != "" {
		return cluster != mine
	}
	return d.cfg.Cluster != "" && !wire.NamesCluster(d.cfg.Cluster, cluster)
}

// Self implements peerport.Identity.
func (d *Directory) Self() (id, incarnation string) { return d.cfg.ID, d.cfg.Incarnation }

// Incarnation implements peerport.Identity. It returns the recorded incarnation or, for a member without
// one, the first that connected for raft.
func (d *Directory) Incarnation(id string) (string, bool) {
	known, member := d.Recorded(id)
	if known != "" {
		return known, true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	incarnation, ok := d.provisional[id]
	return incarnation, ok && member
}

// Recorded returns the incarnation recorded for a member, "" if there is none. After a restart, the record is
// ahead of the state machine until the log has been applied again.
func (d *Directory) Recorded(id string) (incarnation string, member bool) {
	d.mu.RLock()
	known, revision := d.members[id], d.revision
	d.mu.RUnlock()
	d.cfg.View(revision, func(m *fsm.Machine) { known, _ = m.Member(id) })
	return known.GetIncarnation(), known != nil
}

// Drained reports whether a member is drained. Like Recorded, it may be ahead of the state machine after a restart.
func (d *Directory) Drained(id string) bool {
	d.mu.RLock()
	known, revision := d.members[id], d.revision
	d.mu.RUnlock()
	d.cfg.View(revision, func(m *fsm.Machine) { known, _ = m.Member(id) })
	return known.GetDrained()
}

// RecordedStanding returns what the record says about a node, that is, what this node has applied or begun the
// cluster with.
func (d *Directory) RecordedStanding(id, incarnation string) wire.Standing {
	known, member := d.Recorded(id)
	switch {
	case incarnation == "":
		return wire.Standing_UNKNOWN
	case d.wasRemoved(incarnation):
		return wire.Standing_REMOVED
	case known == incarnation:
		return wire.Standing_MEMBER
	case known != "":
		return wire.Standing_REPLACED
	case member, d.mayBegin(id):
		return wire.Standing_EXPECTED
	}
	return wire.Standing_UNKNOWN
}

func (d *Directory) wasRemoved(incarnation string) (removed bool) {
	d.mu.RLock()
	removed = slices.ContainsFunc(d.removed, func(r *wire.RemovedMember) bool { return r.Incarnation == incarnation })
	revision := d.revision
	d.mu.RUnlock()
	d.cfg.View(revision, func(m *fsm.Machine) { removed = m.WasRemoved(incarnation) })
	return removed
}

// mayBegin reports whether a node may begin a cluster with this one, which does not know of any cluster yet.
func (d *Directory) mayBegin(id string) bool {
	return d.Empty() && slices.ContainsFunc(d.cfg.Configured, func(p Peer) bool { return p.ID == id })
}

// Empty reports whether this node knows no members.
func (d *Directory) Empty() bool {
	d.mu.RLock()
	empty, revision := len(d.members) == 0, d.revision
	d.mu.RUnlock()
	d.cfg.View(revision, func(*fsm.Machine) { empty = false })
	return empty
}

// Standing implements peerport.Identity.
func (d *Directory) Standing(id, incarnation string) wire.Standing {
	switch s := d.RecordedStanding(id, incarnation); s {
	case wire.Standing_EXPECTED:
		if provisional, ok := d.Incarnation(id); ok && provisional != incarnation {
			return wire.Standing_REPLACED
		}
		return s
	case wire.Standing_UNKNOWN, wire.Standing_REPLACED:
		if said := d.inquiries.known(caller{id, incarnation}); said != wire.Standing_UNKNOWN {
			return said
		}
		return s
	default:
		return s
	}
}

// AskMembers implements peerport.Identity.
func (d *Directory) AskMembers(ctx context.Context, hello *wire.PeerHello, host string) wire.Standing {
	said := d.inquiries.about(ctx, caller{hello.GetId(), hello.GetIncarnation()}, host, d.membersToAsk(hello.GetId()))
	if said == wire.Standing_UNKNOWN {
		return d.RecordedStanding(hello.GetId(), hello.GetIncarnation())
	}
	return said
}

// membersToAsk returns the members whose incarnations this node knows, except itself and the node in question.
func (d *Directory) membersToAsk(about string) map[Peer]string {
	_, revision, known := d.Record()
	members := make([]*wire.Member, 0, len(known))
	for _, m := range known {
		members = append(members, m)
	}
	d.cfg.View(revision, func(m *fsm.Machine) { members = m.Members() })
	found := map[Peer]string{}
	for _, m := range members {
		if m.Id != d.cfg.ID && m.Id != about && m.Incarnation != "" && m.PeerAddr != "" {
			found[Peer{m.Id, m.PeerAddr}] = m.Incarnation
		}
	}
	return found
}

// Observe implements peerport.Identity. It ignores nodes that are not members.
func (d *Directory) Observe(hello *wire.PeerHello) {
	if hello.GetPurpose() != wire.PeerHello_RAFT {
		return
	}
	if known, member := d.Recorded(hello.GetId()); known != "" || !member {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.provisional[hello.Id]; !ok {
		d.provisional[hello.Id] = hello.Incarnation
	}
}

// Peers returns the other nodes that this one has an address for.
func (d *Directory) Peers(configured []Peer) []Peer {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var peers []Peer
	for _, p := range configured {
		if _, known := d.members[p.ID]; !known && p.ID != d.cfg.ID {
			peers = append(peers, p)
		}
	}
	for id, m := range d.members {
		if id != d.cfg.ID && m.PeerAddr != "" {
			peers = append(peers, Peer{id, m.PeerAddr})
		}
	}
	return peers
}

// Record returns the current record.
func (d *Directory) Record() (cluster string, revision uint64, members map[string]*wire.Member) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.cluster, d.revision, d.members
}

// Equal reports whether the record has the same cluster, members and removed members.
func (d *Directory) Equal(now *wire.Membership) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return now.ClusterId == d.cluster && len(now.Members) == len(d.members) &&
		!slices.ContainsFunc(now.Members, func(m *wire.Member) bool { return !proto.Equal(d.members[m.Id], m) }) &&
		slices.EqualFunc(d.removed, now.Removed, func(a, b *wire.RemovedMember) bool { return a.Revision == b.Revision })
}

// Update replaces the record by the members of the state machine, if they are newer and differ. It returns the ids
// whose former incarnation is no longer valid.
func (d *Directory) Update() (void []string, changed bool, err error) {
	_, recorded, _ := d.Record()
	var now *wire.Membership
	var revision uint64
	d.cfg.View(recorded+1, func(m *fsm.Machine) {
		revision = m.Revision()
		now = &wire.Membership{ClusterId: m.ClusterID(), Members: m.Members(), Removed: m.Removed()}
	})
	if now == nil || d.Equal(now) {
		return nil, false, nil
	}
	void, err = d.Store(revision, now)
	return void, true, err
}

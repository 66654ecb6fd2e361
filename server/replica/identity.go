package replica

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Keys of this package in raft's stable store.
var (
	// incarnationKey makes the incarnation a part of the log's own file: whoever loses the
	// log loses it too, and is a stranger to the cluster.
	incarnationKey = []byte("quorumlock.incarnation")
	// nodeKey is the id of the node that the log belongs to.
	nodeKey = []byte("quorumlock.node")
	// membersKey remembers the members across restarts: until a leader is elected the
	// log is not applied, but whom to trust must be known before.
	membersKey = []byte("quorumlock.members")
)

const (
	identityFile   = "node.json"
	identityFormat = 1
)

// nodeFile is the identity file, for people.
type nodeFile struct {
	Format      int    `json:"format"`
	ID          string `json:"id"`
	Incarnation string `json:"incarnation"`
}

// openIdentity reads the node's identity or mints it. What counts is in the stable store, which
// has checksums and belongs to the log; the identity file is checked against that.
func openIdentity(cfg Config, stable raft.StableStore) (incarnation string, err error) {
	if cfg.Stores.Log != nil && cfg.Stores.Incarnation != "" {
		return cfg.Stores.Incarnation, nil
	}
	id, err := remembered(stable, nodeKey, cfg.ID)
	if err != nil {
		return "", err
	}
	if id != cfg.ID {
		return "", fmt.Errorf("%w: %s is that of %q, this node is %q: start it with its own --data-dir", ErrOtherNode, cfg.DataDir, id, cfg.ID)
	}
	if incarnation, err = remembered(stable, incarnationKey, mint()); err != nil || cfg.Stores.Log != nil {
		return incarnation, err
	}
	path, want := filepath.Join(cfg.DataDir, identityFile), nodeFile{identityFormat, cfg.ID, incarnation}
	file, err := readIdentity(path)
	switch {
	case err != nil:
		return "", err
	case file == nil:
		return incarnation, writeIdentity(path, want)
	case *file != want:
		return "", damagedIdentity(path, fmt.Errorf("it says node %q with incarnation %q, the log is that of node %q with incarnation %q",
			file.ID, file.Incarnation, want.ID, want.Incarnation))
	}
	return incarnation, nil
}

// remembered returns what is stored under a key. In a new store that is value, from now on.
func remembered(stable raft.StableStore, key []byte, value string) (string, error) {
	stored, err := get(stable, key)
	if err != nil || len(stored) > 0 {
		return string(stored), err
	}
	return value, stable.Set(key, []byte(value))
}

// mint makes an id that nobody else has.
func mint() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func readIdentity(path string) (*nodeFile, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's identity: %w", err)
	}
	var file nodeFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, damagedIdentity(path, err)
	}
	if file.Format > identityFormat {
		return nil, damagedIdentity(path, fmt.Errorf("it has format %d, and this program knows formats up to %d: "+
			"if a newer program wrote it, start that one", file.Format, identityFormat))
	}
	return &file, nil
}

// damagedIdentity says how to mend the identity file. All else in the data directory has been
// checked before it is read.
func damagedIdentity(path string, why error) error {
	return fmt.Errorf("%w: %s: %w\nNothing was changed, and nothing else is damaged: the log has this node's identity, too. "+
		"Remove the file, which the node then writes anew: run\n  rm %s\nand start this node again", ErrIdentityFile, path, why, path)
}

// writeIdentity replaces the file whole or not at all.
func writeIdentity(path string, file nodeFile) error {
	data, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = replaceFile(path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the node's identity: %w", err)
	}
	return nil
}

func replaceFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// get reads a key; nil if it is not there.
func get(stable raft.StableStore, key []byte) ([]byte, error) {
	value, err := stable.Get(key)
	if err != nil && err.Error() != "not found" {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return value, nil
}

// book is what this node knows of who is who: the members as last applied, kept in the
// stable store, and the incarnations of nodes that are not recorded yet.
type book struct {
	id, incarnation string
	certified       string // the cluster that the certificate names
	stable          raft.StableStore
	// live looks a node up in the machine; fresh says whether that is as new as the
	// record of the given revision.
	live func(id string, revision uint64) (incarnation string, fresh bool)
	// configured says whether raft counts a node among the cluster's.
	configured func(id string) bool

	mu       sync.RWMutex
	cluster  string
	revision uint64
	members  map[string]*wire.Member
	// noted are incarnations that came to raft before they were recorded.
	noted map[string]string
}

func openBook(cfg Config, incarnation string, stable raft.StableStore) (*book, error) {
	b := &book{id: cfg.ID, incarnation: incarnation, certified: cfg.ClusterID, stable: stable,
		members: map[string]*wire.Member{}, noted: map[string]string{}}
	page, err := get(stable, membersKey)
	if err != nil || len(page) == 0 {
		return b, err
	}
	record := &wire.Bootstrap{}
	if len(page) < 8 {
		return nil, fmt.Errorf("%w: the members kept in it are cut off", ErrDamaged)
	}
	if err := proto.Unmarshal(page[8:], record); err != nil {
		return nil, fmt.Errorf("%w: the members kept in it: %w", ErrDamaged, err)
	}
	b.revision, b.cluster = binary.BigEndian.Uint64(page), record.ClusterId
	b.enter(record.Members)
	if b.certified != "" && b.cluster != "" && b.certified != b.cluster {
		return nil, fmt.Errorf("%w: the data directory belongs to cluster %q, the certificate names %q", ErrOtherCluster, b.cluster, b.certified)
	}
	return b, nil
}

func (b *book) enter(members []*wire.Member) {
	b.members = make(map[string]*wire.Member, len(members))
	for _, m := range members {
		b.members[m.Id] = m
	}
}

// keep makes members the record. It returns the ids whose incarnation is no longer
// what it was.
func (b *book) keep(cluster string, revision uint64, members []*wire.Member) (gone []string, err error) {
	page := binary.BigEndian.AppendUint64(nil, revision)
	page, err = proto.MarshalOptions{Deterministic: true}.MarshalAppend(page, &wire.Bootstrap{ClusterId: cluster, Members: members})
	if err == nil {
		err = b.stable.Set(membersKey, page)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.members
	b.cluster, b.revision = cluster, revision
	b.enter(members)
	for id, m := range old {
		if m.Incarnation != "" && m.Incarnation != b.members[id].GetIncarnation() {
			delete(b.noted, id)
			gone = append(gone, id)
		}
	}
	return gone, err
}

// ClusterID implements raftstream.Identity.
func (b *book) ClusterID() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.cluster != "" {
		return b.cluster
	}
	return b.certified
}

// Self implements raftstream.Identity.
func (b *book) Self() (id, incarnation string) { return b.id, b.incarnation }

// Incarnation implements raftstream.Identity: the one recorded, or else, for a node of
// the cluster, the one that came to raft first.
func (b *book) Incarnation(id string) (string, bool) {
	if known := b.recorded(id); known != "" {
		return known, true
	}
	if !b.configured(id) {
		return "", false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	noted, ok := b.noted[id]
	return noted, ok
}

// recorded is the incarnation recorded for a node, empty if none is. After a restart
// the book is ahead of the machine, until the log has been applied again.
func (b *book) recorded(id string) string {
	b.mu.RLock()
	known, revision := b.members[id].GetIncarnation(), b.revision
	b.mu.RUnlock()
	if incarnation, fresh := b.live(id, revision); fresh {
		return incarnation
	}
	return known
}

// Observe implements raftstream.Identity. Strangers are not remembered.
func (b *book) Observe(hello *wire.PeerHello) {
	if hello.GetPurpose() != wire.PeerHello_RAFT || !b.configured(hello.GetId()) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.noted[hello.Id]; !ok {
		b.noted[hello.Id] = hello.Incarnation
	}
}

// peers are the other nodes that this one knows an address of.
func (b *book) peers(configured []Peer) []Peer {
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

// page is the record as it stands.
func (b *book) page() (cluster string, revision uint64, members map[string]*wire.Member) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.cluster, b.revision, b.members
}

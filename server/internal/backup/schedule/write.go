package schedule

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// written is a backup in a store.
type written struct {
	cluster string
	about   *wire.SavedBackup
	sum     [sha256.Size]byte
}

// counted counts and hashes what is written.
type counted struct {
	io.Writer
	n uint64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += uint64(n)
	return n, err
}

// write writes the present state to a store and verifies it there.
func (k *Keeper) write(ctx context.Context, to store.Store) (*written, error) {
	m, now := k.cfg.Machine.Fork(), time.Now()
	w := &written{cluster: m.ClusterID(), about: &wire.SavedBackup{
		Name:   store.Name{Cluster: m.ClusterID(), Time: now, Revision: m.Revision()}.String(),
		NodeId: k.cfg.NodeID, UnixMs: now.UnixMilli(), Lineage: m.Lineage(), Revision: m.Revision(),
	}}
	write := func(out io.Writer) error {
		sum := sha256.New()
		c := &counted{Writer: io.MultiWriter(out, sum)}
		if err := backup.Write(ctx, m, c); err != nil {
			return err
		}
		w.sum, w.about.Bytes = [sha256.Size]byte(sum.Sum(nil)), c.n
		return nil
	}
	return w, to.Put(ctx, w.about.Name, write, func(r io.Reader) error { return w.verify(ctx, r) })
}

// verify reads a backup into a machine of its own. The bytes must be those that were written, and the machine must be
// in the same state.
func (w *written) verify(ctx context.Context, r io.Reader) error {
	read := sha256.New()
	m, err := fsm.Restore(io.TeeReader(r, read), fsm.Level)
	if errors.Is(err, fsm.ErrMalformed) {
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	if err != nil {
		return err
	}
	again := sha256.New()
	if err := backup.Write(ctx, m, again); err != nil {
		return err
	}
	if w.sum != [sha256.Size]byte(read.Sum(nil)) || w.sum != [sha256.Size]byte(again.Sum(nil)) {
		return fmt.Errorf("%w: it was read back with another state", store.ErrDamaged)
	}
	return nil
}

// copy copies the backup to another store.
func (w *written) copy(ctx context.Context, from, to store.Store) error {
	write := func(out io.Writer) error {
		return from.Read(ctx, w.about.Name, func(r io.Reader) error {
			_, err := io.Copy(out, r)
			return err
		})
	}
	return to.Put(ctx, w.about.Name, write, store.Equals(w.sum))
}

package schedule

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// written is a backup in a store.
type written struct {
	content
	name  store.Name
	about *wire.SavedBackup
	sum   [sha256.Size]byte
	// due is when the next backup is due. It has a monotonic clock.
	due time.Time
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
	w := &written{
		content: contentOf(m), due: now.Add(k.plan.schedule.Next(now.UTC()).Sub(now.Round(0))),
		about: &wire.SavedBackup{NodeId: k.cfg.NodeID, UnixMs: now.UnixMilli(), Lineage: m.Lineage(), Revision: m.Revision()},
	}
	w.name = store.Name{Cluster: m.ClusterID(), Time: now, Revision: m.Revision()}
	write := func(out io.Writer) error {
		sum := sha256.New()
		c := &counted{Writer: io.MultiWriter(out, sum)}
		if err := backup.Write(ctx, m, c); err != nil {
			return err
		}
		w.sum, w.about.Bytes = [sha256.Size]byte(sum.Sum(nil)), c.n
		return nil
	}
	return w, w.named(func(name string) error {
		w.about.Name = name
		return to.Put(ctx, name, write, func(r io.Reader) error { return w.verify(ctx, r) })
	})
}

// named calls put with the name of the backup, and with further ones as long as there are files of these names.
func (w *written) named(put func(name string) error) (err error) {
	for _, n := range []int{0, 2, 3, 4, 5, 6, 7, 8, 9} {
		name := w.name
		name.Copy = n
		if err = put(name.String()); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
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
	return w.named(func(name string) error {
		err := to.Put(ctx, name, write, store.Equals(w.sum))
		if errors.Is(err, fs.ErrExist) && to.Read(ctx, name, store.Equals(w.sum)) == nil {
			return nil // an earlier attempt has stored it
		}
		return err
	})
}

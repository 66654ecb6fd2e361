package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxInspected bounds the files that are read for one retention in one store. The next one goes on.
const maxInspected = 2_000

// content is what a backup contains, as far as retention needs it.
type content struct {
	cluster string
	version
}

// version is a state of a cluster.
type version struct {
	lineage  string
	revision uint64
}

func contentOf(m *fsm.Machine) content {
	return content{m.ClusterID(), version{m.Lineage(), m.Revision()}}
}

// inspected is what was found in the file of a store that had that tag.
type inspected struct {
	tag string
	content
	// why is why the file is no backup; nil for one.
	why error
}

// foreign returns why a file is not counted, nil if it is a backup of the cluster whose present state is now. A backup of
// a revision that the cluster has not reached is not its own: its history was replaced by another one, or it is forged.
func (i inspected) foreign(now content) error {
	switch {
	case i.why != nil:
		return i.why
	case i.cluster != now.cluster:
		return fmt.Errorf("it is of cluster %q", i.cluster)
	case i.lineage == now.lineage && i.revision > now.revision:
		return fmt.Errorf("it is of revision %d, which this cluster has not reached", i.revision)
	}
	return nil
}

// retainAll removes the backups that the stores need not keep. The files' contents decide, never their names: the last
// states count, those of the present lineage before those of earlier ones.
func (k *Keeper) retainAll(ctx context.Context) {
	if k.pending == nil {
		return
	}
	for i, s := range k.cfg.Stores {
		known, err := k.inspect(ctx, s, k.known[i])
		k.known[i] = known
		drop, foreign := superfluous(known, k.pending, k.cfg.Keep, k.last())
		for _, file := range drop {
			err = errors.Join(err, s.Remove(ctx, file))
		}
		k.report(i, foreign)
		if err != nil && ctx.Err() == nil {
			k.cfg.Logger.Warn("old backups were not removed", "store", s.String(), "error", err)
		}
	}
}

// inspect reads those files of a store that were not read with their present tags before, and returns what all contain.
func (k *Keeper) inspect(ctx context.Context, s store.Store, before map[string]inspected) (map[string]inspected, error) {
	files, err := s.List(ctx)
	if err != nil {
		return before, err
	}
	known, read := map[string]inspected{}, 0
	for _, f := range files {
		one, ok := before[f.Name]
		switch {
		case ok && one.tag == f.Tag:
		case f.Odd != "":
			one = inspected{tag: f.Tag, why: fmt.Errorf("it is no regular file: %s", f.Odd)}
		case read == maxInspected || ctx.Err() != nil:
			continue
		default:
			read++
			found, failed := examine(ctx, s, f)
			if err = errors.Join(err, failed); failed != nil {
				continue
			}
			one = found
		}
		known[f.Name] = one
	}
	return known, err
}

// examine reads one file. The error is that of the store.
func examine(ctx context.Context, s store.Store, f store.File) (inspected, error) {
	found := inspected{tag: f.Tag}
	err := s.Read(ctx, f.Name, func(r io.Reader) error {
		m, err := fsm.Restore(r, fsm.Level)
		if errors.Is(err, fsm.ErrMalformed) || errors.Is(err, fsm.ErrUpgrade) {
			found.why = err
			return nil
		}
		if err == nil {
			found.content = contentOf(m)
		}
		return err
	})
	return found, err
}

// kept is a backup of this cluster in the order in which they are kept.
type kept struct {
	version
	name string
	// copies is the number of files with the same state before this one.
	copies int
	// earlier is set for a state of an earlier lineage.
	earlier bool
}

// superfluous returns those of the known files that exceed the last keep, and those that are not backups of this cluster,
// with the reason. Each state counts once before any counts again. It spares the state just made, in the file of that
// name, and the one that was recorded last. 0 keeps all.
func superfluous(known map[string]inspected, made *written, keep int, last *wire.SavedBackup) (drop []string, foreign map[string]error) {
	foreign = map[string]error{}
	var all []kept
	for name, one := range known {
		if why := one.foreign(made.content); why != nil {
			foreign[name] = why
		} else {
			all = append(all, kept{version: one.version, name: name, earlier: one.lineage != made.lineage})
		}
	}
	if keep <= 0 || len(all) <= keep {
		return nil, foreign
	}
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(preferred(a, b, made), cmp.Compare(b.name, a.name)) })
	seen := map[version]int{}
	for i := range all {
		all[i].copies = seen[all[i].version]
		seen[all[i].version]++
	}
	slices.SortStableFunc(all, func(a, b kept) int { return cmp.Or(cmp.Compare(a.copies, b.copies), later(a, b)) })
	spared := []version{made.version, {last.GetLineage(), last.GetRevision()}}
	for _, one := range all[keep:] {
		if one.copies > 0 || !slices.Contains(spared, one.version) {
			drop = append(drop, one.name)
		}
	}
	return drop, foreign
}

// preferred orders the file just made before others with the same state.
func preferred(a, b kept, made *written) int {
	of := func(k kept) int {
		if k.name == made.about.Name {
			return 0
		}
		return 1
	}
	return of(a) - of(b)
}

// later orders later states before earlier ones.
func later(a, b kept) int {
	switch {
	case a.earlier != b.earlier && a.earlier:
		return 1
	case a.earlier != b.earlier:
		return -1
	}
	return cmp.Or(cmp.Compare(b.revision, a.revision), cmp.Compare(a.lineage, b.lineage))
}

// report logs the files of a store that are not this cluster's backups, if they are others than before.
func (k *Keeper) report(i int, foreign map[string]error) {
	names := make([]string, 0, len(foreign))
	for name := range foreign {
		names = append(names, name)
	}
	slices.Sort(names)
	k.mu.Lock()
	same := slices.Equal(names, k.foreign[i])
	k.foreign[i] = names
	k.mu.Unlock()
	if same || len(names) == 0 {
		return
	}
	k.cfg.Logger.Warn("files among the backups are not this cluster's, and stay", "store", k.cfg.Stores[i].String(), "files", len(names),
		"name", names[0], "reason", foreign[names[0]])
}

// ForeignFiles returns the number of files among the backups that are not this cluster's.
func (k *Keeper) ForeignFiles() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int(k.foreignFiles())
}

func (k *Keeper) foreignFiles() (n uint32) {
	for _, names := range k.foreign {
		n += uint32(len(names))
	}
	return n
}

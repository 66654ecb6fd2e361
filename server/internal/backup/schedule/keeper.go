package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/backup/store"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// longestSleep bounds the time until a step of the clock is noticed.
	longestSleep = time.Minute
	// attemptTimeout bounds one attempt.
	attemptTimeout = time.Hour
)

// Config configures a Keeper.
type Config struct {
	NodeID string
	// Schedule is when backups are due. Parse checks it.
	Schedule string
	// Stores are where each backup is kept. The first is local; the others get copies of its files.
	Stores []store.Store
	// Keep is the number of backups that each store keeps; 0 keeps all.
	Keep    int
	Machine *fsm.Replicated
	Logger  hclog.Logger
	// Done is called after each attempt.
	Done func(took time.Duration, err error)
}

// Record records a backup in the replicated state.
type Record func(context.Context, *wire.SavedBackup) error

// Keeper makes backups while its node leads.
type Keeper struct {
	cfg Config
	// leading has room for the one goroutine that runs.
	leading chan struct{}

	mu   sync.Mutex // guards plan
	plan plan
	// pending is a backup that the first store has, and that was not recorded yet; nil if there is none. The goroutine
	// that runs owns it.
	pending *written
	// known is what the files of each store contain, as far as they were read, by name. The goroutine that runs owns it.
	known []map[string]inspected
	// foreign are the files that are not this cluster's backups, as reported last, by store; guarded by mu.
	foreign [][]string
}

// New returns the keeper of a node.
func New(cfg Config) (*Keeper, error) {
	parsed, err := Parse(cfg.Schedule)
	if err != nil {
		return nil, err
	}
	return &Keeper{cfg: cfg, leading: make(chan struct{}, 1), plan: plan{schedule: parsed, began: time.Now()},
		known: make([]map[string]inspected, len(cfg.Stores)), foreign: make([][]string, len(cfg.Stores))}, nil
}

// Run makes backups until ctx ends, which it does with the leadership. A call waits for the end of an earlier one.
func (k *Keeper) Run(ctx context.Context, record Record) {
	select {
	case k.leading <- struct{}{}:
		defer func() { <-k.leading }()
	case <-ctx.Done():
		return
	}
	k.begin()
	for {
		wait := k.wait()
		if wait == 0 {
			k.attempt(ctx, record)
		}
		timer := time.NewTimer(min(max(wait, time.Millisecond), longestSleep))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// begin forgets what another leadership has tried.
func (k *Keeper) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan.began, k.plan.failures = time.Now(), 0
	k.pending = nil
}

func (k *Keeper) wait() time.Duration {
	last := k.last()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plan.wait(last, time.Now())
}

func (k *Keeper) last() (last *wire.SavedBackup) {
	k.cfg.Machine.View(func(m *fsm.Machine) { last = m.LastBackup() })
	return last
}

// Due returns when the next backup after the latest one is due. It is in the past if that one is missing.
func (k *Keeper) Due() time.Time {
	last := k.last()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plan.due(last, time.Now())
}

// Status describes the schedule.
func (k *Keeper) Status() *wire.BackupSchedule {
	last := k.last()
	k.mu.Lock()
	defer k.mu.Unlock()
	return &wire.BackupSchedule{Schedule: k.cfg.Schedule, Failures: k.plan.failures, Overdue: k.plan.overdue(last, time.Now()), ForeignFiles: k.foreignFiles()}
}

// attempt makes one backup and records it.
func (k *Keeper) attempt(ctx context.Context, record Record) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	saved, err := k.save(limited)
	if err == nil {
		if err = record(limited, saved); err != nil {
			err = fmt.Errorf("record the backup: %w", err)
		}
	}
	k.retainAll(limited)
	if err == nil {
		k.pending = nil
	}
	if ctx.Err() != nil {
		return // no longer the leader
	}
	took := time.Since(began)
	k.mu.Lock()
	pause := time.Duration(0)
	if err == nil {
		k.plan.failures = 0
	} else {
		pause = k.plan.failed(time.Now())
	}
	failures := k.plan.failures
	k.mu.Unlock()
	k.cfg.Done(took, err)
	if err != nil {
		k.cfg.Logger.Error("a scheduled backup failed", "error", err, "failures", failures, "pause", pause.String())
		return
	}
	k.cfg.Logger.Info("a scheduled backup was made and verified", "name", saved.Name, "bytes", saved.Bytes, "revision", saved.Revision, "took", took.String())
}

// save stores a backup everywhere.
func (k *Keeper) save(ctx context.Context) (*wire.SavedBackup, error) {
	if !k.usable(k.pending) {
		w, err := k.write(ctx, k.cfg.Stores[0])
		if err != nil {
			return nil, fmt.Errorf("back up to %s: %w", k.cfg.Stores[0], err)
		}
		k.pending = w
	}
	var failed []error
	for _, to := range k.cfg.Stores[1:] {
		if err := k.pending.copy(ctx, k.cfg.Stores[0], to); err != nil {
			failed = append(failed, fmt.Errorf("copy %s to %s: %w", k.pending.about.Name, to, err))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return proto.CloneOf(k.pending.about), nil
}

// usable reports whether an attempt can continue with a backup that an earlier one has written: until the next one is
// due.
func (k *Keeper) usable(w *written) bool {
	if w == nil {
		return false
	}
	lineage := ""
	k.cfg.Machine.View(func(m *fsm.Machine) { lineage = m.Lineage() })
	return w.lineage == lineage && time.Now().Before(w.due)
}

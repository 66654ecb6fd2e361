package examine

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// syncs is how many syncs are measured, unless they take longer than most together.
	syncs = 20
	most  = 500 * time.Millisecond
	// record is how much is written before a sync, in bytes.
	record = 4096
)

// measure writes a file in the directory and syncs it several times, as the log is written. It removes the file.
func measure(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".sync-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, record)); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil { // allocates the space, as the log's segments have it
		return nil, err
	}
	for began := time.Now(); len(took) < syncs && time.Since(began) < most; {
		before := time.Now()
		if _, err := f.WriteAt(make([]byte, record), 0); err != nil {
			return took, err
		}
		if err := f.Sync(); err != nil {
			return took, err
		}
		took = append(took, time.Since(before))
	}
	return took, nil
}

// describe adds the result to an examination.
func (m *measurement) describe(found *wire.Examination) {
	if m.err != nil {
		found.SyncError = m.err.Error()
	}
	if len(m.took) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(m.took))
	found.Syncs = uint32(len(sorted))
	found.SyncMedianUs, found.SyncMaxUs = micros(sorted[(len(sorted)-1)/2]), micros(sorted[len(sorted)-1])
}

func micros(d time.Duration) uint32 { return uint32(min(max(d.Microseconds(), 1), 1<<32-1)) }

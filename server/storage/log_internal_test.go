package storage

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage/segment"
	"github.com/quorumlock/quorumlock/server/storage/stable"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestOlderSegmentsAreRefused verifies that segments replaced by an older copy are detected, because a vote
// was written later.
func TestOlderSegmentsAreRefused(t *testing.T) {
	o, _ := written(t)
	older := keep(t, filepath.Join(o.DataDir, segmentDir))
	s := reopen(t, o)
	for _, write := range []func() error{
		func() error { return s.Log.StoreLog(&raft.Log{Index: 391, Term: 9}) },
		func() error { return s.Votes.SetUint64([]byte(currentTerm), 9) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	s.watchdog.broken.Store(true) // close as if the process had been killed
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := reread(o); err != nil || len(m.entries) == 0 {
		t.Fatal(err)
	}
	putBack(t, filepath.Join(o.DataDir, segmentDir), older)
	if _, err := reread(o); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}

// TestSoundCloseMarksTheEnd verifies that closing records the log's end, so that the loss of acknowledged
// entries is detected from then on, and that nothing is recorded after a failed write.
func TestSoundCloseMarksTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct{ sound, fails bool }{
			"sound":        {true, false},
			"not sound":    {false, false},
			"a full disk":  {true, true},
			"a failed one": {false, true},
		} {
			o := options(t.TempDir()).withDefaults()
			backend, closer, err := openFiles(o)
			if err != nil {
				t.Fatal(err)
			}
			log := backend.Log.(*segment.Log)
			want := log.End()
			if err := log.StoreLog(&raft.Log{Index: 1, Term: 1}); err != nil {
				t.Fatal(err)
			}
			if c.sound && !c.fails {
				want = log.End()
				want.Sector++ // the mark
			}
			if c.fails {
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
			}
			before := keep(t, o.DataDir)
			if err := closer(c.sound); (err != nil) != (c.sound && c.fails) {
				t.Errorf("%s: closed: %v", name, err)
			}
			if unchanged := reflect.DeepEqual(keep(t, o.DataDir), before); unchanged != (!c.sound || c.fails) {
				t.Errorf("%s: nothing was written: %v", name, unchanged)
			}
			values, err := stable.Read(o.DataDir)
			if err != nil {
				t.Fatal(err)
			}
			if _, end, err := decodeLogEnd(values[string(logKey)]); err != nil || end != want {
				t.Errorf("%s: the log has reached %v, want %v, %v", name, end, want, err)
			}
		}
	})
}

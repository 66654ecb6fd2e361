package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// logged returns entries with consecutive indexes from first on, with these terms. Their data contains index
// and term.
func logged(first uint64, terms ...uint64) (all []*raft.Log) {
	for i, term := range terms {
		index := first + uint64(i)
		all = append(all, &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "%d of term %d", index, term)})
	}
	return all
}

// dataDir writes the files of a stopped node: its log, in the format of docs/PROTOCOL.md.
func dataDir(t *testing.T, all []*raft.Log) string {
	t.Helper()
	return segmentsDir(t, func(l *segment.Log) {
		for _, e := range all {
			must(t, l.StoreLog(e))
		}
	})
}

// saveState adds a snapshot up to an entry. name is its name in raft's store.
func saveState(t *testing.T, dir, name string, index, term uint64, state []byte) {
	t.Helper()
	path := filepath.Join(dir, "snapshots", name)
	meta, err := json.Marshal(raft.SnapshotMeta{ID: name, Index: index, Term: term})
	err = errors.Join(err, os.MkdirAll(path, 0o700),
		os.WriteFile(filepath.Join(path, "meta.json"), meta, 0o600),
		os.WriteFile(filepath.Join(path, "state.bin"), append([]byte("{\"Index\":1}\n"), state...), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadLogs merges the logs of three nodes, each given as the terms of its entries.
func TestReadLogs(t *testing.T) {
	for what, c := range map[string]struct {
		nodes [3][]*raft.Log
		want  []uint64 // the terms of the committed entries, from entry 1 on
	}{
		"three alike":          {[3][]*raft.Log{logged(1, 1, 1, 2), logged(1, 1, 1, 2), logged(1, 1, 1, 2)}, []uint64{1, 1, 2}},
		"one that lags":        {[3][]*raft.Log{logged(1, 1, 1, 2), logged(1, 1), logged(1, 1, 1, 2)}, []uint64{1, 1, 2}},
		"one that has nothing": {[3][]*raft.Log{nil, logged(1, 1, 1), logged(1, 1, 1)}, []uint64{1, 1}},
		"a tail on one node":   {[3][]*raft.Log{logged(1, 1, 1), logged(1, 1, 1), logged(1, 1, 1, 1, 1)}, []uint64{1, 1}},
		"a tail of a new term": {[3][]*raft.Log{logged(1, 1, 1), logged(1, 1, 1, 2), logged(1, 1, 1)}, []uint64{1, 1}},
		"a former leader's tail, which was replaced": {
			[3][]*raft.Log{logged(1, 1, 1, 1, 1), logged(1, 1, 2, 2), logged(1, 1, 2, 2)}, []uint64{1, 2, 2},
		},
		"a former leader's tail, which is longer": {
			[3][]*raft.Log{logged(1, 1, 1, 1, 1, 1), logged(1, 1, 2), logged(1, 1, 2)}, []uint64{1, 2},
		},
		"a beginning that only one has": {[3][]*raft.Log{logged(1, 1, 1, 2), logged(3, 2, 2), logged(3, 2, 2)}, []uint64{1, 1, 2, 2}},
		"one compacted and one that lags": {
			[3][]*raft.Log{logged(1, 1, 1, 1), logged(3, 1, 2, 2), logged(2, 1, 1, 2, 2)}, []uint64{1, 1, 1, 2, 2},
		},
		"nothing at all": {[3][]*raft.Log{}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			var dirs []string
			for _, n := range c.nodes {
				dirs = append(dirs, dataDir(t, n))
			}
			entries, snapshot, err := ReadLogs(dirs...)
			if err != nil || snapshot != nil {
				t.Fatalf("%v; a snapshot of %d bytes", err, len(snapshot))
			}
			wantEntries(t, entries, logged(1, c.want...))
		})
	}
}

func wantEntries(t *testing.T, got []Entry, want []*raft.Log) {
	t.Helper()
	var commands []Entry
	for _, l := range want {
		if l.Type == raft.LogCommand {
			commands = append(commands, Entry{l.Index, l.Term, l.Data})
		}
	}
	if !slices.EqualFunc(got, commands, func(a, b Entry) bool {
		return a.Index == b.Index && a.Term == b.Term && bytes.Equal(a.Data, b.Data)
	}) {
		t.Errorf("read %v, want %v", got, commands)
	}
}

// TestUncommittedLaterTermIsIgnored: the leader of term 3 appended an entry only to its own log.
// The leader of term 2 replaced it in term 4 and committed its own old entries.
func TestUncommittedLaterTermIsIgnored(t *testing.T) {
	winner := logged(1, 1, 2, 2, 4)
	dirs := []string{dataDir(t, winner), dataDir(t, winner), dataDir(t, logged(1, 1, 3))}
	for range len(dirs) {
		entries, _, err := ReadLogs(dirs...)
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, entries, winner)
		dirs = append(dirs[1:], dirs[0])
	}
}

// TestEntriesBelowAGapAreIgnored verifies that what a follower had before it installed a snapshot is ignored,
// since it was never committed.
func TestEntriesBelowAGapAreIgnored(t *testing.T) {
	stale := append(logged(1, 1, 1, 2, 2), logged(7, 3, 3)...)
	whole := logged(1, 1, 1, 1, 3, 3, 3, 3, 3)
	for _, order := range [][]*raft.Log{stale, whole} {
		other := stale
		if order[0] == stale[0] {
			other = whole
		}
		entries, _, err := ReadLogs(dataDir(t, order), dataDir(t, other), dataDir(t, whole))
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, entries, whole)
	}
}

// TestOnlyCommandsAreEntries verifies that raft's internal entries are left out.
func TestOnlyCommandsAreEntries(t *testing.T) {
	all := logged(1, 1, 1, 1)
	all[1].Type = raft.LogNoop
	entries, _, err := ReadLogs(dataDir(t, all))
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	wantEntries(t, entries, all)
}

func TestForkedLogs(t *testing.T) {
	other := logged(1, 1, 1, 2)
	other[1].Data = []byte("another one")
	config := logged(1, 1, 1, 2)
	config[1].Type = raft.LogConfiguration
	usual := logged(1, 1, 1, 2)
	for what, nodes := range map[string][3][]*raft.Log{
		"one term, two data":                 {usual, usual, other},
		"one term, two types":                {usual, config, usual},
		"one term, two data on those behind": {logged(1, 1, 1, 2, 3), other[:2], usual[:2]},
		"alike at the end, not before":       {logged(1, 1, 2, 3), logged(1, 1, 1, 3), logged(1, 1)},
		"what a majority has was replaced":   {logged(1, 1, 2, 2), logged(1, 1, 2, 2), logged(1, 1, 1, 4)},
		"what a majority has is cut off":     {logged(1, 1, 1, 1), logged(1, 1, 1, 1), logged(1, 1, 4)},
	} {
		t.Run(what, func(t *testing.T) {
			dirs := []string{dataDir(t, nodes[0]), dataDir(t, nodes[1]), dataDir(t, nodes[2])}
			for range len(dirs) {
				_, _, err := ReadLogs(dirs...)
				if !errors.Is(err, ErrForked) {
					t.Errorf("got %v", err)
				}
				dirs = append(dirs[1:], dirs[0])
			}
		})
	}
}

func TestForkedSnapshot(t *testing.T) {
	dir, other := dataDir(t, logged(1, 1, 1, 2)), dataDir(t, logged(1, 1))
	saveState(t, other, "2-2-1", 2, 2, []byte("state"))
	if _, _, err := ReadLogs(dir, other); !errors.Is(err, ErrForked) {
		t.Errorf("a snapshot of a term that entry 2 has not: %v", err)
	}
}

func TestCompactedLogs(t *testing.T) {
	tail := logged(5, 2, 2, 2)
	save := func(t *testing.T, index, term uint64, name string) string {
		dir := dataDir(t, tail)
		saveState(t, dir, name, index, term, []byte(name))
		return dir
	}
	for what, c := range map[string]struct {
		dirs  []string
		state string // of the snapshot that the log continues; none if empty
		want  []*raft.Log
	}{
		"no snapshot":                   {[]string{dataDir(t, tail), dataDir(t, tail)}, "", nil},
		"one that was not finished":     {[]string{save(t, 4, 2, "2-4-1.tmp"), dataDir(t, tail)}, "", nil},
		"one that leaves a gap":         {[]string{save(t, 3, 2, "2-3-1"), save(t, 2, 1, "1-2-1")}, "", nil},
		"one that joins":                {[]string{dataDir(t, tail), save(t, 4, 2, "2-4-1")}, "2-4-1", tail},
		"one within the log":            {[]string{save(t, 6, 2, "2-6-1"), dataDir(t, tail)}, "2-6-1", tail[2:]},
		"the oldest of several":         {[]string{save(t, 6, 2, "2-6-1"), save(t, 5, 2, "2-5-1"), save(t, 2, 1, "1-2-1")}, "2-5-1", tail[1:]},
		"one up to the end":             {[]string{save(t, 7, 2, "2-7-1"), dataDir(t, tail)}, "2-7-1", nil},
		"the beginning, on a node more": {[]string{dataDir(t, tail), dataDir(t, logged(1, 1, 1, 1, 2, 2)), save(t, 6, 2, "2-6-1")}, "", append(logged(1, 1, 1, 1, 2), tail...)},
	} {
		t.Run(what, func(t *testing.T) {
			entries, snapshot, err := ReadLogs(c.dirs...)
			if whole := c.state != "" || c.want != nil; errors.Is(err, ErrCompacted) == whole || whole && err != nil {
				t.Fatalf("got %v", err)
			}
			if string(snapshot) != c.state {
				t.Errorf("a snapshot %q, want %q", snapshot, c.state)
			}
			wantEntries(t, entries, c.want)
		})
	}
}

// TestSnapshotProvesWhatItIncludes verifies that a snapshot's entries count as committed on nodes with no log
// behind it.
func TestSnapshotProvesWhatItIncludes(t *testing.T) {
	whole := dataDir(t, logged(1, 1, 1, 2))
	sent := dataDir(t, nil)
	saveState(t, sent, "2-3-1", 3, 2, []byte("state"))
	behind := dataDir(t, logged(1, 1))
	entries, snapshot, err := ReadLogs(behind, sent, whole)
	if err != nil || snapshot != nil {
		t.Fatalf("%v; a snapshot of %d bytes", err, len(snapshot))
	}
	wantEntries(t, entries, logged(1, 1, 1, 2))

	entries, snapshot, err = ReadLogs(behind, sent, dataDir(t, nil))
	if err != nil || len(entries) != 0 || string(snapshot) != "state" {
		t.Errorf("%d entries after %q, %v", len(entries), snapshot, err)
	}
}

func TestDamagedDirectories(t *testing.T) {
	good := logged(1, 1, 1)
	for what, c := range map[string]struct {
		fault string
		spoil func(t *testing.T, dir string)
	}{
		"no log": {"raft.db", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "raft.db"))) }},
		"a flipped bit": {"the checksum of the values is wrong", func(t *testing.T, dir string) {
			record := recordOf(map[string]string{"log": "1234567890"})
			record[9] ^= 1
			writeRecord(t, dir, record)
		}},
		"no description": {"meta.json", func(t *testing.T, dir string) {
			saveState(t, dir, "1-1-1", 1, 1, nil)
			must(t, os.WriteFile(filepath.Join(dir, "snapshots", "1-1-1", "meta.json"), []byte("{"), 0o600))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := dataDir(t, good)
			c.spoil(t, dir)
			if _, _, err := ReadLogs(dataDir(t, good), dir, dataDir(t, good)); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %v, want %q", err, c.fault)
			}
		})
	}
	dir := dataDir(t, logged(2, 1))
	saveState(t, dir, "1-1-1", 1, 1, nil)
	must(t, os.Remove(filepath.Join(dir, "snapshots", "1-1-1", "state.bin")))
	if _, _, err := ReadLogs(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a snapshot without its state: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

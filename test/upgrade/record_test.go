package upgrade_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/recovery"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRecord writes the fixtures of the present level.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("it writes the fixtures of the present feature level, with -record")
	}
	if isFrozen(t, fsm.Level) {
		addMessages(t)
		return
	}
	recordData(t)
	writeFile(t, fixture(fsm.Level, schemaFile), []byte(strings.Join(promises(schemaFiles()), "\n")+"\n"))
	writeFile(t, fixture(fsm.Level, messagesFile), zipped(t, encode(t, allSamples(t))))
	writeFile(t, fixture(fsm.Level, transcriptFile), zipped(t, encode(t, recordTranscript(t))))
}

// recoveredDirectory returns the data directory of a cluster that was recovered from that of a lost one.
func recoveredDirectory(t *testing.T) string {
	t.Helper()
	lost := filepath.Join(t.TempDir(), "lost")
	_, _, stop := openNode(t, lost)
	stop()
	survivor, err := recovery.Inspect(lost)
	must(t, err)
	made, err := survivor.Recover(t.Context(), recovery.Order{
		Confirm: clusterID, To: filepath.Join(t.TempDir(), "data"), Operator: "root", Reason: "record", Ticket: "T-1",
	})
	must(t, err)
	return made.Dir
}

// recordData runs the script on a node of a recovered cluster, and records its data directory, its state and a backup.
func recordData(t *testing.T) {
	t.Helper()
	dir := recoveredDirectory(t)
	node, term, stop := openNode(t, dir)
	s := &script{t: t, node: node, term: term, seqs: map[uint64]uint64{}}
	s.play(func() {
		await(t, "a snapshot", func() bool {
			paths, err := filepath.Glob(filepath.Join(dir, "snapshots", "*[0-9]", "state.bin"))
			return err == nil && len(paths) > 0
		})
	})
	var live state
	var backup bytes.Buffer
	node.View(func(m *fsm.Machine) {
		live = stateOf(t, m)
		if err := m.WriteBackup(&backup); err != nil {
			t.Error(err)
		}
	})
	live.BackupHash, live.BackupIndex = hashOf(backup.Bytes()), live.Index
	stop()
	replayed := stateOf(t, readHistory(t, dir).replay(t, nil, func(*wire.Command, *wire.Result) {}))
	replayed.BackupHash, replayed.BackupIndex = live.BackupHash, live.BackupIndex
	if sameState(t, replayed, live); t.Failed() {
		t.Fatal("the state changed while it was recorded: record again")
	}
	text, err := json.MarshalIndent(live, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, fixture(fsm.Level, dataFile), pack(t, dir))
	writeFile(t, fixture(fsm.Level, stateFile), append(text, '\n'))
	writeFile(t, fixture(fsm.Level, backupFile), backup.Bytes())
}

func allSamples(t *testing.T) (all []recorded) {
	t.Helper()
	for _, typ := range messageTypes() {
		all = append(all, samples(t, typ)...)
	}
	return all
}

// addMessages adds samples to a level that was released: of messages, and with fields, that were added since. What the
// released programs wrote stays.
func addMessages(t *testing.T) {
	t.Helper()
	path := fixture(fsm.Level, messagesFile)
	all := decode(t, unzipped(t, readFile(t, path)))
	for _, r := range allSamples(t) {
		if !slices.ContainsFunc(all, func(known recorded) bool { return known.Message == r.Message && bytes.Equal(known.Bytes, r.Bytes) }) {
			all = append(all, r)
		}
	}
	writeFile(t, path, zipped(t, encode(t, all)))
}

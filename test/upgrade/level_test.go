package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
)

// The files of a level.
const (
	dataFile       = "data.tar.gz"      // a data directory
	stateFile      = "state.json"       // the state in it
	backupFile     = "backup.snap"      // a backup of that state
	messagesFile   = "messages.json.gz" // one of every message of the schema
	transcriptFile = "transcript.json.gz"
	schemaFile     = "schema.txt"
)

var levelFiles = []string{dataFile, stateFile, backupFile, messagesFile, transcriptFile, schemaFile}

// maxLevelBytes bounds the files of a level: they are kept forever.
const maxLevelBytes = 300 << 10

func fixture(level uint32, file string) string {
	return filepath.Join("testdata", fmt.Sprint("level", level), file)
}

// eachLevel runs a test for every level up to the present one.
func eachLevel(t *testing.T, test func(t *testing.T, level uint32)) {
	t.Helper()
	for level := uint32(1); level <= fsm.Level; level++ {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) { test(t, level) })
	}
}

// frozen returns the levels that were released.
func frozen(t *testing.T) []string {
	t.Helper()
	return strings.Fields(string(readFile(t, filepath.Join("testdata", "frozen"))))
}

func isFrozen(t *testing.T, level uint32) bool {
	t.Helper()
	return slices.Contains(frozen(t), fmt.Sprint(level))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: write it with: go test ./test/upgrade -record", err)
	}
	return data
}

// writeFile creates the directory as well.
func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryLevelHasItsFixtures verifies that no level was added without its fixtures.
func TestEveryLevelHasItsFixtures(t *testing.T) {
	eachLevel(t, func(t *testing.T, level uint32) {
		size := 0
		for _, file := range levelFiles {
			size += len(readFile(t, fixture(level, file)))
		}
		if size > maxLevelBytes {
			t.Errorf("%d bytes, more than %d", size, maxLevelBytes)
		}
	})
}

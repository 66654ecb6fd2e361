package upgrade_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/process"
)

// root is the directory of the module.
var root = filepath.Join("..", "..")

// Versions by which the programs report themselves.
const (
	earlierVersion = "v0.0.1-earlier"
	presentVersion = "v0.0.2-present"
	nextVersion    = "v0.0.3-next"
)

// earlierLevel is the feature level of the earlier programs.
const earlierLevel = 1

func versioned(version string) string { return "-ldflags=-X main.version=" + version }

// present returns the present programs.
var present = sync.OnceValues(func() (process.Programs, error) {
	return process.Build(filepath.Join(scratch, "present"), versioned(presentVersion))
})

// atLevel returns programs that support a feature level, without anything else that is new or missing in them.
func atLevel(level int, dir, version string) (process.Programs, error) {
	path, err := filepath.Abs(filepath.Join(root, "fsm", "level.go"))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := regexp.MustCompile(`(?m)^const Level = \d+$`).ReplaceAll(source, fmt.Appendf(nil, "const Level = %d", level))
	if bytes.Equal(changed, source) {
		return "", fmt.Errorf("%s declares no level", path)
	}
	replaced, listed := filepath.Join(scratch, dir+".go"), filepath.Join(scratch, dir+".json")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: replaced}})
	if err != nil {
		return "", err
	}
	for file, data := range map[string][]byte{replaced: changed, listed: overlay} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return "", err
		}
	}
	return process.Build(filepath.Join(scratch, dir), versioned(version), "-overlay", listed)
}

// next returns programs that support one feature level more.
var next = sync.OnceValues(func() (process.Programs, error) { return atLevel(fsm.Level+1, "next", nextVersion) })

// earlier returns programs that support the earlier feature level. They are built from the present sources, since the
// formats of what is not published change.
var earlier = sync.OnceValues(func() (process.Programs, error) { return atLevel(earlierLevel, "earlier", earlierVersion) })

// built fails the test if programs could not be built.
func built(t *testing.T, build func() (process.Programs, error)) process.Programs {
	t.Helper()
	programs, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

package lint

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestComparisonUsesOurVersions verifies that scripts/compare, a module of its own that uses this one, does not require
// lower versions of the modules that both name. Go would refuse to build it.
func TestComparisonUsesOurVersions(t *testing.T) {
	compare := required(t, filepath.Join(root(), "scripts", "compare"))
	both := 0
	for module, version := range required(t, root()) {
		other, named := compare[module]
		if named {
			both++
		}
		if named && slices.Compare(numbers(other), numbers(version)) < 0 {
			t.Errorf("scripts/compare requires %s %s, and the product %s: run \"go mod tidy\" in scripts/compare", module, other, version)
		}
	}
	if both < 5 {
		t.Errorf("the two modules have only %d requirements in common", both)
	}
}

// required returns the versions that the module in a directory requires.
func required(t *testing.T, dir string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-print")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read the requirements of %s: %v", dir, err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && strings.HasPrefix(fields[1], "v") && strings.Contains(fields[0], "/") {
			versions[fields[0]] = fields[1]
		}
	}
	return versions
}

// numbers returns the three numbers of a version like v1.2.3-rc.1.
func numbers(version string) (all []int) {
	release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	for part := range strings.SplitSeq(release, ".") {
		n, _ := strconv.Atoi(part) // what follows the number, as in +incompatible, does not matter
		all = append(all, n)
	}
	return all
}

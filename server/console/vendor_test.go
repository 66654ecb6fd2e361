package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLibrariesAreThoseOfTheScript verifies the libraries by the checksums in the script that fetches them.
func TestLibrariesAreThoseOfTheScript(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "console-vendor.sh"))
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(script), -1) {
		sums[found[2]] = found[1]
	}
	entries, err := os.ReadDir(filepath.Join("ui", "vendor"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 || len(entries) != len(sums) {
		t.Errorf("%d files, and %d checksums in the script", len(entries), len(sums))
	}
	for _, entry := range entries {
		sum := sha256.Sum256(source(t, "vendor/"+entry.Name()))
		if hex.EncodeToString(sum[:]) != sums[entry.Name()] {
			t.Errorf("%s is not what scripts/console-vendor.sh fetches", entry.Name())
		}
	}
}

// TestVersionsAreThoseOfTheScript verifies the versions that are stated beside the libraries.
func TestVersionsAreThoseOfTheScript(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "console-vendor.sh"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(source(t, "vendor/VERSIONS.txt"))
	versions := regexp.MustCompile(`(?m)^([A-Z]+)=([\d.]+)$`).FindAllStringSubmatch(string(script), -1)
	if len(versions) != 2 {
		t.Fatalf("the script names %d versions", len(versions))
	}
	for _, version := range versions {
		if want := strings.ToLower(version[1]) + " " + version[2]; !strings.Contains(text, want) {
			t.Errorf("VERSIONS.txt does not name %s", want)
		}
	}
}

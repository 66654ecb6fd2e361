package system

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// there reports whether the file exists.
func (n Need) there() bool {
	if strings.Contains(n.File, "/") {
		_, err := os.Stat(n.File)
		return err == nil
	}
	_, err := exec.LookPath(n.File)
	return err == nil
}

// Missing returns the needs of these systems that are not met.
func Missing(systems []System) []Need {
	var missing []Need
	for _, s := range systems {
		for _, n := range s.Needs() {
			if !n.there() && !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
		}
	}
	return missing
}

// Packages returns the Debian packages that provide the needs, without duplicates.
func Packages(needs []Need) []string {
	var packages []string
	for _, n := range needs {
		if n.Package != "" && !slices.Contains(packages, n.Package) {
			packages = append(packages, n.Package)
		}
	}
	return packages
}

// firstLine returns the first line of a program's output.
func firstLine(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, nil
}

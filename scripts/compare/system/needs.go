package system

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// there tells whether the file is.
func (n Need) there() bool {
	if strings.Contains(n.File, "/") {
		_, err := os.Stat(n.File)
		return err == nil
	}
	_, err := exec.LookPath(n.File)
	return err == nil
}

// Missing lists what these systems need and is not there.
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

// Packages are the Debian packages that have them, each once.
func Packages(needs []Need) []string {
	var packages []string
	for _, n := range needs {
		if n.Package != "" && !slices.Contains(packages, n.Package) {
			packages = append(packages, n.Package)
		}
	}
	return packages
}

// firstLine is the first line that a program prints.
func firstLine(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line, nil
}

package lint

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPublicPackagesExportOwnTypes checks that the documentation of the packages that users import mentions
// neither the wire format nor its library, so that both can change.
func TestPublicPackagesExportOwnTypes(t *testing.T) {
	for _, pkg := range []string{"client", "client/admin", "client/fence"} {
		cmd := exec.CommandContext(t.Context(), "go", "doc", "-all", "./"+pkg)
		cmd.Dir = root()
		out, err := cmd.Output()
		if err != nil || len(out) < 1000 {
			t.Fatalf("go doc of %s: %v, %d bytes", pkg, err, len(out))
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "wire") || strings.Contains(line, "protobuf") {
				t.Errorf("%s exports the wire format: %s", pkg, strings.TrimSpace(line))
			}
		}
	}
}

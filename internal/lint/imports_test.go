package lint

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers is the import policy: which of our packages each package may import, outside its tests. A package
// may only depend on packages above it in the list. A name that ends in /... means a package and all below
// it. A new package needs a line here: decide its place before writing it.
var layers = []struct {
	pkg   string
	knows []string
}{
	{"transport/wire", nil},
	{"transport/wire/wireconnect", []string{"transport/wire"}},
	{"transport", []string{"transport/wire"}},
	{"transport/identity", []string{"transport/wire"}},
	{"transport/pki", []string{"transport", "transport/identity", "transport/wire"}},
	{"transport/handshake", nil},
	{"internal/ratelog", []string{"transport/wire"}},
	{"internal/logqueue", nil},
	{"transport/peerport", []string{"transport", "transport/handshake", "transport/wire", "internal/ratelog"}},
	{"fsm/rights", []string{"transport/wire"}},
	{"fsm", []string{"transport/wire", "fsm/rights"}},

	{"server/status", []string{"transport/wire"}},
	{"server/internal/access", []string{"fsm/...", "transport/identity", "transport/wire"}},
	{"server/internal/quota", []string{"fsm", "internal/ratelog", "transport/wire", "server/internal/access"}},
	{"server/storage/segment", nil},
	{"server/storage/stable", []string{"server/storage/segment"}},
	{"server/internal/raftlog", nil},
	{"server/storage", []string{"transport/wire", "server/internal/raftlog", "server/storage/segment", "server/storage/stable"}},
	{"server/internal/alarm", []string{"transport/wire", "server/storage"}},
	{"server/consistency", []string{"fsm", "transport/wire"}},
	{"server/failover", nil},
	{"server/failover/monitor", []string{"server/failover", "transport/peerport", "transport/wire"}},
	{"server/groupcommit", []string{"fsm", "transport/wire", "server/status"}},
	{"server/internal/notify", []string{"fsm", "transport/wire"}},
	{"server/eventlog", []string{"transport/wire", "server/status"}},
	{"server/expiry", []string{"fsm", "transport/wire"}},
	{"server/internal/rollback", []string{"transport/wire"}},
	{"server/internal/directory", []string{"fsm", "transport/wire", "server/status", "server/storage"}},
	{"server/internal/cluster", []string{"transport/wire", "server/internal/directory"}},
	{"server/internal/probe", []string{"transport/peerport", "transport/wire", "server/internal/directory", "server/status"}},
	{"server/internal/advice", []string{"transport/wire", "server/internal/probe", "server/status", "server/storage"}},
	{"server/internal/histogram", nil},
	{"server/internal/metrics", []string{"server/internal/histogram", "fsm", "transport/peerport", "transport/wire", "server/internal/cluster", "server/consistency", "server/eventlog", "server/groupcommit"}},
	{"server/internal/samples", []string{"fsm", "transport/wire"}},
	{"server/internal/command", []string{"fsm", "transport/identity", "transport/wire", "server/expiry", "server/groupcommit", "server/internal/metrics", "server/internal/notify", "server/status"}},
	{"server/internal/catchup", []string{"server/status"}},
	{"server/internal/retired", []string{"server/status", "server/storage"}},
	{"server/internal/peers", []string{"fsm", "transport/peerport", "transport/wire", "server/internal/cluster", "server/internal/directory", "server/internal/rollback", "server/status", "server/storage"}},
	{"server/internal/watch", []string{"transport/wire", "server/internal/catchup", "server/eventlog", "server/status"}},
	{"server/internal/backup", []string{"fsm", "transport/wire", "server/status"}},
	{"server/internal/backup/store", nil},
	{"server/internal/backup/schedule", []string{"fsm", "transport/wire", "server/internal/backup", "server/internal/backup/store"}},
	{"server/recovery", []string{"fsm", "transport/wire", "server/internal/backup", "server/internal/directory", "server/internal/peers", "server/internal/retired", "server/storage"}},
	{"server/internal/seeds", nil},
	{"server/internal/bootstrap", []string{"internal/ratelog", "transport/wire", "server/internal/advice", "server/internal/directory", "server/internal/probe", "server/status"}},
	{"server/membership", []string{"internal/ratelog", "fsm", "transport/identity", "transport/wire", "server/internal/cluster", "server/internal/directory", "server/internal/probe", "server/status"}},
	{"server/membership/autopilot", []string{"internal/ratelog", "fsm/...", "transport/identity", "transport/wire", "server/internal/cluster", "server/internal/directory", "server/internal/metrics", "server/internal/probe", "server/membership", "server/status"}},
	{"server/internal/handover", []string{"transport/peerport", "transport/wire", "server/internal/cluster", "server/internal/directory", "server/groupcommit", "server/internal/probe", "server/status", "server/storage"}},
	{"server/replica", []string{"internal/ratelog", "fsm", "transport", "transport/identity", "transport/wire", "transport/peerport", "server/storage", "server/internal/access", "server/internal/advice", "server/internal/alarm", "server/internal/backup", "server/internal/backup/schedule", "server/internal/bootstrap", "server/internal/catchup", "server/internal/cluster", "server/internal/command", "server/consistency", "server/internal/directory", "server/eventlog", "server/expiry", "server/failover/...", "server/groupcommit", "server/internal/handover", "server/membership", "server/membership/autopilot", "server/internal/metrics", "server/internal/notify", "server/internal/peers", "server/internal/probe", "server/internal/raftlog", "server/internal/retired", "server/internal/samples", "server/internal/seeds", "server/status", "server/internal/watch"}},
	{"server/internal/auditlog", []string{"internal/ratelog", "transport/identity", "transport/wire", "server/internal/access"}},
	{"server/internal/read", []string{"fsm/...", "transport/wire", "server/internal/access", "server/internal/quota"}},
	{"server/internal/pending", nil},
	{"server/internal/lease", []string{"fsm", "transport/identity", "transport/wire", "server/internal/pending"}},
	{"server/internal/budget", nil},
	{"server/internal/fairqueue", []string{"transport/identity"}},
	{"server/internal/tunnel", []string{"transport", "transport/handshake", "transport/wire", "server/internal/budget"}},
	{"server/internal/callers", []string{"transport", "transport/wire", "server/internal/access"}},
	{"server/internal/keys", []string{"fsm", "internal/ratelog", "transport", "transport/identity", "transport/wire", "server/groupcommit", "server/internal/budget", "server/internal/lease"}},
	{"server/internal/examine", []string{"transport/wire"}},
	{"server/redis/keyname", []string{"transport/wire"}},
	{"server/redis/resp", nil},
	{"server/redis/metrics", nil},
	{"server/redis/argument", []string{"transport/wire", "server/redis/resp"}},
	{"server/redis", []string{"transport", "transport/handshake", "transport/identity", "transport/wire", "server/internal/access", "server/internal/quota", "server/internal/budget", "server/internal/callers", "server/internal/keys", "internal/ratelog", "server/redis/..."}},
	{"server/internal/health", []string{"transport/handshake", "transport/wire"}},
	{"server/rpc", []string{"server/internal/histogram", "fsm", "transport", "transport/handshake", "transport/identity", "transport/wire", "server/internal/access", "server/internal/callers", "server/internal/quota", "server/internal/command", "server/internal/notify", "server/eventlog", "server/replica", "server/status", "server/internal/read", "server/internal/lease", "server/internal/budget", "server/internal/fairqueue", "server/internal/tunnel", "server/rpc", "internal/ratelog"}},
	{"server/console", nil},
	{"server/httpapi/apierror", []string{"transport/wire"}},
	{"server/httpapi/jsoncodec", nil},
	{"server/httpapi/retry", []string{"fsm", "transport/identity", "transport/wire", "server/httpapi/apierror", "server/internal/pending"}},
	{"server/httpapi/listener", []string{"internal/ratelog", "transport", "transport/handshake", "server/internal/budget"}},
	{"server/httpapi/response", []string{"server/internal/budget", "server/internal/histogram"}},
	{"server/httpapi/forward", []string{"internal/ratelog", "transport/identity", "transport/wire", "transport/wire/wireconnect", "server/httpapi/apierror", "server/httpapi/response"}},
	{"server/httpapi/callers", []string{"transport/wire", "server/internal/access", "server/internal/quota", "server/httpapi/apierror", "server/httpapi/forward", "server/httpapi/listener"}},
	{"server/httpapi", []string{"server/console", "fsm", "transport", "transport/handshake", "transport/identity", "transport/wire", "server/internal/access", "server/internal/quota", "transport/wire/wireconnect", "server/internal/health", "server/eventlog", "server/replica", "server/status", "server/internal/read", "server/internal/lease", "server/internal/pending", "server/internal/budget", "server/internal/fairqueue", "internal/ratelog", "server/httpapi/..."}},
	{"server/redis/script", nil},
	{"server", []string{"fsm", "transport/...", "server/..."}},

	{"internal/wirecall", []string{"transport/wire"}},
	{"internal/contexts", nil},
	{"client", []string{"transport", "transport/identity", "transport/wire", "internal/contexts", "internal/wirecall"}},
	{"client/admin", []string{"client", "transport/identity", "transport/wire", "internal/wirecall"}},
	{"client/otelquorumlock", []string{"client"}},
	{"client/fence", nil},

	{"cmd/...", []string{"client", "server", "server/recovery", "fsm", "fsm/rights", "transport/...", "internal/contexts", "internal/logqueue", "internal/wirecall", "cmd/..."}},
	{"scripts/...", []string{"client", "transport/wire", "internal/wirecall", "cmd/buildinfo", "scripts/..."}},
	{"internal/lint", nil},
	{"test/model", []string{"transport/wire"}},
	{"test/bubble", nil},
	{"test/...", []string{"..."}},
}

// raftUsers are the only places that may import the consensus library.
var raftUsers = []string{"fsm/raft.go", "server/internal/alarm/...", "server/internal/metrics/...", "transport/peerport/...", "server/storage/...", "server/groupcommit/...", "server/internal/backup/...", "server/internal/bootstrap/...", "server/internal/catchup/...", "server/internal/cluster/...", "server/internal/command/...", "server/internal/directory/...", "server/failover/monitor/...", "server/internal/handover/...", "server/membership/...", "server/internal/peers/...", "server/internal/raftlog/...", "server/internal/retired/...", "server/recovery/...", "server/replica/...", "test/..."}

var importRules = []rule{{
	name:  "import direction",
	check: importDirection,
	bad: []example{
		{"fsm/fsm.go", "package fsm\n\nimport _ \"" + module + "/server/replica\"\n", "fsm must not import server/replica"},
		{"stray/stray.go", "package stray\n", "stray has no line in the import policy"},
	},
}, {
	name:  "raft stays where it belongs",
	check: raftContained,
	bad: []example{
		{"fsm/apply.go", "package fsm\n\nimport _ \"github.com/hashicorp/raft\"\n", "fsm/apply.go must not import github.com/hashicorp/raft"},
	},
}, {
	name:  "state machine and transport are tested alone",
	check: lowTests,
	bad: []example{
		{"fsm/fsm_test.go", "package fsm\n\nimport _ \"" + module + "/server\"\n", "fsm/fsm_test.go must not import server"},
	},
}}

// match reports whether the path matches the pattern, which may end in /... .
func match(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	}
	return path == pattern
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}

// ours strips the module path. ok is false for packages of other modules.
func ours(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func importDirection(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		layer := slices.IndexFunc(layers, func(l struct {
			pkg   string
			knows []string
		}) bool {
			return match(l.pkg, f.dir())
		})
		if layer < 0 {
			findings = append(findings, fmt.Sprintf("%s has no line in the import policy (%s)", f.dir(), f.path))
			continue
		}
		if f.test {
			continue
		}
		for _, path := range f.imports() {
			if pkg, ok := ours(path); ok && !matchAny(layers[layer].knows, pkg) {
				findings = append(findings, fmt.Sprintf("%s must not import %s (%s)", f.dir(), pkg, f.path))
			}
		}
	}
	return findings
}

// TestPolicyRunsDown verifies that the import policy has no upward edge: a package knows only packages above it in the
// list.
func TestPolicyRunsDown(t *testing.T) {
	for i, layer := range layers {
		for _, known := range layer.knows {
			if known == "..." || match(known, layer.pkg) || match(layer.pkg, strings.TrimSuffix(known, "/...")) {
				continue // its own subpackages, or the tests, which may know everything
			}
			for j := i + 1; j < len(layers); j++ {
				if match(known, layers[j].pkg) {
					t.Errorf("%s knows %s, which is below it in the list", layer.pkg, layers[j].pkg)
				}
			}
		}
	}
}

func raftContained(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if f.test || matchAny(raftUsers, f.path) {
			continue
		}
		for _, path := range f.imports() {
			if strings.HasPrefix(path, "github.com/hashicorp/raft") {
				findings = append(findings, fmt.Sprintf("%s must not import %s", f.path, path))
			}
		}
	}
	return findings
}

// lowTests keeps the tests of the lowest packages from importing upper ones, so that a failure there points
// to its own package. They may import the model, which does not depend on the state machine, and bubble,
// which depends on nothing.
func lowTests(t *tree) []string {
	var findings []string
	for _, f := range t.files {
		if !f.test || !matchAny([]string{"fsm", "transport/..."}, f.dir()) {
			continue
		}
		for _, path := range f.imports() {
			pkg, ok := ours(path)
			if ok && pkg != "test/model" && pkg != "test/bubble" && matchAny([]string{"server/...", "client", "cmd/...", "test/..."}, pkg) {
				findings = append(findings, fmt.Sprintf("%s must not import %s", f.path, pkg))
			}
		}
	}
	return findings
}

// sdkNeeds is everything besides the standard library that a program with the SDK builds.
var sdkNeeds = []string{
	module + "/client",
	module + "/internal/contexts",
	module + "/internal/wirecall",
	module + "/transport",
	module + "/transport/identity",
	module + "/transport/wire",
	"google.golang.org/protobuf/...",
	"golang.org/x/sys/...",
}

// outside lists the packages that pkg builds, itself included, besides the standard library and the allowed
// ones.
func outside(t *testing.T, pkg string, allowed []string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	var findings []string
	for _, dep := range strings.Fields(string(out)) {
		if !matchAny(allowed, dep) {
			findings = append(findings, fmt.Sprintf("%s depends on %s", pkg, dep))
		}
	}
	return findings
}

func TestSDKIsLight(t *testing.T) {
	report(t, outside(t, "./client", sdkNeeds))
}

func TestSDKIsLightCanFail(t *testing.T) {
	expect(t, outside(t, "./server/replica", sdkNeeds), "depends on github.com/hashicorp/raft")
}

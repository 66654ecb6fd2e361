//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestCandidates(t *testing.T) {
	for line, want := range map[string]string{
		"": "run once elect acquire extend release locks show why watch verify sessions contended deadlocks status check doctor top audit " +
			"revoke force-release session skip-delay resize whoami quota policy token cluster snapshot tls context bench version completion help",
		"s":                      "show sessions status session skip-delay snapshot",
		"snapshot ":              "save inspect verify restore",
		"snapshot verify ord":    "",
		"run a --on-lost u":      "usr1 usr2",
		"run orders/1 orders/":   "orders/1 orders/2",
		"verify ord":             "orders/1 orders/2",
		"verify orders/1 ":       "",
		"resize orders/2":        "orders/2",
		"cluster ":               "members add remove replace drain undrain recover transfer acknowledge",
		"cluster r":              "remove replace recover",
		"completion ":            "bash zsh fish powershell",
		"-o ":                    "table wide json yaml",
		"bench ":                 "pairs hot readers idle held failover",
		"bench hot --arrivals ":  "even random",
		"bench held --lo":        "--locks",
		"bench hot ord":          "",
		"status --output j":      "json",
		"run --t":                "--ttl --timeout",
		"show --l":               "",
		"show ord":               "orders/1 orders/2",
		"show orders/1 ":         "",
		"run orders/":            "orders/1 orders/2",
		"run orders/1 -- cat o":  "",
		"locks -o json orders/2": "orders/2",
		"--endpoints a:1 show x": "",
		"frob ":                  "",
		"cluster add ":           "",
		"tls re":                 "renew revoke",
		"tls revoke ":            "",
		"tls renew --d":          "--dir --days",
		"cluster remove ":        "n1 n2",
		"cluster drain ":         "n1 n2",
		"cluster undrain ":       "n1 n2",
		"policy ":                "show diff apply remove can",
		"policy can alice o":     "operate",
		"policy can a lock ord":  "orders/1 orders/2",
		"policy can ":            "",
		"token ":                 "create list revoke",
		"token create ":          "",
		"token revoke 3":         "3f9c",
		"status --auth":          "--auth-token --auth-token-file",
	} {
		f := &fakeService{t: t, listLocks: func(req *wire.ListLocksRequest) (*wire.ListLocksResponse, error) {
			var page wire.ListLocksResponse
			for _, name := range []string{"orders/1", "orders/2"} {
				if strings.HasPrefix(name, req.GetPrefix()) {
					page.Locks = append(page.Locks, &wire.LockInfo{Name: name})
				}
			}
			return &page, nil
		}, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
			return &wire.StatusResponse{Nodes: []*wire.NodeStatus{{Id: "n1"}, {Id: "n2"}}}, nil
		}, access: fakeAccess{tokens: always[*wire.ListTokensRequest](&wire.ListTokensResponse{Tokens: []*wire.TokenInfo{{Id: "3f9c"}, {Id: "b21f"}}})}}
		got := execTest(t, f.dialer, append([]string{"complete", "--"}, strings.Split(line, " ")...)...)
		if text := strings.Join(strings.Fields(got.out), " "); got.code != 0 || got.err != "" || text != want {
			t.Errorf("%q: got %q, code %d, stderr %q; want %q", line, text, got.code, got.err, want)
		}
	}
}

// parsers are commands that parse a script on their standard input without running it.
var parsers = map[string][]string{
	"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "-n"},
	"powershell": {"pwsh", "-NoProfile", "-Command", "[void][ScriptBlock]::Create([Console]::In.ReadToEnd())"},
}

// TestScriptsAreGoodShell has the scripts that qlock completion prints parsed by their shells, if those are installed.
func TestScriptsAreGoodShell(t *testing.T) {
	for _, shell := range shells {
		got := execTest(t, failing(t, nil).dialer, "completion", shell.name)
		if got.code != 0 || !strings.Contains(got.out, "complete -- ") {
			t.Fatalf("qlock completion %s: %+v", shell.name, got)
		}
		parser := parsers[shell.name]
		if _, err := exec.LookPath(parser[0]); err != nil {
			t.Logf("%s is not installed", parser[0])
			continue
		}
		cmd := exec.Command(parser[0], parser[1:]...)
		cmd.Stdin = strings.NewReader(got.out)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", shell.name, err, out)
		}
	}
}

package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promtool runs promtool in the directory of the rules.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = ops
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPromtool lets promtool check the rules and run their tests.
func TestPromtool(t *testing.T) {
	needsPrometheus(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		if out, err := promtool(t, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

var (
	testedAlert = regexp.MustCompile(`(?m)^ +alertname: (\w+)\n +exp_alerts:(.*)$`)
	nothing     = " []"
)

// TestEachAlertIsTested checks that the tests for promtool have, for each alert, a case in which it fires, and one in which
// it does not.
func TestEachAlertIsTested(t *testing.T) {
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, found := range testedAlert.FindAllStringSubmatch(readOps(t, "alerts_test.yaml"), -1) {
		if found[2] == nothing {
			rests[found[1]] = true
		} else {
			fires[found[1]] = true
		}
	}
	for _, r := range readRules(t).all() {
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s: a case in which it fires: %v, in which it does not: %v", r.Alert, fires[r.Alert], rests[r.Alert])
		}
	}
}

// TestShortenedRulesAreValid lets promtool check the rules with which the tests do not wait for minutes.
func TestShortenedRulesAreValid(t *testing.T) {
	needsPrometheus(t)
	path := filepath.Join(t.TempDir(), "alerts.yaml")
	readRules(t).shorten(t, path)
	if out, err := promtool(t, "check", "rules", path); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// scrapeConfig matches the example of a configuration in README.md.
var scrapeConfig = regexp.MustCompile("(?s)```yaml\n(scrape_configs:.*?)```")

// TestScrapeConfig lets promtool check the configuration that README.md shows.
func TestScrapeConfig(t *testing.T) {
	needsPrometheus(t)
	found := scrapeConfig.FindStringSubmatch(readOps(t, "README.md"))
	if found == nil {
		t.Fatal("README.md has no scrape_configs")
	}
	for text, valid := range map[string]bool{found[1]: true, strings.Replace(found[1], "tls_config", "tls", 1): false} {
		path := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := promtool(t, "check", "config", "--syntax-only", path); (err == nil) != valid {
			t.Errorf("valid: %v, %v\n%s\n%s", valid, err, out, text)
		}
	}
}

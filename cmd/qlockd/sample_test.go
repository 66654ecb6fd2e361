package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// update writes the sample configuration instead of comparing it.
var update = flag.Bool("update", false, "write the sample configuration")

// sampleFile is the configuration that packages install.
const sampleFile = "../../scripts/package/files/qlockd.yaml"

const sampleHead = `# Configuration of qlockd, the node of a Quorumlock cluster that the service qlockd runs.
#
#   qlockd --config /etc/quorumlock/qlockd.yaml --check-config    checks it
#   systemctl restart qlockd                                      applies it
#
# As it is, the node is a cluster of its own, which only this machine reaches. For a cluster of three,
# give each node an id, addresses that the others reach, and certificates (qlock tls init):
#
#   id: n1
#   client-addr: host1:7400
#   peer-addr: host1:7401
#   http-addr: host1:7402
#   join: host1:7401,host2:7401,host3:7401
#   bootstrap-expect: 3
#   tls-cert: /etc/quorumlock/server.crt
#   ...
#
# Keys are the names of qlockd's flags. Those with a # in front have their defaults. Files of certificates
# are read again when they change; everything else needs a restart.
#
# The service may write below /var/lib/quorumlock and /var/log/quorumlock. Another directory, such as one for
# backups, must belong to the user quorumlock and needs ReadWritePaths= (systemctl edit qlockd).
`

// chosen are the settings that a node cannot do without.
var chosen = map[string]string{"id": "n1", "data-dir": "/var/lib/quorumlock"}

// sample returns the sample configuration: every key that a file may have, with what it means and its default.
func sample() string {
	var out strings.Builder
	out.WriteString(sampleHead)
	for _, g := range defaults().groups() {
		fmt.Fprintf(&out, "\n## %s\n", g.category)
		for _, s := range g.settings {
			if slices.Contains([]string{"config", "check-config", "dev"}, s.name) {
				continue
			}
			fmt.Fprintf(&out, "\n%s", commented(strings.ReplaceAll(s.usage, "`", "")))
			if value := chosen[s.name]; value != "" {
				fmt.Fprintf(&out, "%s: %s\n", s.name, value)
				continue
			}
			value := s.flag("").(cli.DocGenerationFlag).GetDefaultText()
			if value == "" {
				value = `""`
			}
			fmt.Fprintf(&out, "#%s: %s\n", s.name, value)
		}
	}
	return out.String()
}

// commented returns a text as a comment, in lines of at most 100 columns.
func commented(text string) string {
	var out strings.Builder
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 100 {
			out.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	return out.String() + line + "\n"
}

// TestSampleConfiguration verifies that the packaged file explains every key. After a change of a flag, run
// "go test ./cmd/qlockd -run TestSampleConfiguration -update".
func TestSampleConfiguration(t *testing.T) {
	if *update {
		if err := os.WriteFile(sampleFile, []byte(sample()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != sample() {
		t.Errorf("%s does not explain the flags as they are: run this test with -update", sampleFile)
	}
}

// TestSampleHasTheDefaults verifies that the keys in the packaged file can be used, and that those in comments have the
// values that the node uses without them.
func TestSampleHasTheDefaults(t *testing.T) {
	text, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(string(text), "$1")
	o := defaults()
	app := newApp(nil)
	app.Action = func(c *cli.Context) error {
		if err := applyFile(c); err != nil {
			return err
		}
		return o.read(c)
	}
	if err := app.Run([]string{"qlockd", "--config", configFile(t, keys)}); err != nil {
		t.Fatal(err)
	}
	changed := changes(parsed(t), o)
	delete(changed, "configFile")
	if len(changed) != 2 || changed["ID"] != chosen["id"] || changed["DataDir"] != chosen["data-dir"] {
		t.Errorf("with all keys of the file, these differ from the defaults: %v", changed)
	}
}

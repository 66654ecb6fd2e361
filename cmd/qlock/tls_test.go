//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestTLSInitNamesTheFlagsForTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs of prod")
	words := []string{"tls", "init", "--cluster", "prod", "--node", "n1=10.0.0.1,n1.example", "--node", "n2", "--client", "ops", "--dir", dir}
	got := execTest(t, nil, words...)
	if got.code != 0 || got.err != "" {
		t.Fatalf("got %+v", got)
	}
	quoted := strings.ReplaceAll(got.out, dir, "DIR")
	golden.Compare(t, "tls-init.table", quoted)

	again := execTest(t, nil, words...)
	if again.code != exitUsage || !strings.Contains(again.err, "already exists") {
		t.Errorf("a second init: %+v", again)
	}
	checkMade(t, execTest(t, nil, "tls", "add", "--cluster", "prod", "--client", "cron", "--node", "n3", "--dir", dir, "-o", "json"))
}

// checkMade checks that every file that the flags name exists.
func checkMade(t *testing.T, got execution) {
	t.Helper()
	var m made
	if err := json.Unmarshal([]byte(got.out), &m); err != nil || got.code != 0 || len(m.Nodes) != 1 || len(m.Clients) != 1 {
		t.Fatalf("%v, got %+v", err, got)
	}
	files := []string{m.CAKey}
	for _, f := range append(m.Nodes, m.Clients...) {
		for i := 1; i < len(f.Flags); i += 2 {
			files = append(files, f.Flags[i])
		}
	}
	if len(files) != 1+8+3 {
		t.Errorf("%d files: %q", len(files), files)
	}
	for _, path := range files {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// certs creates a directory with certificates for 20 days of the node n1, and for two years of the client ops.
func certs(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	for _, line := range []string{"init --cluster prod --node n1=n1.example,10.0.0.1 --days 20", "add --cluster prod --client ops"} {
		if got := execTest(t, nil, append(strings.Fields("tls "+line), "--dir", dir)...); got.code != 0 {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	return dir
}

var (
	serialText = regexp.MustCompile(`\b[0-9a-f]{30,40}\b`)
	dateText   = regexp.MustCompile(`20\d\d-\d\d-\d\d`)
	columnGap  = regexp.MustCompile(`  +`)
)

// steady replaces what differs from run to run.
func steady(dir, out string) string {
	out = strings.ReplaceAll(dateText.ReplaceAllString(serialText.ReplaceAllString(out, "SERIAL"), "DATE"), dir, "DIR")
	return columnGap.ReplaceAllString(out, "  ")
}

// shownBy decodes the certificates in the JSON of a verb, by file.
func shownBy(t *testing.T, got execution, key string) map[string]shownCert {
	t.Helper()
	var answer map[string]json.RawMessage
	var list []shownCert
	if err := errors.Join(json.Unmarshal([]byte(got.out), &answer), json.Unmarshal(answer[key], &list)); err != nil || got.code != 0 {
		t.Fatalf("%v, got %+v", err, got)
	}
	by := map[string]shownCert{}
	for _, c := range list {
		by[c.File] = c
	}
	return by
}

// TestTLSLife shows, renews and revokes certificates.
func TestTLSLife(t *testing.T) {
	dir := certs(t)
	table := func(name string, words ...string) {
		t.Helper()
		got := execTest(t, nil, append([]string{"tls"}, words...)...)
		if got.code != 0 || got.err != "" {
			t.Fatalf("%q: %+v", words, got)
		}
		golden.Compare(t, name+".table", steady(dir, got.out))
	}
	data := func(key string, words ...string) map[string]shownCert {
		t.Helper()
		return shownBy(t, execTest(t, nil, append([]string{"-o", "json", "tls"}, words...)...), key)
	}
	table("tls-show", "show", dir)
	first := data("certificates", "show", dir)
	if c := first["clients/ops/client.crt"]; c.Identity != "ops" || c.Kind != "client" || c.DaysLeft != 729 || c.Revoked != nil || c.NotAfter == nil {
		t.Errorf("the client's certificate is shown as %+v", c)
	}
	table("tls-renew", "renew", "--dir", dir)
	table("tls-renew-none", "renew", "--dir", dir, "--within-days", "1")
	named := data("renewed", "renew", "ops", "--dir", dir, "--days", "90")
	if c := named["clients/ops/client.crt"]; len(named) != 1 || c.DaysLeft != 89 || c.Serial == first["clients/ops/client.crt"].Serial {
		t.Errorf("renewed %+v", named)
	}
	table("tls-revoke", "revoke", "--dir", dir, "n1", "--serial", first["clients/ops/client.crt"].Serial)
	table("tls-revoke-again", "revoke", "n1", "--dir", dir, "--days", "7")
	added := data("added", "revoke", "clients/ops/client.crt", "--dir", dir)
	if c := added["clients/ops/client.crt"]; len(added) != 1 || c.Revoked == nil {
		t.Errorf("revoked %+v", added)
	}
	for file, c := range data("certificates", "show", dir) {
		if (c.Revoked != nil) != (file != "ca.crt") {
			t.Errorf("%s is shown as %+v", file, c)
		}
	}
	table("tls-show-revoked", "show", dir)
	t.Chdir(dir)
	if here := data("certificates", "show"); len(here) != len(first) {
		t.Errorf("without a directory: %v", here)
	}
}

// TestTLSRevokeClosesSessions checks whose sessions are closed, again if the certificate is revoked already, and what is
// reported if that fails or the identity is not known.
func TestTLSRevokeClosesSessions(t *testing.T) {
	dir, f := certs(t), answering(t)
	var asked []*wire.ForceClose
	var fails error
	f.forceClose = func(req *wire.ForceClose) (*wire.OperatorResponse, error) {
		asked = append(asked, req)
		return &wire.OperatorResponse{Status: wire.Status_OK}, fails
	}
	revoke := func(words string) execution {
		asked = nil
		return execTest(t, f.dialer, append(strings.Fields("tls revoke --dir "+dir), strings.Fields(words)...)...)
	}
	if got := revoke("ops n1 --close-sessions"); got.code != exitUsage || !strings.Contains(got.err, "--reason") || len(asked) != 0 {
		t.Errorf("without a reason: %+v", got)
	}
	want := &wire.ForceClose{Identity: "ops", Reason: "stolen", Operator: "me"}
	for _, says := range []string{"with 3 certificates", "nothing new is revoked"} {
		got := revoke("ops n1 --close-sessions --reason stolen --operator me")
		if got.code != 0 || len(asked) != 1 || !proto.Equal(asked[0], want) || !strings.Contains(got.out, says) || !strings.HasSuffix(got.out, "\nThe sessions of ops are closed.\n") {
			t.Errorf("%+v, asked %v", got, asked)
		}
	}
	if got := revoke("ops"); got.code != 0 || len(asked) != 0 || !strings.Contains(got.out, "repeat this with --close-sessions") {
		t.Errorf("%+v, asked %v", got, asked)
	}
	if got := revoke("--serial 7f --close-sessions --reason r"); got.code != exitNoSuch || len(asked) != 0 || !strings.Contains(got.err, "qlock session close --identity NAME") {
		t.Errorf("%+v, asked %v", got, asked)
	}
	fails = client.ErrPermissionDenied
	got := revoke("ops --close-sessions --reason r")
	if got.code != exitDenied || !strings.Contains(got.err, "the sessions of ops: ") || !strings.Contains(got.out, "repeat this with --close-sessions") {
		t.Errorf("%+v, asked %v", got, asked)
	}
}

// TestTLSShowOfAnOldAuthority checks that show tells first that the authority itself expires.
func TestTLSShowOfAnOldAuthority(t *testing.T) {
	for kind, want := range map[pki.Kind]string{pki.KindAuthority: "The authority expires soon", pki.KindClient: "1 certificate expires within 30 days: qlock tls renew --dir 'a b'"} {
		var out strings.Builder
		writeRenewal(&out, "a b", []shownCert{{Kind: kind, DaysLeft: 29}, {Kind: kind, DaysLeft: 30}})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %q, want %q", kind, out.String(), want)
		}
	}
}

func TestTLSMistakes(t *testing.T) {
	dir := certs(t)
	for line, want := range map[string]string{
		"tls renew":                                                     "needs --dir",
		"tls revoke ops":                                                "needs --dir",
		"tls renew --dir DIR --days 0":                                  "--days 0: use 1 to 3650",
		"tls renew --dir DIR --days 3651":                               "--days 3651: use 1 to 3650",
		"tls revoke --dir DIR --days -1":                                "--days -1: use 1 to 3650",
		"tls renew --dir DIR --days many":                               "is no number",
		"tls renew --dir DIR --within-days 0":                           "--within-days 0: use 1 to 3650",
		"tls renew --dir DIR n7":                                        `"n7" is neither a node or client in`,
		"tls revoke --dir DIR n7":                                       `"n7" is neither a node or client in`,
		"tls revoke --dir DIR --serial x":                               "hexadecimal",
		"tls show DIR DIR":                                              "one directory, got 2",
		"tls show DIR/nodes":                                            "it has no ca.crt",
		"tls add --dir DIR --cluster prod --client a --days 0":          "--days 0: use 1 to 3650",
		"tls add --dir DIR --cluster prod --client anonymous":           "reserved",
		"tls init --dir DIR/new --cluster prod --client a --days 36500": "--days 36500: use 1 to 3650",
	} {
		words := strings.Fields(strings.ReplaceAll(line, "DIR", dir))
		if got := execTest(t, nil, words...); got.code != exitUsage || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
	if got := execTest(t, nil, "tls", "renew", "--dir", filepath.Join(dir, "none")); got.code != exitInternal || !strings.Contains(got.err, "ca.crt") {
		t.Errorf("a directory that is missing: %+v", got)
	}
}

// TestFlagsWithoutAList checks that a directory of an earlier version, which has no revocation list, gets no flags for
// one.
func TestFlagsWithoutAList(t *testing.T) {
	dir := certs(t)
	if err := os.Remove(pki.CRLPath(dir)); err != nil {
		t.Fatal(err)
	}
	got := execTest(t, nil, "tls", "add", "--cluster", "prod", "--node", "n3", "--dir", dir)
	if got.code != 0 || strings.Contains(got.out, "crl") {
		t.Errorf("%+v", got)
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{"a/b.crt": "a/b.crt", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'"} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

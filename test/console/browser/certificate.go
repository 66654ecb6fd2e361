package browser

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// Certificate is a client certificate with its key, in PEM files, and the origins that get it.
type Certificate struct {
	Cert, Key string
	Origins   []string
}

var errNoTools = errors.New("the certificate cannot be imported: install Debian's packages libnss3-tools and openssl")

// StartAs starts Chromium as Start does, for a person who has imported a client certificate and always chooses it. The
// certificate is in the database of a home directory of its own.
func StartAs(t testing.TB, c Certificate) *Browser {
	t.Helper()
	path := locate(t)
	if err := importer(); err != nil {
		missing(t, err)
	}
	home, profile := t.TempDir(), t.TempDir()
	c.importTo(t, home)
	c.choose(t, profile)
	return start(t, path, chromedp.UserDataDir(profile), chromedp.Env("HOME="+home))
}

// importer returns an error if a program is missing that importTo needs, and could not be installed.
func importer() (err error) {
	programs := []string{"openssl", "certutil", "pk12util"}
	if os.Getenv("QUORUMLOCK_CHECK") == "1" && !present(programs) {
		err = install("libnss3-tools", "openssl")
	}
	if !present(programs) {
		return errors.Join(errNoTools, err)
	}
	return nil
}

func present(programs []string) bool {
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return true
}

// importTo imports the certificate into the database of a home directory, from a file as the manual says.
func (c Certificate) importTo(t testing.TB, home string) {
	t.Helper()
	database, file := filepath.Join(home, ".pki", "nssdb"), filepath.Join(home, "client.p12")
	if err := os.MkdirAll(database, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"openssl", "pkcs12", "-export", "-in", c.Cert, "-inkey", c.Key, "-out", file, "-passout", "pass:"},
		{"certutil", "-N", "-d", "sql:" + database, "--empty-password"},
		{"pk12util", "-i", file, "-d", "sql:" + database, "-W", ""},
	} {
		if out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line[0], err, out)
		}
	}
}

// choose makes a profile choose any certificate for the origins, since nobody is there to do it.
func (c Certificate) choose(t testing.TB, profile string) {
	t.Helper()
	type object = map[string]any
	chosen := object{}
	for _, origin := range c.Origins {
		chosen[origin+",*"] = object{"setting": object{"filters": []object{{}}}}
	}
	preferences, err := json.Marshal(object{"profile": object{"content_settings": object{"exceptions": object{"auto_select_certificate": chosen}}}})
	if err == nil {
		err = os.MkdirAll(filepath.Join(profile, "Default"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(profile, "Default", "Preferences"), preferences, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/pki"
)

// TestCheckConfig verifies what is said about configurations that are accepted, and that nothing is left behind.
func TestCheckConfig(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Init(filepath.Join(dir, "certs"), "prod", []pki.Node{{ID: "n1", Hosts: []string{"127.0.0.1"}}}, nil, pki.ValidFor(10*24*3600e9)); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	plain := slices.Clip(freePorts("--id", "n1", "--data-dir", data))
	files := filepath.Join(dir, "certs", "nodes", "n1")
	certified := append(plain, "--tls-cert", files+"/server.crt", "--tls-key", files+"/server.key", "--tls-ca", filepath.Join(dir, "certs", "ca.crt"))
	for _, c := range []struct {
		name string
		args []string
		says string // a warning; none if empty
	}{
		{"a node", plain, ""},
		{"a temporary node", freePorts("--dev"), ""},
		{"a file", []string{"--config", configFile(t, "id: n1\ndata-dir: "+data+"\nclient-addr: 127.0.0.1:0\npeer-addr: 127.0.0.1:0\nhttp-addr: 127.0.0.1:0\n")}, ""},
		{"a name that does not resolve", append(plain, "--backup-dir", dir, "--cluster", "n1=127.0.0.1:1,n2=no..such..host:1,n3=127.0.0.1:3"), "--cluster n2=no..such..host:1: lookup no..such..host"},
		{"no backups", append(plain, "--cluster", "n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3"), "no --backup-dir"},
		{"a certificate that expires soon", certified, "the certificate of the client port, or of its chain, expires in 9 days"},
		{"an audit log", append(plain, "--audit-log", filepath.Join(dir, "audit.log")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runToEnd(t, nil, append([]string{"--check-config"}, c.args...)...)
			lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			warnings := slices.DeleteFunc(lines[:len(lines)-1:len(lines)-1], func(w string) bool {
				return strings.Contains(w, "fewer files may be open") || strings.Contains(w, "syncs take") // about the machine
			})
			if code != 0 || stderr != "" || !strings.HasSuffix("\n"+stdout, "\nconfiguration ok\n") {
				t.Errorf("code %d, %q, %q", code, stdout, stderr)
			}
			if c.says == "" && len(warnings) > 0 || c.says != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], "warning: "+c.says)) {
				t.Errorf("warnings %q, want %q", warnings, c.says)
			}
			for _, name := range []string{data, filepath.Join(dir, "audit.log")} {
				if _, err := os.Stat(name); err == nil {
					t.Errorf("%s was created", name)
				}
			}
		})
	}
}

// TestCheckConfigOfARunningNode verifies that a node's own ports and directory are no faults.
func TestCheckConfigOfARunningNode(t *testing.T) {
	dir := t.TempDir()
	d := start(t, nil, freePorts("--id", "n1", "--data-dir", dir)...)
	code, stdout, stderr := runToEnd(t, nil, "--check-config", "--id", "n1", "--data-dir", dir, "--client-addr", d.addr("client"), "--peer-addr", d.addr("peer"), "--http-addr", d.addr("http"))
	if code != 0 || stderr != "" || !strings.Contains(stdout, "--data-dir "+dir+" is in use") || !strings.HasSuffix(stdout, "configuration ok\n") {
		t.Errorf("code %d, %q, %q", code, stdout, stderr)
	}
	code, _, stderr = runToEnd(t, nil, "--check-config", "--dev", "--client-addr", d.addr("client"))
	if code != exitSoftware || !strings.Contains(stderr, "another process uses the port") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

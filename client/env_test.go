package client

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/contexts"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// variables are those that FromEnv reads.
var variables = []string{"QLOCK_ENDPOINTS", "QLOCK_CACERT", "QLOCK_CERT", "QLOCK_KEY", "QLOCK_AUTH_TOKEN", "QLOCK_AUTH_TOKEN_FILE", "QLOCK_TIMEOUT", "QLOCK_TOKEN", "QLOCK_CONTEXT"}

// TestFromEnv checks each variable, and what New says about invalid ones.
func TestFromEnv(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Init(dir, "c", nil, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	ca, cert, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "clients/app/client.crt"), filepath.Join(dir, "clients/app/client.key")
	file := tokenFile(t, second)
	saved := filepath.Join(dir, "contexts")
	t.Setenv(contexts.FileVariable, saved)
	ok(t, os.WriteFile(saved, fmt.Appendf(nil, `{"contexts": {"prod": {"endpoints": ["127.0.0.1:1"], "authTokenFile": %q}}}`, file), 0o600))
	for name, test := range map[string]struct {
		env       map[string]string
		endpoints []string
		tls       bool
		timeout   time.Duration
		token     string
		fails     string
	}{
		"nothing": {endpoints: []string{"127.0.0.1:7400"}},
		"all": {env: map[string]string{"QLOCK_ENDPOINTS": "a:1, b:2,", "QLOCK_CACERT": ca, "QLOCK_CERT": cert, "QLOCK_KEY": key, "QLOCK_TIMEOUT": "3s"},
			endpoints: []string{"a:1", "b:2"}, tls: true, timeout: 3 * time.Second},
		"only a CA": {env: map[string]string{"QLOCK_CACERT": ca}, endpoints: []string{"127.0.0.1:7400"}, tls: true},
		"no port, a scheme": {env: map[string]string{"QLOCK_ENDPOINTS": "a,tcp://b:1/,10.0.0.1,::1,[::1]"},
			endpoints: []string{"a:7400", "b:1", "10.0.0.1:7400", "[::1]:7400", "[::1]:7400"}},
		"no address":        {env: map[string]string{"QLOCK_ENDPOINTS": "a:b:c"}, fails: `endpoint "a:b:c" is not host:port`},
		"no endpoint":       {env: map[string]string{"QLOCK_ENDPOINTS": ","}, fails: "no endpoints"},
		"no duration":       {env: map[string]string{"QLOCK_TIMEOUT": "3"}, fails: `QLOCK_TIMEOUT "3" is no duration: give one such as 2s`},
		"negative duration": {env: map[string]string{"QLOCK_TIMEOUT": "-3s"}, fails: "is negative"},
		"no key":            {env: map[string]string{"QLOCK_CERT": cert}, fails: "a certificate and its key go together"},
		"a token":           {env: map[string]string{"QLOCK_AUTH_TOKEN": first}, endpoints: []string{"127.0.0.1:7400"}, token: first},
		"a token file":      {env: map[string]string{"QLOCK_AUTH_TOKEN_FILE": file}, endpoints: []string{"127.0.0.1:7400"}, token: second},
		"two tokens":        {env: map[string]string{"QLOCK_AUTH_TOKEN_FILE": file, "QLOCK_AUTH_TOKEN": first}, fails: "both set"},
		"a fencing token":   {env: map[string]string{"QLOCK_TOKEN": "17"}, endpoints: []string{"127.0.0.1:7400"}},
		"of the context":    {env: map[string]string{"QLOCK_CONTEXT": "prod"}, endpoints: []string{"127.0.0.1:1"}, token: second},
		"not the context's": {env: map[string]string{"QLOCK_CONTEXT": "prod", "QLOCK_AUTH_TOKEN": first}, endpoints: []string{"127.0.0.1:1"}, token: first},
		"no file":           {env: map[string]string{"QLOCK_CACERT": ca + ".x"}, fails: ca + ".x"},
	} {
		for _, variable := range variables {
			t.Setenv(variable, test.env[variable])
		}
		c, err := New(FromEnv())
		if test.fails != "" {
			if err == nil || !strings.Contains(err.Error(), test.fails) || !strings.HasPrefix(err.Error(), "quorumlock: ") {
				t.Errorf("%s: %v, want %q", name, err, test.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := c.cfg; !slices.Equal(got.Endpoints, test.endpoints) || (got.TLS != nil) != test.tls || got.RequestTimeout != test.timeout {
			t.Errorf("%s: %+v", name, got)
		}
		if token, err := c.cfg.token(); token != test.token || err != nil {
			t.Errorf("%s: another token, %v", name, err)
		}
		_ = c.Close()
	}
	_, err := New(Config{Endpoints: []string{"a:1"}, TLS: &tls.Config{}, CACertFile: ca})
	if err == nil || !strings.Contains(err.Error(), "both set") {
		t.Error(err)
	}
}

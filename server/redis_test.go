package server

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestRedisListener checks that the Redis port serves, describes the node and ends with it, and that its options and its
// metrics are those of the node.
func TestRedisListener(t *testing.T) {
	cfg := quick(t)
	cfg.RedisAddr, cfg.Version = "127.0.0.1:0", "v7"
	node := open(t, cfg)
	serving(t, node)
	conn, err := net.Dial("tcp", node.RedisAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "SET k v NX\r\nPING\r\nINFO server\r\n")
	lines := bufio.NewScanner(conn)
	for _, want := range []string{"-ERR a lock needs a TTL", "+PONG", "$", "# Server", "redis_version:7", "server_name:quorumlock", "quorumlock_version:v7"} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
	}
	shut(t, node)
	if _, err := net.Dial("tcp", node.RedisAddr()); err == nil {
		t.Error("it listens after the node has stopped")
	}
}

// TestRedisOptions checks the rules for the options of the Redis port.
func TestRedisOptions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"a prefix that begins no name": {func(c *Config) { c.Redis.Prefix = "a//" }, "--redis-prefix"},
		"a negative TTL":               {func(c *Config) { c.Redis.DefaultTTL = -1 }, "--redis-default-ttl"},
		"plaintext beyond loopback":    {func(c *Config) { c.RedisAddr = "192.0.2.1:7403" }, "--redis-addr"},
		"a port that is taken":         {func(c *Config) { c.RedisAddr = c.Listen.Client }, "give each port its own"},
		"no address":                   {func(c *Config) { c.RedisAddr = "nowhere" }, "--redis-addr"},
		"every interface":              {func(c *Config) { c.RedisAddr, c.Insecure = "0.0.0.0:7403", true }, ""},
	} {
		cfg := Defaults()
		cfg.ID, cfg.DataDir = "n1", "d"
		test.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

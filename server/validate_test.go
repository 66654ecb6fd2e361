package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// valid is a node that may run: on loopback, alone.
func valid() Config {
	cfg := Defaults()
	cfg.ID, cfg.DataDir = "n1", "/var/lib/qlockd"
	return cfg
}

func TestValidConfigs(t *testing.T) {
	certified := transport.TLSFiles{Cert: "c", Key: "k", CA: "ca"}
	for name, change := range map[string]func(*Config){
		"defaults": func(*Config) {},
		"only what has no default": func(c *Config) {
			*c = Config{ID: "n1", DataDir: "d", Listen: Addresses{Peer: "localhost:0", Client: "[::1]:0"}}
		},
		"http off": func(c *Config) { c.Listen.HTTP = "" },
		"wildcard, advertised, insecure": func(c *Config) {
			c.Listen = Addresses{Peer: ":7401", Client: "0.0.0.0:7400", HTTP: "[::]:7402"}
			c.Advertise = Addresses{Peer: "h:7401", Client: "h:7400", HTTP: "h:7402"}
			c.Insecure = true
		},
		"tls beyond loopback": func(c *Config) {
			c.Listen = Addresses{Peer: "10.0.0.1:7401", Client: "10.0.0.1:7400", HTTP: "10.0.0.1:7402"}
			c.TLS, c.PeerTLS = certified, certified
		},
		"tls without authority, insecure": func(c *Config) {
			c.TLS, c.Insecure = transport.TLSFiles{Cert: "c", Key: "k"}, true
		},
		"callers without certificates, insecure": func(c *Config) {
			c.TLS, c.HTTPClientAuth, c.Insecure = certified, AuthOptional, true
		},
		"health for everybody": func(c *Config) { c.HealthAddr = "0.0.0.0:7403" },
		"as much state as fits": func(c *Config) {
			c.MemoryLimit, c.MaxBufferBytes = 1<<30, 128<<20
			c.Settings = &wire.Settings{MaxStateBytes: 1<<30 - 128<<20 - fixedMemory}
		},
		"little memory": func(c *Config) { c.MemoryLimit, c.MaxBufferBytes, c.Settings = leastMemory, 0, nil },
		"three voters": func(c *Config) {
			c.Cluster = []Peer{{"n1", "127.0.0.1:7401"}, {"n2", "b:7401"}, {"n3", "c:7401"}}
		},
		"short time-outs, short sessions": func(c *Config) {
			c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
			c.Settings = &wire.Settings{MinTtlMs: 100, DefaultTtlMs: 200, MaxTtlMs: 300}
		},
		"ttl bounds without a default": func(c *Config) { c.Settings = &wire.Settings{MinTtlMs: 60_000} },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := valid()
			change(&cfg)
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInvalidLogStores(t *testing.T) {
	for says, change := range map[string]func(*Config){
		`--log-store "paper": use segment or bolt`: func(c *Config) { c.LogStore = "paper" },
		"--log-segment-bytes 512":                  func(c *Config) { c.LogSegmentBytes = 512 },
		"--log-segment-bytes 2147483648":           func(c *Config) { c.LogSegmentBytes = 2 << 30 },
	} {
		cfg := valid()
		change(&cfg)
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// fault is a configuration that is refused, and with what words.
type fault struct {
	name   string
	change func(*Config)
	says   string
}

func (c fault) check(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		cfg := valid()
		c.change(&cfg)
		err := cfg.Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want ErrConfig with %q", err, c.says)
		}
	})
}

// Whoever lets callers without a certificate in, or into plaintext, says so by name.
func TestOpenPortsNeedInsecure(t *testing.T) {
	for _, c := range []fault{
		{"tls without authority", func(c *Config) { c.TLS = transport.TLSFiles{Cert: "c", Key: "k"} }, "--tls-ca is missing"},
		{"callers without certificates", func(c *Config) {
			c.TLS, c.HTTPClientAuth = transport.TLSFiles{Cert: "c", Key: "k", CA: "ca"}, AuthNone
		}, "--http-client-auth none lets"},
		{"callers with certificates if they like", func(c *Config) {
			c.TLS, c.HTTPClientAuth = transport.TLSFiles{Cert: "c", Key: "k", CA: "ca"}, AuthOptional
		}, "--insecure"},
	} {
		c.check(t)
	}
}

func TestInvalidMemoryAndHealth(t *testing.T) {
	for _, c := range []fault{
		{"little memory", func(c *Config) { c.MemoryLimit = 1 << 20 }, "--memory-limit 1048576: at least"},
		{"few buffers", func(c *Config) { c.MaxBufferBytes = 1 << 20 }, "--max-buffer-bytes 1048576: at least"},
		{"nothing but buffers", func(c *Config) { c.MemoryLimit, c.MaxBufferBytes = 1<<30, 900<<20 }, "leaves no room for the state"},
		{"more state than memory", func(c *Config) {
			c.MemoryLimit, c.MaxBufferBytes, c.Settings = 1<<30, 0, &wire.Settings{MaxStateBytes: 900 << 20}
		}, "--max-state-bytes 943718400 does not fit"},
		{"state beyond all memory", func(c *Config) { c.Settings = &wire.Settings{MaxStateBytes: 1<<64 - 1} }, "lower --max-state-bytes or raise --memory-limit"},
		{"odd health address", func(c *Config) { c.HealthAddr = "nowhere" }, "--health-addr"},
		{"health on a port that is taken", func(c *Config) { c.HealthAddr = c.Listen.Client }, "give each port its own"},
	} {
		c.check(t)
	}
}

func TestInvalidConfigsSayWhatToDo(t *testing.T) {
	for _, c := range []fault{
		{"no time for the disk", func(c *Config) { c.DiskTimeout = time.Millisecond }, "--disk-timeout"},
		{"no id", func(c *Config) { c.ID = "" }, "--id is missing"},
		{"odd id", func(c *Config) { c.ID = "n 1" }, `--id "n 1"`},
		{"long id", func(c *Config) { c.ID = strings.Repeat("n", 65) }, "1 to 64"},
		{"no data directory", func(c *Config) { c.DataDir = "" }, "--data-dir is missing"},
		{"hasty hashing", func(c *Config) { c.HashInterval = time.Millisecond }, "--hash-interval"},
		{"no peer address", func(c *Config) { c.Listen.Peer = "" }, "--peer-addr"},
		{"address without port", func(c *Config) { c.Listen.Client = "127.0.0.1" }, "host:port"},
		{"odd port", func(c *Config) { c.Listen.Client = "127.0.0.1:99999" }, "no port number"},
		{"one port twice", func(c *Config) { c.Listen.HTTP = c.Listen.Client }, "give each port its own"},
		{"wildcard peer", func(c *Config) { c.Listen.Peer = "0.0.0.0:7401" }, "--advertise-peer-addr"},
		{"wildcard client", func(c *Config) { c.Listen.Client = ":7400" }, "--advertise-client-addr"},
		{"wildcard http", func(c *Config) { c.Listen.HTTP = "[::]:7402" }, "--advertise-http-addr"},
		{"wildcard advertised", func(c *Config) { c.Advertise.Client = "0.0.0.0:7400" }, "names no host"},
		{"port 0 advertised", func(c *Config) { c.Advertise.Client = "h:0" }, "names no port"},
		{"plaintext peer", func(c *Config) { c.Listen.Peer = "10.0.0.1:7401" }, "--peer-tls-cert"},
		{"plaintext client", func(c *Config) { c.Listen.Client = "10.0.0.1:7400" }, "--tls-cert"},
		{"plaintext http", func(c *Config) { c.Listen.HTTP = "10.0.0.1:7402" }, "--insecure"},
		{"not in cluster", func(c *Config) { c.Cluster = []Peer{{"n2", "b:1"}} }, "add n1=host:port"},
		{"cluster id twice", func(c *Config) { c.Cluster = []Peer{{"n1", "a:1"}, {"n1", "b:1"}} }, "twice"},
		{"cluster address twice", func(c *Config) { c.Cluster = []Peer{{"n1", "a:1"}, {"n2", "a:1"}} }, "twice"},
		{"cluster of eight", func(c *Config) {
			for _, id := range "12345678" {
				c.Cluster = append(c.Cluster, Peer{"n" + string(id), "h" + string(id) + ":1"})
			}
		}, "at most 7 vote"},
		{"cluster with a wildcard", func(c *Config) { c.Cluster = []Peer{{"n1", ":7401"}} }, "names no host"},
		{"two addresses of one node", func(c *Config) {
			c.Cluster, c.Advertise.Peer = []Peer{{"n1", "a:1"}}, "b:1"
		}, "make them equal"},
		{"certificate without key", func(c *Config) { c.TLS.Cert = "c" }, "--tls-key"},
		{"authority alone", func(c *Config) { c.TLS.CA = "ca" }, "--tls-ca without --tls-cert"},
		{"peers unchecked", func(c *Config) { c.PeerTLS = transport.TLSFiles{Cert: "c", Key: "k"} }, "--peer-tls-ca is missing"},
		{"odd client auth", func(c *Config) { c.HTTPClientAuth = "always" }, "require, optional or none"},
		{"client auth without authority", func(c *Config) { c.HTTPClientAuth = AuthRequire }, "needs --tls-ca"},
		{"hasty heartbeat", func(c *Config) { c.HeartbeatTimeout = time.Millisecond }, "--heartbeat-timeout"},
		{"election before heartbeat", func(c *Config) { c.ElectionTimeout = 100 * time.Millisecond }, "--election-timeout"},
		{"lease beyond heartbeat", func(c *Config) { c.LeaderLeaseTimeout = time.Second }, "--leader-lease-timeout"},
		{"slow commit", func(c *Config) { c.CommitTimeout = time.Second }, "--commit-timeout"},
		{"sessions shorter than a fail-over", func(c *Config) { c.Settings = &wire.Settings{MinTtlMs: 800} }, "--min-ttl"},
		{"ttl bounds crossed", func(c *Config) { c.Settings = &wire.Settings{MinTtlMs: 9_000, MaxTtlMs: 8_000} }, "exceeds --max-ttl"},
		{"default ttl outside", func(c *Config) { c.Settings = &wire.Settings{DefaultTtlMs: 1_000} }, "--default-ttl"},
		{"token floor too high", func(c *Config) { c.TokenFloor = 1 << 63 }, "--token-floor"},
		{"negative connections", func(c *Config) { c.Limits.MaxConnections = -1 }, "--max-connections"},
		{"negative in flight", func(c *Config) { c.Limits.MaxInFlight = -1 }, "--max-in-flight"},
		{"small frames", func(c *Config) { c.Limits.MaxFrameBytes = 100 }, "--max-frame-bytes"},
		{"frames without room for values", func(c *Config) {
			c.Limits.MaxFrameBytes, c.Settings = 64<<10, &wire.Settings{MaxValueBytes: 64 << 10}
		}, "--max-value-bytes"},
		{"small outbox", func(c *Config) { c.Limits.MaxOutboxBytes = c.Limits.MaxFrameBytes }, "--max-outbox-bytes"},
		{"negative time-out", func(c *Config) { c.Limits.IdleTimeout = -1 }, "--idle-timeout"},
	} {
		c.check(t)
	}
}

func TestAllFaultsAreSaidAtOnce(t *testing.T) {
	cfg := valid()
	cfg.ID, cfg.Limits.MaxInFlight, cfg.TLS.Cert = "", -1, "c"
	err := cfg.Validate()
	for _, says := range []string{"--id", "--max-in-flight", "--tls-key"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not mention %s", err, says)
		}
	}
}

func TestWarnings(t *testing.T) {
	if w := valid().Warnings(); len(w) != 0 {
		t.Errorf("warnings %q for the defaults", w)
	}
	cfg := valid()
	cfg.Cluster = []Peer{{"n1", "127.0.0.1:7401"}, {"n2", "b:7401"}}
	cfg.Insecure = true
	cfg.Settings = &wire.Settings{MinTtlMs: 1_500}
	all := strings.Join(cfg.Warnings(), "\n")
	for _, says := range []string{"odd number", "--insecure", "--min-ttl"} {
		if !strings.Contains(all, says) {
			t.Errorf("no warning of %s in %q", says, all)
		}
	}
}

func TestAnnouncedAddresses(t *testing.T) {
	for _, c := range []struct{ asked, advertise, bound, want string }{
		{"127.0.0.1:7400", "", "127.0.0.1:7400", "127.0.0.1:7400"},
		{"localhost:0", "", "127.0.0.1:4242", "localhost:4242"},
		{"n1:7400", "", "n1:7400", "n1:7400"},
		{"0.0.0.0:0", "h:1", "0.0.0.0:4242", "h:1"},
		{"[::1]:0", "", "[::1]:4242", "[::1]:4242"},
	} {
		if got := announce(c.asked, c.advertise, boundAt(c.bound)); got != c.want {
			t.Errorf("announce(%q, %q, %s) = %s, want %s", c.asked, c.advertise, c.bound, got, c.want)
		}
	}
}

type boundAt string

func (boundAt) Network() string  { return "tcp" }
func (a boundAt) String() string { return string(a) }

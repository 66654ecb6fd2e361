package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// valid returns a valid configuration of a single node on loopback.
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
		"stores instead of a directory": func(c *Config) {
			c.DataDir, c.Stores = "", storage.Backend{Log: raft.NewInmemStore(), Stable: raft.NewInmemStore(), Snapshots: raft.NewInmemSnapshotStore()}
		},
		"the last port":       func(c *Config) { c.Listen.Client = "127.0.0.1:65535" },
		"a name to listen on": func(c *Config) { c.Listen.Client, c.Insecure = "n1:7400", true },
		"the same port, whichever is free": func(c *Config) {
			c.Listen = Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
		},
		"advertised as the cluster says": func(c *Config) {
			c.Cluster, c.Advertise.Peer = []Peer{{"n1", "h:7401"}}, "h:7401"
		},
		"seven voters": func(c *Config) {
			for n := range 7 {
				c.Cluster = append(c.Cluster, Peer{fmt.Sprint("n", n), fmt.Sprint("h:", n+1)})
			}
		},
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

// fault is an invalid configuration and the expected message.
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

// TestOpenPortsNeedInsecure verifies that --insecure is required to accept callers without a certificate or
// in plaintext.
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
		{"little memory", func(c *Config) { c.MemoryLimit = 1 << 20 }, "--memory-limit 1048576: use at least"},
		{"few buffers", func(c *Config) { c.MaxBufferBytes = 1 << 20 }, "--max-buffer-bytes 1048576: use at least"},
		{"nothing but buffers", func(c *Config) { c.MemoryLimit, c.MaxBufferBytes = 1<<30, 900<<20 }, "at most 503316480, to leave room for the state"},
		{"more state than memory", func(c *Config) {
			c.MemoryLimit, c.MaxBufferBytes, c.Settings = 1<<30, 0, &wire.Settings{MaxStateBytes: 900 << 20}
		}, "--max-state-bytes 943718400: use at most 872415232, to fit"},
		{"state beyond all memory", func(c *Config) { c.Settings = &wire.Settings{MaxStateBytes: 1<<64 - 1} }, "lower --max-state-bytes or raise --memory-limit"},
		{"odd health address", func(c *Config) { c.HealthAddr = "nowhere" }, "--health-addr"},
		{"health on a port that is taken", func(c *Config) { c.HealthAddr = c.Listen.Client }, "give each port its own"},
	} {
		c.check(t)
	}
}

func TestInvalidConfigsNameTheRemedy(t *testing.T) {
	for _, c := range []fault{
		{"a setting out of its bounds", func(c *Config) { c.Settings.MaxWaitersPerLock = 15 }, "--max-waiters 15: use 16 to 16777216"},
		{"no id", func(c *Config) { c.ID = "" }, "--id is missing"},
		{"odd id", func(c *Config) { c.ID = "n 1" }, `--id "n 1"`},
		{"long id", func(c *Config) { c.ID = strings.Repeat("n", 65) }, "1 to 64"},
		{"no data directory", func(c *Config) { c.DataDir = "" }, "--data-dir is missing"},
		{"no log without a directory", func(c *Config) {
			c.DataDir, c.Stores = "", storage.Backend{Stable: raft.NewInmemStore(), Snapshots: raft.NewInmemSnapshotStore()}
		}, "--data-dir is missing"},
		{"no stable store without a directory", func(c *Config) {
			c.DataDir, c.Stores = "", storage.Backend{Log: raft.NewInmemStore(), Snapshots: raft.NewInmemSnapshotStore()}
		}, "--data-dir is missing"},
		{"no snapshots without a directory", func(c *Config) {
			c.DataDir, c.Stores = "", storage.Backend{Log: raft.NewInmemStore(), Stable: raft.NewInmemStore()}
		}, "--data-dir is missing"},
		{"no peer address", func(c *Config) { c.Listen.Peer = "" }, "--peer-addr"},
		{"address without port", func(c *Config) { c.Listen.Client = "127.0.0.1" }, "host:port"},
		{"odd port", func(c *Config) { c.Listen.Client = "127.0.0.1:99999" }, "no port number"},
		{"negative port", func(c *Config) { c.Listen.Client = "127.0.0.1:-1" }, "no port number"},
		{"first number that is no port", func(c *Config) { c.Listen.Client = "127.0.0.1:65536" }, "no port number"},
		{"port by its name", func(c *Config) { c.Listen.Client = "127.0.0.1:http" }, "no port number"},
		{"one port twice", func(c *Config) { c.Listen.HTTP = c.Listen.Client }, "give each port its own"},
		{"wildcard peer", func(c *Config) { c.Listen.Peer = "0.0.0.0:7401" }, "--advertise-peer-addr"},
		{"wildcard client", func(c *Config) { c.Listen.Client = ":7400" }, "--advertise-client-addr"},
		{"wildcard http", func(c *Config) { c.Listen.HTTP = "[::]:7402" }, "--advertise-http-addr"},
		{"wildcard advertised", func(c *Config) { c.Advertise.Client = "0.0.0.0:7400" }, "names no host"},
		{"no port advertised", func(c *Config) { c.Advertise.Client = "h" }, "host:port"},
		{"port 0 advertised", func(c *Config) { c.Advertise.Client = "h:0" }, "names no port"},
		{"plaintext peer", func(c *Config) { c.Listen.Peer = "10.0.0.1:7401" }, "--peer-tls-cert"},
		{"plaintext client", func(c *Config) { c.Listen.Client = "10.0.0.1:7400" }, "--tls-cert"},
		{"plaintext http", func(c *Config) { c.Listen.HTTP = "10.0.0.1:7402" }, "--insecure"},
		{"join and cluster", func(c *Config) { c.Cluster, c.Join = []Peer{{"n1", "127.0.0.1:7401"}}, []string{"n2:7401"} }, "exclude each other"},
		{"join without a port", func(c *Config) { c.Join = []string{"n2"} }, `--join "n2"`},
		{"nodes expected nowhere", func(c *Config) { c.BootstrapExpect = 3 }, "needs --join"},
		{"too many nodes expected", func(c *Config) { c.Join, c.BootstrapExpect = []string{"n2:7401"}, 8 }, "use 3, 5 or 7"},
		{"less than no node expected", func(c *Config) { c.Join, c.BootstrapExpect = []string{"n2:7401"}, -1 }, "use 3, 5 or 7"},
		{"an even number of nodes expected", func(c *Config) { c.Join, c.BootstrapExpect = []string{"n2:7401"}, 2 }, "use 3, 5 or 7"},
		{"not in cluster", func(c *Config) { c.Cluster = []Peer{{"n2", "b:1"}} }, "add n1=host:port"},
		{"cluster id twice", func(c *Config) { c.Cluster = []Peer{{"n1", "a:1"}, {"n1", "b:1"}} }, "twice"},
		{"cluster address twice", func(c *Config) { c.Cluster = []Peer{{"n1", "a:1"}, {"n2", "a:1"}} }, "twice"},
		{"cluster of eight", func(c *Config) {
			for _, id := range "12345678" {
				c.Cluster = append(c.Cluster, Peer{"n" + string(id), "h" + string(id) + ":1"})
			}
		}, "list at most 7"},
		{"cluster with a wildcard", func(c *Config) { c.Cluster = []Peer{{"n1", ":7401"}} }, "names no host"},
		{"two addresses of one node", func(c *Config) {
			c.Cluster, c.Advertise.Peer = []Peer{{"n1", "a:1"}}, "b:1"
		}, "make them equal"},
		{"certificate without key", func(c *Config) { c.TLS.Cert = "c" }, "--tls-key"},
		{"authority alone", func(c *Config) { c.TLS.CA = "ca" }, "--tls-ca without --tls-cert"},
		{"list alone", func(c *Config) { c.TLS.CRL = "crl" }, "--tls-crl needs --tls-ca"},
		{"list of the peer port alone", func(c *Config) { c.PeerTLS.CRL = "crl" }, "--peer-tls-crl needs --peer-tls-ca"},
		{"peers unchecked", func(c *Config) { c.PeerTLS = transport.TLSFiles{Cert: "c", Key: "k"} }, "--peer-tls-ca is missing"},
		{"odd client auth", func(c *Config) { c.HTTPClientAuth = "always" }, "require, optional or none"},
		{"client auth without authority", func(c *Config) { c.HTTPClientAuth = AuthRequire }, "needs --tls-ca"},
		{"ttl bounds crossed", func(c *Config) { c.Settings = &wire.Settings{MinTtlMs: 9_000, MaxTtlMs: 8_000} }, "--min-ttl 9s: use at most 8s"},
		{"frames without room for values", func(c *Config) {
			c.Limits.MaxFrameBytes, c.Settings = 64<<10, &wire.Settings{MaxValueBytes: 64 << 10}
		}, "--max-value-bytes"},
	} {
		c.check(t)
	}
}

func TestAllFaultsAreReportedTogether(t *testing.T) {
	cfg := valid()
	cfg.ID, cfg.Limits.MaxInFlight, cfg.TLS.Cert = "", -1, "c"
	err := cfg.Validate()
	for _, says := range []string{"--id", "--max-in-flight", "--tls-key"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not mention %s", err, says)
		}
	}
}

// TestOneFaultIsReportedOnce verifies that a fault is not reported again as the fault of another field.
func TestOneFaultIsReportedOnce(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no id": func(c *Config) { c.ID, c.Cluster = "", []Peer{{"n1", "a:1"}} },
		"not in the cluster, advertised": func(c *Config) {
			c.Cluster, c.Advertise.Peer = []Peer{{"n2", "b:1"}}, "a:1"
		},
		"little memory": func(c *Config) {
			c.MemoryLimit, c.MaxBufferBytes, c.Settings.MaxStateBytes = 1<<20, leastBuffers, 32<<20
		},
		"too much buffer": func(c *Config) { c.MaxBufferBytes = 1 << 40 },
	} {
		cfg := valid()
		change(&cfg)
		if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one fault", name, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	voters := func(n int) func(*Config) {
		return func(c *Config) { c.Cluster, c.BackupDir = make([]Peer, n), "/var/backups" }
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   string // no warning if empty
	}{
		{"defaults", func(*Config) {}, ""},
		{"two voters", voters(2), "a cluster of 2 voters survives no more failures than one of 1"},
		{"three voters", voters(3), ""},
		{"short sessions", func(c *Config) { c.Settings.MinTtlMs = 2_999 }, "--min-ttl 2.999s"},
		{"sessions that outlive a fail-over", func(c *Config) { c.Settings.MinTtlMs = 3_000 }, ""},
		{"no backups", func(c *Config) { c.Cluster = make([]Peer, 3) }, "no --backup-dir"},
		{"clean-up after a day", func(c *Config) { c.Autopilot.Cleanup = true }, ""},
		{"hasty clean-up", func(c *Config) { c.Autopilot.Cleanup, c.Autopilot.DeadAfter = true, time.Minute }, "--autopilot-dead-after 1m0s"},
		{"insecure", func(c *Config) { c.Insecure = true }, "--insecure"},
	} {
		cfg := valid()
		c.change(&cfg)
		said := cfg.Warnings()
		if c.says == "" && len(said) > 0 || c.says != "" && (len(said) != 1 || !strings.Contains(said[0], c.says)) {
			t.Errorf("%s: warnings %q, want %q", c.name, said, c.says)
		}
	}
}

func TestAdvertisedPeer(t *testing.T) {
	cluster := []Peer{{"n2", "b:1"}, {"n1", "a:1"}}
	for _, c := range []struct {
		advertise string
		cluster   []Peer
		want      string
	}{
		{"", nil, ""}, {"h:1", nil, "h:1"}, {"", cluster, "a:1"}, {"h:1", cluster, "h:1"},
	} {
		cfg := Config{ID: "n1", Cluster: c.cluster, Advertise: Addresses{Peer: c.advertise}}
		if got := cfg.advertisedPeer(); got != c.want {
			t.Errorf("--advertise-peer-addr %q with cluster %v: %q, want %q", c.advertise, c.cluster, got, c.want)
		}
	}
}

func TestAnnouncedAddresses(t *testing.T) {
	for _, c := range []struct{ asked, advertise, bound, want string }{
		{"127.0.0.1:7400", "", "127.0.0.1:7400", "127.0.0.1:7400"},
		{"localhost:0", "", "127.0.0.1:4242", "localhost:4242"},
		{"n1:7400", "", "n1:7400", "n1:7400"},
		{"n1:7400", "", "10.0.0.1:4242", "n1:7400"},
		{"n1:0", "", "in memory", "in memory"},
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

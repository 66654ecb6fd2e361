package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/examine"
	"github.com/quorumlock/quorumlock/server/internal/seeds"
	"github.com/quorumlock/quorumlock/server/storage"
)

// resolveTimeout bounds how long Check looks up names.
const resolveTimeout = 3 * time.Second

// Check returns the error that Open would return for a configuration, and warnings about what Open accepts but is
// unwise, or does not work now. It starts nothing and leaves nothing behind. If the data directory is in use, the node
// is taken to be running, and its ports are not tried.
func Check(ctx context.Context, cfg Config) (warnings []string, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	warnings = cfg.Warnings()
	certified, err := cfg.checkCertificates(time.Now())
	if err != nil {
		return warnings, err
	}
	if err := new(nodeCertificates).read(cfg); err != nil {
		return warnings, err
	}
	warnings = append(warnings, cfg.expiryWarnings(time.Now())...)
	switch err := cfg.checkDataDir(certified); {
	case errors.Is(err, ErrInUse):
		warnings = append(warnings, fmt.Sprintf("--data-dir %s is in use: if that is this node, stop it before the next start; its ports were not tried", cfg.DataDir))
	case err != nil:
		return warnings, err
	default:
		ports, err := (&Node{cfg: cfg}).listen(ctx)
		if err != nil {
			return warnings, err
		}
		ports.close()
		warnings = append(warnings, cfg.slowDisk(ctx)...)
	}
	if err := cfg.checkAuditLog(); err != nil {
		return warnings, err
	}
	return append(warnings, cfg.unresolved(ctx, net.DefaultResolver)...), nil
}

// expiryWarnings has a message for each certificate that expires soon.
func (c Config) expiryWarnings(now time.Time) (warnings []string) {
	certs := &nodeCertificates{}
	if err := certs.read(c); err != nil {
		return nil // Check has reported it
	}
	for port, credentials := range certs.ports() {
		if left := credentials.Expires().Sub(now); left < expiryNotice {
			warnings = append(warnings, fmt.Sprintf("the certificate of the %s port, or of its chain, expires in %d days: replace its files, no restart is needed", port, int(left.Hours()/24)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// checkDataDir checks whose data directory it is.
func (c Config) checkDataDir(certified string) error {
	if c.hasStores() {
		return nil
	}
	values, err := storage.Check(c.DataDir, c.ID)
	if err != nil {
		return err
	}
	_, err = directory.Open(directory.Config{ID: c.ID, Cluster: certified, Values: values})
	return err
}

// slowSync is a median of the time that syncs of the data directory take. Each commit waits for one.
const slowSync = 20 * time.Millisecond

// slowDisk measures the syncs of an existing data directory.
func (c Config) slowDisk(ctx context.Context) []string {
	if _, err := os.Stat(c.DataDir); err != nil || c.hasStores() {
		return nil
	}
	found := examine.New(examine.Config{DataDir: c.DataDir}).Examine(ctx)
	if median := time.Duration(found.GetSyncMedianUs()) * time.Microsecond; median >= slowSync {
		return []string{fmt.Sprintf("--data-dir %s: syncs take %v (median), and each commit waits for one: use a faster disk", c.DataDir, median)}
	}
	return nil
}

// checkAuditLog returns an error unless the node can append to the file, or create it.
func (c Config) checkAuditLog() error {
	if c.AuditLog == "" {
		return nil
	}
	info, err := os.Stat(c.AuditLog)
	if errors.Is(err, fs.ErrNotExist) {
		probe, err := os.CreateTemp(filepath.Dir(c.AuditLog), ".probe-*")
		if err != nil {
			return auditLogError(c.AuditLog, err)
		}
		return errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(c.AuditLog, os.O_RDWR|os.O_APPEND, 0); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return auditLogError(c.AuditLog, err)
	}
	return nil
}

// auditLogError names the flag and the remedy.
func auditLogError(path string, err error) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%w: --audit-log %s: %w: give a file in a directory in which this node may write", ErrConfig, path, err)
}

// unresolved has a warning for each configured name of a node that cannot be resolved. It may be resolved later, since
// some services register names only when all nodes run.
func (c Config) unresolved(ctx context.Context, resolver seeds.Resolver) (warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs := map[string]string{}
	for _, peer := range c.Cluster {
		addrs[peer.Addr] = "--cluster " + peer.ID + "=" + peer.Addr
	}
	for _, seed := range c.Join {
		addrs[seed] = "--join " + seed
	}
	for _, p := range c.ports() {
		if p.advertise != "" {
			addrs[p.advertise] = "--advertise-" + p.name + "-addr " + p.advertise
		}
	}
	for addr, flag := range addrs {
		if err := resolves(ctx, resolver, addr); err != nil {
			warnings = append(warnings, fmt.Sprintf("%s: %v: correct the name, or add it to the DNS before the nodes need it", flag, err))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// resolves looks up the host of host:port, or the name of an SRV record.
func resolves(ctx context.Context, resolver seeds.Resolver, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil && strings.HasPrefix(addr, "_") {
		_, _, err := resolver.LookupSRV(ctx, "", "", addr)
		return err
	}
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	_, err = resolver.LookupHost(ctx, host)
	return err
}

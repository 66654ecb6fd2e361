package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/server"
)

// configure converts flags to a server.Config. It only checks their form; server.Config.Validate checks the
// rest.
func configure(c *cli.Context) (server.Config, error) {
	if c.NArg() > 0 {
		return server.Config{}, usage(fmt.Errorf("unexpected argument %q: everything is a flag, see qlockd --help", c.Args().First()))
	}
	o := defaults()
	if err := o.read(c); err != nil {
		return server.Config{}, usage(err)
	}
	peers, err := parseCluster(o.cluster)
	if err != nil {
		return server.Config{}, usage(fmt.Errorf("--cluster: %w", err))
	}
	cfg := o.Config
	cfg.Cluster, cfg.Join = peers, parseList(o.join)
	build := programBuild()
	cfg.Version, cfg.Commit = build.Version, build.Commit
	cfg.HTTPLimits.MaxHandshakes = cfg.Limits.MaxHandshakes
	return cfg, nil
}

// parseList parses a list with commas.
func parseList(text string) (entries []string) {
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// parseCluster parses n1=host:port,n2=host:port.
func parseCluster(text string) ([]server.Peer, error) {
	if text == "" {
		return nil, nil
	}
	var peers []server.Peer
	for entry := range strings.SplitSeq(text, ",") {
		id, addr, _ := strings.Cut(strings.TrimSpace(entry), "=")
		if id == "" || addr == "" {
			return nil, fmt.Errorf("%q is not of the form id=host:port", entry)
		}
		peers = append(peers, server.Peer{ID: id, Addr: addr})
	}
	return peers, nil
}

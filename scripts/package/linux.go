package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // the format
)

// formats are the formats of packages, with what differs between their distributions.
var formats = []struct {
	name    string
	zsh     string
	depends []string
}{
	{"deb", "/usr/share/zsh/vendor-completions/_qlock", []string{"passwd"}},
	{"rpm", "/usr/share/zsh/site-functions/_qlock", []string{"shadow-utils"}},
}

// linuxPackages writes a .deb and a .rpm, if the platform is Linux.
func (r *release) linuxPackages(p platform) error {
	if p.os != "linux" {
		return nil
	}
	for _, format := range formats {
		packager, err := nfpm.Get(format.name)
		if err != nil {
			return err
		}
		info := r.packageInfo(p, format.depends)
		info.Contents = append(r.packaged(p), r.content(format.zsh, r.document("_qlock"), 0o644))
		out, err := os.Create(filepath.Join(r.out, packager.ConventionalFileName(r.packageInfo(p, nil))))
		if err != nil {
			return err
		}
		if err := errors.Join(packager.Package(info, out), out.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) packageInfo(p platform, depends []string) *nfpm.Info {
	return nfpm.WithDefaults(&nfpm.Info{
		Name: "quorumlock", Arch: p.arch, Platform: p.os, Version: r.packageVersion(), VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", License: "Apache-2.0", MTime: r.time,
		Maintainer: "The Quorumlock authors <quorumlock@users.noreply.github.com>", Vendor: "Quorumlock",
		Homepage: "https://github.com/quorumlock/quorumlock",
		Description: "Raft-replicated lock server\n" +
			"Locks with FIFO queues, fencing tokens and sessions, replicated by raft.\n" +
			"This package has the server qlockd with its systemd unit, and the client qlock.",
		Overridables: nfpm.Overridables{
			Depends: depends,
			Scripts: nfpm.Scripts{PostInstall: r.files("postinstall.sh"), PreRemove: r.files("preremove.sh"), PostRemove: r.files("postremove.sh")},
			RPM:     nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons"},
		},
	})
}

// packaged are the files that packages of all formats install.
func (r *release) packaged(p platform) files.Contents {
	config := r.content("/etc/quorumlock/qlockd.yaml", r.files("qlockd.yaml"), 0o644)
	config.Type = files.TypeConfigNoReplace // an upgrade keeps the operator's file
	const doc = "/usr/share/doc/quorumlock/"
	return files.Contents{
		config,
		r.content("/usr/bin/qlock", r.stage(p.dir(), "qlock"), 0o755),
		r.content("/usr/bin/qlockd", r.stage(p.dir(), "qlockd"), 0o755),
		r.content("/usr/lib/systemd/system/qlockd.service", r.files("qlockd.service"), 0o644),
		r.content("/usr/lib/sysusers.d/quorumlock.conf", r.files("sysusers.conf"), 0o644),
		r.content("/usr/share/man/man1/qlock.1.gz", r.document("qlock.1.gz"), 0o644),
		r.content("/usr/share/man/man8/qlockd.8.gz", r.document("qlockd.8.gz"), 0o644),
		r.content("/usr/share/bash-completion/completions/qlock", r.document("qlock.bash"), 0o644),
		r.content("/usr/share/fish/vendor_completions.d/qlock.fish", r.document("qlock.fish"), 0o644),
		r.content(doc+"README.md", filepath.Join(r.root, "README.md"), 0o644),
		r.content(doc+"changelog.gz", r.document("changelog.gz"), 0o644),
		r.content(doc+"copyright", r.files("copyright"), 0o644),
		r.content(doc+"third-party.txt", r.document("third-party.txt"), 0o644),
	}
}

func (r *release) content(destination, source string, mode os.FileMode) *files.Content {
	return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{Mode: mode, MTime: r.time}}
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// platform is a system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// dir is the name of the platform's directory.
func (p platform) dir() string { return p.os + "-" + p.arch }

// allPlatforms are those of a release.
var allPlatforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
}

// host is the platform of this machine.
var host = platform{runtime.GOOS, runtime.GOARCH}

func platformNames(list []platform) string {
	var names []string
	for _, p := range list {
		names = append(names, p.String())
	}
	return strings.Join(names, ",")
}

func parsePlatforms(text string) (list []platform, err error) {
	for name := range strings.SplitSeq(text, ",") {
		i := slices.IndexFunc(allPlatforms, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-platforms: %q is not one of %s", name, platformNames(allPlatforms))
		}
		list = append(list, allPlatforms[i])
	}
	return list, nil
}

// programs are the programs for the platform. Nodes do not run on Windows.
func (p platform) programs() []string {
	if p.os == "windows" {
		return []string{"qlock"}
	}
	return []string{"qlock", "qlockd"}
}

// executable is the name of a program's file.
func (p platform) executable(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// build compiles the programs for a platform, unless that has been done.
func (r *release) build(p platform) error {
	if _, err := os.Stat(r.stage(p.dir())); err == nil {
		return nil
	}
	stamps := "-s -w -X main.version=" + r.version + " -X github.com/quorumlock/quorumlock/cmd/buildinfo.stamped=" + r.commit
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", stamps, "-o", r.stage(p.dir()) + string(filepath.Separator)}
	for _, program := range p.programs() {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = r.root, os.Stderr
	// What the environment of the caller sets for Go must not change the result.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	return cmd.Run()
}

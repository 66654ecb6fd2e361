package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/quorumlock/quorumlock/fsm"
)

// Release is the release that these sources are or become, as the first section of CHANGELOG.md names it.
const Release = "v1.1.0"

// stamped is the commit, set by the linker in releases. What Go records depends on how the repository was checked out:
// nothing in a linked worktree.
var stamped string

// Info identifies a build.
type Info struct {
	Version string `json:"version"`
	// Commit is marked if the sources had changes. It is empty if it is unknown.
	Commit string `json:"commit"`
	Go     string `json:"go"`
	// FeatureLevel is the highest feature level that the program understands.
	FeatureLevel uint32 `json:"featureLevel"`
}

// Read returns what the compiler recorded. version is what the linker has set, empty if nothing.
func Read(version string) Info {
	i := Info{Go: runtime.Version(), FeatureLevel: fsm.Level}
	tag := ""
	if built, ok := debug.ReadBuildInfo(); ok {
		tag, i.Commit = tagged(built.Main.Version), commit(built.Settings)
	}
	i.Version, i.Commit = cmp.Or(version, tag, Release+"-devel"), cmp.Or(stamped, i.Commit)
	return i
}

// tagged returns the version of a module that was fetched at a tag. Other builds have none, or one made from a commit.
func tagged(version string) string {
	if version == "(devel)" || strings.HasPrefix(version, "v0.0.0-") {
		return ""
	}
	return version
}

// String returns one line.
func (i Info) String() string {
	revision := ""
	if i.Commit != "" {
		revision = " (" + i.Commit + ")"
	}
	return fmt.Sprintf("%s%s %s, feature level %d", i.Version, revision, i.Go, i.FeatureLevel)
}

// commit returns the revision of the build, marked if the sources had changes.
func commit(settings []debug.BuildSetting) string {
	var revision, mark string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			mark = "+changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + mark
}

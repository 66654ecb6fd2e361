package buildinfo

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
)

func TestRead(t *testing.T) {
	if got := Read("v9"); got.Version != "v9" || got.Go == "" || got.FeatureLevel == 0 {
		t.Errorf("%+v", got)
	}
	if got := Read(""); got.Version != Release+"-devel" {
		t.Errorf("%+v", got)
	}
	for version, want := range map[string]string{"v1.2.3": "v1.2.3", "(devel)": "", "": "", "v0.0.0-20261126110848-e4624245+dirty": ""} {
		if got := tagged(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}

// TestReleaseNamesItsCommit verifies that the commit that the linker sets counts.
func TestReleaseNamesItsCommit(t *testing.T) {
	defer func(before string) { stamped = before }(stamped)
	stamped = "0a1b2c3"
	if got := Read("v9").Commit; got != stamped {
		t.Errorf("%q, want %q", got, stamped)
	}
}

// TestChangelog verifies that the first section of the changelog is that of the release and its feature level.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sections, _ := strings.Cut(string(text), "\n## ")
	first, _, _ := strings.Cut(sections, "\n")
	if want := fmt.Sprintf("%s, feature level %d", strings.TrimPrefix(Release, "v"), fsm.Level); first != want {
		t.Errorf("the first section is %q, want %q", first, want)
	}
}

func TestString(t *testing.T) {
	i := Info{Version: "v1.0.0", Commit: "abc", Go: "go1", FeatureLevel: 3}
	if got, want := i.String(), "v1.0.0 (abc) go1, feature level 3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	i.Commit = ""
	if got, want := i.String(), "v1.0.0 go1, feature level 3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCommit(t *testing.T) {
	set := func(pairs ...string) (settings []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			settings = append(settings, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return settings
	}
	for want, settings := range map[string][]debug.BuildSetting{
		"":            set("vcs.modified", "true", "CGO_ENABLED", "1"),
		"abc":         set("vcs.revision", "abc", "vcs.modified", "false", "other", "true"),
		"abc+changes": set("vcs.modified", "true", "vcs.revision", "abc"),
	} {
		if got := commit(settings); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

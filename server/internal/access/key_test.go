package access_test

import (
	"bytes"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestKeysByRole tries what the Redis port does with every role. The identity user has a session, so it may have keys of
// its own under any name: the state machine decides.
func TestKeysByRole(t *testing.T) {
	c := rights.New(t)
	change := func(action wire.ChangeKeys_Action, names ...string) *wire.ChangeKeys {
		return &wire.ChangeKeys{Action: action, Names: names}
	}
	for role, want := range map[string]string{
		"other":    "",
		"reader":   "find see release",
		"user":     "lock find see release elsewhere",
		"operator": "find see release",
		"admin":    "lock find see release",
	} {
		caller, got := as(t, c, role), ""
		note := func(what string, refused *wire.Result) {
			switch {
			case refused == nil && got != "":
				got += " " + what
			case refused == nil:
				got = what
			case refused.GetStatus() != wire.Status_PERMISSION_DENIED:
				t.Errorf("%s: %s is refused with %v", role, what, refused)
			}
		}
		note("lock", caller.CheckChange(change(wire.ChangeKeys_ACQUIRE, rights.Lock)))
		note("find", caller.CheckFind(rights.Lock))
		note("see", caller.CheckSee(rights.Lock))
		note("release", caller.CheckChange(change(wire.ChangeKeys_RELEASE, rights.Lock)))
		if role == "user" {
			note("elsewhere", caller.CheckChange(change(wire.ChangeKeys_DELETE, "where/ever")))
		}
		if got != want {
			t.Errorf("%s may %q, want %q", role, got, want)
		}
	}
	other := as(t, c, "other")
	for name, refused := range map[string]*wire.Result{
		"a lock of its own":    other.CheckLock("else/a"),
		"one more of others":   other.CheckLock("else/a", rights.Lock),
		"release among others": other.CheckChange(change(wire.ChangeKeys_RELEASE, "else/a", rights.Lock)),
		"see among others":     other.CheckSee("else/a", rights.Lock),
	} {
		if allowed := name == "a lock of its own"; allowed != (refused == nil) {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

// TestOwnKeysAtAFollowerBehind checks that a follower that has not applied an acquire yet lets its owner give it up,
// under any name.
func TestOwnKeysAtAFollowerBehind(t *testing.T) {
	f := &follower{Cluster: rights.New(t)}
	f.applied = f.Machine.Fork()
	caller, err := access.Authenticate(f, "c1", access.Presented{Token: f.Tokens["other"], Secure: true})
	if err != nil {
		t.Fatal(err)
	}
	release := &wire.ChangeKeys{Action: wire.ChangeKeys_RELEASE, Names: []string{rights.Lock}}
	if caller.CheckChange(release) == nil {
		t.Error("a caller that has nothing may release what others hold")
	}
	f.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "other"}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: bytes.Repeat([]byte{1}, 32)}}})
	if refused := caller.CheckChange(release); refused != nil {
		t.Errorf("a caller that has something: %v", refused)
	}
}

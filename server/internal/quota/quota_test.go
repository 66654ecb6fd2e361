package quota

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// node is a state machine with a policy.
type node struct {
	t *testing.T
	m *fsm.Machine
}

func newNode(t *testing.T, quotas ...*wire.Quota) *node {
	n := &node{t, fsm.New(fsm.Level)}
	n.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Lineage: "l"}}})
	n.set(quotas...)
	return n
}

func (n *node) set(quotas ...*wire.Quota) {
	_, revision := n.m.Access().Policy()
	n.apply(&wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		ExpectedRevision: revision, Reason: "r", Policy: &wire.Policy{
			Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "*", Roles: []string{"user"}}}, Quotas: quotas,
		},
	}}})
}

func (n *node) open(identity string, number int) {
	secret := bytes.Repeat([]byte{byte(number)}, 32)
	copy(secret, identity)
	n.apply(&wire.Command{Caller: &wire.Caller{Identity: identity}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secret}}})
}

func (n *node) apply(cmd *wire.Command) {
	n.t.Helper()
	data, err := wire.AppendEntry(nil, &wire.Entry{Level: 1, Commands: []*wire.Command{cmd}})
	if err != nil {
		n.t.Fatal(err)
	}
	applied, err := n.m.Apply(data)
	if err != nil {
		n.t.Fatal(err)
	}
	if status := applied.Results[0].GetStatus(); status != wire.Status_OK && status != wire.Status_GRANTED {
		n.t.Fatal(applied.Results[0])
	}
}

func (n *node) Access() *fsm.Access       { return n.m.Access() }
func (n *node) View(f func(*fsm.Machine)) { f(n.m) }
func (n *node) Serving() bool             { return true }

func TestConnectionsAndWatches(t *testing.T) {
	n := newNode(t, &wire.Quota{Identity: "team-*", Connections: 2, Watches: 1})
	here := New(n, 10)
	port := here.Pool("max_connections", 10)
	a, other := here.Open("team-a"), here.Open("team-a")
	leave, _ := a.Connect(port)
	if _, refused := other.Connect(port); refused != nil {
		t.Fatal(refused)
	}
	const full = `quota connections of "team-a": 2 of 2 used, this would take 1 more`
	if _, refused := a.Connect(port); refused.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || refused.GetMessage() != full {
		t.Errorf("the third connection: %v", refused)
	}
	if _, refused := here.Open("team-b").Connect(port); refused != nil {
		t.Errorf("another identity of the pattern: %v", refused)
	}
	leave()
	if use := here.Use("team-a"); use != (Use{Connections: 1}) {
		t.Errorf("uses %+v", use)
	}
	if _, refused := a.Connect(port); refused != nil {
		t.Errorf("in place of one that has gone: %v", refused)
	}
	end, refused := a.Watch()
	if refused != nil {
		t.Fatal(refused)
	}
	if _, refused := other.Watch(); refused.GetMessage() != `quota watches of "team-a": 1 of 1 used, this would take 1 more` {
		t.Errorf("the second watch: %v", refused)
	}
	end()
	if _, refused := other.Watch(); refused != nil {
		t.Error(refused)
	}
	n.set(&wire.Quota{Identity: "team-a", Connections: 3})
	if _, refused := a.Connect(port); refused != nil {
		t.Errorf("within the raised quota: %v", refused)
	}
}

// TestShare verifies that, while a policy is in force, an identity without a quota has no more places than are free, and
// that one with a quota has what that allows.
func TestShare(t *testing.T) {
	n := newNode(t, &wire.Quota{Identity: "big", Connections: 9, Watches: 9})
	here := New(n, 6)
	requests := here.Pool("max_requests", 6)
	ann, ben, big := here.Open("ann"), here.Open("ben"), here.Open("big")
	for name, c := range map[string]struct {
		enter func(*Account) (func(), *wire.Result)
		quota bool
	}{
		"max_connections": {func(a *Account) (func(), *wire.Result) { return a.Connect(requests) }, true},
		"max_watches":     {(*Account).Watch, true},
		"max_requests":    {func(a *Account) (func(), *wire.Result) { return a.Enter(requests) }, false},
	} {
		var leave []func()
		try := func(a *Account, want string) {
			t.Helper()
			free, refused := c.enter(a)
			if refused == nil {
				leave = append(leave, free)
			}
			if !strings.Contains(refused.GetMessage(), want) || (want == "") != (refused == nil) {
				t.Errorf("%s of %s: %v, want %q", name, a.identity, refused, want)
			}
		}
		try(ann, "")
		try(ann, "")
		try(ann, "")
		try(ann, `3 of 6 are taken, and 3 of them by "ann"`)
		try(ben, "")
		try(ben, "")
		try(ben, `5 of 6 are taken, and 2 of them by "ben"`)
		if c.quota {
			try(big, "")
			try(big, "") // the port and the node bound these themselves
			leave[len(leave)-1]()
			leave = leave[:len(leave)-1]
		}
		for _, free := range leave {
			free()
		}
	}
	if requests.taken != 0 || here.watches.taken != 0 || len(ann.places) != 0 {
		t.Errorf("taken: %d, %d, %v", requests.taken, here.watches.taken, ann.places)
	}
	open := New(&node{t, fsm.New(fsm.Level)}, 2)
	alone := open.Open("ann")
	for range 2 {
		if _, refused := alone.Watch(); refused != nil {
			t.Errorf("without a policy: %v", refused)
		}
	}
}

// TestRequestsPerSecond verifies the burst, the rate, what does not count, and that a connection more renews nothing.
func TestRequestsPerSecond(t *testing.T) {
	n := newNode(t, &wire.Quota{Identity: "ann", RequestsPerSecond: 3})
	here, now := New(n, 10), time.Unix(1_000, 0)
	here.now = func() time.Time { return now }
	a := here.Open("ann")
	acquire := func() *wire.Result { return a.Request(&wire.Acquire{}, nil) }
	for i := range 3 {
		if refused := acquire(); refused != nil {
			t.Fatalf("request %d: %v", i, refused)
		}
	}
	if got := acquire().GetMessage(); got != `quota requests_per_second of "ann": at most 3 per second` {
		t.Errorf("the fourth: %q", got)
	}
	a.Close()
	if a = here.Open("ann"); acquire() == nil {
		t.Error("closing a connection renews the burst")
	}
	for _, free := range []*wire.Request{
		{Body: &wire.Request_Heartbeat{}}, {Body: &wire.Request_Release{Release: &wire.Release{}}}, {Body: &wire.Request_Cancel{Cancel: &wire.Cancel{}}},
		{Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}}, {Body: &wire.Request_Acknowledge{Acknowledge: &wire.Acknowledge{}}},
		{Body: &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{}}}, {Body: &wire.Request_Downgrade{Downgrade: &wire.Downgrade{}}},
		{Body: &wire.Request_ForceRelease{ForceRelease: &wire.ForceRelease{}}}, {Body: &wire.Request_SetPolicy{SetPolicy: &wire.SetPolicy{}}}, {},
	} {
		if refused := a.RequestOf(free, nil); refused != nil {
			t.Errorf("%v: %v", free, refused)
		}
	}
	if a.RequestOf(&wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{}}}, nil) == nil {
		t.Error("a read does not count")
	}
	denied := &wire.Result{Status: wire.Status_PERMISSION_DENIED}
	for what, counted := range map[string]*wire.Request{
		"an attach":                     {Body: &wire.Request_Attach{Attach: &wire.AttachRequest{}}},
		"a denied read":                 {Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{}}},
		"a denied request of operators": {Body: &wire.Request_ForceRelease{ForceRelease: &wire.ForceRelease{}}},
	} {
		var refusal *wire.Result
		if what != "an attach" {
			refusal = denied
		}
		if got := a.RequestOf(counted, refusal); got.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("%s: %v", what, got)
		}
	}
	if got := a.Request(&wire.Release{}, denied); got != denied {
		t.Errorf("a denied release: %v", got)
	}
	if got := here.Open("ben").Request(&wire.Acquire{}, denied); got != denied {
		t.Errorf("a denied acquire without a quota: %v", got)
	}
	now = now.Add(time.Second / 3)
	if refused := acquire(); refused != nil {
		t.Errorf("after a third of a second: %v", refused)
	}
	if acquire() == nil {
		t.Error("two after a third of a second")
	}
	if here.Open("ben").Request(&wire.Acquire{}, nil) != nil {
		t.Error("an identity without a quota is refused")
	}
	n.set()
	if acquire() != nil {
		t.Error("refused by a quota that was removed")
	}
}

func TestAccountsAreForgotten(t *testing.T) {
	n := newNode(t, &wire.Quota{Identity: "ann", RequestsPerSecond: 1})
	here, now := New(n, 10), time.Unix(1_000, 0)
	here.now = func() time.Time { return now }
	a := here.Open("ann")
	a.Request(&wire.Acquire{}, nil)
	a.Close()
	here.Open("ben").Close()
	if here.Sweep(); len(here.accounts) != 1 {
		t.Errorf("%d accounts, that of ann has not recovered", len(here.accounts))
	}
	now = now.Add(time.Second)
	if here.Sweep(); len(here.accounts) != 0 {
		t.Errorf("%d accounts are left", len(here.accounts))
	}
}

// TestSlowLogStopsNobody verifies that identities can use the node while the monitor writes to a log that takes long.
func TestSlowLogStopsNobody(t *testing.T) {
	here := New(newNode(t, &wire.Quota{Identity: "ann", Connections: 1}), 10)
	if _, refused := here.Open("ann").Connect(here.Pool("max_connections", 10)); refused != nil {
		t.Fatal(refused)
	}
	looks := 0
	here.each(func(string, Use, *wire.Quota) {
		looks++
		used := make(chan Use, 1)
		go func() { used <- here.Use("ann") }()
		select {
		case use := <-used:
			if use.Connections != 1 {
				t.Errorf("ann uses %+v", use)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the node is locked")
		}
	})
	if looks != 1 {
		t.Errorf("looked at %d identities", looks)
	}
}

// viewed is a node that knows whether its state is being viewed. It is the output of a log that may not wait for that.
type viewed struct {
	*node
	viewing, logged bool
}

func (v *viewed) View(f func(*fsm.Machine)) {
	v.viewing = true
	f(v.m)
	v.viewing = false
}

func (v *viewed) Write(line []byte) (int, error) {
	if v.logged = true; v.viewing {
		v.t.Errorf("the state waits while this is logged: %s", line)
	}
	return len(line), nil
}

// TestSlowLogDoesNotStopTheState verifies that the monitor does not log while it views the state.
func TestSlowLogDoesNotStopTheState(t *testing.T) {
	for what, q := range map[string]*wire.Quota{"an identity": {Identity: "ann", Sessions: 1}, "a prefix": {Prefix: "/", Claims: 1}} {
		v := &viewed{node: newNode(t, q)}
		v.open("ann", 1)
		v.apply(&wire.Command{SessionId: 1, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}}}})
		m, err := NewMonitor(New(v, 10), v, hclog.New(&hclog.LoggerOptions{Output: v}), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if m.Look(); !v.logged {
			t.Errorf("of %s, nothing is logged", what)
		}
	}
}

// TestNothingIsBoundedWithoutANode verifies the accounts of a nil Node.
func TestNothingIsBoundedWithoutANode(t *testing.T) {
	var here *Node
	a := here.Open("ann")
	leave, refused := a.Connect(here.Pool("max_connections", 1))
	end, also := a.Watch()
	if leave(); refused != nil || also != nil || a.Request(&wire.Acquire{}, nil) != nil || a.RequestOf(&wire.Request{}, nil) != nil || here.Use("ann") != (Use{}) {
		t.Error("a nil account refuses")
	}
	end()
	free, none := a.Enter(here.Pool("max_requests", 1))
	if free(); none != nil {
		t.Error("a nil account has a share")
	}
	a.Close()
}

// TestMonitor verifies the metrics, and that each quota is warned of once until it has fallen below 80 %.
func TestMonitor(t *testing.T) {
	n := newNode(t, &wire.Quota{Identity: "ann", Sessions: 5, Connections: 1}, &wire.Quota{Identity: "ben", Sessions: 1}, &wire.Quota{Prefix: "/", Claims: 1})
	here, log, registry := New(n, 10), &bytes.Buffer{}, prometheus.NewRegistry()
	m, err := NewMonitor(here, n, hclog.New(&hclog.LoggerOptions{Output: log}), registry)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n.open("ann", i)
	}
	if m.Look(); log.Len() > 0 {
		t.Errorf("below 80 %%: %s", log)
	}
	n.open("ann", 3)
	n.open("ben", 0)
	_, _ = here.Open("ann").Connect(here.Pool("max_connections", 2))
	for range 3 {
		m.Look()
	}
	for _, want := range []string{`quota=sessions of=ann used=4 limit=5 percent=80`, `quota=sessions of=ben used=1 limit=1 percent=100`, `quota=connections of=ann used=1 limit=1 percent=100`} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not contain %q once:\n%s", want, log)
		}
	}
	count := func(name, kind string) float64 {
		families, _ := registry.Gather()
		for _, f := range families {
			for _, metric := range f.Metric {
				if f.GetName() == name && metric.Label[0].GetValue() == kind {
					return metric.Gauge.GetValue()
				}
			}
		}
		return -1
	}
	for _, c := range []struct {
		name, kind string
		want       float64
	}{
		{"quorumlock_quota_identities_near", "sessions", 2}, {"quorumlock_quota_identities_full", "sessions", 1},
		{"quorumlock_quota_identities_near", "connections", 1}, {"quorumlock_quota_identities_full", "connections", 1},
		{"quorumlock_quota_identities_near", "claims", 0}, {"quorumlock_quota_identities_near", "prefix_claims", 0},
	} {
		if got := count(c.name, c.kind); got != c.want {
			t.Errorf("%s of %s is %v, want %v", c.name, c.kind, got, c.want)
		}
	}
	n.set()
	if m.Look(); count("quorumlock_quota_identities_near", "sessions") != 0 {
		t.Error("counts quotas that were removed")
	}
}

// TestKeysGivenUpDoNotCount verifies that the rate bounds what acquires, extends and reads keys, and not what gives them
// up.
func TestKeysGivenUpDoNotCount(t *testing.T) {
	n := newNode(t, &wire.Quota{Identity: "ann", RequestsPerSecond: 1})
	here, now := New(n, 10), time.Unix(1_000, 0)
	here.now = func() time.Time { return now }
	a := here.Open("ann")
	a.Request(&wire.ReadKeys{}, nil)
	denied := &wire.Result{Status: wire.Status_PERMISSION_DENIED}
	for action, name := range wire.ChangeKeys_Action_name {
		op := &wire.ChangeKeys{Action: wire.ChangeKeys_Action(action)}
		givesUp := name == "RELEASE" || name == "RELEASE_ALL" || name == "DELETE"
		if refused := a.Request(op, nil); givesUp != (refused == nil) {
			t.Errorf("%s: %v", name, refused)
		}
		if refused := a.Request(op, denied); refused.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("%s that is denied: %v", name, refused)
		}
	}
}

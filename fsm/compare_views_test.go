package fsm

import (
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// compareViews compares what callers with different rights read of contended locks and of sessions. Each session is read
// by one caller, another one at the next revision, because the comparison takes most of the time of TestModel.
func compareViews(t tester, m *Machine, d *model.Model) {
	t.Helper()
	everything := func(string) bool { return true }
	compareContended(t, m, d, nil, everything)
	g, some := everySecond(t, d)
	compareContended(t, m, d, g, some)
	for i, s := range d.Live {
		switch (d.Revision + uint64(i)) % 3 {
		case 0:
			compareSession(t, m, d.SessionView(s.ID, "", true, everything), s.ID, nil, "")
		case 1:
			compareSession(t, m, d.SessionView(s.ID, "", false, some), s.ID, g, "")
		case 2:
			own := d.Live[(i+1)%len(d.Live)].Identity
			compareSession(t, m, d.SessionView(s.ID, own, false, some), s.ID, g, own)
		}
	}
}

// everySecond returns grants to read every second lock by name.
func everySecond(t tester, d *model.Model) (*rights.Grants, func(lock string) bool) {
	t.Helper()
	var names []string
	for name := range d.Locks {
		names = append(names, name)
	}
	slices.Sort(names)
	role := &wire.Role{Name: "half", Locks: []*wire.LockRule{{Name: "unused", Verbs: []wire.Verb{wire.Verb_READ}}}}
	readable := map[string]bool{}
	for i := int(d.Revision % 2); i < len(names); i += 2 {
		readable[names[i]] = true
		role.Locks = append(role.Locks, &wire.LockRule{Name: names[i], Verbs: []wire.Verb{wire.Verb_READ}})
	}
	policy, err := rights.Compile(&wire.Policy{Roles: []*wire.Role{role}, Bindings: []*wire.Binding{{Identity: "half", Roles: []string{"half"}}}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return policy.Grants("half"), func(lock string) bool { return readable[lock] }
}

func compareContended(t tester, m *Machine, d *model.Model, g *rights.Grants, mayRead func(lock string) bool) {
	t.Helper()
	for i, order := range []wire.ListContendedRequest_Order{wire.ListContendedRequest_QUEUE_LENGTH, wire.ListContendedRequest_OLDEST_WAIT} {
		want := d.Contended("", order, mayRead)
		prefix := ""
		if (d.Revision+uint64(i))%2 == 0 && len(want) > 0 {
			prefix = want[0].Name[:1]
			want = slices.DeleteFunc(want, func(l *wire.ContendedLock) bool { return !strings.HasPrefix(l.Name, prefix) })
		}
		for _, limit := range []int{1, 2, 1_000} {
			got := m.ListContended(&wire.ListContendedRequest{Prefix: prefix, Order: order, Limit: uint32(limit)}, g)
			if first := want[:min(limit, len(want))]; !equal(got.Locks, first) || got.Contended != uint64(len(want)) || got.Revision != d.Revision {
				t.Fatalf("contended %v below %q, limit %d: %v\nthe model %d: %v", order, prefix, limit, got, len(want), first)
			}
		}
	}
}

func compareSession(t tester, m *Machine, want *wire.GetSessionResponse, id uint64, g *rights.Grants, identity string) {
	t.Helper()
	got, ok := m.GetSession(id, 1_000, g, identity)
	if ok != (want != nil) || ok && !same(got, want) {
		t.Fatalf("session   %d as %q sees it: %v\nthe model %v", id, identity, got, want)
	}
	if want == nil {
		return
	}
	first, _ := m.GetSession(id, 1, g, identity)
	if !equal(first.Holds, want.Holds[:min(1, len(want.Holds))]) || !equal(first.Waits, want.Waits[:min(1, len(want.Waits))]) || !same(first.Session, want.Session) {
		t.Fatalf("session   %d, its first claims: %v\nthe model %v", id, first, want)
	}
}

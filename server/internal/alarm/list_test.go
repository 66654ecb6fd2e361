package alarm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// store stores the record of a list.
type store struct {
	record []byte
	err    error
}

func (s *store) keep(record []byte) error {
	if s.err == nil {
		s.record = record
	}
	return s.err
}

// loaded returns the list as loaded at a start.
func (s *store) loaded(t *testing.T) *List {
	t.Helper()
	l := &List{}
	if err := l.Load(s.record, s.keep); err != nil {
		t.Fatal(err)
	}
	return l
}

func about(node string, revision uint64) *wire.Alarm {
	return &wire.Alarm{NodeId: node, Message: "another course", Revision: revision}
}

// wantNodes checks the alarms, in memory and on the disk.
func (s *store) wantNodes(t *testing.T, l *List, want string) {
	t.Helper()
	for where, list := range map[string]*List{"in memory": l, "on the disk": s.loaded(t)} {
		var got []string
		for _, a := range list.All() {
			got = append(got, fmt.Sprintf("%s@%d", a.NodeId, a.Revision))
		}
		if strings.Join(got, " ") != want || list.Len() != len(got) {
			t.Errorf("%s: %q, want %q", where, got, want)
		}
	}
}

// TestAlarmsRemainUntilAcknowledged raises alarms before, at and after an acknowledgement.
func TestAlarmsRemainUntilAcknowledged(t *testing.T) {
	s := &store{}
	l := s.loaded(t)
	raise := func(node string, revision, acknowledged uint64, want bool) {
		t.Helper()
		raised, err := l.Raise(about(node, revision), acknowledged)
		if raised != want || err != nil {
			t.Errorf("%s at revision %d: raised %v, %v", node, revision, raised, err)
		}
	}
	acknowledge := func(revision uint64, want int) {
		t.Helper()
		if ended, err := l.Acknowledge(revision); ended != want || err != nil {
			t.Errorf("an acknowledgement at revision %d ended %d alarms, %v", revision, ended, err)
		}
	}
	raise("n3", 10, 0, true)
	raise("n3", 12, 0, false) // the first one stands
	raise("n4", 20, 0, true)
	s.wantNodes(t, l, "n3@10 n4@20")
	acknowledge(0, 0)
	acknowledge(10, 0) // the alarm was raised in a state that included this acknowledgement
	acknowledge(20, 1)
	s.wantNodes(t, l, "n4@20")
	acknowledge(21, 1)
	s.wantNodes(t, l, "")
	raise("n3", 21, 21, true)
	acknowledge(21, 0)
	s.wantNodes(t, l, "n3@21")
	raise("n3", 40, 30, true) // the acknowledgement was applied but not yet seen by the list
	s.wantNodes(t, l, "n3@40")
}

// TestAlarmsAreBounded verifies that the newest alarms are kept.
func TestAlarmsAreBounded(t *testing.T) {
	s := &store{}
	l := s.loaded(t)
	for i := range uint64(maxAlarms + 3) {
		if raised, err := l.Raise(about(fmt.Sprint("n", i), i), 0); !raised || err != nil {
			t.Errorf("alarm %d: %v, %v", i, raised, err)
		}
	}
	if all := l.All(); len(all) != maxAlarms || all[0].NodeId != "n3" || s.loaded(t).Len() != maxAlarms {
		t.Errorf("%d alarms from %v, %d on the disk", len(all), all[0], s.loaded(t).Len())
	}
}

// TestAlarmThatIsNotKept verifies that an alarm that could not be persisted stands until the node ends.
func TestAlarmThatIsNotKept(t *testing.T) {
	s := &store{err: errors.New("disk on fire")}
	l := s.loaded(t)
	if raised, err := l.Raise(about("n3", 1), 0); !raised || !errors.Is(err, s.err) || l.Len() != 1 {
		t.Errorf("raised %v, %v, %d stand", raised, err, l.Len())
	}
	if ended, err := l.Acknowledge(2); ended != 1 || !errors.Is(err, s.err) || l.Len() != 0 {
		t.Errorf("ended %d, %v, %d stand", ended, err, l.Len())
	}
	if err := (&List{}).Load([]byte("\xff"), s.keep); err == nil {
		t.Error("a record that cannot be read was accepted")
	}
}

// TestAlarmsAreCopied modifies alarms returned by the list.
func TestAlarmsAreCopied(t *testing.T) {
	s := &store{}
	l := s.loaded(t)
	given := about("n3", 1)
	if _, err := l.Raise(given, 0); err != nil {
		t.Fatal(err)
	}
	given.NodeId, l.All()[0].NodeId = "x", "y"
	s.wantNodes(t, l, "n3@1")
}

// TestAlarmThatCannotBeKept raises an alarm that cannot be encoded: it stands, and the caller learns that it
// will not survive a restart.
func TestAlarmThatCannotBeKept(t *testing.T) {
	s := &store{}
	l := s.loaded(t)
	if raised, err := l.Raise(about("\xff", 1), 0); !raised || err == nil || l.Len() != 1 {
		t.Errorf("raised %v, %v; %d alarms", raised, err, l.Len())
	}
}

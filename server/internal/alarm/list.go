package alarm

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxAlarms bounds the standing alarms; the oldest is dropped first. There is one per node.
const maxAlarms = 16

// List holds the standing alarms of a node. All methods are safe for concurrent use. Methods that change the
// list return after the change was persisted; the others do not wait for the disk.
type List struct {
	changing sync.Mutex // held while a change is persisted; taken before mu
	keep     func(record []byte) error

	mu     sync.Mutex // guards alarms
	alarms []*wire.Alarm
}

// Load replaces the alarms with those of record, which may be empty. From then on changes are persisted with
// keep.
func (l *List) Load(record []byte, keep func(record []byte) error) error {
	var kept wire.AlarmRecord
	if err := proto.Unmarshal(record, &kept); err != nil {
		return fmt.Errorf("read the alarms: %w", err)
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	l.keep = keep
	l.replace(kept.GetAlarms())
	return nil
}

// All returns copies of the standing alarms, oldest first.
func (l *List) All() []*wire.Alarm {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*wire.Alarm, 0, len(l.alarms))
	for _, a := range l.alarms {
		all = append(all, proto.CloneOf(a))
	}
	return all
}

// Len returns the number of standing alarms.
func (l *List) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.alarms)
}

// Raise adds an alarm, unless there is one about the same node. Alarms that are older than the acknowledgement
// at revision acknowledged are dropped. Raise reports whether it added the alarm. If it
// returns an error, the alarm was added but not persisted.
func (l *List) Raise(alarm *wire.Alarm, acknowledged uint64) (raised bool, err error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	left := l.standing(acknowledged)
	if slices.ContainsFunc(left, func(a *wire.Alarm) bool { return a.GetNodeId() == alarm.GetNodeId() }) {
		return false, nil
	}
	left = append(left, proto.CloneOf(alarm))
	return true, l.change(left[max(0, len(left)-maxAlarms):])
}

// Acknowledge ends the alarms that were raised in states before the revision, and returns their number.
func (l *List) Acknowledge(revision uint64) (ended int, err error) {
	l.changing.Lock()
	defer l.changing.Unlock()
	before, left := l.Len(), l.standing(revision)
	if len(left) == before {
		return 0, nil
	}
	return before - len(left), l.change(left)
}

// standing returns the alarms that are not older than the acknowledgement.
func (l *List) standing(acknowledged uint64) (left []*wire.Alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.alarms {
		if a.GetRevision() >= acknowledged {
			left = append(left, a)
		}
	}
	return left
}

func (l *List) change(alarms []*wire.Alarm) error {
	l.replace(alarms)
	record, err := proto.Marshal(&wire.AlarmRecord{Alarms: alarms})
	if err != nil {
		return err
	}
	return l.keep(record)
}

func (l *List) replace(alarms []*wire.Alarm) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarms = alarms
}

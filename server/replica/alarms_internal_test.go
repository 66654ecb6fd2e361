package replica

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// logged is a log that a test can read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// alarms returns the number of alarms that were logged together with their advice.
func (l *logged) alarms() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(strings.Count(l.text.String(), "[ERROR] ALARM: message="), strings.Count(l.text.String(), "qlock cluster acknowledge --reason TEXT"))
}

// alarming is a node whose alarms a test observes through the API, the status, the metric and the log.
type alarming struct {
	*Replica
	t        *testing.T
	log      *logged
	registry *prometheus.Registry
}

func openAlarming(t *testing.T, stores storage.Backend) *alarming {
	t.Helper()
	a := &alarming{t: t, log: &logged{}, registry: prometheus.NewRegistry()}
	cfg := lone(t, stores, func(err error) { t.Error(err) })
	cfg.Logger, cfg.Registry = hclog.New(&hclog.LoggerOptions{Output: a.log}), a.registry
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.Replica = r
	awaitRaft(t, "the node serves", r.Serving)
	return a
}

// want fails the test unless that many alarms are active, according to the API, the status and the metric.
func (a *alarming) want(when string, alarms int) {
	a.t.Helper()
	status, err := a.Status(a.t.Context(), &wire.StatusRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	if shown := status.GetNodes()[0].GetAlarms(); len(shown) != alarms || len(a.Alarms()) != alarms {
		a.t.Errorf("%s: the status shows %v, %v stand, want %d", when, shown, a.Alarms(), alarms)
	}
	if shown, ok := scrape.Values(a.t, a.registry)["alarms"]; !ok || shown != float64(alarms) {
		a.t.Errorf("%s: the metric shows %v, want %d", when, shown, alarms)
	}
}

func (a *alarming) acknowledge() {
	a.t.Helper()
	answer, err := a.AcknowledgeAlarms(a.t.Context(), &wire.AcknowledgeAlarmsRequest{Operator: "ann", Reason: "seen"})
	if err != nil || answer.GetRevision() != a.alarmsAcknowledged() {
		a.t.Fatalf("acknowledged: %v, %v", answer, err)
	}
}

func (a *alarming) close() {
	a.t.Helper()
	if err := a.Close(a.t.Context()); err != nil {
		a.t.Error(err)
	}
}

// TestAlarmsAreRepeatedUntilTheyAreAcknowledged follows alarms through a restart, two acknowledgements and
// their return.
func TestAlarmsAreRepeatedUntilTheyAreAcknowledged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stores := inMemory()
		n := openAlarming(t, stores)
		n.want("at first", 0)
		n.acknowledge() // ends nothing now, and nothing that is raised later
		n.alarms.Forked("n2", "it differs")
		n.alarms.Forked("n2", "it still differs")
		n.alarms.Forked("n3", "it differs")
		n.want("raised", 2)
		time.Sleep(5*time.Minute + 30*time.Second)
		n.want("minutes later", 2)
		if got := n.log.alarms(); got != 2+2*5 {
			t.Errorf("two alarms were logged %d times in five minutes", got)
		}
		n.close()

		n = openAlarming(t, stores)
		n.want("restarted", 2)
		if got := n.log.alarms(); got != 2 {
			t.Errorf("two alarms were logged %d times at the restart", got)
		}
		n.acknowledge()
		awaitRaft(t, "the alarms end", func() bool { return len(n.Alarms()) == 0 })
		n.want("acknowledged", 0)
		n.alarms.Forked("n2", "it differs again")
		time.Sleep(2 * time.Second)
		n.want("raised again", 1)
		n.close()

		n = openAlarming(t, stores)
		time.Sleep(2 * time.Second)
		n.want("raised again and restarted", 1)
		n.acknowledge()
		awaitRaft(t, "the alarm ends", func() bool { return len(n.Alarms()) == 0 })
		n.close()

		n = openAlarming(t, stores)
		n.want("acknowledged and restarted", 0)
		n.close()
	})
}

// TestAlarmsThatAreNotKept verifies that a failure to store alarms, or their end, is logged unless the node
// is stopping.
func TestAlarmsThatAreNotKept(t *testing.T) {
	const raised, ended, acknowledged = "cannot store an alarm", "cannot store the end of alarms", "alarms were acknowledged"
	for name, c := range map[string]struct {
		alarms   int
		fails    bool
		stopping bool
		revision uint64 // at which the alarms were raised
		says     []string
	}{
		"no alarms":                  {says: nil},
		"kept":                       {alarms: 1, says: []string{acknowledged}},
		"not kept":                   {alarms: 1, fails: true, says: []string{raised, ended, acknowledged}},
		"not kept by one that stops": {alarms: 1, fails: true, stopping: true, says: []string{raised, acknowledged}},
		"newer than what is known":   {alarms: 1, revision: 1 << 40},
	} {
		log, store := &logged{}, &refusing{InmemStore: raft.NewInmemStore()}
		r := started(t)
		r.log, r.stores = hclog.New(&hclog.LoggerOptions{Output: log}), &storage.Stores{Log: store, Values: store, Snapshots: raft.NewInmemSnapshotStore()}
		r.catchUp, r.alarms = catchup.New(), r.newAlarms()
		if err := r.openPeers(); err != nil {
			t.Fatal(err)
		}
		act := &wire.RecordAct{Action: wire.AuditRecord_ACKNOWLEDGE_ALARMS, Reason: "seen", Operator: "ann"}
		entry, err := proto.Marshal(&wire.Entry{Level: fsm.Level, Commands: []*wire.Command{{Op: &wire.Command_RecordAct{RecordAct: act}}}})
		if err == nil {
			err = r.alarms.Load(r.stores.Values)
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.fails {
			store.key = alarmsKey
		}
		ctx, cancel := context.WithCancel(t.Context())
		if r.ctx = ctx; c.stopping {
			cancel()
		}
		switch {
		case c.revision > 0:
			_, err = r.alarms.Raise(&wire.Alarm{NodeId: "n2", Revision: c.revision}, 0)
		case c.alarms > 0:
			r.alarms.Forked("n2", "it differs")
		}
		if err != nil {
			t.Fatal(err)
		}
		r.machine.Apply(&raft.Log{Index: 2, Data: entry})
		if r.alarmsAcknowledged() == 0 {
			t.Fatal("nothing was acknowledged")
		}
		r.alarms.End(r.ctx)
		cancel()
		var said []string
		for _, text := range []string{raised, ended, acknowledged} {
			if strings.Contains(log.text.String(), text) {
				said = append(said, text)
			}
		}
		if !slices.Equal(said, c.says) {
			t.Errorf("%s: logged %q", name, log.text.String())
		}
	}
}

// TestAlarmsThatCannotBeRead verifies that unreadable alarms are an error when a node starts.
func TestAlarmsThatCannotBeRead(t *testing.T) {
	store := &refusing{InmemStore: raft.NewInmemStore(), read: alarmsKey}
	r := &Replica{stores: &storage.Stores{Values: store}}
	r.alarms = r.newAlarms()
	if err := r.alarms.Load(r.stores.Values); !errors.Is(err, errDisk) {
		t.Errorf("not read: %v", err)
	}
	store.read = ""
	if err := store.Set([]byte(alarmsKey), []byte("\xff")); err != nil {
		t.Fatal(err)
	}
	if err := r.alarms.Load(r.stores.Values); err == nil {
		t.Error("loaded what is no record")
	}
}

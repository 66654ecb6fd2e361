package replica

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// alarms are how many alarms were logged, with what to do.
func (l *logged) alarms() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(strings.Count(l.text.String(), "[ERROR] ALARM: "), strings.Count(l.text.String(), "qlock cluster acknowledge --reason TEXT"))
}

// alarming is a node whose alarms a test looks at from all sides.
type alarming struct {
	*Replica
	t        *testing.T
	log      *logged
	registry *prometheus.Registry
}

func openAlarming(t *testing.T, stores Stores) *alarming {
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

// want fails unless so many alarms stand, in the status and in the metric.
func (a *alarming) want(when string, alarms int) {
	a.t.Helper()
	status, err := a.Status(a.t.Context(), &wire.StatusRequest{})
	if err != nil {
		a.t.Fatal(err)
	}
	if shown := status.GetNodes()[0].GetAlarms(); len(shown) != alarms || len(a.Alarms()) != alarms {
		a.t.Errorf("%s: the status shows %v, %v stand, want %d", when, shown, a.Alarms(), alarms)
	}
	families, err := a.registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	shown := -1.0
	for _, f := range families {
		if f.GetName() == "quorumlock_alarms" {
			shown = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if shown != float64(alarms) {
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
// their coming back.
func TestAlarmsAreRepeatedUntilTheyAreAcknowledged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		stores := inMemory()
		n := openAlarming(t, stores)
		n.want("at first", 0)
		n.acknowledge() // nothing to end, and nothing of what comes
		n.alarmAbout("n2", "it differs")
		n.alarmAbout("n2", "it still differs")
		n.alarmAbout("n3", "it differs")
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
		n.alarmAbout("n2", "it differs again")
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

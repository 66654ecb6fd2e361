package alarm

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// alarmsKey is the key of this node's alarms in the stable store.
var alarmsKey = []byte("quorumlock.alarms")

// logInterval is how often active alarms are logged.
const logInterval = time.Minute

// forkedAdvice is what to do when the logs of two nodes have forked.
const forkedAdvice = "a disk was rolled back, and locks may have been granted twice, under different tokens: " +
	"find out what the holders of the smaller tokens did, replace the nodes that stopped, then run: qlock cluster acknowledge --reason TEXT"

// Alarms raises, logs and ends the alarms of a node. All fields are required. It is safe for concurrent use after Load.
type Alarms struct {
	List
	// Revision returns the revision of this node's state.
	Revision func() uint64
	// Acknowledged returns the revision of the last acknowledgement in this node's state.
	Acknowledged func() uint64
	Logger       hclog.Logger
}

// Load loads the alarms that were active when the node last stopped. Later changes are stored in values.
func (a *Alarms) Load(values raft.StableStore) error {
	record, err := storage.Get(values, alarmsKey)
	if err != nil {
		return err
	}
	return a.List.Load(record, func(record []byte) error { return values.Set(alarmsKey, record) })
}

// Forked raises an alarm about a node whose log has forked from this one's, unless there is one already.
func (a *Alarms) Forked(id, difference string) {
	alarm := &wire.Alarm{
		NodeId:       id,
		Message:      fmt.Sprintf("the log of node %q has forked from this node's: %s", id, difference),
		Advice:       forkedAdvice,
		Revision:     a.Revision(),
		RaisedUnixMs: time.Now().UnixMilli(),
	}
	raised, err := a.Raise(alarm, a.Acknowledged())
	if err != nil {
		a.Logger.Error("cannot store an alarm", "error", err)
	}
	if raised {
		a.log(alarm)
	}
}

func (a *Alarms) log(one *wire.Alarm) {
	a.Logger.Error("ALARM", "message", one.GetMessage(), "node", one.GetNodeId(), "revision", one.GetRevision(),
		"since", time.UnixMilli(one.GetRaisedUnixMs()).UTC().Format(time.RFC3339), "advice", one.GetAdvice())
}

// Run logs the active alarms, including those from before the start, immediately and then
// periodically until ctx ends.
func (a *Alarms) Run(ctx context.Context) {
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	for {
		for _, one := range a.All() {
			a.log(one)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// End ends the alarms that an operator has acknowledged.
func (a *Alarms) End(ctx context.Context) {
	if a.Len() == 0 {
		return
	}
	revision := a.Acknowledged()
	ended, err := a.Acknowledge(revision)
	if err != nil && ctx.Err() == nil {
		a.Logger.Error("cannot store the end of alarms", "error", err)
	}
	if ended > 0 {
		a.Logger.Info("alarms were acknowledged", "alarms", ended, "revision", revision)
	}
}

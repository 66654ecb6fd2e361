package judge

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Counts says how much a run did. A run that did too little proves nothing.
type Counts struct {
	// Operations are requests that clients sent, including retries; Unknown are those with an unknown
	// outcome.
	Operations, Unknown int
	// Entries and Commands are those in the log; Repeated are commands that the log already contained.
	Entries, Commands, Repeated int
	// Grants are all grants, Contended those after a wait.
	Grants, Contended int
	// Expiries are expired sessions, Leaders changes of the leader after the first one.
	Expiries, Leaders int
	// Reads are linearizable reads compared with the model, Holds those that applications saw.
	Reads, Holds int
	// Local are grants that sessions made themselves under a cached hold, Recalls the cached holds that others waited for.
	Local, Recalls int
	// KeyRequests are requests of Redis clients that were compared with the log, KeyHolds the holds of such clients.
	// KeyWaits are grants to them after a wait, KeyExpiries their holds that expired, KeyRetries requests that a node
	// repeated.
	KeyRequests, KeyHolds, KeyWaits, KeyExpiries, KeyRetries int
	// Windows are the pieces of the history checked by porcupine.
	Windows int
}

// Add adds the counts of another run.
func (c *Counts) Add(o Counts) {
	sum, other := reflect.ValueOf(c).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + other.Field(i).Int())
	}
}

// Enough returns an error that names every count smaller than that in least.
func (c Counts) Enough(least Counts) error {
	did, want := reflect.ValueOf(c), reflect.ValueOf(least)
	var errs []error
	for i := range did.NumField() {
		if did.Field(i).Int() < want.Field(i).Int() {
			errs = append(errs, fmt.Errorf("%s: %d, at least %d are needed", did.Type().Field(i).Name, did.Field(i).Int(), want.Field(i).Int()))
		}
	}
	return errors.Join(errs...)
}

// String formats all counts on one line.
func (c Counts) String() string {
	return fmt.Sprintf("%d operations (%d of unknown outcome), %d grants (%d contended), %d sessions expired, %d leader changes, %d log entries with %d commands (%d repeated), %d reads and %d holds compared, %d windows; %d local grants (%d cached holds recalled); of Redis clients: %d requests compared, %d holds (%d after a wait, %d expired), %d requests repeated",
		c.Operations, c.Unknown, c.Grants, c.Contended, c.Expiries, c.Leaders, c.Entries, c.Commands, c.Repeated, c.Reads, c.Holds, c.Windows, c.Local, c.Recalls,
		c.KeyRequests, c.KeyHolds, c.KeyWaits, c.KeyExpiries, c.KeyRetries)
}

func (r *replay) counts() Counts {
	c := Counts{Entries: len(r.entries), Commands: len(r.steps), Repeated: r.repeated, Holds: len(r.in.History.Holds()), Windows: r.windows}
	for _, op := range r.in.History.Ops() {
		c.Operations++
		if op.Outcome == history.Unknown {
			c.Unknown++
		}
	}
	r.countKeys(&c)
	for _, u := range r.caches() {
		c.Local += len(u.local)
		if u.recalled != history.Never {
			c.Recalls++
		}
	}
	leaders := 0
	for _, s := range r.steps {
		if s.cmd.GetBeginTerm() != nil && s.said.Status == wire.Status_OK {
			leaders++
		}
		for _, e := range s.events {
			switch {
			case e.Type == wire.Event_SESSION_EXPIRED && !e.Leased:
				c.Expiries++
			case e.Type == wire.Event_GRANTED && e.Waited:
				c.Contended++
				c.Grants++
			case e.Type == wire.Event_GRANTED:
				c.Grants++
			}
		}
	}
	c.Leaders = max(0, leaders-1)
	for revision, ops := range r.reads {
		if r.entries[revision] {
			c.Reads += len(ops)
		}
	}
	return c
}

func (r *replay) countKeys(c *Counts) {
	for _, p := range r.matchKeys().pairs {
		if p.request.Outcome == history.OK {
			c.KeyRequests++
		}
	}
	for _, h := range r.in.History.Holds() {
		if h.Value != "" {
			c.KeyHolds++
		}
	}
	seen := map[nodeRequest]bool{}
	for _, s := range r.steps {
		if s.cmd.GetChangeKeys() != nil && seen[s.request] {
			c.KeyRetries++
		}
		seen[s.request] = true
		for _, e := range s.events {
			switch {
			case r.owners[e.SessionId].value == "":
			case e.Type == wire.Event_GRANTED && e.Waited:
				c.KeyWaits++
			case e.Type == wire.Event_EXPIRED:
				c.KeyExpiries++
			}
		}
	}
}

package model

import (
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Weights, as documented.
const (
	fixedWeight      = 4 << 20
	sessionWeight    = 2048
	labelWeight      = 128
	claimWeight      = 320
	nameWeight       = 320
	extraWeight      = 384
	upgradeWeight    = 704
	revocationWeight = 1280
	outcomeWeight    = 160
	refusalWeight    = 64
	stepWeight       = 128
	// endedWeight is the weight of the answer to an upgrade whose hold has ended.
	endedWeight = 448
	// roomToShrink is kept free in a session for requests that make it smaller, roomForOperators in the state
	// for operators.
	roomToShrink     = 32 * outcomeWeight
	roomForOperators = 256 << 10
	// mostWords is more than the weight of any refusal.
	mostWords = 128 << 10
)

func textWeight(n int) int {
	if n == 0 {
		return 0
	}
	return n + n/4 + 16
}

// Weight returns what the whole state takes of its budget.
func (d *Model) Weight() int {
	sum := fixedWeight
	for _, s := range d.Live {
		sum += d.WeightOf(s)
	}
	for _, c := range d.Claims {
		if c.Over {
			sum += c.weight()
		}
		if c.Revoked != nil {
			sum += revocationWeight
		}
	}
	return sum
}

// WeightOf returns what a session takes of its budget.
func (d *Model) WeightOf(s *Session) int {
	sum := sessionWeight + textWeight(len(s.Identity)) + textWeight(len(s.Value))
	for _, text := range []string{s.Client.GetName(), s.Client.GetHostName(), s.Client.GetBootId()} {
		sum += textWeight(len(text))
	}
	for _, l := range s.Client.GetLabels() {
		sum += labelWeight + textWeight(len(l.Key)) + textWeight(len(l.Value))
	}
	for _, c := range d.Of(s.ID) {
		sum += c.weight()
	}
	for _, a := range s.shown {
		sum += outcomeWeight + a.words
	}
	return sum
}

func (c *Claim) weight() int {
	sum := claimWeight
	for _, l := range c.Locks {
		sum += nameWeight + textWeight(len(l.Name))
	}
	if c.Is(wire.Mode_EXCLUSIVE) {
		sum += outcomeWeight
	}
	if c.special() {
		sum += extraWeight + textWeight(len(c.Value))
	}
	if c.Count > 1 {
		sum += int(c.Count-1) * outcomeWeight
	}
	if c.Upgrade != nil {
		sum += upgradeWeight
	}
	return sum
}

// special reports whether a claim has more than its owner, lock and mode.
func (c *Claim) special() bool {
	return len(c.Locks) > 1 || len(c.Value) > 0 || c.MaxHold > 0 || c.Delay > 0 || c.notify || c.tolerant || c.Cached() ||
		c.Count > 1 || c.Upgrade != nil || c.WaitGeneration > 1
}

// affords reports whether a session may grow by more bytes while left bytes of its budget remain free.
func (d *Model) affords(s *Session, more, left int) bool {
	if left == roomToShrink && !d.roomForBytes(s.Identity, more) {
		return false // quotas never refuse what makes a session smaller
	}
	return d.WeightOf(s)+more+left <= int(d.Limits.MaxSessionBytes) && d.Weight()+more+roomForOperators <= int(d.Limits.MaxStateBytes)
}

// affordsValue reports the same for another value. A change that makes a hold lighter needs no room.
func (d *Model) affordsValue(s *Session, c *Claim, value []byte) bool {
	more := textWeight(len(value)) - textWeight(len(c.Value)) + outcomeWeight
	if !c.special() {
		more += extraWeight
	}
	left := roomToShrink
	if len(value) < len(c.Value) {
		left = 0
	}
	return more <= 0 || !d.full && d.affords(s, more, left)
}

// exhausted refuses a request for lack of room. The refusal is not remembered.
func (d *Model) exhausted() *wire.Result {
	d.refusing = true
	return says(wire.Status_RESOURCE_EXHAUSTED)
}

// givesUp reports whether a request is never refused for lack of room.
func givesUp(cmd *wire.Command) bool {
	return cmd.GetRelease() != nil || cmd.GetCancel() != nil || cmd.GetDowngrade() != nil || cmd.GetSetValue() != nil
}

// words returns the weight of the service's answer besides its status. If the service refused for lack of
// room, the message that had no room is unknown.
func (d *Model) words(answer *wire.Result) int {
	said := d.Heard
	switch {
	case said == nil:
		return 0
	case said.Status == wire.Status_RESOURCE_EXHAUSTED && (strings.Contains(said.Message, "_bytes: the ") || strings.HasPrefix(said.Message, "quota bytes of ")):
		return mostWords
	case answer.Status == wire.Status_NOT_HELD && said.Message != "":
		return endedWeight
	case said.Message == "" && len(said.Cycle) == 0:
		return 0
	}
	sum := refusalWeight + textWeight(len(said.Message))
	for _, step := range said.Cycle {
		sum += stepWeight + textWeight(len(step.ClientName)) + textWeight(len(step.Lock))
	}
	return sum
}

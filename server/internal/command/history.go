package command

import (
	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Contains reports whether the history of the applied state contains a position.
func (p *Processor) Contains(at *wire.Position) (contained bool) {
	p.cfg.Machine.View(func(m *fsm.Machine) { contained = m.Contains(at) })
	return contained
}

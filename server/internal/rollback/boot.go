package rollback

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxNonces bounds the number of starts whose nonces a node remembers.
const maxNonces = 64

// Boot is one start of a node.
type Boot struct {
	// Stored is the state that the disk held at this start.
	Stored *wire.StoredState
	record *wire.BootRecord
}

// NewBoot returns the start that follows the one recorded in last. The caller provides a random nonce, and
// term, vote and index in stored.
func NewBoot(last *wire.BootRecord, nonce uint64, stored *wire.StoredState) *Boot {
	nonces := append(slices.Clone(last.GetNonces()), nonce)
	record := &wire.BootRecord{Boot: last.GetBoot() + 1, Nonces: nonces[max(0, len(nonces)-maxNonces):]}
	stored.Boot, stored.Nonce = record.Boot, nonce
	return &Boot{Stored: stored, record: record}
}

// Record returns the record that must be on disk before other nodes learn of this start.
func (b *Boot) Record() *wire.BootRecord { return b.record }

// Check compares what another node remembers of this one with what the disk held. It describes what the disk
// lacks, or returns "" if it lacks nothing.
func (b *Boot) Check(known *wire.KnownState) (lacks string) {
	return cmp.Or(b.check(known.GetLastStart()), b.check(known.GetBefore()))
}

func (b *Boot) check(e *wire.DiskEvidence) (lacks string) {
	mine := b.Stored
	switch {
	case e.GetBoot() == 0, e.GetBoot() == mine.Boot && e.GetNonce() == mine.Nonce:
		return "" // no evidence, or evidence of this very start
	case e.Boot >= mine.Boot:
		return fmt.Sprintf("this is its start number %d, and start number %d is known with another nonce", mine.Boot, e.Boot)
	case b.contradicts(e):
		return fmt.Sprintf("its start number %d is known with another nonce", e.Boot)
	case e.Term > mine.Term:
		return fmt.Sprintf("it is in term %d, and was in term %d", mine.Term, e.Term)
	case e.VoteTerm > mine.VoteTerm:
		return fmt.Sprintf("its last vote is of term %d, and it voted in term %d", mine.VoteTerm, e.VoteTerm)
	case e.CommittedIndex > mine.LastIndex:
		return fmt.Sprintf("its log ends at entry %d, and it had the committed entry %d", mine.LastIndex, e.CommittedIndex)
	}
	return ""
}

// contradicts reports whether an earlier start is remembered with a nonce that is not in this directory's
// record. It covers a node that was rolled back and then restarted so often that its start number is the
// larger one again.
func (b *Boot) contradicts(e *wire.DiskEvidence) bool {
	back, nonces := b.Stored.Boot-e.Boot, b.record.Nonces
	return back < uint64(len(nonces)) && nonces[uint64(len(nonces))-1-back] != e.Nonce
}

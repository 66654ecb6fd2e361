package client

import "github.com/quorumlock/quorumlock/transport/wire"

// position is a point in the history of the cluster. term and nonce are those of the latest leadership that the client
// knows of, revision is the highest that an answer from the log has had. If all disks are rolled back, the cluster's new
// history lacks it, even where its revisions are higher: the next leadership begins at a lower revision, or the same term
// begins with another nonce.
type position struct{ term, nonce, revision uint64 }

// advance records an answer from the log, or the outcome of a wait. A node names no term if the answer is none, such as a
// read: it may come from a follower that has applied less. The revision of a remembered outcome is an old one, so the
// highest counts.
func (p *position) advance(term, nonce, revision uint64) {
	if term == 0 {
		return
	}
	if term > p.term {
		p.term, p.nonce = term, nonce
	}
	p.revision = max(p.revision, revision)
}

// contradicts reports whether an answer that the leader gave after the position was known proves another history. Later
// states of the same history have no lower term or revision.
func (p *position) contradicts(term, nonce, revision uint64) bool {
	return term != 0 && (term < p.term || term == p.term && nonce != p.nonce || revision < p.revision)
}

// message returns the position for an attach, or nil if there is none.
func (p *position) message() *wire.Position {
	if p.term == 0 {
		return nil
	}
	return &wire.Position{Term: p.term, Nonce: p.nonce, Revision: p.revision}
}

package replica

// AskToStand asks a node to stand for election, as a leader does whose disk hangs.
func (r *Replica) AskToStand(id string, term uint64) error {
	_, err := r.askToStand(r.peer(r.servers()[id]), term)
	return err
}
